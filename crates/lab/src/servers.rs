//! SERVER as users write it: `flavor[@version]`, a sandbox's name, or a URL.

use std::path::Path;
use std::sync::OnceLock;

use sandbox::builds::Resolved;
use sandbox::{Build, Flavor, Home, Sandbox, Selector};
use wire::{Protocol, Secret, Target};

use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::provision::tell;

/// A SERVER that can be read, not yet looked up.
#[derive(Debug, Clone)]
pub enum Server {
    /// A build to make sandboxes of.
    Selector(Selector),
    Sandbox(String),
    /// A server that runs elsewhere.
    Url(Box<Target>),
}

impl Server {
    /// As it may be shown: without a password.
    pub fn shown(&self) -> String {
        match self {
            Server::Selector(selector) => selector.to_string(),
            Server::Sandbox(name) => name.clone(),
            Server::Url(target) => {
                let scheme = match target.protocol {
                    Protocol::Mysql => "mysql",
                    Protocol::Postgres => "postgres",
                };
                format!("{scheme}://{}@{}", target.user, target.endpoint)
            }
        }
    }
}

/// Why a name cannot be a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameProblem {
    pub message: String,
    pub help: String,
}

/// What a SERVER may look like, for help texts.
pub const FORMS: &str = "flavor[@version] (mysql, mariadb, percona, postgres), a sandbox's name, or a URL such as mysql://user@host/db";

/// Whether a text can be a SERVER at all; nothing is looked up.
pub fn check_name(text: &str) -> Result<(), NameProblem> {
    parse(text).map(drop)
}

/// Reads a SERVER; nothing is looked up.
pub fn parse(text: &str) -> Result<Server, NameProblem> {
    if text.contains("://") {
        let target = Target::parse(text).map_err(|why| NameProblem {
            message: format!("`{}` is not a server's URL: {why}", wire::mask::value(text)),
            help: "for example mysql://user:password@host:3306/db?socket=/path or postgres://user@host/db"
                .into(),
        })?;
        return Ok(Server::Url(Box::new(target)));
    }
    let flavor = text.split(['@', '+']).next().unwrap_or_default();
    if Flavor::ALL.iter().any(|known| known.name() == flavor) {
        let selector = text.parse::<Selector>().map_err(|why| NameProblem {
            message: why.to_string(),
            help: "for example mariadb, mariadb@10.11 or postgres@16".into(),
        })?;
        return Ok(Server::Selector(selector));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        let near = wire::spelling::nearest(flavor, Flavor::ALL.iter().map(|flavor| flavor.name()));
        return Err(NameProblem {
            message: format!("`{text}` names no server"),
            help: near.map_or_else(
                || FORMS.to_owned(),
                |near| format!("did you mean `{}`?", text.replacen(flavor, near, 1)),
            ),
        });
    }
    Ok(Server::Sandbox(text.to_owned()))
}

/// The password of `--password-file`, for URLs that name none.
static PASSWORD: OnceLock<Secret> = OnceLock::new();

/// Reads the file of `--password-file`. Call it before servers are read.
///
/// # Errors
/// The file cannot be read, or holds no password.
pub fn use_password_file(path: &Path) -> Result<(), Error> {
    let password = wire::passwords::read_file(path).map_err(|error| Error::Usage(error.to_string()))?;
    PASSWORD.get_or_init(|| password);
    Ok(())
}

/// Reads a SERVER that is going to be used. A URL without a password gets the one that its user has for it elsewhere.
pub fn parse_argument(text: &str) -> Result<Server, Error> {
    let mut server =
        parse(text).map_err(|problem| Error::Usage(format!("{}: {}", problem.message, problem.help)))?;
    if let Server::Url(target) = &mut server {
        if let Some(password) = PASSWORD.get().filter(|_| target.password.is_empty()) {
            target.password = password.clone();
        }
        wire::passwords::complete(target).map_err(|error| Error::Usage(error.to_string()))?;
    }
    Ok(server)
}

/// What a selector means now, fetched where it is not here yet.
pub fn obtain(home: &Home, selector: &Selector, observer: Observer<'_>) -> Result<Build, Error> {
    // New ones cannot be named so any more.
    let name = selector.to_string();
    if home.sandboxes().join(&name).is_dir() {
        observer(Event::Warning(&format!(
            "`{name}` means the newest build of {name}, not the sandbox of that name: to measure on that one give its \
             URL (`plimsoll sandbox status {name}` shows its socket), or deploy it anew under another name"
        )));
    }
    let build = match sandbox::builds::find(home, selector)? {
        Resolved::Here(build) => build,
        Resolved::Away(_) => sandbox::builds::resolve(home, selector, &|progress| tell(observer, progress))?,
    };
    let missing = sandbox::builds::missing_libraries(&build)?;
    if missing.is_empty() {
        return Ok(build);
    }
    Err(sandbox::Error::Libraries { build: build.name(), missing }.into())
}

/// A sandbox deployed by hand, running.
pub fn open_sandbox(home: &Home, name: &str) -> Result<Sandbox, Error> {
    match Sandbox::open(home, name) {
        Ok(sandbox) if sandbox.pid().is_some() => Ok(sandbox),
        Ok(_) => Err(sandbox::Error::NotRunning { name: name.to_owned() }.into()),
        Err(sandbox::Error::NoSandbox { .. }) => {
            let near = wire::spelling::nearest(name, Flavor::ALL.iter().map(|flavor| flavor.name()));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("a server is {FORMS}; `plimsoll sandbox list` shows the sandboxes"),
            };
            Err(Error::Usage(format!("there is no sandbox named `{name}`: {hint}")))
        }
        Err(error) => Err(error.into()),
    }
}
