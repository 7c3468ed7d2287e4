//! The MySQL protocol against real servers. Set `PLIMSOLL_TEST_SERVERS=none` to do without; the run then says what
//! was not tested.

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/mysql.rs"]
mod common;

use std::time::{Duration, Instant};

use common::Server;
use wire::blocking::Client;
use wire::{Endpoint, Error, ParamType, Secret, Target, TlsClient, TlsMode, Value};

fn root(server: &Server) -> Client {
    Client::connect(&server.target()).expect("root over the socket")
}

/// What is checked, and how.
type Check = (&'static str, fn(&Server));

fn check_all(server: &Server, checks: &[Check]) {
    for (name, check) in checks {
        eprintln!("{}: {name}", server.name());
        check(server);
    }
}

const COMMON: &[Check] = &[
    ("text results", text_results),
    ("several statements", several_statements),
    ("errors", errors),
    ("prepared statements", prepared_statements),
    ("values both ways", values_both_ways),
    ("a table that changes under a statement", changing_table),
    ("rows from a generator", rows_from_a_generator),
    ("rows that the server refuses", refused_rows),
    ("files that nobody offered", unasked_files),
    ("packets over 16 MiB", huge_packets),
    ("native passwords", native_passwords),
    ("a server that takes too long", timeouts),
    ("a session that was killed", killed),
    ("an abandoned answer", abandoned),
];

const CLIENT_CERTIFICATES: Check = ("client certificates", client_certificates);

fn check_server(selector: &str, checks: &[Check]) {
    let Some(mut server) = common::server(selector) else { return };
    check_all(&server, COMMON);
    check_all(&server, checks);
    // All of it once more in compressed packets.
    server.compress();
    check_all(&server, &[("compression", compression)]);
    check_all(&server, COMMON);
    check_all(&server, checks);
}

#[test]
fn mariadb() {
    check_server("mariadb", &[("TLS", tls), CLIENT_CERTIFICATES, ("ed25519", ed25519)]);
}

#[test]
fn mariadb_11_4() {
    check_server("mariadb@11.4", &[("TLS", tls), CLIENT_CERTIFICATES]);
}

#[test]
fn mariadb_10_2() {
    check_server("mariadb@10.2", &[("TLS of old", old_tls)]);
}

#[test]
fn mariadb_10_1() {
    check_server("mariadb@10.1", &[("TLS of old", old_tls)]);
}

#[test]
fn mysql_8_0() {
    check_server("mysql@8.0", &[("TLS", tls), CLIENT_CERTIFICATES, ("caching_sha2_password", caching_sha2)]);
}

#[test]
fn mysql_5_6() {
    check_server("mysql@5.6", &[("TLS of old", old_tls)]);
}

/// Its greeting lacks a NUL that all later ones have.
#[test]
fn mysql_5_5_9() {
    check_server("mysql@5.5.9", &[("no TLS", no_tls)]);
}

#[test]
fn mysql_5_5() {
    check_server("mysql@5.5", &[("TLS of old", old_tls)]);
}

fn text_results(server: &Server) {
    let mut client = root(server);
    assert!(client.server().version.contains(&server.version()), "{}", client.server().version);
    assert!(client.server().connection_id > 0);
    let sets = client
        .query_sets("SELECT 1 AS one, NULL AS nothing, 'grüße 🚢' AS text UNION ALL SELECT 2, '', 'x'")
        .unwrap();
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0].columns, ["one", "nothing", "text"]);
    assert_eq!(sets[0].text(0, 2), Some("grüße 🚢"));
    assert_eq!(sets[0].rows[0][1], None);
    assert_eq!(sets[0].rows[1][1].as_deref(), Some(&b""[..]));
    assert_eq!((sets[0].done.rows, sets[0].done.has_result_set), (2, true));
    let mut seen = Vec::new();
    client
        .query_rows("SELECT 1, 'a' UNION ALL SELECT 2, NULL", &mut |row| seen.push(row.to_owned_row()))
        .unwrap();
    assert_eq!(seen, [[Some(b"1".to_vec()), Some(b"a".to_vec())], [Some(b"2".to_vec()), None]]);
    let charset = client.query_value("SELECT @@character_set_connection").unwrap();
    assert_eq!(charset.as_deref(), Some("utf8mb4"));
    client.ping().unwrap();
    client.close();
}

fn several_statements(server: &Server) {
    let mut client = root(server);
    client.query("DROP DATABASE IF EXISTS several; CREATE DATABASE several; USE several").unwrap();
    let done = client
        .query(
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT); INSERT INTO t (v) VALUES (1), (2), (3); \
             SELECT * FROM t; UPDATE t SET v = 9 WHERE id < 3; SELECT * FROM t WHERE id = 1",
        )
        .unwrap();
    assert_eq!((done.affected_rows, done.rows, done.last_insert_id), (5, 4, 1));
    let sets = client.query_sets("SELECT 1; DELETE FROM t; SELECT 2 FROM DUAL WHERE 1 = 0").unwrap();
    assert_eq!(
        sets.iter().map(|set| (set.done.rows, set.done.affected_rows)).collect::<Vec<_>>(),
        [(1, 0), (0, 3), (0, 0)]
    );
    // The first error ends it; what came before has happened.
    let error =
        client.query("INSERT INTO t (v) VALUES (7); SELECT * FROM missing; INSERT INTO t (v) VALUES (8)");
    assert!(matches!(error, Err(Error::Server(e)) if e.number == 1146));
    assert_eq!(client.query_value("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("1"));
}

fn errors(server: &Server) {
    let mut client = root(server);
    let Err(Error::Server(error)) = client.query("SELECT * FROM mysql.no_such_table") else { panic!() };
    assert_eq!((error.number, error.state(), error.code().as_str()), (1146, "42S02", "1146"));
    assert!(error.text.contains("no_such_table"));
    assert!(matches!(client.prepare("SELEC 1", &[]), Err(Error::Server(e)) if e.number == 1064));
    client.ping().unwrap();
    let mut target = server.target();
    target.password = Secret::new("wrong");
    assert!(matches!(Client::connect(&target), Err(Error::Server(e)) if e.number == 1045));
    let mut target = server.target();
    target.database = Some("no such database".into());
    assert!(matches!(Client::connect(&target), Err(Error::Server(e)) if e.number == 1049));
}

fn prepared_statements(server: &Server) {
    let mut client = root(server);
    client.query("DROP DATABASE IF EXISTS prepared; CREATE DATABASE prepared; USE prepared").unwrap();
    client.query("CREATE TABLE t (id INT PRIMARY KEY, k INT, c CHAR(120), KEY (k)) ENGINE=InnoDB").unwrap();
    let mut insert = client
        .prepare("INSERT INTO t VALUES (?, ?, ?)", &[ParamType::Int, ParamType::Int, ParamType::Text])
        .unwrap();
    for id in 1..=200 {
        let text = format!("text {id}");
        let done = client
            .execute(&mut insert, &[Value::Int(id), Value::Int(id % 7), Value::Bytes(text.as_bytes())])
            .unwrap();
        assert_eq!(done.affected_rows, 1);
    }
    let duplicate = client.execute(&mut insert, &[Value::Int(1), Value::Null, Value::Null]);
    assert!(matches!(duplicate, Err(Error::Server(e)) if e.number == 1062 && e.state() == "23000"));
    let mut select = client.prepare("SELECT c FROM t WHERE id = ?", &[ParamType::Int]).unwrap();
    let mut range =
        client.prepare("SELECT c FROM t WHERE id BETWEEN ? AND ? ORDER BY c", &[ParamType::Int; 2]).unwrap();
    for id in 1..=200 {
        let done = client.execute(&mut select, &[Value::Int(id)]).unwrap();
        assert_eq!((done.rows, done.has_result_set), (1, true));
        assert_eq!(client.execute(&mut range, &[Value::Int(1), Value::Int(id)]).unwrap().rows, id as u64);
    }
    assert_eq!(client.execute(&mut select, &[Value::Int(-1)]).unwrap().rows, 0);
    let mut texts = Vec::new();
    client
        .execute_rows(&mut select, &[Value::Int(42)], &mut |row| texts.push(row.text(0).unwrap().to_owned()))
        .unwrap();
    assert_eq!(texts, ["text 42"]);
    let mut sum =
        client.prepare("SELECT SUM(k) FROM t WHERE id BETWEEN ? AND ?", &[ParamType::Int; 2]).unwrap();
    let mut total = None;
    client
        .execute_rows(&mut sum, &[Value::Int(1), Value::Int(7)], &mut |row| {
            total = row.text(0).map(str::to_owned)
        })
        .unwrap();
    assert_eq!(total.as_deref(), Some("21"));
    let mut commit = client.prepare("COMMIT", &[]).unwrap();
    let done = client.execute(&mut commit, &[]).unwrap();
    assert_eq!(done.kind(), wire::StatementKind::Other);
    client.close_statement(sum).unwrap();
    let mismatch = client.prepare("SELECT ?", &[]);
    assert!(matches!(mismatch, Err(Error::Unsupported(text)) if text.contains("1 placeholders")));
    assert_eq!(client.execute(&mut select, &[Value::Int(1)]).unwrap().rows, 1);
}

fn values_both_ways(server: &Server) {
    let mut client = root(server);
    client.query("DROP DATABASE IF EXISTS vals; CREATE DATABASE vals; USE vals").unwrap();
    // MySQL 5.5 keeps no fractions of seconds.
    let (millis, micros) = if server.has_fractions() { ("(3)", "(6)") } else { ("", "") };
    client
        .query(&format!(
            "CREATE TABLE t (i INT, b BIGINT, d DOUBLE, f FLOAT, t TEXT, n DECIMAL(10,2), dt DATETIME{millis}, \
             da DATE, ti TIME{micros}, y YEAR, u BIGINT UNSIGNED, s TINYINT, bi BIT(8), e ENUM('a','b'))"
        ))
        .unwrap();
    let mut insert = client
        .prepare(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, '2026-11-21 09:08:07', '1999-01-02', '-30:01:02', 2026, \
             18446744073709551615, -5, 65, 'b')",
            &[
                ParamType::Int,
                ParamType::BigInt,
                ParamType::Double,
                ParamType::Double,
                ParamType::Text,
                ParamType::Text,
            ],
        )
        .unwrap();
    let values = [
        Value::Int(-7),
        Value::Int(i64::MIN),
        Value::Double(0.1),
        Value::Int(3),
        Value::Bytes("ü\0'\\".as_bytes()),
        Value::Bytes(b"12.5"),
    ];
    client.execute(&mut insert, &values).unwrap();
    client.execute(&mut insert, &[Value::Null; 6]).unwrap();
    let mut text = Vec::new();
    client
        .query_rows("SELECT * FROM t ORDER BY i IS NULL", &mut |row| text.push(row.to_owned_row()))
        .unwrap();
    let mut all = client.prepare("SELECT * FROM t ORDER BY i IS NULL", &[]).unwrap();
    let mut binary = Vec::new();
    client.execute_rows(&mut all, &[], &mut |row| binary.push(row.to_owned_row())).unwrap();
    assert_eq!(binary, text, "the binary protocol, rendered, is what the text protocol prints");
    let printed: Vec<_> =
        text[0].iter().map(|v| String::from_utf8_lossy(v.as_deref().unwrap()).into_owned()).collect();
    assert_eq!(
        printed,
        [
            "-7",
            "-9223372036854775808",
            "0.1",
            "3",
            "ü\0'\\",
            "12.50",
            &format!("2026-11-21 09:08:07{}", if server.has_fractions() { ".000" } else { "" }),
            "1999-01-02",
            &format!("-30:01:02{}", if server.has_fractions() { ".000000" } else { "" }),
            "2026",
            "18446744073709551615",
            "-5",
            "A",
            "b"
        ]
    );
    assert!(text[1][..6].iter().all(Option::is_none));
}

/// Servers that send column definitions only when they have changed must not leave us with the old ones, whether
/// or not the execution that saw the change read its rows.
fn changing_table(server: &Server) {
    let (mut client, mut other) = (root(server), root(server));
    client.query("DROP DATABASE IF EXISTS changing; CREATE DATABASE changing; USE changing").unwrap();
    client.query("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").unwrap();
    let mut all = client.prepare("SELECT * FROM t", &[]).unwrap();
    let mut read = |client: &mut Client| {
        let mut rows = Vec::new();
        client.execute_rows(&mut all, &[], &mut |row| rows.push(row.to_owned_row())).unwrap();
        let mut row = rows.pop().unwrap();
        let done = client.execute(&mut all, &[]).unwrap();
        assert_eq!(done.rows, 1);
        row.drain(..).map(|value| String::from_utf8(value.unwrap()).unwrap()).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(read(&mut client), ["1"]);
    }
    other.query("ALTER TABLE changing.t ADD b VARCHAR(9) DEFAULT 'two'").unwrap();
    for _ in 0..3 {
        assert_eq!(read(&mut client), ["1", "two"]);
    }
    other
        .query("UPDATE changing.t SET b = '3'; ALTER TABLE changing.t MODIFY a DOUBLE, MODIFY b INT")
        .unwrap();
    let mut skipped = client.prepare("SELECT * FROM t", &[]).unwrap();
    assert_eq!(client.execute(&mut skipped, &[]).unwrap().rows, 1);
    other.query("ALTER TABLE changing.t ADD c DATE DEFAULT '2026-11-21' FIRST").unwrap();
    assert_eq!(client.execute(&mut skipped, &[]).unwrap().rows, 1, "sees the change and skips it");
    let mut seen = Vec::new();
    client.execute_rows(&mut skipped, &[], &mut |row| seen.push(row.to_owned_row())).unwrap();
    let expected = ["2026-11-21", "1", "3"].map(|text| Some(text.as_bytes().to_vec()));
    assert_eq!(seen, [expected]);
}

fn rows_from_a_generator(server: &Server) {
    let mut client = root(server);
    client.query("DROP DATABASE IF EXISTS loading; CREATE DATABASE loading; USE loading").unwrap();
    client.query("CREATE TABLE t (id INT PRIMARY KEY, c CHAR(120), pad CHAR(60))").unwrap();
    let mut next = 0;
    let done = client
        .load_rows("LOAD DATA LOCAL INFILE 'generated' INTO TABLE t", &mut |out| {
            for _ in 0..1000 {
                next += 1;
                out.extend_from_slice(format!("{next}\t{:0>100}\tpad\n", next * 7).as_bytes());
            }
            next < 50_000
        })
        .unwrap();
    assert_eq!((done.affected_rows, done.warnings), (50_000, 0));
    assert_eq!(client.query_value("SELECT SUM(c) / SUM(id) FROM t").unwrap().as_deref(), Some("7"));
    // Nothing at all is a file too; and a chunk may be empty without ending it.
    let done = client.load_rows("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", &mut |_| false).unwrap();
    assert_eq!(done.affected_rows, 0);
    let mut calls = 0;
    let done = client
        .load_rows("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", &mut |out| {
            calls += 1;
            if calls == 3 {
                out.extend_from_slice(b"99999999\tc\tp\n");
            }
            calls < 3
        })
        .unwrap();
    assert_eq!(done.affected_rows, 1);
}

fn refused_rows(server: &Server) {
    let mut client = root(server);
    client.query("DROP DATABASE IF EXISTS refused; CREATE DATABASE refused; USE refused").unwrap();
    client
        .query(
            "CREATE TABLE t (id INT PRIMARY KEY); CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this row'",
        )
        .unwrap();
    // The server finds the fault early and has 10 MB more to come.
    let mut left = 10_000;
    let outcome =
        client.load_rows("LOAD DATA LOCAL INFILE 'x' INTO TABLE missing", &mut |_| panic!("not asked for"));
    assert!(matches!(outcome, Err(Error::Server(e)) if e.number == 1146));
    let outcome = client.load_rows("LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE t", &mut |out| {
        left -= 1;
        for _ in 0..100 {
            out.extend_from_slice(b"2147483600\n");
        }
        left > 0
    });
    assert!(matches!(&outcome, Err(Error::Server(e)) if e.number == 1644), "{outcome:?}");
    client.ping().unwrap();
    let outcome = client.load_rows("SELECT 1", &mut |_| false);
    assert!(matches!(outcome, Err(Error::Protocol(_))));
    let mut client = root(server);
    let outcome = client.load_rows("DO 1", &mut |_| false);
    assert!(matches!(outcome, Err(Error::Unsupported(_))));
    client.ping().unwrap();
}

fn unasked_files(server: &Server) {
    let mut client = root(server);
    client
        .query("DROP DATABASE IF EXISTS files; CREATE DATABASE files; USE files; CREATE TABLE t (a TEXT)")
        .unwrap();
    for outcome in [
        client.query("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t"),
        client.query_sets("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t").map(|_| wire::Done::default()),
    ] {
        assert!(matches!(outcome, Err(Error::Unsupported(_))), "{outcome:?}");
    }
    assert_eq!(client.query_value("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("0"));
}

fn huge_packets(server: &Server) {
    let mut client = root(server);
    client.query("SET GLOBAL max_allowed_packet = 268435456").unwrap();
    let mut client2 = root(server);
    const MIB: usize = 1 << 20;
    for len in [16 * MIB - 5, 16 * MIB - 1, 16 * MIB, 33 * MIB] {
        let sql = format!("SELECT LENGTH('{}')", "x".repeat(len));
        assert_eq!(client2.query_value(&sql).unwrap(), Some(len.to_string()), "sent {len}");
        let sql = format!("SELECT REPEAT('y', {len}), 'end'");
        let mut seen = 0;
        client2
            .query_rows(&sql, &mut |row| {
                seen = row.get(0).unwrap().len();
                assert!(row.get(0).unwrap().iter().all(|b| *b == b'y'));
                assert_eq!(row.text(1), Some("end"));
            })
            .unwrap();
        assert_eq!(seen, len, "received");
        assert_eq!(client2.query(&sql).unwrap().rows, 1, "skipped");
    }
    let mut length = client2.prepare("SELECT LENGTH(?)", &[ParamType::Text]).unwrap();
    let big = vec![b'z'; 20 * MIB];
    for _ in 0..2 {
        let mut seen = String::new();
        client2
            .execute_rows(&mut length, &[Value::Bytes(&big)], &mut |row| {
                seen = row.text(0).unwrap().to_owned()
            })
            .unwrap();
        assert_eq!(seen, big.len().to_string());
        assert_eq!(client2.execute(&mut length, &[Value::Bytes(b"small")]).unwrap().rows, 1);
    }
}

/// Creates the account anew and returns how to reach it over the socket and over TCP.
fn account(server: &Server, name: &str, how: &str, password: &str) -> [Target; 2] {
    let mut client = root(server);
    // Old servers know no IF EXISTS here.
    let _ = client.query(&format!("DROP USER {name}"));
    client.query(&format!("CREATE USER {name} {how}; GRANT ALL ON *.* TO {name}")).unwrap();
    let socket = Target { user: name.into(), password: Secret::new(password), ..server.target() };
    let tcp = Target { endpoint: server.port("127.0.0.1"), ..socket.clone() };
    [socket, tcp]
}

fn who(target: &Target) -> String {
    let mut client = Client::connect(target).unwrap_or_else(|e| panic!("{target:?}: {e}"));
    client.query_value("SELECT USER()").unwrap().unwrap()
}

/// The server itself says so, and bytes are saved.
fn compression(server: &Server) {
    for (is_compressed, says) in [(true, "ON"), (false, "OFF")] {
        let mut client =
            Client::connect(&Target { is_compressed, ..server.target() }).expect("root over the socket");
        let status = |client: &mut Client, name: &str| {
            let sets = client.query_sets(&format!("SHOW STATUS LIKE '{name}'")).unwrap();
            sets[0].text(0, 1).unwrap().to_owned()
        };
        assert_eq!(status(&mut client, "Compression"), says);
        assert_eq!(client.query_value("SELECT REPEAT('c', 3000000)").unwrap().unwrap().len(), 3_000_000);
        let sent: u64 = status(&mut client, "Bytes_sent").parse().unwrap();
        assert_eq!(sent < 100_000, is_compressed, "{sent} bytes sent");
    }
}

fn native_passwords(server: &Server) {
    let with = server.identified("n@tive");
    for target in account(server, "native_user", &with, "n@tive") {
        assert!(who(&target).starts_with("native_user@"));
        let wrong = Target { password: Secret::new("native"), ..target };
        assert!(matches!(Client::connect(&wrong), Err(Error::Server(e)) if e.number == 1045));
    }
    let with = server.identified("");
    for target in account(server, "empty_user", &with, "") {
        assert!(who(&target).starts_with("empty_user@"));
    }
}

fn ed25519(server: &Server) {
    match root(server).query("INSTALL SONAME 'auth_ed25519'") {
        Ok(_) => {}
        // Can't open shared library: builds from Maven come without it, Debian's package has it.
        Err(Error::Server(error)) if error.number == 1126 => {
            testkit::not_tested("log-in by ed25519", format!("this build lacks the plugin: {}", error.text));
            return;
        }
        Err(error) => panic!("{error}"),
    }
    for password in ["s3cret", "a much longer passphrase, with ünïcode"] {
        let how = format!("IDENTIFIED VIA ed25519 USING PASSWORD('{password}')");
        for target in account(server, "ed_user", &how, password) {
            assert!(who(&target).starts_with("ed_user@"));
            let wrong = Target { password: Secret::new("wrong"), ..target };
            assert!(matches!(Client::connect(&wrong), Err(Error::Server(e)) if e.number == 1045));
        }
    }
}

fn caching_sha2(server: &Server) {
    let password = "a passphrase longer than the nonce";
    for is_tcp_first in [true, false] {
        let with = format!("IDENTIFIED WITH caching_sha2_password BY '{password}'");
        let [socket, tcp] = account(server, "sha2_user", &with, password);
        let order = if is_tcp_first { [&tcp, &socket] } else { [&socket, &tcp] };
        // The first log-in is the full one (RSA on plain TCP, the password itself on the socket), the next are fast.
        for target in [order[0], order[0], order[1], order[1]] {
            assert!(who(target).starts_with("sha2_user@"));
        }
        let wrong = Target { password: Secret::new("wrong"), ..tcp.clone() };
        assert!(matches!(Client::connect(&wrong), Err(Error::Server(e)) if e.number == 1045));
    }
    let with = format!("IDENTIFIED WITH caching_sha2_password BY '{password}'");
    let [_, tcp] = account(server, "sha2_user", &with, password);
    let over_tls = Target { tls: TlsMode::Required, ..tcp };
    for _ in 0..2 {
        assert!(who(&over_tls).starts_with("sha2_user@"));
    }
    for target in account(server, "sha2_empty", "IDENTIFIED WITH caching_sha2_password BY ''", "") {
        assert!(who(&target).starts_with("sha2_empty@"));
    }
}

fn timeouts(server: &Server) {
    let mut client = root(server);
    client.set_statement_timeout(Duration::from_millis(200));
    let start = Instant::now();
    let outcome = client.query("SELECT SLEEP(600)");
    assert!(matches!(outcome, Err(Error::Timeout { waited_ms: 200 })), "{outcome:?}");
    assert!(start.elapsed() < Duration::from_secs(300));
    // The server has been told: it does not go on sleeping for nobody.
    let mut watcher = root(server);
    let id = client.server().connection_id;
    let is_there = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
    while watcher.query_value(&is_there).unwrap().as_deref() != Some("0") {
        assert!(start.elapsed() < Duration::from_secs(300), "the statement goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(client.ping(), Err(Error::Io(_))), "the late answer must not be taken for this one's");
    // A socket that accepts and says nothing.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("silent");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let target = Target {
        endpoint: Endpoint::Unix(path),
        connect_timeout: Duration::from_millis(100),
        ..server.target()
    };
    assert!(matches!(Client::connect(&target), Err(Error::Timeout { .. })));
}

fn killed(server: &Server) {
    let mut victim = root(server);
    let mut client = root(server);
    client.query(&format!("KILL {}", victim.server().connection_id)).unwrap();
    // The server may need a moment; a session that ended must not look like a failed statement.
    let deadline = Instant::now() + Duration::from_secs(300);
    let error = loop {
        match victim.query("SELECT 1") {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "still alive"),
        }
    };
    assert!(error.is_fatal() || matches!(&error, Error::Server(e) if e.number == 1317), "{error:?}");
}

fn abandoned(server: &Server) {
    let mut client = root(server);
    {
        // Dropped before its first poll: nothing was sent, nothing is wrong.
        let _never_polled = client.connection().query("SELECT 1");
    }
    client.ping().unwrap();
}

/// yaSSL speaks nothing that rustls does: the reason and the remedy must be told.
fn old_tls(server: &Server) {
    let tcp = &account(server, "tls_user", &server.identified("t"), "t")[1];
    for mode in [TlsMode::Preferred, TlsMode::Required] {
        let error = Client::connect(&Target { tls: mode, ..tcp.clone() }).unwrap_err();
        assert!(matches!(error, Error::Tls(_)));
        let text = error.to_string();
        assert!(text.contains("no TLS 1.2 or newer") && text.contains("tls=disabled"), "{text}");
    }
    assert!(who(tcp).starts_with("tls_user@"));
}

fn no_tls(server: &Server) {
    let tcp = &account(server, "tls_user", &server.identified("t"), "t")[1];
    let error = Client::connect(&Target { tls: TlsMode::Required, ..tcp.clone() }).unwrap_err().to_string();
    assert!(error.contains("offers no TLS: give it a certificate"), "{error}");
    let preferred = Target { tls: TlsMode::Preferred, ..tcp.clone() };
    assert_eq!(Client::connect(&preferred).expect("without TLS").server().tls, None);
}

fn tls(server: &Server) {
    let tcp = Target {
        endpoint: server.port("127.0.0.1"),
        ..account(server, "tls_user", &server.identified("t"), "t")[1].clone()
    };
    let cipher = |target: &Target| {
        let mut client = Client::connect(target).unwrap_or_else(|e| panic!("{:?}: {e}", target.tls));
        let sets = client.query_sets("SHOW STATUS LIKE 'Ssl_cipher'").unwrap();
        let big = client.query_value("SELECT REPEAT('q', 3000000)").unwrap().unwrap();
        assert_eq!(big.len(), 3_000_000);
        (sets[0].text(0, 1).unwrap().to_owned(), client.server().tls.clone())
    };
    assert_eq!(cipher(&tcp), (String::new(), None));
    for mode in [TlsMode::Preferred, TlsMode::Required] {
        let (server_says, client_says) = cipher(&Target { tls: mode, ..tcp.clone() });
        assert!(!server_says.is_empty());
        assert!(client_says.unwrap().starts_with("TLSv1"));
    }
    let verify_ca = server.verified(&tcp);
    assert!(cipher(&verify_ca).1.is_some());
    let socket = Target { tls: TlsMode::Preferred, ..server.target() };
    assert_eq!(cipher(&socket).1, None, "preferred leaves a unix socket alone");
    let socket = Target { tls: TlsMode::Required, ..server.target() };
    assert!(cipher(&socket).1.is_some());

    let wrong_ca = Target { tls_ca: server.other_ca(), ..verify_ca.clone() };
    let error = Client::connect(&wrong_ca).unwrap_err().to_string();
    assert!(error.contains("authority"), "{error}");
    let no_ca = Target { tls_ca: None, ..verify_ca.clone() };
    assert!(Client::connect(&no_ca).unwrap_err().to_string().contains("tls-ca"));
    let full = Target { tls: TlsMode::VerifyFull, ..verify_ca };
    let by_name = Target { endpoint: server.port("localhost"), ..full.clone() };
    assert!(cipher(&by_name).1.is_some());
    // The same address, written so that it is no name of the certificate's.
    let mapped = Target { endpoint: server.port("::ffff:127.0.0.1"), ..full };
    let error = Client::connect(&mapped).unwrap_err().to_string();
    assert!(error.contains("verify-ca"), "{error}");
}

/// Users that have to show any certificate of the server's authority, or the one of a certain name.
fn client_certificates(server: &Server) {
    let (_dir, stranger) = certificates::strangers("plimsoll");
    for (user, required, is_let_in) in [
        ("x509_user", "X509", true),
        ("subject_user", "SUBJECT '/CN=plimsoll'", true),
        ("other_user", "SUBJECT '/CN=somebody else'", false),
    ] {
        let how = format!("{} REQUIRE {required}", server.identified("t"));
        let without = Target { tls: TlsMode::Required, ..account(server, user, &how, "t")[1].clone() };
        let refused = Client::connect(&without);
        assert!(matches!(&refused, Err(Error::Server(e)) if e.number == 1045), "{user}: {refused:?}");
        let with = Target { tls_client: server.tls_client(), ..server.verified(&without) };
        match is_let_in {
            true => assert!(who(&with).starts_with(user)),
            false => assert!(matches!(Client::connect(&with), Err(Error::Server(e)) if e.number == 1045)),
        }
        // The socket does as well, where it is encrypted.
        let socket = Target { endpoint: server.target().endpoint, ..with };
        assert_eq!(Client::connect(&socket).is_ok(), is_let_in);
        let refused = Client::connect(&Target { tls_client: stranger.clone(), ..without });
        assert!(
            matches!(&refused, Err(Error::Tls(why)) if why.contains("client's certificate")),
            "{refused:?}"
        );
    }
    // The cipher that was asked for is the one that is used.
    let tcp = &account(server, "cipher_user", &server.identified("t"), "t")[1];
    for cipher in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
        let tls_client = TlsClient { ciphers: cipher.to_owned(), ..TlsClient::default() };
        let mut client =
            Client::connect(&Target { tls: TlsMode::Required, tls_client, ..tcp.clone() }).unwrap();
        let sets = client.query_sets("SHOW STATUS LIKE 'Ssl_cipher'").unwrap();
        // wolfSSL has a spelling of its own.
        let bare = |name: &str| name.replace("TLS13", "TLS").replace(['-', '_'], "");
        assert_eq!(sets[0].text(0, 1).map(bare), Some(bare(cipher)));
    }
}
