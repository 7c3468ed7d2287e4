//! Fetching and unpacking with what goes wrong, on archives made here: a "server" is a script that says its version.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sandbox::builds::{self, FetchOptions, Resolved};
use sandbox::{Error, Home, Origin, Selector};

/// A tar.gz with a server that claims to be PostgreSQL `version`.
fn archive(dir: &Path, name: &str, version: &str) -> PathBuf {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let script = format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n");
    for (path, content) in
        [("pg/bin/postgres", script.as_str()), ("pg/bin/initdb", "#!/bin/sh\n"), ("pg/lib/x.a", "x")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        // No execute bits: they come back.
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let path = dir.join(name);
    fs::write(&path, tar.into_inner().unwrap().finish().unwrap()).unwrap();
    path
}

fn sha256(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path().join("home")).unwrap();
    (dir, home)
}

fn builds_in(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.builds()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn catalogue(home: &Home, sha256: &str) {
    let text = format!(
        "[[source]]\nflavor = \"postgres\"\nlabel = \"mine\"\nurl = \"https://example.invalid/a/pg-{{version}}.tar.gz\"\n\
         releases = {{ \"99.1\" = \"99.1\" }}\nsha256 = {{ \"99.1\" = \"{sha256}\" }}\n"
    );
    fs::File::create(home.catalogue()).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_user_s_own_source_is_fetched_from_a_mirror_and_checked() {
    let (dir, home) = home();
    let path = archive(dir.path(), "pg-99.1.tar.gz", "99.1");
    let selector: Selector = "postgres@99+mine".parse().unwrap();
    let options = FetchOptions { mirror: Some(format!("file://{}", dir.path().display())), again: false };

    catalogue(&home, &"0".repeat(64));
    assert!(
        matches!(builds::find(&home, &selector), Ok(Resolved::Away(away)) if away.name() == "postgres@99.1+mine")
    );
    let error = builds::fetch(&home, &selector, &options, &|_| ()).unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert!(builds_in(&home).is_empty());

    catalogue(&home, &sha256(&path));
    let build = builds::fetch(&home, &selector, &options, &|_| ()).unwrap();
    assert_eq!(build.name(), "postgres@99.1+mine");
    assert_eq!(build.archive_sha256, Some(sha256(&path)));
    assert_eq!(builds_in(&home), ["postgres@99.1+mine"]);
    assert!(!build.files.base.join("lib/x.a").exists(), "static libraries are left out");
    assert!(matches!(builds::find(&home, &selector), Ok(Resolved::Here(found)) if found == build));
    // A label is asked for or not there.
    assert!(!matches!(builds::find(&home, &"postgres@99".parse().unwrap()), Ok(Resolved::Here(_))));
    // Once it is there, its source is not needed any more.
    fs::remove_file(&path).unwrap();
    assert_eq!(builds::fetch(&home, &selector, &options, &|_| ()).unwrap(), build);
    builds::remove(&home, &build).unwrap();
    assert!(builds_in(&home).is_empty());
}

#[test]
fn archives_and_directories_of_one_s_own() {
    let (dir, home) = home();
    let path = archive(dir.path(), "own.tar.gz", "99.2");
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    assert_eq!(
        (build.name().as_str(), &build.origin),
        ("postgres@99.2", &Origin::Archive(path.canonicalize().unwrap()))
    );
    // Another archive of the same name needs a label; a wrong name is refused.
    let other = archive(dir.path(), "other.tar.gz", "99.2");
    let error = builds::fetch_archive(&home, &other, None, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("give this one a label"), "{error}");
    let labelled =
        builds::fetch_archive(&home, &other, Some(&"postgres@99.2+nightly".parse().unwrap()), &|_| ())
            .unwrap();
    assert_eq!(labelled.name(), "postgres@99.2+nightly");
    assert_ne!(labelled.identity, build.identity);
    let wrong = Some("postgres@98".parse().unwrap());
    let error = builds::fetch_archive(&home, &other, wrong.as_ref(), &|_| ()).unwrap_err();
    assert!(error.to_string().contains("it holds postgres@99.2"), "{error}");
    // A directory stays where it is.
    let place = dir.path().join("built/bin");
    fs::create_dir_all(&place).unwrap();
    fs::copy(&build.files.server, place.join("postgres")).unwrap();
    let named: Selector = "postgres@99.2+make".parse().unwrap();
    let built = builds::fetch_archive(&home, &dir.path().join("built"), Some(&named), &|_| ()).unwrap();
    assert!(built.files.server.starts_with(dir.path().canonicalize().unwrap().join("built")));
    assert_eq!(builds_in(&home), ["postgres@99.2", "postgres@99.2+make", "postgres@99.2+nightly"]);
    builds::remove(&home, &built).unwrap();
    assert!(place.join("postgres").is_file(), "what is the user's is not removed");
}

#[test]
fn a_cut_archive_and_a_half_made_build_are_not_trusted() {
    let (dir, home) = home();
    let path = archive(dir.path(), "own.tar.gz", "99.3");
    let whole = fs::read(&path).unwrap();
    for cut in [1, whole.len() / 3, whole.len() - 5] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap_err();
        assert!(matches!(error, Error::Archive { .. }), "{error}");
        assert!(builds_in(&home).is_empty(), "{:?}", builds_in(&home));
    }
    // As a plimsoll that was killed leaves it: no record, so no build; and what was being unpacked goes.
    fs::create_dir_all(home.builds().join("postgres@99.3/bin")).unwrap();
    fs::create_dir_all(home.builds().join(".new-4194305-x/pg")).unwrap();
    assert!(builds::fetched(&home).unwrap().is_empty());
    sandbox::leftovers(&home).unwrap();
    assert_eq!(builds_in(&home), ["postgres@99.3"]);
    fs::write(&path, &whole).unwrap();
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    assert_eq!(builds::fetched(&home).unwrap(), [build]);
}

#[test]
fn two_fetches_of_one_build_at_once_give_one_build() {
    let (dir, home) = home();
    let path = archive(dir.path(), "pg-99.1.tar.gz", "99.1");
    catalogue(&home, &sha256(&path));
    let options = FetchOptions { mirror: Some(format!("file://{}", dir.path().display())), again: false };
    let selector: Selector = "postgres@99.1+mine".parse().unwrap();
    std::thread::scope(|scope| {
        let fetches: Vec<_> =
            (0..4).map(|_| scope.spawn(|| builds::fetch(&home, &selector, &options, &|_| ()))).collect();
        for fetch in fetches {
            assert_eq!(fetch.join().unwrap().unwrap().name(), "postgres@99.1+mine");
        }
    });
    assert_eq!(builds_in(&home), ["postgres@99.1+mine"]);
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("NOT TESTED: a full disk; making one needs root");
        return;
    }
    let small = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "plimsoll-test"])
        .arg(small.path())
        .status();
    if !status.is_ok_and(|s| s.success()) {
        eprintln!("NOT TESTED: a full disk; mount is not allowed here");
        return;
    }
    let check = || {
        let home = Home::at(small.path().join("home")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big.tar.gz");
        let mut tar =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(1 << 20);
        header.set_mode(0o755);
        tar.append_data(&mut header, "bin/postgres", std::io::repeat(b'x').take(1 << 20)).unwrap();
        fs::write(&path, tar.into_inner().unwrap().finish().unwrap()).unwrap();
        let error = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
        assert!(builds_in(&home).is_empty());
    };
    use std::io::Read;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    let unmounted = std::process::Command::new("umount").arg(small.path()).status();
    assert!(unmounted.is_ok_and(|s| s.success()));
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
