//! From the startup message to the first ReadyForQuery, without IO (PostgreSQL documentation, "Start-up").

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::{Digest, Md5};

use super::answer::parse_error;
use super::framing::Cursor;
use super::frontend;
use super::scram::{self, Binding, Scram};
use crate::limits::{self, LOGIN_BYTES_MAX};
use crate::{Error, Secret, Target};

/// What the connection has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Send what was appended, then read more.
    Read,
    /// The session is open.
    Ready,
}

/// How far authentication has come.
#[derive(Debug)]
enum Stage {
    /// The server has not asked yet.
    Started,
    /// The password was sent, in clear text or hashed.
    PasswordSent,
    /// SCRAM is under way.
    Scram(Box<Scram>),
    /// The server has proved that it knows the password too.
    ScramProved,
    /// The server lets us in.
    Accepted,
}

/// The log-in of one session.
#[derive(Debug)]
pub(super) struct Login {
    user: String,
    password: Secret,
    /// A password may travel as it is: nobody can overhear it.
    is_protected: bool,
    nonce: String,
    /// Hash of the server's certificate, where there is TLS and one that can be bound to.
    end_point: Option<Vec<u8>>,
    stage: Stage,
    /// `server_version` as the server reports it.
    pub(super) version: String,
    /// The server process of this session.
    pub(super) process_id: u32,
    /// What proves to the server that it is us who wants a statement of this session cancelled.
    pub(super) cancel_key: [u8; 4],
    /// The password's proof was bound to the server's certificate.
    pub(super) is_bound: bool,
}

/// How the connection is secured before anybody logs in.
#[derive(Debug, Default)]
pub(super) struct Security {
    /// A password may travel as it is: nobody can overhear it.
    pub(super) is_protected: bool,
    /// Hash of the server's certificate, where there is TLS and one that can be bound to.
    pub(super) end_point: Option<Vec<u8>>,
}

impl Login {
    /// Appends the startup message to `out`. `nonce`: fresh random bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a name with a zero byte in it.
    pub(super) fn start(
        target: &Target,
        security: Security,
        nonce: [u8; 18],
        out: &mut Vec<u8>,
    ) -> Result<Login, Error> {
        let mut parameters = vec![
            ("user", target.user.as_str()),
            ("client_encoding", "UTF8"),
            ("application_name", "plimsoll"),
        ];
        parameters.extend(target.database.as_deref().map(|name| ("database", name)));
        if parameters.iter().any(|(_, value)| value.contains('\0')) || target.password.reveal().contains('\0')
        {
            return Err(Error::Unsupported("user, password and database cannot hold a zero byte".into()));
        }
        frontend::startup(out, &parameters);
        Ok(Login {
            user: target.user.clone(),
            password: target.password.clone(),
            is_protected: security.is_protected,
            nonce: BASE64.encode(nonce),
            end_point: security.end_point,
            stage: Stage::Started,
            version: String::new(),
            process_id: 0,
            cancel_key: [0; 4],
            is_bound: false,
        })
    }

    /// Consumes from `bytes` what can be used, appends answers to `out`; returns how much was consumed.
    ///
    /// # Errors
    /// [`Error::Server`] where the server refuses, [`Error::Auth`] where the method cannot be used here,
    /// [`Error::Protocol`] for anything that may not come.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), Error> {
        let mut cursor = Cursor::new(bytes);
        while let Some(header) = cursor.header()? {
            if !matches!(header.tag, b'R' | b'S' | b'K' | b'N' | b'A' | b'v' | b'E' | b'Z') {
                return Err(Error::Protocol(format!(
                    "message {} may not come during log-in; is this a PostgreSQL server?",
                    header.tag.escape_ascii()
                )));
            }
            if header.body_bytes > LOGIN_BYTES_MAX {
                return Err(Error::Protocol(format!(
                    "message {} of {} bytes during log-in, where {LOGIN_BYTES_MAX} are allowed",
                    header.tag.escape_ascii(),
                    header.body_bytes
                )));
            }
            let Some(body) = cursor.take(header) else { break };
            match header.tag {
                b'R' => self.authenticate(body, out)?,
                b'S' => self.parameter(body),
                b'K' => {
                    self.process_id = body.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                    self.cancel_key = body.last_chunk().copied().unwrap_or_default();
                }
                b'E' => return Err(Error::Server(parse_error(body))),
                b'Z' if matches!(self.stage, Stage::Accepted) => {
                    return Ok((cursor.consumed(), Next::Ready));
                }
                b'Z' => return Err(Error::Protocol("the server is ready before it let us in".into())),
                // Notices, notifications, and NegotiateProtocolVersion: 3.0 is the oldest there is.
                _ => {}
            }
        }
        Ok((cursor.consumed(), Next::Read))
    }

    fn parameter(&mut self, body: &[u8]) {
        let mut fields = body.split(|&byte| byte == 0);
        if fields.next() == Some(b"server_version") {
            self.version = limits::text(fields.next().unwrap_or_default(), limits::NAME_BYTES_MAX);
        }
    }

    fn authenticate(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let (code, data) = body
            .split_first_chunk::<4>()
            .ok_or_else(|| Error::Protocol("malformed authentication request".into()))?;
        let stage = std::mem::replace(&mut self.stage, Stage::PasswordSent);
        self.stage = match (u32::from_be_bytes(*code), stage) {
            (0, Stage::Started | Stage::PasswordSent | Stage::ScramProved) => Stage::Accepted,
            (0, Stage::Scram(_)) => {
                return Err(Error::Auth("the server did not prove that it knows the password".into()));
            }
            (3, Stage::Started) => {
                if !self.is_protected {
                    return Err(Error::Auth(
                        "the server wants the password in clear text over an open network: use tls=required \
                         or a unix socket, or give the user a SCRAM password"
                            .into(),
                    ));
                }
                frontend::password(out, self.known_password()?);
                Stage::PasswordSent
            }
            (5, Stage::Started) => {
                let salt = data.first_chunk::<4>();
                let salt = salt.ok_or_else(|| Error::Protocol("malformed md5 request".into()))?;
                frontend::password(out, &md5_password(&self.user, self.known_password()?, *salt));
                Stage::PasswordSent
            }
            (10, Stage::Started) => {
                let (mechanism, binding) = self.mechanism(data)?;
                // PostgreSQL takes the name from the startup message and ignores the one in here.
                let scram = Scram::new("", self.known_password()?, &self.nonce, binding);
                frontend::sasl_initial(out, mechanism, scram.first().as_bytes());
                Stage::Scram(Box::new(scram))
            }
            (11, Stage::Scram(mut scram)) if !scram.has_answered() => {
                frontend::sasl_response(out, scram.answer(data)?.as_bytes());
                Stage::Scram(scram)
            }
            (12, Stage::Scram(scram)) => {
                scram.finish(data)?;
                self.is_bound = scram.is_bound();
                Stage::ScramProved
            }
            (code @ (2 | 6 | 7 | 8 | 9), _) => {
                let method = match code {
                    2 => "Kerberos 5",
                    6 => "SCM credentials",
                    9 => "SSPI",
                    _ => "GSSAPI",
                };
                return Err(Error::Auth(format!(
                    "the server wants {method}, which is not supported: allow trust, md5 or scram-sha-256 in \
                     pg_hba.conf"
                )));
            }
            (code, stage) => {
                return Err(Error::Protocol(format!(
                    "authentication request {code} may not come after {}",
                    stage.name()
                )));
            }
        };
        Ok(())
    }

    /// Which of the mechanisms that the server offers, and what is said about channel binding.
    fn mechanism(&self, offered: &[u8]) -> Result<(&'static str, Binding), Error> {
        let has = |wanted: &str| offered.split(|&byte| byte == 0).any(|name| name == wanted.as_bytes());
        match &self.end_point {
            Some(hash) if has(scram::MECHANISM_PLUS) => {
                Ok((scram::MECHANISM_PLUS, Binding::EndPoint(hash.clone())))
            }
            Some(_) if has(scram::MECHANISM) => Ok((scram::MECHANISM, Binding::NotOffered)),
            None if has(scram::MECHANISM) => Ok((scram::MECHANISM, Binding::Unsupported)),
            _ => Err(Error::Auth(format!(
                "the server offers {}, of which only {} and, over TLS, {} are known",
                limits::text(offered, limits::NAME_BYTES_MAX).trim_end_matches('\0').replace('\0', ", "),
                scram::MECHANISM,
                scram::MECHANISM_PLUS
            ))),
        }
    }

    fn known_password(&self) -> Result<&str, Error> {
        if self.password.is_empty() {
            return Err(Error::Auth(format!(
                "the server wants a password for user {:?} and none was given",
                self.user
            )));
        }
        Ok(self.password.reveal())
    }
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Stage::Started => "the startup message",
            Stage::PasswordSent => "the password",
            Stage::Scram(_) => "a SCRAM message",
            Stage::ScramProved => "the end of SCRAM",
            Stage::Accepted => "the end of authentication",
        }
    }
}

/// What PostgreSQL's md5 method sends: `md5` and the hash of (the hash of password and user) and salt.
fn md5_password(user: &str, password: &str, salt: [u8; 4]) -> String {
    let inner = hex(&Md5::new().chain_update(password).chain_update(user).finalize());
    format!("md5{}", hex(&Md5::new().chain_update(inner).chain_update(salt).finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{Endpoint, Protocol, TlsMode};

    fn target(password: &str) -> Target {
        Target {
            protocol: Protocol::Postgres,
            endpoint: Endpoint::Unix("/nowhere".into()),
            user: "me".into(),
            password: Secret::new(password),
            database: Some("db".into()),
            tls: TlsMode::Disabled,
            tls_ca: None,
            tls_client: crate::TlsClient::default(),
            is_compressed: false,
            connect_timeout: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(1),
        }
    }

    fn login(password: &str, is_protected: bool) -> Login {
        let security = Security { is_protected, end_point: None };
        Login::start(&target(password), security, [1; 18], &mut Vec::new()).unwrap()
    }

    fn login_over_tls(end_point: &[u8]) -> Login {
        let security = Security { is_protected: true, end_point: Some(end_point.to_vec()) };
        Login::start(&target("secret"), security, [1; 18], &mut Vec::new()).unwrap()
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    fn request(code: u32, data: &[u8]) -> Vec<u8> {
        message(b'R', &[&code.to_be_bytes(), data].concat())
    }

    #[test]
    fn trust() {
        let mut login = login("", false);
        let stream = [
            request(0, b""),
            message(b'S', b"server_version\x0015.18\0"),
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'N', b"SNOTICE\0\0"),
            message(b'K', &[0, 0, 1, 2, 9, 9, 9, 9]),
            message(b'Z', b"I"),
        ]
        .concat();
        let mut out = Vec::new();
        let mut at = 0;
        for end in 1..=stream.len() {
            let (consumed, next) = login.feed(&stream[at..end], &mut out).unwrap();
            at += consumed;
            assert_eq!(next == Next::Ready, end == stream.len());
        }
        assert_eq!((login.version.as_str(), login.process_id), ("15.18", 258));
        assert_eq!(login.cancel_key, [9; 4]);
        assert!(out.is_empty());
    }

    /// The expected hash was computed with Python's hashlib.
    #[test]
    fn md5() {
        let mut out = Vec::new();
        login("secret", false).feed(&request(5, &[1, 2, 3, 4]), &mut out).unwrap();
        assert_eq!(out, message(b'p', b"md58322d584bf59f0253d58346307bb6ba3\0"));
    }

    #[test]
    fn clear_text_only_where_nobody_listens() {
        let mut out = Vec::new();
        assert!(matches!(login("secret", false).feed(&request(3, b""), &mut out), Err(Error::Auth(_))));
        assert!(out.is_empty());
        login("secret", true).feed(&request(3, b""), &mut out).unwrap();
        assert_eq!(out, message(b'p', b"secret\0"));
    }

    #[test]
    fn a_missing_password_is_said_plainly() {
        for ask in [request(3, b""), request(5, &[1, 2, 3, 4]), request(10, b"SCRAM-SHA-256\0\0")] {
            let error = login("", true).feed(&ask, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("none was given"), "{error}");
        }
    }

    #[test]
    fn scram_cannot_be_cut_short() {
        let mut out = Vec::new();
        let mut half = login("secret", false);
        half.feed(&request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"), &mut out).unwrap();
        assert!(out.starts_with(b"p\0\0\0"));
        let first = format!("r={}more,s=AAAA,i=2", BASE64.encode([1; 18]));
        half.feed(&request(11, first.as_bytes()), &mut out).unwrap();
        assert!(matches!(half.feed(&request(0, b""), &mut out), Err(Error::Auth(_))));

        let mut again = login("secret", false);
        again.feed(&request(10, b"SCRAM-SHA-256\0\0"), &mut out).unwrap();
        again.feed(&request(11, first.as_bytes()), &mut out).unwrap();
        assert!(again.feed(&request(11, first.as_bytes()), &mut out).is_err(), "a second challenge");
        let mut early = login("secret", false);
        early.feed(&request(10, b"SCRAM-SHA-256\0\0"), &mut out).unwrap();
        assert!(early.feed(&request(12, b"v="), &mut out).is_err(), "a proof without a challenge");
    }

    #[test]
    fn over_tls_the_proof_is_bound_where_the_server_offers_it() {
        let sent = |mut login: Login, offer: &[u8]| {
            let mut out = Vec::new();
            login.feed(&request(10, offer), &mut out).unwrap();
            String::from_utf8_lossy(&out).into_owned()
        };
        let (both, plain) =
            (b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0".as_slice(), b"SCRAM-SHA-256\0\0".as_slice());
        let bound = sent(login_over_tls(&[7; 32]), both);
        assert!(
            bound.contains("SCRAM-SHA-256-PLUS\0") && bound.contains("p=tls-server-end-point,,"),
            "{bound}"
        );
        // A server that offers it and hears "y" knows that the offer was taken away on the way.
        assert!(sent(login_over_tls(&[7; 32]), plain).contains("y,,n="));
        let without = sent(login("secret", false), both);
        assert!(without.contains("SCRAM-SHA-256\0") && without.contains("n,,n="), "{without}");
        let only_bound =
            login("secret", false).feed(&request(10, b"SCRAM-SHA-256-PLUS\0\0"), &mut Vec::new());
        assert!(matches!(only_bound, Err(Error::Auth(_))));
    }

    #[test]
    fn what_is_out_of_order_is_refused() {
        for stream in [
            message(b'Z', b"I"),
            message(b'T', b"\0\0"),
            request(11, b""),
            request(12, b""),
            request(7, b""),
            request(99, b""),
            message(b'R', b"\0"),
            request(5, b"\0\0"),
            request(10, b"OTHER\0\0"),
            [request(3, b""), request(3, b"")].concat(),
            [request(0, b""), request(0, b"")].concat(),
            b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
            b"J\0\0\0\x0a5.5.5-10.11".to_vec(),
        ] {
            assert!(login("secret", true).feed(&stream, &mut Vec::new()).is_err(), "{stream:?}");
        }
        let refused = login("x", true).feed(&message(b'E', b"SFATAL\0C28P01\0Mno\0\0"), &mut Vec::new());
        assert!(matches!(refused, Err(Error::Server(error)) if error.code() == "28P01"));
    }

    proptest! {
        #[test]
        fn arbitrary_requests_never_panic(
            messages in prop::collection::vec(
                (prop::sample::select(b"RRRSKNAvEZ".to_vec()), 0u8..14, prop::collection::vec(any::<u8>(), 0..60)),
                0..12,
            ),
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut login = login("secret", true);
            for (tag, code, data) in messages {
                let body = [&[0, 0, 0, code], data.as_slice()].concat();
                if login.feed(&message(tag, &body), &mut Vec::new()).is_err() {
                    break;
                }
            }
            let _ = self::login("secret", false).feed(&noise, &mut Vec::new());
        }
    }
}
