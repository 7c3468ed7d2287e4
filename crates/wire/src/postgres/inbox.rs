//! Bytes from the server, cut into messages in place, in one buffer that is used again and again.

use crate::Error;

/// No server sends a longer message: PostgreSQL builds each in a buffer of at most 1 GiB - 1.
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;
/// Messages other than rows and copied data are small; a longer one is a broken or hostile server.
const CONTROL_BYTES_MAX: usize = 4 << 20;
/// Holds what a server sends in one piece (8 KiB) and the usual result of a short range scan.
const BUFFER_BYTES: usize = 16 << 10;
/// A buffer that one long row made larger than this is given back.
const BUFFER_BYTES_KEPT: usize = 256 << 10;
/// Tag and length.
const HEADER_BYTES: usize = 5;

/// One message, borrowed from the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type.
    pub tag: u8,
    /// What follows the length.
    pub body: &'a [u8],
}

/// The start of the next message, whether or not all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its type.
    pub tag: u8,
    /// Length of what follows.
    pub body_bytes: usize,
}

/// The receiving buffer of a connection.
#[derive(Debug)]
pub struct Inbox {
    /// Initialised throughout, so that a transport can read into it; valid from `start` to `end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the present message still to be thrown away as they arrive.
    skip: usize,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { bytes: vec![0; BUFFER_BYTES], start: 0, end: 0, skip: 0 }
    }
}

impl Inbox {
    /// Where the transport reads to; never empty. The buffer grows only when it is full of bytes that have
    /// arrived, never because a length was claimed.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > BUFFER_BYTES_KEPT {
                self.bytes = vec![0; BUFFER_BYTES];
            }
        } else if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                // `header` has bounded the message, hence this ends at twice MESSAGE_BYTES_MAX.
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Notes that the transport has put `count` bytes into [`Inbox::space`].
    #[inline]
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
        self.drop_skipped();
    }

    #[inline]
    fn drop_skipped(&mut self) {
        let now = self.skip.min(self.end - self.start);
        self.start += now;
        self.skip -= now;
    }

    /// Bytes that have arrived and are not consumed.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is left, not even the tail of a message that is being skipped.
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.skip == 0
    }

    /// The next message's type and length, once they are there.
    ///
    /// # Errors
    /// [`Error::Protocol`] where no server would send such a length.
    #[inline]
    pub fn header(&self) -> Result<Option<Header>, Error> {
        let Some(&[tag, a, b, c, d]) = self.bytes[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let claimed = u32::from_be_bytes([a, b, c, d]) as usize;
        let is_bulk = matches!(tag, b'D' | b'd');
        let limit = if is_bulk { MESSAGE_BYTES_MAX } else { CONTROL_BYTES_MAX };
        if !(4..=limit).contains(&claimed) {
            return Err(Error::Protocol(format!(
                "message {} claims {claimed} bytes; 4 to {limit} are possible",
                tag.escape_ascii()
            )));
        }
        Ok(Some(Header { tag, body_bytes: claimed - 4 }))
    }

    /// Throws the next message away, arrived or not. Only after [`Inbox::header`] has shown it.
    #[inline]
    pub fn skip(&mut self, header: Header) {
        self.skip = HEADER_BYTES + header.body_bytes;
        self.drop_skipped();
    }

    /// Takes the next message if all of it is there. Only after [`Inbox::header`] has shown it.
    #[inline]
    pub fn take(&mut self, header: Header) -> Option<Message<'_>> {
        let from = self.start + HEADER_BYTES;
        let to = from + header.body_bytes;
        if to > self.end {
            return None;
        }
        self.start = to;
        Some(Message { tag: header.tag, body: &self.bytes[from..to] })
    }

    /// [`Inbox::header`] and [`Inbox::take`] together.
    ///
    /// # Errors
    /// As [`Inbox::header`].
    pub fn next(&mut self) -> Result<Option<Message<'_>>, Error> {
        match self.header()? {
            Some(header) => Ok(self.take(header)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(inbox: &mut Inbox, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = inbox.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            inbox.filled(count);
            bytes = &bytes[count..];
        }
    }

    fn encode(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn impossible_lengths_are_refused_before_any_memory_is_taken() {
        for (tag, length) in
            [(b'Z', 3u32), (b'Z', 0), (b'T', 5 << 20), (b'D', 0x4000_0000), (b'D', u32::MAX), (b'E', u32::MAX)]
        {
            let mut inbox = Inbox::default();
            let mut head = vec![tag];
            head.extend_from_slice(&length.to_be_bytes());
            feed(&mut inbox, &head);
            assert!(inbox.header().is_err(), "{tag} {length}");
        }
        // The largest row that is allowed costs nothing until it arrives.
        let mut inbox = Inbox::default();
        feed(&mut inbox, &[b'D', 0x3f, 0xff, 0xff, 0xff, 1, 2]);
        let header = inbox.header().unwrap().unwrap();
        assert!(inbox.take(header).is_none());
        assert_eq!(inbox.bytes.len(), BUFFER_BYTES);
    }

    #[test]
    fn a_long_message_grows_the_buffer_and_gives_it_back() {
        let mut inbox = Inbox::default();
        let body = vec![7; 3 * BUFFER_BYTES_KEPT];
        feed(&mut inbox, &encode(b'D', &body));
        assert_eq!(inbox.next().unwrap().unwrap().body, body);
        inbox.space();
        assert_eq!(inbox.bytes.len(), BUFFER_BYTES);
    }

    #[test]
    fn a_skipped_message_never_grows_the_buffer() {
        let mut inbox = Inbox::default();
        let bytes = encode(b'D', &vec![7; 10 * BUFFER_BYTES]);
        feed(&mut inbox, &bytes[..100]);
        let header = inbox.header().unwrap().unwrap();
        inbox.skip(header);
        feed(&mut inbox, &bytes[100..]);
        feed(&mut inbox, &encode(b'Z', b"I"));
        assert_eq!(inbox.next().unwrap().unwrap(), Message { tag: b'Z', body: b"I" });
        assert!(inbox.is_empty());
        assert_eq!(inbox.bytes.len(), BUFFER_BYTES);
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut(
            messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 1..40),
            piece in 1usize..400,
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|(tag, body)| encode(*tag, body)).collect();
            let mut inbox = Inbox::default();
            let mut seen = Vec::new();
            for bytes in stream.chunks(piece) {
                feed(&mut inbox, bytes);
                while let Some(message) = inbox.next().unwrap() {
                    seen.push((message.tag, message.body.to_vec()));
                }
            }
            prop_assert_eq!(seen, messages);
        }
    }
}
