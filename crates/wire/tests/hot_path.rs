//! What an executed statement costs: one write, one read, no allocation. On both protocols, over a transport in
//! memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use testkit::fake::{mysql, postgres};
use wire::{Connection, Endpoint, ParamType, Protocol, Secret, Target, TlsMode, Transport, Value};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is done by the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The other end: each write makes the next answer of `script` readable, or the last one again.
#[derive(Default)]
struct Line {
    script: RefCell<VecDeque<Vec<u8>>>,
    answer: RefCell<Vec<u8>>,
    position: Cell<usize>,
    reads: Cell<u64>,
    writes: Cell<u64>,
    /// The next read must wait first, as on a real socket.
    is_pending: Cell<bool>,
}

struct Memory(Rc<Line>);

impl Transport for Memory {
    fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let line = &self.0;
        if line.is_pending.take() {
            return Poll::Pending;
        }
        line.reads.set(line.reads.get() + 1);
        let answer = line.answer.borrow();
        let rest = &answer[line.position.get()..];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        line.position.set(line.position.get() + count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let line = &self.0;
        line.writes.set(line.writes.get() + 1);
        if let Some(next) = line.script.borrow_mut().pop_front() {
            *line.answer.borrow_mut() = next;
        }
        line.position.set(0);
        line.is_pending.set(true);
        Poll::Ready(Ok(buf.len()))
    }

    fn set_limit(&mut self, _: Duration) {}

    fn is_private(&self) -> bool {
        true
    }
}

fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

fn target(protocol: Protocol) -> Target {
    Target {
        protocol,
        endpoint: Endpoint::Unix("/nowhere".into()),
        user: "someone".into(),
        password: Secret::default(),
        database: None,
        tls: TlsMode::Disabled,
        tls_ca: None,
        tls_client: wire::TlsClient::default(),
        is_compressed: false,
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
    }
}

/// Executes statements that are answered with so many rows, over and over.
fn check(
    protocol: Protocol,
    greeting: Vec<u8>,
    welcome: Vec<u8>,
    prepared: Vec<u8>,
    answers: &[(Vec<u8>, u64)],
) {
    let line = Rc::new(Line::default());
    *line.answer.borrow_mut() = greeting;
    line.script.borrow_mut().extend([welcome, prepared]);
    let mut connection = finish(Connection::open(Memory(Rc::clone(&line)), &target(protocol))).unwrap();
    let params = [ParamType::Int, ParamType::BigInt, ParamType::Double, ParamType::Text];
    let mut statement = finish(connection.prepare("...", &params)).unwrap();
    let text = "x".repeat(120);
    for (answer, rows) in answers {
        *line.answer.borrow_mut() = answer.clone();
        let mut execute = |i: i64| {
            let values = [Value::Int(i), Value::Int(i), Value::Double(0.5), Value::Bytes(text.as_bytes())];
            let done = finish(connection.execute(&mut statement, &values)).unwrap();
            assert_eq!(done.rows, *rows);
        };
        // Buffers may grow at first.
        for i in 0..10 {
            execute(i);
        }
        let before = (ALLOCATIONS.get(), line.reads.get(), line.writes.get());
        for i in 0..1000 {
            execute(i);
        }
        let after = (ALLOCATIONS.get(), line.reads.get(), line.writes.get());
        assert_eq!(after.0 - before.0, 0, "allocations in 1000 statements of {rows} rows");
        assert_eq!(after.1 - before.1, 1000, "reads");
        assert_eq!(after.2 - before.2, 1000, "writes");
    }
}

#[test]
fn mysql_statements() {
    let result = |rows: u8| {
        let mut bodies = vec![vec![1], mysql::column(), mysql::eof()];
        bodies.extend((0..rows).map(|i| [&[0u8, 0, 120][..], &[b'a' + i % 26; 120]].concat()));
        bodies.push(mysql::eof());
        (mysql::packets(1, &bodies), u64::from(rows))
    };
    // Statement 1: one column, four parameters.
    let mut prepared = vec![vec![0, 1, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]];
    prepared.extend(vec![mysql::column(); 4]);
    prepared.extend([mysql::eof(), mysql::column(), mysql::eof()]);
    check(
        Protocol::Mysql,
        mysql::packet(0, &mysql::greeting()),
        mysql::packet(2, &mysql::ok(0)),
        mysql::packets(1, &prepared),
        &[result(1), result(100), (mysql::packet(1, &mysql::ok(1)), 0)],
    );
}

#[test]
fn postgres_statements() {
    let result = |rows: u8| {
        let mut out = postgres::message(b'2', b"");
        for i in 0..rows {
            out.extend(postgres::row(&[b'a' + i % 26; 120]));
        }
        out.extend(postgres::complete(&format!("SELECT {rows}")));
        out.extend(postgres::ready());
        (out, u64::from(rows))
    };
    let welcome = [postgres::message(b'R', &[0; 4]), postgres::ready()].concat();
    let types = [20u32, 20, 701, 25].map(u32::to_be_bytes).concat();
    let prepared = [
        postgres::message(b'1', b""),
        postgres::message(b't', &[&[0, 4], types.as_slice()].concat()),
        postgres::description(),
        postgres::ready(),
    ]
    .concat();
    check(Protocol::Postgres, Vec::new(), welcome, prepared, &[result(1), result(100)]);
}
