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
-- What the hooks are where a script sets none, by the names that scripts of forks call them.
sysbench.report_intermediate_default = sysbench.report_default
function sysbench.report_cumulative_default(stat)
   local seconds = math.max(stat.time_interval, 1e-9)
   local queries = stat.reads + stat.writes + stat.other
   print("SQL statistics:\n    queries performed:")
   for _, line in ipairs{ {"read:", stat.reads}, {"write:", stat.writes}, {"other:", stat.other}, {"total:", queries} } do
      print(string.format("        %-33s%u", line[1], line[2]))
   end
   for _, line in ipairs{ {"transactions:", stat.events}, {"queries:", queries}, {"ignored errors:", stat.errors},
      {"reconnects:", stat.reconnects} } do
      print(string.format("    %-37s%-6u (%.2f per sec.)", line[1], line[2], line[2] / seconds))
   end
   print(string.format("\nGeneral statistics:\n    total time:                          %.4fs\n" ..
      "    total number of events:              %u\n\nLatency (ms):", stat.time_total, stat.events))
   for _, line in ipairs{ {"min:", stat.latency_min}, {"avg:", stat.latency_avg}, {"max:", stat.latency_max},
      {tostring(sysbench.opt.percentile) .. "th percentile:", stat.latency_pct}, {"sum:", stat.latency_sum} } do
      print(string.format("         %-26s%18.2f", line[1], line[2] * 1000))
   end
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
