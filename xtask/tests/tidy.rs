//! The tree against the habits of CONTRIBUTING.md, as far as a program can tell.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What rustfmt leaves alone (comments, strings that cannot be broken) may be wider than its 110.
const WIDTH_MAX: usize = 160;
const LINES_MAX: usize = 850;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Files under version control with one of these endings, and their text.
fn files(endings: &[&str]) -> Vec<(PathBuf, String)> {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().unwrap();
    assert!(listed.status.success(), "the tests run in a clone: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    let names = names.split('\0').filter(|name| endings.iter().any(|ending| name.ends_with(ending)));
    let read = |name: &str| Some((PathBuf::from(name), std::fs::read_to_string(root().join(name)).ok()?));
    let files: Vec<_> = names.filter_map(read).collect();
    assert!(!files.is_empty());
    files
}

fn check(found: &[String], habit: &str) {
    assert!(found.is_empty(), "{habit}:\n  {}", found.join("\n  "));
}

#[test]
fn lines_can_be_read_side_by_side() {
    let mut wide = Vec::new();
    for (path, text) in files(&[".rs"]) {
        // Texts of others, and what a screen shows, are as wide as they are.
        let is_quoted = |line: &str| line.contains('"') || line.trim_end().ends_with('\\');
        let is_wide = |line: &str| line.chars().count() > WIDTH_MAX && !is_quoted(line);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| is_wide(line)) {
            wide.push(format!("{}:{}: {} characters", path.display(), at + 1, line.chars().count()));
        }
    }
    check(&wide, &format!("lines have at most {WIDTH_MAX} characters"));
}

#[test]
fn files_are_split_by_noun() {
    let long = files(&[".rs"])
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()));
    check(&long.collect::<Vec<_>>(), &format!("a file has at most {LINES_MAX} lines"));
}

#[test]
fn futures_are_written_by_hand_in_one_place() {
    let by_hand = files(&[".rs"])
        .into_iter()
        .filter(|(path, _)| {
            !path.starts_with("xtask/tests") && path != Path::new("crates/wire/src/connection.rs")
        })
        .filter(|(_, text)| {
            let is_impl = |line: &str| line.starts_with("impl") && line.contains(" Future for ");
            text.lines().any(|line| is_impl(line.trim_start()))
        })
        .map(|(path, _)| path.display().to_string());
    check(&by_hand.collect::<Vec<_>>(), "everything above wire/src/connection.rs is async");
}

#[test]
fn rooms_say_what_they_are_for_and_what_is_never_in_them() {
    let silent = files(&["src/lib.rs"])
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates"))
        .filter(|(_, text)| {
            let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
            !head.iter().any(|line| line.contains("Never here"))
        })
        .map(|(path, _)| path.display().to_string());
    check(&silent.collect::<Vec<_>>(), "a room says in its first lines what is never in it");
}

#[test]
fn documents_name_files_that_are_there() {
    let tree: Vec<PathBuf> = files(&[""]).into_iter().map(|(path, _)| path).collect();
    let mut lost = Vec::new();
    for (path, text) in files(&["ARCHITECTURE.md", "CONTRIBUTING.md"]) {
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = word.contains('/') && !word.contains([' ', '*', ':', '<', '=', '$', '(']);
            if !is_path || word.starts_with(['/', '.', '~']) {
                continue;
            }
            let wanted = format!("/{}", word.trim_end_matches('/'));
            let is_there = |path: &PathBuf| {
                let path = format!("/{}", path.display());
                path.ends_with(&wanted) || path.contains(&format!("{wanted}/"))
            };
            if !tree.iter().any(is_there) {
                lost.push(format!("{}: {word}", path.display()));
            }
        }
    }
    check(&lost, "documents name files that are there");
}
