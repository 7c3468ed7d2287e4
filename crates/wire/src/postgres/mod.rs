//! The PostgreSQL protocol 3.0: PostgreSQL 9.6 to 18.
//!
//! Parameters travel in binary where a type was declared, results as text. A statement is one write (Bind,
//! Execute and Sync together) and, for a short result, one read. The modules but [`connection`] do no IO.

mod answer;
mod connection;
mod framing;
mod frontend;
mod login;
mod row;
mod scram;
mod statement;
#[cfg(test)]
mod tests;

pub use answer::TransactionStatus;
pub(crate) use connection::cancel;
pub use connection::{Answered, Connection, Executed};
pub use statement::Statement;
