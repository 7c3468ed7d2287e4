-- Names of scripts written for sysbench 0.5: one connection, opened when first needed; parameters are the values of a
-- table that is read at each execution.
local native = ...
local sysbench = _G.sysbench
local rand = sysbench.rand

thread_id = sysbench.tid
test = sysbench.cmdline.script_path
sb_rand = rand.default
sb_rand_uniform = rand.uniform
sb_rand_gaussian = rand.gaussian
sb_rand_special = rand.special
sb_rand_str = rand.string
function sb_rnd() return tonumber(rand.uniform_uint64() % 4294967296) end
function sb_rand_uniq(least, most)
   least, most = least or 0, most or 4294967295
   local drawn
   repeat drawn = rand.unique() until drawn >= least and drawn <= most
   return drawn
end
mysql_table_engine = "innodb"
myisam_max_rows = 1000000

local db = { DB_ERROR_NONE = 0, DB_ERROR_RESTART_TRANSACTION = 1, DB_ERROR_FAILED = 2 }
sysbench.db = db
local connection

function db.connect()
   local driver = sysbench.sql.driver()
   db_driver = driver:name()
   connection = driver:connect()
end
local function current()
   if connection == nil then db.connect() end
   return connection
end
function db.disconnect()
   if connection ~= nil then connection:disconnect() end
   connection = nil
end
function db.query(text)
   local rs = current():query(text)
   if rs ~= nil then rs:free() end
end
function db.bulk_insert_init(text) current():bulk_insert_init(text) end
function db.bulk_insert_next(text) current():bulk_insert_next(text) end
function db.bulk_insert_done() current():bulk_insert_done() end
function db.prepare(text) return { statement = current():prepare(text), values = {} } end
function db.bind_param(prepared, values) prepared.values = values end
function db.bind_result() end

-- Parameters are made for the values at hand, and anew where a value has another type or is longer.
local function bind(prepared)
   local values, params = prepared.values, prepared.params
   local fits = params ~= nil and #params == #values
   for i = 1, fits and #values or 0 do
      local is_text = type(values[i]) == "string"
      if is_text ~= params[i].is_text or (is_text and #values[i] > params[i].length) then fits = false end
   end
   if not fits then
      params = {}
      for i = 1, #values do
         if type(values[i]) == "string" then
            params[i] = prepared.statement:bind_create(sysbench.sql.type.VARCHAR, math.max(32, 2 * #values[i]))
         else
            params[i] = prepared.statement:bind_create(sysbench.sql.type.BIGINT)
         end
      end
      if #params > 0 then prepared.statement:bind_param(unpack(params)) end
      prepared.params = params
   end
   for i = 1, #values do params[i]:set(values[i]) end
end
function db.execute(prepared)
   bind(prepared)
   return prepared.statement:execute()
end
function db.store_results(rs) return rs end
function db.free_results(rs) if rs ~= nil then rs:free() end end
function db.close(prepared) prepared.statement:close() end

for name, value in pairs(db) do
   _G[name:find("^DB_") and name or "db_" .. name] = value
end
