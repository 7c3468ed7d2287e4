//! Workloads by the names that studies and the command line use: built-in ones, the built-in smacks, or the path of
//! a file (`.sql`, `.smack`).
//!
//! A name is resolved once, when a study is read or a bench is asked for: what was read then is what all of its runs
//! run, whatever becomes of the file meanwhile.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Serialize, Serializer};
use smack::program::DataDir;
use smack::smacks::{self, Smack};
use store::bundle::{PGBENCH, PGBENCH_INIT, content_sha256};
use wire::files;
use workload::Workload;
use workload::pgbench::{Scripts, Weighted};
use workload::sqlfile::SqlFile;

use crate::error::Error;

/// The built-in smacks: their rows are generated when they are first wanted.
const SMACKS: [&str; 2] = ["select-key", "update-select"];

/// Files of a workload that do not stand where it names them, by these names: those that came in a bundle.
pub type Elsewhere = BTreeMap<String, PathBuf>;
/// Workloads with such files, by the names that a study has for them.
pub type Unpacked = BTreeMap<String, Elsewhere>;

/// The name of a workload of scripts: what [`resolve`] takes.
pub(crate) fn pgbench_name(scripts: &[String], init: Option<&str>) -> String {
    let init = init.map_or_else(String::new, |init| format!("{PGBENCH_INIT}{init}"));
    format!("{PGBENCH}{}{init}", scripts.join(","))
}

/// A workload as it was read, with what tells it from another one of the same name.
#[derive(Clone)]
pub struct Resolved {
    given: String,
    /// Where its files stand, where that is not where it names them.
    elsewhere: Elsewhere,
    workload: Held,
    content_sha256: Option<String>,
}

#[derive(Clone)]
enum Held {
    BuiltIn(&'static dyn Workload),
    Read(Arc<dyn Workload + Send + Sync>),
}

impl Resolved {
    fn built_in(name: &str, workload: Held) -> Resolved {
        Resolved { given: name.to_owned(), elsewhere: Elsewhere::new(), workload, content_sha256: None }
    }

    fn read(name: &str, elsewhere: &Elsewhere, workload: Held, hash: String) -> Resolved {
        let elsewhere = elsewhere.clone();
        Resolved { given: name.to_owned(), elsewhere, workload, content_sha256: Some(hash) }
    }

    /// What [`resolve_from`] was given.
    pub(crate) fn given(&self) -> &str {
        &self.given
    }

    /// See [`Elsewhere`].
    pub(crate) fn elsewhere(&self) -> &Elsewhere {
        &self.elsewhere
    }

    /// SHA-256 of the workload's file and of the data files that it names, hexadecimal; `None` for what is built in.
    pub fn content_sha256(&self) -> Option<&str> {
        self.content_sha256.as_deref()
    }

    /// Whether the workload came with this plimsoll.
    pub(crate) fn is_built_in(&self) -> bool {
        self.content_sha256.is_none()
    }

    pub(crate) fn option_names(&self) -> BTreeSet<String> {
        self.options().iter().map(|option| option.name.to_string()).collect()
    }
}

impl Deref for Resolved {
    type Target = dyn Workload;

    fn deref(&self) -> &Self::Target {
        match &self.workload {
            Held::BuiltIn(workload) => *workload,
            Held::Read(workload) => workload.as_ref(),
        }
    }
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name(), self.content_sha256().unwrap_or("built in"))
    }
}

/// The same name and the same content.
impl PartialEq for Resolved {
    fn eq(&self, other: &Resolved) -> bool {
        self.name() == other.name() && self.content_sha256 == other.content_sha256
    }
}

impl Eq for Resolved {}

/// The hash of the content: it stands for the workload in a study's fingerprint.
impl Serialize for Resolved {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.content_sha256.serialize(serializer)
    }
}

/// Of the options given, those that a server of this flavour does not heed.
pub(crate) fn unheeded<'a>(
    workload: &Resolved,
    given: &'a BTreeMap<String, String>,
    flavor: sandbox::Flavor,
) -> Vec<&'a str> {
    let is_of_others = |name: &&'a str| {
        let spec = workload.options().iter().find(|spec| spec.name == *name);
        spec.and_then(|spec| spec.protocol).is_some_and(|protocol| protocol != flavor.protocol())
    };
    given.keys().map(String::as_str).filter(is_of_others).collect()
}

/// Names of all built-in workloads.
pub fn names() -> Vec<&'static str> {
    workload::all().iter().map(|workload| workload.name()).chain(SMACKS).collect()
}

/// All built-in workloads. Smacks whose rows cannot be kept on this machine are left out.
pub fn all() -> Vec<Resolved> {
    names().into_iter().filter_map(|name| resolve(name).ok()).collect()
}

/// The workload of that name, read now.
///
/// # Errors
/// There is none, its file cannot be understood, or a smack's rows cannot be written.
pub fn resolve(name: &str) -> Result<Resolved, Error> {
    resolve_from(name, &Elsewhere::new())
}

/// The workload of that name, read now from files that may stand elsewhere.
///
/// # Errors
/// As for [`resolve`].
pub(crate) fn resolve_from(name: &str, elsewhere: &Elsewhere) -> Result<Resolved, Error> {
    if let Some(found) = workload::find(name) {
        return Ok(Resolved::built_in(name, Held::BuiltIn(found)));
    }
    if name.starts_with(PGBENCH) {
        return pgbench_scripts(name, elsewhere);
    }
    let smack = SMACKS.iter().find(|smack| smack.replace('-', "_") == name.replace('-', "_"));
    match (smack, extension(name)) {
        (Some(smack), _) => built_in_smack(smack),
        (None, "sql") => sql_file(name, elsewhere),
        (None, "smack") => {
            let read = smack_file(name, elsewhere)?;
            let hash = read.content_sha256().to_owned();
            Ok(Resolved::read(name, elsewhere, Held::Read(Arc::new(read)), hash))
        }
        (None, _) => Err(unknown(name)),
    }
}

/// The files that a workload is read from, as they are now, some of them elsewhere: the name that it has for each, and the
/// bytes, in the order in which [`content_sha256`] takes them. Scripts that came with this plimsoll are among them where
/// others go with them.
///
/// # Errors
/// It is not made of files, or one cannot be read.
pub fn files(name: &str, elsewhere: &Elsewhere) -> Result<Vec<(String, Vec<u8>)>, Error> {
    if name.starts_with(PGBENCH) {
        let Named { scripts, init } = named_scripts(name, elsewhere)?;
        let all = scripts.into_iter().map(|script| (script.name, script.text)).chain(init);
        return Ok(all.map(|(path, text)| (path, text.into_bytes())).collect());
    }
    match extension(name) {
        "sql" => Ok(vec![(name.to_owned(), read(name, elsewhere)?.into_bytes())]),
        "smack" => {
            let mut all = smack_file(name, elsewhere)?.files().map_err(|error| refused(name, &error))?;
            // Within itself a smack has no name.
            name.clone_into(&mut all[0].0);
            Ok(all)
        }
        _ => Err(unknown(name)),
    }
}

/// Whether this is the name of a built-in workload. Nothing is opened to tell.
pub(crate) fn is_of_catalogue(name: &str) -> bool {
    let name = name.replace('-', "_");
    names().iter().any(|known| known.replace('-', "_") == name)
}

/// Whether a name that is no built-in workload's is the path of a file, or names scripts of pgbench's language.
pub(crate) fn is_path(name: &str) -> bool {
    name.starts_with(PGBENCH) || matches!(extension(name), "sql" | "smack")
}

fn extension(name: &str) -> &str {
    Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn unknown(name: &str) -> Error {
    let hint = match wire::spelling::nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`plimsoll workloads` lists them; a path ending in .sql or .smack names a file".to_owned(),
    };
    Error::Usage(format!("there is no workload `{name}`: {hint}"))
}

fn refused(name: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("workload `{name}`: {why}"))
}

/// The built-in smacks by the folder of their rows. To understand them takes 90,000 rows each; a study names them often.
static BUILT_IN_SMACKS: Mutex<BTreeMap<PathBuf, Vec<Arc<Smack>>>> = Mutex::new(BTreeMap::new());

fn built_in_smack(name: &str) -> Result<Resolved, Error> {
    let path = sandbox::Home::find()?.path().join("smack-data");
    let mut known = BUILT_IN_SMACKS.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains_key(&path) {
        let data = DataDir { path: path.clone(), allow_shell: false, elsewhere: Elsewhere::new() };
        let all = smacks::built_in(&data).map_err(|error| refused(name, &error))?;
        known.insert(path.clone(), all.into_iter().map(Arc::new).collect());
    }
    let found = known[&path].iter().find(|smack| smack.name() == name);
    let found = found.ok_or_else(|| unknown(name))?.clone();
    Ok(Resolved::built_in(name, Held::Read(found)))
}

fn read(name: &str, elsewhere: &Elsewhere) -> Result<String, Error> {
    let path = elsewhere.get(name).map_or(Path::new(name), PathBuf::as_path);
    files::read_text(path, &files::WORKLOAD).map_err(|error| refused(name, &error))
}

/// A file with Plimsoll's directives, or one as pgbench takes it: what only pgbench's language has is read so.
fn sql_file(name: &str, elsewhere: &Elsewhere) -> Result<Resolved, Error> {
    let text = read(name, elsewhere)?;
    let hash = content_sha256(name, &[(name, &text)]);
    let of = |workload: Held| Resolved::read(name, elsewhere, workload, hash);
    let why = match SqlFile::parse(name, &text) {
        Ok(read) => return Ok(of(Held::Read(Arc::new(read)))),
        Err(why) => why,
    };
    let stem = Path::new(name).file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    let script = Weighted { name: name.to_owned(), text: text.clone(), weight: 1 };
    match Scripts::parse(&stem, vec![script], None) {
        Ok(read) => Ok(of(Held::Read(Arc::new(read)))),
        // Whose file it is decides whose words are said.
        Err(_) if workload::sqlfile::has_directives(&text) => Err(refused(name, &why)),
        Err(pgbenchs) if uses_pgbenchs_commands(&text) => Err(refused(name, &pgbenchs)),
        Err(_) => Err(refused(name, &why)),
    }
}

/// Whether a line begins with a command that only pgbench's language has.
fn uses_pgbenchs_commands(text: &str) -> bool {
    const COMMANDS: &str =
        "\\gset \\aset \\if \\elif \\endif \\startpipeline \\endpipeline \\shell \\setshell";
    COMMANDS.split(' ').any(|command| text.contains(command))
}

/// Scripts of pgbench's language, as a name tells them.
struct Named {
    scripts: Vec<Weighted>,
    /// The file that makes the tables: its name and its text.
    init: Option<(String, String)>,
}

/// Names of scripts that are built in and paths, each with `@WEIGHT` where it is not 1.
fn named_scripts(name: &str, elsewhere: &Elsewhere) -> Result<Named, Error> {
    let list = name.strip_prefix(PGBENCH).unwrap_or(name);
    let (list, init) = match list.split_once(PGBENCH_INIT) {
        Some((list, init)) => (list, Some((init.to_owned(), read(init, elsewhere)?))),
        None => (list, None),
    };
    let mut scripts = Vec::new();
    for entry in list.split(',') {
        let (script, weight) = match entry.rsplit_once('@') {
            Some((script, weight)) => {
                let weight = weight.parse::<u32>();
                let weight =
                    weight.map_err(|_| refused(name, &format!("`{entry}`: a weight is a whole number")))?;
                (script, u64::from(weight))
            }
            None => (entry, 1),
        };
        let text = match pgscript::builtin::matching(script).as_slice() {
            _ if elsewhere.contains_key(script) => read(script, elsewhere)?,
            [builtin] if !script.is_empty() => builtin.text.to_owned(),
            _ if extension(script).is_empty() && !Path::new(script).exists() => {
                let known: Vec<&str> = pgscript::builtin::ALL.iter().map(|builtin| builtin.name).collect();
                let known = known.join(", ");
                return Err(refused(
                    name,
                    &format!("there is no script `{script}`: {known}, or the path of a file"),
                ));
            }
            _ => read(script, elsewhere)?,
        };
        scripts.push(Weighted { name: script.to_owned(), text, weight });
    }
    if scripts.iter().all(|script| script.weight == 0) {
        return Err(refused(name, &"all weights are 0"));
    }
    Ok(Named { scripts, init })
}

fn pgbench_scripts(name: &str, elsewhere: &Elsewhere) -> Result<Resolved, Error> {
    let Named { scripts, init } = named_scripts(name, elsewhere)?;
    let of_init = init.as_ref().map(|(path, text)| (path.as_str(), text.as_str()));
    let files: Vec<(&str, &str)> =
        scripts.iter().map(|script| (&*script.name, &*script.text)).chain(of_init).collect();
    let hash = content_sha256(name, &files);
    let init = init.map(|(_, text)| text);
    let read = Scripts::parse(name, scripts, init).map_err(|error| refused(name, &error))?;
    Ok(Resolved::read(name, elsewhere, Held::Read(Arc::new(read)), hash))
}

fn smack_file(name: &str, elsewhere: &Elsewhere) -> Result<Smack, Error> {
    let text = read(name, elsewhere)?;
    let path = elsewhere.get(name).map_or(Path::new(name), PathBuf::as_path);
    // Data files are named in the file as seen from where it stands.
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let data = DataDir {
        path: folder.unwrap_or(Path::new(".")).to_owned(),
        allow_shell: false,
        elsewhere: elsewhere.clone(),
    };
    let stem = Path::new(name).file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    Smack::new(&stem, Cow::Owned(text), &data).map_err(|error| refused(name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_too_large_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let large = |name: &str, limit: &files::Limit| {
            let path = dir.path().join(name);
            std::fs::File::create(&path).unwrap().set_len((limit.mib_max << 20) + 1).unwrap();
            path
        };
        for name in ["w.sql", "w.smack"] {
            let path = large(name, &files::WORKLOAD);
            let error = resolve(path.to_str().unwrap()).unwrap_err().to_string();
            assert!(error.contains("larger than 16 MiB") && error.contains("in a data file"), "{error}");
        }
        let error = crate::study::read(&large("s.toml", &files::STUDY)).unwrap_err().to_string();
        assert!(error.contains("larger than 1 MiB") && error.contains("several studies"), "{error}");
    }

    #[test]
    fn scripts_of_pgbenchs_are_named_with_weights() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let script = path("a.sql", "SELECT 1 AS one \\gset\n\\if :one = 1\nSELECT :one;\n\\endif\n");
        let init = path("init.sql", "CREATE TABLE t (a int);\n");
        for name in [
            "pgbench:tpcb-like".to_owned(),
            "pgbench:select-only@9,simple-update".to_owned(),
            pgbench_name(&[format!("{script}@3"), "select-only".to_owned()], Some(&init)),
            script.clone(),
        ] {
            let found = resolve(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found.content_sha256().is_some() && !found.is_built_in(), "{name}");
        }
        let broken = path("b.sql", "SELECT 1;\n\\if true\n");
        for (name, says) in [
            ("pgbench:nope".to_owned(), "tpcb-like"),
            ("pgbench:tpcb-like@x".to_owned(), "whole number"),
            ("pgbench:tpcb-like@0".to_owned(), "all weights are 0"),
            (broken, "\\if without matching \\endif"),
        ] {
            let error = resolve(&name).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }

    #[test]
    fn built_in_smacks_are_understood_once() {
        let [first, again] = [(); 2].map(|()| resolve("select-key").unwrap());
        let (Held::Read(first), Held::Read(again)) = (&first.workload, &again.workload) else {
            panic!("smacks are read from their text");
        };
        assert!(Arc::ptr_eq(first, again));
    }
}
