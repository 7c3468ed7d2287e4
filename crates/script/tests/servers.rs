//! Scripts against real servers: several results, TLS, lost connections, ignored errors, FFI, several servers.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Script, command, connection, done, run_on, script};
use sandbox::Sandbox;
use wire::Endpoint;
use wire::blocking::Client;

/// Both servers, each with its options.
fn both() -> Vec<(Sandbox, Vec<String>)> {
    let servers = ["mariadb", "postgres"].into_iter().filter_map(sandbox::testing::server);
    servers
        .map(|server| {
            let options = connection(&server);
            (server, options)
        })
        .collect()
}

fn mariadb() -> Option<(Sandbox, Vec<String>)> {
    let server = sandbox::testing::server("mariadb")?;
    let options = connection(&server);
    Some((server, options))
}

fn execute(server: &Sandbox, statements: &[&str]) {
    let mut client = Client::connect(&server.target(Some("sbtest"))).unwrap();
    for statement in statements {
        client.query(statement).unwrap();
    }
}

#[test]
fn several_results_of_one_query_come_one_by_one() {
    let script = script(
        "function thread_init() con = sysbench.sql.driver():connect() end
function event()
   local rs = con:query('SELECT 1; SELECT 2, 3; SELECT NULL')
   while rs do
      local row = rs:fetch_row()
      print('row: ' .. rs.nfields .. ' ' .. tostring(row[1]) .. ' ' .. tostring(row[2]))
      rs:free()
      rs = con:more_results() and con:next_result() or nil
   end
   print('more: ' .. tostring(con:more_results()) .. ' ' .. tostring(con:next_result()))
end",
    );
    for (_server, options) in both() {
        let done = run_on(&options, &script.path, &["--events=1"]).ok();
        assert_eq!(done.told("row"), ["1 1 nil", "2 2 3", "1 nil nil"], "{options:?}");
        assert_eq!(done.told("more"), ["false nil"], "{options:?}");
    }
}

/// Rows 2 and 4 are there already: the events that insert them restart with the next number.
const COLLIDING: &str = "n = 0
function thread_init() con = sysbench.sql.driver():connect() end
function sysbench.hooks.before_restart_event(e) print('restart: ' .. e.sql_errno .. ' ' .. e.sql_state) end
function event()
   n = n + 1
   con:query('INSERT INTO t VALUES (' .. n .. ')')
end";

#[test]
fn ignored_errors_restart_the_event_and_are_counted() {
    let script = script(COLLIDING);
    let Some((server, options)) = mariadb() else { return };
    for ignored in ["--mysql-ignore-errors=1213,1062", "--mysql-ignore-errors=all"] {
        execute(
            &server,
            &[
                "DROP TABLE IF EXISTS t",
                "CREATE TABLE t (a INT PRIMARY KEY)",
                "INSERT INTO t VALUES (2), (4)",
            ],
        );
        let done = run_on(&options, &script.path, &["--events=3", ignored]).ok();
        assert_eq!(done.told("restart"), ["1062 23000", "1062 23000"]);
        let figures = ["transactions:", "ignored errors:", "write:"].map(|label| done.figure(label));
        assert_eq!(figures, [3.0, 2.0, 3.0], "{}", done.out);
    }
    let done = run_on(&options, &script.path, &["--events=3"]);
    done.fails(&[
        "FATAL: mysql_drv_query() returned error 1062 (Duplicate entry '1' for key 'PRIMARY') for query 'INSERT INTO t VALUES (1)'",
        "FATAL: `thread_run' function failed: ",
        "test.lua:6: SQL error, errno = 1062, state = '23000': Duplicate entry '1'",
    ]);
}

#[test]
fn postgres_restarts_after_a_duplicate_key_and_rolls_back() {
    let script = script(COLLIDING);
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let options = connection(&server);
    execute(&server, &["CREATE TABLE t (a INT PRIMARY KEY)", "INSERT INTO t VALUES (2), (4)"]);
    let done = run_on(&options, &script.path, &["--events=3"]).ok();
    assert_eq!(done.told("restart"), ["0 23505", "0 23505"]);
    assert_eq!(done.figure("ignored errors:"), 2.0);
}

/// The second connection kills the first one, once.
const KILLER: &str = "function thread_init()
   local drv = sysbench.sql.driver()
   con, other = drv:connect(), drv:connect()
   kill = drv:name() == 'mysql' and 'KILL ' .. con:query_row('SELECT CONNECTION_ID()')
      or 'SELECT pg_terminate_backend(' .. con:query_row('SELECT pg_backend_pid()') .. ')'
   n = 0
end
function event()
   n = n + 1
   if n == 2 then other:query(kill) end
   con:query('SELECT 1')
end
function thread_done() print('ran: ' .. n) end";

#[test]
fn a_killed_connection_is_opened_again_where_that_error_is_ignored() {
    let script = script(KILLER);
    let Some((_server, options)) = mariadb() else { return };
    let done = run_on(&options, &script.path, &["--events=3", "--mysql-ignore-errors=2006,2013,1927"]).ok();
    assert_eq!([done.figure("transactions:"), done.figure("reconnects:")], [3.0, 1.0], "{}", done.out);
    assert!(done.figure("ignored errors:") >= 1.0, "{}", done.out);
    // Each restart has run the event once more.
    let ran: f64 = done.told("ran")[0].parse().unwrap();
    assert_eq!(ran, 3.0 + done.figure("ignored errors:"));
}

#[test]
fn a_killed_connection_ends_the_run_otherwise() {
    let script = script(KILLER);
    for (_server, options) in both() {
        // PostgreSQL ends a session soon after it was told to, not at once.
        run_on(&options, &script.path, &["--events=1000000"])
            .fails(&["FATAL: `thread_run' function failed: "]);
    }
}

#[test]
fn a_server_that_dies_ends_the_run_with_sysbenchs_exit_code() {
    let script = script(
        "function thread_init() con = sysbench.sql.driver():connect() end\nfunction event() con:query('SELECT 1') end",
    );
    for (mut server, options) in both() {
        let mut child = command()
            .args(&options)
            .args(["--threads=4", "--time=600", "--report-interval=1"])
            .arg(&script.path)
            .arg("run")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let running = lines.find(|line| line.starts_with("[ 1s ]"));
        assert!(running.is_some());
        server.kill().unwrap();
        let rest: Vec<String> = lines.collect();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
        assert!(rest.iter().any(|line| line.starts_with("FATAL: ")), "{rest:?}");
    }
}

#[test]
fn what_cannot_be_connected_or_found_is_told_as_sysbench_tells_it() {
    let script = script(
        "function thread_init()
   con = sysbench.sql.driver():connect()
   stmt = con:prepare('SELECT a FROM missing WHERE a = ?')
   stmt:bind_param(stmt:bind_create(sysbench.sql.type.INT))
end
function event() end",
    );
    let Some((server, options)) = mariadb() else { return };
    let socket = server.socket();
    run_on(&options, &script.path, &[]).fails(&[
        "FATAL: mysql_stmt_prepare() failed\nFATAL: MySQL error: 1146 \"Table 'sbtest.missing' doesn't exist\"\n",
        "FATAL: `thread_init' function failed: ",
        "test.lua:3: SQL API error",
        "FATAL: Thread initialization failed!\n",
    ]);
    run_on(&options, &script.path, &["--mysql-user=nobody", "--mysql-password=x"]).fails(&[
        &format!("FATAL: unable to connect to MySQL server on socket '{}', aborting...\n", socket.display()),
        "FATAL: error 1045: Access denied for user 'nobody'@'localhost'",
        "test.lua:2: connection creation failed",
    ]);
    run_on(&options, &script.path, &["--mysql-socket=/nowhere.sock"])
        .fails(&["FATAL: error 2002: Can't connect to local server through socket '/nowhere.sock' (2)\n"]);
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let options = connection(&server);
    run_on(&options, &script.path, &[])
        .fails(&["FATAL: PQprepare() failed: ERROR:  relation \"missing\" does not exist"]);
    run_on(&options, &script.path, &["--pgsql-db=nowhere"]).fails(&[
        "FATAL: Connection to database failed: connection to server on socket",
        "database \"nowhere\" does not exist",
    ]);
}

/// Prints whether the connection is encrypted.
fn encryption() -> Script {
    script(
        "function thread_init()
   local drv = sysbench.sql.driver()
   local con = drv:connect()
   if drv:name() == 'mysql' then
      local _, cipher = con:query_row([[SHOW STATUS LIKE 'Ssl_cipher']])
      print('tls: ' .. tostring(cipher ~= ''))
   else
      print('tls: ' .. tostring(con:query_row('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()') == 't'))
   end
end
function event() end",
    )
}

#[test]
fn tls_is_used_where_it_is_asked_for() {
    let script = encryption();
    let with_tls = |spec: &mut sandbox::Spec| {
        spec.listen = sandbox::Listen::FreePort;
        spec.tls = true;
    };
    if let Some(server) = sandbox::testing::server_with("mariadb", with_tls) {
        workload::create_database(&server.target(Some("sbtest"))).unwrap();
        let Endpoint::Tcp { port, .. } = server.tcp_target(None).unwrap().endpoint else { panic!("no port") };
        let target = server.tcp_target(None).unwrap();
        let ca = format!("--mysql-ssl-ca={}", server.tls_ca().unwrap().display());
        let tcp = [
            "--mysql-host=127.0.0.1".to_owned(),
            format!("--mysql-port={port}"),
            format!("--mysql-user={}", target.user),
            format!("--mysql-password={}", target.password.reveal()),
        ];
        for (options, is_encrypted) in [
            (&["--mysql-ssl=off"][..], "false"),
            (&["--mysql-ssl=on"], "true"),
            (&["--mysql-ssl"], "true"),
            (&["--mysql-ssl=preferred"], "true"),
            (&["--mysql-ssl=verify_ca", &ca], "true"),
            (&["--mysql-ssl=verify_identity", &ca], "true"),
        ] {
            let done = run_on(&tcp, &script.path, &[&["--events=1"], options].concat()).ok();
            assert_eq!(done.told("tls"), [is_encrypted], "{options:?}");
        }
        // A certificate of an authority that nobody named.
        run_on(&tcp, &script.path, &["--events=1", "--mysql-ssl=verify_ca"]).fails(&["TLS"]);
        a_user_that_has_to_show_a_certificate(&server, port, &script);
    }
    if let Some(server) = sandbox::testing::server_with("postgres", with_tls) {
        workload::create_database(&server.target(Some("sbtest"))).unwrap();
        let target = server.tcp_target(None).unwrap();
        let Endpoint::Tcp { port, .. } = target.endpoint else { panic!("no port") };
        let tcp = [
            "--db-driver=pgsql".to_owned(),
            "--pgsql-host=127.0.0.1".to_owned(),
            format!("--pgsql-port={port}"),
            format!("--pgsql-user={}", target.user),
            format!("--pgsql-password={}", target.password.reveal()),
        ];
        for (mode, is_encrypted) in [("disable", "false"), ("prefer", "true"), ("require", "true")] {
            let mode = format!("--pgsql-sslmode={mode}");
            let done = run_on(&tcp, &script.path, &["--events=1", &mode]).ok();
            assert_eq!(done.told("tls"), [is_encrypted], "{mode}");
        }
        a_user_that_logs_in_by_a_certificate(&server, &tcp, &script);
    }
}

/// On MariaDB, by the options and by the names that sysbench looks for in the current directory.
fn a_user_that_has_to_show_a_certificate(server: &Sandbox, port: u16, script: &Script) {
    execute(server, &["CREATE USER shown@'127.0.0.1' REQUIRE X509", "GRANT ALL ON *.* TO shown@'127.0.0.1'"]);
    let tcp =
        ["--mysql-host=127.0.0.1", "--mysql-user=shown", "--mysql-ssl=on", &format!("--mysql-port={port}")]
            .map(str::to_owned);
    run_on(&tcp, &script.path, &["--events=1"]).fails(&["1045"]);
    let shown = server.tls_client().unwrap();
    let [certificate, key] = [shown.certificate.unwrap(), shown.key.unwrap()];
    let options = [
        format!("--mysql-ssl-cert={}", certificate.display()),
        format!("--mysql-ssl-key={}", key.display()),
        "--mysql-ssl-cipher=TLS_AES_128_GCM_SHA256".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["--events=1"]).collect();
    assert_eq!(run_on(&tcp, &script.path, &options).ok().told("tls"), ["true"]);
    let half = ["--events=1", options[1]];
    run_on(&tcp, &script.path, &half).fails(&["belongs to no certificate"]);
    run_on(&tcp, &script.path, &["--events=1", "--mysql-ssl-cipher=RC4-MD5"]).fails(&["no cipher of"]);

    let dir = tempfile::tempdir().unwrap();
    for (from, to) in [(&certificate, "client-cert.pem"), (&key, "client-key.pem")] {
        std::fs::copy(from, dir.path().join(to)).unwrap();
    }
    let there =
        done(command().current_dir(dir.path()).args(&tcp).arg("--events=1").arg(&script.path).arg("run"));
    assert_eq!(there.ok().told("tls"), ["true"]);
}

/// On PostgreSQL, by the variables of libpq.
fn a_user_that_logs_in_by_a_certificate(server: &Sandbox, tcp: &[String], script: &Script) {
    execute(server, &["CREATE USER plimsoll"]);
    let rules = "local all all trust\nhostssl all plimsoll 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(server.datadir().join("pg_hba.conf"), rules).unwrap();
    execute(server, &["SELECT pg_reload_conf()"]);
    let tcp: Vec<String> = tcp
        .iter()
        .map(|option| match option.starts_with("--pgsql-user=") {
            true => "--pgsql-user=plimsoll".to_owned(),
            false => option.clone(),
        })
        .collect();
    let shown = server.tls_client().unwrap();
    let with = |certificate: Option<&std::path::Path>| {
        let mut command = command();
        command.args(&tcp).args(["--pgsql-sslmode=verify-full", "--events=1"]).arg(&script.path).arg("run");
        command.env("PGSSLROOTCERT", server.tls_ca().unwrap()).env("HOME", "/nowhere");
        if let Some(certificate) = certificate {
            command.env("PGSSLCERT", certificate).env("PGSSLKEY", shown.key.as_ref().unwrap());
        }
        done(&mut command)
    };
    // The server reads its rules a moment after it was told to; until then it wants a password.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    loop {
        let refused = with(None).fails(&[]);
        if refused.out.contains("certificate") || refused.err.contains("certificate") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the server does not take its new rules: {refused:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(with(shown.certificate.as_deref()).ok().told("tls"), ["true"]);
}

#[test]
fn packets_are_compressed_where_it_is_asked_for() {
    let Some((_server, options)) = mariadb() else { return };
    let script = script(
        "function thread_init()
   local con = sysbench.sql.driver():connect()
   local _, status = con:query_row([[SHOW STATUS LIKE 'Compression']])
   print('compression: ' .. status .. ' ' .. #con:query_row([[SELECT REPEAT('c', 100000)]]))
end
function event() end",
    );
    for (option, says) in [("--mysql-compression=on", "ON"), ("--mysql-compression=off", "OFF")] {
        let done = run_on(&options, &script.path, &["--events=1", option]).ok();
        assert_eq!(done.told("compression"), [format!("{says} 100000")]);
    }
}

#[test]
fn sessions_take_several_servers_in_turn() {
    let (Some((one, options)), Some((other, _))) = (mariadb(), mariadb()) else { return };
    let script = script(
        "function thread_init() print('at: ' .. sysbench.sql.driver():connect():query_row('SELECT @@socket')) end\nfunction event() end",
    );
    let sockets = [one.socket(), other.socket()].map(|socket| socket.display().to_string());
    let list = format!("--mysql-socket={}", sockets.join(","));
    let done = run_on(&options, &script.path, &[&list, "--threads=4", "--events=4"]).ok();
    let at = done.told("at");
    let times = sockets.each_ref().map(|socket| at.iter().filter(|place| *place == socket).count());
    assert_eq!(times, [2, 2], "{at:?}");
}

#[test]
fn debugging_shows_the_statements() {
    let Some((_server, options)) = mariadb() else { return };
    let script = script(
        "function thread_init() con = sysbench.sql.driver():connect() end\nfunction event() con:query('SELECT 42') end",
    );
    let done = run_on(&options, &script.path, &["--events=1", "--db-debug"]).ok();
    assert!(done.err.contains("DEBUG: SELECT 42"), "{done:?}");
    assert!(!run_on(&options, &script.path, &["--events=1"]).ok().err.contains("SELECT 42"));
}

#[test]
fn the_old_names_prepare_bind_and_free() {
    let script = script(
        "function thread_init()
   db_connect()
   db_query('SELECT 1')
   local is_pg = db_driver == 'pgsql'
   asked = db_prepare(is_pg and 'SELECT $1::int' or 'SELECT ?')
   params = { 1 }
   db_bind_param(asked, params)
   put = db_prepare(is_pg and 'INSERT INTO bound VALUES ($1, $2)' or 'INSERT INTO bound VALUES (?, ?)')
   values = { 0, '' }
   db_bind_param(put, values)
   n = 0
end
function event()
   params[1] = sb_rand(1, 10) * 2.0 - 30
   local rs = db_execute(asked)
   db_store_results(rs)
   db_free_results(rs)
   n = n + 1
   values[1], values[2] = n - 10, string.rep('x', n)
   db_execute(put)
end",
    );
    for (server, options) in both() {
        execute(&server, &["CREATE TABLE bound (a BIGINT, b VARCHAR(100))"]);
        let done = run_on(&options, &script.path, &["--events=20"]).ok();
        // The statement of thread_init counts, as in sysbench.
        assert_eq!(done.figure("read:"), 21.0, "{}", done.out);
        let mut client = Client::connect(&server.target(Some("sbtest"))).unwrap();
        let sql = "SELECT CONCAT(COUNT(DISTINCT a), ' ', COUNT(DISTINCT b), ' ', MIN(a)) FROM bound";
        assert_eq!(client.query_value(sql).unwrap().as_deref(), Some("20 20 -9"));
    }
}

#[test]
fn c_functions_reach_the_server() {
    let script = script(include_str!("scripts/ffi.lua"));
    let servers = both();
    let ways = [&["--events=1"][..], &["--events=1", "--thread-per-session"]];
    for ((_server, options), way) in servers.iter().flat_map(|server| ways.map(|way| (server, way))) {
        let done = run_on(options, &script.path, way).ok();
        assert_eq!(done.told("row"), ["1 x1 nil", "2 hello nil", "3 x3 nil"], "{}", done.out);
        assert_eq!(done.told("error"), ["2 true"], "{}", done.out);
        assert_eq!(done.told("method"), ["hello"], "{}", done.out);
        assert_eq!(done.told("lua"), ["7"], "{}", done.out);
        let figures = ["read:", "write:", "reconnects:"].map(|label| done.figure(label));
        assert_eq!(figures, [3.0, 2.0, 1.0], "{}", done.out);
    }
}

/// Each of two sessions waits inside C, in a coroutine and a `pcall`, for a lock that the other one gives up only later:
/// on one thread both come through only if neither wait stops the other.
#[test]
fn a_session_that_waits_inside_c_stops_no_other() {
    let script = script(
        "local C = require('ffi').C
local function query(text)
   local rs = C.db_query(con, text, #text)
   return rs:fetch_row()[1]
end
function thread_init()
   con = C.db_connection_create(C.db_create(nil))
   query(sysbench.tid == 0 and \"SELECT GET_LOCK('second', 20)\" or \"SELECT GET_LOCK('first', 20)\")
end
function event()
   local wait = coroutine.wrap(function(name) return select(2, pcall(query, \"SELECT GET_LOCK('\" .. name .. \"', 20)\")) end)
   if sysbench.tid == 0 then
      print('first: ' .. wait('first'))
      query(\"SELECT RELEASE_LOCK('second')\")
   else
      query(\"SELECT RELEASE_LOCK('first')\")
      print('second: ' .. wait('second'))
   end
   return true
end",
    );
    let Some((_server, options)) = mariadb() else { return };
    let done =
        run_on(&options, &script.path, &["--threads=2", "--workers=1", "--events=0", "--time=60"]).ok();
    assert_eq!(
        (done.told("first"), done.told("second")),
        (vec!["1".to_owned()], vec!["1".to_owned()]),
        "{done:?}"
    );
}

#[test]
fn a_forced_shutdown_cuts_events_off_and_reports() {
    let script = script(
        "function thread_init() con = sysbench.sql.driver():connect() end\nfunction event() con:query('SELECT SLEEP(600)') end",
    );
    let Some((_server, options)) = mariadb() else { return };
    let done = run_on(&options, &script.path, &["--time=1", "--forced-shutdown=1"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.out.contains("Forcing shutdown in 2 seconds\n"), "{}", done.out);
    assert!(
        done.out.contains("FATAL: The --max-time limit has expired, forcing shutdown...\n"),
        "{}",
        done.out
    );
    assert_eq!(done.figure("total number of events:"), 0.0);
}

#[test]
fn native_workloads_prewarm_their_tables() {
    for (server, options) in both() {
        let with = |command_word: &str| {
            let words = ["--tables=3", "--table-size=100", "--threads=2", "oltp_read_only", command_word];
            done(command().args(&options).args(words))
        };
        with("prepare").ok();
        let prewarmed = with("prewarm").ok();
        assert_eq!(prewarmed.out.matches("Prewarming table sbtest").count(), 3, "{}", prewarmed.out);
        with("cleanup").ok();
        with("prewarm").fails(&["sbtest"]);
        drop(server);
    }
}
