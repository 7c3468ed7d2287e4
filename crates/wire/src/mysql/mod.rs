//! The MySQL protocol: MySQL 5.5 to 8.4, MariaDB 10.1 to 11.x.

use std::time::Duration;

use crate::channel::Channel;
use crate::error::Error;
use crate::target::Target;
use crate::transport::Transport;
use crate::value::{Done, ParamType, ResultSet, Row, ServerInfo, Value};

/// A prepared statement.
#[derive(Debug)]
pub struct Statement {}

/// A session with a MySQL server.
#[derive(Debug)]
pub struct Connection<T: Transport> {
    channel: Channel<T>,
    server: ServerInfo,
}

impl<T: Transport> Connection<T> {
    /// See [`crate::Connection::open`].
    pub async fn open(transport: T, target: &Target) -> Result<Self, Error> {
        let _ = (transport, target);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::server`].
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }
    /// See [`crate::Connection::query`].
    pub async fn query(&mut self, sql: &str) -> Result<Done, Error> {
        let _ = sql;
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::query_rows`].
    pub async fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        let _ = (sql, on_row);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::query_sets`].
    pub async fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        let _ = sql;
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::prepare`].
    pub async fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        let _ = (sql, params);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::execute`].
    pub async fn execute(&mut self, statement: &mut Statement, values: &[Value<'_>]) -> Result<Done, Error> {
        let _ = (statement, values);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::execute_rows`].
    pub async fn execute_rows(
        &mut self,
        statement: &mut Statement,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Error> {
        let _ = (statement, values, on_row);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::close_statement`].
    pub async fn close_statement(&mut self, statement: Statement) -> Result<(), Error> {
        let _ = statement;
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::load_rows`].
    pub async fn load_rows(
        &mut self,
        sql: &str,
        source: &mut dyn FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Done, Error> {
        let _ = (sql, source);
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::ping`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        Err(Error::Unsupported("not built yet".into()))
    }
    /// See [`crate::Connection::close`].
    pub async fn close(self) {}
    /// See [`crate::Connection::set_statement_timeout`].
    pub fn set_statement_timeout(&mut self, limit: Duration) {
        let _ = (limit, &self.channel);
    }
}
