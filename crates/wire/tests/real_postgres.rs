//! The PostgreSQL protocol against real servers. Set `PLIMSOLL_TEST_SERVERS=none` to do without; the run then says
//! what was not tested.

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/postgres.rs"]
mod postgres;

use std::time::{Duration, Instant};

use postgres::{SCRAM_PASSWORD, Server};
use wire::blocking::Client;
use wire::{Done, Error, ParamType, Row, StatementKind, Target, TlsMode, Value};

/// A name and what it checks.
type Check = (&'static str, fn(&Server));

const CHECKS: &[Check] = &[
    ("every log in method over the socket", every_log_in_method_over_the_socket),
    ("log in over tcp", log_in_over_tcp),
    ("wrong and missing passwords", wrong_and_missing_passwords),
    ("tls modes", tls_modes),
    ("client certificates", client_certificates),
    ("scram is bound to the certificate", scram_is_bound_to_the_certificate),
    ("simple queries", simple_queries),
    ("several statements at once", several_statements_at_once),
    ("prepared statements", prepared_statements),
    ("types that the server infers", types_that_the_server_infers),
    ("what does not fit is never sent", what_does_not_fit_is_never_sent),
    ("after an error the session goes on", after_an_error_the_session_goes_on),
    ("transaction status is known", transaction_status_is_known),
    ("copy from a generator", copy_from_a_generator),
    ("a refused copy leaves the session usable", a_refused_copy_leaves_the_session_usable),
    ("notices parameters and notifications in between", notices_parameters_and_notifications_in_between),
    ("long rows and statements", long_rows_and_statements),
    ("a silent server ends in a timeout", a_silent_server_ends_in_a_timeout),
    ("a session that is ended says why", a_session_that_is_ended_says_why),
];

/// All checks on one server: starting one takes longer than all of them.
fn check_all(selector: &str) {
    let Some(server) = postgres::server(selector) else { return };
    for (name, check) in CHECKS {
        eprintln!("{}: {name}", server.version);
        check(&server);
    }
}

#[test]
fn whatever_is_at_hand() {
    check_all("postgres");
}

#[test]
fn postgres_9_6() {
    check_all("postgres@9.6");
}

#[test]
fn postgres_12() {
    check_all("postgres@12");
}

#[test]
fn postgres_18() {
    check_all("postgres@18");
}

/// The administrator over the socket.
fn admin(server: &Server) -> Client {
    connect(&server.target("postgres", ""))
}

fn connect(target: &Target) -> Client {
    Client::connect(target).expect("connect")
}

fn code(result: Result<Done, Error>) -> String {
    match result {
        Err(Error::Server(error)) => error.code(),
        other => panic!("expected an error of the server, got {other:?}"),
    }
}

fn rows(client: &mut Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let mut all = Vec::new();
    client.query_rows(sql, &mut |row| all.push(texts(row))).expect(sql);
    all
}

fn texts(row: &Row<'_>) -> Vec<Option<String>> {
    (0..row.len()).map(|i| row.text(i).map(str::to_owned)).collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

fn every_log_in_method_over_the_socket(server: &Server) {
    for (user, password) in
        [("postgres", ""), ("clear", "clear-pw"), ("hashed", "hashed-pw"), ("scram", SCRAM_PASSWORD)]
    {
        let mut client = connect(&server.target(user, password));
        assert_eq!(client.query_value("SELECT current_user").unwrap().as_deref(), Some(user));
        let info = client.server();
        // `postgres@15.18` says 15.18 (Debian 15.18-0+deb12u1).
        let number = server.version.split('@').nth(1).unwrap_or_default();
        assert!(info.version.starts_with(number), "{info:?} of {}", server.version);
        assert_eq!(info.tls, None);
        let pid = client.server().connection_id.to_string();
        assert_eq!(client.query_value("SELECT pg_backend_pid()").unwrap(), Some(pid));
    }
}

fn log_in_over_tcp(server: &Server) {
    for (user, password) in [("postgres", ""), ("hashed", "hashed-pw"), ("scram", SCRAM_PASSWORD)] {
        connect(&server.tcp("127.0.0.1", user, password, TlsMode::Disabled)).ping().unwrap();
    }
    let clear = Client::connect(&server.tcp("127.0.0.1", "clear", "clear-pw", TlsMode::Disabled));
    assert!(matches!(clear, Err(Error::Auth(_))), "clear text over open TCP: {clear:?}");
    connect(&server.tcp("127.0.0.1", "clear", "clear-pw", TlsMode::Required)).ping().unwrap();
}

fn wrong_and_missing_passwords(server: &Server) {
    for user in ["clear", "hashed", "scram"] {
        match Client::connect(&server.target(user, "wrong")) {
            Err(Error::Server(error)) => assert_eq!(error.code(), "28P01"),
            other => panic!("{user}: {other:?}"),
        }
        assert!(matches!(Client::connect(&server.target(user, "")), Err(Error::Auth(_))), "{user}");
    }
    let mut target = server.target("postgres", "");
    target.database = Some("no_such_database".into());
    match Client::connect(&target) {
        Err(Error::Server(error)) => assert_eq!(error.code(), "3D000"),
        other => panic!("{other:?}"),
    }
}

fn tls_modes(server: &Server) {
    for (host, mode) in [
        ("127.0.0.1", TlsMode::Preferred),
        ("127.0.0.1", TlsMode::Required),
        ("127.0.0.1", TlsMode::VerifyCa),
        ("localhost", TlsMode::VerifyFull),
    ] {
        let mut client = connect(&server.tcp(host, "tls", "tls-pw", mode));
        let tls = client.server().tls.clone().expect("encrypted");
        assert!(tls.starts_with("TLSv1"), "{tls}");
        let seen = client.query_value("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        assert_eq!(seen.unwrap().as_deref(), Some("t"));
        // More than a TLS record in both directions.
        let long = "x".repeat(100_000);
        let back = client.query_value(&format!("SELECT '{long}'")).unwrap();
        assert_eq!(back, Some(long));
    }
    let mut stranger = server.tcp("localhost", "tls", "tls-pw", TlsMode::VerifyFull);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), other_authority()).expect("write it");
    stranger.tls_ca = Some(file.path().to_owned());
    let refused = Client::connect(&stranger);
    assert!(matches!(refused, Err(Error::Tls(_))), "{refused:?}");
    let refused = Client::connect(&server.tcp("127.0.0.1", "tls", "tls-pw", TlsMode::Disabled));
    assert!(matches!(refused, Err(Error::Server(_))), "{refused:?}");
    let mut socket = server.target("postgres", "");
    socket.tls = TlsMode::Required;
    assert!(matches!(Client::connect(&socket), Err(Error::Tls(_))));
    socket.tls = TlsMode::Preferred;
    assert_eq!(connect(&socket).server().tls, None);
}

/// One rule asks for a certificate beside the password, the other for nothing else.
fn client_certificates(server: &Server) {
    let (_dir, stranger) = certificates::strangers("plimsoll");
    for (user, password) in [("shown", "shown-pw"), ("plimsoll", "")] {
        let without = server.tcp("127.0.0.1", user, password, TlsMode::VerifyCa);
        let refused = Client::connect(&without);
        assert!(matches!(&refused, Err(Error::Server(e)) if e.text.contains("certificate")), "{refused:?}");
        let with = Target { tls_client: server.tls_client(), ..without.clone() };
        // The column of the name has another name since version 12.
        let seen = "SELECT CAST(row_to_json(s) AS text) FROM pg_stat_ssl s WHERE pid = pg_backend_pid()";
        let seen = connect(&with).query_value(seen).unwrap().expect("a row");
        assert!(seen.contains("CN=plimsoll"), "{seen}");
        let refused = Client::connect(&Target { tls_client: stranger.clone(), ..without });
        assert!(
            matches!(&refused, Err(Error::Tls(why)) if why.contains("client's certificate")),
            "{refused:?}"
        );
    }
    // Whoever is not asked may have one all the same.
    let unasked = server.tcp("127.0.0.1", "tls", "tls-pw", TlsMode::Required);
    assert!(connect(&Target { tls_client: server.tls_client(), ..unasked }).server().tls.is_some());
}

/// Over TLS the proof of the password is bound to the certificate where the server can do that (11 and later). A
/// server refuses a proof that is bound to another certificate, so that being let in means that the hash was right.
fn scram_is_bound_to_the_certificate(server: &Server) {
    if !server.has_scram {
        return;
    }
    let client = connect(&server.tcp("127.0.0.1", "scram", SCRAM_PASSWORD, TlsMode::Required));
    let number = server.version.split('@').nth(1).unwrap_or_default();
    let major: u32 = number.split('.').next().and_then(|major| major.parse().ok()).expect("a version");
    assert_eq!(client.server().has_channel_binding, major >= 11, "{}", server.version);
    let open = connect(&server.tcp("127.0.0.1", "scram", SCRAM_PASSWORD, TlsMode::Disabled));
    assert!(!open.server().has_channel_binding);
}

/// The certificate of an authority that signed nothing.
fn other_authority() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    rcgen::CertificateParams::default().self_signed(&key).expect("a certificate").pem()
}

fn simple_queries(server: &Server) {
    let mut client = admin(server);
    let done = client.query("CREATE TEMP TABLE t (id int PRIMARY KEY, name text)").unwrap();
    assert_eq!(done.kind(), StatementKind::Other);
    let done = client.query("INSERT INTO t VALUES (1, 'one'), (2, NULL), (3, '')").unwrap();
    assert_eq!((done.affected_rows, done.kind()), (3, StatementKind::Write));
    let done = client.query("SELECT * FROM t").unwrap();
    assert_eq!((done.rows, done.kind()), (3, StatementKind::Read));
    assert_eq!(client.query("UPDATE t SET name = '' WHERE id = 99").unwrap().kind(), StatementKind::Other);
    assert_eq!(client.query("").unwrap(), Done::default());
    assert_eq!(client.query("SELECT").unwrap().kind(), StatementKind::Read);
    assert_eq!(
        rows(&mut client, "SELECT id, name FROM t ORDER BY id"),
        [some(&["1", "one"]), vec![Some("2".into()), None], some(&["3", ""])]
    );
    assert_eq!(client.query("COPY t TO STDOUT").unwrap().rows, 3);
}

fn several_statements_at_once(server: &Server) {
    let mut client = admin(server);
    let sql = "CREATE TEMP TABLE m (id int); INSERT INTO m SELECT generate_series(1, 10); \
               SELECT id AS a, id + 1 AS b FROM m WHERE id < 3 ORDER BY id; UPDATE m SET id = id; ;";
    let sets = client.query_sets(sql).unwrap();
    assert_eq!(sets.len(), 4);
    assert_eq!(sets[1].done.affected_rows, 10);
    assert_eq!(sets[2].columns, ["a", "b"]);
    assert_eq!(sets[2].rows.len(), 2);
    assert_eq!((sets[2].text(1, 0), sets[2].text(1, 1)), (Some("2"), Some("3")));
    assert_eq!(sets[3].done.affected_rows, 10);

    let done = client.query("SELECT id FROM m; DELETE FROM m; SELECT id FROM m").unwrap();
    assert_eq!((done.rows, done.affected_rows), (10, 10));
    assert_eq!(code(client.query("SELECT 1; SELECT 1/0; SELECT 2")), "22012");
    assert_eq!(client.query("SELECT 1").unwrap().rows, 1);
}

fn prepared_statements(server: &Server) {
    let mut client = admin(server);
    client.query("CREATE TEMP TABLE p (id int4 PRIMARY KEY, n int8, x float8, s text)").unwrap();
    let types = [ParamType::Int, ParamType::BigInt, ParamType::Double, ParamType::Text];
    let mut insert = client.prepare("INSERT INTO p VALUES ($1, $2, $3, $4)", &types).unwrap();
    for (id, s) in [(1, Some("abc")), (2, None), (3, Some("")), (-2_147_483_648, Some("longer than before"))]
    {
        let text = s.map_or(Value::Null, |s| Value::Bytes(s.as_bytes()));
        let values = [Value::Int(id), Value::Int(id << 31), Value::Double(id as f64 / 4.0), text];
        let done = client.execute(&mut insert, &values).unwrap();
        assert_eq!((done.affected_rows, done.kind()), (1, StatementKind::Write));
    }
    let nulls = [Value::Int(7), Value::Null, Value::Null, Value::Null];
    client.execute(&mut insert, &nulls).unwrap();
    assert_eq!(
        rows(&mut client, "SELECT id, n, x, s FROM p WHERE id < 4 ORDER BY id"),
        [
            some(&["-2147483648", "-4611686018427387904", "-536870912", "longer than before"]),
            some(&["1", "2147483648", "0.25", "abc"]),
            vec![Some("2".into()), Some("4294967296".into()), Some("0.5".into()), None],
            some(&["3", "6442450944", "0.75", ""]),
        ]
    );

    let mut select = client
        .prepare(
            "SELECT s, n FROM p WHERE id BETWEEN $1 AND $2 ORDER BY id",
            &[ParamType::Int, ParamType::Int],
        )
        .unwrap();
    let done = client.execute(&mut select, &[Value::Int(1), Value::Int(3)]).unwrap();
    assert_eq!((done.rows, done.kind()), (3, StatementKind::Read));
    let mut seen = Vec::new();
    let range = [Value::Int(1), Value::Int(2)];
    client.execute_rows(&mut select, &range, &mut |row| seen.push(texts(row))).unwrap();
    assert_eq!(seen, [some(&["abc", "2147483648"]), vec![None, Some("4294967296".into())]]);
    assert_eq!(
        client.execute(&mut select, &[Value::Int(50), Value::Int(60)]).unwrap().kind(),
        StatementKind::Read
    );

    let mut returning = client.prepare("DELETE FROM p WHERE id = $1 RETURNING s", &[ParamType::Int]).unwrap();
    let done = client.execute(&mut returning, &[Value::Int(1)]).unwrap();
    assert_eq!((done.affected_rows, done.rows, done.has_result_set), (1, 1, true));
    client.close_statement(returning).unwrap();
    assert_eq!(
        client.query_value("SELECT count(*) FROM pg_prepared_statements").unwrap().as_deref(),
        Some("2")
    );
}

fn types_that_the_server_infers(server: &Server) {
    let mut client = admin(server);
    let mut echo =
        client.prepare("SELECT $1::int + 1, $2::float8 * 2, $3::date + 1", &[ParamType::Text; 3]).unwrap();
    let mut seen = Vec::new();
    let values = [Value::Int(41), Value::Double(1.25), Value::Bytes(b"2024-02-28")];
    client.execute_rows(&mut echo, &values, &mut |row| seen.push(texts(row))).unwrap();
    assert_eq!(seen, [some(&["42", "2.5", "2024-02-29"])]);
}

fn what_does_not_fit_is_never_sent(server: &Server) {
    let mut client = admin(server);
    let mut select = client.prepare("SELECT $1", &[ParamType::Int]).unwrap();
    for values in
        [vec![Value::Int(1 << 31)], vec![Value::Bytes(b"1")], vec![], vec![Value::Int(1), Value::Int(2)]]
    {
        let error = client.execute(&mut select, &values).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
    assert_eq!(client.execute(&mut select, &[Value::Int(1)]).unwrap().rows, 1);
    let error = client.prepare("SELECT $1::int, $2::int", &[ParamType::Int]).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(matches!(client.query("SELECT '\0'"), Err(Error::Unsupported(_))));
    assert_eq!(client.query("SELECT 1").unwrap().rows, 1);
}

fn after_an_error_the_session_goes_on(server: &Server) {
    let mut client = admin(server);
    client.query("CREATE TEMP TABLE e (id int PRIMARY KEY)").unwrap();
    let mut insert = client.prepare("INSERT INTO e VALUES ($1)", &[ParamType::Int]).unwrap();
    let mut divide =
        client.prepare("SELECT 10 / (3 - i) FROM generate_series(1, $1) i", &[ParamType::Int]).unwrap();
    client.execute(&mut insert, &[Value::Int(1)]).unwrap();
    for _ in 0..3 {
        assert_eq!(code(client.execute(&mut insert, &[Value::Int(1)])), "23505");
        // Rows come before this error.
        assert_eq!(code(client.execute(&mut divide, &[Value::Int(5)])), "22012");
        assert_eq!(code(client.query("SELEC 1")), "42601");
        assert!(
            matches!(client.prepare("SELECT nothing", &[]), Err(Error::Server(e)) if e.code() == "42703")
        );
        assert_eq!(client.execute(&mut divide, &[Value::Int(2)]).unwrap().rows, 2);
    }
    client.query("BEGIN").unwrap();
    assert_eq!(code(client.execute(&mut insert, &[Value::Int(1)])), "23505");
    assert_eq!(code(client.execute(&mut insert, &[Value::Int(2)])), "25P02");
    assert_eq!(code(client.query("SELECT 1")), "25P02");
    client.query("ROLLBACK").unwrap();
    client.execute(&mut insert, &[Value::Int(2)]).unwrap();
}

fn transaction_status_is_known(server: &Server) {
    use wire::postgres::TransactionStatus::{self, Failed, Idle, Open};
    let mut client = admin(server);
    let mut expect = |sql: &str, expected: TransactionStatus| {
        let _ = client.query(sql);
        match client.connection() {
            wire::Connection::Postgres(connection) => {
                assert_eq!(connection.transaction_status(), expected, "{sql}")
            }
            wire::Connection::Mysql(_) => unreachable!("a PostgreSQL target"),
        }
    };
    expect("SELECT 1", Idle);
    expect("BEGIN", Open);
    expect("SELECT 1/0", Failed);
    expect("ROLLBACK", Idle);
}

fn copy_from_a_generator(server: &Server) {
    let mut client = admin(server);
    client.query("CREATE TEMP TABLE c (id int PRIMARY KEY, name text)").unwrap();
    let mut next = 0;
    let done = client
        .load_rows("COPY c FROM STDIN", &mut |chunk| {
            for _ in 0..1000 {
                next += 1;
                chunk.extend_from_slice(format!("{next}\trow {next}\n").as_bytes());
            }
            next < 100_000
        })
        .unwrap();
    assert_eq!((done.affected_rows, done.kind()), (100_000, StatementKind::Write));
    assert_eq!(client.query_value("SELECT sum(id) FROM c").unwrap().as_deref(), Some("5000050000"));

    // Nothing at all, empty chunks, and a row cut across chunks.
    assert_eq!(client.load_rows("COPY c FROM STDIN", &mut |_| false).unwrap().affected_rows, 0);
    let mut pieces = [b"".as_slice(), b"200001\tsp", b"", b"lit\n"].into_iter();
    let done = client
        .load_rows("COPY c FROM STDIN", &mut |chunk| {
            let piece = pieces.next();
            chunk.extend_from_slice(piece.unwrap_or_default());
            piece.is_some()
        })
        .unwrap();
    assert_eq!(done.affected_rows, 1);
    assert_eq!(client.query_value("SELECT name FROM c WHERE id = 200001").unwrap().as_deref(), Some("split"));
}

fn a_refused_copy_leaves_the_session_usable(server: &Server) {
    let mut client = admin(server);
    client.query("CREATE TEMP TABLE r (id int PRIMARY KEY)").unwrap();
    let mut chunks = 0;
    let mut bad_from_the_start = |chunk: &mut Vec<u8>| {
        chunk.extend_from_slice("no number\n".repeat(10_000).as_bytes());
        chunks += 1;
        chunks < 100
    };
    assert_eq!(code(client.load_rows("COPY r FROM STDIN", &mut bad_from_the_start)), "22P02");
    assert_eq!(code(client.load_rows("COPY nowhere FROM STDIN", &mut |_| true)), "42P01");
    let misuse = client.load_rows("SELECT 1", &mut |_| true);
    assert!(matches!(misuse, Err(Error::Unsupported(_))), "{misuse:?}");
    assert_eq!(code(client.query("COPY r FROM STDIN")), "57014");
    assert_eq!(client.query("SELECT 1").unwrap().rows, 1);
    let mut copy = client.prepare("COPY r FROM STDIN", &[]).unwrap();
    assert_eq!(code(client.execute(&mut copy, &[])), "57014");
    assert_eq!(client.query("SELECT count(*) FROM r").unwrap().rows, 1);
}

fn notices_parameters_and_notifications_in_between(server: &Server) {
    let mut client = admin(server);
    client.query("LISTEN news").unwrap();
    let noisy = "DO $$ BEGIN RAISE NOTICE 'a notice'; PERFORM set_config('TimeZone', 'UTC', false); END $$";
    for _ in 0..3 {
        client.query("NOTIFY news, 'hello'").unwrap();
        client.query(noisy).unwrap();
        assert_eq!(client.query("SET DateStyle = 'SQL'; SELECT 1; SET DateStyle = 'ISO'").unwrap().rows, 1);
    }
    // One that arrives while nothing is asked.
    let mut other = admin(server);
    other.query("NOTIFY news").unwrap();
    assert_eq!(client.query("SELECT 1").unwrap().rows, 1);
}

fn long_rows_and_statements(server: &Server) {
    let mut client = admin(server);
    let done = client.query("SELECT repeat('x', 20000000) FROM generate_series(1, 3)").unwrap();
    assert_eq!(done.rows, 3);
    let mut lengths = Vec::new();
    client
        .query_rows("SELECT repeat('x', n) FROM unnest(ARRAY[0, 5000000, 1, 70000]) n", &mut |row| {
            lengths.push(row.get(0).map(<[u8]>::len));
        })
        .unwrap();
    assert_eq!(lengths, [Some(0), Some(5_000_000), Some(1), Some(70_000)]);
    let long = "y".repeat(20 << 20);
    let mut length = client.prepare("SELECT length($1)", &[ParamType::Text]).unwrap();
    let mut seen = None;
    client
        .execute_rows(&mut length, &[Value::Bytes(long.as_bytes())], &mut |row| {
            seen = row.text(0).map(str::to_owned);
        })
        .unwrap();
    assert_eq!(seen, Some(long.len().to_string()));
}

fn a_silent_server_ends_in_a_timeout(server: &Server) {
    let mut client = admin(server);
    client.set_statement_timeout(Duration::from_millis(200));
    let start = Instant::now();
    let error = client.query("SELECT pg_sleep(600)").unwrap_err();
    assert!(matches!(error, Error::Timeout { waited_ms: 200 }), "{error}");
    assert!(error.is_fatal());
    assert!(start.elapsed() < Duration::from_secs(300));
    // The server has been told: it does not go on sleeping for nobody.
    let mut watcher = admin(server);
    let sleeping =
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'";
    while watcher.query_value(sleeping).unwrap().as_deref() != Some("0") {
        assert!(start.elapsed() < Duration::from_secs(300), "the statement goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The late answer must never be taken for that of the next statement.
    let next = client.query("SELECT 1").unwrap_err();
    assert!(next.is_fatal(), "{next}");
}

fn a_session_that_is_ended_says_why(server: &Server) {
    let mut client = admin(server);
    let mut killer = admin(server);
    let pid = client.server().connection_id;
    killer.query(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    let is_there = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    while killer.query_value(&is_there).unwrap().as_deref() != Some("0") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = client.query("SELECT 1").unwrap_err();
    assert!(error.is_fatal());
    assert!(error.to_string().contains("57P01"), "{error}");
    assert!(client.query("SELECT 1").unwrap_err().is_fatal());

    let mut itself = admin(server);
    let error = itself.query("SELECT pg_terminate_backend(pg_backend_pid())").unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("57P01"), "{error}");
}
