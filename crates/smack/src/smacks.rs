//! Smacks as workloads of studies and of `plimsoll bench`: a transaction is one round of the barrel of the file's
//! firing client.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use wire::Target;
use workload::{
    Baseline, Check, Configured, Dialect, Given, LoadAt, LoadMethod, LoadPart, LoadReport, Needs,
    OptionError, OptionSpec, Progress, Ran, StatementDoc, Workload,
};

use crate::error::Error;
use crate::program::{Barrel, DataDir, Definitions};
use crate::session::{Order, Printer, Shared};
use crate::syntax::{DictionarySource, Script, Section, Table, Words};
use crate::{builtin, parse, table};

/// A .smack file as a workload.
#[derive(Debug, Clone)]
pub struct Smack {
    name: String,
    source: Cow<'static, str>,
    data: DataDir,
    definitions: Arc<Definitions>,
    client: String,
    barrel: Barrel,
    options: Vec<OptionSpec>,
    content_sha256: String,
}

/// The built-in smacks; `data` is where their generated rows are kept.
///
/// # Errors
/// The data directory cannot be written.
pub fn built_in(data: &DataDir) -> Result<Vec<Smack>, Error> {
    builtin::ALL.iter().map(|(name, source)| Smack::new(name, Cow::Borrowed(source), data)).collect()
}

impl Smack {
    /// Understands a file. Of several clients with a barrel the first one fires.
    ///
    /// # Errors
    /// A mistake in the file, or no client fires.
    pub fn new(name: &str, source: Cow<'static, str>, data: &DataDir) -> Result<Smack, Error> {
        let script = parse::parse(&source).map_err(|error| error.in_file(name, &source))?;
        let definitions = Definitions::build(&script, data, &mut |table, _| {
            if table.data_file.is_empty() { Ok(()) } else { data.rows(table).map(drop) }
        })?;
        let content_sha256 = content(&source, &script, data)?;
        let firing = definitions.clients.iter().find(|client| !client.barrel.is_empty());
        let Some(firing) = firing else {
            return Err(Error::Main { line: None, message: format!("{name}: no client has a query_barrel") });
        };
        let engine = OptionSpec {
            name: "engine".into(),
            default: "".into(),
            kind: workload::OptionKind::Text,
            help: "storage engine of the tables (MySQL, MariaDB); the server's default where empty".into(),
            protocol: Some(wire::Protocol::Mysql),
        };
        Ok(Smack {
            name: name.to_owned(),
            client: firing.name.clone(),
            barrel: definitions.barrel(firing)?,
            source: source.clone(),
            data: data.clone(),
            definitions: Arc::new(definitions),
            options: vec![engine],
            content_sha256,
        })
    }

    /// SHA-256 of the file and of every data file that it names, hexadecimal.
    pub fn content_sha256(&self) -> &str {
        &self.content_sha256
    }

    /// The file and every data file that it names, as they are now and in the order in which the hash takes them.
    ///
    /// # Errors
    /// A data file cannot be read.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let script = parse::parse(&self.source).map_err(|error| error.in_file(&self.name, &self.source))?;
        let mut files = Vec::new();
        each_file(&self.source, &script, &self.data, |name, bytes| {
            files.push((name.to_owned(), bytes.to_vec()));
        })?;
        Ok(files)
    }

    /// Refuses to load rows from data files that are not those that the file was read with: the dictionaries, and the
    /// name that the dataset is kept by, are of those.
    fn unchanged(&self) -> Result<(), workload::Error> {
        let script = parse::parse(&self.source).map_err(|error| error.in_file(&self.name, &self.source));
        let now = script.and_then(|script| content(&self.source, &script, &self.data));
        match now {
            Ok(now) if now == self.content_sha256 => Ok(()),
            Ok(_) => Err(workload::Error::Unsupported(format!(
                "the data files of {} have changed since it was read: start the command anew",
                self.name
            ))),
            Err(error) => Err(workload::Error::Unsupported(error.to_string())),
        }
    }
}

/// The hash of a smack file with its data files, each led in by its name and its length. Plans keep it, and bundles compute
/// it again (`store::bundle::content_sha256`).
fn content(source: &str, script: &Script, data: &DataDir) -> Result<String, Error> {
    let mut hash = Sha256::new();
    each_file(source, script, data, |name, bytes| {
        hash.update(format!("{name} {}\n", bytes.len()));
        hash.update(bytes);
    })?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file, which has no name here, and the data files in the order in which it names them.
fn each_file(
    source: &str,
    script: &Script,
    data: &DataDir,
    mut take: impl FnMut(&str, &[u8]),
) -> Result<(), Error> {
    take("", source.as_bytes());
    for section in &script.sections {
        match section {
            Section::Table(table) if !table.data_file.is_empty() => {
                take(&table.data_file, &data.rows(table)?);
            }
            Section::Dictionary(DictionarySource { words: Words::File { path, .. }, .. }) => {
                take(path, &data.read(path)?);
            }
            _ => {}
        }
    }
    Ok(())
}

impl Workload for Smack {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        self.source.lines().next().unwrap_or_default().trim_start_matches(['/', '#', ' '])
    }

    fn description(&self) -> &str {
        "A Super Smack file. One transaction is one round of the query barrel; statements go by the text protocol, \
         as Super Smack sends them. The 90,000 rows of the built-in smacks come from gen-data's template, byte for \
         byte as the original program makes them with glibc's rand(); the dictionary keeps every 120th row of them, \
         so that only 750 different keys are ever asked for."
    }

    fn options(&self) -> &[OptionSpec] {
        &self.options
    }

    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
        if let Some(name) = given.keys().find(|name| *name != "engine") {
            return Err(OptionError::Unknown {
                workload: self.name.clone(),
                name: name.clone(),
                known: "engine".into(),
            });
        }
        let engine = given.get("engine").filter(|e| !e.is_empty()).or(dialect.engine.as_ref()).cloned();
        let values = BTreeMap::from([("engine".to_owned(), engine.clone().unwrap_or_default())]);
        let suffix = match (&engine, dialect.protocol()) {
            (Some(engine), wire::Protocol::Mysql) => format!(" engine={engine}"),
            _ => String::new(),
        };
        Ok(Box::new(ConfiguredSmack { smack: self.clone(), values, dialect, suffix }))
    }
}

#[derive(Debug)]
struct ConfiguredSmack {
    smack: Smack,
    values: BTreeMap<String, String>,
    dialect: Dialect,
    suffix: String,
}

impl ConfiguredSmack {
    fn tables(&self) -> &[Table] {
        &self.smack.definitions.tables
    }

    fn counts(&self, target: &Target) -> Result<BTreeMap<String, i128>, workload::Error> {
        let doing = "count rows";
        let mut client = wire::blocking::Client::connect(target).map_err(|source| {
            workload::Error::Connect { at: format!("{:?}", target.endpoint), doing: doing.into(), source }
        })?;
        let mut counts = BTreeMap::new();
        for found in self.tables() {
            let rows = table::count(&mut client, &found.name).map_err(|source| {
                workload::Error::Statement { doing: doing.into(), sql: found.name.clone(), source }
            })?;
            counts.insert(format!("rows {}", found.name), rows.map_or(-1, i128::from));
        }
        Ok(counts)
    }
}

impl Configured for ConfiguredSmack {
    fn options(&self) -> BTreeMap<String, String> {
        self.values.clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.smack.barrel.groups.to_vec()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        let Some(client) = self.smack.definitions.client(&self.smack.client) else { return Vec::new() };
        let queries = &self.smack.definitions.queries;
        client
            .barrel
            .iter()
            .filter_map(|shot| match shot {
                crate::syntax::Shot::Fire { count, query } => {
                    let query = queries.iter().find(|q| q.name == *query)?;
                    Some(StatementDoc {
                        class: query.group.clone(),
                        sql: query.text.clone(),
                        per_transaction: count.to_string(),
                        parameters: self
                            .smack
                            .barrel
                            .dictionaries
                            .iter()
                            .map(|d| match d.len() {
                                Some(words) => format!("${}: one of {words} words", d.name),
                                None => format!("${}: a counted template", d.name),
                            })
                            .collect::<Vec<_>>()
                            .join("; "),
                    })
                }
                crate::syntax::Shot::Sleep { .. } => None,
            })
            .collect()
    }

    fn dataset_key(&self) -> String {
        // Queries do not change what a load makes, but telling them apart is not worth a wrong snapshot.
        format!("smack 2 {}{}", self.smack.content_sha256, self.suffix)
    }

    fn data_bytes(&self) -> u64 {
        // Rows of the text file take about twice their bytes with a primary key.
        self.tables()
            .iter()
            .filter_map(|t| self.smack.data.rows(t).ok())
            .map(|rows| rows.len() as u64 * 3)
            .sum()
    }

    fn needs(&self, sessions: u32) -> Needs {
        Needs { connections: sessions, ..Needs::default() }
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, workload::Error> {
        let start = Instant::now();
        self.smack.unchanged()?;
        let (mut rows, mut bytes) = (0, 0);
        let total = self.tables().len() as u64;
        for (done, found) in self.tables().iter().enumerate() {
            progress(Progress { part: LoadPart::Rows, done: done as u64, total });
            // Whoever loads a workload has looked at the disk for all of it.
            let how = table::How { suffix: &self.suffix, anew: true, stop: &at.stop, room: |_, _| Ok(()) };
            let made =
                table::make(found, &at.target, &self.smack.data, &how).map_err(|error| match error {
                    crate::Error::Stopped { .. } => workload::Error::Stopped,
                    error => workload::Error::Unsupported(error.to_string()),
                })?;
            rows += made.rows.unwrap_or(0);
            bytes += made.bytes;
        }
        Ok(LoadReport {
            rows,
            bytes_sent: bytes,
            rows_time: start.elapsed(),
            indexes_time: Duration::ZERO,
            analyze_time: Duration::ZERO,
            method: LoadMethod::Stream,
            connections: 1,
            notes: Vec::new(),
        })
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, workload::Error> {
        Ok(self.tables().iter().map(|table| (table.name.clone(), table.min_rows)).collect())
    }

    fn is_loaded(&self, target: &Target) -> Result<bool, workload::Error> {
        let counts = self.counts(target)?;
        Ok(self.tables().iter().all(|t| {
            counts.get(&format!("rows {}", t.name)).is_some_and(|rows| *rows >= i128::from(t.min_rows))
        }))
    }

    fn baseline(
        &self,
        target: &Target,
        _counted: &BTreeMap<String, u64>,
    ) -> Result<Baseline, workload::Error> {
        Ok(Baseline { figures: self.counts(target)?, ..Baseline::default() })
    }

    /// Smacks as we know them select and update: the tables keep their rows.
    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, workload::Error> {
        let writes = |text: &str| {
            let text = text.trim_start().to_ascii_lowercase();
            ["insert", "delete", "replace", "truncate", "drop"].iter().any(|word| text.starts_with(word))
        };
        if self.smack.definitions.queries.iter().any(|query| writes(&query.text)) {
            return Ok(Vec::new());
        }
        let after = self.counts(target)?;
        Ok(before
            .figures
            .iter()
            .map(|(name, expected)| {
                let found = after.get(name).copied().unwrap_or(-1);
                Check {
                    name: name.clone(),
                    passed: found == *expected,
                    expected: expected.to_string(),
                    found: found.to_string(),
                }
            })
            .collect())
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn load::SessionFactory> {
        Box::new(Shared {
            barrel: self.smack.barrel.clone(),
            orders: vec![Order::Unload { rounds: None }].into(),
            target: target.clone(),
            dialect: self.dialect.clone(),
            seed,
            print: Printer::new(std::io::sink()),
            figures: Arc::new(Mutex::default()),
        })
    }
}
