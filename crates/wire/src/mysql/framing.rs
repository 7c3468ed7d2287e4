//! Frames and the elements that packets are made of.
//! MySQL internals manual, "MySQL Packets" and "Basic Data Types".

use crate::error::Error;

/// Length (3 bytes, little-endian) and sequence number.
pub const HEADER_BYTES: usize = 4;
/// A frame of this length is continued by the next one.
pub const FRAME_BYTES_MAX: usize = 0xff_ffff;

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow the header.
    pub len: usize,
    /// Counts the frames of one exchange, modulo 256.
    pub sequence: u8,
}

/// Reads a header; `None` where `bytes` are too few.
#[inline]
pub fn header(bytes: &[u8]) -> Option<Header> {
    match bytes {
        [a, b, c, sequence, ..] => Some(Header {
            len: usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16,
            sequence: *sequence,
        }),
        _ => None,
    }
}

/// A protocol error with these words.
#[cold]
pub fn malformed<R>(what: impl Into<String>) -> Result<R, Error> {
    Err(Error::Protocol(what.into()))
}

/// Complains when a frame is not the next one.
#[inline]
pub fn check_sequence(header: Header, expected: u8) -> Result<(), Error> {
    if header.sequence == expected { Ok(()) } else { out_of_order(header.sequence, expected) }
}

#[cold]
fn out_of_order(sequence: u8, expected: u8) -> Result<(), Error> {
    malformed(format!("packet {sequence} came where packet {expected} was due"))
}

/// Begins a packet in `out`: room for the header. Give the result to [`finish`] when the payload is appended.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; HEADER_BYTES]);
    out.len() - HEADER_BYTES
}

/// Writes the header of the packet that began at `start`, splitting a payload of 16 MiB and more into frames.
/// Advances `sequence` by the number of frames.
#[inline]
pub fn finish(out: &mut Vec<u8>, start: usize, sequence: &mut u8) {
    let payload_start = start + HEADER_BYTES;
    let payload_len = out.len() - payload_start;
    if payload_len >= FRAME_BYTES_MAX {
        return finish_in_frames(out, start, sequence);
    }
    out[start..payload_start].copy_from_slice(&header_bytes(payload_len, *sequence));
    *sequence = sequence.wrapping_add(1);
}

#[cold]
fn finish_in_frames(out: &mut Vec<u8>, start: usize, sequence: &mut u8) {
    let payload = out.split_off(start + HEADER_BYTES);
    out.truncate(start);
    let mut chunks = payload.chunks_exact(FRAME_BYTES_MAX);
    for chunk in &mut chunks {
        push_header(out, chunk.len(), sequence);
        out.extend_from_slice(chunk);
    }
    // The last frame is shorter than the maximum, be it empty: it is what ends the packet.
    push_header(out, chunks.remainder().len(), sequence);
    out.extend_from_slice(chunks.remainder());
}

fn push_header(out: &mut Vec<u8>, len: usize, sequence: &mut u8) {
    out.extend_from_slice(&header_bytes(len, *sequence));
    *sequence = sequence.wrapping_add(1);
}

#[inline]
pub(crate) fn header_bytes(len: usize, sequence: u8) -> [u8; HEADER_BYTES] {
    let [a, b, c, ..] = (len as u32).to_le_bytes();
    [a, b, c, sequence]
}

/// A packet that is complete in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Payload bytes; they begin at [`HEADER_BYTES`], joined if there were several frames.
    pub payload_len: usize,
    /// Bytes to drop from the buffer with the packet.
    pub wire_len: usize,
    /// The sequence number that is due next.
    pub next_sequence: u8,
}

impl Whole {
    /// The payload within the buffer that [`join`] was given.
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[HEADER_BYTES..HEADER_BYTES + self.payload_len]
    }
}

/// Whether a whole packet stands at the front of `bytes`; if it came in several frames, their payloads are moved
/// together in place. `None`: more bytes are needed. A packet that says that it is longer than `bytes_max` is refused
/// before it has come.
pub fn join(bytes: &mut [u8], expected_sequence: u8, bytes_max: usize) -> Result<Option<Whole>, Error> {
    let mut at = 0;
    let mut payload_len = 0;
    let mut sequence = expected_sequence;
    loop {
        let Some(header) = header(bytes.get(at..).unwrap_or_default()) else { return Ok(None) };
        check_sequence(header, sequence)?;
        sequence = sequence.wrapping_add(1);
        payload_len += header.len;
        if payload_len > bytes_max {
            return too_long(payload_len, bytes_max);
        }
        at += HEADER_BYTES + header.len;
        if at > bytes.len() {
            return Ok(None);
        }
        if header.len < FRAME_BYTES_MAX {
            break;
        }
    }
    let wire_len = at;
    let mut from = 0;
    let mut to = HEADER_BYTES;
    while from < wire_len {
        let Some(header) = header(&bytes[from..]) else { break };
        let payload = from + HEADER_BYTES..from + HEADER_BYTES + header.len;
        from = payload.end;
        // Never moves to the right, and the next header to be read lies behind what is written.
        if payload.start != to {
            bytes.copy_within(payload, to);
        }
        to += header.len;
    }
    Ok(Some(Whole { payload_len, wire_len, next_sequence: sequence }))
}

#[cold]
fn too_long<R>(bytes: usize, bytes_max: usize) -> Result<R, Error> {
    malformed(format!("a packet of {bytes} bytes or more, where {bytes_max} are allowed"))
}

/// Takes elements off the front of a payload.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

#[cold]
fn ends_early<R>(missing: usize) -> Result<R, Error> {
    malformed(format!("a packet ends {missing} bytes early"))
}

impl<'a> Reader<'a> {
    /// Reads `payload` from its first byte.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Reader<'a> {
        Reader { rest: payload }
    }

    /// What has not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => ends_early(count - self.rest.len()),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// int<1>
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    /// int<2>
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    /// int<4>
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    /// int<8>
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// int<lenenc>. NULL (0xfb) and the error mark (0xff) are no integers.
    #[inline]
    pub fn lenenc(&mut self) -> Result<u64, Error> {
        match self.u8()? {
            small @ 0..=0xfa => Ok(u64::from(small)),
            marked => self.lenenc_after(marked),
        }
    }

    fn lenenc_after(&mut self, mark: u8) -> Result<u64, Error> {
        match mark {
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [a, b, c] = self.array()?;
                Ok(u64::from(u32::from_le_bytes([a, b, c, 0])))
            }
            0xfe => self.u64(),
            other => malformed(format!("{other:#04x} begins no length")),
        }
    }

    /// string<lenenc>
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8], Error> {
        let len = self.lenenc()?;
        match usize::try_from(len) {
            Ok(len) if len <= self.rest.len() => self.take(len),
            _ => malformed(format!("a string of {len} bytes in a packet with {} left", self.rest.len())),
        }
    }

    /// string<NUL>; the end of the packet ends it too (MySQL before 5.5.10 forgets a NUL in its greeting).
    pub fn null_terminated(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let (text, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        text
    }
}

/// Appends int<lenenc>.
pub fn push_lenenc(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    match value {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends string<lenenc>.
pub fn push_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: usize = 1 << 30;

    fn framed(payload: &[u8], mut sequence: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out);
        out.extend_from_slice(payload);
        finish(&mut out, start, &mut sequence);
        out
    }

    #[test]
    fn a_small_packet_is_one_frame() {
        assert_eq!(framed(b"ab", 7), b"\x02\0\0\x07ab");
        assert_eq!(framed(b"", 0), b"\0\0\0\0");
    }

    #[test]
    fn packets_of_16_mib_are_split_and_joined() {
        for (len, frames) in [
            (FRAME_BYTES_MAX - 1, 1),
            (FRAME_BYTES_MAX, 2),
            (FRAME_BYTES_MAX + 1, 2),
            (2 * FRAME_BYTES_MAX, 3),
        ] {
            let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut wire = framed(&payload, 254);
            assert_eq!(wire.len(), len + frames * HEADER_BYTES);
            wire.push(99);
            assert_eq!(join(&mut wire[..len], 254, ANY).unwrap(), None, "incomplete");
            let whole = join(&mut wire, 254, ANY).unwrap().unwrap();
            assert_eq!(whole.wire_len, wire.len() - 1);
            assert_eq!(whole.next_sequence, 254u8.wrapping_add(frames as u8));
            assert!(whole.payload(&wire) == payload);
        }
    }

    #[test]
    fn frames_out_of_order_are_refused() {
        let error = join(&mut framed(b"x", 3), 2, ANY).unwrap_err();
        assert_eq!(error.to_string(), "protocol error: packet 3 came where packet 2 was due");
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused_before_it_is_stored() {
        let refused = |wire: &mut [u8], max| join(wire, 0, max).unwrap_err().to_string();
        assert_eq!(join(&mut header_bytes(100, 0), 0, 100).unwrap(), None);
        let error = refused(&mut header_bytes(101, 0), 100);
        assert!(error.contains("101 bytes or more, where 100 are allowed"), "{error}");
        // One that goes on for ever is refused when the bound is passed, by its headers.
        let mut wire = Vec::new();
        for sequence in 0..2 {
            wire.extend_from_slice(&header_bytes(FRAME_BYTES_MAX, sequence));
            wire.resize(wire.len() + FRAME_BYTES_MAX, 0);
        }
        assert_eq!(join(&mut wire, 0, 2 * FRAME_BYTES_MAX).unwrap(), None);
        wire.extend_from_slice(&header_bytes(1, 2));
        assert!(refused(&mut wire, 2 * FRAME_BYTES_MAX).contains("allowed"));
    }

    proptest! {
        #[test]
        fn lenenc_comes_back(value: u64) {
            let mut out = Vec::new();
            push_lenenc(&mut out, value);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.lenenc().unwrap(), value);
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), sequence: u8) {
            if let Ok(Some(whole)) = join(&mut bytes, sequence, ANY) {
                let mut reader = Reader::new(whole.payload(&bytes));
                while reader.lenenc_bytes().is_ok() && !reader.rest().is_empty() {}
                let _ = reader.null_terminated();
            }
        }
    }
}
