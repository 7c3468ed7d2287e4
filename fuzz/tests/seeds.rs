//! Every seed, every input that ever failed, and what is near them, through the same functions as the fuzzer's.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_fuzz::TARGETS;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("a folder of seeds")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a seed");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Replays a target's seeds, and each of them cut short and with single bytes turned over, at most so many places each.
fn replay(target: &str, places: usize) {
    let (_, door) = TARGETS.into_iter().find(|(name, _)| *name == target).expect("a target");
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for (path, bytes) in seeds {
        println!("{}", path.display());
        door(&bytes);
        for at in (0..bytes.len()).step_by((bytes.len() / places).max(1)) {
            println!("cut or turned over at {at}");
            door(&bytes[..at]);
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            door(&other);
        }
    }
}

#[test]
fn each_folder_of_seeds_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let folders: BTreeSet<String> = fs::read_dir(folder)
        .expect("the seeds")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, targets);
}

#[test]
fn archives() {
    replay("archives", 100);
}

#[test]
fn bundles() {
    replay("bundles", 20);
}

#[test]
fn mysql_codecs() {
    replay("mysql_codecs", 300);
}

#[test]
fn mysql_compression() {
    replay("mysql_compression", 300);
}

#[test]
fn mysql_login() {
    replay("mysql_login", 300);
}

#[test]
fn mysql_session() {
    replay("mysql_session", 300);
}

#[test]
fn postgres_login() {
    replay("postgres_login", 300);
}

#[test]
fn postgres_session() {
    replay("postgres_session", 300);
}

#[test]
fn results_files() {
    replay("results_files", 3);
}

/// Texts of a target whose names begin with `ok_`, from which the fuzzer gets further than from mistakes.
fn called_ok(target: &str) -> Vec<(PathBuf, String)> {
    let is_ok = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ok_"));
    let found: Vec<(PathBuf, String)> = seeds(target)
        .into_iter()
        .filter(|(path, _)| is_ok(path))
        .map(|(path, bytes)| (path, String::from_utf8(bytes).expect("text")))
        .collect();
    assert!(!found.is_empty(), "{target}");
    found
}

#[test]
fn what_is_called_ok_is() {
    for (path, text) in called_ok("study_files") {
        let error = lab::study::parse(&path, &text).err().map(|error| error.render(false));
        assert_eq!(error.as_deref(), None);
    }
    for (path, text) in called_ok("workload_files") {
        let file = workload::sqlfile::SqlFile::parse("seed.sql", &text);
        assert_eq!(file.err().map(|error| error.to_string()), None, "{}", path.display());
    }
    for (path, text) in called_ok("pgbench_scripts") {
        let names = &mut pgscript::Names::default();
        let script = pgscript::Script::parse("seed.sql", &text, names);
        assert_eq!(script.err().map(|error| error.to_string()), None, "{}", path.display());
    }
    for (path, text) in called_ok("smack_files") {
        let checked = smack::check("seed.smack", &text, &["10".to_owned(), "100".to_owned()]);
        assert_eq!(checked.err().map(|error| error.to_string()), None, "{}", path.display());
    }
}

#[test]
fn study_files() {
    replay("study_files", 40);
}

#[test]
fn workload_files() {
    replay("workload_files", 200);
}

#[test]
fn pgbench_scripts() {
    replay("pgbench_scripts", 200);
}

#[test]
fn smack_files() {
    replay("smack_files", 200);
}
