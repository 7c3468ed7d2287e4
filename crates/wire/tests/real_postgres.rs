//! The PostgreSQL protocol against a real server.

#[path = "common/postgres.rs"]
mod postgres;

use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Done, Error, ParamType, Row, StatementKind, Target, TlsMode, Value};

/// A connection as administrator over the socket; ends the test where no servers are wanted.
macro_rules! admin {
    () => {
        match postgres::server() {
            Some(server) => connect(&server.target("admin", "")),
            None => return,
        }
    };
}

macro_rules! server {
    () => {
        match postgres::server() {
            Some(server) => server,
            None => return,
        }
    };
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

#[test]
fn every_log_in_method_over_the_socket() {
    let server = server!();
    for (user, password) in
        [("admin", ""), ("clear", "clear-pw"), ("hashed", "hashed-pw"), ("scram", "pass,=w\u{00f6}rd")]
    {
        let mut client = connect(&server.target(user, password));
        assert_eq!(client.query_value("SELECT current_user").unwrap().as_deref(), Some(user));
        let info = client.server();
        assert!(info.version.starts_with(|c: char| c.is_ascii_digit()), "{info:?}");
        assert_eq!(info.tls, None);
        let pid = client.server().connection_id.to_string();
        assert_eq!(client.query_value("SELECT pg_backend_pid()").unwrap(), Some(pid));
    }
}

#[test]
fn log_in_over_tcp() {
    let server = server!();
    for (user, password) in [("admin", ""), ("hashed", "hashed-pw"), ("scram", "pass,=w\u{00f6}rd")] {
        connect(&server.tcp("127.0.0.1", user, password, TlsMode::Disabled)).ping().unwrap();
    }
    let clear = Client::connect(&server.tcp("127.0.0.1", "clear", "clear-pw", TlsMode::Disabled));
    assert!(matches!(clear, Err(Error::Auth(_))), "clear text over open TCP: {clear:?}");
    connect(&server.tcp("127.0.0.1", "clear", "clear-pw", TlsMode::Required)).ping().unwrap();
}

#[test]
fn wrong_and_missing_passwords() {
    let server = server!();
    for user in ["clear", "hashed", "scram"] {
        match Client::connect(&server.target(user, "wrong")) {
            Err(Error::Server(error)) => assert_eq!(error.code(), "28P01"),
            other => panic!("{user}: {other:?}"),
        }
        assert!(matches!(Client::connect(&server.target(user, "")), Err(Error::Auth(_))), "{user}");
    }
    let mut target = server.target("admin", "");
    target.database = Some("no_such_database".into());
    match Client::connect(&target) {
        Err(Error::Server(error)) => assert_eq!(error.code(), "3D000"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tls_modes() {
    let server = server!();
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
    let wrong_name = Client::connect(&server.tcp("127.0.0.1", "tls", "tls-pw", TlsMode::VerifyFull));
    assert!(matches!(wrong_name, Err(Error::Tls(_))), "{wrong_name:?}");
    let refused = Client::connect(&server.tcp("127.0.0.1", "tls", "tls-pw", TlsMode::Disabled));
    assert!(matches!(refused, Err(Error::Server(_))), "{refused:?}");
    let mut socket = server.target("admin", "");
    socket.tls = TlsMode::Required;
    assert!(matches!(Client::connect(&socket), Err(Error::Tls(_))));
    socket.tls = TlsMode::Preferred;
    assert_eq!(connect(&socket).server().tls, None);
}

#[test]
fn simple_queries() {
    let mut client = admin!();
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

#[test]
fn several_statements_at_once() {
    let mut client = admin!();
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

#[test]
fn prepared_statements() {
    let mut client = admin!();
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

#[test]
fn types_that_the_server_infers() {
    let mut client = admin!();
    let mut echo =
        client.prepare("SELECT $1::int + 1, $2::float8 * 2, $3::date + 1", &[ParamType::Text; 3]).unwrap();
    let mut seen = Vec::new();
    let values = [Value::Int(41), Value::Double(1.25), Value::Bytes(b"2024-02-28")];
    client.execute_rows(&mut echo, &values, &mut |row| seen.push(texts(row))).unwrap();
    assert_eq!(seen, [some(&["42", "2.5", "2024-02-29"])]);
}

#[test]
fn what_does_not_fit_is_never_sent() {
    let mut client = admin!();
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

#[test]
fn after_an_error_the_session_goes_on() {
    let mut client = admin!();
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

#[test]
fn transaction_status_is_known() {
    use wire::postgres::TransactionStatus::{self, Failed, Idle, Open};
    let mut client = admin!();
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

#[test]
fn copy_from_a_generator() {
    let mut client = admin!();
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

#[test]
fn a_refused_copy_leaves_the_session_usable() {
    let mut client = admin!();
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

#[test]
fn notices_parameters_and_notifications_in_between() {
    let mut client = admin!();
    client.query("LISTEN news").unwrap();
    let noisy = "DO $$ BEGIN RAISE NOTICE 'a notice'; PERFORM set_config('TimeZone', 'UTC', false); END $$";
    for _ in 0..3 {
        client.query("NOTIFY news, 'hello'").unwrap();
        client.query(noisy).unwrap();
        assert_eq!(client.query("SET DateStyle = 'SQL'; SELECT 1; SET DateStyle = 'ISO'").unwrap().rows, 1);
    }
    // One that arrives while nothing is asked.
    let mut other = admin!();
    other.query("NOTIFY news").unwrap();
    assert_eq!(client.query("SELECT 1").unwrap().rows, 1);
}

#[test]
fn long_rows_and_statements() {
    let mut client = admin!();
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

#[test]
fn a_silent_server_ends_in_a_timeout() {
    let mut client = admin!();
    client.set_statement_timeout(Duration::from_millis(200));
    let start = Instant::now();
    let error = client.query("SELECT pg_sleep(30)").unwrap_err();
    assert!(matches!(error, Error::Timeout { waited_ms: 200 }), "{error}");
    assert!(error.is_fatal());
    assert!(start.elapsed() < Duration::from_secs(20));
    // The late answer must never be taken for that of the next statement.
    let next = client.query("SELECT 1").unwrap_err();
    assert!(next.is_fatal(), "{next}");
}

#[test]
fn a_session_that_is_ended_says_why() {
    let mut client = admin!();
    let mut killer = admin!();
    let pid = client.server().connection_id;
    killer.query(&format!("SELECT pg_terminate_backend({pid}, 10000)")).unwrap();
    let error = client.query("SELECT 1").unwrap_err();
    assert!(error.is_fatal());
    assert!(error.to_string().contains("57P01"), "{error}");
    assert!(client.query("SELECT 1").unwrap_err().is_fatal());

    let mut itself = admin!();
    let error = itself.query("SELECT pg_terminate_backend(pg_backend_pid())").unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("57P01"), "{error}");
}
