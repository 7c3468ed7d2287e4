-- sysbench.sql: drivers, connections, statements, parameters, results.
--
-- Whatever waits for a server is a request to the engine: to Lua a C function that takes its time. Parameters live in C
-- memory that the engine reads by itself.
local native = ...
local ffi = require("ffi")
local sysbench = _G.sysbench
local ask, answer, request, problem = native.ask, native.answer, native.request, native.problem

ffi.cdef[[
typedef struct { int64_t whole; double real; const char *text; uint32_t length; uint8_t kind; uint8_t is_null; } plimsoll_param;
]]

local CONNECT, DISCONNECT, RECONNECT = request.CONNECT, request.DISCONNECT, request.RECONNECT
local QUERY, PREPARE, BIND, EXECUTE = request.QUERY, request.PREPARE, request.BIND, request.EXECUTE
local CLOSE, NEXT_RESULT = request.CLOSE, request.NEXT_RESULT

-- Requests that are about a connection only, or have a text.
local function ask_of(operation, id) return ask(operation, id, 0, nil, 0, answer) end
local function ask_text(operation, id, text) return ask(operation, id, 0, text, #text, answer) end

local sql = {
   type = {
      NONE = 0, TINYINT = 1, SMALLINT = 2, INT = 3, BIGINT = 4, FLOAT = 5, DOUBLE = 6, TIME = 7, DATE = 8,
      DATETIME = 9, TIMESTAMP = 10, CHAR = 11, VARCHAR = 12,
   },
   error = { NONE = 0, IGNORABLE = 1, FATAL = 2 },
}
sysbench.sql = sql

local driver_methods, connection_methods, statement_methods, result_methods = {}, {}, {}, {}
local driver_meta = { __index = driver_methods, __tostring = function() return "<sql_driver>" end }
local connection_meta = { __index = connection_methods, __tostring = function() return "<sql_connection>" end }
local statement_meta = { __index = statement_methods, __tostring = function() return "<sql_statement>" end }
local result_meta = { __index = result_methods, __tostring = function() return "<sql_result>" end }

-- Levels of messages.
local FATAL, ALERT = 0, 1
local PREPARED = "<prepared statement>"

-- A request failed; `found` is what went wrong.
-- `words` are those of the error where it is no plain SQL error.
local function failed(connection, query, found, words)
   connection.sql_errno, connection.sql_state, connection.sql_errmsg =
      found.sql_errno, found.sql_state, found.sql_errmsg
   connection.error = found.ignorable and sql.error.IGNORABLE or sql.error.FATAL
   local told = {
      connection = connection, query = query, sql_errno = found.sql_errno, sql_state = found.sql_state,
      sql_errmsg = found.sql_errmsg,
   }
   local ignorable = found.ignorable
   local hook = sysbench.hooks.sql_error_ignorable
   if hook ~= nil and not ignorable then
      ignorable = hook(told)
      if ignorable then connection.error = sql.error.IGNORABLE end
   end
   if ignorable then
      if found.reconnect then
         if ask_of(RECONNECT, connection.id) < 0 then
            error(string.format("the connection is lost and cannot be opened again: %s", problem().sql_errmsg), 3)
         end
      end
      told.errcode = sysbench.error.RESTART_EVENT
      error(told, 0)
   end
   error(words or string.format("SQL error, errno = %d, state = '%s': %s", found.sql_errno, found.sql_state,
      found.sql_errmsg), 3)
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
   local id = ask_text(CONNECT, 0, self.driver_name)
   if id < 0 then error("connection creation failed", 2) end
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
      ask_of(DISCONNECT, self.id)
      self.id = nil
   end
end
function connection_methods:reconnect()
   connected(self)
   if ask_of(RECONNECT, self.id) < 0 then failed(self, nil, problem()) end
end

local function result(connection, rows)
   if answer.fields == 0 then return nil end
   return setmetatable({
      connection = connection, nrows = rows, nfields = answer.fields, handle = answer.handle, at = 0,
   }, result_meta)
end

function connection_methods:query(text)
   connected(self)
   if type(text) ~= "string" then error("query() takes a string", 2) end
   local rows = ask_text(QUERY, self.id, text)
   if rows < 0 then failed(self, text, problem()) end
   self.error = sql.error.NONE
   return result(self, rows)
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
   local rows = ask_of(NEXT_RESULT, self.id)
   if rows < 0 then return nil end
   return result(self, rows)
end
function connection_methods:check_error(rs, query)
   if rs == nil and self.error ~= sql.error.NONE then
      failed(self, query, {
         sql_errno = self.sql_errno, sql_state = self.sql_state, sql_errmsg = self.sql_errmsg,
         ignorable = self.error == sql.error.IGNORABLE,
      })
   end
end

-- Statements. A closed one is of a connection that there is none of, for which the engine says so.
local CLOSED, NONE_YET = 2 ^ 53, { nrows = -1 }
function connection_methods:prepare(text)
   connected(self)
   local id = ask_text(PREPARE, self.id, text)
   if id < 0 then failed(self, text, problem(), "SQL API error") end
   return setmetatable({
      connection = self, connection_id = self.id, id = id, text = text, params = nil, last = NONE_YET,
   }, statement_meta)
end

-- Whole numbers are 64 bits wide whatever their type, as in sysbench.
local WHOLE, REAL, TEXT = 2, 3, 4
local KINDS = {
   [1] = 2, [2] = 2, [3] = 2, [4] = 2, [5] = 3, [6] = 3, [7] = 4, [8] = 4, [9] = 4, [10] = 4, [11] = 4, [12] = 4,
}
-- Parameters. Each family has methods of its own, which keeps them short.
local param_metas = {}
local function param_methods(family)
   local methods = {}
   param_metas[family] = { __index = methods, __tostring = function() return "<sql_param>" end }
   return methods
end
local whole, real, text = param_methods(WHOLE), param_methods(REAL), param_methods(TEXT)
function whole:set(value)
   local cell = self.cell
   if value == nil then
      cell.is_null = 1
   else
      cell.whole, cell.is_null = value, 0
   end
end
function real:set(value)
   local cell = self.cell
   if value == nil then
      cell.is_null = 1
   else
      cell.real, cell.is_null = value, 0
   end
end
function text:set(value)
   local cell = self.cell
   if value == nil then
      cell.is_null = 1
      return
   end
   value = tostring(value)
   local length = math.min(#value, self.length)
   ffi.copy(self.buffer, value, length)
   cell.length, cell.is_null = length, 0
end
local fill = ffi.cast("void (*)(const char *, char *)", native.symbols.sb_rand_str)
function text:set_rand_str(template)
   local length = math.min(#template, self.length)
   if length < #template then template = template:sub(1, length) end
   fill(template, self.buffer)
   self.cell.length, self.cell.is_null = length, 0
end
function whole.set_rand_str() error("set_rand_str() is for text parameters", 2) end
real.set_rand_str = whole.set_rand_str

function statement_methods:bind_create(kind, length)
   local family = KINDS[kind]
   if family == nil then error("unsupported parameter type: " .. tostring(kind), 2) end
   local cell = ffi.new("plimsoll_param")
   cell.kind = family
   cell.is_null = 1
   local param = { cell = cell, kind = kind, is_text = family == TEXT }
   if family == TEXT then
      if kind >= 11 and (length == nil or length < 1) then
         error("a CHAR or VARCHAR parameter wants its largest length", 2)
      end
      param.length = length or 32
      param.buffer = ffi.new("char[?]", param.length + 1)
      cell.text = param.buffer
   end
   return setmetatable(param, param_metas[family])
end
function statement_methods:bind_param(...)
   local params = { ... }
   if #params == 0 then return nil end
   local addresses = ffi.new("plimsoll_param *[?]", #params)
   for i = 1, #params do addresses[i - 1] = params[i].cell end
   local ok = ask(BIND, self.connection_id, self.id, ffi.cast("const char *", addresses), ffi.sizeof(addresses), answer)
   if ok < 0 then failed(self.connection, self.text, problem(), "SQL API error") end
   -- The C memory must live as long as the statement may read it.
   self.params = params
end
-- Kept short: this is what events consist of, and each session has its own copy of the machine code.
function statement_methods:execute()
   local rows = ask(EXECUTE, self.connection_id, self.id, nil, 0, answer)
   if rows < 0 then
      local found = problem()
      if self.connection_id == CLOSED or self.connection.id == nil then error("attempt to use a closed statement", 2) end
      failed(self.connection, PREPARED, found)
   end
   if answer.fields == 0 then return nil end
   -- Rows of prepared statements cannot be fetched, so results of the same size are alike: nothing new for the
   -- garbage collector in each event.
   local last = self.last
   if last.nrows ~= rows then
      last = result(self.connection, rows)
      self.last = last
   end
   return last
end
function statement_methods:close()
   if self.connection_id ~= CLOSED then ask(CLOSE, self.connection_id, self.id, nil, 0, answer) end
   self.connection_id = CLOSED
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
   if ask_text(QUERY, connection.id, text) < 0 then return problem(), text end
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
      local found, text = flush(bulk, self)
      if found ~= nil then failed(self, text, found, "db_bulk_insert_next() failed") end
   end
   bulk.bytes = bulk.bytes + length + (bulk.count > 0 and 1 or 0)
   bulk.count = bulk.count + 1
   bulk.rows[bulk.count] = row
end
function connection_methods:bulk_insert_done()
   if self.bulk ~= nil then
      local found, text = flush(self.bulk, self)
      self.bulk = nil
      if found ~= nil then failed(self, text, found, "db_bulk_insert_done() failed") end
   end
end
