//! Private PostgreSQL servers with users of every log-in method.

use std::fs;
use std::time::{Duration, Instant};

use sandbox::build::Version;
use sandbox::{Listen, Sandbox};
use wire::blocking::Client;
use wire::{Endpoint, Protocol, Secret, Target, TlsMode};

/// Who may log in how. The socket and TCP accept the same methods, except for the user `tls`.
const HBA: &str = "
local   all postgres trust
local   all clear    password
local   all hashed   md5
local   all scram    METHOD
hostssl all tls      127.0.0.1/32 METHOD
host    all tls      127.0.0.1/32 reject
hostssl all shown    127.0.0.1/32 METHOD clientcert=SHOWN
hostssl all plimsoll 127.0.0.1/32 cert
host    all postgres 127.0.0.1/32 trust
host    all clear    127.0.0.1/32 password
host    all hashed   127.0.0.1/32 md5
host    all scram    127.0.0.1/32 METHOD
";

/// A password that SCRAM's escapes and SASLprep have something to do with.
pub(crate) const SCRAM_PASSWORD: &str = "pass,=w\u{00f6}rd\u{2168}";

/// A running server, removed when dropped.
pub(crate) struct Server {
    /// What it calls its version.
    pub(crate) version: String,
    /// PostgreSQL 10 and later.
    pub(crate) has_scram: bool,
    sandbox: Sandbox,
    port: u16,
}

/// `None` where the caller wants no servers; it has been said then what was not tested.
pub(crate) fn server(selector: &str) -> Option<Server> {
    let sandbox = sandbox::testing::server_with(selector, |spec| {
        spec.listen = Listen::FreePort;
        spec.tls = true;
    })?;
    let has_scram = sandbox.build().numbers() >= Version(10, 0, 0, 0);
    let port = sandbox.status().expect("the server runs").port.expect("it has a port");
    let server = Server { version: sandbox.build().name(), has_scram, sandbox, port };
    server.let_users_in();
    Some(server)
}

impl Server {
    fn let_users_in(&self) {
        let method = if self.has_scram { "scram-sha-256" } else { "md5" };
        let shown = if self.sandbox.build().numbers() >= Version(12, 0, 0, 0) { "verify-ca" } else { "1" };
        // The file exists and keeps its owner.
        let rules = HBA.replace("METHOD", method).replace("SHOWN", shown);
        fs::write(self.sandbox.datadir().join("pg_hba.conf"), rules).expect("write pg_hba.conf");
        let [md5, scram] = if self.has_scram { ["'md5'", "'scram-sha-256'"] } else { ["on", "on"] };
        let mut client = Client::connect(&self.target("postgres", "")).expect("the administrator");
        client
            .query(&format!(
                "CREATE USER clear PASSWORD 'clear-pw'; SET password_encryption = {md5}; \
                 CREATE USER hashed PASSWORD 'hashed-pw'; SET password_encryption = {scram}; \
                 CREATE USER scram PASSWORD '{SCRAM_PASSWORD}'; CREATE USER tls PASSWORD 'tls-pw'; \
                 CREATE USER shown PASSWORD 'shown-pw'; CREATE USER plimsoll; \
                 SELECT pg_reload_conf()"
            ))
            .expect("create users");
        // The server rereads the file a moment later.
        let give_up = Instant::now() + Duration::from_secs(60);
        while Client::connect(&self.target("hashed", "wrong")).is_ok() {
            assert!(Instant::now() < give_up, "the server does not take its new pg_hba.conf");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Over the unix socket.
    pub(crate) fn target(&self, user: &str, password: &str) -> Target {
        Target {
            protocol: Protocol::Postgres,
            user: user.into(),
            password: Secret::new(password),
            connect_timeout: Duration::from_secs(60),
            statement_timeout: Duration::from_secs(120),
            ..self.sandbox.target(None)
        }
    }

    /// The certificate of a client that its rules ask for.
    pub(crate) fn tls_client(&self) -> wire::TlsClient {
        self.sandbox.tls_client().expect("it has TLS")
    }

    /// Over TCP.
    pub(crate) fn tcp(&self, host: &str, user: &str, password: &str, tls: TlsMode) -> Target {
        Target {
            endpoint: Endpoint::Tcp { host: host.into(), port: self.port },
            tls,
            tls_ca: self.sandbox.tls_ca(),
            ..self.target(user, password)
        }
    }
}
