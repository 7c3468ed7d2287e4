//! A file made ready to run: definitions resolved, tables made, dictionaries loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::files;
use workload::Dialect;

use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::gen_data;
use crate::statement::{Compiled, Escape};
use crate::syntax::{Client, Query, Script, Section, Shot, Table};

/// Where data files are read and written, and whether shell commands in smack files may run.
#[derive(Debug, Clone)]
pub struct DataDir {
    /// The directory.
    pub path: PathBuf,
    pub allow_shell: bool,
    /// Files that are not there but elsewhere, by the names that a smack has for them: those that came in a bundle.
    pub elsewhere: BTreeMap<String, PathBuf>,
}

impl DataDir {
    /// The path of a file named in a smack.
    ///
    /// # Errors
    /// The name leaves the data directory and shell commands (hence anything) are not allowed.
    pub fn file(&self, name: &str) -> Result<PathBuf, Error> {
        if let Some(path) = self.elsewhere.get(name) {
            return Ok(path.clone());
        }
        let inside = !name.is_empty()
            && Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if inside || self.allow_shell {
            return Ok(self.path.join(name));
        }
        Err(Error::File {
            path: PathBuf::from(name),
            source: std::io::Error::new(
                std::io::ErrorKind::PermissionDenied,
                "lies outside the data directory; name the directory with -D, or add --allow-shell",
            ),
        })
    }

    /// Reads a data file.
    ///
    /// # Errors
    /// It is missing or unreadable.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.file(name)?;
        files::read(&path, &files::DATA).map_err(|source| Error::File { path, source })
    }

    /// The rows of `table`, generated into its data file where that is absent.
    ///
    /// # Errors
    /// No file and no way to make it.
    pub fn rows(&self, table: &Table) -> Result<Vec<u8>, Error> {
        let path = self.file(&table.data_file)?;
        if path.exists() {
            return self.read(&table.data_file);
        }
        let fault = |reason: String| Error::Shell {
            table: table.name.clone(),
            command: table.gen_data_file.clone(),
            reason,
        };
        let bytes = match gen_data::command(&table.gen_data_file) {
            Some(Ok((rows, template))) => template.file(rows),
            Some(Err(reason)) => return Err(fault(reason)),
            None if !self.allow_shell => {
                return Err(Error::ShellNotAllowed {
                    table: table.name.clone(),
                    command: table.gen_data_file.clone(),
                });
            }
            None => {
                let done = std::process::Command::new("/bin/sh")
                    .args(["-c", &table.gen_data_file])
                    .current_dir(&self.path)
                    .output()
                    .map_err(|e| fault(e.to_string()))?;
                if !done.status.success() {
                    return Err(fault(format!(
                        "{}; {}",
                        done.status,
                        String::from_utf8_lossy(&done.stderr).trim()
                    )));
                }
                done.stdout
            }
        };
        write_whole(&path, &bytes)?;
        Ok(bytes)
    }
}

/// Written beside and renamed, so that a half-written file is never taken for a whole one.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fault = |source| Error::File { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(fault)?;
    }
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path)).map_err(fault)
}

/// What the instances of one client fire, shared by all of them.
#[derive(Debug, Clone)]
pub struct Barrel {
    /// Dictionaries, in the order of the indices in compiled queries.
    pub dictionaries: Arc<[Dictionary]>,
    pub queries: Arc<[Compiled]>,
    /// What one round consists of.
    pub shots: Arc<[CompiledShot]>,
    /// Names of the statistics groups, in alphabetical order.
    pub groups: Arc<[String]>,
}

/// A [`Shot`] with its query resolved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CompiledShot {
    /// Fire a query so many times.
    Fire {
        /// Times.
        count: u32,
        /// Index into the barrel's queries.
        query: usize,
    },
    /// Pause.
    Sleep { seconds: f64 },
}

/// All definitions of a file, by kind.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    pub clients: Vec<Client>,
    pub queries: Vec<Query>,
    pub tables: Vec<Table>,
    /// Dictionaries, loaded.
    pub dictionaries: Vec<Dictionary>,
}

impl Definitions {
    /// Walks through the sections in order; `table` is called for each table as it is met, for it acts while the
    /// file is read (a dictionary further down may read the file that it generates).
    ///
    /// # Errors
    /// The first definition that cannot be had.
    pub fn build(
        script: &Script,
        data: &DataDir,
        table: &mut dyn FnMut(&Table, &Definitions) -> Result<(), Error>,
    ) -> Result<Definitions, Error> {
        let mut all = Definitions::default();
        for section in &script.sections {
            match section {
                Section::Client(client) => all.clients.push(client.clone()),
                Section::Query(query) => all.queries.push(query.clone()),
                Section::Dictionary(source) => {
                    all.dictionaries.push(Dictionary::load(source, &|name| data.read(name))?);
                }
                Section::Table(found) => {
                    table(found, &all)?;
                    all.tables.push(found.clone());
                }
            }
        }
        Ok(all)
    }

    /// The client of that name; the parser has checked that it exists.
    pub fn client(&self, name: &str) -> Option<&Client> {
        self.clients.iter().find(|client| client.name == name)
    }

    /// The barrel of a client.
    ///
    /// # Errors
    /// A query names a dictionary that is not there.
    pub fn barrel(&self, client: &Client) -> Result<Barrel, Error> {
        let fault = |message| Error::Dictionary { name: client.name.clone(), message };
        let used = |name: &str| self.queries.iter().find(|query| query.name == name);
        let mut groups: Vec<String> = Vec::new();
        for shot in &client.barrel {
            if let Shot::Fire { query, .. } = shot
                && let Some(query) = used(query)
            {
                groups.push(query.group.clone());
            }
        }
        groups.sort();
        groups.dedup();
        let (mut queries, mut shots) = (Vec::new(), Vec::new());
        for shot in &client.barrel {
            match shot {
                Shot::Sleep { seconds } => shots.push(CompiledShot::Sleep { seconds: *seconds }),
                Shot::Fire { count, query } => {
                    let Some(query) = used(query) else { continue };
                    let group = groups.iter().position(|g| *g == query.group).unwrap_or_default();
                    shots.push(CompiledShot::Fire { count: *count, query: queries.len() });
                    queries.push(Compiled::new(query, group, &self.dictionaries).map_err(fault)?);
                }
            }
        }
        Ok(Barrel {
            dictionaries: self.dictionaries.clone().into(),
            queries: queries.into(),
            shots: shots.into(),
            groups: groups.into(),
        })
    }
}

/// How words are escaped for a server.
pub fn escape(dialect: &Dialect) -> Escape {
    match dialect.protocol() {
        wire::Protocol::Mysql => Escape::Backslash,
        wire::Protocol::Postgres => Escape::Quote,
    }
}
