//! What the server answers to a command: a state machine that counts rows without looking at them, or hands each
//! packet out. MySQL internals manual, "Generic Response Packets" and "ProtocolText::Resultset".

use super::framing::{FRAME_BYTES_MAX, HEADER_BYTES, Reader, check_sequence, header, malformed};
use crate::error::{Error, ServerError};
use crate::limits::{self, COLUMNS_MAX, CONTROL_BYTES_MAX};
use crate::value::Done;

/// Another result follows.
const STATUS_MORE_RESULTS: u16 = 0x8;

/// Reads an error packet (`payload[0]` is 0xff).
pub fn server_error(payload: &[u8]) -> Error {
    let mut reader = Reader::new(payload.get(1..).unwrap_or_default());
    let Ok(number) = reader.u16() else { return Error::Protocol("an error packet without a number".into()) };
    let rest = reader.rest();
    let (sqlstate, text) = match rest {
        [b'#', state @ ..] if state.len() >= 5 => (*state.first_chunk().unwrap_or(b"HY000"), &state[5..]),
        // Errors before the log-in carry none.
        _ => (*b"HY000", rest),
    };
    let text = limits::text(text, limits::ERROR_TEXT_BYTES_MAX);
    Error::Server(ServerError { number, sqlstate: crate::error::sqlstate(sqlstate), text })
}

/// The fields of an OK packet that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ok {
    affected_rows: u64,
    last_insert_id: u64,
    status: u16,
    warnings: u16,
}

#[inline]
fn parse_ok(payload: &[u8]) -> Result<Ok, Error> {
    // Most numbers are small ones, of one byte each.
    if let [_, affected_rows @ 0..=0xfa, last_insert_id @ 0..=0xfa, a, b, c, d, ..] = *payload {
        return Ok(Ok {
            affected_rows: affected_rows.into(),
            last_insert_id: last_insert_id.into(),
            status: u16::from_le_bytes([a, b]),
            warnings: u16::from_le_bytes([c, d]),
        });
    }
    parse_large_ok(payload)
}

#[inline(never)]
fn parse_large_ok(payload: &[u8]) -> Result<Ok, Error> {
    let mut reader = Reader::new(payload);
    reader.u8()?;
    Ok(Ok {
        affected_rows: reader.lenenc()?,
        last_insert_id: reader.lenenc()?,
        status: reader.u16()?,
        warnings: reader.u16()?,
    })
}

#[cold]
fn misplaced<R>(first: u8) -> Result<R, Error> {
    malformed(format!("packet {first:#04x} where the column definitions should end"))
}

#[cold]
fn too_many_columns<R>(columns: u64) -> Result<R, Error> {
    malformed(format!("a result of {columns} columns"))
}

#[cold]
fn too_long<R>(bytes: usize) -> Result<R, Error> {
    malformed(format!("a packet of {bytes} bytes that is no row, where {CONTROL_BYTES_MAX} are allowed"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// OK, an error, a column count or a request for a local file.
    Head,
    /// So many column definitions are due.
    Columns(u32),
    /// The EOF packet after them.
    ColumnsEnd,
    Rows,
    Finished,
}

/// What a packet was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A result set begins.
    Head {
        /// Columns of each row.
        columns: u32,
        /// Whether their definitions follow; if not, those of the prepare (or the last execution) still hold.
        has_definitions: bool,
    },
    /// A column definition.
    Column,
    /// Nothing to act on.
    Nothing,
    Row,
    /// One statement has ended, with this outcome; others follow unless [`Answer::is_finished`].
    StatementEnd(Done),
    /// The server asks for a file.
    LocalFile,
}

/// What both sides have agreed on and what changes the form of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dialect {
    /// No EOF packets: nothing ends column definitions and an OK packet ends rows.
    pub deprecate_eof: bool,
    /// A result's head says whether column definitions follow.
    pub cache_metadata: bool,
}

/// The answer to one command, packet by packet.
#[derive(Debug, Clone)]
pub struct Answer {
    state: State,
    dialect: Dialect,
    /// [`Answer::skip`] stops before definitions that will not be sent again.
    keeps_definitions: bool,
    /// Due next.
    sequence: u8,
    /// The last frame was of maximal length: the next one continues its packet.
    is_continued: bool,
    /// Bytes of the current row's frame that are still to be skipped.
    skip_bytes: usize,
    /// The statement now being answered.
    current: Done,
    /// All statements.
    total: Done,
}

impl Answer {
    /// Expects the answer to a command whose last frame had the number before `sequence`.
    #[inline]
    pub fn new(dialect: Dialect, sequence: u8) -> Answer {
        Answer {
            state: State::Head,
            dialect,
            keeps_definitions: false,
            sequence,
            is_continued: false,
            skip_bytes: 0,
            current: Done::default(),
            total: Done::default(),
        }
    }

    /// Makes [`Answer::skip`] stop where a prepared statement's column definitions follow that the server will
    /// not send again.
    #[inline]
    pub fn keeping_definitions(mut self) -> Answer {
        self.keeps_definitions = self.dialect.cache_metadata;
        self
    }

    /// Whether the last packet has been seen.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// All statements together: rows and affected rows summed, the first id, the last warnings.
    pub fn done(&self) -> Done {
        self.total
    }

    /// The sequence number that is due next.
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Goes on at `sequence` (after a file has been sent).
    pub fn resume(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// Takes a whole packet. A server's error ends the answer and is returned as such.
    #[inline]
    pub fn accept(&mut self, payload: &[u8]) -> Result<Event, Error> {
        let Some(&first) = payload.first() else { return malformed("an empty packet") };
        match self.state {
            State::Head => self.accept_head(first, payload),
            State::Columns(left) => {
                if first == 0xff {
                    return self.fail(payload);
                }
                self.column_seen(left);
                Ok(Event::Column)
            }
            State::ColumnsEnd => match first {
                0xfe if payload.len() < 9 => {
                    self.state = State::Rows;
                    Ok(Event::Nothing)
                }
                0xff => self.fail(payload),
                _ => misplaced(first),
            },
            State::Rows => {
                if self.is_row(first, payload.len()) {
                    self.current.rows += 1;
                    return Ok(Event::Row);
                }
                if first == 0xff {
                    return self.fail(payload);
                }
                self.accept_rows_end(payload)
            }
            State::Finished => malformed("a packet after the end of an answer"),
        }
    }

    #[inline]
    fn accept_head(&mut self, first: u8, payload: &[u8]) -> Result<Event, Error> {
        match first {
            0x00 => {
                let ok = parse_ok(payload)?;
                self.current.affected_rows = ok.affected_rows;
                self.current.last_insert_id = ok.last_insert_id;
                Ok(self.end_statement(ok.status, ok.warnings))
            }
            0xff => self.fail(payload),
            0xfb => Ok(Event::LocalFile),
            _ => {
                let mut reader = Reader::new(payload);
                let columns = reader.lenenc()?;
                if columns == 0 || columns > COLUMNS_MAX as u64 {
                    return too_many_columns(columns);
                }
                let columns = columns as u32;
                let has_definitions = !self.dialect.cache_metadata || reader.u8()? != 0;
                self.current.has_result_set = true;
                self.state = match (has_definitions, self.dialect.deprecate_eof) {
                    (true, _) => State::Columns(columns),
                    (false, true) => State::Rows,
                    (false, false) => State::ColumnsEnd,
                };
                Ok(Event::Head { columns, has_definitions })
            }
        }
    }

    #[inline]
    fn column_seen(&mut self, left: u32) {
        self.state = match left {
            0 | 1 if self.dialect.deprecate_eof => State::Rows,
            0 | 1 => State::ColumnsEnd,
            _ => State::Columns(left - 1),
        };
    }

    #[inline]
    fn accept_rows_end(&mut self, payload: &[u8]) -> Result<Event, Error> {
        let (status, warnings) = if self.dialect.deprecate_eof {
            let ok = parse_ok(payload)?;
            (ok.status, ok.warnings)
        } else {
            let mut reader = Reader::new(payload);
            reader.u8()?;
            let warnings = reader.u16()?;
            (reader.u16()?, warnings)
        };
        Ok(self.end_statement(status, warnings))
    }

    #[inline]
    fn end_statement(&mut self, status: u16, warnings: u16) -> Event {
        self.current.warnings = warnings;
        let ended = std::mem::take(&mut self.current);
        self.total.affected_rows = self.total.affected_rows.saturating_add(ended.affected_rows);
        self.total.rows += ended.rows;
        self.total.has_result_set |= ended.has_result_set;
        if self.total.last_insert_id == 0 {
            self.total.last_insert_id = ended.last_insert_id;
        }
        self.total.warnings = ended.warnings;
        self.state = if status & STATUS_MORE_RESULTS != 0 { State::Head } else { State::Finished };
        Event::StatementEnd(ended)
    }

    #[cold]
    fn fail(&mut self, payload: &[u8]) -> Result<Event, Error> {
        self.state = State::Finished;
        Err(server_error(payload))
    }

    /// A text row begins with a length or NULL (0xfb), a binary one with 0x00. 0xfe as a length means a value of
    /// 16 MiB and more, which fills the first frame; a shorter packet is the end.
    #[inline]
    fn is_row(&self, first: u8, len: usize) -> bool {
        match first {
            0xff => false,
            0xfe => len >= FRAME_BYTES_MAX || (!self.dialect.deprecate_eof && len >= 9),
            _ => true,
        }
    }

    /// Goes over `bytes` without looking at rows and column definitions. Returns how many bytes are used up and
    /// why it stopped: [`Event::LocalFile`]; [`Event::Head`] as [`Answer::keeping_definitions`] says;
    /// [`Event::StatementEnd`] when everything is over; [`Event::Nothing`] when more bytes are needed.
    #[inline]
    pub fn skip(&mut self, bytes: &[u8]) -> (usize, Result<Event, Error>) {
        let mut at = 0;
        loop {
            // The rest of a frame that nobody looks at.
            let passed = self.skip_bytes.min(bytes.len() - at);
            self.skip_bytes -= passed;
            at += passed;
            let Some(header) = header(&bytes[at..]) else { return (at, Ok(Event::Nothing)) };
            if let Err(error) = check_sequence(header, self.sequence) {
                return (at, Err(error));
            }
            let is_passed_over = match bytes.get(at + HEADER_BYTES) {
                _ if self.is_continued => true,
                _ if header.len == 0 => return (at, malformed("an empty packet")),
                None => return (at, Ok(Event::Nothing)),
                Some(&first) => self.passes_over(first, header.len),
            };
            if is_passed_over {
                self.sequence = self.sequence.wrapping_add(1);
                self.skip_bytes = header.len;
                self.is_continued = header.len == FRAME_BYTES_MAX;
                at += HEADER_BYTES;
                continue;
            }
            if header.len > CONTROL_BYTES_MAX {
                return (at, too_long(header.len));
            }
            let start = at + HEADER_BYTES;
            let Some(payload) = bytes.get(start..start + header.len) else { return (at, Ok(Event::Nothing)) };
            self.sequence = self.sequence.wrapping_add(1);
            at = start + header.len;
            match self.accept(payload) {
                Ok(Event::LocalFile) => return (at, Ok(Event::LocalFile)),
                Ok(event @ Event::Head { has_definitions: true, .. }) if self.keeps_definitions => {
                    return (at, Ok(event));
                }
                Ok(event @ Event::StatementEnd(_)) if self.is_finished() => return (at, Ok(event)),
                Ok(_) => {}
                Err(error) => return (at, Err(error)),
            }
        }
    }

    /// Whether a packet is a row or a column definition, which then counts as seen.
    #[inline]
    fn passes_over(&mut self, first: u8, len: usize) -> bool {
        match self.state {
            State::Rows if self.is_row(first, len) => {
                self.current.rows += 1;
                true
            }
            State::Columns(left) if first != 0xff => {
                self.column_seen(left);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::{header_bytes, push_lenenc_bytes};
    use super::*;
    use proptest::prelude::*;

    /// Frames the payloads one after the other, from sequence number 1.
    fn wire(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            out.extend_from_slice(&header_bytes(payload.len(), i as u8 + 1));
            out.extend_from_slice(payload);
        }
        out
    }

    fn column(name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for text in ["def", "", "t", "t", name, name] {
            push_lenenc_bytes(&mut out, text.as_bytes());
        }
        out.extend_from_slice(&[0x0c, 45, 0, 255, 0, 0, 0, 253, 0, 0, 0, 0, 0]);
        out
    }

    const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
    const EOF_MORE: &[u8] = &[0xfe, 0, 0, 10, 0];
    const OK_AS_EOF: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
    const OK_3_ROWS: &[u8] = &[0x00, 3, 9, 2, 0, 1, 0];

    fn form(deprecate_eof: bool) -> Dialect {
        Dialect { deprecate_eof, cache_metadata: false }
    }

    fn skip_all(deprecate_eof: bool, bytes: &[u8]) -> Result<Done, Error> {
        let mut answer = Answer::new(form(deprecate_eof), 1);
        let (used, outcome) = answer.skip(bytes);
        outcome?;
        assert!(answer.is_finished());
        assert_eq!(used, bytes.len());
        Ok(answer.done())
    }

    #[test]
    fn an_update() {
        let done = skip_all(true, &wire(&[OK_3_ROWS])).unwrap();
        assert_eq!(
            done,
            Done { affected_rows: 3, rows: 0, has_result_set: false, last_insert_id: 9, warnings: 1 }
        );
    }

    #[test]
    fn a_result_set_both_ways() {
        let (a, b) = (column("a"), column("b"));
        let row = b"\x011\xfb";
        let old = wire(&[&[2], &a, &b, EOF, row, row, row, EOF]);
        let new = wire(&[&[2], &a, &b, row, row, row, OK_AS_EOF]);
        for (deprecate_eof, bytes) in [(false, old), (true, new)] {
            let done = skip_all(deprecate_eof, &bytes).unwrap();
            assert_eq!((done.rows, done.has_result_set), (3, true));
        }
    }

    #[test]
    fn an_empty_text_value_is_a_row_and_not_the_end() {
        let a = column("a");
        // A row that is one empty string is a single NUL byte; one that begins with 0xfe is too long to be an EOF.
        let done = skip_all(false, &wire(&[&[1], &a, EOF, b"\x00", EOF])).unwrap();
        assert_eq!(done.rows, 1);
    }

    #[test]
    fn definitions_that_have_not_changed_are_left_out() {
        let a = column("a");
        let dialect = Dialect { deprecate_eof: true, cache_metadata: true };
        let mut answer = Answer::new(dialect, 1);
        let bytes = wire(&[&[1, 0], b"\x00\x00\x011", OK_AS_EOF]);
        let (used, event) = answer.skip(&bytes);
        assert!(matches!(event, Ok(Event::StatementEnd(done)) if done.rows == 1));
        assert_eq!(used, bytes.len());
        let mut answer = Answer::new(dialect, 1).keeping_definitions();
        let bytes = wire(&[&[1, 1], &a, b"\x00\x00\x011", OK_AS_EOF]);
        let (used, event) = answer.skip(&bytes);
        assert_eq!(event.unwrap(), Event::Head { columns: 1, has_definitions: true });
        assert_eq!(used, 6, "stops where the definitions begin");
        let (_, event) = answer.skip(&bytes[used..]);
        assert!(matches!(event, Ok(Event::StatementEnd(_))));
    }

    #[test]
    fn several_results_are_summed() {
        let a = column("a");
        let bytes = wire(&[
            &[1],
            &a,
            EOF,
            b"\x011",
            EOF_MORE,
            &[0x00, 3, 9, 10, 0, 1, 0],
            &[1],
            &a,
            EOF,
            b"\x011",
            b"\x012",
            EOF,
        ]);
        let done = skip_all(false, &bytes).unwrap();
        assert_eq!((done.rows, done.affected_rows, done.last_insert_id), (3, 3, 9));
    }

    #[test]
    fn errors_are_the_servers_and_end_the_answer() {
        let a = column("a");
        let error = b"\xff\xbd\x04#40001Deadlock found";
        for bytes in [wire(&[error]), wire(&[&[1], &a, EOF, b"\x011", error])] {
            let Err(Error::Server(error)) = skip_all(false, &bytes) else { panic!() };
            assert_eq!((error.number, error.state(), error.text.as_str()), (1213, "40001", "Deadlock found"));
        }
    }

    #[test]
    fn a_huge_row_is_skipped_frame_by_frame() {
        let a = column("a");
        let mut bytes = wire(&[&[1], &a, EOF]);
        let mut push = |sequence, payload: &[u8]| {
            bytes.extend_from_slice(&header_bytes(payload.len(), sequence));
            bytes.extend_from_slice(payload);
        };
        let mut frame = vec![b'x'; FRAME_BYTES_MAX];
        frame[0] = 0xfe;
        push(4, &frame);
        push(5, b"");
        push(6, b"\x011");
        push(7, EOF);
        let mut answer = Answer::new(form(false), 1);
        // In pieces, as a socket gives them.
        let mut pending: Vec<u8> = Vec::new();
        for chunk in bytes.chunks(4000) {
            pending.extend_from_slice(chunk);
            let (used, outcome) = answer.skip(&pending);
            outcome.unwrap();
            pending.drain(..used);
            assert!(pending.len() < 64, "nothing of the row is kept");
        }
        assert!(answer.is_finished());
        assert_eq!(answer.done().rows, 2);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let a = column("a");
        let mut swapped = wire(&[OK_3_ROWS]);
        swapped[3] = 2;
        for bytes in [
            swapped,
            wire(&[b""]),
            wire(&[&[0xfe, 1, 2, 3, 4, 5, 6, 7, 8]]),
            wire(&[&[1], &a, b"\x011"]),
            wire(&[&[0x00, 3]]),
        ] {
            let mut answer = Answer::new(form(false), 1);
            assert!(matches!(answer.skip(&bytes).1, Err(Error::Protocol(_))), "{bytes:?}");
        }
    }

    proptest! {
        /// Any way of cutting a valid answer into reads gives the same outcome.
        #[test]
        fn cuts_do_not_matter(cuts in proptest::collection::vec(1usize..30, 1..40), deprecate_eof: bool) {
            let a = column("a");
            let end = if deprecate_eof { OK_AS_EOF } else { EOF };
            let mut payloads: Vec<&[u8]> = vec![&[1], &a];
            if !deprecate_eof { payloads.push(EOF); }
            payloads.extend([b"\x011".as_slice(), b"\xfb", b"\x05hello", end]);
            let bytes = wire(&payloads);
            let mut answer = Answer::new(form(deprecate_eof), 1);
            let (mut buffer, mut given) = (Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (given + cut).min(bytes.len());
                buffer.extend_from_slice(&bytes[given..end]);
                given = end;
                let (used, outcome) = answer.skip(&buffer);
                prop_assert!(outcome.is_ok());
                buffer.drain(..used);
                if given == bytes.len() { break; }
            }
            prop_assert!(answer.is_finished() && buffer.is_empty());
            prop_assert_eq!(answer.done().rows, 3);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), deprecate_eof: bool, cache_metadata: bool) {
            let mut answer = Answer::new(Dialect { deprecate_eof, cache_metadata }, bytes.get(3).copied().unwrap_or(0));
            let (used, _) = answer.skip(&bytes);
            prop_assert!(used <= bytes.len());
        }

        #[test]
        fn damaged_answers_are_no_panic(at in 0usize..80, to: u8, cut in 0usize..80) {
            let a = column("a");
            let mut bytes = wire(&[&[1], &a, EOF, b"\x011", EOF_MORE, OK_3_ROWS]);
            if let Some(byte) = bytes.get_mut(at) { *byte = to; }
            bytes.truncate(cut);
            let _ = Answer::new(form(false), 1).skip(&bytes);
        }
    }
}
