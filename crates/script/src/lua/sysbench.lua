-- The sysbench table as scripts know it: options, commands, errors, hooks, random numbers.
-- `native` holds what Plimsoll gives: values of this state and pointers to the C functions of symbols.rs.
local native = ...
local ffi = require("ffi")

ffi.cdef[[
typedef enum { SB_CNT_OTHER, SB_CNT_READ, SB_CNT_WRITE, SB_CNT_RECONNECT, SB_CNT_ERROR, SB_CNT_MAX } sb_counter_type;
uint32_t sb_rand_default(uint32_t, uint32_t);
uint32_t sb_rand_uniform(uint32_t, uint32_t);
uint32_t sb_rand_gaussian(uint32_t, uint32_t);
uint32_t sb_rand_special(uint32_t, uint32_t);
uint32_t sb_rand_pareto(uint32_t, uint32_t);
uint32_t sb_rand_zipfian(uint32_t, uint32_t);
uint32_t sb_rand_unique(void);
uint64_t sb_rand_uniform_uint64(void);
double sb_rand_uniform_double(void);
void sb_rand_str(const char *, char *);
uint32_t sb_rand_varstr(char *, uint32_t, uint32_t);
void sb_counter_inc(int, sb_counter_type);
void sb_counter_add(int, sb_counter_type, uint64_t);
bool sb_more_events(int);
void sb_event_start(int);
void sb_event_stop(int);
int usleep(unsigned int);
]]

local sysbench = {
   tid = native.tid,
   version = native.version,
   version_string = native.version_string,
   error = { NONE = 0, RESTART_EVENT = 1 },
   hooks = {},
   opt = native.opt,
   cmdline = {
      argv = native.argv,
      command = native.command,
      script_path = native.script_path,
      options = {},
      commands = {},
      PARALLEL_COMMAND = true,
      ARG_NULL = 0, ARG_BOOL = 1, ARG_INT = 2, ARG_SIZE = 3, ARG_DOUBLE = 4, ARG_STRING = 5, ARG_LIST = 6,
      ARG_FILE = 7, ARG_MAX = 8,
   },
   rand = {},
}

-- Pointers instead of symbol look-up: the same code runs in the released binary and in tests.
local function pointer(name, kind)
   return ffi.cast(kind, native.symbols[name])
end

local pair = "uint32_t (*)(uint32_t, uint32_t)"
local rand = sysbench.rand
for _, name in ipairs{"default", "uniform", "gaussian", "special", "pareto", "zipfian"} do
   local draw = pointer("sb_rand_" .. name, pair)
   rand[name] = function(a, b) return draw(a, b) end
end
local unique = pointer("sb_rand_unique", "uint32_t (*)(void)")
local uniform_uint64 = pointer("sb_rand_uniform_uint64", "uint64_t (*)(void)")
local uniform_double = pointer("sb_rand_uniform_double", "double (*)(void)")
local fill = pointer("sb_rand_str", "void (*)(const char *, char *)")
local vary = pointer("sb_rand_varstr", "uint32_t (*)(char *, uint32_t, uint32_t)")

function rand.unique() return unique() end
function rand.uniform_uint64() return uniform_uint64() end
function rand.uniform_double() return uniform_double() end
function rand.string(template)
   local length = #template
   local buffer = ffi.new("char[?]", length + 1)
   fill(template, buffer)
   return ffi.string(buffer, length)
end
function rand.varstring(least, most)
   local buffer = ffi.new("char[?]", most + 1)
   return ffi.string(buffer, vary(buffer, least, most))
end

-- Commands.
local cmdline = sysbench.cmdline

function cmdline.command_defined(name)
   return (type(cmdline.commands) == "table" and cmdline.commands[name] ~= nil) or
      (type(rawget(_G, name)) == "function" and
         (name == "prepare" or name == "cleanup" or name == "help" or name == "run" or name == "prewarm"))
end

function cmdline.command_parallel(name)
   local command = cmdline.commands[name]
   return type(command) == "table" and command[2] == cmdline.PARALLEL_COMMAND
end

function cmdline.call_command(name)
   local command = cmdline.commands[name]
   local run
   if command ~= nil then
      run = type(command) == "table" and command[1] or command
   else
      run = rawget(_G, name)
   end
   if type(run) ~= "function" then return false end
   run()
   return true
end

local function kind_of(option)
   if option[3] ~= nil then return option[3] end
   local default = option[2]
   if type(default) == "boolean" then return cmdline.ARG_BOOL end
   if type(default) == "number" then
      return math.floor(default) == default and cmdline.ARG_INT or cmdline.ARG_DOUBLE
   end
   if type(default) == "table" then return cmdline.ARG_LIST end
   return cmdline.ARG_STRING
end

-- What the script declares, for the command line: name, help, default as text, kind.
function native.declared_options()
   local declared = {}
   for name, option in pairs(cmdline.options or {}) do
      if type(option) ~= "table" then
         error("option " .. name .. " must be a table {description, default, type, validate}", 0)
      end
      local default = option[2]
      if type(default) == "boolean" then default = default and "on" or "off" end
      if type(default) == "table" then default = table.concat(default, ",") end
      if type(default) == "number" then
         default = math.floor(default) == default and string.format("%.0f", default) or tostring(default)
      end
      declared[#declared + 1] = { name = name, help = option[1] or "", default = default, kind = kind_of(option) }
   end
   table.sort(declared, function(a, b) return a.name < b.name end)
   return declared
end

-- Functions that check or change the value of an option.
function native.validate_option(name, value)
   local option = (cmdline.options or {})[name]
   if type(option) == "table" and option[4] ~= nil then return option[4](value) end
   return value
end

function cmdline.read_cmdline_options() end

function cmdline.print_test_options()
   io.write(native.print_test_options())
end

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
   io.write(native.format_interval(stat))
   io.flush()
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
   io.flush()
end
function native.end_json()
   if native.json_begun then io.write("\n]\n") end
end

_G.sysbench = sysbench
package.loaded.sysbench = sysbench
_G.ffi = ffi
