-- sysbench.sql: drivers, connections, statements, parameters, results.
--
-- Whatever waits for a server is a yield of the session's coroutine: `ask(operation, ...)` hands the request to
-- the load engine, which resumes with the answer. Parameters live in C memory that the engine reads by itself.
local native = ...
local ffi = require("ffi")
local sysbench = _G.sysbench
local yield = coroutine.yield

ffi.cdef[[
typedef struct { int64_t whole; double real; const char *text; uint32_t length; uint8_t kind; uint8_t is_null; } plimsoll_param;
]]

-- Numbers of the requests: see host.rs.
local CONNECT, DISCONNECT, RECONNECT, QUERY, PREPARE, BIND, EXECUTE, CLOSE, NEXT_RESULT =
   1, 2, 3, 4, 5, 6, 7, 8, 9

-- Yields carry a mark, so that coroutines of the script's own pass them on instead of taking them.
local MARK = native.mark
local function ask(operation, a, b, c)
   return yield(MARK, operation, a, b, c)
end
native.ask = ask

-- A script may run its own coroutines; requests that come up in them go on to the engine.
local raw_resume, raw_wrap = coroutine.resume, coroutine.wrap
local function pass_on(thread, ok, first, ...)
   while ok and first == MARK do
      local answer = { yield(MARK, ...) }
      return pass_on(thread, raw_resume(thread, unpack(answer, 1, table.maxn(answer))))
   end
   return ok, first, ...
end
function coroutine.resume(thread, ...)
   return pass_on(thread, raw_resume(thread, ...))
end
function coroutine.wrap(body)
   local thread = coroutine.create(body)
   local function unwrap(ok, ...)
      if not ok then error((...), 0) end
      return ...
   end
   return function(...) return unwrap(coroutine.resume(thread, ...)) end
end

local sql = {
   type = {
      NONE = 0, TINYINT = 1, SMALLINT = 2, INT = 3, BIGINT = 4, FLOAT = 5, DOUBLE = 6, TIME = 7, DATE = 8,
      DATETIME = 9, TIMESTAMP = 10, CHAR = 11, VARCHAR = 12,
   },
   error = { NONE = 0, IGNORABLE = 1, FATAL = 2 },
}
sysbench.sql = sql

local driver_methods, connection_methods, statement_methods, param_methods, result_methods = {}, {}, {}, {}, {}
local driver_meta = { __index = driver_methods, __tostring = function() return "<sql_driver>" end }
local connection_meta = { __index = connection_methods, __tostring = function() return "<sql_connection>" end }
local statement_meta = { __index = statement_methods, __tostring = function() return "<sql_statement>" end }
local param_meta = { __index = param_methods, __tostring = function() return "<sql_param>" end }
local result_meta = { __index = result_methods, __tostring = function() return "<sql_result>" end }

-- Levels of messages.
local FATAL, ALERT = 0, 1
local PREPARED = "<prepared statement>"

-- What a request gave: 0 = done, else an error described by a table.
-- `words` are those of the error where it is no plain SQL error.
local function failed(connection, query, problem, words)
   connection.sql_errno, connection.sql_state, connection.sql_errmsg =
      problem.sql_errno, problem.sql_state, problem.sql_errmsg
   connection.error = problem.ignorable and sql.error.IGNORABLE or sql.error.FATAL
   local told = {
      connection = connection, query = query, sql_errno = problem.sql_errno, sql_state = problem.sql_state,
      sql_errmsg = problem.sql_errmsg,
   }
   local ignorable = problem.ignorable
   local hook = sysbench.hooks.sql_error_ignorable
   if hook ~= nil and not ignorable then
      ignorable = hook(told)
      if ignorable then connection.error = sql.error.IGNORABLE end
   end
   if ignorable then
      if problem.reconnect then
         local id, lost = ask(RECONNECT, connection.id)
         if id == nil then
            error(string.format("the connection is lost and cannot be opened again: %s", lost.sql_errmsg), 3)
         end
      end
      told.errcode = sysbench.error.RESTART_EVENT
      error(told, 0)
   end
   error(words or string.format("SQL error, errno = %d, state = '%s': %s", problem.sql_errno, problem.sql_state,
      problem.sql_errmsg), 3)
end

-- Drivers.
function sql.driver(name)
   name = name or sysbench.opt.db_driver
   if name ~= "mysql" and name ~= "pgsql" then
      native.say(FATAL, "invalid database driver name: '" .. tostring(name) .. "'")
      error("failed to initialize the DB driver", 2)
   end
   return setmetatable({ driver_name = name }, driver_meta)
end
function driver_methods:name() return self.driver_name end
function driver_methods:connect()
   local id = ask(CONNECT, self.driver_name)
   if id == nil then error("connection creation failed", 2) end
   return native.connection(id, self.driver_name, self)
end
native.connection_methods = connection_methods
function native.connection(id, name, driver)
   return setmetatable({
      id = id, driver = driver or sql.driver(name), error = sql.error.NONE, sql_errno = 0, sql_state = "",
      sql_errmsg = "",
   }, connection_meta)
end

-- Connections.
local function connected(connection)
   if connection.id == nil then
      native.say(ALERT, "attempt to use an already closed connection")
      error("SQL API error", 3)
   end
end
function connection_methods:disconnect()
   if self.id ~= nil then
      ask(DISCONNECT, self.id)
      self.id = nil
   end
end
function connection_methods:reconnect()
   connected(self)
   local id, problem = ask(RECONNECT, self.id)
   if id == nil then failed(self, nil, problem) end
end

local function result(connection, rows, fields, handle)
   if fields == nil or fields == 0 then return nil end
   return setmetatable({ connection = connection, nrows = rows, nfields = fields, handle = handle, at = 0 }, result_meta)
end

function connection_methods:query(text)
   connected(self)
   local rows, fields, handle = ask(QUERY, self.id, text)
   if rows == nil then failed(self, text, fields) end
   self.error = sql.error.NONE
   return result(self, rows, fields, handle)
end
function connection_methods:query_row(text)
   local rs = self:query(text)
   if rs == nil then return nil end
   local row = rs:fetch_row()
   rs:free()
   if row == nil then return nil end
   return unpack(row, 1, rs.nfields)
end
function connection_methods:more_results()
   connected(self)
   return native.more_results(self.id)
end
function connection_methods:next_result()
   connected(self)
   local rows, fields, handle = ask(NEXT_RESULT, self.id)
   if rows == nil then
      if fields == nil then return nil end
      failed(self, nil, fields)
   end
   return result(self, rows, fields, handle)
end
function connection_methods:check_error(rs, query)
   if rs == nil and self.error ~= sql.error.NONE then
      failed(self, query, {
         sql_errno = self.sql_errno, sql_state = self.sql_state, sql_errmsg = self.sql_errmsg,
         ignorable = self.error == sql.error.IGNORABLE,
      })
   end
end

-- Statements.
function connection_methods:prepare(text)
   connected(self)
   local id, problem = ask(PREPARE, self.id, text)
   if id == nil then failed(self, text, problem, "SQL API error") end
   return setmetatable({ connection = self, id = id, text = text, params = nil }, statement_meta)
end

-- Whole numbers are 64 bits wide whatever their type, as in sysbench.
local KINDS = {
   [1] = 2, [2] = 2, [3] = 2, [4] = 2, [5] = 3, [6] = 3, [7] = 4, [8] = 4, [9] = 4, [10] = 4, [11] = 4, [12] = 4,
}
function statement_methods:bind_create(kind, length)
   local family = KINDS[kind]
   if family == nil then error("unsupported parameter type: " .. tostring(kind), 2) end
   local cell = ffi.new("plimsoll_param")
   cell.kind = family
   cell.is_null = 1
   local param = { cell = cell, kind = kind, is_text = family == 4, is_real = family == 3 }
   if family == 4 then
      if kind >= 11 and (length == nil or length < 1) then
         error("a CHAR or VARCHAR parameter wants its largest length", 2)
      end
      param.length = length or 32
      param.buffer = ffi.new("char[?]", param.length + 1)
      cell.text = param.buffer
   end
   return setmetatable(param, param_meta)
end
function statement_methods:bind_param(...)
   local params = { ... }
   if #params == 0 then return nil end
   local addresses = {}
   for i = 1, #params do
      addresses[i] = tonumber(ffi.cast("uintptr_t", ffi.cast("plimsoll_param *", params[i].cell)))
   end
   addresses.statement = self.id
   local ok, problem = ask(BIND, self.connection.id, addresses)
   if ok == nil then failed(self.connection, self.text, problem, "SQL API error") end
   -- The C memory must live as long as the statement may read it.
   self.params = params
end
function statement_methods:execute()
   local connection = self.connection
   if self.id == nil or connection.id == nil then error("attempt to use a closed statement", 2) end
   local rows, fields, handle = ask(EXECUTE, connection.id, self.id)
   if rows == nil then failed(connection, PREPARED, fields) end
   if fields == 0 then return nil end
   -- Rows of prepared statements cannot be fetched, so results of the same size are alike: nothing new for the
   -- garbage collector in each event.
   local last = self.last
   if last == nil or last.nrows ~= rows or last.nfields ~= fields then
      last = result(connection, rows, fields, handle)
      self.last = last
   end
   return last
end
function statement_methods:close()
   if self.id ~= nil and self.connection.id ~= nil then
      ask(CLOSE, self.connection.id, self.id)
   end
   self.id = nil
end

-- Parameters.
function param_methods:set(value)
   local cell = self.cell
   if value == nil then
      cell.is_null = 1
      return
   end
   cell.is_null = 0
   if self.is_text then
      value = tostring(value)
      local length = #value
      if length > self.length then length = self.length end
      ffi.copy(self.buffer, value, length)
      cell.length = length
   elseif self.is_real then
      cell.real = value
   else
      cell.whole = value
   end
end
local fill = ffi.cast("void (*)(const char *, char *)", native.symbols.sb_rand_str)
function param_methods:set_rand_str(template)
   if not self.is_text then error("set_rand_str() is for text parameters", 2) end
   local length = #template
   if length > self.length then length = self.length end
   if length < #template then template = template:sub(1, length) end
   fill(template, self.buffer)
   self.cell.length = length
   self.cell.is_null = 0
end

-- Results.
function result_methods:fetch_row()
   if self.at >= self.nrows then return nil end
   self.at = self.at + 1
   return native.fetch_row(self.connection.id, self.handle, self.at, self.nfields)
end
function result_methods:free()
   if self.handle ~= nil and self.connection.id ~= nil then native.free_result(self.connection.id, self.handle) end
   self.handle = nil
   self.at = self.nrows
end

-- Bulk inserts: statements of up to 512 KiB.
local BULK_BYTES = 512 * 1024
local function flush(bulk, connection)
   if bulk.count == 0 then return end
   local text = bulk.head .. table.concat(bulk.rows, ",", 1, bulk.count)
   bulk.count, bulk.bytes = 0, #bulk.head
   local rows, problem = ask(QUERY, connection.id, text)
   if rows == nil then return problem, text end
end
function connection_methods:bulk_insert_init(head)
   connected(self)
   self.bulk = { head = head, rows = {}, count = 0, bytes = #head }
end
function connection_methods:bulk_insert_next(row)
   local bulk = self.bulk
   if bulk == nil then
      native.say(ALERT, "attempt to call bulk_insert_next() before bulk_insert_init()")
      error("db_bulk_insert_next() failed", 2)
   end
   local length = #row
   if bulk.bytes + length + (bulk.count > 0 and 2 or 1) > BULK_BYTES then
      if bulk.count == 0 then error("a row of a bulk insert is longer than " .. BULK_BYTES .. " bytes", 2) end
      local problem, text = flush(bulk, self)
      if problem ~= nil then failed(self, text, problem, "db_bulk_insert_next() failed") end
   end
   bulk.bytes = bulk.bytes + length + (bulk.count > 0 and 1 or 0)
   bulk.count = bulk.count + 1
   bulk.rows[bulk.count] = row
end
function connection_methods:bulk_insert_done()
   if self.bulk ~= nil then
      local problem, text = flush(self.bulk, self)
      self.bulk = nil
      if problem ~= nil then failed(self, text, problem, "db_bulk_insert_done() failed") end
   end
end
