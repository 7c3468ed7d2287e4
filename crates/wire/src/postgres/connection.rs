//! A session with a PostgreSQL server, over the codecs next to it.

mod pipeline;

use std::io;
use std::time::Duration;

use super::answer::{Answer, Progress, Request, Rows, TransactionStatus};
use super::framing::MESSAGE_BYTES_MAX;
use super::frontend;
use super::login::{Login, Next, Security};
use super::statement::Statement;
pub use pipeline::{Answered, Executed};

use crate::cancel::Abandoned;
use crate::channel::Channel;
use crate::error::{Error, ServerError};
use crate::target::{Target, TlsMode};
use crate::transport::Transport;
use crate::value::{Cell, Done, ParamType, ResultSet, Row, RowSource, ServerInfo, Value};

/// A session with a PostgreSQL server.
#[derive(Debug)]
pub struct Connection<T: Transport> {
    channel: Channel<T>,
    server: ServerInfo,
    /// Goes with a request to cancel what this session does.
    cancel_key: [u8; 4],
    statement_timeout: Duration,
    status: TransactionStatus,
    /// The last answer was read to its end. Not so after a fatal error, nor after a future was dropped half-way:
    /// what is still under way would be taken for the next answer.
    is_in_step: bool,
    /// Executions are queued whose answers were not read.
    is_queueing: bool,
    /// What comes back for the last request. Here and not in the futures, which would hand it from one to the next.
    answer: Answer,
    /// Statements prepared so far, which makes their names.
    prepared: u32,
    /// Scratch space for one row.
    cells: Vec<Option<Cell>>,
}

impl<T: Transport> Connection<T> {
    /// See [`crate::Connection::open`].
    pub async fn open(transport: T, target: &Target) -> Result<Self, Error> {
        let mut channel = Channel::new(transport);
        channel.arm(target.connect_timeout);
        agree_on_tls(&mut channel, target).await?;

        let mut nonce = [0; 18];
        getrandom::fill(&mut nonce)
            .map_err(|error| Error::Auth(format!("the system gives no random numbers: {error}")))?;
        let security = Security {
            is_protected: channel.is_private() || channel.tls().is_some(),
            end_point: channel.end_point_hash(),
        };
        let mut login = Login::start(target, security, nonce, &mut channel.output)?;
        loop {
            channel.flush().await?;
            channel.fill().await?;
            // The answers are built apart: the channel lends out what it has read.
            let mut answers = std::mem::take(&mut channel.output);
            let fed = login.feed(channel.unread(), &mut answers);
            channel.output = answers;
            let (consumed, next) = fed?;
            channel.consume(consumed);
            if next == Next::Ready {
                break;
            }
        }
        let server = ServerInfo {
            version: login.version,
            connection_id: login.process_id,
            tls: channel.tls(),
            has_channel_binding: login.is_bound,
        };
        Ok(Connection {
            channel,
            server,
            cancel_key: login.cancel_key,
            statement_timeout: target.statement_timeout,
            status: TransactionStatus::Idle,
            is_in_step: true,
            is_queueing: false,
            answer: Answer::new(Request::Sync),
            prepared: 0,
            cells: Vec::new(),
        })
    }

    /// See [`crate::Connection::server`].
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// Whether the session was inside a transaction when the last answer ended.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    /// See [`crate::Connection::start_query`].
    #[inline]
    pub(crate) fn start_query(&mut self, sql: &str) -> Result<(), Error> {
        check_text(sql)?;
        self.begin()?;
        frontend::query(&mut self.channel.output, sql);
        self.post(Request::Query);
        Ok(())
    }

    /// See [`crate::Connection::query_rows`].
    pub async fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        self.simple(sql, Rows::Each(on_row)).await
    }

    /// See [`crate::Connection::query_sets`].
    pub async fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        let mut sets = Vec::new();
        self.simple(sql, Rows::Keep(&mut sets)).await?;
        Ok(sets)
    }

    async fn simple(&mut self, sql: &str, rows: Rows<'_>) -> Result<Done, Error> {
        self.start_query(sql)?;
        self.read(rows).await
    }

    /// See [`crate::Connection::prepare`].
    pub async fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        let count = params.len();
        if count > usize::from(u16::MAX) {
            return Err(Error::Unsupported(format!("{count} parameters; a statement may have 65,535")));
        }
        check_text(sql)?;
        self.begin()?;
        self.prepared += 1;
        Statement::prepare(&mut self.channel.output, self.prepared, sql, params);
        self.flush().await?;
        let done = self.read_answer(Request::Prepare, Rows::Skip).await?;
        let statement = Statement::new(self.prepared, params, done.has_result_set);
        let found = self.answer.params;
        if usize::from(found) != count {
            self.close_statement(statement).await?;
            return Err(Error::Unsupported(format!(
                "the statement has {found} parameters and {count} types were given: {sql}"
            )));
        }
        Ok(statement)
    }

    /// See [`crate::Connection::start`].
    #[inline(always)]
    pub(crate) fn start(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<(), Error> {
        self.begin()?;
        statement.encode(values, &mut self.channel.output)?;
        let has_result_set = statement.has_result_set();
        self.post(Request::Execute { has_result_set });
        Ok(())
    }

    /// See [`crate::Connection::finish`].
    #[inline]
    pub(crate) async fn finish(&mut self) -> Result<Done, Error> {
        self.read(Rows::Skip).await
    }

    /// See [`crate::Connection::execute_rows`].
    pub async fn execute_rows(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Error> {
        self.start(statement, values)?;
        self.read(Rows::Each(on_row)).await
    }

    /// Waits until all of a request is sent, and reads the answer to its end.
    #[inline]
    async fn read(&mut self, rows: Rows<'_>) -> Result<Done, Error> {
        if !self.channel.is_flushed() {
            self.flush().await?;
        }
        self.read_on(rows).await
    }

    /// See [`crate::Connection::close_statement`].
    pub async fn close_statement(&mut self, statement: Statement) -> Result<(), Error> {
        self.begin()?;
        frontend::close_statement(&mut self.channel.output, &statement.name());
        frontend::sync(&mut self.channel.output);
        self.flush().await?;
        self.read_answer(Request::Close, Rows::Skip).await?;
        Ok(())
    }

    /// See [`crate::Connection::load_rows`].
    pub async fn load_rows(&mut self, sql: &str, source: RowSource<'_>) -> Result<Done, Error> {
        check_text(sql)?;
        self.begin()?;
        frontend::query(&mut self.channel.output, sql);
        self.flush().await?;
        self.answer = Answer::new(Request::Query);
        if self.advance(&mut Rows::Skip).await? != Progress::CopyIn {
            return match self.answer.end() {
                Ok(_) => Err(Error::Unsupported(format!("the statement asks for no rows: {sql}"))),
                Err(error) => Err(error),
            };
        }
        // Should the server refuse a row, it throws away what still comes and answers at the end.
        let is_too_long = loop {
            self.channel.arm(self.statement_timeout);
            frontend::begin_copy_data(&mut self.channel.output);
            let has_more = source(&mut self.channel.output);
            let is_too_long = self.channel.output.len() > MESSAGE_BYTES_MAX;
            if !is_too_long && frontend::end_copy_data(&mut self.channel.output) {
                self.flush().await?;
            }
            if is_too_long || !has_more {
                break is_too_long;
            }
        };
        self.channel.output.clear();
        if is_too_long {
            frontend::copy_fail(&mut self.channel.output, "a chunk of rows exceeds 1 GiB");
        } else {
            frontend::copy_done(&mut self.channel.output);
        }
        self.flush().await?;
        self.read_on(Rows::Skip).await
    }

    /// See [`crate::Connection::ping`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.begin()?;
        frontend::sync(&mut self.channel.output);
        self.flush().await?;
        self.read_answer(Request::Sync, Rows::Skip).await?;
        Ok(())
    }

    /// See [`crate::Connection::close`].
    pub(crate) async fn say_good_bye(&mut self) {
        if self.begin().is_ok() {
            frontend::terminate(&mut self.channel.output);
            // The server ends the session in any case when the socket closes.
            let _ = self.channel.flush().await;
        }
    }

    /// See [`crate::Connection::abandoned`].
    pub fn abandoned(&self) -> Option<Abandoned> {
        let id = self.server.connection_id;
        self.channel.has_timed_out().then(|| Abandoned::postgres(id, self.cancel_key))
    }

    /// See [`crate::Connection::set_statement_timeout`].
    pub fn set_statement_timeout(&mut self, limit: Duration) {
        self.statement_timeout = limit;
    }

    /// Before a request is built: nothing may be under way.
    #[inline(always)]
    fn begin(&mut self) -> Result<(), Error> {
        if !self.is_in_step {
            return Err(Error::Io(io::Error::new(
                io::ErrorKind::NotConnected,
                "an earlier statement failed or was abandoned half-way; open a new connection",
            )));
        }
        self.channel.output.clear();
        self.channel.arm(self.statement_timeout);
        Ok(())
    }

    /// Sends a request as far as that goes without waiting.
    #[inline(always)]
    fn post(&mut self, what: Request) {
        self.is_in_step = false;
        self.answer = Answer::new(what);
        self.channel.post();
    }

    /// Sends a request, or what is left of it.
    async fn flush(&mut self) -> Result<(), Error> {
        self.is_in_step = false;
        match self.channel.flush().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_words(error).await),
        }
    }

    /// Reads the answer to a request to its end.
    async fn read_answer(&mut self, request: Request, rows: Rows<'_>) -> Result<Done, Error> {
        self.answer = Answer::new(request);
        self.read_on(rows).await
    }

    /// Reads the answer from where it stands to its end.
    #[inline]
    async fn read_on(&mut self, mut rows: Rows<'_>) -> Result<Done, Error> {
        if self.advance(&mut rows).await? == Progress::CopyIn {
            // Boxed for the size of the future: it is rare.
            Box::pin(self.refuse_copy(&mut rows)).await?;
        }
        self.answer.end()
    }

    /// The server wants rows that nobody here has.
    async fn refuse_copy(&mut self, rows: &mut Rows<'_>) -> Result<(), Error> {
        loop {
            frontend::copy_fail(&mut self.channel.output, "no rows to load: use load_rows");
            if self.answer.is_extended() {
                // A server in copy mode has ignored the Sync that came with the statement.
                frontend::sync(&mut self.channel.output);
            }
            self.flush().await?;
            if self.advance(rows).await? != Progress::CopyIn {
                return Ok(());
            }
        }
    }

    /// Reads until the answer is complete or the server wants data.
    #[inline]
    async fn advance(&mut self, rows: &mut Rows<'_>) -> Result<Progress, Error> {
        loop {
            let (consumed, progress) = self.answer.feed(self.channel.unread(), rows, &mut self.cells)?;
            self.channel.consume(consumed);
            match progress {
                Progress::Read => {}
                Progress::CopyIn => return Ok(progress),
                Progress::Ready(status) => {
                    self.status = status;
                    self.is_in_step = true;
                    return Ok(progress);
                }
            }
            if let Err(error) = self.channel.fill().await {
                return Err(match &self.answer.error {
                    Some(server) => ended_by_server(error, server),
                    None => error,
                });
            }
        }
    }

    /// A server that ends a session (shutdown, an administrator, an idle limit) says why before it closes the
    /// socket: often the first to notice is the next write.
    #[cold]
    async fn last_words(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Io(_)) {
            return error;
        }
        self.answer = Answer::new(Request::Sync);
        match self.advance(&mut Rows::Skip).await {
            Err(ended @ Error::Io(_)) if self.answer.error.is_some() => ended,
            _ => error,
        }
    }
}

fn check_text(sql: &str) -> Result<(), Error> {
    if sql.len() > MESSAGE_BYTES_MAX / 2 {
        return Err(Error::Unsupported(format!("a statement of {} bytes is too long", sql.len())));
    }
    if sql.as_bytes().contains(&0) {
        return Err(Error::Unsupported("a statement cannot hold a zero byte".into()));
    }
    Ok(())
}

#[cold]
fn ended_by_server(error: Error, server: &ServerError) -> Error {
    match error {
        Error::Io(_) => Error::Io(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            format!("the server ended the session: {} ({})", server.text, server.code()),
        )),
        other => other,
    }
}

/// Asks the server to cancel what another session does, over a connection made for nothing else (PostgreSQL
/// documentation, "Canceling Requests in Progress"). The server does not answer: it closes the connection once it
/// has looked.
pub(crate) async fn cancel<T: Transport>(
    transport: T,
    target: &Target,
    process_id: u32,
    key: [u8; 4],
) -> Result<(), Error> {
    let mut channel = Channel::new(transport);
    channel.arm(target.connect_timeout);
    agree_on_tls(&mut channel, target).await?;
    frontend::cancel_request(&mut channel.output, process_id, key);
    channel.flush().await?;
    match channel.fill().await {
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(Error::Protocol("the server answered a request to cancel".into())),
    }
}

/// SSLRequest and its one-byte answer, which comes before anything else (PostgreSQL documentation, "SSL Session
/// Encryption").
async fn agree_on_tls<T: Transport>(channel: &mut Channel<T>, target: &Target) -> Result<(), Error> {
    let is_wanted = match target.tls {
        TlsMode::Disabled => false,
        // PostgreSQL encrypts no unix sockets, so there is nothing to ask for.
        TlsMode::Preferred => !channel.is_private(),
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyFull => true,
    };
    if !is_wanted {
        return Ok(());
    }
    if channel.is_private() {
        return Err(Error::Tls(
            "PostgreSQL encrypts no unix sockets: use tls=disabled with the socket, or connect over TCP"
                .into(),
        ));
    }
    frontend::ssl_request(&mut channel.output);
    channel.flush().await?;
    channel.fill().await?;
    let answer = channel.unread()[0];
    channel.consume(1);
    match answer {
        b'S' => channel.start_tls(target).await,
        b'N' if target.tls == TlsMode::Preferred && channel.unread().is_empty() => Ok(()),
        b'N' => Err(Error::Tls(
            "the server offers no TLS: set ssl = on and a certificate in its configuration, or use tls=disabled"
                .into(),
        )),
        _ => Err(Error::Tls("the server does not answer a request for TLS as PostgreSQL does".into())),
    }
}
