-- Histogram objects and the report functions that hooks may be set to.
local native = ...
local sysbench = _G.sysbench

-- Histograms.
sysbench.histogram = {}
local histogram_methods = {}
histogram_methods.__index = histogram_methods
function sysbench.histogram.new(size, least, most)
   local counts = {}
   for i = 1, size do counts[i] = 0 end
   return setmetatable({
      size = size, least = least, most = most, counts = counts, total = 0,
      lower = math.log(least), scale = (size - 1) / (math.log(most) - math.log(least)),
   }, histogram_methods)
end
function histogram_methods:update(value)
   local at
   if value < self.least then at = 1
   elseif value > self.most then at = self.size
   else at = math.floor((math.log(value) - self.lower) * self.scale + 0.5) + 1 end
   self.counts[at] = self.counts[at] + 1
   self.total = self.total + 1
end
function histogram_methods:percentile(percent)
   if self.total == 0 then return 0 end
   local wanted, seen = math.floor(self.total * percent / 100 + 0.5), 0
   for i = 1, self.size do
      seen = seen + self.counts[i]
      if seen >= wanted then return math.exp((i - 1) / self.scale + self.lower) end
   end
   return self.most
end
function histogram_methods:print()
   local largest = 0
   for i = 1, self.size do largest = math.max(largest, self.counts[i]) end
   if largest == 0 then return end
   print("       value  ------------- distribution ------------- count")
   for i = 1, self.size do
      if self.counts[i] > 0 then
         local width = math.floor(self.counts[i] * 40 / largest + 0.5)
         print(string.format("%12.3f |%-40s %d", math.exp((i - 1) / self.scale + self.lower),
            string.rep("*", width), self.counts[i]))
      end
   end
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
