//! The whole answer to a statement where it is what a running workload's statement nearly always gets: one statement, no
//! surprise, all of it in the buffer. Anything else is left to [`super::response::Answer`], which keeps its place from
//! one read to the next and, for that, touches more memory and more code than a plain answer is worth.

use super::packet::FRAME_BYTES_MAX;
use super::response::{Dialect, STATUS_MORE_RESULTS, parse_ok};
use crate::value::Done;

/// Which answer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The sequence number that it begins with.
    pub(super) sequence: u8,
    /// Column definitions that come are to be kept: the server will not send them again.
    pub(super) keeps_definitions: bool,
}

struct Packets<'a> {
    rest: &'a [u8],
    sequence: u8,
}

impl<'a> Packets<'a> {
    /// The next packet, if it is one frame in its turn and all of it is there.
    #[inline(always)]
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        let head = u32::from_le_bytes(*head);
        let length = head as usize & FRAME_BYTES_MAX;
        if head >> 24 != u32::from(self.sequence) || length == FRAME_BYTES_MAX {
            return None;
        }
        let (payload, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        self.sequence = self.sequence.wrapping_add(1);
        Some((*payload.first()?, payload))
    }
}

/// What the answer at the front of `bytes` comes to, if it is a plain one and ends where they end.
#[inline(always)]
pub(super) fn read(bytes: &[u8], dialect: Dialect, due: Due) -> Option<Done> {
    let mut packets = Packets { rest: bytes, sequence: due.sequence };
    let mut done = Done::default();
    let (first, head) = packets.next()?;
    let status = match first {
        0x00 => {
            let ok = parse_ok(head).ok()?;
            done.affected_rows = ok.affected_rows;
            done.last_insert_id = ok.last_insert_id;
            done.warnings = ok.warnings;
            ok.status
        }
        columns @ 0x01..=0xfa => {
            done.has_result_set = true;
            if !dialect.cache_metadata || *head.get(1)? != 0 {
                skip_definitions(&mut packets, columns, due)?;
            }
            if !dialect.deprecate_eof && !matches!(packets.next()?, (0xfe, [_, _, _, _, _])) {
                return None;
            }
            let (first, end) = loop {
                let (first, packet) = packets.next()?;
                if first >= 0xfe {
                    break (first, packet);
                }
                done.rows += 1;
            };
            match (first, dialect.deprecate_eof, end) {
                (0xfe, true, _) => {
                    let ok = parse_ok(end).ok()?;
                    done.warnings = ok.warnings;
                    ok.status
                }
                (0xfe, false, [_, a, b, c, d]) => {
                    done.warnings = u16::from_le_bytes([*a, *b]);
                    u16::from_le_bytes([*c, *d])
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    (packets.rest.is_empty() && status & STATUS_MORE_RESULTS == 0).then_some(done)
}

/// Out of line: servers that agree to it send them once for each statement.
#[inline(never)]
fn skip_definitions(packets: &mut Packets<'_>, columns: u8, due: Due) -> Option<()> {
    if due.keeps_definitions {
        return None;
    }
    for _ in 0..columns {
        packets.next().filter(|(first, _)| *first != 0xff)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::packet::header_bytes;
    use super::super::response::{Answer, Event};
    use super::*;
    use proptest::prelude::*;

    const OK: [u8; 7] = [0, 3, 9, 2, 0, 1, 0];
    const OK_BEHIND_ROWS: [u8; 7] = [0xfe, 0, 0, 2, 0, 1, 0];
    const EOF: [u8; 5] = [0xfe, 1, 0, 2, 0];
    const PLAIN: Due = Due { sequence: 1, keeps_definitions: false };

    fn wire(payloads: &[&[u8]]) -> Vec<u8> {
        let frame =
            |(i, payload): (usize, &&[u8])| [&header_bytes(payload.len(), i as u8 + 1), *payload].concat();
        payloads.iter().enumerate().flat_map(frame).collect()
    }

    /// What the state machine makes of the same bytes, if they are an answer and nothing else.
    fn by_answer(bytes: &[u8], dialect: Dialect, due: Due) -> Option<Done> {
        let answer = Answer::new(dialect, due.sequence);
        let mut answer = if due.keeps_definitions { answer.keeping_definitions() } else { answer };
        match answer.skip(bytes) {
            (used, Ok(Event::StatementEnd(_))) if used == bytes.len() => Some(answer.done()),
            _ => None,
        }
    }

    fn dialect(deprecate_eof: bool, cache_metadata: bool) -> Dialect {
        Dialect { deprecate_eof, cache_metadata }
    }

    #[test]
    fn plain_answers_are_read() {
        let done = read(&wire(&[&OK]), dialect(true, true), PLAIN).unwrap();
        assert_eq!((done.affected_rows, done.last_insert_id, done.warnings), (3, 9, 1));
        let row: &[u8] = &[0, 0, 1, b'x'];
        let definition: &[u8] = &[3, b'd', b'e', b'f'];
        let answers: [(Dialect, Vec<&[u8]>); 3] = [
            (dialect(true, true), vec![&[1, 0], row, row, &OK_BEHIND_ROWS]),
            (dialect(true, false), vec![&[1], definition, row, row, &OK_BEHIND_ROWS]),
            (dialect(false, false), vec![&[1], definition, &EOF, row, row, &EOF]),
        ];
        for (dialect, payloads) in answers {
            let done = read(&wire(&payloads), dialect, PLAIN).unwrap();
            assert_eq!((done.rows, done.has_result_set, done.warnings), (2, true, 1), "{dialect:?}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_state_machine() {
        let agreed = dialect(true, true);
        let keeping = Due { keeps_definitions: true, ..PLAIN };
        let error: &[u8] = &[0xff, 1, 2];
        let more: &[u8] = &[0, 0, 0, 10, 0, 0, 0];
        assert_eq!(read(&wire(&[error]), agreed, PLAIN), None);
        assert_eq!(read(&wire(&[more]), agreed, PLAIN), None, "another result follows");
        assert_eq!(read(&wire(&[&OK, &OK]), agreed, PLAIN), None, "bytes behind the answer");
        assert_eq!(read(&wire(&[&OK])[..9], agreed, PLAIN), None, "not all of it is there");
        assert_eq!(read(&wire(&[&OK]), agreed, Due { sequence: 2, ..PLAIN }), None, "out of turn");
        assert_eq!(read(&wire(&[&[1, 1], &[3], &OK_BEHIND_ROWS]), agreed, keeping), None, "to be kept");
        assert_eq!(read(&wire(&[&[0xfb, b'f']]), agreed, PLAIN), None, "a local file");
    }

    proptest! {
        /// Answers, most often with a packet too many somewhere or an end too early: where this says something, the state machine says the
        /// same.
        #[test]
        fn agrees_with_the_state_machine(
            kinds in prop::sample::select(vec![vec![0], vec![3, 7, 7, 1], vec![4, 5, 7, 1], vec![4, 5, 2, 7, 2]]),
            changed in prop::option::of((0..5usize, 0..9usize)),
            deprecate_eof: bool,
            cache_metadata: bool,
            keeps_definitions: bool,
            cut in 0..3usize,
        ) {
            let kind: [&[u8]; 9] =
                [&OK, &OK_BEHIND_ROWS, &EOF, &[1, 0], &[1, 1], &[2, 1, 3], &[0xff, 1, 0], &[0, 0, 5], &[]];
            let mut kinds = kinds;
            if let Some((at, to)) = changed {
                kinds.insert(at.min(kinds.len()), to);
            }
            let payloads: Vec<&[u8]> = kinds.iter().map(|k| kind[*k]).collect();
            let bytes = wire(&payloads);
            let bytes = &bytes[..bytes.len() - cut];
            let (dialect, due) = (dialect(deprecate_eof, cache_metadata), Due { keeps_definitions, ..PLAIN });
            if let Some(done) = read(bytes, dialect, due) {
                prop_assert_eq!(Some(done), by_answer(bytes, dialect, due));
            }
        }

        #[test]
        fn any_bytes_do_no_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            deprecate_eof: bool,
            cache_metadata: bool,
        ) {
            let dialect = dialect(deprecate_eof, cache_metadata);
            if let Some(done) = read(&bytes, dialect, PLAIN) {
                prop_assert_eq!(Some(done), by_answer(&bytes, dialect, PLAIN));
            }
        }
    }
}
