//! The connection over a scripted transport.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::TransactionStatus;
use crate::transport::Transport;
use crate::{Endpoint, ParamType, Protocol, Secret, Target, TlsMode, Value};

/// Hands out one piece for each read, waits when there is none, and counts writes.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    writes: usize,
}

impl Transport for &mut Pieces {
    fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(piece) = self.pieces.pop_front() else { return Poll::Pending };
        buf[..piece.len()].copy_from_slice(&piece);
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Poll::Ready(Ok(buf.len()))
    }

    fn set_limit(&mut self, _: Duration) {}

    fn is_private(&self) -> bool {
        true
    }
}

const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
const PREPARED: &[u8] = b"1\0\0\0\x04t\0\0\0\x0a\0\x01\0\0\0\x17n\0\0\0\x04Z\0\0\0\x05I";
const EXECUTED: &[u8] = b"2\0\0\0\x04C\0\0\0\x0dUPDATE 1\0Z\0\0\0\x05T";

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<F: Future>(future: F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn open(pieces: &mut Pieces) -> crate::Connection<&mut Pieces> {
    let target = Target {
        protocol: Protocol::Postgres,
        endpoint: Endpoint::Unix("/nowhere".into()),
        user: "me".into(),
        password: Secret::default(),
        database: None,
        tls: TlsMode::Disabled,
        tls_ca: None,
        tls_client: crate::TlsClient::default(),
        is_compressed: false,
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
    };
    ready(crate::Connection::open(pieces, &target)).expect("log-in")
}

#[test]
fn a_statement_is_one_write_and_one_read() {
    let mut pieces = Pieces::default();
    pieces.pieces.extend([WELCOME.to_vec(), PREPARED.to_vec(), EXECUTED.to_vec()]);
    let mut connection = open(&mut pieces);
    let mut statement = ready(connection.prepare("UPDATE t SET k = $1", &[ParamType::Int])).unwrap();
    let started = connection.start(&statement, &[Value::Int(1)]).unwrap();
    let done = ready(connection.finish(Some(&mut statement), started)).unwrap();
    assert_eq!(done.affected_rows, 1);
    let crate::Connection::Postgres(connection) = connection else { panic!("the other protocol") };
    assert_eq!(connection.transaction_status(), TransactionStatus::Open);
    drop(connection);
    // Startup, Parse with Describe and Sync, Bind with Execute and Sync.
    assert_eq!((pieces.writes, pieces.pieces.len()), (3, 0));
}

#[test]
fn an_abandoned_statement_leaves_no_answer_for_the_next() {
    let mut pieces = Pieces::default();
    pieces.pieces.extend([WELCOME.to_vec(), PREPARED.to_vec(), EXECUTED[..7].to_vec()]);
    let mut connection = open(&mut pieces);
    let mut statement = ready(connection.prepare("UPDATE t SET k = $1", &[ParamType::Int])).unwrap();
    let started = connection.start(&statement, &[Value::Int(1)]).unwrap();
    assert!(poll(connection.finish(Some(&mut statement), started)).is_pending());
    // The future above was dropped half-way.
    let next = connection.start(&statement, &[Value::Int(2)]).unwrap_err();
    assert!(next.is_fatal(), "{next}");
    assert!(ready(connection.query("SELECT 1")).unwrap_err().is_fatal());
}
