//! The whole answer to a statement where it is what a running workload's statement nearly always gets: no error, no
//! notice, all of it in the buffer. Anything else is left to [`super::answer::Answer`], which keeps its place from one
//! read to the next and, for that, touches more memory and more code than a plain answer is worth.

use super::answer::{Request, TransactionStatus, affected_rows, transaction_status};
use crate::value::Done;

/// What the answer at the front of `bytes` comes to, if it is a plain one and ends where they end (PostgreSQL
/// documentation, "Message Formats").
#[inline(always)]
pub(super) fn read(bytes: &[u8], request: Request) -> Option<(Done, TransactionStatus)> {
    let mut done = Done::default();
    let mut rest = bytes;
    match request {
        Request::Execute { has_result_set } => {
            // BindComplete.
            rest = rest.strip_prefix(b"2\0\0\0\x04")?;
            done.has_result_set = has_result_set;
        }
        Request::Query => {}
        _ => return None,
    }
    let tag = loop {
        let ([kind, length @ ..], behind) = rest.split_first_chunk::<5>()?;
        let length = (u32::from_be_bytes(*length) as usize).checked_sub(4)?;
        let (body, behind) = behind.split_at_checked(length)?;
        rest = behind;
        match kind {
            b'D' if done.has_result_set => done.rows += 1,
            b'C' => break body,
            _ => return None,
        }
    };
    done.affected_rows = affected_rows(tag, done.has_result_set);
    // ReadyForQuery.
    let status = transaction_status(rest.strip_prefix(b"Z\0\0\0\x05")?).ok()?;
    Some((done, status))
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Answer, Progress, Rows};
    use super::*;
    use proptest::prelude::*;

    const EXECUTE: Request = Request::Execute { has_result_set: true };
    const UPDATE: Request = Request::Execute { has_result_set: false };

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
    }

    /// What the state machine makes of the same bytes, if they are an answer without an error and nothing else.
    fn by_answer(bytes: &[u8], request: Request) -> Option<(Done, TransactionStatus)> {
        let mut answer = Answer::new(request);
        match answer.feed(bytes, &mut Rows::Skip, &mut Vec::new()) {
            Ok((used, Progress::Ready(status))) if used == bytes.len() => Some((answer.end().ok()?, status)),
            _ => None,
        }
    }

    #[test]
    fn plain_answers_are_read() {
        let row = message(b'D', b"\0\x01\0\0\0\x01x");
        let (bound, ready) = (message(b'2', b""), message(b'Z', b"T"));
        let answer = [bound.clone(), row.clone(), row, message(b'C', b"SELECT 2\0"), ready.clone()].concat();
        let (done, status) = read(&answer, EXECUTE).unwrap();
        assert_eq!((done.rows, done.affected_rows, done.has_result_set), (2, 0, true));
        assert_eq!(status, TransactionStatus::Open);
        let answer = [bound, message(b'C', b"UPDATE 12\0"), ready].concat();
        assert_eq!(read(&answer, UPDATE).unwrap().0.affected_rows, 12);
        let answer = [message(b'C', b"COMMIT\0"), message(b'Z', b"I")].concat();
        assert_eq!(read(&answer, Request::Query).unwrap(), (Done::default(), TransactionStatus::Idle));
    }

    #[test]
    fn everything_else_is_left_to_the_state_machine() {
        let (bound, ready) = (message(b'2', b""), message(b'Z', b"T"));
        let end = message(b'C', b"SELECT 0\0");
        let refused = [message(b'E', b"C40001\0\0"), ready.clone()].concat();
        assert_eq!(read(&refused, EXECUTE), None);
        let noticed = [&bound, &message(b'N', b"\0"), &end, &ready].map(Vec::as_slice).concat();
        assert_eq!(read(&noticed, EXECUTE), None);
        let whole = [bound, end, ready].concat();
        assert!(read(&whole, EXECUTE).is_some());
        assert_eq!(read(&whole[..whole.len() - 1], EXECUTE), None, "not all of it is there");
        assert_eq!(read(&[&whole[..], b"S"].concat(), EXECUTE), None, "bytes behind the answer");
        assert_eq!(read(&whole, Request::Sync), None);
    }

    proptest! {
        /// Answers, most often with a message too many somewhere or an end too early: where this says something, the
        /// state machine says the same.
        #[test]
        fn agrees_with_the_state_machine(
            kinds in prop::sample::select(vec![vec![0, 1, 1, 3, 4], vec![0, 2, 4], vec![2, 4], vec![0, 3, 5]]),
            changed in prop::option::of((0..5usize, 0..8usize)),
            request in prop::sample::select(vec![EXECUTE, UPDATE, Request::Query, Request::Sync]),
            cut in 0..3usize,
        ) {
            let messages = [
                message(b'2', b""),
                message(b'D', b"\0\0"),
                message(b'C', b"UPDATE 7\0"),
                message(b'C', b"SELECT 1\0"),
                message(b'Z', b"I"),
                message(b'Z', b"?"),
                message(b'E', b"\0"),
                message(b'T', b"\0\0"),
            ];
            let mut kinds = kinds;
            if let Some((at, to)) = changed {
                kinds.insert(at.min(kinds.len()), to);
            }
            let bytes: Vec<u8> = kinds.iter().flat_map(|kind| messages[*kind].clone()).collect();
            let bytes = &bytes[..bytes.len() - cut];
            if let Some(found) = read(bytes, request) {
                prop_assert_eq!(Some(found), by_answer(bytes, request));
            }
        }
    }
}
