//! The connection over a scripted transport: what cannot be provoked from a real server at will.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::framing::{header_bytes, push_lenenc_bytes};
use super::handshake::capability;
use crate::connection::Connection;
use crate::error::Error;
use crate::target::Target;
use crate::transport::Transport;
use crate::value::{ParamType, Value};

/// What the server does next.
enum Turn {
    Says(Vec<u8>),
    /// A read has to wait once.
    Waits,
}

struct Script {
    turns: VecDeque<Turn>,
    /// Writes fail from now on.
    is_hung_up: Rc<Cell<bool>>,
}

impl Transport for Script {
    fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.turns.pop_front() {
            None => Poll::Ready(Ok(0)),
            Some(Turn::Waits) => Poll::Pending,
            Some(Turn::Says(mut bytes)) => {
                let count = bytes.len().min(buf.len());
                buf[..count].copy_from_slice(&bytes[..count]);
                bytes.drain(..count);
                if !bytes.is_empty() {
                    self.turns.push_front(Turn::Says(bytes));
                }
                Poll::Ready(Ok(count))
            }
        }
    }

    fn poll_write(&mut self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(if self.is_hung_up.get() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(buf.len()) })
    }

    fn set_limit(&mut self, _: Duration) {}

    fn is_private(&self) -> bool {
        true
    }
}

fn packets(first: u8, payloads: &[&[u8]]) -> Turn {
    let mut out = Vec::new();
    for (sequence, payload) in (first..).zip(payloads) {
        out.extend_from_slice(&header_bytes(payload.len(), sequence));
        out.extend_from_slice(payload);
    }
    Turn::Says(out)
}

fn greeting(capabilities: u64) -> Vec<u8> {
    let mut out = b"\x0a10.11.6-MariaDB\0\x07\0\0\0saltsalt\0".to_vec();
    let bytes = capabilities.to_le_bytes();
    out.extend_from_slice(&[bytes[0], bytes[1], 45, 2, 0, bytes[2], bytes[3], 21]);
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&bytes[4..]);
    out.extend_from_slice(b"saltsaltsalt\0mysql_native_password\0");
    out
}

fn column(name: &str, kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for text in ["def", "d", "t", "t", name, name] {
        push_lenenc_bytes(&mut out, text.as_bytes());
    }
    out.extend_from_slice(&[0x0c, 45, 0, 255, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
    out
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
const LONG: u8 = 3;
const VAR_STRING: u8 = 253;

fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the script does not make anybody wait here"),
    }
}

/// A session with a MariaDB that leaves definitions out, and the switch that hangs it up.
fn session(turns: Vec<Turn>) -> (Connection<Script>, Rc<Cell<bool>>) {
    let greeting = greeting(capability::WANTED & !capability::LONG_PASSWORD);
    let mut script: VecDeque<_> = [packets(0, &[&greeting]), packets(2, &[OK])].into();
    script.extend(turns);
    let is_hung_up = Rc::new(Cell::new(false));
    let script = Script { turns: script, is_hung_up: Rc::clone(&is_hung_up) };
    let target = Target::parse("mysql://root@/?socket=/nowhere").unwrap();
    (finish(Connection::open(script, &target)).unwrap(), is_hung_up)
}

#[test]
fn a_half_read_answer_is_never_taken_for_the_next_one() {
    let (mut connection, _) = session(vec![Turn::Waits, packets(1, &[OK]), packets(1, &[OK])]);
    {
        let mut query = pin!(connection.query("SELECT 1"));
        assert!(query.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    for _ in 0..2 {
        let error = finish(connection.ping()).unwrap_err();
        assert!(matches!(&error, Error::Io(e) if e.kind() == io::ErrorKind::NotConnected), "{error}");
    }
}

#[test]
fn an_idle_session_that_the_server_ends_says_why() {
    const BYE: &[u8] = b"\xff\xbf\x0f#HY000The client was disconnected by the server because of inactivity.";
    // Found when the next request cannot be written ...
    let (mut connection, is_hung_up) = session(vec![packets(0, &[BYE])]);
    is_hung_up.set(true);
    let error = finish(connection.query("SELECT 1")).unwrap_err();
    assert!(matches!(&error, Error::Io(_)) && error.to_string().contains("4031"), "{error}");
    // ... or in the place of its answer.
    let (mut connection, _) = session(vec![packets(0, &[BYE])]);
    let error = finish(connection.query("SELECT 1")).unwrap_err();
    assert!(matches!(&error, Error::Io(_)) && error.to_string().contains("inactivity"), "{error}");
    let (mut connection, _) = session(vec![packets(0, &[BYE])]);
    let error = finish(connection.query_sets("SELECT 1")).unwrap_err();
    assert!(matches!(&error, Error::Io(_)) && error.to_string().contains("inactivity"), "{error}");
    // Nothing said: the plain reason.
    let (mut connection, is_hung_up) = session(Vec::new());
    is_hung_up.set(true);
    let error = finish(connection.query("SELECT 1")).unwrap_err();
    assert!(matches!(&error, Error::Io(e) if e.kind() == io::ErrorKind::BrokenPipe), "{error}");
}

#[test]
fn definitions_are_kept_until_new_ones_come() {
    let (number, text) = (column("n", LONG), column("t", VAR_STRING));
    let prepared: &[&[u8]] = &[&[0, 9, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0], &number, &number];
    let (mut connection, _) = session(vec![
        packets(1, prepared),
        // As prepared; changed while rows are skipped; as changed.
        packets(1, &[&[1, 0], &[0, 0, 7, 0, 0, 0], END]),
        packets(1, &[&[1, 1], &text, &[0, 0, 2, b'h', b'i'], END]),
        packets(1, &[&[1, 0], &[0, 0, 3, b'y', b'o', b'u'], END]),
        packets(1, &[&[2, 0], &[0, 0, 0, 0], END]),
    ]);
    let mut statement = finish(connection.prepare("SELECT ?", &[ParamType::Int])).unwrap();
    let mut seen = Vec::new();
    let value = [Value::Int(1)];
    finish(connection.execute_rows(&mut statement, &value, &mut |row| seen.push(row.to_owned_row())))
        .unwrap();
    let started = connection.start(&statement, &value).unwrap();
    assert_eq!(finish(connection.finish(Some(&mut statement), started)).unwrap().rows, 1);
    finish(connection.execute_rows(&mut statement, &value, &mut |row| seen.push(row.to_owned_row())))
        .unwrap();
    assert_eq!(seen, [[Some(b"7".to_vec())], [Some(b"you".to_vec())]]);
    // Two columns where one was defined.
    let error = finish(connection.execute_rows(&mut statement, &value, &mut |_| {})).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

#[test]
fn an_error_that_comes_before_the_rows_were_sent() {
    let mut turn = packets(1, &[b"\xfbfile"]);
    let error: &[u8] = b"\xff\x50\x04#42000refused early";
    if let (Turn::Says(bytes), Turn::Says(early)) = (&mut turn, packets(4, &[error])) {
        bytes.extend_from_slice(&early);
    }
    let (mut connection, _) = session(vec![turn]);
    let outcome = finish(connection.load_rows("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", &mut |chunk| {
        chunk.extend_from_slice(b"1\n");
        false
    }));
    assert!(matches!(&outcome, Err(Error::Server(e)) if e.text == "refused early"), "{outcome:?}");
}

#[test]
fn bulk_rows_are_sent_ahead_of_the_answers_and_the_first_error_is_told() {
    let prepared: &[&[u8]] = &[&[0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &column("n", LONG)];
    let two_rows: &[u8] = &[0, 2, 0, 2, 0, 0, 0];
    let error: &[u8] = b"\xff\x26\x04#23000Duplicate entry";
    let (mut connection, _) = session(vec![
        packets(1, prepared),
        packets(1, &[two_rows]),
        packets(1, &[two_rows]),
        packets(1, &[error]),
        packets(1, &[two_rows]),
        packets(1, &[OK]),
    ]);
    let statement = finish(connection.prepare("INSERT INTO t VALUES (?)", &[ParamType::Text])).unwrap();
    let large = vec![b'x'; 300_000];
    let mut left = 2;
    let done = finish(connection.execute_bulk(&statement, &mut |rows| {
        rows.push(Some(&large));
        left -= 1;
        left > 0
    }));
    assert_eq!(done.unwrap().affected_rows, 4);
    // The second packet is under way when the first fails; a third is not sent, and the session goes on.
    let mut asked = 0;
    let failed = finish(connection.execute_bulk(&statement, &mut |rows| {
        rows.push(Some(&large));
        asked += 1;
        true
    }));
    assert!(matches!(&failed, Err(Error::Server(e)) if e.number == 1062), "{failed:?}");
    assert_eq!(asked, 2);
    finish(connection.ping()).unwrap();
}

#[test]
fn bulk_rows_are_refused_where_the_server_does_not_take_them() {
    let greeting = greeting(capability::WANTED & !capability::BULK_OPERATIONS & !capability::LONG_PASSWORD);
    let prepared: &[&[u8]] = &[&[0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &column("n", LONG)];
    let turns = [packets(0, &[&greeting]), packets(2, &[OK]), packets(1, prepared)];
    let script = Script { turns: turns.into(), is_hung_up: Rc::new(Cell::new(false)) };
    let target = Target::parse("mysql://root@/?socket=/nowhere").unwrap();
    let mut connection = finish(Connection::open(script, &target)).unwrap();
    assert!(!connection.has_bulk());
    let statement = finish(connection.prepare("INSERT INTO t VALUES (?)", &[ParamType::Text])).unwrap();
    let refused = finish(connection.execute_bulk(&statement, &mut |_| panic!("nobody is asked")));
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}
