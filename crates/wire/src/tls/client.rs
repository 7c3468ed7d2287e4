//! What the client brings along: its certificate, and the ciphers that it is told to use.

use std::path::Path;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;
use crate::target::TlsClient;

/// All certificates of a PEM file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unusable = |error| Error::Tls(format!("{}: cannot read certificates: {error}", path.display()));
    let all: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(unusable)?.collect::<Result<_, _>>().map_err(unusable)?;
    if all.is_empty() {
        return Err(Error::Tls(format!("{}: holds no certificate", path.display())));
    }
    Ok(all)
}

/// The client's certificates, its own first, and its key.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What to show a server that asks; `None` where there is nothing.
pub(super) fn identity(client: &TlsClient) -> Result<Option<Identity>, Error> {
    let Some(certificate) = &client.certificate else {
        return match &client.key {
            Some(key) => Err(Error::Tls(format!(
                "the key {} belongs to no certificate: add tls-cert=/path/client.pem",
                key.display()
            ))),
            None => Ok(None),
        };
    };
    let path = client.key.as_ref().unwrap_or(certificate);
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let remedy = match &client.key {
            Some(_) => "it has to be a PEM file without a passphrase",
            None => "add tls-key=/path/client.key",
        };
        Error::Tls(format!("{}: cannot read a private key: {error}: {remedy}", path.display()))
    })?;
    Ok(Some((certificates(certificate)?, key)))
}

/// Leaves only the named cipher suites of each version of TLS that a name belongs to, as OpenSSL does. Names of suites
/// that are not safe enough for us, as `AES256-SHA`, are passed over while another one is left.
pub(super) fn limit_ciphers(provider: &mut CryptoProvider, names: &str) -> Result<(), Error> {
    let wanted: Vec<String> =
        names.split([':', ',', ' ']).filter(|name| !name.is_empty()).map(openssl_name).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let of = |suite: &rustls::SupportedCipherSuite| openssl_name(suite.suite().as_str().unwrap_or_default());
    let is_wanted = |suite: &rustls::SupportedCipherSuite| wanted.contains(&of(suite));
    let limited: Vec<_> =
        provider.cipher_suites.iter().filter(|suite| is_wanted(suite)).map(|suite| suite.version()).collect();
    if limited.is_empty() {
        let known: Vec<String> = provider.cipher_suites.iter().map(of).collect();
        return Err(Error::Tls(format!(
            "no cipher of {names:?} can be used: there are {}",
            known.join(", ")
        )));
    }
    provider.cipher_suites.retain(|suite| is_wanted(suite) || !limited.contains(&suite.version()));
    Ok(())
}

/// IANA's name (`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`) as OpenSSL writes it (`ECDHE-RSA-AES128-GCM-SHA256`); those of
/// TLS 1.3 have one name (`TLS_AES_128_GCM_SHA256`).
fn openssl_name(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    match name.strip_prefix("TLS_") {
        Some(rest) if rest.contains("_WITH_") => rest
            .replace("_WITH_", "-")
            .replace("AES_", "AES")
            .replace('_', "-")
            .replace("POLY1305-SHA256", "POLY1305"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::*;

    fn limited(names: &str) -> Result<Vec<String>, String> {
        let mut provider = ring::default_provider();
        limit_ciphers(&mut provider, names).map_err(|error| error.to_string())?;
        Ok(provider.cipher_suites.iter().map(|suite| openssl_name(suite.suite().as_str().unwrap())).collect())
    }

    const ALL_OF_13: [&str; 3] =
        ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];

    #[test]
    fn a_name_limits_its_own_version() {
        for name in ["ECDHE-RSA-AES128-GCM-SHA256", "tls_ecdhe_rsa_with_aes_128_gcm_sha256"] {
            assert_eq!(limited(name).unwrap(), [&ALL_OF_13[..], &["ECDHE-RSA-AES128-GCM-SHA256"]].concat());
        }
        let left = limited("TLS_AES_128_GCM_SHA256").unwrap();
        assert_eq!(left[0], "TLS_AES_128_GCM_SHA256");
        assert_eq!(left.len(), 1 + 6, "those of TLS 1.2 stay: {left:?}");
        let both = "AES256-SHA:TLS_CHACHA20_POLY1305_SHA256,ECDHE-ECDSA-CHACHA20-POLY1305";
        assert_eq!(limited(both).unwrap(), ["TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]);
        assert_eq!(limited("").unwrap().len(), 9);
    }

    #[test]
    fn ciphers_that_nobody_should_use_are_refused() {
        let error = limited("AES256-SHA:RC4-MD5").unwrap_err();
        assert!(error.contains("AES256-SHA") && error.contains("ECDHE-RSA-AES256-GCM-SHA384"), "{error}");
    }

    #[test]
    fn half_an_identity_is_refused_with_a_remedy() {
        let key_alone = TlsClient { key: Some("/k.pem".into()), ..TlsClient::default() };
        assert!(identity(&key_alone).unwrap_err().to_string().contains("tls-cert"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        std::fs::write(&path, &certificate).unwrap();
        let mut client = TlsClient { certificate: Some(path.clone()), ..TlsClient::default() };
        assert!(identity(&client).unwrap_err().to_string().contains("tls-key"));
        // Both in one file, as the tools of many servers write them.
        std::fs::write(&path, format!("{certificate}{}", key.serialize_pem())).unwrap();
        assert_eq!(identity(&client).unwrap().unwrap().0.len(), 1);
        client.key = Some(dir.path().join("missing.key"));
        let error = identity(&client).unwrap_err().to_string();
        assert!(error.contains("missing.key") && error.contains("passphrase"), "{error}");
        assert!(identity(&TlsClient::default()).unwrap().is_none());
    }
}
