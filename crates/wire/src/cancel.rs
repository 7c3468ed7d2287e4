//! Telling a server to stop what nobody waits for any more.
//!
//! A statement that ran into its timeout ends for the client, not for the server: that goes on, holds its locks and
//! takes cpu from what is measured. It is told so over a second connection, because the first one is busy.

use std::fmt;

use crate::connection::Connection;
use crate::error::Error;
use crate::postgres;
use crate::target::Target;
use crate::transport::Transport;

/// A session whose last statement timed out.
#[derive(Clone, PartialEq, Eq)]
pub struct Abandoned {
    session: Session,
}

#[derive(Clone, PartialEq, Eq)]
enum Session {
    Mysql { connection_id: u32 },
    Postgres { process_id: u32, key: [u8; 4] },
}

impl fmt::Debug for Abandoned {
    /// Without the key, with which anybody could cancel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Session::Mysql { connection_id: id } | Session::Postgres { process_id: id, .. }) = self.session;
        f.debug_struct("Abandoned").field("session", &id).finish_non_exhaustive()
    }
}

impl Abandoned {
    pub(crate) fn mysql(connection_id: u32) -> Abandoned {
        Abandoned { session: Session::Mysql { connection_id } }
    }

    pub(crate) fn postgres(process_id: u32, key: [u8; 4]) -> Abandoned {
        Abandoned { session: Session::Postgres { process_id, key } }
    }

    /// Has the server end it, over a fresh `transport` to the same server, within the target's connect timeout:
    /// PostgreSQL cancels the statement, MySQL and MariaDB end the whole session (KILL).
    ///
    /// # Errors
    /// The server could not be reached, or does not let us in. It then goes on with the statement.
    pub async fn cancel<T: Transport>(&self, transport: T, target: &Target) -> Result<(), Error> {
        match self.session {
            Session::Postgres { process_id, key } => {
                postgres::cancel(transport, target, process_id, key).await
            }
            Session::Mysql { connection_id } => {
                // The database may be gone; without one the log-in works all the same.
                let target = Target { database: None, ..target.clone() };
                let mut connection = Connection::open(transport, &target).await?;
                connection.set_statement_timeout(target.connect_timeout);
                match connection.query(&format!("KILL {connection_id}")).await {
                    // It has ended by itself.
                    Err(Error::Server(error)) if error.code() == NO_SUCH_THREAD => {}
                    other => {
                        other?;
                    }
                }
                connection.close().await;
                Ok(())
            }
        }
    }
}

/// ER_NO_SUCH_THREAD.
const NO_SUCH_THREAD: &str = "1094";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", Abandoned::postgres(7, [77; 4])), "Abandoned { session: 7, .. }");
    }
}
