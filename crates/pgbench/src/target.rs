//! Where libpq would connect: what the command line says, else the environment. In a database's place may stand a URL, or
//! libpq's connection string (`host=/run/pg dbname=test`), which says more than the other options.

use std::path::PathBuf;
use std::time::Duration;

use wire::{Endpoint, Protocol, Secret, Target, TlsMode};

use crate::Refusal;

/// What a command line says of a server.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) host: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) user: Option<String>,
    /// Or a URL, or a connection string.
    pub(crate) database: Option<String>,
    password: Option<String>,
    sslmode: Option<String>,
    sslrootcert: Option<String>,
}

impl Place {
    pub(crate) fn target(mut self) -> Result<Target, Refusal> {
        let mut target = match self.database.take() {
            Some(url) if is_url(&url) => of_url(&url)?,
            Some(text) if text.contains('=') => {
                self.read(&text)?;
                self.of_words()?
            }
            database => {
                self.database = database;
                self.of_words()?
            }
        };
        // pgbench waits for ever for a statement; a day is long enough to be told from a hang.
        target.statement_timeout = Duration::from_secs(86_400);
        wire::passwords::complete(&mut target).map_err(|error| Refusal::new(error.to_string()))?;
        Ok(target)
    }

    /// Takes what a connection string says. Its texts are not told when they are wrong: one may be a password.
    fn read(&mut self, text: &str) -> Result<(), Refusal> {
        for (key, value) in pairs(text)? {
            let field = match key.as_str() {
                "host" => &mut self.host,
                "port" => &mut self.port,
                "user" => &mut self.user,
                "dbname" => &mut self.database,
                "password" => &mut self.password,
                "sslmode" => &mut self.sslmode,
                "sslrootcert" => &mut self.sslrootcert,
                _ => return Err(malformed(format!("invalid connection option \"{key}\""))),
            };
            // An empty one is none.
            *field = Some(value).filter(|value| !value.is_empty());
        }
        Ok(())
    }

    fn of_words(self) -> Result<Target, Refusal> {
        let user = self.user.or_else(|| variable("PGUSER")).unwrap_or_else(own_name);
        let endpoint = endpoint(self.host, self.port)?;
        let (tls, tls_ca) = match endpoint {
            Endpoint::Unix(_) => (TlsMode::Disabled, None),
            Endpoint::Tcp { .. } => {
                let ca = self.sslrootcert.or_else(|| variable("PGSSLROOTCERT"));
                (tls_mode(self.sslmode)?, ca.map(PathBuf::from))
            }
        };
        Ok(Target {
            database: Some(self.database.or_else(|| variable("PGDATABASE")).unwrap_or_else(|| user.clone())),
            password: self.password.map(Secret::new).unwrap_or_default(),
            tls,
            tls_ca,
            ..Target::new(Protocol::Postgres, endpoint, user)
        })
    }
}

fn is_url(text: &str) -> bool {
    let is_scheme = |scheme: &str| scheme.chars().all(|c| c.is_ascii_alphanumeric());
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn of_url(url: &str) -> Result<Target, Refusal> {
    let target = Target::parse(url).map_err(|error| Refusal::new(error.to_string()))?;
    match target.protocol {
        Protocol::Postgres => Ok(target),
        Protocol::Mysql => Err(Refusal::new(
            "pgbench's command line is for PostgreSQL: plimsoll bench runs .sql files on MySQL",
        )),
    }
}

fn malformed(text: String) -> Refusal {
    const HINT: &str = "hint: A database with a \"=\" in it is read as words like \"dbname=test\": dbname, host, port, user, \
                        password, sslmode and sslrootcert. Values with blanks stand in single quotes.";
    Refusal { text, more: Some(HINT.to_owned()) }
}

/// The words of a connection string as libpq reads them (manual, "Keyword/Value Connection Strings").
fn pairs(text: &str) -> Result<Vec<(String, String)>, Refusal> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let no_equals = || malformed("missing \"=\" in connection info string".to_owned());
        let (key, behind) = rest.split_once('=').ok_or_else(no_equals)?;
        let key = key.trim_end();
        if key.contains(char::is_whitespace) {
            return Err(no_equals());
        }
        let (value, behind) = value(behind.trim_start())?;
        found.push((key.to_owned(), value));
        rest = behind.trim_start();
    }
    Ok(found)
}

/// A value, in quotes or up to a blank, and what stands behind it. A backslash takes the next character as it is.
fn value(text: &str) -> Result<(String, &str), Refusal> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if is_quoted => return Ok((value, &text[at + 1..])),
            c if c.is_whitespace() && !is_quoted => return Ok((value, &text[at..])),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    match is_quoted {
        true => Err(malformed("unterminated quoted string in connection info string".to_owned())),
        false => Ok((value, "")),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn own_name() -> String {
    variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "postgres".to_owned())
}

/// `allow`, which libpq has beside, is no worse for being encrypted where that goes.
fn tls_mode(asked: Option<String>) -> Result<TlsMode, Refusal> {
    match asked.or_else(|| variable("PGSSLMODE")).as_deref() {
        Some("disable") => Ok(TlsMode::Disabled),
        None | Some("allow" | "prefer") => Ok(TlsMode::Preferred),
        Some("require") => Ok(TlsMode::Required),
        Some("verify-ca") => Ok(TlsMode::VerifyCa),
        Some("verify-full") => Ok(TlsMode::VerifyFull),
        Some(other) => Err(Refusal {
            text: format!("invalid sslmode value: \"{other}\""),
            more: Some("hint: disable, allow, prefer, require, verify-ca or verify-full.".to_owned()),
        }),
    }
}

fn endpoint(host: Option<String>, port: Option<String>) -> Result<Endpoint, Refusal> {
    let host = host.or_else(|| variable("PGHOST"));
    let port = port.or_else(|| variable("PGPORT")).unwrap_or_else(|| "5432".to_owned());
    let port = port.parse::<u16>().map_err(|_| Refusal::new(format!("invalid port number: \"{port}\"")))?;
    Ok(match host {
        Some(host) if !host.starts_with('/') => Endpoint::Tcp { host, port },
        directory => {
            let directory = directory.unwrap_or_else(|| "/var/run/postgresql".to_owned());
            Endpoint::Unix(PathBuf::from(directory).join(format!(".s.PGSQL.{port}")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(database: &str) -> Place {
        Place { host: Some("h".into()), database: Some(database.into()), ..Place::default() }
    }

    #[test]
    fn connection_strings_are_read_as_libpq_reads_them() {
        let text = "dbname = x host=/run/pg port=5999 user=me password='a b\\'c=' sslmode=require";
        let target = place(text).target().unwrap();
        assert_eq!((target.database.as_deref(), &*target.user), (Some("x"), "me"));
        assert_eq!(target.endpoint, Endpoint::Unix("/run/pg/.s.PGSQL.5999".into()));
        assert_eq!(target.password.reveal(), "a b'c=");
        // What is not said comes from the other options.
        let target = place("port=1 user=me dbname=''  password=a\\ b sslmode=verify-ca ").target().unwrap();
        assert_eq!(target.endpoint, Endpoint::Tcp { host: "h".into(), port: 1 });
        assert_eq!((target.database.as_deref(), target.password.reveal()), (Some("me"), "a b"));
        assert_eq!(target.tls, TlsMode::VerifyCa);
        let target = place("dbname=x password=a://b=c").target().unwrap();
        assert_eq!(target.password.reveal(), "a://b=c");
        assert_eq!(place("postgres://u:p@h2/x?tls=disabled").target().unwrap().password.reveal(), "p");
        assert_eq!(place("plain").target().unwrap().database.as_deref(), Some("plain"));
    }

    #[test]
    fn what_is_no_connection_string_is_told_with_the_remedy_and_without_the_password() {
        for (text, says) in [
            ("dbname=x password=my geheim", "missing \"=\""),
            ("dbname=x geheim host=h", "missing \"=\""),
            ("password='geheim", "unterminated quoted string"),
            ("password=geheim hostaddr=::1", "invalid connection option \"hostaddr\""),
        ] {
            let refusal = place(text).target().unwrap_err();
            let more = refusal.more.unwrap();
            assert!(refusal.text.contains(says), "{}", refusal.text);
            assert!(more.contains("dbname, host, port, user") && more.contains("single quotes"), "{more}");
            assert!(!refusal.text.contains("geheim"), "{}", refusal.text);
        }
        let refusal = place("sslmode=geheim").target().unwrap_err();
        assert!(refusal.text.contains("invalid sslmode"), "{}", refusal.text);
    }
}
