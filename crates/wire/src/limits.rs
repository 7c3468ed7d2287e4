//! What a server can make a session hold, whatever it sends. A server is not trusted: each of these bounds is far above
//! what an honest one sends, and what exceeds it is an error, or is cut where it is only words.
//!
//! A read buffer doubles until a message fits, so that it holds at most twice the length of the longest one. What is
//! skipped (the rows of a workload's statement, definitions, notices, parameters, notifications) is never held, however
//! long it is. Below the messages, TLS holds one record and one message of its handshake (rustls: 18 KiB and 64 KiB),
//! and compression one packet before and one after, of 16 MiB each, which is all that their lengths can say.

use crate::shown::shown;

/// One message before the log-in is over: a greeting has about a hundred bytes, a certificate's worth is TLS's.
pub const LOGIN_BYTES_MAX: usize = 64 << 10;
/// One message that is no row: errors, column definitions, ends of results.
pub const CONTROL_BYTES_MAX: usize = 4 << 20;
/// One row that somebody looks at. Servers allow 1 GiB; rows that are skipped may be that long.
pub const ROW_BYTES_MAX: usize = 64 << 20;
/// Rows and names kept by one call, as [`kept_bytes`] counts them.
pub const RESULT_BYTES_MAX: usize = 256 << 20;
/// Columns of a result (MySQL and MariaDB: 4,096; PostgreSQL: 1,664).
pub const COLUMNS_MAX: usize = 4096;
/// An error's text. MySQL cuts its own at 512 bytes; PostgreSQL and proxies quote statements.
pub const ERROR_TEXT_BYTES_MAX: usize = 4 << 10;
/// A name: of a column, a version, a log-in method.
pub const NAME_BYTES_MAX: usize = 1 << 10;

/// Bytes as text of at most `max` bytes, with an ellipsis where something is missing, and without what a terminal would
/// obey.
pub(crate) fn text(bytes: &[u8], max: usize) -> String {
    shown(&cut(bytes, max)).into_owned()
}

fn cut(bytes: &[u8], max: usize) -> String {
    match bytes.split_at_checked(max) {
        Some((head, rest)) if !rest.is_empty() => {
            // Not in the middle of a character, which would become a replacement character.
            let begins_one = |byte: &&u8| **byte & 0xc0 != 0x80;
            let at = (0..=max).rev().take(4).find(|at| bytes.get(*at).as_ref().is_some_and(begins_one));
            format!("{}…", String::from_utf8_lossy(&head[..at.unwrap_or(max)]))
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The memory of a row that is kept, with that of its vectors and of the allocator.
pub fn kept_bytes(row: &[Option<Vec<u8>>]) -> usize {
    const VECTOR: usize = size_of::<Vec<u8>>();
    const ALLOCATION: usize = 16;
    let values = row.iter().flatten().map(|value| value.len() + ALLOCATION).sum::<usize>();
    VECTOR + ALLOCATION + VECTOR * row.len() + values
}

/// What may still be kept of an answer.
#[derive(Debug)]
pub struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: RESULT_BYTES_MAX }
    }
}

impl Budget {
    /// Takes `bytes` of it.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] once there is not that much left; nothing more may be kept then.
    pub fn take(&mut self, bytes: usize) -> Result<(), crate::Error> {
        self.left = self.left.saturating_sub(bytes);
        if self.left > 0 { Ok(()) } else { Err(too_much()) }
    }
}

#[cold]
fn too_much() -> crate::Error {
    crate::Error::Unsupported(format!(
        "the answer is larger than the {} MiB that are kept of one: ask for fewer rows",
        RESULT_BYTES_MAX >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(text(b"short", 5), "short");
        assert_eq!(text(b"longer", 5), "longe…");
        assert_eq!(text(b"\x1b[31mred", 99), "\\u{1b}[31mred");
        assert_eq!(text("größe".as_bytes(), 3), "gr…");
        assert_eq!(text("größe".as_bytes(), 4), "grö…");
        assert_eq!(text(&[0xff; 9], 8), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}…");
        assert_eq!(text(&[0x80; 9], 8).chars().count(), 9, "no beginning of a character anywhere near");
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = Budget::default();
        assert!(budget.take(RESULT_BYTES_MAX - 1).is_ok());
        assert!(budget.take(1).is_err() && budget.take(1).is_err() && budget.take(usize::MAX).is_err());
    }
}
