//! TLS as a target asks for it: the certificate policies of [`TlsMode`], and its errors in words.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::error::Error;
use crate::target::{Endpoint, Target, TlsMode};

mod client;
pub(crate) mod end_point;

/// A session that has not shaken hands yet.
pub(crate) fn begin(target: &Target) -> Result<ClientConnection, Error> {
    let config = client_config(target)?;
    let name = server_name(target)?;
    ClientConnection::new(config, name)
        .map_err(|error| Error::Tls(format!("the handshake cannot begin: {error}")))
}

const OLD_TLS: &str = "the server offers no TLS 1.2 or newer (as MySQL 5.5 and 5.6 and MariaDB 10.1 and 10.2 \
     built with yaSSL), and Plimsoll speaks nothing older: use tls=disabled over a unix socket or a trusted \
     network, or a server built with OpenSSL";

pub(crate) fn handshake_io(error: io::Error, answered: bool) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            closed_in_handshake(answered)
        }
        _ => Error::Io(error),
    }
}

/// yaSSL hangs up on a ClientHello that it cannot serve.
pub(crate) fn closed_in_handshake(answered: bool) -> Error {
    Error::Tls(if answered {
        "the server closed the connection during the handshake: its log may say why".into()
    } else {
        format!("the server closed the connection at the handshake; most likely {OLD_TLS}")
    })
}

/// What ended a log-in over TLS, in words. In TLS 1.3 a server judges the client's certificate after the handshake is
/// over for the client; its answer comes with the first read, or not at all where it has hung up meanwhile.
pub(crate) fn login_error(error: Error, target: &Target) -> Error {
    let Error::Io(cause) = error else { return error };
    if let Some(alert) = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return handshake_error(alert);
    }
    let is_gone = matches!(
        cause.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
    );
    match &target.tls_client.certificate {
        Some(path) if is_gone && target.tls != TlsMode::Disabled => Error::Tls(format!(
            "the server hung up at the log-in ({cause}): it may not take the client's certificate {}; its log says why",
            path.display()
        )),
        _ => Error::Io(cause),
    }
}

pub(crate) fn handshake_error(error: &rustls::Error) -> Error {
    use rustls::Error as R;
    Error::Tls(match error {
        R::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied,
        ) => format!(
            "the server does not take the client's certificate ({error}): tls-cert has to name one from an authority that \
             the server knows, and tls-key its key"
        ),
        R::PeerIncompatible(_)
        | R::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        ) => format!("{OLD_TLS} ({error})"),
        // yaSSL cannot frame an answer to a modern ClientHello; what it sends is no TLS 1.2 record.
        R::InvalidMessage(_) => format!("the server's answer cannot be read; most likely {OLD_TLS} ({error})"),
        // A bad signature: another authority of the same name.
        R::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the server's certificate does not come from the authority in tls-ca (without tls-ca: from none that this system \
             trusts): name the right file, or use tls=required to encrypt without checking"
                .into()
        }
        R::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
            format!("the server's certificate is for another name ({error}): use tls=verify-ca to check the authority only")
        }
        other => other.to_string(),
    })
}

/// The words for a failure of TLS that is among the causes of another client's error; `None`: it is none.
pub fn in_words(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // An error of IO does not name what it wraps as its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = wrapped.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref());
        if let Some(found) = found {
            return Some(handshake_error(found));
        }
        cause = error.source();
    }
    None
}

fn server_name(target: &Target) -> Result<ServerName<'static>, Error> {
    match &target.endpoint {
        Endpoint::Tcp { host, .. } => ServerName::try_from(host.clone())
            .map_err(|_| Error::Tls(format!("{host:?} is not a name that a certificate can be for"))),
        Endpoint::Unix(path) if target.tls == TlsMode::VerifyFull => Err(Error::Tls(format!(
            "tls=verify-full needs a host name and {} is a unix socket: use tls=verify-ca",
            path.display()
        ))),
        Endpoint::Unix(_) => {
            ServerName::try_from("localhost").map_err(|_| Error::Tls("localhost is no server name".into()))
        }
    }
}

/// What a target asks for, for rustls: here, and in other clients of the same server.
///
/// # Errors
/// A file of certificates or keys cannot be used, or there is no such cipher.
pub fn client_config(target: &Target) -> Result<Arc<ClientConfig>, Error> {
    let mut provider = ring::default_provider();
    client::limit_ciphers(&mut provider, &target.tls_client.ciphers)?;
    let provider = Arc::new(provider);
    let authority = match target.tls {
        TlsMode::VerifyFull => Some(Authority::new(target, true, &provider)?),
        TlsMode::VerifyCa => Some(Authority::new(target, false, &provider)?),
        TlsMode::Required | TlsMode::Preferred | TlsMode::Disabled => None,
    };
    let verifier = Verifier { provider: Arc::clone(&provider), authority };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match client::identity(&target.tls_client)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            Error::Tls(format!("the client's certificate and key do not belong together: {error}"))
        })?,
        None => builder.with_no_client_auth(),
    };
    // Each session has its own configuration, hence nothing to resume; the store would be its largest part.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Judges the server's certificate as the target's mode asks. Signatures of the handshake are checked in every mode.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` encrypts without knowing to whom: what `preferred` and `required` promise, no more.
    authority: Option<Authority>,
}

/// Whom a chain of certificates has to come from.
#[derive(Debug)]
struct Authority {
    chain: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    checks_name: bool,
}

impl Authority {
    fn new(target: &Target, checks_name: bool, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let (trusted, roots, place) = match target.tls_ca.as_deref() {
            None => (system_roots()?, Vec::new(), "the authorities of this system".to_owned()),
            Some(path) => {
                let roots = client::certificates(path)?;
                let mut store = RootCertStore::empty();
                for root in &roots {
                    store.add(root.clone()).map_err(|error| {
                        Error::Tls(format!("{}: not a usable authority: {error}", path.display()))
                    })?;
                }
                (Arc::new(store), roots, path.display().to_string())
            }
        };
        let chain = WebPkiServerVerifier::builder_with_provider(trusted, Arc::clone(provider))
            .build()
            .map_err(|error| Error::Tls(format!("{place}: {error}")))?;
        Ok(Authority { chain, roots, checks_name })
    }
}

/// The authorities that this system trusts, read once: each session has a configuration of its own.
fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let loaded = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(loaded.certs);
    if usable == 0 {
        let why = loaded.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::Tls(format!(
            "this system trusts no authority{why}: add tls-ca=/path/to/ca.pem, or install ca-certificates"
        )));
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(store))))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(Authority { chain, roots, checks_name }) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let checked = chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !checks_name => Ok(ServerCertVerified::assertion()),
            // A self-signed certificate that is itself the trusted file is no chain, yet the closest match there
            // is: servers that make their own are verified this way.
            Err(rustls::Error::InvalidCertificate(_)) if !checks_name && roots.contains(end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
