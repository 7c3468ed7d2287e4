-- Histogram objects and the report functions that hooks may be set to.
local native = ...
local sysbench = _G.sysbench

-- Histograms live in C memory: see ffi.lua.
sysbench.histogram = {}
function sysbench.histogram.new(size, least, most)
   if native.new_histogram == nil then native.declare_ffi(native.ffi) end
   return native.new_histogram(size, least, most)
end

-- Reports, as hooks or called by scripts' own hooks.
function sysbench.report_default(stat)
   local seconds = stat.time_interval
   print(string.format("[ %.0fs ] thds: %u tps: %4.2f qps: %4.2f (r/w/o: %4.2f/%4.2f/%4.2f) lat (ms,%u%%): %4.2f " ..
      "err/s %4.2f reconn/s: %4.2f", stat.time_total, stat.threads_running, stat.events / seconds,
      (stat.reads + stat.writes + stat.other) / seconds, stat.reads / seconds, stat.writes / seconds,
      stat.other / seconds, sysbench.opt.percentile, stat.latency_pct * 1000, stat.errors / seconds,
      stat.reconnects / seconds))
end
function sysbench.report_csv(stat)
   local seconds = stat.time_interval
   print(string.format("%.0f,%u,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f,%4.2f", stat.time_total,
      stat.threads_running, stat.events / seconds, (stat.reads + stat.writes + stat.other) / seconds,
      stat.reads / seconds, stat.writes / seconds, stat.other / seconds, stat.latency_pct * 1000,
      stat.errors / seconds, stat.reconnects / seconds))
end
function sysbench.report_json(stat)
   if not native.json_begun then
      io.write("[\n")
      native.json_begun = true
   else
      io.write(",\n")
   end
   local seconds = stat.time_interval
   io.write(string.format([[
  {
    "time": %4.0f,
    "threads": %u,
    "tps": %4.2f,
    "qps": {
      "total": %4.2f,
      "reads": %4.2f,
      "writes": %4.2f,
      "other": %4.2f
    },
    "latency": %4.2f,
    "errors": %4.2f,
    "reconnects": %4.2f
  }]], stat.time_total, stat.threads_running, stat.events / seconds,
      (stat.reads + stat.writes + stat.other) / seconds, stat.reads / seconds, stat.writes / seconds,
      stat.other / seconds, stat.latency_pct * 1000, stat.errors / seconds, stat.reconnects / seconds))
end
function native.end_json()
   if native.json_begun then io.write("\n]\n") end
end

-- Calls a hook with the figures that the engine has put into native.stat.
function native.report()
   sysbench.hooks[native.report_hook](native.stat)
end
