//! A session's connection: opening it on the executor, transaction brackets, errors in the engine's words.

use std::sync::Arc;
use std::time::Duration;

use load::net::Socket;
use load::{Failure, FailureClass};
use wire::{Abandoned, Connection, Done, Started, Target};

use crate::Dialect;

/// What all sessions of a run share about their connections.
#[derive(Debug)]
pub struct LinkPlan {
    /// The server.
    pub target: Target,
    /// Its kind.
    pub dialect: Dialect,
    /// Statements that each new connection runs first.
    pub setup: Vec<String>,
    /// Error codes, beyond deadlocks and their like, after which the same transaction may be tried again.
    pub retryable: &'static [&'static str],
}

/// The connection of one session.
pub struct Link {
    plan: Arc<LinkPlan>,
    connection: Option<Connection<Socket>>,
    /// BEGIN was sent and neither COMMIT nor ROLLBACK was answered.
    in_transaction: bool,
}

/// The failure of a session that was asked to run without a connection.
#[cold]
fn not_connected() -> Failure {
    Failure {
        class: FailureClass::Connection,
        code: "not connected".to_owned(),
        text: "the session has no connection".to_owned(),
        retryable: false,
        connection_lost: true,
        fatal: false,
    }
}

/// How long a request to cancel a statement that timed out may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// Tells the server to stop what a session's last statement left there. It would go on with a statement that nobody waits
/// for, and be slower for all others. Where it cannot be told, the next connection will show that.
///
/// `abandoned`: of the session's last connection, most often none.
pub async fn cancel(abandoned: Option<Abandoned>, target: &Target) {
    if let Some(abandoned) = abandoned {
        // Boxed: it is rare, and would be part of every session's memory otherwise.
        Box::pin(send_cancel(&abandoned, target)).await;
    }
}

#[cold]
async fn send_cancel(abandoned: &Abandoned, target: &Target) {
    let limit = CANCEL_LIMIT.min(target.connect_timeout);
    if let Ok(socket) = load::net::connect(&target.endpoint, limit).await {
        let target = Target { connect_timeout: limit, ..target.clone() };
        let _ = abandoned.cancel(socket, &target).await;
    }
}

impl Link {
    /// Not connected yet.
    pub fn new(plan: Arc<LinkPlan>) -> Link {
        Link { plan, connection: None, in_transaction: false }
    }

    /// What all sessions share.
    pub fn plan(&self) -> &Arc<LinkPlan> {
        &self.plan
    }

    /// Connects anew; an old connection is dropped.
    ///
    /// # Errors
    /// Connecting, logging in or a set-up statement failed.
    pub async fn open(&mut self) -> Result<(), Failure> {
        self.in_transaction = false;
        let plan = Arc::clone(&self.plan);
        let abandoned = self.connection.take().and_then(|connection| connection.abandoned());
        cancel(abandoned, &plan.target).await;
        let socket = load::net::connect(&plan.target.endpoint, plan.target.connect_timeout)
            .await
            .map_err(|error| self.failure(&wire::Error::Io(error)))?;
        let mut connection =
            Connection::open(socket, &plan.target).await.map_err(|error| self.failure(&error))?;
        for sql in &plan.setup {
            connection.query(sql).await.map_err(|error| self.failure(&error))?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// The open connection.
    ///
    /// # Errors
    /// There is none; the engine opens one after this.
    #[inline]
    pub fn connection(&mut self) -> Result<&mut Connection<Socket>, Failure> {
        self.connection.as_mut().ok_or_else(not_connected)
    }

    /// The open connection, where there being none is somebody else's concern.
    #[inline]
    pub fn open_connection(&mut self) -> Option<&mut Connection<Socket>> {
        self.connection.as_mut()
    }

    /// What an error means for the transaction.
    #[cold]
    pub fn failure(&self, error: &wire::Error) -> Failure {
        self.plan.dialect.failure(error, self.plan.retryable)
    }

    /// [`Link::failure`] of an error that is not needed any more: dropping it is code that the hot path must not carry.
    #[cold]
    #[inline(never)]
    pub fn failed(&self, error: wire::Error) -> Failure {
        self.failure(&error)
    }

    /// BEGIN, by the text protocol: MySQL does not prepare it.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub async fn begin(&mut self) -> Result<Done, Failure> {
        self.begin_as("BEGIN").await
    }

    /// [`Link::begin`] in a user's own words (START TRANSACTION READ ONLY).
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub async fn begin_as(&mut self, sql: &str) -> Result<Done, Failure> {
        // Set before the answer: from here on only an answered COMMIT or ROLLBACK makes the session clean.
        self.in_transaction = true;
        self.text(sql).await
    }

    /// COMMIT.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub async fn commit(&mut self) -> Result<Done, Failure> {
        self.commit_as("COMMIT").await
    }

    /// [`Link::commit`] in a user's own words (END).
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub async fn commit_as(&mut self, sql: &str) -> Result<Done, Failure> {
        let done = self.text(sql).await?;
        self.in_transaction = false;
        Ok(done)
    }

    /// The first half of [`Link::begin`]. `None`: there is no connection.
    ///
    /// # Errors
    /// It could not be sent.
    #[inline]
    pub fn start_begin(&mut self) -> Option<Result<Started, wire::Error>> {
        self.in_transaction = true;
        Some(self.open_connection()?.start_query("BEGIN"))
    }

    /// The first half of [`Link::commit`]; [`Link::committed`] must follow the answer. `None`: there is no connection.
    ///
    /// # Errors
    /// It could not be sent.
    #[inline]
    pub fn start_commit(&mut self) -> Option<Result<Started, wire::Error>> {
        Some(self.open_connection()?.start_query("COMMIT"))
    }

    /// COMMIT was answered.
    #[inline]
    pub fn committed(&mut self) {
        self.in_transaction = false;
    }

    /// Whether a transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// ROLLBACK.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn rollback(&mut self) -> Result<Done, Failure> {
        let done = self.text("ROLLBACK").await?;
        self.in_transaction = false;
        Ok(done)
    }

    /// A statement by the text protocol, rows skipped.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub async fn text(&mut self, sql: &str) -> Result<Done, Failure> {
        let connection = self.connection()?;
        let answered = match connection.start_query(sql) {
            Ok(started) => connection.finish(None, started).await,
            Err(error) => Err(error),
        };
        answered.map_err(|error| self.failed(error))
    }

    /// Ends what a failed transaction left open.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn recover(&mut self) -> Result<(), Failure> {
        if self.in_transaction {
            self.rollback().await?;
        }
        Ok(())
    }

    /// Says good-bye.
    pub async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }
}
