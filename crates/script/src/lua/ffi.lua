-- What scripts reach through FFI: types and functions by the names of sysbench's binary. Runs when a script first looks
-- at `ffi`.
local native, proxy = ...
local real = native.real_ffi
local sysbench = _G.sysbench
local ask, answer, MORE = native.ask, native.answer, native.request.MORE

real.cdef[[
typedef enum { SB_CNT_OTHER, SB_CNT_READ, SB_CNT_WRITE, SB_CNT_TRX, SB_CNT_ERROR, SB_CNT_RECONNECT, SB_CNT_MAX } sb_counter_type;
typedef enum { DB_ERROR_NONE, DB_ERROR_IGNORABLE, DB_ERROR_FATAL } sql_error_t;
typedef enum {
   SQL_TYPE_NONE, SQL_TYPE_TINYINT, SQL_TYPE_SMALLINT, SQL_TYPE_INT, SQL_TYPE_BIGINT, SQL_TYPE_FLOAT, SQL_TYPE_DOUBLE,
   SQL_TYPE_TIME, SQL_TYPE_DATE, SQL_TYPE_DATETIME, SQL_TYPE_TIMESTAMP, SQL_TYPE_CHAR, SQL_TYPE_VARCHAR
} sql_bind_type_t;
typedef enum {
   SB_ARG_TYPE_NULL, SB_ARG_TYPE_BOOL, SB_ARG_TYPE_INT, SB_ARG_TYPE_SIZE, SB_ARG_TYPE_DOUBLE, SB_ARG_TYPE_STRING,
   SB_ARG_TYPE_LIST, SB_ARG_TYPE_FILE, SB_ARG_TYPE_MAX
} sb_arg_type_t;
typedef struct { const char *sname; const char *lname; const char opaque[?]; } sql_driver;
typedef struct { uint32_t len; const char *ptr; } sql_value;
typedef struct { void *ptr; sql_value *values; } sql_row;
typedef struct {
   sql_error_t error; int sql_errno; const char *sql_state; const char *sql_errmsg; sql_driver *driver;
   uint64_t plimsoll_id; const char opaque[?];
} sql_connection;
typedef struct { sql_connection *connection; const char opaque[?]; } sql_statement;
typedef struct {
   sb_counter_type counter; uint32_t nrows; uint32_t nfields; sql_statement *statement; void *ptr; sql_row row;
} sql_result;
typedef struct {
   sql_bind_type_t type; void *buffer; unsigned long *data_len; unsigned long max_len; char *is_null;
} sql_bind;
typedef struct histogram sb_histogram_t;

uint64_t sb_rand_uniform_uint64(void);
uint32_t sb_rand_default(uint32_t, uint32_t);
uint32_t sb_rand_uniform(uint32_t, uint32_t);
uint32_t sb_rand_gaussian(uint32_t, uint32_t);
uint32_t sb_rand_special(uint32_t, uint32_t);
uint32_t sb_rand_pareto(uint32_t, uint32_t);
uint32_t sb_rand_zipfian(uint32_t, uint32_t);
uint32_t sb_rand_unique(void);
double sb_rand_uniform_double(void);
void sb_rand_str(const char *, char *);
uint32_t sb_rand_varstr(char *, uint32_t, uint32_t);
]]

-- Addresses instead of symbol look-up: the same code runs in the released binary and in tests.
local function symbol(name)
   return real.cast(native.prototypes[name], native.symbols[name])
end

local C = {}

-- Scripts with a thread_run of their own ask for events.
function C.sb_more_events() return ask(MORE, 0, 0, nil, 0, answer) == 1 end
function C.sb_event_start() end
function C.sb_event_stop() end

-- A connection of the Lua API may be passed to a function of C that takes one of C.
local release = symbol("db_connection_free")
local function raw(value)
   if type(value) ~= "table" or value.driver == nil then return value end
   if value.pointer == nil then
      local pointer = symbol("plimsoll_connection")(value.id, value.driver.driver_name == "mysql")
      value.pointer = real.gc(pointer, release)
   end
   return value.pointer
end
local function adapted(name)
   local call = symbol(name)
   return function(first, ...) return call(raw(first), ...) end
end

proxy.C = setmetatable(C, { __index = function(_, name)
   if native.symbols[name] ~= nil then
      C[name] = name:find("^db_") and adapted(name) or symbol(name)
      return C[name]
   end
   -- Named where it turns out to block.
   native.note_c(name)
   return real.C[name]
end })
setmetatable(proxy, { __index = real })

-- Connections, results and statements of C have the methods of the Lua API, as far as they can be had.
local adopted = setmetatable({}, { __mode = "v" })
local function adopt(pointer)
   local id = tonumber(pointer.plimsoll_id)
   local connection = adopted[id]
   if connection == nil then
      connection = native.connection(id, real.string(pointer.driver.sname))
      adopted[id] = connection
   end
   return connection
end
real.metatype("sql_connection", { __index = function(_, name)
   if name == "disconnect" then return function(pointer) return C.db_connection_close(pointer) end end
   local method = native.connection_methods[name]
   if method == nil then return nil end
   return function(pointer, ...) return method(adopt(pointer), ...) end
end, __tostring = function() return "<sql_connection>" end })
real.metatype("sql_statement", { __index = {
   execute = function(self)
      local rs = C.db_execute(self)
      return rs ~= nil and rs or nil
   end,
   close = function(self) return C.db_close(self) end,
}, __tostring = function() return "<sql_statement>" end })
real.metatype("sql_result", { __index = {
   fetch_row = function(self)
      local row = C.db_fetch_row(self)
      if row == nil then return nil end
      local values = {}
      for i = 0, self.nfields - 1 do
         local value = row.values[i]
         values[i + 1] = value.ptr ~= nil and real.string(value.ptr, value.len) or nil
      end
      return values
   end,
   free = function(self) return C.db_free_results(self) end,
}, __tostring = function() return "<sql_result>" end })

-- Histograms.
local update, print_histogram = symbol("sb_histogram_update"), symbol("sb_histogram_print")
local percentile = symbol("sb_histogram_get_pct_cumulative")
real.metatype("sb_histogram_t", { __index = {
   update = function(self, value) update(self, value) end,
   print = function(self) print_histogram(self) end,
   percentile = function(self, percent) return percentile(self, percent) end,
}, __tostring = function() return "<sb_histogram>" end })
local new, delete = symbol("sb_histogram_new"), symbol("sb_histogram_delete")
function native.new_histogram(size, least, most)
   return real.gc(new(size, least, most), delete)
end
