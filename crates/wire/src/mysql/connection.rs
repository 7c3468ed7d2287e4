//! A session with a MySQL server, over the codecs next to it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use super::answer::{Answer, Dialect, Event, server_error};
use super::bulk::{BulkSource, push_head, push_rows};
use super::framing::{HEADER_BYTES, Reader, Whole, begin, finish, header, join, malformed};
use super::handshake::{Greeting, LogIn, capability, push_log_in, push_tls_request};
use super::login::{LoginProcess, Step};
use super::reading::{BinaryRows, Definitions, Reading, Sets, TextRows};
use super::row::Column;
use super::statement::Statement;
use crate::cancel::Abandoned;
use crate::channel::Channel;
use crate::error::Error;
use crate::limits::{COLUMNS_MAX, CONTROL_BYTES_MAX, LOGIN_BYTES_MAX, ROW_BYTES_MAX};
use crate::target::{Target, TlsMode};
use crate::transport::Transport;
use crate::value::{Cell, Done, ParamType, ResultSet, Row, RowSource, ServerInfo, Value};

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
    /// What comes back for the last command. Here and not in the futures, which would hand it from one to the next.
    answer: Answer,
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
        let dialect = Dialect {
            deprecate_eof: capabilities & capability::DEPRECATE_EOF != 0,
            cache_metadata: capabilities & capability::CACHE_METADATA != 0,
        };
        Ok(Connection {
            channel,
            server,
            dialect,
            has_bulk: capabilities & capability::BULK_OPERATIONS != 0,
            statement_timeout: target.statement_timeout,
            is_busy: false,
            answer: Answer::new(dialect, 0),
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
        let sequence = push_command(&mut self.channel.output, COM_QUERY, sql.as_bytes());
        self.post(Answer::new(self.dialect, sequence));
        Ok(())
    }

    /// See [`crate::Connection::query_rows`].
    pub async fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        let mut cells = std::mem::take(&mut self.cells);
        self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let mut reading = TextRows { columns: 0, cells: &mut cells, on_row };
        let outcome = self.read_answer(&mut reading).await;
        self.cells = cells;
        self.settle(outcome)
    }

    /// See [`crate::Connection::query_sets`].
    pub async fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let mut reading = Sets::default();
        let outcome = self.read_answer(&mut reading).await;
        self.settle(outcome)?;
        Ok(reading.sets)
    }

    /// See [`crate::Connection::prepare`].
    pub async fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        self.send_command(COM_STMT_PREPARE, sql.as_bytes()).await?;
        let outcome = self.read_prepared().await;
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
        let sequence = statement.encode(values, &mut self.channel.output)?;
        self.post(Answer::new(self.dialect, sequence).keeping_definitions());
        Ok(())
    }

    /// See [`crate::Connection::finish`]. `statement`: the prepared one that was started.
    #[inline]
    pub(crate) async fn finish(&mut self, mut statement: Option<&mut Statement>) -> Result<Done, Error> {
        if !self.channel.is_flushed() {
            self.flush().await?;
        }
        let definitions = statement.as_deref_mut().map(|statement| &mut statement.columns);
        let outcome = self.skip_answer(definitions).await;
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
        self.flush().await?;
        let (mut cells, mut text) = (std::mem::take(&mut self.cells), std::mem::take(&mut self.text));
        let mut reading =
            BinaryRows { columns: &mut statement.columns, cells: &mut cells, text: &mut text, on_row };
        let outcome = self.read_answer(&mut reading).await;
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
    pub async fn load_rows(&mut self, sql: &str, source: RowSource<'_>) -> Result<Done, Error> {
        self.send_command(COM_QUERY, sql.as_bytes()).await?;
        let outcome = self.send_rows(source).await;
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
        source: BulkSource<'_>,
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
        self.send_command(COM_PING, &[]).await?;
        let outcome = self.skip_answer(None).await;
        self.settle(outcome).map(|_| ())
    }

    /// See [`crate::Connection::close`].
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
        self.channel.output.clear();
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

    /// Sends a request as far as that goes without waiting; what it gets is yet to come.
    #[inline(always)]
    fn post(&mut self, answer: Answer) {
        self.is_busy = true;
        self.answer = answer;
        self.channel.post();
    }

    /// Sends what is left of a request.
    async fn flush(&mut self) -> Result<(), Error> {
        match self.channel.flush().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_words(error).await),
        }
    }

    async fn send_command(&mut self, command: u8, body: &[u8]) -> Result<(), Error> {
        self.begin()?;
        let sequence = push_command(&mut self.channel.output, command, body);
        self.is_busy = true;
        self.answer = Answer::new(self.dialect, sequence);
        self.flush().await
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

    /// Reads the answer to its end without looking at rows. `definitions`: where those go that the server will not send
    /// again.
    #[inline]
    async fn skip_answer(&mut self, mut definitions: Option<&mut Vec<Column>>) -> Result<Done, Error> {
        loop {
            let (used, event) = self.answer.skip(self.channel.unread());
            let event = event.map_err(|error| explain(&mut self.channel, error, used))?;
            self.channel.consume(used);
            match event {
                Event::StatementEnd(_) => return Ok(self.answer.done()),
                Event::Column | Event::Nothing | Event::Row => self.channel.fill().await?,
                // The rest is boxed for the size of the future: it is rare.
                Event::LocalFile => return Err(Box::pin(self.refuse_file()).await),
                Event::Head { .. } => {
                    if let Some(definitions) = definitions.take() {
                        definitions.clear();
                        return Box::pin(self.read_answer(&mut Definitions(definitions))).await;
                    }
                }
            }
        }
    }

    /// Reads the answer to its end and shows each packet to `reading`.
    async fn read_answer(&mut self, reading: &mut dyn Reading) -> Result<Done, Error> {
        // What `reading` complains about is told when the answer has been read, so that the connection stays good.
        let mut complaint = Ok(());
        while !self.answer.is_finished() {
            let whole = self.read_packet(ROW_BYTES_MAX).await?;
            let payload = whole.payload(self.channel.unread());
            let event = self.answer.accept(payload);
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
                return Err(self.refuse_file().await);
            }
        }
        complaint.map(|()| self.answer.done())
    }

    /// The next packet of the answer, whole at the front of what is unread.
    async fn read_packet(&mut self, bytes_max: usize) -> Result<Whole, Error> {
        let whole = read_packet(&mut self.channel, self.answer.sequence(), bytes_max).await?;
        self.answer.resume(whole.next_sequence);
        Ok(whole)
    }

    /// An empty packet instead of the file that nobody here offered; then the server's answer to that.
    async fn refuse_file(&mut self) -> Error {
        if let Err(error) = self.end_file().await {
            return error;
        }
        while !self.answer.is_finished() {
            let whole = match self.read_packet(CONTROL_BYTES_MAX).await {
                Ok(whole) => whole,
                Err(error) => return error,
            };
            let event = self.answer.accept(whole.payload(self.channel.unread()));
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

    /// The empty packet that ends a file, after which the server answers.
    async fn end_file(&mut self) -> Result<(), Error> {
        let mut sequence = self.answer.sequence();
        let output = &mut self.channel.output;
        output.clear();
        let start = begin(output);
        finish(output, start, &mut sequence);
        self.answer = Answer::new(self.dialect, sequence);
        self.channel.flush().await
    }

    /// The answer to COM_STMT_PREPARE: the statement's id, number of parameters and columns.
    async fn read_prepared(&mut self) -> Result<(u32, u16, Vec<Column>), Error> {
        let whole = self.read_packet(CONTROL_BYTES_MAX).await?;
        let head = parse_prepared(whole.payload(self.channel.unread()));
        self.channel.consume(whole.wire_len);
        let (id, columns, params) = head?;
        let mut definitions = Vec::new();
        if usize::from(columns) > COLUMNS_MAX {
            return malformed(format!("a statement of {columns} columns"));
        }
        for (count, is_kept) in [(params, false), (columns, self.dialect.cache_metadata)] {
            for _ in 0..count {
                let whole = self.read_packet(CONTROL_BYTES_MAX).await?;
                if is_kept {
                    definitions.push(Column::parse(whole.payload(self.channel.unread()))?);
                }
                self.channel.consume(whole.wire_len);
            }
            // Definitions end with an EOF packet where the old form is spoken.
            if count > 0 && !self.dialect.deprecate_eof {
                let whole = self.read_packet(CONTROL_BYTES_MAX).await?;
                self.channel.consume(whole.wire_len);
            }
        }
        Ok((id, params, definitions))
    }

    /// Sends packets of rows. The server finds the next one waiting when it has finished with one: its answer is read
    /// after that was sent.
    async fn send_bulk(&mut self, statement: &Statement, source: BulkSource<'_>) -> Result<Done, Error> {
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
                    self.flush().await?;
                    unanswered.push_back(sequence);
                }
                if has_more && unanswered.len() < 2 {
                    continue;
                }
            }
            if let Some(sequence) = unanswered.pop_front() {
                self.answer = Answer::new(self.dialect, sequence);
                match self.skip_answer(None).await {
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
    async fn send_rows(&mut self, source: RowSource<'_>) -> Result<Done, Error> {
        let whole = self.read_packet(CONTROL_BYTES_MAX).await?;
        let event = self.answer.accept(whole.payload(self.channel.unread()));
        self.channel.consume(whole.wire_len);
        if event? != Event::LocalFile {
            if !self.answer.is_finished() {
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
                let mut sequence = self.answer.sequence();
                finish(output, start, &mut sequence);
                self.answer.resume(sequence);
                self.channel.arm(self.statement_timeout);
                self.flush().await?;
            }
        }
        self.channel.arm(self.statement_timeout);
        self.end_file().await?;
        self.skip_answer(None).await
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
    let mut reader = Reader::new(payload);
    match reader.u8()? {
        0x00 => Ok((reader.u32()?, reader.u16()?, reader.u16()?)),
        0xff => Err(server_error(payload)),
        other => malformed(format!("packet {other:#04x} in answer to a prepare")),
    }
}
