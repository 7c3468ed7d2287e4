//! The fake server's MySQL (MySQL's internals manual, "Client/Server Protocol"). It announces no more than the
//! oldest supported servers do, hence results have EOF packets.

use std::io;

use super::{Peer, Request};

/// Announced: long password, long flag, connect with database, local files, protocol 4.1, transactions, secure
/// connection, multi-statements and -results, also for prepared ones, plugin authentication.
const CAPABILITIES: u32 = 0x1 | 0x4 | 0x8 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0xf_0000;
/// Autocommit.
const STATUS: u16 = 2;
/// Column type VAR_STRING.
const VAR_STRING: u8 = 0xfd;

pub fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    let mut out = vec![length[0], length[1], length[2], sequence];
    out.extend_from_slice(body);
    out
}

/// Packets with ascending sequence numbers.
pub fn packets(mut sequence: u8, bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for body in bodies {
        out.extend_from_slice(&packet(sequence, body));
        sequence = sequence.wrapping_add(1);
    }
    out
}

/// The body of an OK packet.
pub fn ok(affected_rows: u8) -> Vec<u8> {
    let [low, high] = STATUS.to_le_bytes();
    vec![0, affected_rows, 0, low, high, 0, 0]
}

/// The body of an EOF packet.
pub fn eof() -> Vec<u8> {
    let [low, high] = STATUS.to_le_bytes();
    vec![0xfe, 0, 0, low, high]
}

/// The body of an error packet.
pub fn error(number: u16, sqlstate: &str, text: &str) -> Vec<u8> {
    let mut body = vec![0xff];
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(format!("#{sqlstate}{text}").as_bytes());
    body
}

/// The body of a column definition: a string named `c`.
pub fn column() -> Vec<u8> {
    let mut body = Vec::new();
    for text in ["def", "", "", "", "c", ""] {
        body.push(text.len() as u8);
        body.extend_from_slice(text.as_bytes());
    }
    // Length of what follows, character set (utf8), display length, type, flags, decimals, filler.
    body.extend_from_slice(&[0x0c, 33, 0, 0xff, 0, 0, 0, VAR_STRING, 0, 0, 0, 0, 0]);
    body
}

/// The body of the greeting.
pub fn greeting() -> Vec<u8> {
    let caps = CAPABILITIES.to_le_bytes();
    let [status_low, status_high] = STATUS.to_le_bytes();
    let mut body = b"\x0a5.6.99-fake\0\x07\0\0\0".to_vec();
    body.extend_from_slice(b"saltsalt\0");
    body.extend_from_slice(&[caps[0], caps[1], 33, status_low, status_high, caps[2], caps[3], 21]);
    body.extend_from_slice(&[0; 10]);
    body.extend_from_slice(b"saltsaltsalt\0mysql_native_password\0");
    body
}

fn text_result() -> Vec<Vec<u8>> {
    vec![vec![1], column(), eof(), b"\x05value".to_vec(), eof()]
}

fn binary_result() -> Vec<Vec<u8>> {
    vec![vec![1], column(), eof(), b"\0\0\x05value".to_vec(), eof()]
}

/// The bodies that answer the preparation of a statement.
pub fn prepared(id: u32, params: u16, columns: u16) -> Vec<Vec<u8>> {
    let mut head = vec![0];
    head.extend_from_slice(&id.to_le_bytes());
    head.extend_from_slice(&columns.to_le_bytes());
    head.extend_from_slice(&params.to_le_bytes());
    head.extend_from_slice(&[0, 0, 0]);
    let mut bodies = vec![head];
    for count in [params, columns] {
        if count > 0 {
            bodies.extend((0..count).map(|_| column()));
            bodies.push(eof());
        }
    }
    bodies
}

fn is_select(sql: &str) -> bool {
    sql.get(..6).is_some_and(|verb| verb.eq_ignore_ascii_case("select"))
}

/// Reads a whole packet, joined where it is split; its body and the sequence number of the last piece.
fn read_packet(peer: &mut Peer) -> io::Result<(Vec<u8>, u8)> {
    let mut body = Vec::new();
    loop {
        let [a, b, c, sequence] = peer.read_exact()?;
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        body.extend_from_slice(&peer.read_vec(length)?);
        if length < 0xff_ffff {
            return Ok((body, sequence));
        }
    }
}

pub(super) fn serve(peer: &mut Peer) -> io::Result<()> {
    peer.answer(&Request::Connect, packet(0, &greeting()))?;
    let (_, sequence) = read_packet(peer)?;
    peer.answer(&Request::Login, packet(sequence.wrapping_add(1), &ok(0)))?;
    // Of all prepared statements, by id - 1: whether they return rows.
    let mut statements: Vec<bool> = Vec::new();
    loop {
        let (body, _) = read_packet(peer)?;
        let Some((&command, rest)) = body.split_first() else { continue };
        let sql = || String::from_utf8_lossy(rest).into_owned();
        match command {
            0x01 => return Ok(()),
            0x03 => {
                let sql = sql();
                if sql.starts_with("LOAD DATA") {
                    load(peer, sql)?;
                    continue;
                }
                let bodies = if is_select(&sql) { text_result() } else { vec![ok(1)] };
                peer.answer(&Request::Query(sql), packets(1, &bodies))?;
            }
            0x0e => peer.answer(&Request::Ping, packet(1, &ok(0)))?,
            0x16 => {
                let sql = sql();
                statements.push(is_select(&sql));
                let params = sql.bytes().filter(|&byte| byte == b'?').count() as u16;
                let bodies = prepared(statements.len() as u32, params, u16::from(is_select(&sql)));
                peer.answer(&Request::Prepare(sql), packets(1, &bodies))?;
            }
            0x17 => {
                let id = rest.first_chunk().map_or(0, |id| u32::from_le_bytes(*id)) as usize;
                let returns_rows = id.checked_sub(1).and_then(|at| statements.get(at)) == Some(&true);
                let bodies = if returns_rows { binary_result() } else { vec![ok(1)] };
                peer.answer(&Request::Execute, packets(1, &bodies))?;
            }
            0x19 => peer.answer(&Request::Close, Vec::new())?,
            other => peer.answer(&Request::Other(other), packet(1, &ok(0)))?,
        }
    }
}

/// Asks for a file and reads it up to the empty packet.
fn load(peer: &mut Peer, sql: String) -> io::Result<()> {
    peer.answer(&Request::Query(sql), packet(1, b"\xfbrows"))?;
    let mut bytes = 0;
    loop {
        let (body, sequence) = read_packet(peer)?;
        bytes += body.len() as u64;
        if body.is_empty() {
            return peer.answer(&Request::Loaded { bytes }, packet(sequence.wrapping_add(1), &ok(1)));
        }
    }
}
