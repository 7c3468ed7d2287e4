//! Private MySQL and MariaDB servers.

use std::path::PathBuf;

use sandbox::{Flavor, Listen, Sandbox};
use wire::{Endpoint, Target, TlsClient, TlsMode};

/// A running server, removed when dropped.
pub(crate) struct Server {
    sandbox: Sandbox,
    port: u16,
    /// An authority of nobody's.
    dir: tempfile::TempDir,
    /// Sessions ask for the compressed protocol.
    is_compressed: bool,
}

/// A server with TLS and a TCP port. `None` where the caller wants no servers; it has been said then what was not
/// tested.
pub(crate) fn server(selector: &str) -> Option<Server> {
    let mut sandbox = sandbox::testing::server_with(selector, |spec| {
        spec.listen = Listen::FreePort;
        spec.tls = has_tls(selector);
    })?;
    if has_tls(selector) && selector_is_old(selector) {
        use_rsa(&mut sandbox);
    }
    let port = sandbox.status().expect("the server runs").port.expect("it has a port");
    Some(Server { sandbox, port, dir: directory(), is_compressed: false })
}

/// This build was made without.
fn has_tls(selector: &str) -> bool {
    selector != "mysql@5.5.9"
}

/// Whether builds of this version that can be fetched have yaSSL.
pub(crate) fn selector_is_old(selector: &str) -> bool {
    ["mysql@5.5", "mysql@5.6", "mariadb@10.1", "mariadb@10.2"].iter().any(|old| selector.starts_with(old))
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let other = params.self_signed(&key).expect("an authority");
    std::fs::write(dir.path().join("other-ca.pem"), other.pem()).expect("write other-ca.pem");
    dir
}

/// Certificate and key of a kind that yaSSL can read; the sandbox's are of another. They protect nothing.
fn use_rsa(sandbox: &mut Sandbox) {
    let ca = sandbox.tls_ca().expect("it has TLS");
    let certificate = include_str!("../fixtures/rsa.pem");
    // The files exist and keep their owner.
    for (name, text) in [
        ("ca.pem", certificate),
        ("server.pem", certificate),
        ("server.key", include_str!("../fixtures/rsa-key.pem")),
    ] {
        std::fs::write(ca.with_file_name(name), text).expect("write a certificate");
    }
    sandbox.restart().expect("the server starts again");
}

impl Server {
    pub(crate) fn name(&self) -> String {
        self.sandbox.build().name()
    }

    /// From now on sessions ask for the compressed protocol.
    pub(crate) fn compress(&mut self) {
        self.is_compressed = true;
    }

    /// The administrator over the unix socket.
    pub(crate) fn target(&self) -> Target {
        Target { is_compressed: self.is_compressed, ..self.sandbox.target(None) }
    }

    pub(crate) fn port(&self, host: &str) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port: self.port }
    }

    pub(crate) fn verified(&self, target: &Target) -> Target {
        Target { tls: TlsMode::VerifyCa, tls_ca: self.sandbox.tls_ca(), ..target.clone() }
    }

    /// A certificate of the server's authority for a client.
    pub(crate) fn tls_client(&self) -> TlsClient {
        self.sandbox.tls_client().expect("it has TLS")
    }

    /// An authority that has nothing to do with the server.
    pub(crate) fn other_ca(&self) -> Option<PathBuf> {
        Some(self.dir.path().join("other-ca.pem"))
    }

    fn is_mysql_8(&self) -> bool {
        self.sandbox.build().flavor != Flavor::Mariadb && self.name().starts_with("mysql@8")
    }

    /// An account with a native password.
    pub(crate) fn identified(&self, password: &str) -> String {
        let method = if self.is_mysql_8() { "WITH mysql_native_password " } else { "" };
        format!("IDENTIFIED {method}BY '{password}'")
    }

    /// Whether times have fractions of seconds.
    pub(crate) fn has_fractions(&self) -> bool {
        !self.name().starts_with("mysql@5.5")
    }

    /// Part of what the server calls its version.
    pub(crate) fn version(&self) -> String {
        self.name().split('@').nth(1).unwrap_or_default().split('+').next().unwrap_or_default().to_owned()
    }
}
