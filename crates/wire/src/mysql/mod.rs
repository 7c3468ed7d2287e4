//! The MySQL protocol: MySQL 5.5 to 8.4, MariaDB 10.1 to 11.x.
//!
//! The modules but [`connection`] are codecs: bytes in, values out, no IO.

pub mod auth;
pub mod bulk;
pub mod compression;
pub mod connection;
pub mod handshake;
pub mod packet;
pub mod response;
pub mod row;
pub mod statement;
#[cfg(test)]
mod tests;

pub use bulk::BulkRows;
pub use connection::{Connection, Started};
pub use statement::Statement;
