//! MySQL and PostgreSQL client protocols: sans-IO codecs and authentication, then a connection over any
//! [`Transport`] (unix socket, TCP, TLS).
//!
//! Never here: SQL of any workload, an executor, a retry policy, timing.

pub mod blocking;
pub mod error;
pub mod target;
pub mod transport;
pub mod value;

pub use error::{Error, ServerError};
pub use target::{Endpoint, Protocol, Secret, Target, TlsMode};
pub use transport::Transport;
pub use value::{Done, ParamType, StatementKind, Value};
