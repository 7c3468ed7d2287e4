//! Whether a server answers, asked with as few bytes as possible: a login would count in the server's own statistics,
//! and needs a password.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::build::Flavor;

/// Longest wait for an answer on an accepted connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the server on this socket takes sessions now.
pub(crate) fn answers(flavor: Flavor, socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    if stream.set_read_timeout(Some(PATIENCE)).is_err() || stream.set_write_timeout(Some(PATIENCE)).is_err() {
        return false;
    }
    match flavor {
        Flavor::Postgres => postgres_answers(&mut stream),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => mysql_answers(&mut stream),
    }
}

/// A MySQL server greets first: three bytes length, one sequence number, protocol version 10 (MySQL Internals,
/// "Protocol::HandshakeV10"). An error packet (0xff, "too many connections") comes from a live server too.
fn mysql_answers(stream: &mut impl Read) -> bool {
    let mut head = [0u8; 5];
    stream.read_exact(&mut head).is_ok() && matches!(head[4], 10 | 0xff)
}

/// A PostgreSQL server answers a startup message with an authentication request ('R') or an error ('E'), whose
/// SQLSTATE is 57P03 while it is starting up (PostgreSQL manual, "Message Formats").
fn postgres_answers(stream: &mut (impl Read + Write)) -> bool {
    let mut startup = Vec::from(196_608u32.to_be_bytes());
    startup.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    let mut message = Vec::from((startup.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(&startup);
    let mut kind = [0u8; 1];
    if stream.write_all(&message).is_err() || stream.read_exact(&mut kind).is_err() {
        return false;
    }
    match kind[0] {
        b'R' => true,
        b'E' => {
            let mut rest = [0u8; 512];
            let length = stream.read(&mut rest).unwrap_or(0);
            !rest[..length].windows(6).any(|w| w == b"C57P03")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Canned(Cursor<Vec<u8>>);

    impl Read for Canned {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buf)
        }
    }

    impl Write for Canned {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            Ok(buf.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_starting_postgres_is_not_ready() {
        let check = |answer: &[u8]| postgres_answers(&mut Canned(Cursor::new(answer.to_vec())));
        assert!(check(b"R\0\0\0\x08\0\0\0\0"));
        assert!(!check(b"E\0\0\0\x40SFATAL\0C57P03\0Mthe database system is starting up\0\0"));
        assert!(check(b"E\0\0\0\x40SFATAL\0C28000\0Mno\0\0"));
        assert!(!check(b""));
        assert!(!check(b"x"));
    }

    #[test]
    fn a_greeting_or_an_error_is_a_live_mysql() {
        assert!(mysql_answers(&mut Cursor::new(b"\x4a\0\0\0\x0a5.5.34\0".to_vec())));
        assert!(mysql_answers(&mut Cursor::new(b"\x17\0\0\0\xff\x10\x04Too many".to_vec())));
        assert!(!mysql_answers(&mut Cursor::new(b"\x4a\0".to_vec())));
        assert!(!mysql_answers(&mut Cursor::new(b"\x4a\0\0\0\x09old".to_vec())));
    }
}
