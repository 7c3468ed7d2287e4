//! Certificates for sandboxes that offer TLS: an authority and a server certificate of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::Error;
use crate::process::Ids;

/// Whom the client's certificate is for.
const CLIENT_NAME: &str = "plimsoll";

/// Writes `ca.pem`, `server.pem` (for localhost and 127.0.0.1) and `server.key`, and `client.pem` and `client.key` for
/// users that have to show a certificate, into `dir`, which exists.
pub(crate) fn make(dir: &Path, ids: Option<Ids>) -> Result<(), Error> {
    let fail =
        |e: rcgen::Error| Error::io("make a certificate in", dir, std::io::Error::other(e.to_string()));
    let authority_key = rcgen::KeyPair::generate().map_err(fail)?;
    let mut authority = rcgen::CertificateParams::new(Vec::new()).map_err(fail)?;
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Plimsoll sandbox authority");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    let authority_pem = authority.self_signed(&authority_key).map_err(fail)?.pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let server_key = rcgen::KeyPair::generate().map_err(fail)?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut server = rcgen::CertificateParams::new(names).map_err(fail)?;
    server.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
    let server_pem = server.signed_by(&server_key, &issuer).map_err(fail)?.pem();
    let client_key = rcgen::KeyPair::generate().map_err(fail)?;
    let mut client = rcgen::CertificateParams::new(Vec::new()).map_err(fail)?;
    client.distinguished_name.push(rcgen::DnType::CommonName, CLIENT_NAME);
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client_pem = client.signed_by(&client_key, &issuer).map_err(fail)?.pem();
    // The authority is for clients to read; the key is for the server alone, and PostgreSQL checks that.
    write(&dir.join("ca.pem"), &authority_pem, 0o644, ids)?;
    write(&dir.join("server.pem"), &server_pem, 0o644, ids)?;
    write(&dir.join("server.key"), &server_key.serialize_pem(), 0o600, ids)?;
    write(&dir.join("client.pem"), &client_pem, 0o644, ids)?;
    write(&dir.join("client.key"), &client_key.serialize_pem(), 0o600, ids)
}

fn write(path: &Path, text: &str, mode: u32, ids: Option<Ids>) -> Result<(), Error> {
    let all = || -> std::io::Result<()> {
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        ids.map_or(Ok(()), |Ids { uid, gid }| chown(path, Some(uid), Some(gid)))
    };
    all().map_err(|e| Error::io("write", path, e))
}
