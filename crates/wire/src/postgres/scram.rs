//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL speaks it, client side, without IO.
//!
//! Ours rather than `postgres-protocol`'s because the nonce is passed in, so that the RFC's example can be a
//! test, and because the salted password can be kept: ten thousand sessions of one user then cost one
//! key derivation instead of ten thousand.

use std::cell::RefCell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::limits;

/// The SASL mechanism without channel binding.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// The SASL mechanism with channel binding: the proof holds for this TLS connection only, so that whoever stands
/// between client and server with a certificate of their own cannot pass it on.
pub(super) const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The highest iteration count accepted: a hostile server could otherwise keep a client busy for hours
/// (PostgreSQL's default is 4,096).
const ITERATIONS_MAX: u32 = 1_000_000;

/// What the client says about channel binding (RFC 5802, section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Binding {
    /// There is no TLS, or its certificate has no hash to bind to.
    Unsupported,
    /// It could be bound, but the server does not offer that. A server that did offer it sees from this that
    /// somebody took the offer away, and refuses.
    NotOffered,
    /// Bound to the hash of the server's certificate (`tls-server-end-point`, RFC 5929).
    EndPoint(Vec<u8>),
}

impl Binding {
    fn header(&self) -> &'static str {
        match self {
            Binding::Unsupported => "n,,",
            Binding::NotOffered => "y,,",
            Binding::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// What `c=` holds before its encoding.
    fn data(&self) -> Vec<u8> {
        let mut data = self.header().as_bytes().to_vec();
        if let Binding::EndPoint(hash) = self {
            data.extend_from_slice(hash);
        }
        data
    }
}

/// The client's side of one exchange.
#[derive(Debug)]
pub(super) struct Scram {
    password: String,
    nonce: String,
    binding: Binding,
    first_bare: String,
    server_signature: Option<[u8; 32]>,
}

impl Scram {
    /// Starts an exchange. `nonce`: printable ASCII without commas, fresh for every exchange. `user` is empty
    /// on PostgreSQL, which takes the name from the startup message.
    pub(super) fn new(user: &str, password: &str, nonce: &str, binding: Binding) -> Scram {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Scram {
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            binding,
            first_bare: format!("n={user},r={nonce}"),
            server_signature: None,
        }
    }

    /// `client-first-message`.
    pub(super) fn first(&self) -> String {
        format!("{}{}", self.binding.header(), self.first_bare)
    }

    /// Answers `server-first-message` with `client-final-message`.
    ///
    /// # Errors
    /// [`Error::Auth`] where the message is not what RFC 5802 allows.
    pub(super) fn answer(&mut self, server_first: &[u8]) -> Result<String, Error> {
        let server_first = text(server_first)?;
        let challenge = Challenge::parse(server_first)?;
        if !challenge.nonce.starts_with(&self.nonce) || challenge.nonce.len() == self.nonce.len() {
            return Err(Error::Auth("the server's SCRAM nonce does not continue ours".into()));
        }
        let salted = salted_password(&self.password, &challenge.salt, challenge.iterations);
        let without_proof = format!("c={},r={}", BASE64.encode(self.binding.data()), challenge.nonce);
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);

        let client_key = hmac(&salted, b"Client Key");
        let stored_key: [u8; 32] = Sha256::digest(client_key).into();
        let mut proof = hmac(&stored_key, auth_message.as_bytes());
        xor(&mut proof, &client_key);
        self.server_signature = Some(hmac(&hmac(&salted, b"Server Key"), auth_message.as_bytes()));
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)))
    }

    /// Whether the proof is bound to the server's certificate.
    pub(super) fn is_bound(&self) -> bool {
        matches!(self.binding, Binding::EndPoint(_))
    }

    /// Whether the challenge has been answered.
    pub(super) fn has_answered(&self) -> bool {
        self.server_signature.is_some()
    }

    /// Checks `server-final-message`: only a server that knows the password can make it.
    ///
    /// # Errors
    /// [`Error::Auth`] where the signature is missing or wrong, or no challenge came before.
    pub(super) fn finish(&self, server_final: &[u8]) -> Result<(), Error> {
        let server_final = text(server_final)?;
        if let Some(reason) = server_final.strip_prefix("e=") {
            let reason = limits::text(reason.as_bytes(), limits::ERROR_TEXT_BYTES_MAX);
            return Err(Error::Auth(format!("the server refused the SCRAM exchange: {reason}")));
        }
        let signature = server_final
            .split(',')
            .next()
            .and_then(|attribute| attribute.strip_prefix("v="))
            .and_then(|value| BASE64.decode(value).ok());
        match (self.server_signature, signature) {
            (Some(expected), Some(given)) if given == expected => Ok(()),
            _ => Err(Error::Auth("the server did not prove that it knows the password".into())),
        }
    }
}

/// `server-first-message`, taken apart.
struct Challenge<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: u32,
}

impl<'a> Challenge<'a> {
    fn parse(message: &'a str) -> Result<Challenge<'a>, Error> {
        let malformed = || Error::Auth("the server's SCRAM challenge is malformed".into());
        // A mandatory extension ("m=") would come first and must be refused (RFC 5802, section 5.1).
        let mut attributes = message.split(',');
        let mut next = |name: &str| attributes.next()?.strip_prefix(name);
        let nonce = next("r=").ok_or_else(malformed)?;
        let salt = next("s=").and_then(|s| BASE64.decode(s).ok()).ok_or_else(malformed)?;
        let iterations: u32 = next("i=").and_then(|i| i.parse().ok()).ok_or_else(malformed)?;
        if iterations == 0 || iterations > ITERATIONS_MAX {
            return Err(Error::Auth(format!(
                "the server wants {iterations} SCRAM iterations; 1 to {ITERATIONS_MAX} are accepted"
            )));
        }
        Ok(Challenge { nonce, salt, iterations })
    }
}

struct Salted {
    password: String,
    salt: Vec<u8>,
    iterations: u32,
    key: [u8; 32],
}

thread_local! {
    /// The last derived key of this thread: the sessions of a worker log in as one user, and a server gives
    /// one user one salt (RFC 5802, section 3, allows a client to keep it).
    static LAST: RefCell<Option<Salted>> = const { RefCell::new(None) };
}

fn salted_password(password: &str, salt: &[u8], iterations: u32) -> [u8; 32] {
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some(kept) = last.as_ref()
            && kept.password == password
            && kept.salt == salt
            && kept.iterations == iterations
        {
            return kept.key;
        }
        let key = derive(password, salt, iterations);
        *last = Some(Salted { password: password.to_owned(), salt: salt.to_vec(), iterations, key });
        key
    })
}

/// `Hi()` of RFC 5802, section 2.2: PBKDF2 with one block. Where SASLprep forbids the password, PostgreSQL
/// takes it as it is.
fn derive(password: &str, salt: &[u8], iterations: u32) -> [u8; 32] {
    let normalized = stringprep::saslprep(password);
    let password = normalized.as_deref().unwrap_or(password);
    // Cloning the keyed state saves hashing the key in each of the thousands of rounds.
    let keyed = keyed(password.as_bytes());
    let mut first = keyed.clone();
    first.update(salt);
    first.update(&1u32.to_be_bytes());
    let mut previous: [u8; 32] = first.finalize().into_bytes().into();
    let mut result = previous;
    for _ in 1..iterations {
        let mut round = keyed.clone();
        round.update(&previous);
        previous = round.finalize().into_bytes().into();
        xor(&mut result, &previous);
    }
    result
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = keyed(key);
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn xor(into: &mut [u8; 32], with: &[u8; 32]) {
    for (a, b) in into.iter_mut().zip(with) {
        *a ^= b;
    }
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Auth("a SCRAM message of the server is not text".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_example_of_rfc_7677() {
        let mut scram = Scram::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO", Binding::Unsupported);
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(
            scram.answer(SERVER_FIRST.as_bytes()).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        scram.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        // The kept key must give the same answer as the derived one.
        let mut again = Scram::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO", Binding::Unsupported);
        again.answer(SERVER_FIRST.as_bytes()).unwrap();
        again.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
    }

    /// The expected proof was computed with Python's hashlib.
    #[test]
    fn a_bound_proof_holds_the_hash_of_the_certificate() {
        let bind = |binding| Scram::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO", binding);
        let mut scram = bind(Binding::EndPoint((0..32).collect()));
        assert_eq!(scram.first(), "p=tls-server-end-point,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(
            scram.answer(SERVER_FIRST.as_bytes()).unwrap(),
            "c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=,\
             r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=nY1Wus9a+gM2DrbQ1msXFgyhW6KM5ktOxWiU+/P/EGY="
        );
        let mut other = bind(Binding::EndPoint(vec![0; 32]));
        let answer = |scram: &mut Scram| scram.answer(SERVER_FIRST.as_bytes()).unwrap();
        assert_ne!(answer(&mut other), answer(&mut scram));
        assert_eq!(bind(Binding::NotOffered).first(), "y,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_refused() {
        let mut scram = Scram::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO", Binding::Unsupported);
        scram.answer(SERVER_FIRST.as_bytes()).unwrap();
        assert!(scram.finish(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
        assert!(scram.finish(b"v=").is_err());
        assert!(scram.finish(b"e=invalid-proof").is_err());
        assert!(
            Scram::new("", "pencil", "abc", Binding::Unsupported).finish(b"v=").is_err(),
            "no challenge came before"
        );
    }

    #[test]
    fn malformed_challenges_are_errors() {
        for challenge in [
            "",
            "r=abc",
            "r=abcdef,s=!!,i=4096",
            "r=abcdef,s=AAAA,i=0",
            "r=abcdef,s=AAAA,i=4000000000",
            "r=abcdef,s=AAAA,i=99999999999999",
            "r=abc,s=AAAA,i=4096",
            "r=xyz,s=AAAA,i=4096",
            "m=ext,r=abcdef,s=AAAA,i=4096",
            "i=4096,r=abcdef,s=AAAA",
        ] {
            let answer = Scram::new("", "secret", "abc", Binding::Unsupported).answer(challenge.as_bytes());
            assert!(matches!(answer, Err(Error::Auth(_))), "{challenge}");
        }
        assert!(Scram::new("", "secret", "abc", Binding::Unsupported).answer(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn the_user_name_is_escaped() {
        assert_eq!(Scram::new("a,b=c", "", "x", Binding::Unsupported).first(), "n,,n=a=2Cb=3Dc,r=x");
    }
}
