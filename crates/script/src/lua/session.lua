-- The course of one session: thread_init, events, thread_done.
local native = ...
local sysbench = _G.sysbench
local ask, answer = native.ask, native.answer
local MORE, RESTART = native.request.MORE, native.request.RESTART

-- What scripts reach through FFI is declared when a script first looks at it: most never do.
local proxy = setmetatable({}, { __index = function(self, name)
   native.declare_ffi(self)
   return self[name]
end })
native.ffi = proxy
_G.ffi = proxy
package.loaded.ffi = proxy

local traceback = debug.traceback

-- An error with its traceback, once; tables are thrown on purpose and stay as they are.
local function describe(problem)
   if type(problem) == "table" then return problem end
   problem = tostring(problem)
   -- Said in full, or known to have its traceback already.
   if problem:find("\nstack traceback:", 1, true) or problem:find("failed to initialize the DB driver", 1, true) then
      return problem
   end
   -- LuaJIT cannot name some frames of precompiled chunks; file and line are in the message all the same.
   local ok, traced = pcall(traceback, problem, 2)
   return ok and traced or problem
end
native.describe = describe

-- The loop of events. Scripts may define their own thread_run, or wrap this one.
function thread_run(tid)
   while ask(MORE, 0, 0, nil, 0, answer) == 1 do
      local ok, stop = xpcall(_G.event, describe, tid)
      while not ok do
         if type(stop) ~= "table" or stop.errcode ~= sysbench.error.RESTART_EVENT then
            error(stop, 0)
         end
         local hook = sysbench.hooks.before_restart_event
         if hook then hook(stop) end
         local code = stop.sql_errno == 0 and stop.sql_state or stop.sql_errno
         local text = tostring(code) .. "\n" .. tostring(stop.sql_errmsg)
         ask(RESTART, 0, 0, text, #text, answer)
         ok, stop = xpcall(_G.event, describe, tid)
      end
      if stop then break end
   end
end

local function call(name, ...)
   local run = _G[name]
   if run == nil then return end
   local ok, problem = xpcall(run, describe, ...)
   if ok then return end
   if type(problem) == "table" then problem = problem.sql_errmsg or "(not a string)" end
   error("`" .. name .. "' function failed: " .. problem, 0)
end

-- The script's file scope, then its options. Without options: the first look at a script, which tells what it declares.
function native.load_only()
   local ok, problem = xpcall(native.script, describe)
   if not ok then error(type(problem) == "table" and "(not a string)" or problem, 0) end
end
function native.load()
   native.load_only()
   native.fill_options()
end

-- The course of a session.
function native.main()
   -- Each of hundreds of sessions has to find out anew what is worth compiling; an event is called again for sure. A
   -- script may say otherwise.
   jit.opt.start("hotloop=4")
   native.load()
   local tid = sysbench.tid
   call("thread_init", tid)
   call("thread_run", tid)
   call("thread_done", tid)
end

-- A global function by name: init, done, prepare, cleanup, help.
function native.call_global() call(native.wanted) end

-- A command of the script's table, in the state that has loaded it or in one of its own.
function native.command()
   local name = native.wanted
   local ok, answer = xpcall(sysbench.cmdline.call_command, describe, name)
   if not ok then error("`sysbench.cmdline.call_command' function failed: " .. tostring(answer), 0) end
   if not answer then error("the command " .. name .. " failed", 0) end
end
function native.load_and_command()
   native.load()
   native.command()
end
