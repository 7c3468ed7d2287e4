//! The compressed protocol: the stream of packets travels in packets of its own, deflated where that saves something.
//! MySQL internals manual, "Compression".
//!
//! Their numbers count on through a command and its answer. Those of the packets inside are what the two sides'
//! implementations make of them, and are written anew for whoever reads them.

use std::cell::RefCell;

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::framing::{FRAME_BYTES_MAX, header, header_bytes, malformed};
use crate::error::Error;

/// Length, number, and length before compression (0: not compressed).
const HEADER_BYTES: usize = 7;
/// Shorter ones are not worth it; what MySQL's own clients do.
const WORTH_BYTES: usize = 50;
/// zlib cannot do better than this, so that no more memory is taken than an honest server would need.
const RATIO_MAX: usize = 1040;
/// Buffers larger than this are given back when they are empty.
const KEPT_BYTES: usize = 1 << 20;

struct Zlib {
    compress: Compress,
    decompress: Decompress,
}

thread_local! {
    /// Its windows take 300 KiB: one for all sessions of a thread.
    static ZLIB: RefCell<Zlib> = RefCell::new(Zlib {
        compress: Compress::new(flate2::Compression::default(), true),
        decompress: Decompress::new(true),
    });
}

/// Both directions of one session.
#[derive(Debug, Default)]
pub struct Compression {
    /// Whole packets to be sent.
    pushed: Vec<u8>,
    /// The same as they go out, and how many of them have gone.
    sealed: Vec<u8>,
    sent: usize,
    /// Bytes of a compressed packet that is not complete.
    received: Vec<u8>,
    /// Packets as they were before, and how many bytes of them have been taken.
    plain: Vec<u8>,
    taken: usize,
    /// Where in a packet the end of `plain` is.
    inner: Inner,
    /// The number due next, of compressed packets and of those inside.
    next: u8,
    next_inner: u8,
}

/// The place within the stream of packets.
#[derive(Debug, Default)]
struct Inner {
    /// Of the header that is being read.
    header: [u8; 3],
    header_len: usize,
    /// Bytes to come of the payload.
    payload_left: usize,
}

impl Compression {
    /// Nothing sent and nothing received.
    pub fn new() -> Compression {
        Compression::default()
    }

    /// Adds whole packets that shall be sent.
    pub fn push(&mut self, packets: &[u8]) {
        self.pushed.extend_from_slice(packets);
    }

    /// Compresses all that was pushed.
    pub fn seal(&mut self) {
        if self.pushed.is_empty() {
            return;
        }
        let mut at = 0;
        while let Some(frame) = self.pushed.get(at..).and_then(header) {
            if at == 0 && frame.sequence == 0 {
                // A command begins anew.
                self.next = 0;
            }
            self.next_inner = frame.sequence.wrapping_add(1);
            at += super::framing::HEADER_BYTES + frame.len;
        }
        for chunk in self.pushed.chunks(FRAME_BYTES_MAX) {
            seal_one(chunk, self.next, &mut self.sealed);
            self.next = self.next.wrapping_add(1);
        }
        empty(&mut self.pushed);
    }

    /// What is to be written.
    pub fn unsent(&self) -> &[u8] {
        &self.sealed[self.sent..]
    }

    /// So much of it was.
    pub fn note_sent(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.sealed.len());
        if self.sent == self.sealed.len() {
            self.sent = 0;
            empty(&mut self.sealed);
        }
    }

    /// Takes what the server sent.
    ///
    /// # Errors
    /// It is not what the protocol allows; the session cannot go on.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let [a, b, c, number, x, y, z, after @ ..] = rest {
            let [len, plain_len] = [[*a, *b, *c, 0], [*x, *y, *z, 0]].map(u32::from_le_bytes);
            let Some((body, following)) = after.split_at_checked(len as usize) else { break };
            if *number != self.next {
                return malformed(format!(
                    "compressed packet {number} came where packet {} was due",
                    self.next
                ));
            }
            self.next = self.next.wrapping_add(1);
            let start = self.plain.len();
            match plain_len as usize {
                0 => self.plain.extend_from_slice(body),
                plain_len => open_one(body, plain_len, &mut self.plain)?,
            }
            self.inner.renumber(&mut self.plain[start..], &mut self.next_inner);
            rest = following;
        }
        self.received.extend_from_slice(rest);
        Ok(())
    }

    /// Moves packets into `buf`, as many bytes as there are and fit.
    pub fn take(&mut self, buf: &mut [u8]) -> usize {
        let count = buf.len().min(self.plain.len() - self.taken);
        buf[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.plain.len() {
            self.taken = 0;
            empty(&mut self.plain);
        }
        count
    }
}

impl Inner {
    /// Goes through bytes of the stream and writes the numbers of the packets that begin in them.
    fn renumber(&mut self, bytes: &mut [u8], next: &mut u8) {
        let mut at = 0;
        while at < bytes.len() {
            if self.payload_left > 0 {
                let count = self.payload_left.min(bytes.len() - at);
                self.payload_left -= count;
                at += count;
                continue;
            }
            match self.header.get_mut(self.header_len) {
                Some(byte) => {
                    *byte = bytes[at];
                    self.header_len += 1;
                }
                None => {
                    bytes[at] = *next;
                    *next = next.wrapping_add(1);
                    let [a, b, c] = self.header;
                    self.payload_left = u32::from_le_bytes([a, b, c, 0]) as usize;
                    self.header_len = 0;
                }
            }
            at += 1;
        }
    }
}

/// Empties a buffer, and gives its memory back where that is much.
fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
}

fn seal_one(chunk: &[u8], number: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let plain_len = if chunk.len() >= WORTH_BYTES && deflate(chunk, out) { chunk.len() } else { 0 };
    if plain_len == 0 {
        out.truncate(start + HEADER_BYTES);
        out.extend_from_slice(chunk);
    }
    let len = out.len() - start - HEADER_BYTES;
    out[start..start + 4].copy_from_slice(&header_bytes(len, number));
    out[start + 4..start + HEADER_BYTES].copy_from_slice(&header_bytes(plain_len, 0)[..3]);
}

/// Appends `chunk`, deflated; whether that made it shorter.
fn deflate(chunk: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.reserve(chunk.len());
    ZLIB.with_borrow_mut(|zlib| {
        zlib.compress.reset();
        let ended = zlib.compress.compress_vec(chunk, out, FlushCompress::Finish);
        matches!(ended, Ok(Status::StreamEnd)) && out.len() - start < chunk.len()
    })
}

/// Appends the packet that was `plain_len` bytes long before it was deflated.
fn open_one(body: &[u8], plain_len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    if plain_len > body.len().saturating_mul(RATIO_MAX) {
        return malformed(format!("{} compressed bytes cannot have been {plain_len}", body.len()));
    }
    let start = out.len();
    // One byte more than claimed shows a packet that is longer.
    out.reserve(plain_len + 1);
    let ended = ZLIB.with_borrow_mut(|zlib| {
        zlib.decompress.reset(true);
        let ended = zlib.decompress.decompress_vec(body, out, FlushDecompress::Finish);
        ended.map(|status| (status, zlib.decompress.total_in()))
    });
    match ended {
        Ok((Status::StreamEnd, used)) if out.len() - start == plain_len && used == body.len() as u64 => {
            Ok(())
        }
        _ => malformed(format!("a compressed packet is no zlib stream of {plain_len} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::framing::{begin, finish};
    use super::*;

    /// A packet of these bytes, as the upper layer writes it.
    fn packet(payload: &[u8], sequence: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out);
        out.extend_from_slice(payload);
        let mut sequence = sequence;
        finish(&mut out, start, &mut sequence);
        out
    }

    /// What one side has sealed, as the other side reads it in pieces.
    fn carried(from: &mut Compression, to: &mut Compression, piece: usize) -> Vec<u8> {
        from.seal();
        let wire = from.unsent().to_vec();
        from.note_sent(wire.len());
        let mut read = Vec::new();
        for part in wire.chunks(piece.max(1)) {
            to.feed(part).expect("an honest stream");
            let mut buf = [0; 777];
            loop {
                match to.take(&mut buf) {
                    0 => break,
                    count => read.extend_from_slice(&buf[..count]),
                }
            }
        }
        read
    }

    #[test]
    fn short_packets_travel_as_they_are_and_long_ones_shrink() {
        let mut client = Compression::new();
        client.push(&packet(b"\x03SELECT 1", 0));
        client.seal();
        assert_eq!(client.unsent(), b"\x0d\0\0\0\0\0\0\x09\0\0\0\x03SELECT 1");
        client.note_sent(20);
        assert!(client.unsent().is_empty());
        client.push(&packet(&[b'x'; 10_000], 0));
        client.seal();
        assert!(client.unsent().len() < 100, "{}", client.unsent().len());
        assert_eq!(client.unsent()[3..7], [0, 0x14, 0x27, 0], "numbered anew, and 10,004 bytes before");
    }

    #[test]
    fn packets_of_16_mib_and_more_are_cut() {
        let (mut client, mut server) = (Compression::new(), Compression::new());
        let payload: Vec<u8> =
            (0..17_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let sent = packet(&payload, 0);
        client.push(&sent);
        assert!(carried(&mut client, &mut server, 1 << 20) == sent);
    }

    #[test]
    fn what_is_dishonest_is_refused() {
        let says = |bytes: &[u8]| Compression::new().feed(bytes).map_err(|error| error.to_string());
        assert!(says(b"\x01\0\0\x05\0\0\0x").unwrap_err().contains("packet 5 came where packet 0"));
        // A length that no such packet could have had, then one that is not its own.
        assert!(says(b"\x02\0\0\0\xff\xff\xffxx").unwrap_err().contains("cannot have been"));
        let mut honest = Vec::new();
        seal_one(&[7; 200], 0, &mut honest);
        assert_eq!(says(&honest), Ok(()));
        for claimed in [199, 201] {
            let mut wrong = honest.clone();
            wrong[4] = claimed;
            assert!(says(&wrong).unwrap_err().contains("no zlib stream"), "{claimed}");
        }
        let last = honest.len() - 1;
        honest[last] ^= 1;
        assert!(says(&honest).unwrap_err().contains("no zlib stream"), "the checksum");
    }

    proptest! {
        #[test]
        fn what_is_sent_arrives_however_it_is_cut(
            exchanges in prop::collection::vec(
                (prop::collection::vec((0usize..3000, any::<u8>()), 1..5), 1usize..4000), 1..6),
        ) {
            let (mut client, mut server) = (Compression::new(), Compression::new());
            for (packets, piece) in exchanges {
                let mut question = Vec::new();
                let mut sequence = 0u8;
                for (len, byte) in packets {
                    // Half of each packet is the same byte, half of it is not.
                    let payload: Vec<u8> =
                        (0..len).map(|at| if at % 2 == 0 { byte } else { (at * 7 % 251) as u8 }).collect();
                    question.extend(packet(&payload, sequence));
                    sequence += 1;
                }
                client.push(&question);
                // A server reads a command from its beginning.
                server.next = 0;
                server.next_inner = 0;
                prop_assert_eq!(&carried(&mut client, &mut server, piece), &question);
                // Its answer has whatever numbers; they arrive as those that are due.
                let answer = [packet(b"one", 77), packet(&[9; 500], 3)].concat();
                let due = [packet(b"one", sequence), packet(&[9; 500], sequence + 1)].concat();
                let first = server.next;
                server.push(&answer);
                prop_assert_eq!(server.next, first);
                prop_assert_eq!(&carried(&mut server, &mut client, piece), &due);
            }
        }

        #[test]
        fn nothing_that_a_server_says_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..300) {
            let mut client = Compression::new();
            for part in bytes.chunks(piece) {
                if client.feed(part).is_err() {
                    break;
                }
            }
        }
    }
}
