#!/usr/bin/env sysbench
-- Touches the calls of the API and prints what they give; run under sysbench and under Plimsoll with the same seed,
-- both must print, send and store the same. No DOUBLE parameter: Debian's sysbench 1.0.20 crashes at the end of a
-- script that has executed one.

sysbench.cmdline.options = {
   rows = {"rows of the table", 20},
   ratio = {"a fraction", 0.5},
   flag = {"a switch", true},
   word = {"a text", "abc"},
   items = {"a list", {"x", "y"}},
}

local function show(...)
   local parts = {}
   for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
   print(table.concat(parts, " "))
end

function prepare()
   local drv = sysbench.sql.driver()
   local con = drv:connect()
   con:query("DROP TABLE IF EXISTS api")
   con:query("CREATE TABLE api (id INTEGER NOT NULL PRIMARY KEY, a BIGINT, b DOUBLE PRECISION, c CHAR(20), d VARCHAR(30))")
   con:bulk_insert_init("INSERT INTO api (id, a, b, c, d) VALUES")
   for i = 1, sysbench.opt.rows do
      con:bulk_insert_next(string.format("(%d, %d, %d, '%s', '%s')", i, sysbench.rand.uniform(1, 1000000),
         sysbench.rand.default(1, 1000), sysbench.rand.string("##-@@-#"), sysbench.rand.string("@@@")))
   end
   con:bulk_insert_done()
   con:disconnect()
end

function cleanup()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS api")
   con:disconnect()
end

local function draws()
   local r = sysbench.rand
   show("uniform", r.uniform(1, 100), r.uniform(5, 5), r.uniform(0, 4000000000))
   show("default", r.default(1, 1000), r.default(1, 1000), r.default(1, 1000))
   show("special", r.special(1, 1000), r.special(1, 1000), r.special(1, 1000))
   show("gaussian", r.gaussian(1, 1000), r.gaussian(1, 1000))
   show("pareto", r.pareto(1, 1000), r.pareto(1, 1000))
   show("string", r.string("###-@@@-x"))
   -- What FFI takes beside plain numbers, and what it refuses.
   show("converted", r.uniform(1.9, 5.9), r.uniform(1LL, 100ULL), r.uniform(7, 4294967296 + 9), r.default(1LL, 1000))
   show("refused", (pcall(r.uniform, "a", 3)), (pcall(r.uniform, 1)), (pcall(r.string, 5LL)), (pcall(r.string)))
   show("no template", #r.string(""))
   show("unique", r.unique(), r.unique(), r.unique())
   show("double", string.format("%.12f", r.uniform_double()))
   show("legacy", sb_rand(1, 100), sb_rand_uniform(1, 100), sb_rand_str("##@@"))
   show("options", sysbench.opt.rows, sysbench.opt.ratio, sysbench.opt.flag, sysbench.opt.word,
      table.concat(sysbench.opt.items, "+"))
   show("tid", sysbench.tid, sysbench.cmdline.command, sysbench.error.RESTART_EVENT, sysbench.sql.type.VARCHAR)
end

sysbench.cmdline.commands = {draws = {draws}}

function thread_init()
   drv = sysbench.sql.driver()
   con = drv:connect()
   show("driver", drv:name())
   update = con:prepare("UPDATE api SET a = ?, c = ?, d = ? WHERE id = ?")
   params = {
      update:bind_create(sysbench.sql.type.BIGINT),
      update:bind_create(sysbench.sql.type.CHAR, 20),
      update:bind_create(sysbench.sql.type.VARCHAR, 30),
      update:bind_create(sysbench.sql.type.INT),
   }
   update:bind_param(unpack(params))
   select_one = con:prepare("SELECT a FROM api WHERE id = ?")
   key = select_one:bind_create(sysbench.sql.type.INT)
   select_one:bind_param(key)
   turn = 0
end

function event()
   turn = turn + 1
   local rs = con:query("SELECT id, c, d FROM api ORDER BY id LIMIT 3")
   show("rows", rs.nrows, rs.nfields)
   for i = 1, rs.nrows do
      local row = rs:fetch_row()
      show("row", row[1], row[2], row[3])
   end
   show("row", rs:fetch_row())
   rs:free()
   show("query_row", con:query_row("SELECT COUNT(*), MIN(id) FROM api"))
   show("update without rows", con:query("UPDATE api SET a = 1 WHERE id = -1") == nil)
   params[1]:set(sysbench.rand.uniform(1, 2000000000))
   params[2]:set_rand_str("##########-@@@@@@@@@")
   -- Without prepared statements sysbench does not escape quotes.
   params[3]:set((sysbench.opt.db_ps_mode == "auto" and "it's " or "its ") .. turn)
   params[4]:set(sysbench.rand.uniform(1, sysbench.opt.rows))
   update:execute()
   -- Debian's sysbench sends the value before instead of NULL to PostgreSQL.
   if drv:name() == "mysql" then params[3]:set(nil) end
   params[4]:set(sysbench.rand.default(1, sysbench.opt.rows))
   update:execute()
   params[1]:set(12345678901LL)
   params[2]:set("more than twenty characters")
   update:execute()
   params[1]:set(7.9)
   -- Not an empty text, for which sysbench sends the one before where statements are not prepared.
   update:execute()
   show("refused", (pcall(params[1].set, params[1], "seven")), (pcall(params[1].set_rand_str, params[1], "##")))
   for _, draw in ipairs{"uniform", "default", "special", "gaussian", "pareto"} do
      show(draw, sysbench.rand[draw](1, 1000), sysbench.rand[draw](1, 7))
   end
   show("strings", sysbench.rand.string("###-@@@-x"), sb_rand_str("##@@"), sb_rand(1, 100), sb_rand_uniform(5, 9))
   show("double", string.format("%.9f", sysbench.rand.uniform_double()))
   local unique = sysbench.rand.unique()
   show("unique", unique ~= sysbench.rand.unique())
   con:query("BEGIN")
   con:query("INSERT INTO api (id, a) VALUES (" .. 100 + turn .. ", 1)")
   con:query("COMMIT")
   con:bulk_insert_init("INSERT INTO api (id, a) VALUES")
   for i = 1, 3 do con:bulk_insert_next("(" .. 1000 * turn + i .. ", 2)") end
   con:bulk_insert_done()
   key:set(turn)
   select_one:execute()
end

function thread_done()
   update:close()
   select_one:close()
   con:disconnect()
   show("done", turn)
end
