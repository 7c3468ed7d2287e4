//! Targets written as URLs.

use std::path::PathBuf;
use std::time::Duration;

use crate::target::{Endpoint, Protocol, Secret, Target, TlsMode};

/// Why a URL is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{problem}; a server is written as mysql://user:password@host:port/database or \
         postgres://user:password@host:port/database, with ?socket=/path for a unix socket and \
         tls=disabled|preferred|required|verify-ca|verify-full, tls-ca=/path/ca.pem, tls-cert=/path/client.pem, \
         tls-key=/path/client.key, tls-cipher=NAME:NAME, compression=on (MySQL), connect-timeout=SECONDS, statement-timeout=SECONDS"
)]
pub struct TargetError {
    /// What is wrong. Never holds the password.
    pub problem: String,
}

fn wrong<R>(problem: impl Into<String>) -> Result<R, TargetError> {
    Err(TargetError { problem: problem.into() })
}

impl Target {
    /// Reads `mysql://user:password@host:port/database?socket=/path&tls=verify-ca&tls-ca=/ca.pem` (also
    /// `mariadb://`) and `postgres://...` (also `postgresql://`; `host=/dir` names the socket's directory). What other
    /// tools call the options of TLS is understood too: libpq's `sslmode`, `sslrootcert`, `sslcert` and `sslkey`, and
    /// `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key` and `ssl-cipher` of MySQL's.
    /// User, password, database and values may be percent-encoded.
    ///
    /// Where the URL says nothing about TLS, a host that is not this machine is spoken to over TLS if it offers that
    /// ([`TlsMode::Preferred`]), and this machine is not.
    pub fn parse(url: &str) -> Result<Target, TargetError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong("a server's URL begins with mysql:// or postgres://");
        };
        let protocol = match scheme {
            "mysql" | "mariadb" | "percona" => Protocol::Mysql,
            "postgres" | "postgresql" => Protocol::Postgres,
            other => return wrong(format!("unknown protocol {other:?}")),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return wrong(
                "there is an @ behind the first / of the URL: a / in a password is written as %2F, an @ in a database's \
                 name as %40",
            );
        }
        let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = parse_address(address)?;
        let endpoint = Endpoint::Tcp { host, port: port.unwrap_or(protocol.default_port()) };
        let user = decode(user)?;
        let mut target = Target {
            password: Secret::new(decode(password)?),
            database: Some(decode(path)?).filter(|name| !name.is_empty()),
            ..Target::new(protocol, endpoint, user)
        };
        let mut says_tls = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            says_tls |= TLS_KEYS.contains(&key);
            target.apply(&decode(key)?, decode(value)?)?;
        }
        if !says_tls && !target.endpoint.is_this_machine() {
            target.tls = TlsMode::Preferred;
        }
        if target.user.is_empty() {
            target.user = match protocol {
                Protocol::Mysql => "root".into(),
                Protocol::Postgres => "postgres".into(),
            };
        }
        Ok(target)
    }

    fn apply(&mut self, key: &str, value: String) -> Result<(), TargetError> {
        match key {
            "socket" => self.endpoint = self.unix_endpoint(value),
            // libpq's spelling: a host that begins with a slash is the socket's directory.
            "host" if value.starts_with('/') => self.endpoint = self.unix_endpoint(value),
            "host" => {
                let port = self.port();
                self.endpoint = Endpoint::Tcp { host: value, port };
            }
            "port" => {
                let Ok(new_port) = value.parse::<u16>() else { return bad_port(&value) };
                self.set_port(new_port);
            }
            "user" => self.user = value,
            "password" => self.password = Secret::new(value),
            "tls" => self.tls = parse_tls(&value)?,
            "sslmode" | "ssl-mode" => self.tls = parse_ssl_mode(&value)?,
            "tls-ca" | "ssl-ca" | "sslrootcert" => self.tls_ca = Some(PathBuf::from(value)),
            "tls-cert" | "ssl-cert" | "sslcert" => self.tls_client.certificate = Some(PathBuf::from(value)),
            "tls-key" | "ssl-key" | "sslkey" => self.tls_client.key = Some(PathBuf::from(value)),
            "tls-cipher" | "ssl-cipher" => self.tls_client.ciphers = value,
            "compression" => self.is_compressed = self.parse_compression(&value)?,
            "connect-timeout" => self.connect_timeout = parse_seconds(key, &value)?,
            "statement-timeout" => self.statement_timeout = parse_seconds(key, &value)?,
            other => return unknown_option(other),
        }
        Ok(())
    }

    fn parse_compression(&self, value: &str) -> Result<bool, TargetError> {
        match (value, self.protocol) {
            ("on", Protocol::Postgres) => wrong("PostgreSQL has no compressed protocol"),
            ("on", Protocol::Mysql) => Ok(true),
            ("off", _) => Ok(false),
            (other, _) => wrong(format!("compression is on or off, not {other:?}")),
        }
    }

    fn port(&self) -> u16 {
        match &self.endpoint {
            Endpoint::Tcp { port, .. } => *port,
            Endpoint::Unix(path) => postgres_socket_port(path).unwrap_or(self.protocol.default_port()),
        }
    }

    fn set_port(&mut self, new_port: u16) {
        match &mut self.endpoint {
            Endpoint::Tcp { port, .. } => *port = new_port,
            // On PostgreSQL the port is part of the socket's name.
            Endpoint::Unix(path) if postgres_socket_port(path).is_some() => {
                path.set_file_name(format!(".s.PGSQL.{new_port}"));
            }
            Endpoint::Unix(_) => {}
        }
    }

    fn unix_endpoint(&self, path: String) -> Endpoint {
        let path = PathBuf::from(path);
        if self.protocol == Protocol::Postgres && postgres_socket_port(&path).is_none() {
            return Endpoint::Unix(path.join(format!(".s.PGSQL.{}", self.port())));
        }
        Endpoint::Unix(path)
    }
}

fn postgres_socket_port(path: &std::path::Path) -> Option<u16> {
    path.file_name()?.to_str()?.strip_prefix(".s.PGSQL.")?.parse().ok()
}

/// `host`, `host:port`, `[v6]:port`; an empty host is this machine.
fn parse_address(address: &str) -> Result<(String, Option<u16>), TargetError> {
    let (host, port) = if let Some(rest) = address.strip_prefix('[') {
        let Some((host, rest)) = rest.split_once(']') else {
            return wrong(format!("{address:?}: a bracket is not closed"));
        };
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return wrong(format!("{address:?}: expected a port after the bracket")),
        }
    } else {
        match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    let port = match port {
        None | Some("") => None,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return bad_port(text),
        },
    };
    let host = decode(host)?;
    Ok((if host.is_empty() { "127.0.0.1".into() } else { host }, port))
}

/// What stands in a port's place may be a part of a password.
fn bad_port<R>(text: &str) -> Result<R, TargetError> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => wrong(format!("bad port {text:?}")),
        false => {
            wrong("bad port: it is no number (a / ? # or @ in a password is written as %2F %3F %23 %40)")
        }
    }
}

/// What stands in an option's place, too.
fn unknown_option<R>(key: &str) -> Result<R, TargetError> {
    match key.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte)) {
        true => wrong(format!("unknown option {key:?}")),
        false => wrong("what follows the ? is no option (a ? in a password is written as %3F)"),
    }
}

/// Options that say whether to encrypt.
const TLS_KEYS: [&str; 3] = ["tls", "sslmode", "ssl-mode"];

fn parse_tls(value: &str) -> Result<TlsMode, TargetError> {
    Ok(match value {
        "disabled" => TlsMode::Disabled,
        "preferred" => TlsMode::Preferred,
        "required" => TlsMode::Required,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        other => return wrong(format!("unknown tls mode {other:?}")),
    })
}

/// The modes as libpq and MySQL's tools call them. libpq's `allow` prefers no encryption, which a client that measures
/// need not be able to.
fn parse_ssl_mode(value: &str) -> Result<TlsMode, TargetError> {
    Ok(match value.to_ascii_lowercase().replace('_', "-").as_str() {
        "disable" => TlsMode::Disabled,
        "allow" | "prefer" => TlsMode::Preferred,
        "require" => TlsMode::Required,
        "verify-identity" => TlsMode::VerifyFull,
        other => return parse_tls(other),
    })
}

fn parse_seconds(key: &str, value: &str) -> Result<Duration, TargetError> {
    match value.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(limit) if !limit.is_zero() => Ok(limit),
        _ => wrong(format!("{key} must be a positive number of seconds, not {value:?}")),
    }
}

/// Percent-decoding (RFC 3986, section 2.1). The text must be UTF-8 afterwards.
pub(crate) fn decode(text: &str) -> Result<String, TargetError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return wrong("a % in the URL is not followed by two hexadecimal digits (write %25 for %)"),
        }
        rest = &after[2..];
    }
    String::from_utf8(bytes).or_else(|_| wrong("the URL is not UTF-8 after percent-decoding"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TlsClient;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn a_full_mysql_url() {
        let t = Target::parse(
            "mysql://al%40ice:p%3A%2f%3F%25@db.example:3307/sb%20test?tls=verify-ca&tls-ca=/etc/ca%20file.pem\
             &connect-timeout=2.5&statement-timeout=7",
        )
        .unwrap();
        assert_eq!(t.protocol, Protocol::Mysql);
        assert_eq!(t.endpoint, tcp("db.example", 3307));
        assert_eq!((t.user.as_str(), t.password.reveal()), ("al@ice", "p:/?%"));
        assert_eq!(t.database.as_deref(), Some("sb test"));
        assert_eq!((t.tls, t.tls_ca), (TlsMode::VerifyCa, Some("/etc/ca file.pem".into())));
        assert_eq!(t.connect_timeout, Duration::from_millis(2500));
        assert_eq!(t.statement_timeout, Duration::from_secs(7));
    }

    #[test]
    fn defaults() {
        let t = Target::parse("postgres://").unwrap();
        assert_eq!(t.endpoint, tcp("127.0.0.1", 5432));
        assert_eq!((t.user.as_str(), t.password.is_empty(), t.database), ("postgres", true, None));
        assert_eq!(Target::parse("mysql://h/").unwrap().endpoint, tcp("h", 3306));
        assert_eq!(Target::parse("mysql://[::1]:33/x").unwrap().endpoint, tcp("::1", 33));
        // The last @ ends the login, so an unencoded one in a password does no harm.
        assert_eq!(Target::parse("mysql://u:a@b@h/x").unwrap().password.reveal(), "a@b");
    }

    #[test]
    fn other_hosts_are_spoken_to_over_tls_where_they_can() {
        let tls = |url| Target::parse(url).unwrap().tls;
        for url in ["mysql://db1/", "postgres://192.0.2.1/x", "mysql://[2001:db8::1]/", "mysql:///?host=db1"]
        {
            assert_eq!(tls(url), TlsMode::Preferred, "{url}");
        }
        for url in [
            "mysql://localhost/",
            "mysql://127.0.0.2/",
            "postgres://[::1]/",
            "mysql:///",
            "mysql://db1/?socket=/s",
        ] {
            assert_eq!(tls(url), TlsMode::Disabled, "{url}");
        }
        assert_eq!(tls("mysql://db1/?tls=disabled"), TlsMode::Disabled);
        assert_eq!(tls("postgres://db1/?sslmode=disable"), TlsMode::Disabled);
        assert_eq!(tls("mysql://localhost/?ssl-mode=REQUIRED"), TlsMode::Required);
    }

    #[test]
    fn unix_sockets() {
        let socket = |url| Target::parse(url).unwrap().endpoint;
        assert_eq!(socket("mysql://root@/sbtest?socket=/tmp/a.sock"), Endpoint::Unix("/tmp/a.sock".into()));
        assert_eq!(socket("postgres:///db?host=/run/pg"), Endpoint::Unix("/run/pg/.s.PGSQL.5432".into()));
        assert_eq!(
            socket("postgres://u@:5433/db?host=/run/pg"),
            Endpoint::Unix("/run/pg/.s.PGSQL.5433".into())
        );
        assert_eq!(
            socket("postgres:///db?host=/run/pg&port=5434"),
            Endpoint::Unix("/run/pg/.s.PGSQL.5434".into())
        );
        assert_eq!(
            socket("postgres:///db?socket=/run/pg/.s.PGSQL.7"),
            Endpoint::Unix("/run/pg/.s.PGSQL.7".into())
        );
    }

    #[test]
    fn options_of_tls_in_anybodys_spelling() {
        let own = "tls=verify-full&tls-ca=/ca&tls-cert=/c&tls-key=/k&tls-cipher=A:B";
        let t = Target::parse(&format!("mysql://h/?{own}")).unwrap();
        let client =
            TlsClient { certificate: Some("/c".into()), key: Some("/k".into()), ciphers: "A:B".into() };
        assert_eq!(
            (t.tls, t.tls_ca, t.tls_client),
            (TlsMode::VerifyFull, Some("/ca".into()), client.clone())
        );
        let mysqls = "ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca&ssl-cert=/c&ssl-key=/k&ssl-cipher=A:B";
        let t = Target::parse(&format!("mysql://h/?{mysqls}")).unwrap();
        assert_eq!(
            (t.tls, t.tls_ca, t.tls_client),
            (TlsMode::VerifyFull, Some("/ca".into()), client.clone())
        );
        let libpqs = "sslmode=verify-full&sslrootcert=/ca&sslcert=/c&sslkey=/k";
        let t = Target::parse(&format!("postgres://h/?{libpqs}")).unwrap();
        let without_ciphers = TlsClient { ciphers: String::new(), ..client };
        assert_eq!(
            (t.tls, t.tls_ca, t.tls_client),
            (TlsMode::VerifyFull, Some("/ca".into()), without_ciphers)
        );
        for (word, mode) in [
            ("disable", TlsMode::Disabled),
            ("allow", TlsMode::Preferred),
            ("prefer", TlsMode::Preferred),
            ("require", TlsMode::Required),
            ("verify-ca", TlsMode::VerifyCa),
            ("PREFERRED", TlsMode::Preferred),
            ("REQUIRED", TlsMode::Required),
            ("VERIFY_CA", TlsMode::VerifyCa),
        ] {
            assert_eq!(Target::parse(&format!("postgres://h/?sslmode={word}")).unwrap().tls, mode, "{word}");
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_and_hide_the_password() {
        for (url, expected) in [
            ("localhost", "begins with"),
            ("oracle://u:secret@h/", "unknown protocol"),
            ("mysql://u:secret@h:70000/", "bad port"),
            ("mysql://u:secret@h:0/", "bad port"),
            ("mysql://u:secret@[::1/", "bracket"),
            ("mysql://u:secret@h/?tsl=required", "unknown option \"tsl\""),
            ("mysql://u:secret@h/?tls=on", "unknown tls mode \"on\""),
            ("postgres://u:secret@h/?sslmode=full", "unknown tls mode \"full\""),
            ("postgres://u:secret@h/?compression=on", "no compressed protocol"),
            ("mysql://u:secret@h/?compression=zstd", "on or off"),
            ("mysql://u:se%zzcret@h/", "hexadecimal"),
            ("mysql://u:%ff@h/", "UTF-8"),
            ("mysql://u:secret@h/?connect-timeout=-1", "positive number"),
            ("mysql://u:sec/ret@h/", "written as %2F"),
            ("mysql://u:secret/x", "it is no number"),
            ("mysql://u:33/secret@h/", "written as %2F"),
            ("mysql://u:33?secret@h/", "no option"),
        ] {
            let text = Target::parse(url).unwrap_err().to_string();
            assert!(text.contains(expected), "{url}: {text}");
            assert!(!text.contains("cret"), "{url}: {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(url in "(mysql|postgres)://.{0,60}") {
            let _ = Target::parse(&url);
        }

        #[test]
        fn encoded_passwords_come_back(password in "\\PC{0,20}") {
            let encoded: String = password.bytes().map(|b| format!("%{b:02X}")).collect();
            let target = Target::parse(&format!("mysql://u:{encoded}@h/")).unwrap();
            proptest::prop_assert_eq!(target.password.reveal(), password);
        }
    }
}
