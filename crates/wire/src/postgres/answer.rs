//! What comes back for one request, up to ReadyForQuery: a state machine fed with whatever has arrived
//! (PostgreSQL documentation, "Message Flow").

use super::framing::{Cursor, Header, malformed};
use super::row::{parse_columns, parse_row};
use crate::limits::{self, Budget, ERROR_TEXT_BYTES_MAX, ROW_BYTES_MAX};
use crate::value::{Cell, Done, ResultSet, Row};
use crate::{Error, ServerError};

/// Whether the session is inside a transaction, as ReadyForQuery tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Outside.
    Idle,
    /// Inside.
    Open,
    /// Inside one that has failed: only ROLLBACK is accepted.
    Failed,
}

/// What was asked, which decides what may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Query.
    Query,
    /// Bind, Execute, Sync. Whether the statement returns rows is known since it was prepared.
    Execute {
        /// It does.
        has_result_set: bool,
    },
    /// Parse, Describe, Sync.
    Prepare,
    /// Close, Sync.
    Close,
    /// Sync alone.
    Sync,
    /// Up to one Sync of a pipeline: any number of Bind, Describe and Execute, with or without Parse before them. The
    /// answer of the next Sync is fed to the same [`Answer`], its error taken out before.
    Pipeline,
}

/// Where the rows go.
pub(super) enum Rows<'a> {
    /// Nowhere: they are skipped by length.
    Skip,
    /// To a function.
    Each(&'a mut dyn FnMut(&Row<'_>)),
    /// Into memory, with their column names.
    Keep(&'a mut Vec<ResultSet>),
}

/// What the connection has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Read more.
    Read,
    /// The server wants the data of a COPY FROM STDIN.
    CopyIn,
    /// The answer is complete and the server is ready for the next request.
    Ready(TransactionStatus),
}

/// The answer to one request as far as it has come.
#[derive(Debug)]
pub(super) struct Answer {
    request: Request,
    /// Rows may come.
    in_result: bool,
    in_copy_out: bool,
    /// BindComplete, ParseComplete or CloseComplete was seen.
    is_acknowledged: bool,
    /// Something that ends a request was seen.
    is_ended: bool,
    budget: Budget,
    /// Bytes of the present message still to be thrown away when they arrive.
    skip: usize,
    /// Of all statements so far.
    pub(super) done: Done,
    /// Parameters of the statement that is being prepared.
    pub(super) params: u16,
    /// The first error.
    pub(super) error: Option<Box<ServerError>>,
}

impl Answer {
    /// Nothing has come yet.
    #[inline]
    pub(super) fn new(request: Request) -> Answer {
        Answer {
            request,
            in_result: false,
            in_copy_out: false,
            is_acknowledged: false,
            is_ended: false,
            budget: Budget::default(),
            skip: 0,
            done: Done::default(),
            params: 0,
            error: None,
        }
    }

    /// What a complete answer comes to.
    ///
    /// # Errors
    /// The server's.
    #[inline]
    pub(super) fn end(&mut self) -> Result<Done, Error> {
        match self.error.take() {
            Some(error) => Err(Error::Server(*error)),
            None => Ok(self.done),
        }
    }

    /// Whether a Sync ends the request, and after an error another one must.
    pub(super) fn is_extended(&self) -> bool {
        self.request != Request::Query
    }

    /// Consumes from `bytes` what can be used; returns how much that was and what to do next. What is left over
    /// belongs in front of the next bytes. `cells` is scratch space for one row.
    ///
    /// # Errors
    /// [`Error::Protocol`] for anything that may not come here; the connection is then lost. An error of the
    /// server is not one: it stands in [`Answer::error`].
    #[inline]
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        rows: &mut Rows<'_>,
        cells: &mut Vec<Option<Cell>>,
    ) -> Result<(usize, Progress), Error> {
        let mut cursor = Cursor::new(bytes);
        self.skip = cursor.advance(self.skip);
        while let Some(header) = cursor.header()? {
            match header.tag {
                b'D' if self.in_result => {
                    if let Rows::Skip = rows {
                        self.skip = cursor.skip(header);
                    } else if !self.take_row(&mut cursor, header, rows, cells)? {
                        break;
                    }
                    self.done.rows += 1;
                }
                b'2' | b'1' | b'3' if !self.is_acknowledged && self.error.is_none() => {
                    self.acknowledge(header)?;
                    self.skip = cursor.skip(header);
                }
                b'C' if self.expects_completion() => {
                    let Some(body) = cursor.take(header) else { break };
                    self.complete(body, rows)?;
                }
                b'Z' => {
                    let Some(body) = cursor.take(header) else { break };
                    let status = transaction_status(body)?;
                    self.check_end()?;
                    return Ok((cursor.consumed(), Progress::Ready(status)));
                }
                // At any time: a notice, a changed parameter, a notification.
                b'N' | b'S' | b'A' => self.skip = cursor.skip(header),
                _ => match self.rare(&mut cursor, header, rows)? {
                    None => break,
                    Some(Progress::Read) => {}
                    Some(progress) => return Ok((cursor.consumed(), progress)),
                },
            }
        }
        Ok((cursor.consumed(), Progress::Read))
    }

    /// A row that somebody looks at, out of the way of those that are skipped. False: not all of it is there.
    #[inline(never)]
    fn take_row(
        &mut self,
        cursor: &mut Cursor<'_>,
        header: Header,
        rows: &mut Rows<'_>,
        cells: &mut Vec<Option<Cell>>,
    ) -> Result<bool, Error> {
        if header.body_bytes > ROW_BYTES_MAX {
            return Err(Error::Protocol(format!(
                "a row of {} bytes, where {ROW_BYTES_MAX} are allowed",
                header.body_bytes
            )));
        }
        let Some(body) = cursor.take(header) else { return Ok(false) };
        parse_row(body, cells)?;
        self.show_row(&Row::new(body, cells), rows)?;
        Ok(true)
    }

    /// What does not occur in the answer to a running workload's statement. `None`: not all of it is there.
    #[cold]
    fn rare(
        &mut self,
        cursor: &mut Cursor<'_>,
        header: Header,
        rows: &mut Rows<'_>,
    ) -> Result<Option<Progress>, Error> {
        let is_query = self.request == Request::Query;
        let is_prepare = self.request == Request::Prepare && self.is_acknowledged;
        let is_bound = self.request == Request::Pipeline && self.is_acknowledged;
        match header.tag {
            b'E' => {
                let Some(body) = cursor.take(header) else { return Ok(None) };
                let error = parse_error(body);
                self.in_result = false;
                self.in_copy_out = false;
                self.is_ended = true;
                if self.request == Request::Pipeline {
                    // What follows up to the Sync is left out by the server.
                    self.is_acknowledged = false;
                }
                self.error.get_or_insert(Box::new(error));
            }
            b'T' if (is_query || is_bound) && !self.in_result || is_prepare => {
                let Some(body) = cursor.take(header) else { return Ok(None) };
                self.done.has_result_set = true;
                self.in_result = !is_prepare;
                self.is_ended = is_prepare;
                if let Rows::Keep(sets) = rows {
                    let columns = parse_columns(body)?;
                    let names =
                        columns.iter().map(|name| name.len() + 2 * size_of::<String>()).sum::<usize>();
                    self.keep(names + 2 * size_of::<ResultSet>())?;
                    let done = Done { has_result_set: true, ..Done::default() };
                    sets.push(ResultSet { columns, rows: Vec::new(), done });
                }
            }
            b't' if is_prepare => {
                let Some(body) = cursor.take(header) else { return Ok(None) };
                let count = body.first_chunk().ok_or_else(|| malformed("ParameterDescription"))?;
                self.params = u16::from_be_bytes(*count);
            }
            b'n' if is_prepare => {
                self.skip = cursor.skip(header);
                self.is_ended = true;
            }
            b'n' if is_bound && !self.in_result => self.skip = cursor.skip(header),
            b'I' if self.expects_completion() => {
                self.skip = cursor.skip(header);
                self.in_result = false;
                self.end_statement();
                if let Rows::Keep(sets) = rows {
                    self.keep(2 * size_of::<ResultSet>())?;
                    sets.push(ResultSet::default());
                }
            }
            b'G' if self.expects_completion() && !self.in_result => {
                self.skip = cursor.skip(header);
                return Ok(Some(Progress::CopyIn));
            }
            b'H' if self.expects_completion() && !self.in_result => {
                self.skip = cursor.skip(header);
                self.in_copy_out = true;
                self.done.has_result_set = true;
            }
            b'd' if self.in_copy_out => {
                self.skip = cursor.skip(header);
                self.done.rows += 1;
            }
            b'c' if self.in_copy_out => self.skip = cursor.skip(header),
            tag => {
                return Err(Error::Protocol(format!(
                    "message {} of {} bytes may not come in answer to {:?}",
                    tag.escape_ascii(),
                    header.body_bytes,
                    self.request
                )));
            }
        }
        Ok(Some(Progress::Read))
    }

    #[inline]
    fn acknowledge(&mut self, header: Header) -> Result<(), Error> {
        match (self.request, header.tag) {
            (Request::Execute { has_result_set }, b'2') => {
                self.in_result = has_result_set;
                self.done.has_result_set = has_result_set;
            }
            (Request::Prepare, b'1') | (Request::Pipeline, b'2') => {}
            // BindComplete is what follows.
            (Request::Pipeline, b'1') => return Ok(()),
            (Request::Close, b'3') => self.is_ended = true,
            (request, tag) => return Err(uncalled_for(request, tag)),
        }
        self.is_acknowledged = true;
        Ok(())
    }

    #[inline]
    fn expects_completion(&self) -> bool {
        match self.request {
            Request::Query => self.error.is_none(),
            Request::Execute { .. } => self.is_acknowledged && !self.is_ended,
            Request::Pipeline => self.is_acknowledged,
            _ => false,
        }
    }

    #[inline]
    fn check_end(&self) -> Result<(), Error> {
        let is_complete = match self.request {
            Request::Sync => true,
            Request::Pipeline => !self.is_acknowledged,
            _ => self.is_ended && !self.in_result,
        };
        if is_complete { Ok(()) } else { Err(incomplete(self.request)) }
    }

    #[inline]
    fn end_statement(&mut self) {
        self.is_ended = true;
        if self.request == Request::Pipeline {
            self.is_acknowledged = false;
        }
    }

    /// What is kept has room for `bytes` more. Once it has not, the session is over: the server would go on sending.
    fn keep(&mut self, bytes: usize) -> Result<(), Error> {
        self.budget.take(bytes).map_err(|error| Error::Protocol(error.to_string()))
    }

    fn show_row(&mut self, row: &Row<'_>, rows: &mut Rows<'_>) -> Result<(), Error> {
        match rows {
            Rows::Skip => {}
            Rows::Each(on_row) => on_row(row),
            Rows::Keep(sets) => {
                let kept = row.to_owned_row();
                self.keep(limits::kept_bytes(&kept))?;
                if let Some(set) = sets.last_mut() {
                    set.rows.push(kept);
                    set.done.rows += 1;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, body: &[u8], rows: &mut Rows<'_>) -> Result<(), Error> {
        let affected = affected_rows(body, self.in_result || self.in_copy_out);
        self.done.affected_rows = self.done.affected_rows.saturating_add(affected);
        if let Rows::Keep(sets) = rows {
            if !self.in_result {
                self.keep(2 * size_of::<ResultSet>())?;
                sets.push(ResultSet::default());
            }
            if let Some(set) = sets.last_mut() {
                set.done.affected_rows = affected;
            }
        }
        self.in_result = false;
        self.in_copy_out = false;
        self.end_statement();
        Ok(())
    }
}

#[cold]
fn uncalled_for(request: Request, tag: u8) -> Error {
    Error::Protocol(format!("message {} may not come in answer to {request:?}", tag.escape_ascii()))
}

#[cold]
fn incomplete(request: Request) -> Error {
    Error::Protocol(format!("the answer to {request:?} ended before it was complete"))
}

#[inline]
fn transaction_status(body: &[u8]) -> Result<TransactionStatus, Error> {
    match body {
        b"I" => Ok(TransactionStatus::Idle),
        b"T" => Ok(TransactionStatus::Open),
        b"E" => Ok(TransactionStatus::Failed),
        _ => Err(malformed("ReadyForQuery")),
    }
}

/// The row count of a command tag (`UPDATE 3`, `INSERT 0 1`), 0 where the command changes no rows.
/// `SELECT 5` without a result set is a CREATE TABLE AS.
#[inline]
fn affected_rows(body: &[u8], has_rows: bool) -> u64 {
    let tag = body.strip_suffix(b"\0").unwrap_or(body);
    let is_write = match tag.first() {
        Some(b'U') => tag.starts_with(b"UPDATE "),
        Some(b'I') => tag.starts_with(b"INSERT "),
        Some(b'D') => tag.starts_with(b"DELETE "),
        Some(b'M') => tag.starts_with(b"MERGE "),
        Some(b'C') => tag.starts_with(b"COPY ") && !has_rows,
        Some(b'S') => tag.starts_with(b"SELECT ") && !has_rows,
        _ => false,
    };
    if !is_write {
        return 0;
    }
    let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    tag[tag.len() - digits..]
        .iter()
        .fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// Takes what is needed out of an ErrorResponse; a mangled one is still an error of the server.
pub(super) fn parse_error(body: &[u8]) -> ServerError {
    let mut error = ServerError { number: 0, sqlstate: *b"HY000", text: String::new() };
    for field in body.split(|&byte| byte == 0) {
        match field.split_first() {
            Some((b'C', code)) => {
                if let Ok(code) = <[u8; 5]>::try_from(code) {
                    error.sqlstate = crate::error::sqlstate(code);
                }
            }
            Some((b'M', text)) => error.text = limits::text(text, ERROR_TEXT_BYTES_MAX),
            _ => {}
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.extend_from_slice(&(-1i32).to_be_bytes()),
                Some(value) => {
                    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
                    body.extend_from_slice(value);
                }
            }
        }
        message(b'D', &body)
    }

    fn columns(names: &[&str]) -> Vec<u8> {
        let mut body = (names.len() as u16).to_be_bytes().to_vec();
        for name in names {
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&[0; 19]);
        }
        message(b'T', &body)
    }

    const EXECUTE: Request = Request::Execute { has_result_set: true };
    const UPDATE: Request = Request::Execute { has_result_set: false };

    /// Feeds `stream` in pieces of `piece` bytes; the answer and where it ended.
    fn run(
        request: Request,
        stream: &[u8],
        piece: usize,
        mut rows: Rows<'_>,
    ) -> Result<(Answer, Progress), Error> {
        let mut answer = Answer::new(request);
        let mut cells = Vec::new();
        let mut unread = Vec::new();
        for bytes in stream.chunks(piece) {
            unread.extend_from_slice(bytes);
            let (consumed, progress) = answer.feed(&unread, &mut rows, &mut cells)?;
            unread.drain(..consumed);
            if progress != Progress::Read {
                return Ok((answer, progress));
            }
        }
        Ok((answer, Progress::Read))
    }

    fn refused(request: Request, stream: &[Vec<u8>]) -> bool {
        let whole = run(request, &stream.concat(), 1 << 20, Rows::Skip);
        let bytewise = run(request, &stream.concat(), 1, Rows::Skip);
        assert_eq!(whole.is_err(), bytewise.is_err(), "the cut must not matter");
        matches!(whole, Err(Error::Protocol(_)))
    }

    #[test]
    fn an_executed_select() {
        let stream = [
            message(b'2', b""),
            row(&[Some(b"abc"), None]),
            row(&[Some(b""), Some(b"d")]),
            message(b'C', b"SELECT 2\0"),
            message(b'Z', b"T"),
        ]
        .concat();
        for piece in [1, 2, 3, 7, 1000] {
            let (answer, progress) = run(EXECUTE, &stream, piece, Rows::Skip).unwrap();
            assert_eq!(progress, Progress::Ready(TransactionStatus::Open));
            assert_eq!(answer.done, Done { rows: 2, has_result_set: true, ..Done::default() });

            let mut seen = Vec::new();
            let mut on_row = |row: &Row<'_>| seen.push(row.to_owned_row());
            run(EXECUTE, &stream, piece, Rows::Each(&mut on_row)).unwrap();
            let text = |text: &[u8]| Some(text.to_vec());
            assert_eq!(seen, [vec![text(b"abc"), None], vec![text(b""), text(b"d")]]);
        }
    }

    #[test]
    fn several_statements_are_summed_and_kept_apart() {
        let stream = [
            message(b'C', b"INSERT 0 3\0"),
            columns(&["a", "b"]),
            row(&[Some(b"1"), None]),
            message(b'N', b"SNOTICE\0\0"),
            message(b'C', b"SELECT 1\0"),
            message(b'I', b""),
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'C', b"UPDATE 2\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        let mut sets = Vec::new();
        let (answer, _) = run(Request::Query, &stream, 5, Rows::Keep(&mut sets)).unwrap();
        assert_eq!((answer.done.affected_rows, answer.done.rows), (5, 1));
        assert!(answer.done.has_result_set);
        assert_eq!(sets.len(), 4);
        assert_eq!(sets[0].done.affected_rows, 3);
        assert_eq!(sets[1].columns, ["a", "b"]);
        assert_eq!(sets[1].rows, [vec![Some(b"1".to_vec()), None]]);
        assert_eq!((sets[1].done.rows, sets[1].done.affected_rows), (1, 0));
        assert_eq!(sets[2], ResultSet::default());
        assert_eq!(sets[3].done.affected_rows, 2);
    }

    #[test]
    fn command_tags() {
        for (tag, has_rows, affected) in [
            ("INSERT 0 5", false, 5),
            ("UPDATE 0", false, 0),
            ("DELETE 12", false, 12),
            ("MERGE 7", false, 7),
            ("COPY 1000000", false, 1_000_000),
            ("SELECT 4", true, 0),
            ("SELECT 4", false, 4),
            ("MOVE 3", false, 0),
            ("BEGIN", false, 0),
            ("COMMIT", false, 0),
            ("DROP TABLE", false, 0),
            ("UPDATE ", false, 0),
            ("UPDATE 99999999999999999999999", false, u64::MAX),
            ("", false, 0),
        ] {
            let mut body = tag.as_bytes().to_vec();
            body.push(0);
            assert_eq!(affected_rows(&body, has_rows), affected, "{tag}");
        }
    }

    #[test]
    fn an_error_is_kept_until_the_server_is_ready() {
        let stream = [
            message(b'2', b""),
            message(b'E', b"SERROR\0VERROR\0C40P01\0Mdeadlock detected\0\0"),
            message(b'Z', b"E"),
        ]
        .concat();
        let (answer, progress) = run(UPDATE, &stream, 3, Rows::Skip).unwrap();
        assert_eq!(progress, Progress::Ready(TransactionStatus::Failed));
        let error = answer.error.unwrap();
        assert_eq!((error.code().as_str(), error.text.as_str()), ("40P01", "deadlock detected"));
    }

    #[test]
    fn what_is_out_of_order_is_refused() {
        let done = || message(b'C', b"SELECT 1\0");
        let ready = || message(b'Z', b"I");
        assert!(refused(EXECUTE, &[row(&[None])]), "a row before BindComplete");
        assert!(refused(EXECUTE, &[message(b'1', b"")]), "ParseComplete for a Bind");
        assert!(refused(EXECUTE, &[message(b'2', b""), message(b'2', b"")]), "BindComplete twice");
        assert!(refused(EXECUTE, &[message(b'2', b""), done(), row(&[None])]), "a row after the end");
        assert!(refused(EXECUTE, &[message(b'2', b""), done(), done()]), "two ends");
        assert!(refused(EXECUTE, &[message(b'2', b""), ready()]), "ready without an end");
        assert!(refused(EXECUTE, &[ready()]), "ready without anything");
        assert!(refused(UPDATE, &[message(b'2', b""), row(&[None])]), "a row from an UPDATE");
        assert!(refused(Request::Query, &[row(&[None])]), "a row without a description");
        assert!(refused(Request::Query, &[columns(&["a"]), columns(&["a"])]), "two descriptions");
        assert!(refused(Request::Query, &[columns(&["a"]), ready()]), "a result without an end");
        assert!(refused(Request::Query, &[message(b'W', b"")]), "replication");
        assert!(refused(Request::Query, &[done(), message(b'Z', b"X")]), "an unknown status");
        assert!(refused(Request::Query, &[done(), message(b'Z', b"")]), "no status");
        assert!(refused(Request::Query, &[message(b'd', b"")]), "copied data without COPY");
        assert!(refused(Request::Query, &[message(b'R', b"\0\0\0\0")]), "log-in after log-in");
        assert!(refused(Request::Prepare, &[columns(&["a"])]), "a description before ParseComplete");
        assert!(refused(Request::Prepare, &[message(b'1', b""), ready()]), "no description");
        assert!(refused(Request::Close, &[ready()]));
        assert!(refused(Request::Sync, &[done()]));
    }

    #[test]
    fn a_pipeline_has_an_answer_up_to_each_sync() {
        let parsed = || message(b'1', b"");
        let bound = || message(b'2', b"");
        let stream = [
            parsed(),
            bound(),
            columns(&["a"]),
            row(&[Some(b"x")]),
            message(b'C', b"SELECT 1\0"),
            bound(),
            message(b'n', b""),
            message(b'C', b"UPDATE 3\0"),
            bound(),
            message(b'E', b"C40001\0Mserialize\0\0"),
            message(b'Z', b"E"),
        ]
        .concat();
        let second =
            [parsed(), bound(), message(b'n', b""), message(b'I', b""), message(b'Z', b"I")].concat();
        for piece in [1, 7, stream.len()] {
            let mut sets = Vec::new();
            let (mut answer, progress) =
                run(Request::Pipeline, &stream, piece, Rows::Keep(&mut sets)).unwrap();
            assert_eq!(progress, Progress::Ready(TransactionStatus::Failed));
            assert_eq!((answer.done.rows, answer.done.affected_rows, sets.len()), (1, 3, 2));
            assert_eq!((sets[0].columns.as_slice(), sets[0].text(0, 0)), (&["a".to_owned()][..], Some("x")));
            assert_eq!(answer.error.take().unwrap().state(), "40001");
            let mut rows = Rows::Keep(&mut sets);
            let (consumed, progress) = answer.feed(&second, &mut rows, &mut Vec::new()).unwrap();
            assert_eq!((consumed, progress), (second.len(), Progress::Ready(TransactionStatus::Idle)));
            assert_eq!(sets.len(), 3);
        }
        assert!(refused(Request::Pipeline, &[row(&[None])]), "a row of nothing");
        assert!(
            refused(Request::Pipeline, &[bound(), message(b'n', b""), row(&[None])]),
            "a row of no result"
        );
        assert!(refused(Request::Pipeline, &[bound(), message(b'Z', b"I")]), "a statement without an end");
        assert!(refused(Request::Pipeline, &[message(b'C', b"UPDATE 3\0")]), "an end of nothing");
        assert!(!refused(Request::Pipeline, &[message(b'Z', b"I")]), "a Sync of nothing");
    }

    #[test]
    fn a_result_that_is_being_kept_is_bounded() {
        let mut answer = Answer::new(Request::Query);
        answer.keep(limits::RESULT_BYTES_MAX - 100).unwrap();
        let mut sets = vec![ResultSet::default()];
        assert!(answer.show_row(&Row::new(b"", &[]), &mut Rows::Keep(&mut sets)).is_ok());
        assert!(answer.show_row(&Row::new(b"", &[None]), &mut Rows::Keep(&mut sets)).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            stream in prop::collection::vec(any::<u8>(), 0..2000), piece in 1usize..100, request in 0..6usize,
        ) {
            let all = [Request::Query, EXECUTE, UPDATE, Request::Prepare, Request::Close, Request::Pipeline];
            let request = all[request];
            let _ = run(request, &stream, piece, Rows::Skip);
            let _ = run(request, &stream, piece, Rows::Each(&mut |row| { row.to_owned_row(); }));
            let _ = run(request, &stream, piece, Rows::Keep(&mut Vec::new()));
            parse_error(&stream);
        }

        #[test]
        fn plausible_messages_never_panic(
            messages in prop::collection::vec(
                (prop::sample::select(b"12345ACDEGHINSTWZcdnst".to_vec()), prop::collection::vec(any::<u8>(), 0..40)),
                0..20,
            ),
            piece in 1usize..50,
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
            let extended = [Request::Prepare, Request::Close, Request::Sync, Request::Pipeline];
            for request in [Request::Query, EXECUTE, UPDATE].into_iter().chain(extended) {
                let _ = run(request, &stream, piece, Rows::Keep(&mut Vec::new()));
                let _ = run(request, &stream, piece, Rows::Skip);
            }
        }

        #[test]
        fn rows_come_back_as_they_were_sent(
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..50)), 0..20),
            piece in 1usize..60,
        ) {
            let sent: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let stream = [message(b'2', b""), row(&sent)].concat();
            let mut seen = Vec::new();
            run(EXECUTE, &stream, piece, Rows::Each(&mut |row| seen.push(row.to_owned_row()))).unwrap();
            prop_assert_eq!(seen, vec![values]);
        }
    }
}
