//! Log-in methods, without any IO: packets in, answers out.
//! MySQL internals manual, "Authentication Method"; MySQL source documentation, "Caching_sha2_password
//! information"; MariaDB knowledge base, "Authentication Plugin - ed25519".

use curve25519_dalek::{EdwardsPoint, Scalar, scalar::clamp_integer};
use rsa::pkcs8::DecodePublicKey;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::answer::server_error;
use super::framing::{Reader, malformed};
use super::handshake::NONCE_BYTES;
use crate::error::Error;
use crate::limits;

const NATIVE: &[u8] = b"mysql_native_password";
const CACHING_SHA2: &[u8] = b"caching_sha2_password";
const ED25519: &[u8] = b"client_ed25519";
/// The server looks at the socket's owner and asks the client nothing.
const SOCKET_OWNER: [&[u8]; 2] = [b"auth_socket", b"unix_socket"];

/// caching_sha2_password: the server knows the password's hash; an OK follows.
const FAST_AUTH_SUCCESS: u8 = 3;
/// caching_sha2_password: the server wants the password itself.
const FULL_AUTH: u8 = 4;
/// caching_sha2_password: asks for the server's public key.
const REQUEST_PUBLIC_KEY: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Native,
    CachingSha2,
    Ed25519,
    SocketOwner,
}

impl Method {
    fn find(plugin: &[u8]) -> Option<Method> {
        match plugin {
            NATIVE => Some(Method::Native),
            CACHING_SHA2 => Some(Method::CachingSha2),
            ED25519 => Some(Method::Ed25519),
            other if SOCKET_OWNER.contains(&other) => Some(Method::SocketOwner),
            _ => None,
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this payload and wait.
    Send(Vec<u8>),
    /// Wait for the next packet.
    Wait,
    /// Logged in.
    Done,
}

/// A log-in under way.
pub(super) struct LoginProcess<'a> {
    password: &'a [u8],
    /// The transport cannot be overheard: the password itself may be sent.
    is_safe: bool,
    method: Method,
    nonce: [u8; NONCE_BYTES],
    awaits_key: bool,
}

impl std::fmt::Debug for LoginProcess<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginProcess").field("method", &self.method).finish_non_exhaustive()
    }
}

impl<'a> LoginProcess<'a> {
    /// Begins with the method that the greeting named. `is_safe`: TLS or a unix socket.
    pub(super) fn new(
        plugin: &[u8],
        nonce: [u8; NONCE_BYTES],
        password: &'a str,
        is_safe: bool,
    ) -> LoginProcess<'a> {
        // ed25519 needs a longer nonce than a greeting has, and a method that is not known here may not be the
        // user's either: the server will ask for another one.
        let method = match Method::find(plugin) {
            Some(Method::CachingSha2) => Method::CachingSha2,
            _ => Method::Native,
        };
        LoginProcess { password: password.as_bytes(), is_safe, method, nonce, awaits_key: false }
    }

    /// The method's name and its first answer, both for the log-in packet.
    pub(super) fn first_answer(&self) -> (&'static [u8], Vec<u8>) {
        match self.method {
            Method::CachingSha2 => (CACHING_SHA2, scramble_caching_sha2(&self.nonce, self.password)),
            _ => (NATIVE, scramble_native(&self.nonce, self.password)),
        }
    }

    /// Takes the server's next packet.
    pub(super) fn on_packet(&mut self, payload: &[u8]) -> Result<Step, Error> {
        match payload {
            [0x00, ..] => Ok(Step::Done),
            [0xff, ..] => Err(server_error(payload)),
            [0xfe] => Err(Error::Auth(
                "the account still has a password hash from before MySQL 4.1 (mysql_old_password), which is as good \
                 as none: set its password anew"
                    .into(),
            )),
            [0xfe, rest @ ..] => self.switch(rest),
            [0x01, rest @ ..] => self.more_data(rest),
            [] => malformed("an empty packet during the log-in"),
            [other, ..] => malformed(format!("packet {other:#04x} during the log-in")),
        }
    }

    fn switch(&mut self, request: &[u8]) -> Result<Step, Error> {
        let mut reader = Reader::new(request);
        let plugin = reader.null_terminated();
        let Some(method) = Method::find(plugin) else {
            return Err(Error::Auth(format!(
                "the account uses the method {:?}, which Plimsoll does not know: use an account with \
                 mysql_native_password, caching_sha2_password or ed25519",
                limits::text(plugin, limits::NAME_BYTES_MAX)
            )));
        };
        self.method = method;
        self.awaits_key = false;
        if method == Method::Ed25519 {
            let Some(nonce) = reader.rest().first_chunk::<32>() else {
                return malformed("an ed25519 challenge of less than 32 bytes");
            };
            return Ok(Step::Send(sign_ed25519(nonce, self.password)));
        }
        if method == Method::SocketOwner {
            return Ok(Step::Send(Vec::new()));
        }
        // A NUL follows the nonce. MariaDB sends no nonce anew if the method is the greeting's.
        if let Some(nonce) = reader.rest().first_chunk::<NONCE_BYTES>() {
            self.nonce = *nonce;
        } else if !reader.rest().is_empty() {
            return malformed("a log-in challenge of less than 20 bytes");
        }
        Ok(Step::Send(self.first_answer().1))
    }

    fn more_data(&mut self, data: &[u8]) -> Result<Step, Error> {
        if self.method != Method::CachingSha2 {
            return malformed("more log-in data than the method has");
        }
        if self.awaits_key {
            self.awaits_key = false;
            return encrypt_password(self.password, &self.nonce, data).map(Step::Send);
        }
        match data {
            [FAST_AUTH_SUCCESS] => Ok(Step::Wait),
            [FULL_AUTH] if self.is_safe => {
                let mut password = self.password.to_vec();
                password.push(0);
                Ok(Step::Send(password))
            }
            [FULL_AUTH] => {
                self.awaits_key = true;
                Ok(Step::Send(vec![REQUEST_PUBLIC_KEY]))
            }
            other => malformed(format!("caching_sha2_password sent {} bytes", other.len())),
        }
    }
}

fn xor(left: &mut [u8], right: &[u8]) {
    for (l, r) in left.iter_mut().zip(right) {
        *l ^= r;
    }
}

/// SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password))); nothing for an empty password.
fn scramble_native(nonce: &[u8; NONCE_BYTES], password: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let mut answer = Sha1::new().chain_update(nonce).chain_update(Sha1::digest(once)).finalize().to_vec();
    xor(&mut answer, &once);
    answer
}

/// SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce); nothing for an empty password.
fn scramble_caching_sha2(nonce: &[u8; NONCE_BYTES], password: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha256::digest(password);
    let mut answer = Sha256::new().chain_update(Sha256::digest(once)).chain_update(nonce).finalize().to_vec();
    xor(&mut answer, &once);
    answer
}

/// The password with its NUL, XORed with the nonce over and over, encrypted by RSA with OAEP (SHA-1).
fn encrypt_password(password: &[u8], nonce: &[u8; NONCE_BYTES], key_pem: &[u8]) -> Result<Vec<u8>, Error> {
    let unusable = |why: String| {
        Error::Auth(format!("the server's RSA key cannot be used ({why}): connect with tls=required"))
    };
    // A NUL may follow the text.
    let text = std::str::from_utf8(key_pem).map_err(|error| unusable(error.to_string()))?;
    let key = rsa::RsaPublicKey::from_public_key_pem(text.trim_matches(['\0', '\n', '\r', ' ']))
        .map_err(|error| unusable(error.to_string()))?;
    let mut secret = password.to_vec();
    secret.push(0);
    for chunk in secret.chunks_mut(NONCE_BYTES) {
        xor(chunk, nonce);
    }
    key.encrypt(&mut rsa::rand_core::OsRng, rsa::Oaep::new::<Sha1>(), &secret)
        .map_err(|error| unusable(error.to_string()))
}

/// RFC 8032, section 5.1.6, with the SHA-512 of the password where the RFC has that of a 32-byte secret key.
fn sign_ed25519(nonce: &[u8; 32], password: &[u8]) -> Vec<u8> {
    let expanded: [u8; 64] = Sha512::digest(password).into();
    let (mut secret, mut prefix) = ([0; 32], [0; 32]);
    secret.copy_from_slice(&expanded[..32]);
    prefix.copy_from_slice(&expanded[32..]);
    let s = Scalar::from_bytes_mod_order(clamp_integer(secret));
    let public = EdwardsPoint::mul_base(&s).compress();
    let hash = |parts: [&[u8]; 3]| {
        let digest = parts.iter().fold(Sha512::new(), |digest, part| digest.chain_update(part)).finalize();
        Scalar::from_bytes_mod_order_wide(&digest.into())
    };
    let r = hash([&prefix, nonce, &[]]);
    let commitment = EdwardsPoint::mul_base(&r).compress();
    let k = hash([commitment.as_bytes(), public.as_bytes(), nonce]);
    let mut signature = commitment.as_bytes().to_vec();
    signature.extend_from_slice((k * s + r).as_bytes());
    signature
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONCE: [u8; 20] = *b"NR3HP:qIYa_9=db?Sd{`";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn switch_to(plugin: &[u8], nonce: &[u8]) -> Vec<u8> {
        [&[0xfe], plugin, &[0], nonce, &[0]].concat()
    }

    #[test]
    fn an_empty_password_is_no_bytes() {
        for plugin in [NATIVE, CACHING_SHA2] {
            let process = LoginProcess::new(plugin, NONCE, "", false);
            assert_eq!(process.first_answer(), (plugin, Vec::new()));
        }
    }

    #[test]
    fn full_sha2_sends_the_password_only_where_nobody_listens() {
        let mut safe = LoginProcess::new(CACHING_SHA2, NONCE, "s3cret", true);
        assert_eq!(safe.on_packet(&[1, 4]).unwrap(), Step::Send(b"s3cret\0".to_vec()));
        let mut open = LoginProcess::new(CACHING_SHA2, NONCE, "s3cret", false);
        assert_eq!(open.on_packet(&[1, 4]).unwrap(), Step::Send(vec![2]));
        let error =
            open.on_packet(b"\x01-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").unwrap_err();
        assert!(matches!(error, Error::Auth(_)), "{error}");
    }

    #[test]
    fn fast_sha2_then_done() {
        let mut process = LoginProcess::new(CACHING_SHA2, NONCE, "x", false);
        assert_eq!(process.on_packet(&[1, 3]).unwrap(), Step::Wait);
        assert_eq!(process.on_packet(&[0, 0, 0, 2, 0, 0, 0]).unwrap(), Step::Done);
    }

    #[test]
    fn switching_takes_the_new_nonce() {
        let mut process = LoginProcess::new(CACHING_SHA2, [1; 20], "pass", false);
        let Step::Send(answer) = process.on_packet(&switch_to(NATIVE, &NONCE)).unwrap() else { panic!() };
        assert_eq!(answer, LoginProcess::new(NATIVE, NONCE, "pass", false).first_answer().1);
    }

    #[test]
    fn unknown_methods_are_named() {
        let mut process = LoginProcess::new(NATIVE, NONCE, "x", false);
        let error =
            process.on_packet(&switch_to(b"authentication_kerberos_client", b"")).unwrap_err().to_string();
        assert!(
            error.contains("authentication_kerberos_client") && error.contains("use an account"),
            "{error}"
        );
        let old = process.on_packet(&[0xfe]).unwrap_err().to_string();
        assert!(old.contains("mysql_old_password"), "{old}");
    }

    #[test]
    fn known_answers() {
        // Computed with Python's hashlib from the formulas in the manual.
        assert_eq!(hex(&scramble_native(&NONCE, b"s3cret")), "b70359f65daaf7e2b077401390af05de0650cbd5");
        assert_eq!(
            hex(&scramble_caching_sha2(&NONCE, b"s3cret")),
            "e8c64ede38c1a0f4733f2118417d6d9a67f9ab24aa6747e84862c4f44d696c41"
        );
        // Computed with a plain Python implementation of RFC 8032 whose own test vectors pass.
        assert_eq!(
            hex(&sign_ed25519(b"0123456789abcdefghijklmnopqrstuv", b"s3cret")),
            "c4106e57406edb09acbde67186a838891273d42617e8dbe411fc77095546dd93710b2d8323302005f51eedcb119a0aeef8d5d9bbc0cd63187002fcf013a67303"
        );
    }

    #[test]
    fn rsa_answers_can_be_read_with_the_private_key() {
        use rsa::pkcs8::EncodePublicKey;
        let private = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 1024).unwrap();
        let pem = private.to_public_key().to_public_key_pem(rsa::pkcs8::LineEnding::LF).unwrap();
        let password = b"a password that is longer than the nonce";
        let sent = encrypt_password(password, &NONCE, pem.as_bytes()).unwrap();
        let mut plain = private.decrypt(rsa::Oaep::new::<Sha1>(), &sent).unwrap();
        for chunk in plain.chunks_mut(NONCE_BYTES) {
            xor(chunk, &NONCE);
        }
        assert_eq!(plain, [password.as_slice(), b"\0"].concat());
        // More than the key can carry is an error, not a panic.
        assert!(matches!(encrypt_password(&[b'x'; 200], &NONCE, pem.as_bytes()), Err(Error::Auth(_))));
    }

    proptest! {
        #[test]
        fn any_packets_are_no_panic(
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5),
            is_safe: bool,
        ) {
            let mut process = LoginProcess::new(CACHING_SHA2, NONCE, "x", is_safe);
            for packet in &packets {
                let _ = process.on_packet(packet);
            }
        }
    }
}
