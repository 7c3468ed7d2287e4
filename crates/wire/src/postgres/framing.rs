//! Bytes from the server, cut into messages in place.

use crate::Error;
use crate::limits::CONTROL_BYTES_MAX;

/// No server sends a longer message: PostgreSQL builds each in a buffer of at most 1 GiB - 1.
pub(super) const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;
/// Tag and length.
const HEADER_BYTES: usize = 5;

/// The start of a message, whether or not all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Its type.
    pub(super) tag: u8,
    /// Length of what follows.
    pub(super) body_bytes: usize,
}

/// Walks over received bytes.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes consumed so far.
    #[inline]
    pub(super) fn consumed(&self) -> usize {
        self.at
    }

    /// The next message's type and length, once they are there.
    ///
    /// # Errors
    /// [`Error::Protocol`] where no server would send such a length, before any of it is waited for.
    #[inline]
    pub(super) fn header(&self) -> Result<Option<Header>, Error> {
        let Some(&[tag, a, b, c, d]) = self.bytes[self.at..].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let claimed = u32::from_be_bytes([a, b, c, d]) as usize;
        let is_bulk = matches!(tag, b'D' | b'd');
        let limit = if is_bulk { MESSAGE_BYTES_MAX } else { CONTROL_BYTES_MAX };
        if !(4..=limit).contains(&claimed) {
            return Err(impossible_length(tag, claimed, limit));
        }
        Ok(Some(Header { tag, body_bytes: claimed - 4 }))
    }

    /// Passes over the message that [`Cursor::header`] showed; returns how much of it has not arrived yet.
    #[inline]
    pub(super) fn skip(&mut self, header: Header) -> usize {
        self.advance(HEADER_BYTES + header.body_bytes)
    }

    /// Passes over `count` bytes; returns how many of them are not there.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) -> usize {
        let now = count.min(self.bytes.len() - self.at);
        self.at += now;
        count - now
    }

    /// The body of the message that [`Cursor::header`] showed, if all of it is there.
    #[inline]
    pub(super) fn take(&mut self, header: Header) -> Option<&'a [u8]> {
        let from = self.at + HEADER_BYTES;
        let body = self.bytes.get(from..from + header.body_bytes)?;
        self.at = from + header.body_bytes;
        Some(body)
    }
}

#[cold]
pub(super) fn malformed(what: &str) -> Error {
    Error::Protocol(format!("malformed {what}"))
}

#[cold]
fn impossible_length(tag: u8, claimed: usize, limit: usize) -> Error {
    Error::Protocol(format!(
        "message {} claims {claimed} bytes; 4 to {limit} are possible",
        tag.escape_ascii()
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn impossible_lengths_are_refused_before_any_memory_is_taken() {
        for (tag, length) in [
            (b'Z', 3u32),
            (b'Z', 0),
            (b'T', 5 << 20),
            (b'D', 0x4000_0000),
            (b'D', u32::MAX),
            (b'E', u32::MAX),
        ] {
            let mut head = vec![tag];
            head.extend_from_slice(&length.to_be_bytes());
            assert!(Cursor::new(&head).header().is_err(), "{tag} {length}");
        }
    }

    #[test]
    fn a_skipped_message_need_not_be_there() {
        let bytes = encode(b'D', &[7; 100]);
        let mut cursor = Cursor::new(&bytes[..40]);
        let header = cursor.header().unwrap().unwrap();
        assert_eq!(cursor.take(header), None);
        assert_eq!(cursor.skip(header), 65);
        assert_eq!(cursor.consumed(), 40);
        let mut rest = Cursor::new(&bytes[40..]);
        assert_eq!(rest.advance(65), 0);
        assert_eq!(rest.header().unwrap(), None);
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were_sent(
            messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20),
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|(tag, body)| encode(*tag, body)).collect();
            let mut cursor = Cursor::new(&stream);
            let mut seen = Vec::new();
            while let Some(header) = cursor.header().unwrap() {
                seen.push((header.tag, cursor.take(header).unwrap().to_vec()));
            }
            prop_assert_eq!(seen, messages);
            prop_assert_eq!(cursor.consumed(), stream.len());
        }
    }
}
