//! What a test could not look at on this machine, and why: said where a user sees it, and kept for the end of the run.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names a file that collects the entries of several runs of `cargo test`. Without it a run has its own in `target`.
pub const COLLECTED_IN: &str = "PLIMSOLL_NOT_TESTED";

/// Says that `what` is not tested here, and why. It goes to the stream itself, because libtest swallows `eprintln!` of
/// tests that pass, and into a file, which `cargo test --workspace` shows at its end (`xtask/tests/not_tested.rs`).
///
/// # Panics
/// The entry cannot be kept: what is not tested must not get lost.
pub fn not_tested(what: impl Display, why: impl Display) {
    let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (what, why) = (line(what.to_string()), line(why.to_string()));
    // A closed stream is no reason to fail; the file is what counts.
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {what}: {why}");
    keep(&file(), &run(), &what, &why)
        .unwrap_or_else(|error| panic!("`{what}` is not tested ({why}), and that cannot be kept: {error}"));
}

/// Takes the entries of this run of `cargo test`, what and why, each once and in the order in which they came; of all
/// runs where [`COLLECTED_IN`] collects them. A run's own file is gone then.
///
/// # Errors
/// The file cannot be read or removed.
pub fn of_this_run() -> std::io::Result<Vec<(String, String)>> {
    let path = file();
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    if is_collected() {
        return Ok(entries(&text, None));
    }
    std::fs::remove_file(&path)?;
    Ok(entries(&text, Some(&run())))
}

fn is_collected() -> bool {
    std::env::var_os(COLLECTED_IN).is_some()
}

/// `target/debug/not-tested.txt`, for a test in `target/debug/deps`.
fn file() -> PathBuf {
    if let Some(path) = std::env::var_os(COLLECTED_IN) {
        return path.into();
    }
    let test = std::env::current_exe().unwrap_or_default();
    test.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("not-tested.txt")
}

/// One write, so that test binaries and threads need not wait for each other.
fn keep(file: &Path, run: &str, what: &str, why: &str) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(file)?;
    file.write_all(format!("{run}\t{what}\t{why}\n").as_bytes())
}

fn entries(text: &str, run: Option<&str>) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(of), Some(what), Some(why)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let is_known = || found.iter().any(|(known, _)| known == what);
        if run.is_none_or(|run| run == of) && !is_known() {
            found.push((what.to_owned(), why.to_owned()));
        }
    }
    found
}

/// Which cargo runs the tests, and since when: an earlier run's entries are not about this one.
fn run() -> String {
    let own = std::process::id();
    let mut pid = own;
    while let Some((name, parent, started)) = process(pid) {
        if name.starts_with("cargo") {
            return format!("cargo {pid} {started}");
        }
        pid = parent;
    }
    // A test that was started by hand is a run of its own.
    format!("test {own}")
}

/// Name, parent and start of a process (proc_pid_stat(5)).
fn process(pid: u32) -> Option<(String, u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some((head.split_once(" (")?.1.to_owned(), fields.get(1)?.parse().ok()?, (*fields.get(19)?).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_own_entries_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not-tested.txt");
        for (run, what, why) in
            [("cargo 1", "a", "old"), ("cargo 2", "b", "no browser"), ("cargo 2", "b", "again")]
        {
            keep(&path, run, what, why).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let pair = |what: &str, why: &str| (what.to_owned(), why.to_owned());
        assert_eq!(entries(&text, Some("cargo 2")), [pair("b", "no browser")]);
        assert_eq!(entries(&text, None), [pair("a", "old"), pair("b", "no browser")]);
    }

    #[test]
    fn a_process_is_read_with_its_parent() {
        let (name, parent, started) = process(std::process::id()).unwrap();
        assert!(!name.is_empty() && started.parse::<u64>().is_ok());
        assert_eq!(parent, std::os::unix::process::parent_id());
    }
}
