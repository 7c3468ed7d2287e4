-- The sysbench table as scripts know it: errors, hooks, random numbers.
-- `native` holds what Plimsoll gives: values of this state and pointers to the C functions of symbols.rs.
local native = ...
local ffi = require("ffi")
native.real_ffi = ffi

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

-- Requests to the engine: numbers, a text and its length go there; a number comes back, below 0 where there is none,
-- and the rest of an answer in `answer`. What went wrong tells native.problem(). See fiber.rs.
ffi.cdef[[
typedef struct { double fields; double handle; } plimsoll_answer;
]]
native.answer = ffi.new("plimsoll_answer")
native.ask = pointer("plimsoll_ask", "double (*)(int, double, double, const char *, size_t, plimsoll_answer *)")
native.note_c = pointer("plimsoll_note_c", "void (*)(const char *)")
native.pcall = pcall

-- LuaJIT's own print writes its words one by one, and sessions print from several threads: here a line stays whole.
local stdout = io.stdout
function print(...)
   local words, count = {...}, select("#", ...)
   for i = 1, count do
      local word = tostring(words[i])
      if type(word) ~= "string" then error("'tostring' must return a string to 'print'", 2) end
      words[i] = word
   end
   stdout:write(table.concat(words, "\t", 1, count) .. "\n")
end

_G.sysbench = sysbench
package.loaded.sysbench = sysbench
_G.ffi = ffi
