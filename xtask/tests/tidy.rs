//! The tree against the habits of CONTRIBUTING.md, as far as a program can tell.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What rustfmt leaves alone (comments, strings that cannot be broken) may be wider than its 110.
const WIDTH_MAX: usize = 160;
const LINES_MAX: usize = 800;

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
fn no_future_is_written_by_hand() {
    let by_hand = files(&[".rs"])
        .into_iter()
        .filter(|(path, _)| !path.starts_with("xtask/tests"))
        .filter(|(_, text)| {
            let is_impl = |line: &str| line.starts_with("impl") && line.contains(" Future for ");
            text.lines().any(|line| is_impl(line.trim_start()))
        })
        .map(|(path, _)| path.display().to_string());
    check(&by_hand.collect::<Vec<_>>(), "everything is async; what waits for the kernel is a poll_fn");
}

/// Words for things that have a name of the field's own, and phrases that a stranger cannot know.
const BANNED: &[(&str, &str)] = &[
    ("crew", "the sessions of a worker"),
    ("usher", "what hands out arrivals"),
    ("for whom it may concern", "say who"),
    ("counted out", "a fixed number of transactions"),
    ("statement's way", "say which code"),
    ("virtual user", "session"),
    ("vuser", "session"),
    ("testbed", "sandbox"),
    ("data point", "run or interval"),
];

#[test]
fn things_have_the_names_of_the_field() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md"]) {
        if path.starts_with("xtask/tests") || path == Path::new("CHANGELOG.md") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, instead) in BANNED.iter().filter(|(word, _)| has_word(&line, word)) {
                found.push(format!("{}:{}: {word:?}, say: {instead}", path.display(), at + 1));
            }
        }
    }
    check(&found, "things have the names of the field, and comments say plain things");
}

/// Whether a line has these words, not as a part of longer ones.
fn has_word(line: &str, words: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + words.len()..].chars().next());
        !is_letter(before) && !is_letter(after.filter(|c| *c != 's'))
    })
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
