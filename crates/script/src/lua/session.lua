-- The course of one session: thread_init, events, thread_done, in one coroutine. And the names of sysbench 0.5.
local native = ...
local ffi = require("ffi")
local sysbench = _G.sysbench
local MARK = native.mark
local yield = coroutine.yield
local MORE, RESTART = 20, 21

-- Scripts with a thread_run of their own ask for events through FFI; a C function cannot wait for the load
-- engine, so these few names lead to Lua functions that can.
local started
local waiting = {
   sb_more_events = function() return yield(MARK, MORE) end,
   sb_event_start = function() started = true end,
   sb_event_stop = function() started = false end,
}
for _, name in ipairs(native.blocking_symbols) do
   waiting[name] = function()
      error("ffi.C." .. name .. "() would block all sessions of this worker; use the methods of the connection " ..
         "(con:query(), stmt:execute()), which wait for the server without blocking", 2)
   end
end
local real = ffi
local proxy = setmetatable({
   C = setmetatable({}, { __index = function(_, name)
      local own = waiting[name]
      if own ~= nil then return own end
      local address = native.symbols[name]
      if address ~= nil and not native.exported then
         local ok, kind = pcall(function() return native.prototypes[name] end)
         if ok and kind then return real.cast(kind, address) end
      end
      return real.C[name]
   end }),
}, { __index = real })
_G.ffi = proxy
package.loaded.ffi = proxy

-- Names of 1.0's legacy scripts.
_G.thread_id = sysbench.tid
_G.test = sysbench.cmdline.script_path
_G.sb_rand = sysbench.rand.default
_G.sb_rand_uniform = sysbench.rand.uniform
_G.sb_rand_gaussian = sysbench.rand.gaussian
_G.sb_rand_special = sysbench.rand.special
_G.sb_rand_pareto = sysbench.rand.pareto
_G.sb_rand_str = sysbench.rand.string
_G.sb_rand_uniq = sysbench.rand.unique
_G.sb_rnd = function() return sysbench.rand.uniform(0, 1073741823) end
_G.DB_ERROR_NONE, _G.DB_ERROR_RESTART_TRANSACTION, _G.DB_ERROR_FAILED = 0, 1, 2
do
   local driver, connection
   local function current()
      if connection == nil then error("db_connect() comes first", 3) end
      return connection
   end
   function db_connect()
      driver = driver or sysbench.sql.driver()
      connection = driver:connect()
      return connection
   end
   function db_disconnect()
      if connection ~= nil then connection:disconnect() end
      connection = nil
   end
   function db_query(text) return current():query(text) end
   function db_bulk_insert_init(text) return current():bulk_insert_init(text) end
   function db_bulk_insert_next(text) return current():bulk_insert_next(text) end
   function db_bulk_insert_done() return current():bulk_insert_done() end
   function db_prepare(text) return current():prepare(text) end
   function db_bind_param(statement, params) return statement:bind_param(unpack(params)) end
   function db_bind_result() end
   function db_execute(statement) return statement:execute() end
   function db_store_results(rs) return rs end
   function db_free_results(rs) if rs ~= nil then rs:free() end end
   function db_close(statement) return statement:close() end
end

local function describe(problem)
   if type(problem) == "table" then return problem end
   return debug.traceback(tostring(problem), 2)
end
native.describe = describe

-- The function that the session's coroutine runs.
function native.main()
   local tid = sysbench.tid
   local run = rawget(_G, "thread_run")
   if type(_G.thread_init) == "function" then _G.thread_init(tid) end
   if run ~= nil then
      run(tid)
   else
      local event, hook = _G.event, nil
      if type(event) ~= "function" then error("cannot find the event() function in " .. native.script_name, 0) end
      while yield(MARK, MORE) do
         event = _G.event
         local ok, answer = xpcall(event, describe, tid)
         while not ok do
            if type(answer) ~= "table" or answer.errcode ~= sysbench.error.RESTART_EVENT then
               error(type(answer) == "table" and (answer.sql_errmsg or "error of the script") or answer, 0)
            end
            hook = sysbench.hooks.before_restart_event
            if hook ~= nil then hook(answer) end
            yield(MARK, RESTART, answer.sql_errno, answer.sql_state, answer.sql_errmsg)
            ok, answer = xpcall(event, describe, tid)
         end
         if answer then break end
      end
   end
   if type(_G.thread_done) == "function" then _G.thread_done(tid) end
end

-- Runs a command (prepare, cleanup, the script's own) in a coroutine of its own.
function native.command(name)
   return sysbench.cmdline.call_command(name)
end
