//! MySQL and PostgreSQL client protocols: sans-IO codecs and authentication, then a connection over any
//! [`Transport`] (unix socket, TCP, TLS).
//!
//! Never here: SQL of any workload, an executor, a retry policy, timing.

pub mod blocking;
mod cancel;
pub(crate) mod channel;
mod connection;
mod error;
pub mod files;
mod flavor;
pub mod limits;
pub mod mask;
pub mod mysql;
pub mod passwords;
pub mod postgres;
pub mod shown;
pub mod spelling;
mod target;
pub mod tls;
mod transport;
pub(crate) mod tunnel;
mod url;
mod value;

pub use cancel::Abandoned;
pub use connection::{Connection, Started, Statement};
pub use error::{Error, ServerError};
pub use flavor::Flavor;
pub use shown::shown;
pub use target::{Endpoint, Protocol, Secret, Target, TlsClient, TlsMode};
pub use transport::Transport;
pub use url::TargetError;
pub use value::{Cell, Done, ParamType, ResultSet, Row, RowSource, ServerInfo, StatementKind, Value};
