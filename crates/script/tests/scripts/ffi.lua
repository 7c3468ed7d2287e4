-- The C functions by FFI, with the structures that sysbench declares.
local ffi = require("ffi")
local C = ffi.C

local function query(text) return C.db_query(con, text, #text) end

function thread_init()
   table_name = "ffi" .. sysbench.tid
   drv = C.db_create(nil)
   con = C.db_connection_create(drv)
   query("DROP TABLE IF EXISTS " .. table_name)
   query("CREATE TABLE " .. table_name .. " (a INT, b VARCHAR(20), c INT)")
end

function event()
   local head = "INSERT INTO " .. table_name .. " (a, b) VALUES"
   C.db_bulk_insert_init(con, head, #head)
   for i = 1, 3 do
      local row = "(" .. i .. ",'x" .. i .. "')"
      C.db_bulk_insert_next(con, row, #row)
   end
   assert(C.db_bulk_insert_done(con) == 0)

   local text = "UPDATE " .. table_name .. " SET b = ? WHERE a = ?"
   local stmt = C.db_prepare(con, text, #text)
   local binds = ffi.new("sql_bind[2]")
   local word, length = ffi.new("char[20]", "hello"), ffi.new("unsigned long[1]", 5)
   local number, null = ffi.new("int32_t[1]", 2), ffi.new("char[1]", 0)
   binds[0].type, binds[0].buffer, binds[0].data_len, binds[0].max_len = C.SQL_TYPE_VARCHAR, word, length, 20
   binds[1].type, binds[1].buffer, binds[1].is_null = C.SQL_TYPE_INT, number, null
   assert(C.db_bind_param(stmt, binds, 2) == 0)
   assert(C.db_execute(stmt) == nil and con.error == C.DB_ERROR_NONE)
   assert(C.db_close(stmt) == 0)

   local rs = query("SELECT a, b, c FROM " .. table_name .. " ORDER BY a")
   assert(rs.nrows == 3 and rs.nfields == 3 and rs.counter == C.SB_CNT_READ)
   local row = C.db_fetch_row(rs)
   while row ~= nil do
      local values = {}
      for i = 0, 2 do
         local value = row.values[i]
         values[i + 1] = value.ptr ~= nil and ffi.string(value.ptr, value.len) or "nil"
      end
      print("row: " .. table.concat(values, " "))
      row = C.db_fetch_row(rs)
   end
   assert(C.db_free_results(rs) == 0 and C.db_free_results(rs) == 1)

   assert(query("SELECT * FROM missing") == nil)
   print("error: " .. tonumber(con.error) .. " " .. tostring(#ffi.string(con.sql_errmsg) > 0))
   -- Objects of C have the methods of the Lua API, and the other way round.
   print("method: " .. con:query_row("SELECT b FROM " .. table_name .. " WHERE a = 2"))
   local lua = sysbench.sql.driver():connect()
   local seven = C.db_query(lua, "SELECT 7", 8)
   print("lua: " .. seven:fetch_row()[1])
   seven:free()
   lua:disconnect()
   assert(C.db_connection_reconnect(con) == 1)
end

function thread_done()
   C.db_connection_close(con)
   C.db_connection_free(con)
end
