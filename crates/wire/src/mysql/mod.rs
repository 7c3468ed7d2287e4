//! The MySQL protocol: MySQL 5.5 to 8.4, MariaDB 10.1 to 11.x.
//!
//! The modules but [`connection`] do no IO: bytes in, values out.

pub mod auth;
pub mod bulk;
pub mod compression;
pub mod connection;
pub mod handshake;
pub mod packet;
mod plain;
mod reading;
pub mod response;
pub mod row;
pub mod statement;
#[cfg(test)]
mod tests;

pub use bulk::BulkRows;
pub use connection::Connection;
pub use statement::Statement;
