//! Statements by the extended protocol, one by one or many in flight: what is queued is sent and answered by
//! [`Connection::read_queued`] (PostgreSQL documentation, "Extended Query" and "Pipelining").

use super::super::answer::{Answer, Progress, Request, Rows};
use super::super::{Statement, frontend};
use super::{Connection, check_text};
use crate::postgres::framing::MESSAGE_BYTES_MAX;
use crate::transport::Transport;
use crate::value::{Done, ResultSet};
use crate::{Error, ServerError};

/// What a queued execution executes.
#[derive(Debug, Clone, Copy)]
pub enum Executed<'a> {
    /// This text, as an unnamed statement.
    Text(&'a str),
    /// A statement of this connection.
    Prepared(&'a Statement),
}

/// What all answers come to.
#[derive(Debug)]
pub struct Answered {
    /// One for each execution, where they were to be kept.
    pub sets: Vec<ResultSet>,
    /// Rows and affected rows summed.
    pub done: Done,
    /// The first error.
    pub error: Option<ServerError>,
}

impl<T: Transport> Connection<T> {
    /// Queues an execution with all parameters as text, `None` for SQL NULL, whose types the server infers.
    ///
    /// # Errors
    /// An earlier statement was abandoned; a text that no message holds.
    pub fn queue(&mut self, executed: Executed<'_>, params: &[Option<&str>]) -> Result<(), Error> {
        if let Executed::Text(sql) = executed {
            check_text(sql)?;
        }
        let bytes: usize = params.iter().flatten().map(|text| text.len()).sum();
        if params.len() > usize::from(u16::MAX) || bytes > MESSAGE_BYTES_MAX / 2 {
            return Err(Error::Unsupported(format!("{} parameters of {bytes} bytes", params.len())));
        }
        self.begin_queue()?;
        let out = &mut self.channel.output;
        let name = match executed {
            Executed::Text(sql) => {
                frontend::parse(out, "", sql, std::iter::empty());
                String::new()
            }
            Executed::Prepared(statement) => statement.name(),
        };
        frontend::bind_texts(out, &name, params);
        frontend::describe_portal(out);
        frontend::execute(out);
        Ok(())
    }

    /// Queues a synchronisation point.
    ///
    /// # Errors
    /// An earlier statement was abandoned.
    pub fn queue_sync(&mut self) -> Result<(), Error> {
        self.begin_queue()?;
        frontend::sync(&mut self.channel.output);
        Ok(())
    }

    fn begin_queue(&mut self) -> Result<(), Error> {
        if !self.is_queueing {
            self.begin()?;
            // No other request can come between what is queued.
            self.is_in_step = false;
            self.is_queueing = true;
        }
        Ok(())
    }

    /// Sends what is queued and reads the answers up to the last of `syncs` synchronisation points; `keeps`: with rows.
    ///
    /// # Errors
    /// The connection is lost. What the server refuses stands in [`Answered::error`].
    pub async fn read_queued(&mut self, syncs: u32, keeps: bool) -> Result<Answered, Error> {
        self.channel.arm(self.statement_timeout);
        self.flush().await?;
        self.is_queueing = false;
        let (mut sets, mut error) = (Vec::new(), None);
        self.answer = Answer::new(Request::Pipeline);
        for _ in 0..syncs {
            self.is_in_step = false;
            let mut rows = if keeps { Rows::Keep(&mut sets) } else { Rows::Skip };
            if self.advance(&mut rows).await? == Progress::CopyIn {
                self.is_in_step = false;
                return Err(Error::Unsupported("COPY FROM STDIN has no place in a pipeline".into()));
            }
            let refused = self.answer.error.take();
            error = error.or(refused.map(|refused| *refused));
        }
        Ok(Answered { sets, done: self.answer.done, error })
    }
}
