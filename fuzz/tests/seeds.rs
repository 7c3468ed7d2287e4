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

/// Small studies, from which the fuzzer gets further than from mistakes.
#[test]
fn studies_that_are_called_ok_are() {
    for (path, bytes) in seeds("study_files") {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ok_")) {
            let text = String::from_utf8(bytes).expect("text");
            let error = lab::study::parse(&path, &text).err().map(|error| error.render(false));
            assert_eq!(error.as_deref(), None);
        }
    }
}

#[test]
fn study_files() {
    replay("study_files", 40);
}
