//! Passwords that do not stand in the URL: the command line shows a URL to every user of the machine, as `ps` does.
//!
//! Where a URL names no password, these are looked at, in this order: the file of `--password-file`, `PLIMSOLL_PASSWORD`,
//! what the servers' own clients read (`MYSQL_PWD`, or `PGPASSWORD`), and their files (`~/.my.cnf`, or `PGPASSFILE`, else
//! `~/.pgpass`).

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::target::{Endpoint, Protocol, Secret, Target};

/// A password that is there and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct PasswordError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what to do. Never holds a password.
    pub problem: String,
}

/// The first line of the file that `--password-file` names.
///
/// # Errors
/// The file cannot be read, is too long for a password, or is empty.
pub fn read_file(path: &Path) -> Result<Secret, PasswordError> {
    let wrong = |problem: String| PasswordError { path: path.to_owned(), problem };
    let text = read_limited(path).map_err(|error| wrong(format!("cannot read the password: {error}")))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(wrong("holds no password in its first line".into())),
    }
}

/// Gives a target without a password the one that its user has for it, if there is one.
///
/// # Errors
/// A file that holds it can be read (or, MySQL's, written) by others.
pub fn complete(target: &mut Target) -> Result<(), PasswordError> {
    if !target.password.is_empty() {
        return Ok(());
    }
    let found = Places { variable: &|name| std::env::var_os(name) }.find(target)?;
    if let Some(password) = found {
        target.password = password;
    }
    Ok(())
}

/// Longer files are not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read_limited(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

struct Places<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Places<'_> {
    fn find(&self, target: &Target) -> Result<Option<Secret>, PasswordError> {
        let own = match target.protocol {
            Protocol::Mysql => "MYSQL_PWD",
            Protocol::Postgres => "PGPASSWORD",
        };
        let text = |name: &str| (self.variable)(name)?.into_string().ok().filter(|text| !text.is_empty());
        if let Some(password) = text("PLIMSOLL_PASSWORD").or_else(|| text(own)) {
            return Ok(Some(Secret::new(password)));
        }
        let home = || (self.variable)("HOME").map(PathBuf::from);
        match target.protocol {
            Protocol::Mysql => match home() {
                Some(home) => in_option_file(&home.join(".my.cnf"), target),
                None => Ok(None),
            },
            Protocol::Postgres => {
                let named = (self.variable)("PGPASSFILE").map(PathBuf::from);
                match named.or_else(|| Some(home()?.join(".pgpass"))) {
                    Some(path) => in_pgpass(&path, target),
                    None => Ok(None),
                }
            }
        }
    }
}

/// Whether others have one of these rights on a file that a password comes from.
fn check_mode(path: &Path, rights: u32, remedy: &str) -> Result<(), PasswordError> {
    let mode = fs::metadata(path).map_or(0, |found| found.mode());
    if mode & rights == 0 {
        return Ok(());
    }
    let problem = format!("holds this password and is open to others (mode {:04o}): {remedy}", mode & 0o7777);
    Err(PasswordError { path: path.to_owned(), problem })
}

/// MySQL's option file (Reference Manual, "Using Option Files"): the password of `[client]`, or of `[plimsoll]`, where the
/// file names no other user and no other host. Files without a password, and no file, are no problem.
fn in_option_file(path: &Path, target: &Target) -> Result<Option<Secret>, PasswordError> {
    let text = read_limited(path).unwrap_or_default();
    let (mut is_ours, mut user, mut host, mut password) = (false, None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            is_ours = ["client", "client-server", "client-mariadb", "plimsoll"].contains(&group.trim());
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_ours && !line.starts_with(['#', ';']))
        else {
            continue;
        };
        let value = Some(option_value(value.trim()));
        match key.trim() {
            "user" => user = value,
            "host" => host = value,
            "password" => password = value,
            _ => {}
        }
    }
    let is_for_host = match (&host, &target.endpoint) {
        (None, _) => true,
        (Some(named), Endpoint::Tcp { host, .. }) => named == host,
        (Some(named), Endpoint::Unix(_)) => named == "localhost",
    };
    let password = password.filter(|_| is_for_host && user.is_none_or(|user| user == target.user));
    let Some(password) = password.filter(|password| !password.is_empty()) else { return Ok(None) };
    check_mode(path, 0o006, "chmod 600")?;
    Ok(Some(Secret::new(password)))
}

/// Without quotes and with the escapes of the manual; without quotes a comment may follow.
fn option_value(value: &str) -> String {
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = match quote {
        Some(quote) => value[1..].rfind(quote).map_or(&value[1..], |end| &value[1..=end]),
        None => value.split('#').next().unwrap_or_default().trim_end(),
    };
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        match escaped {
            None => out.push(c),
            Some('b') => out.push('\u{8}'),
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('s') => out.push(' '),
            Some(c @ ('\\' | '"' | '\'')) => out.push(c),
            Some(other) => out.extend(['\\', other]),
        }
    }
    out
}

/// libpq's password file (PostgreSQL documentation, "The Password File"): the first line that fits.
fn in_pgpass(path: &Path, target: &Target) -> Result<Option<Secret>, PasswordError> {
    let text = read_limited(path).unwrap_or_default();
    let (hosts, port) = match &target.endpoint {
        Endpoint::Tcp { host, port } => (vec![host.clone()], *port),
        Endpoint::Unix(socket) => {
            let name = socket.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let port = name.rsplit('.').next().and_then(|port| port.parse().ok());
            let directory = socket.parent().map(|dir| dir.to_string_lossy().into_owned());
            let hosts = directory.into_iter().chain(["localhost".to_owned()]).collect();
            (hosts, port.unwrap_or(Protocol::Postgres.default_port()))
        }
    };
    let database = target.database.clone().unwrap_or_else(|| target.user.clone());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields = pgpass_fields(line);
        let [host, at, db, user, password] = fields.as_slice() else { continue };
        let fits = |field: &str, value: &str| field == "*" || field == value;
        let is_it = (host == "*" || hosts.contains(host))
            && fits(at, &port.to_string())
            && fits(db, &database)
            && fits(user, &target.user);
        if is_it {
            check_mode(path, 0o077, "chmod 600, or libpq will not read it either")?;
            return Ok(Some(Secret::new(password.clone())));
        }
    }
    Ok(None)
}

/// Five fields with colons between them; a backslash makes the next character one of the field.
fn pgpass_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            c => {
                let c = if c == '\\' { chars.next().unwrap_or(c) } else { c };
                fields.last_mut().into_iter().for_each(|field| field.push(c));
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn find(url: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let found = Places { variable: &variable }.find(&Target::parse(url).unwrap());
        found.map(|secret| secret.map(|secret| secret.reveal().to_owned())).map_err(|error| error.to_string())
    }

    fn home(name: &str, text: &str, mode: u32) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        home
    }

    #[test]
    fn the_environment_goes_before_files() {
        let both = [("PGPASSWORD", "pg"), ("MYSQL_PWD", "my")];
        assert_eq!(find("mysql://h/", &both).unwrap().as_deref(), Some("my"));
        assert_eq!(find("postgres://h/", &both).unwrap().as_deref(), Some("pg"));
        let own = [("PLIMSOLL_PASSWORD", "own"), ("MYSQL_PWD", "my")];
        assert_eq!(find("mysql://h/", &own).unwrap().as_deref(), Some("own"));
        assert_eq!(find("mysql://h/", &[("MYSQL_PWD", "")]).unwrap(), None);
        assert_eq!(find("mysql://h/", &[]).unwrap(), None);
    }

    #[test]
    fn option_files_are_read_as_mysqls_clients_do() {
        let text =
            "[mysqld]\npassword = no\n[client]\n# password = no\nuser=app\npassword = \"p#\\\"w\\\\\" \n";
        let home = home(".my.cnf", text, 0o600);
        let at = [("HOME", home.path().to_str().unwrap())];
        assert_eq!(find("mysql://app@h/", &at).unwrap().as_deref(), Some("p#\"w\\"));
        assert_eq!(find("mysql://root@h/", &at).unwrap(), None, "another user's");
        assert_eq!(find("postgres://app@h/", &at).unwrap(), None);
        let open = self::home(".my.cnf", "[plimsoll]\npassword=x # mine\nhost=db1\n", 0o666);
        let at = [("HOME", open.path().to_str().unwrap())];
        assert_eq!(find("mysql://h/", &at).unwrap(), None, "another host's: its mode does not matter");
        let refused = find("mysql://db1/", &at).unwrap_err();
        assert!(refused.contains("0666") && refused.contains("chmod 600"), "{refused}");
        assert_eq!(option_value("x # mine"), "x");
    }

    #[test]
    fn pgpass_is_read_as_libpq_does() {
        let text = "# h:*:*:*:no\nother:5432:db:me:no\nh:5433:*:me:third\nh:*:db:me:p\\:\\\\w:x\n*:*:*:you:yours\n\
                    localhost:5434:*:*:local\n";
        let home = home(".pgpass", text, 0o600);
        let at = [("HOME", home.path().to_str().unwrap())];
        let password = |url: &str| find(url, &at).unwrap();
        assert_eq!(password("postgres://me@h/db").as_deref(), Some("p:\\w:x"));
        assert_eq!(password("postgres://me@h:5433/db").as_deref(), Some("third"), "the first that fits");
        assert_eq!(password("postgres://me@h/none"), None);
        assert_eq!(password("postgres://you@anywhere/").as_deref(), Some("yours"));
        assert_eq!(password("postgres:///db?host=/run/pg&port=5434").as_deref(), Some("local"));
        let named = home.path().join(".pgpass").to_str().unwrap().to_owned();
        let elsewhere = [("HOME", "/nonexistent"), ("PGPASSFILE", named.as_str())];
        assert!(find("postgres://me@h/db", &elsewhere).unwrap().is_some());
        let open = self::home(".pgpass", text, 0o644);
        let at = [("HOME", open.path().to_str().unwrap())];
        assert!(find("postgres://me@h/db", &at).unwrap_err().contains("0644"));
        assert_eq!(find("postgres://me@h/none", &at).unwrap(), None, "nothing is taken from it");
    }

    #[test]
    fn a_password_file_is_its_first_line() {
        let home = home("secret", "ge heim \r\nmore\n", 0o600);
        let path = home.path().join("secret");
        assert_eq!(read_file(&path).unwrap().reveal(), "ge heim ");
        fs::write(&path, "\nx").unwrap();
        assert!(read_file(&path).unwrap_err().to_string().contains("no password"));
        assert!(read_file(&home.path().join("none")).unwrap_err().to_string().contains("cannot read"));
    }
}
