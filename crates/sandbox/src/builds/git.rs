//! Sources out of a git clone, by git itself: a commit's tree in a directory of ours, and nothing of the clone changed.

use std::path::Path;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::inspect::hex;
use crate::Error;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// The full name of the commit, or a hash of the files where there is no clone.
    pub(crate) commit: String,
    /// Hash of what is not committed; `None` for a commit to the letter.
    pub(crate) dirt: Option<String>,
}

/// Whether a directory is a git clone.
fn is_clone(from: &Path) -> Result<bool, Error> {
    if !from.is_dir() {
        return Err(refuse(from, "there is no such directory".to_owned()));
    }
    match git(from, &["rev-parse", "--git-dir"]) {
        Ok(_) => Ok(true),
        // git's own refusal of somebody else's repository says what to do.
        Err(said) if said.contains("safe.directory") => Err(refuse(from, said)),
        Err(_) => Ok(false),
    }
}

/// The commit that a request names; `None` where the sources are no clone and none is asked for.
pub(crate) fn asked(from: &Path, reference: Option<&str>) -> Result<Option<String>, Error> {
    match (is_clone(from)?, reference) {
        (true, named) => commit_in(from, named.unwrap_or("HEAD")).map(Some),
        (false, None) => Ok(None),
        (false, Some(_)) => {
            Err(refuse(from, "it is no git clone, so it has no commits: leave --ref out".to_owned()))
        }
    }
}

/// What would be exported.
pub(crate) fn described(from: &Path, reference: Option<&str>) -> Result<Export, Error> {
    let Some(commit) = asked(from, reference)? else { return plain(from) };
    let dirt = if reference.is_some() { None } else { dirt(from)? };
    Ok(Export { commit, dirt })
}

/// Writes the tree of a commit, or the checkout as it stands, into `to`.
pub(crate) fn write(from: &Path, reference: Option<&str>, export: &Export, to: &Path) -> Result<(), Error> {
    let is_commit = is_clone(from)?;
    match &export.dirt {
        None if is_commit => pipe(from, &format!("git archive --format=tar {}", export.commit), to)?,
        None => pipe(from, "tar -c .", to)?,
        Some(_) => {
            // A file that was removed from the checkout is still listed.
            let present = "git ls-files -z -co --exclude-standard | while IFS= read -r -d '' file; do \
                           if [ -e \"$file\" ] || [ -L \"$file\" ]; then printf '%s\\0' \"$file\"; fi; done";
            pipe(from, &format!("{present} | tar -c --null --no-recursion -T -"), to)?;
        }
    }
    if is_commit {
        submodules(from, &export.commit, to)?;
    }
    // A commit stays what it is; what somebody works on may have changed since it was described.
    if reference.is_none() && described(from, None)? != *export {
        return Err(refuse(from, "its files changed while they were copied: try again".to_owned()));
    }
    Ok(())
}

/// Whether a commit, or the checkout, has a file or folder.
pub(crate) fn has(from: &Path, reference: Option<&str>, path: &str) -> bool {
    match reference {
        None => from.join(path).exists(),
        Some(named) => git(from, &["cat-file", "-e", &format!("{named}:./{path}")]).is_ok(),
    }
}

/// The full name of a commit of a clone.
pub fn commit_of(from: &Path, named: &str) -> Result<String, Error> {
    if !is_clone(from)? {
        return Err(refuse(from, format!("it is no git clone, so it has no commit {named}")));
    }
    commit_in(from, named)
}

/// The same of what is known to be a clone.
fn commit_in(from: &Path, named: &str) -> Result<String, Error> {
    let is_odd = named.is_empty() || named.starts_with('-');
    let found =
        git(from, &["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{named}^{{commit}}")]);
    match found {
        Ok(commit) if !is_odd => Ok(commit.trim().to_owned()),
        _ => Err(refuse(from, format!("it has no commit {named}{}", shallow_hint(from)))),
    }
}

/// What to do where a commit may lie beyond the clone's depth.
fn shallow_hint(from: &Path) -> &'static str {
    match git(from, &["rev-parse", "--is-shallow-repository"]) {
        Ok(answer) if answer.trim() == "true" => {
            ": the clone is shallow, so older commits are missing: git fetch --unshallow"
        }
        _ => ": git fetch --all --tags, or give another name (git log --oneline shows them)",
    }
}

/// What a commit is about, in its author's words; empty where git does not say.
pub fn subject(from: &Path, commit: &str) -> String {
    git(from, &["log", "-1", "--format=%s", "--end-of-options", commit]).unwrap_or_default().trim().to_owned()
}

/// The commits after `good` up to `bad`, oldest first, along the first parents.
pub fn range(from: &Path, good: &str, bad: &str) -> Result<Vec<String>, Error> {
    let (good, bad) = (commit_of(from, good)?, commit_of(from, bad)?);
    let range = format!("{good}..{bad}");
    let listed = git(from, &["rev-list", "--first-parent", "--reverse", &range]);
    let listed = listed.map_err(|said| refuse(from, said))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn refuse(from: &Path, why: String) -> Error {
    Error::Unsupported { what: from.display().to_string(), why }
}

fn command(from: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(from).stdin(Stdio::null()).env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0");
    command
}

/// What git says on standard output, or on standard error where it fails.
fn git(from: &Path, words: &[&str]) -> Result<String, String> {
    let output = command(from)
        .args(words)
        .output()
        .map_err(|error| format!("git does not run ({error}): apt-get install git"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// A hash of what is not committed, new files included.
fn dirt(from: &Path) -> Result<Option<String>, Error> {
    let said = |words: &[&str]| git(from, words).map_err(|said| refuse(from, said));
    let status = said(&["status", "--porcelain"])?;
    if status.trim().is_empty() {
        return Ok(None);
    }
    let mut hasher = Sha256::new();
    hasher.update(status);
    hasher.update(said(&["diff", "HEAD", "--binary"])?);
    let new = said(&["ls-files", "-z", "-o", "--exclude-standard"])?;
    for file in new.split_terminator('\0') {
        hasher.update(std::fs::read(from.join(file)).unwrap_or_default());
    }
    Ok(Some(hex(&hasher.finalize())))
}

/// A directory that is no clone: known by what its files are called and hold.
fn plain(from: &Path) -> Result<Export, Error> {
    let listed = Command::new("sh")
        .args(["-c", "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum"])
        .current_dir(from)
        .output()
        .map_err(|e| Error::io("look through", from, e))?;
    Ok(Export { commit: hex(&Sha256::digest(listed.stdout))[..40].to_owned(), dirt: None })
}

/// Unpacks what a command packs.
fn pipe(from: &Path, pack: &str, to: &Path) -> Result<(), Error> {
    let script = format!("set -o pipefail; {pack} | tar -x --no-same-owner -C \"$0\"");
    let output = Command::new("bash")
        .args(["-c", &script])
        .arg(to)
        .current_dir(from)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::io("export", from, e))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(refuse(from, String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Exports the submodules of a commit, from the clones of the clone.
fn submodules(from: &Path, commit: &str, to: &Path) -> Result<(), Error> {
    let tree = git(from, &["ls-tree", "-r", commit]).map_err(|said| refuse(from, said))?;
    for line in tree.lines().filter(|line| line.starts_with("160000 ")) {
        let Some((head, path)) = line.split_once('\t') else { continue };
        let wanted = head.split_whitespace().nth(2).unwrap_or_default();
        let below = from.join(path);
        let is_there = below.join(".git").exists() && commit_of(&below, wanted).is_ok();
        if !is_there {
            let why = format!(
                "its submodule {path} is not there at {wanted}: git -C {} submodule update --init --recursive",
                from.display()
            );
            return Err(refuse(from, why));
        }
        let place = to.join(path);
        std::fs::create_dir_all(&place).map_err(|e| Error::io("create", &place, e))?;
        pipe(&below, &format!("git archive --format=tar {wanted}"), &place)?;
        submodules(&below, wanted, &place)?;
    }
    Ok(())
}
