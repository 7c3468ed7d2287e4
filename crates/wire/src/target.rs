//! Where a server is and how to log in.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The language that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MySQL, MariaDB, Percona Server.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

impl Protocol {
    /// The TCP port registered for it.
    pub fn default_port(self) -> u16 {
        match self {
            Protocol::Mysql => 3306,
            Protocol::Postgres => 5432,
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The full path of a unix socket (PostgreSQL: `DIR/.s.PGSQL.PORT`, not the directory).
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// Name or address.
        host: String,
        port: u16,
    },
}

impl Endpoint {
    /// Whether what is sent there stays on this machine, as far as the name tells.
    pub fn is_this_machine(&self) -> bool {
        match self {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp { host, .. } => {
                host.eq_ignore_ascii_case("localhost")
                    || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A password that does not show in logs.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The password itself; only authentication asks for it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(none)" } else { "***" })
    }
}

/// Whether to encrypt, and what to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never.
    #[default]
    Disabled,
    /// Where the server offers it, unchecked.
    Preferred,
    /// Always, unchecked.
    Required,
    /// Always, and the certificate must come from the named authority, or from one that this system trusts.
    VerifyCa,
    /// Always, authority and host name checked.
    VerifyFull,
}

/// What this side shows of itself over TLS, and which ciphers it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsClient {
    /// PEM file with the certificate for a server that asks who we are, and those up to its authority after it;
    /// `None`: there is none to show.
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key, without a passphrase; `None`: it stands in the certificate's file.
    pub key: Option<PathBuf>,
    /// Names of ciphers, OpenSSL's or IANA's, with colons or commas between them: of each version of TLS that one of
    /// them belongs to, no other is used. Empty: all that are safe.
    pub ciphers: String,
}

/// Everything needed to open a session.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which protocol.
    pub protocol: Protocol,
    /// Where.
    pub endpoint: Endpoint,
    /// Who.
    pub user: String,
    /// With what; empty for none.
    pub password: Secret,
    /// Database to use; `None` for none (MySQL) or the user's own (PostgreSQL).
    pub database: Option<String>,
    /// Encryption.
    pub tls: TlsMode,
    /// PEM file of the authority for the two verifying modes; `None`: those that this system trusts.
    pub tls_ca: Option<PathBuf>,
    /// Certificate and ciphers of this side.
    pub tls_client: TlsClient,
    /// Packets are compressed with zlib (MySQL and MariaDB).
    pub is_compressed: bool,
    /// Limit for connecting and logging in, together.
    pub connect_timeout: Duration,
    /// Limit for one statement.
    pub statement_timeout: Duration,
}

impl Target {
    /// Limit for connecting and logging in where nothing else is said.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Limit for one statement where nothing else is said. Long: it is there for servers that fell silent.
    pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

    /// Without password, database, TLS and compression.
    pub fn new(protocol: Protocol, endpoint: Endpoint, user: impl Into<String>) -> Target {
        Target {
            protocol,
            endpoint,
            user: user.into(),
            password: Secret::default(),
            database: None,
            tls: TlsMode::Disabled,
            tls_ca: None,
            tls_client: TlsClient::default(),
            is_compressed: false,
            connect_timeout: Self::CONNECT_TIMEOUT,
            statement_timeout: Self::STATEMENT_TIMEOUT,
        }
    }
}
