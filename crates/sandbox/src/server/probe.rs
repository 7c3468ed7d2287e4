//! Whether a server answers, asked so that it has nothing to note in its log.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use wire::blocking::Client;
use wire::{Protocol, Target};

/// Longest wait for an answer on an accepted connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the server on this socket takes sessions now; `target` leads there.
pub(crate) fn answers(target: &Target, socket: &Path) -> bool {
    match target.protocol {
        Protocol::Mysql => mysql_answers(&Target { connect_timeout: PATIENCE, ..target.clone() }),
        Protocol::Postgres => {
            let Ok(mut stream) = UnixStream::connect(socket) else { return false };
            let is_limited = stream.set_read_timeout(Some(PATIENCE)).is_ok()
                && stream.set_write_timeout(Some(PATIENCE)).is_ok();
            is_limited && postgres_answers(&mut stream)
        }
    }
}

/// A whole log-in: MariaDB notes whoever leaves after its greeting. A refusal ("too many connections") comes from a live
/// server too.
fn mysql_answers(target: &Target) -> bool {
    matches!(Client::connect(target), Ok(_) | Err(wire::Error::Server(_)))
}

/// Whether a PostgreSQL from 10 on takes sessions, as it says itself in line 8 of postmaster.pid (source code:
/// miscadmin.h, LOCK_FILE_LINE_PM_STATUS): to ask it earlier is a FATAL in its log.
pub(crate) fn postgres_says_ready(datadir: &Path) -> bool {
    let text = std::fs::read_to_string(datadir.join("postmaster.pid")).unwrap_or_default();
    text.lines().nth(7).is_some_and(|status| matches!(status.trim_end(), "ready" | "standby"))
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
        b'R' => {
            // It says good-bye and hears the rest: to hang up on what was said is an error in the log, too.
            let heard =
                stream.write_all(b"X\0\0\0\x04").and_then(|()| std::io::copy(stream, &mut std::io::sink()));
            drop(heard);
            true
        }
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
    fn a_postgres_says_in_its_pid_file_when_it_is_ready() {
        let dir = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            std::fs::write(dir.path().join("postmaster.pid"), text).unwrap();
            postgres_says_ready(dir.path())
        };
        let head = "7\n/data\n1\n5432\n/run\n\n  1 2\n";
        assert!(says(&format!("{head}ready   \n")) && says(&format!("{head}standby \n")));
        assert!(!says(&format!("{head}starting\n")) && !says(head) && !says(""));
    }
}
