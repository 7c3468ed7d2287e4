//! As much of the MySQL protocol as a client needs to log in, prepare, execute and query. Bytes in, bytes out.

use crate::fake::mysql::{self, packet};

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;

/// CLIENT_LONG_PASSWORD, FOUND_ROWS, LONG_FLAG, CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION,
/// MULTI_STATEMENTS, MULTI_RESULTS, PS_MULTI_RESULTS, PLUGIN_AUTH. Not DEPRECATE_EOF, not SSL.
const CAPABILITIES: u32 =
    0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x8_0000;
const SERVER_STATUS_AUTOCOMMIT: u16 = 2;
const UTF8_GENERAL: u8 = 33;
const ROW_TEXT: &[u8] = b"fake answer";

/// Where a connection stands.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    has_logged_in: bool,
    /// By statement id - 1: whether it returns rows.
    statements: Vec<bool>,
}

/// What to do about a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Answer at once.
    Now(Vec<u8>),
    /// A statement of the workload: answer when its latency has passed.
    Late(Vec<u8>),
    /// Nothing is expected.
    Nothing,
    /// Close the connection.
    Close,
}

/// The first packet of a connection.
pub(super) fn greeting(connection_id: u32) -> Vec<u8> {
    let mut body = vec![10];
    body.extend_from_slice(b"8.0.0-plimsoll-fake\0");
    body.extend_from_slice(&connection_id.to_le_bytes());
    body.extend_from_slice(b"01234567\0");
    body.extend_from_slice(&(CAPABILITIES as u16).to_le_bytes());
    body.push(UTF8_GENERAL);
    body.extend_from_slice(&SERVER_STATUS_AUTOCOMMIT.to_le_bytes());
    body.extend_from_slice(&((CAPABILITIES >> 16) as u16).to_le_bytes());
    body.push(21);
    body.extend_from_slice(&[0; 10]);
    body.extend_from_slice(b"890123456789\0");
    body.extend_from_slice(b"mysql_native_password\0");
    packet(0, &body)
}

/// The length of the first packet's body in `bytes`, if its header is there.
pub(super) fn body_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<4>()?;
    Some(usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16)
}

impl Dialogue {
    /// Answers one packet.
    pub(super) fn answer(&mut self, sequence: u8, body: &[u8]) -> Reply {
        let next = sequence.wrapping_add(1);
        if !self.has_logged_in {
            // Whoever comes is let in: the password is not this server's subject.
            self.has_logged_in = true;
            return Reply::Now(ok(next));
        }
        let Some((command, rest)) = body.split_first() else { return Reply::Close };
        match *command {
            COM_QUIT => Reply::Close,
            COM_QUERY if returns_rows(rest) => Reply::Late(rows(next, false)),
            COM_STMT_PREPARE => Reply::Now(self.prepare(next, rest)),
            COM_STMT_EXECUTE => match self.returns_rows(rest) {
                Some(true) => Reply::Late(rows(next, true)),
                Some(false) => Reply::Late(ok(next)),
                None => Reply::Now(unknown_statement(next)),
            },
            COM_STMT_CLOSE | COM_STMT_SEND_LONG_DATA => Reply::Nothing,
            _ => Reply::Now(ok(next)),
        }
    }

    fn prepare(&mut self, sequence: u8, sql: &[u8]) -> Vec<u8> {
        let has_rows = returns_rows(sql);
        self.statements.push(has_rows);
        let id = self.statements.len() as u32;
        let parameters = sql.iter().filter(|byte| **byte == b'?').count() as u16;
        mysql::packets(sequence, &mysql::prepared(id, parameters, has_rows.into()))
    }

    fn returns_rows(&self, execute: &[u8]) -> Option<bool> {
        let id = u32::from_le_bytes(*execute.first_chunk()?);
        self.statements.get((id as usize).checked_sub(1)?).copied()
    }
}

fn returns_rows(sql: &[u8]) -> bool {
    let start = sql.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    sql[start..].get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"select"))
}

fn ok(sequence: u8) -> Vec<u8> {
    packet(sequence, &mysql::ok(0))
}

fn unknown_statement(sequence: u8) -> Vec<u8> {
    packet(sequence, &mysql::error(1243, "HY000", "Unknown prepared statement handler"))
}

/// A result set of one column and one row.
fn rows(sequence: u8, is_binary: bool) -> Vec<u8> {
    // Header and a NULL bitmap with two reserved bits.
    let mut row = if is_binary { vec![0, 0] } else { Vec::new() };
    row.push(ROW_TEXT.len() as u8);
    row.extend_from_slice(ROW_TEXT);
    mysql::packets(sequence, &[vec![1], mysql::column(), mysql::eof(), row, mysql::eof()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged_in() -> Dialogue {
        let mut dialogue = Dialogue::default();
        assert!(matches!(dialogue.answer(1, b"anything"), Reply::Now(_)));
        dialogue
    }

    fn bodies(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(length) = body_length(bytes) {
            all.push((bytes[3], bytes[4..4 + length].to_vec()));
            bytes = &bytes[4 + length..];
        }
        assert!(bytes.is_empty());
        all
    }

    #[test]
    fn packets_are_numbered_and_whole() {
        let mut dialogue = logged_in();
        let Reply::Now(prepared) = dialogue.answer(0, b"\x16SELECT c FROM t WHERE id=? AND k=?") else {
            panic!()
        };
        let packets = bodies(&prepared);
        assert_eq!(packets.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(packets[0].1, [0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0]);
        let Reply::Late(result) = dialogue.answer(0, b"\x17\x01\0\0\0\0\x01\0\0\0") else { panic!() };
        let packets = bodies(&result);
        assert_eq!(packets.len(), 5);
        assert_eq!(packets[3].1, [&[0, 0, 11][..], ROW_TEXT].concat());
    }

    #[test]
    fn only_the_workload_is_answered_late() {
        let mut dialogue = logged_in();
        assert!(matches!(dialogue.answer(0, b"\x03SET NAMES utf8"), Reply::Now(_)));
        assert!(matches!(dialogue.answer(0, b"\x03 select 1"), Reply::Late(_)));
        assert!(matches!(dialogue.answer(0, b"\x16UPDATE t SET k=k+1 WHERE id=?"), Reply::Now(_)));
        assert_eq!(dialogue.answer(0, b"\x17\x01\0\0\0"), Reply::Late(ok(1)));
        assert!(matches!(dialogue.answer(0, b"\x17\x09\0\0\0"), Reply::Now(_)));
        assert_eq!(dialogue.answer(0, b"\x19\x01\0\0\0"), Reply::Nothing);
        assert_eq!(dialogue.answer(0, b"\x01"), Reply::Close);
        assert_eq!(dialogue.answer(0, b""), Reply::Close);
    }
}
