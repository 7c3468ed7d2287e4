//! Both protocols through their public door: a connection over a transport whose other end says whatever the fuzzer
//! wants.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use testkit::fake::{mysql, postgres};
use wire::{Connection, Endpoint, ParamType, Protocol, Secret, Target, TlsMode, Transport, Value};

/// Reads come from `bytes`, at most `piece` at once, and then end; writes vanish.
#[derive(Debug)]
struct Tape<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Transport for Tape<'_> {
    fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let count = self.piece.min(self.bytes.len()).min(buf.len());
        let (now, later) = self.bytes.split_at(count);
        buf[..count].copy_from_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn set_limit(&mut self, _: Duration) {}

    fn is_private(&self) -> bool {
        true
    }
}

fn target(protocol: Protocol) -> Target {
    Target {
        protocol,
        endpoint: Endpoint::Unix("/nowhere".into()),
        user: "someone".into(),
        password: Secret::new("secret"),
        database: Some("db".into()),
        tls: TlsMode::Disabled,
        tls_ca: None,
        tls_client: wire::TlsClient::default(),
        is_compressed: false,
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
    }
}

/// A tape never makes anybody wait: the first poll ends everything.
fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the connection waits although its transport is ready"),
    }
}

/// Logs in at a server that says `data`.
fn log_in(protocol: Protocol, data: &[u8]) {
    let tape = Tape { bytes: data, piece: usize::MAX };
    let _ = finish(Connection::open(tape, &target(protocol)));
}

/// Goes through every kind of request at a server that lets us in and then says `data`, whose first byte
/// decides with what it begins and how the rest is cut.
fn use_session(protocol: Protocol, welcome: &[u8], data: &[u8]) {
    let Some((&first, said)) = data.split_first() else { return };
    let bytes = [welcome, said].concat();
    let tape = Tape { bytes: &bytes, piece: if first & 0x80 == 0 { usize::MAX } else { 1 } };
    let mut connection = finish(Connection::open(tape, &target(protocol))).expect("the welcome is honest");
    let placeholder = if protocol == Protocol::Mysql { "?" } else { "$1" };
    for step in 0..6 {
        let failed = match (first.wrapping_add(step)) % 6 {
            0 => finish(connection.query("SELECT 1")).err(),
            1 => finish(connection.query_rows("SELECT 1", &mut |row| {
                std::hint::black_box(row.to_owned_row());
            }))
            .err(),
            2 => finish(connection.query_sets("SELECT 1; SELECT 2")).err(),
            3 => {
                finish(prepared(&mut connection, &format!("SELECT c FROM t WHERE id = {placeholder}"))).err()
            }
            4 => finish(connection.load_rows("COPY t FROM STDIN", &mut |chunk| {
                chunk.extend_from_slice(b"1\n");
                false
            }))
            .err(),
            _ => finish(connection.ping()).err(),
        };
        if failed.is_some_and(|error| error.is_fatal()) {
            return;
        }
    }
}

async fn prepared(connection: &mut Connection<Tape<'_>>, sql: &str) -> Result<(), wire::Error> {
    let mut statement = connection.prepare(sql, &[ParamType::Int]).await?;
    connection.execute(&mut statement, &[Value::Int(1)]).await?;
    let mut on_row = |row: &wire::Row<'_>| {
        std::hint::black_box(row.to_owned_row());
    };
    connection.execute_rows(&mut statement, &[Value::Int(2)], &mut on_row).await?;
    connection.close_statement(statement).await
}

/// Log-in at a MySQL server that says anything.
pub fn mysql_login(data: &[u8]) {
    log_in(Protocol::Mysql, data);
}

/// Log-in at a PostgreSQL server that says anything.
pub fn postgres_login(data: &[u8]) {
    log_in(Protocol::Postgres, data);
}

/// A MySQL session whose server says anything once it has let us in.
pub fn mysql_session(data: &[u8]) {
    let welcome = [mysql::packet(0, &mysql::greeting()), mysql::packet(2, &mysql::ok(0))].concat();
    use_session(Protocol::Mysql, &welcome, data);
}

/// A PostgreSQL session whose server says anything once it has let us in.
pub fn postgres_session(data: &[u8]) {
    let welcome = [postgres::message(b'R', &[0; 4]), postgres::ready()].concat();
    use_session(Protocol::Postgres, &welcome, data);
}
