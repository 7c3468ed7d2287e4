//! The MySQL protocol: MySQL 5.5 to 8.4, MariaDB 10.1 to 11.x.
//!
//! The modules but [`connection`] do no IO: bytes in, values out.

pub mod answer;
mod bulk;
pub mod compression;
mod connection;
pub mod framing;
pub mod handshake;
mod login;
mod reading;
pub mod row;
mod statement;
#[cfg(test)]
mod tests;

pub use bulk::{BulkRows, BulkSource};
pub use connection::Connection;
pub use statement::Statement;
