//! Certificates that no server knows.

use wire::TlsClient;

/// A client's certificate that nobody but itself vouches for, in a directory that lives as long as it is needed.
pub(crate) fn strangers(name: &str) -> (tempfile::TempDir, TlsClient) {
    let dir = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).expect("a certificate");
    let [certificate_path, key_path] = ["client.pem", "client.key"].map(|file| dir.path().join(file));
    std::fs::write(&certificate_path, certificate.pem()).expect("write the certificate");
    std::fs::write(&key_path, key.serialize_pem()).expect("write the key");
    let client =
        TlsClient { certificate: Some(certificate_path), key: Some(key_path), ciphers: String::new() };
    (dir, client)
}
