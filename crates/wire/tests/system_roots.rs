//! Verifying without `tls-ca` trusts the authorities of the system. A binary of its own: it says which file those are in.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use wire::Target;
use wire::blocking::Client;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

/// A PostgreSQL that agrees to TLS and lets anybody in; its port.
fn serve(authority: &Authority) -> u16 {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that does not trust this server hangs up.
            let _ = stream.and_then(|stream| let_in(stream, &config));
        }
    });
    port
}

fn let_in(mut stream: TcpStream, config: &Arc<ServerConfig>) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 8])?;
    stream.write_all(b"S")?;
    let session = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(session, stream);
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4])?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
    stream.flush()
}

#[test]
fn verifying_without_an_authority_trusts_those_of_the_system() {
    let (trusted, other) = (authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, &trusted.pem).unwrap();
    // SAFETY: there is no other thread yet that reads the environment.
    unsafe {
        std::env::set_var("SSL_CERT_FILE", &path);
        std::env::remove_var("SSL_CERT_DIR");
    }
    let known = serve(&trusted);
    let unknown = serve(&other);
    let connect = |host: &str, port: u16, mode: &str| {
        let target = Target::parse(&format!("postgres://u@{host}:{port}/db?tls={mode}")).unwrap();
        Client::connect(&target).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect("localhost", known, "verify-full"), Ok(()));
    assert_eq!(connect("127.0.0.1", known, "verify-ca"), Ok(()));
    let wrong_name = connect("127.0.0.1", known, "verify-full").unwrap_err();
    assert!(wrong_name.contains("another name"), "{wrong_name}");
    for mode in ["verify-ca", "verify-full"] {
        let refused = connect("localhost", unknown, mode).unwrap_err();
        assert!(refused.contains("that this system trusts"), "{refused}");
    }
    assert_eq!(connect("localhost", unknown, "required"), Ok(()));
}
