//! A session with a MySQL server, over the codecs next to it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::auth::{LoginProcess, Step};
use super::bulk::{BulkRows, push_head, push_rows};
use super::handshake::{Greeting, LogIn, capability, push_log_in, push_tls_request};
use super::packet::{HEADER_BYTES, Whole, begin, finish, header, join, malformed};
use super::plain::{self, Due};
use super::reading::{BinaryRows, Definitions, Reading, Sets, TextRows};
use super::response::{Answer, Dialect, Event, server_error};
use super::row::Column;
use super::statement::Statement;
use crate::cancel::Abandoned;
use crate::channel::{Channel, Scratch};
use crate::error::Error;
use crate::limits::{COLUMNS_MAX, CONTROL_BYTES_MAX, LOGIN_BYTES_MAX, ROW_BYTES_MAX};
use crate::target::{Target, TlsMode};
use crate::transport::Transport;
use crate::value::{Cell, Done, ParamType, ResultSet, Row, ServerInfo, Value};

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_CLOSE: u8 = 0x19;

/// Rows that are streamed to the server go out in packets of about this size.
const LOAD_PACKET_BYTES: usize = 256 * 1024;
/// Good-bye is not waited for any longer.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A session with a MySQL server. The methods are documented at [`crate::Connection`].
#[derive(Debug)]
pub struct Connection<T: Transport> {
    channel: Channel<T>,
    server: ServerInfo,
    dialect: Dialect,
    has_bulk: bool,
    statement_timeout: Duration,
    /// An answer is being read. Still set when the next command comes if a caller dropped the future half-way or
    /// an error left the stream in the middle of a packet.
    is_busy: bool,
    /// Which answer a statement that was started gets.
    due: Due,
    /// It may still turn out to be a plain one.
    may_be_plain: bool,
    /// As far as it has been read, once it has turned out not to be a plain one. Here and not in the futures, which would
    /// hand it from one to the next.
    answer: Option<Answer>,
    /// What the answer has turned out to be where that is not what a running workload's statement gets.
    surprise: Option<Event>,
    /// Reused by rows that somebody reads.
    cells: Vec<Option<Cell>>,
    text: Vec<u8>,
}

/// Appends a command; the sequence number that its answer begins with.
fn push_command(out: &mut Vec<u8>, command: u8, body: &[u8]) -> u8 {
    let start = begin(out);
    out.push(command);
    out.extend_from_slice(body);
    let mut sequence = 0;
    finish(out, start, &mut sequence);
    sequence
}

impl<T: Transport> Connection<T> {
    /// See [`crate::Connection::open`].
    pub async fn open(transport: T, target: &Target) -> Result<Self, Error> {
        let mut channel = Channel::new(transport);
        channel.arm(target.connect_timeout);
        let whole = read_packet(&mut channel, 0, LOGIN_BYTES_MAX).await?;
        let greeting = Greeting::parse(whole.payload(channel.unread()))?;
        channel.consume(whole.wire_len);
        let mut sequence = whole.next_sequence;

        let with_tls = wants_tls(target, &greeting, channel.is_private())?;
        let capabilities = greeting.shared_capabilities(target.database.is_some(), with_tls)
            | compression(target, &greeting)?;
        let collation = greeting.collation();
        if with_tls {
            let start = begin(&mut channel.output);
            push_tls_request(&mut channel.output, capabilities, collation);
            finish(&mut channel.output, start, &mut sequence);
            channel.flush().await?;
            channel.start_tls(target).await?;
        }

        let is_safe = with_tls || channel.is_private();
        let mut login =
            LoginProcess::new(&greeting.plugin, greeting.nonce, target.password.reveal(), is_safe);
        let (plugin, auth) = login.first_answer();
        let log_in = LogIn {
            capabilities,
            collation,
            user: target.user.as_bytes(),
            auth: &auth,
            database: target.database.as_deref().map(str::as_bytes),
            plugin,
        };
        let start = begin(&mut channel.output);
        push_log_in(&mut channel.output, &log_in)?;
        finish(&mut channel.output, start, &mut sequence);
        channel.flush().await?;
        log_in_to_the_end(&mut channel, &mut login, sequence).await?;
        if target.is_compressed {
            channel.start_compression()?;
        }

        let server = ServerInfo {
            version: greeting.version,
            connection_id: greeting.connection_id,
            tls: channel.tls(),
            has_channel_binding: false,
        };
        Ok(Connection {
            channel,
            server,
            dialect: Dialect {
                deprecate_eof: capabilities & capability::DEPRECATE_EOF != 0,
                cache_metadata: capabilities & capability::CACHE_METADATA != 0,
            },
            has_bulk: capabilities & capability::BULK_OPERATIONS != 0,
            statement_timeout: target.statement_timeout,
            is_busy: false,
            due: Due { sequence: 0, keeps_definitions: false },
            may_be_plain: false,
            answer: None,
            surprise: None,
            cells: Vec::new(),
            text: Vec::new(),
        })
    }

    /// See [`crate::Connection::server`].
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// See [`crate::Connection::start_query`].
    #[inline]
    pub(crate) fn start_query(&mut self, sql: &str) -> Result<(), Error> {
        self.begin()?;
        let mut request = Scratch::take();
        let sequence = push_command(&mut request, COM_QUERY, sql.as_bytes());
        self.post(&request, Due { sequence, keeps_definitions: false });
        Ok(())
    }

    /// See [`crate::Connection::query_rows`].
    pub async fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        let mut cells = std::mem::take(&mut self.cells);
        let sequence = self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let mut reading = TextRows { columns: 0, cells: &mut cells, on_row };
        let outcome = self.read_answer(Answer::new(self.dialect, sequence), &mut reading).await;
        self.cells = cells;
        self.settle(outcome)
    }

    /// See [`crate::Connection::query_sets`].
    pub async fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        let sequence = self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let mut reading = Sets::default();
        let outcome = self.read_answer(Answer::new(self.dialect, sequence), &mut reading).await;
        self.settle(outcome)?;
        Ok(reading.sets)
    }

    /// See [`crate::Connection::prepare`].
    pub async fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        let sequence = self.send_command(COM_STMT_PREPARE, sql.as_bytes()).await?;
        let outcome = self.read_prepared(sequence).await;
        let (id, expected, columns) = self.settle(outcome)?;
        let mut statement = Statement::new(id, params);
        statement.columns = columns;
        if usize::from(expected) != params.len() {
            self.close_statement(statement).await?;
            return Err(Error::Unsupported(format!(
                "the statement has {expected} placeholders and {} types were given: {sql}",
                params.len()
            )));
        }
        Ok(statement)
    }

    /// See [`crate::Connection::start`].
    #[inline(always)]
    pub(crate) fn start(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<(), Error> {
        self.begin()?;
        let mut request = Scratch::take();
        let sequence = statement.encode(values, &mut request)?;
        self.post(&request, Due { sequence, keeps_definitions: self.dialect.cache_metadata });
        Ok(())
    }

    /// See [`crate::Connection::poll_readable`].
    #[inline(always)]
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.channel.is_posted() { self.channel.poll_readable(cx) } else { Poll::Ready(()) }
    }

    /// See [`crate::Connection::poll_finish`].
    #[inline(always)]
    pub(crate) fn poll_finish(
        &mut self,
        statement: Option<&mut Statement>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Done, Error>>> {
        if self.may_be_plain {
            let (dialect, due) = (self.dialect, self.due);
            match ready!(self.channel.poll_whole(cx, |bytes| plain::read(bytes, dialect, due))) {
                Ok(Some(done)) => {
                    self.is_busy = false;
                    if let Some(statement) = statement {
                        statement.types_are_known();
                    }
                    return Poll::Ready(Some(Ok(done)));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        self.poll_by_packet(statement, cx)
    }

    /// An answer that is not a plain one.
    #[inline(never)]
    fn poll_by_packet(
        &mut self,
        statement: Option<&mut Statement>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Done, Error>>> {
        self.may_be_plain = false;
        if !self.channel.is_posted() || self.surprise.is_some() {
            return Poll::Ready(None);
        }
        let answer = self.answer.get_or_insert_with(|| answer_to(self.due, self.dialect));
        let outcome = match ready!(poll_skip(&mut self.channel, cx, answer)) {
            Ok(Event::StatementEnd(_)) => Ok(answer.done()),
            Ok(event) => {
                self.surprise = Some(event);
                return Poll::Ready(None);
            }
            Err(error) => Err(error),
        };
        if let (Ok(_), Some(statement)) = (&outcome, statement) {
            statement.types_are_known();
        }
        Poll::Ready(Some(self.settle(outcome)))
    }

    /// All other ends. `statement`: the prepared one that was started.
    pub(crate) async fn finish_slowly(
        &mut self,
        mut statement: Option<&mut Statement>,
    ) -> Result<Done, Error> {
        let answer = self.sent().await?;
        let event = self.surprise.take().unwrap_or(Event::Nothing);
        let definitions = statement.as_deref_mut().map(|statement| &mut statement.columns);
        let outcome = self.skip_the_rest(answer, event, definitions).await;
        let done = self.settle(outcome)?;
        if let Some(statement) = statement {
            statement.types_are_known();
        }
        Ok(done)
    }

    /// See [`crate::Connection::execute_rows`].
    pub async fn execute_rows(
        &mut self,
        statement: &mut Statement,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Error> {
        self.start(statement, values)?;
        let answer = self.sent().await?;
        let (mut cells, mut text) = (std::mem::take(&mut self.cells), std::mem::take(&mut self.text));
        let mut reading =
            BinaryRows { columns: &mut statement.columns, cells: &mut cells, text: &mut text, on_row };
        let outcome = self.read_answer(answer, &mut reading).await;
        (self.cells, self.text) = (cells, text);
        let done = self.settle(outcome)?;
        statement.types_are_known();
        Ok(done)
    }

    /// See [`crate::Connection::close_statement`]. The server does not answer.
    pub async fn close_statement(&mut self, statement: Statement) -> Result<(), Error> {
        self.send_command(COM_STMT_CLOSE, &statement.id().to_le_bytes()).await?;
        self.is_busy = false;
        Ok(())
    }

    /// See [`crate::Connection::load_rows`].
    pub async fn load_rows(
        &mut self,
        sql: &str,
        source: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Done, Error> {
        let sequence = self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let outcome = self.send_rows(sequence, source).await;
        self.settle(outcome)
    }

    /// See [`crate::Connection::has_bulk`].
    pub fn has_bulk(&self) -> bool {
        self.has_bulk
    }

    /// See [`crate::Connection::execute_bulk`].
    pub async fn execute_bulk(
        &mut self,
        statement: &Statement,
        source: &mut dyn FnMut(&mut BulkRows<'_>) -> bool,
    ) -> Result<Done, Error> {
        if !self.has_bulk || statement.params_len() == 0 {
            return Err(Error::Unsupported(
                "bulk execution needs MariaDB 10.2.7 or later, and a statement with placeholders".into(),
            ));
        }
        self.begin()?;
        self.is_busy = true;
        let outcome = self.send_bulk(statement, source).await;
        self.settle(outcome)
    }

    /// See [`crate::Connection::ping`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        let sequence = self.send_command(COM_PING, &[]).await?;
        let outcome = self.skip_answer(sequence).await;
        self.settle(outcome).map(|_| ())
    }

    /// See [`crate::Connection::close`].
    pub async fn close(mut self) {
        self.say_good_bye().await;
    }

    pub(crate) async fn say_good_bye(&mut self) {
        if self.is_busy {
            return;
        }
        self.statement_timeout = CLOSE_LIMIT;
        // The socket is closed right after; a server that is gone already need not hear it.
        let _ = self.send_command(COM_QUIT, &[]).await;
    }

    /// See [`crate::Connection::abandoned`].
    pub fn abandoned(&self) -> Option<Abandoned> {
        self.channel.has_timed_out().then(|| Abandoned::mysql(self.server.connection_id))
    }

    /// See [`crate::Connection::set_statement_timeout`].
    pub fn set_statement_timeout(&mut self, limit: Duration) {
        self.statement_timeout = limit;
    }

    /// Before each command: the last answer must be over, and nothing may have come since.
    #[inline(always)]
    fn begin(&mut self) -> Result<(), Error> {
        if self.is_busy || !self.channel.unread().is_empty() {
            return Err(self.unusable());
        }
        self.channel.arm(self.statement_timeout);
        Ok(())
    }

    #[cold]
    fn unusable(&self) -> Error {
        if self.is_busy {
            return Error::Io(io::Error::new(
                io::ErrorKind::NotConnected,
                "an earlier answer was given up half-way: open the connection anew",
            ));
        }
        unasked_packet(self.channel.unread())
    }

    /// The end of a command: after a success or a server's error the connection can go on.
    #[inline]
    fn settle<R>(&mut self, outcome: Result<R, Error>) -> Result<R, Error> {
        self.is_busy = matches!(&outcome, Err(error) if error.is_fatal());
        outcome
    }

    /// Sends a request as far as that goes without waiting.
    #[inline(always)]
    fn post(&mut self, request: &[u8], due: Due) {
        self.is_busy = true;
        self.due = due;
        self.answer = None;
        self.channel.post(request);
        self.may_be_plain = self.channel.is_posted();
    }

    /// Waits until all of a request is sent; the answer that is due.
    async fn sent(&mut self) -> Result<Answer, Error> {
        if !self.channel.is_posted()
            && let Err(error) = self.channel.post_rest().await
        {
            return Err(self.last_words(error).await);
        }
        Ok(self.answer.take().unwrap_or_else(|| answer_to(self.due, self.dialect)))
    }

    async fn send_output(&mut self) -> Result<(), Error> {
        match self.channel.flush().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_words(error).await),
        }
    }

    /// Sends a command and returns the sequence number that the answer begins with.
    async fn send_command(&mut self, command: u8, body: &[u8]) -> Result<u8, Error> {
        self.begin()?;
        let output = &mut self.channel.output;
        output.clear();
        let sequence = push_command(output, command, body);
        self.is_busy = true;
        self.send_output().await?;
        Ok(sequence)
    }

    /// A request could not be sent. A server that hung up may have said why before (MySQL 8.0.24 and later do
    /// when a session was idle for too long): that is the better error.
    #[cold]
    async fn last_words(&mut self, error: Error) -> Error {
        let is_hung_up = matches!(&error, Error::Io(cause)
            if matches!(cause.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset));
        // Boxed for the size of the future: this is rare.
        if is_hung_up
            && Box::pin(self.channel.fill()).await.is_ok()
            && is_unasked_error(self.channel.unread())
        {
            return unasked_packet(self.channel.unread());
        }
        error
    }

    /// Reads an answer to its end without looking at rows.
    async fn skip_answer(&mut self, sequence: u8) -> Result<Done, Error> {
        self.skip_the_rest(Answer::new(self.dialect, sequence), Event::Nothing, None).await
    }

    /// Reads an answer to its end from where `event` happened in it.
    async fn skip_the_rest(
        &mut self,
        mut answer: Answer,
        mut event: Event,
        mut definitions: Option<&mut Vec<Column>>,
    ) -> Result<Done, Error> {
        loop {
            if let (Event::Head { .. }, Some(definitions)) = (event, definitions.as_deref_mut()) {
                definitions.clear();
                return self.read_answer(answer, &mut Definitions(definitions)).await;
            }
            match event {
                Event::StatementEnd(_) => return Ok(answer.done()),
                Event::LocalFile => return Err(self.refuse_file(answer.sequence()).await),
                _ => {
                    event = poll_fn(|cx| poll_skip(&mut self.channel, cx, &mut answer)).await?;
                }
            }
        }
    }

    /// Reads an answer to its end and shows each packet to `reading`.
    async fn read_answer(&mut self, mut answer: Answer, reading: &mut dyn Reading) -> Result<Done, Error> {
        // What `reading` complains about is told when the answer has been read, so that the connection stays good.
        let mut complaint = Ok(());
        while !answer.is_finished() {
            let whole = read_packet(&mut self.channel, answer.sequence(), ROW_BYTES_MAX).await?;
            let payload = whole.payload(self.channel.unread());
            answer.resume(whole.next_sequence);
            let event = answer.accept(payload);
            if complaint.is_ok() {
                match &event {
                    Ok(Event::Head { columns, has_definitions }) => {
                        complaint = reading.on_head(*columns, *has_definitions);
                    }
                    Ok(Event::Column) => complaint = reading.on_column(payload),
                    Ok(Event::Row) => complaint = reading.on_row(payload),
                    Ok(Event::StatementEnd(done)) => complaint = reading.on_statement_end(*done),
                    Ok(Event::Nothing | Event::LocalFile) | Err(_) => {}
                }
            }
            self.channel.consume(whole.wire_len);
            if event? == Event::LocalFile {
                return Err(self.refuse_file(answer.sequence()).await);
            }
        }
        complaint.map(|()| answer.done())
    }

    /// An empty packet instead of the file that nobody here offered; then the server's answer to that.
    async fn refuse_file(&mut self, mut sequence: u8) -> Error {
        let start = begin(&mut self.channel.output);
        finish(&mut self.channel.output, start, &mut sequence);
        if let Err(error) = self.channel.flush().await {
            return error;
        }
        let mut answer = Answer::new(self.dialect, sequence);
        while !answer.is_finished() {
            let whole = match read_packet(&mut self.channel, answer.sequence(), CONTROL_BYTES_MAX).await {
                Ok(whole) => whole,
                Err(error) => return error,
            };
            answer.resume(whole.next_sequence);
            let event = answer.accept(whole.payload(self.channel.unread()));
            self.channel.consume(whole.wire_len);
            match event {
                Ok(Event::LocalFile) => {
                    return Error::Protocol("the server asks for files over and over".into());
                }
                Err(error) if error.is_fatal() => return error,
                Ok(_) | Err(_) => {}
            }
        }
        Error::Unsupported(
            "the server asked for a local file in answer to a statement that does not load rows; it got none"
                .into(),
        )
    }

    /// The answer to COM_STMT_PREPARE: the statement's id, number of parameters and columns.
    async fn read_prepared(&mut self, sequence: u8) -> Result<(u32, u16, Vec<Column>), Error> {
        let whole = read_packet(&mut self.channel, sequence, CONTROL_BYTES_MAX).await?;
        let head = parse_prepared(whole.payload(self.channel.unread()));
        self.channel.consume(whole.wire_len);
        let (id, columns, params) = head?;
        let mut sequence = whole.next_sequence;
        let mut definitions = Vec::new();
        if usize::from(columns) > COLUMNS_MAX {
            return malformed(format!("a statement of {columns} columns"));
        }
        for (count, is_kept) in [(params, false), (columns, self.dialect.cache_metadata)] {
            for _ in 0..count {
                let whole = read_packet(&mut self.channel, sequence, CONTROL_BYTES_MAX).await?;
                if is_kept {
                    definitions.push(Column::parse(whole.payload(self.channel.unread()))?);
                }
                sequence = whole.next_sequence;
                self.channel.consume(whole.wire_len);
            }
            // Definitions end with an EOF packet where the old form is spoken.
            if count > 0 && !self.dialect.deprecate_eof {
                let whole = read_packet(&mut self.channel, sequence, CONTROL_BYTES_MAX).await?;
                sequence = whole.next_sequence;
                self.channel.consume(whole.wire_len);
            }
        }
        Ok((id, params, definitions))
    }

    /// Sends packets of rows. The server finds the next one waiting when it has finished with one: its answer is read
    /// after that was sent.
    async fn send_bulk(
        &mut self,
        statement: &Statement,
        source: &mut dyn FnMut(&mut BulkRows<'_>) -> bool,
    ) -> Result<Done, Error> {
        let params = statement.params_len();
        let (mut has_more, mut unanswered) = (true, VecDeque::with_capacity(2));
        let (mut done, mut failed) = (Done::default(), Ok(()));
        while has_more || !unanswered.is_empty() {
            if has_more {
                let output = &mut self.channel.output;
                output.clear();
                let start = begin(output);
                push_head(output, statement.id(), params);
                let values;
                (has_more, values) = push_rows(output, LOAD_PACKET_BYTES, source);
                if values % params as u64 != 0 {
                    failed = failed.and(Err(Error::Unsupported(format!(
                        "{values} values do not make rows of {params}"
                    ))));
                    has_more = false;
                } else if values > 0 {
                    let mut sequence = 0;
                    finish(output, start, &mut sequence);
                    self.channel.arm(self.statement_timeout);
                    if let Err(error) = self.channel.flush().await {
                        return Err(self.last_words(error).await);
                    }
                    unanswered.push_back(sequence);
                }
                if has_more && unanswered.len() < 2 {
                    continue;
                }
            }
            if let Some(sequence) = unanswered.pop_front() {
                match self.skip_answer(sequence).await {
                    Ok(one) => {
                        done.affected_rows += one.affected_rows;
                        done.warnings = done.warnings.saturating_add(one.warnings);
                    }
                    Err(error) if error.is_fatal() => return Err(error),
                    // What is on its way is answered, too.
                    Err(error) => {
                        failed = failed.and(Err(error));
                        has_more = false;
                    }
                }
            }
        }
        failed.map(|()| done)
    }

    /// Streams `source` to a server that has been sent a LOAD DATA LOCAL.
    async fn send_rows(
        &mut self,
        sequence: u8,
        source: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Done, Error> {
        let whole = read_packet(&mut self.channel, sequence, CONTROL_BYTES_MAX).await?;
        let mut answer = Answer::new(self.dialect, whole.next_sequence);
        let event = answer.accept(whole.payload(self.channel.unread()));
        self.channel.consume(whole.wire_len);
        let mut sequence = whole.next_sequence;
        if event? != Event::LocalFile {
            if !answer.is_finished() {
                return malformed("load_rows was given a statement that returns rows");
            }
            return Err(Error::Unsupported("the statement given to load_rows asks for no local file".into()));
        }
        let mut has_more = true;
        while has_more {
            let output = &mut self.channel.output;
            output.clear();
            let start = begin(output);
            while has_more && output.len() < LOAD_PACKET_BYTES {
                has_more = source(output);
            }
            // An empty packet would end the file.
            if output.len() > start + HEADER_BYTES {
                finish(output, start, &mut sequence);
                self.channel.arm(self.statement_timeout);
                if let Err(error) = self.channel.flush().await {
                    return Err(self.last_words(error).await);
                }
            }
        }
        let output = &mut self.channel.output;
        output.clear();
        let start = begin(output);
        finish(output, start, &mut sequence);
        self.channel.arm(self.statement_timeout);
        self.channel.flush().await?;
        self.skip_answer(sequence).await
    }
}

/// What the log-in says about compression.
fn compression(target: &Target, greeting: &Greeting) -> Result<u64, Error> {
    match target.is_compressed {
        true if greeting.capabilities & capability::COMPRESS == 0 => Err(Error::Unsupported(
            "the server offers no compression with zlib (protocol_compression_algorithms in MySQL 8)".into(),
        )),
        true => Ok(capability::COMPRESS),
        false => Ok(0),
    }
}

fn wants_tls(target: &Target, greeting: &Greeting, is_private: bool) -> Result<bool, Error> {
    let is_offered = greeting.capabilities & capability::SSL != 0;
    match target.tls {
        TlsMode::Disabled => Ok(false),
        // As libmysqlclient: what never leaves the machine is encrypted only on demand.
        TlsMode::Preferred => Ok(is_offered && !is_private),
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyFull if is_offered => Ok(true),
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyFull => Err(Error::Tls(format!(
            "server {} offers no TLS: give it a certificate (ssl_cert, ssl_key), or use tls=disabled over a unix \
             socket or a trusted network",
            greeting.version
        ))),
    }
}

async fn log_in_to_the_end<T: Transport>(
    channel: &mut Channel<T>,
    login: &mut LoginProcess<'_>,
    mut sequence: u8,
) -> Result<(), Error> {
    // A method takes four packets at most; a server that goes on and on is none.
    for _ in 0..10 {
        let whole = read_packet(channel, sequence, LOGIN_BYTES_MAX).await?;
        sequence = whole.next_sequence;
        let step = login.on_packet(whole.payload(channel.unread()));
        channel.consume(whole.wire_len);
        match step? {
            Step::Done => return Ok(()),
            Step::Wait => {}
            Step::Send(payload) => {
                let start = begin(&mut channel.output);
                channel.output.extend_from_slice(&payload);
                finish(&mut channel.output, start, &mut sequence);
                channel.flush().await?;
            }
        }
    }
    malformed("the log-in does not end")
}

/// Waits until a whole packet stands at the front of the channel's buffer.
async fn read_packet<T: Transport>(
    channel: &mut Channel<T>,
    sequence: u8,
    bytes_max: usize,
) -> Result<Whole, Error> {
    loop {
        match join(channel.unread_mut(), sequence, bytes_max) {
            Ok(Some(whole)) => return Ok(whole),
            Ok(None) => {}
            Err(_) if is_unasked_error(channel.unread()) => return Err(unasked_packet(channel.unread())),
            Err(error) => return Err(error),
        }
        channel.fill().await?;
    }
}

/// The state machine for the answer that is due.
fn answer_to(due: Due, dialect: Dialect) -> Answer {
    let answer = Answer::new(dialect, due.sequence);
    if due.keeps_definitions { answer.keeping_definitions() } else { answer }
}

/// Goes over what has come of an answer until something is to be done.
fn poll_skip<T: Transport>(
    channel: &mut Channel<T>,
    cx: &mut Context<'_>,
    answer: &mut Answer,
) -> Poll<Result<Event, Error>> {
    // Only after LOAD DATA may something be here already: an error that came early.
    let mut is_short = channel.unread().is_empty();
    loop {
        if is_short {
            ready!(channel.poll_fill(cx))?;
        }
        let (used, event) = answer.skip(channel.unread());
        let event = match event {
            Ok(event) => event,
            Err(error) => return Poll::Ready(Err(explain(channel, error, used))),
        };
        channel.consume(used);
        match event {
            Event::StatementEnd(_) | Event::LocalFile | Event::Head { .. } => return Poll::Ready(Ok(event)),
            Event::Column | Event::Nothing | Event::Row => is_short = true,
        }
    }
}

/// A server that ends an idle session says so in a packet that no command asked for.
#[cold]
fn explain<T: Transport>(channel: &mut Channel<T>, error: Error, used: usize) -> Error {
    let error = match error {
        Error::Protocol(_) if is_unasked_error(&channel.unread()[used..]) => {
            unasked_packet(&channel.unread()[used..])
        }
        other => other,
    };
    channel.consume(used);
    error
}

/// Whether a complete error packet, out of order, stands at the front.
fn is_unasked_error(bytes: &[u8]) -> bool {
    header(bytes).is_some_and(|h| bytes.len() >= HEADER_BYTES + h.len)
        && bytes.get(HEADER_BYTES) == Some(&0xff)
}

/// Servers end idle or killed sessions with an error packet that belongs to no command. The session is over.
fn unasked_packet(bytes: &[u8]) -> Error {
    let payload = header(bytes).and_then(|h| bytes.get(HEADER_BYTES..HEADER_BYTES + h.len));
    match payload {
        Some(payload) if payload.first() == Some(&0xff) => {
            Error::Io(io::Error::new(io::ErrorKind::ConnectionAborted, server_error(payload).to_string()))
        }
        _ => Error::Protocol(format!("the server sent {} bytes that nobody asked for", bytes.len())),
    }
}

fn parse_prepared(payload: &[u8]) -> Result<(u32, u16, u16), Error> {
    let mut reader = super::packet::Reader::new(payload);
    match reader.u8()? {
        0x00 => Ok((reader.u32()?, reader.u16()?, reader.u16()?)),
        0xff => Err(server_error(payload)),
        other => malformed(format!("packet {other:#04x} in answer to a prepare")),
    }
}
