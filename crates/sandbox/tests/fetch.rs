//! Fetching and unpacking with what goes wrong, on archives made here: a "server" is a script that says its version.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
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
    // Where other users may enter: as root, what is fetched is asked for its version as one of them.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
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
        testkit::not_tested("a full disk below a fetch", "making one needs root");
        return;
    }
    let small = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "plimsoll-test"])
        .arg(small.path())
        .status();
    if !status.is_ok_and(|s| s.success()) {
        testkit::not_tested("a full disk below a fetch", "mount is not allowed here");
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

/// Serves a file over HTTP on loopback, each answer as the plan says: how many bytes of the file are sent before the
/// connection ends. Returns the address and what ranges were asked for.
fn serve(content: Vec<u8>, plan: &[usize]) -> (String, std::thread::JoinHandle<Vec<String>>) {
    use std::io::{BufRead, BufReader};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let plan = plan.to_vec();
    let served = std::thread::spawn(move || {
        let mut ranges = Vec::new();
        for sent_to in plan {
            let (mut stream, _) = listener.accept().unwrap();
            let lines =
                BufReader::new(stream.try_clone().unwrap()).lines().map(|line| line.unwrap().to_lowercase());
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let range = head.iter().find_map(|line| line.strip_prefix("range: bytes=")).unwrap_or_default();
            let from: usize = range.trim_end_matches('-').parse().unwrap_or(0);
            let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
            let length = content.len() - from;
            write!(stream, "HTTP/1.1 {status}\r\nETag: \"one\"\r\nContent-Length: {length}\r\n\r\n").unwrap();
            stream.write_all(&content[from..sent_to.max(from)]).unwrap();
            ranges.push(range.to_owned());
        }
        ranges
    });
    (address, served)
}

#[test]
fn a_fetch_that_breaks_off_is_taken_up_and_still_checked() {
    let (dir, home) = home();
    let path = archive(dir.path(), "pg-99.1.tar.gz", "99.1");
    let content = fs::read(&path).unwrap();
    let half = content.len() / 2;
    catalogue(&home, &sha256(&path));
    let (address, served) = serve(content.clone(), &[half, content.len()]);
    let selector: Selector = "postgres@99.1+mine".parse().unwrap();
    let options = FetchOptions { mirror: Some(address), again: false };
    let error = builds::fetch(&home, &selector, &options, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("the same command takes it up there"), "{error}");
    assert!(builds_in(&home).is_empty());
    let build = builds::fetch(&home, &selector, &options, &|_| ()).unwrap();
    assert_eq!(build.archive_sha256, Some(sha256(&path)));
    assert_eq!(served.join().unwrap(), [String::new(), format!("{half}-")]);
    assert!(!home.downloads().join("postgres@99.1+mine").exists(), "what was fetched is not kept twice");
}

#[test]
fn a_part_that_was_spoilt_is_found_by_its_checksum_and_not_taken_up_again() {
    let (dir, home) = home();
    let path = archive(dir.path(), "pg-99.1.tar.gz", "99.1");
    let content = fs::read(&path).unwrap();
    let half = content.len() / 2;
    catalogue(&home, &sha256(&path));
    let (address, served) = serve(content.clone(), &[half, content.len(), content.len()]);
    let selector: Selector = "postgres@99.1+mine".parse().unwrap();
    let options = FetchOptions { mirror: Some(address), again: false };
    builds::fetch(&home, &selector, &options, &|_| ()).unwrap_err();
    // As a disk that lies would: the part is there, and is not what came.
    let part = home.downloads().join("postgres@99.1+mine/pg-99.1.tar.gz.part");
    let mut spoilt = fs::read(&part).unwrap();
    spoilt[half / 2] ^= 1;
    fs::write(&part, spoilt).unwrap();
    let error = builds::fetch(&home, &selector, &options, &|_| ()).unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert!(builds_in(&home).is_empty());
    builds::fetch(&home, &selector, &options, &|_| ()).unwrap();
    assert_eq!(served.join().unwrap(), [String::new(), format!("{half}-"), String::new()]);
}

#[test]
fn an_archive_whose_member_escapes_is_no_build() {
    let (dir, home) = home();
    let path = dir.path().join("evil.tar.gz");
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for name in ["pg/bin/postgres", "pg/../../../escaped"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o755);
        // By hand: the library's own setter refuses such a name.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, &b"x"[..]).unwrap();
    }
    fs::write(&path, tar.into_inner().unwrap().finish().unwrap()).unwrap();
    let error = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("outside of its folder"), "{error}");
    assert!(builds_in(&home).is_empty());
    assert!(!dir.path().join("escaped").exists() && !home.path().join("escaped").exists());
}

#[test]
fn a_binary_that_make_has_replaced_is_another_build() {
    let (dir, home) = home();
    let bin = dir.path().join("tree/bin");
    fs::create_dir_all(&bin).unwrap();
    let make = |version: &str, mark: &str| {
        let script = format!("#!/bin/sh\n# {mark}\necho 'postgres (PostgreSQL) {version}'\n");
        // As a linker does: a new file in the old one's place.
        fs::write(bin.join("new"), script).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(bin.join("new"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(bin.join("new"), bin.join("postgres")).unwrap();
    };
    make("99.4", "one");
    let named: Selector = "postgres@99.4+dev".parse().unwrap();
    let first = builds::fetch_archive(&home, &dir.path().join("tree"), Some(&named), &|_| ()).unwrap();
    let now = || builds::resolve(&home, &named, &|_| ());
    assert_eq!(now().unwrap().identity, first.identity);
    make("99.4", "two");
    let second = now().unwrap();
    assert_eq!(second.name(), first.name());
    assert_ne!(second.identity, first.identity, "runs of the two must be told apart");
    // Another version is not what the name says.
    make("99.5", "three");
    assert!(now().is_err());
}

/// A tar.gz of some members: a file of that content, or a link of that kind to a target.
fn tar_gz(path: &Path, members: &[(&str, &str, Option<tar::EntryType>)]) {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, text, link) in members {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o6777);
        match link {
            None => {
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, name, text.as_bytes()).unwrap();
            }
            Some(kind) => {
                header.set_entry_type(*kind);
                header.set_size(0);
                header.as_gnu_mut().unwrap().linkname[..text.len()].copy_from_slice(text.as_bytes());
                header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
                header.set_cksum();
                tar.append(&header, std::io::empty()).unwrap();
            }
        }
    }
    fs::write(path, tar.into_inner().unwrap().finish().unwrap()).unwrap();
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

#[test]
fn what_is_in_an_archive_never_runs_as_root() {
    if !is_root() {
        testkit::not_tested("that root runs nothing out of an archive", "it needs root");
        return;
    }
    let (dir, home) = home();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let said = open.join("uid");
    let script = format!(
        "#!/bin/sh\n/usr/bin/id -u >> {}\n/usr/bin/id -G >> {}\necho 'postgres (PostgreSQL) 99.3'\n",
        said.display(),
        said.display()
    );
    let path = dir.path().join("evil.tar.gz");
    tar_gz(&path, &[("pg/bin/postgres", &script, None), ("pg/bin/initdb", "#!/bin/sh\n", None)]);
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    let uids = fs::read_to_string(&said).expect("the program was asked");
    assert!(uids.lines().count() >= 2 && uids.lines().all(|uid| uid == "64990"), "{uids}");
    let mode = fs::metadata(&build.files.server).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "no setuid bit comes out: {mode:o}");
}

#[test]
fn hostile_archives_change_nothing_outside_and_leave_nothing() {
    let (dir, home) = home();
    let precious = dir.path().join("precious");
    fs::write(&precious, "x").unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
    let server = ("pg/bin/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 99.4'\n", None);
    let (symlink, hard) = (Some(tar::EntryType::Symlink), Some(tar::EntryType::Link));
    // From builds/.new-X/pg: the folder of all homes' things is two and three steps up.
    let cases: [&[(&str, &str, Option<tar::EntryType>)]; 5] = [
        &[server, ("pg/a/b/c/l", "../../../../precious", symlink), ("pg/bin/x", "pg/a/b/c/l", hard)],
        &[server, ("pg/a/b/c/d/l", "../../../../..", symlink), ("pg/scripts", "pg/a/b/c/d/l", hard)],
        // Inside of the archive, but not of the folder that becomes the build.
        &[server, ("pg/lib", "../other", symlink)],
        &[server, ("pg/share/l", "../../x", symlink)],
        &[server, ("pg/dev", "", Some(tar::EntryType::Char))],
    ];
    for members in cases {
        let path = dir.path().join("evil.tar.gz");
        tar_gz(&path, members);
        let error = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap_err();
        assert!(matches!(error, Error::Archive { .. }), "{members:?}: {error}");
        assert_eq!(fs::metadata(&precious).unwrap().permissions().mode() & 0o777, 0o600, "{members:?}");
        assert!(builds_in(&home).is_empty(), "{members:?}");
    }
    // A record of its own, of a build that is somewhere else, is not taken over.
    let path = dir.path().join("own-record.tar.gz");
    let record = "{\"flavor\":\"postgres\",\"version\":\"1\"}";
    tar_gz(&path, &[server, ("pg/plimsoll-build.json", record, None)]);
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    assert_eq!(builds::fetched(&home).unwrap(), [build]);
}

#[test]
fn a_folder_of_builds_that_others_may_write_to_is_not_run_by_root() {
    if !is_root() {
        testkit::not_tested("builds that others could exchange", "they need root");
        return;
    }
    let (dir, home) = home();
    let path = archive(dir.path(), "own.tar.gz", "99.5");
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    let spec = sandbox::Spec::new("x".to_owned(), build);
    fs::set_permissions(home.builds(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = spec.check().unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("can be written to by every user"), "{error}");
    let error = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("can be written to by every user"), "{error}");
}

#[test]
fn a_copied_home_has_builds_of_its_own_and_an_older_record_is_read() {
    let (dir, home) = home();
    let path = archive(dir.path(), "own.tar.gz", "99.6");
    let build = builds::fetch_archive(&home, &path, None, &|_| ()).unwrap();
    let record = home.builds().join("postgres@99.6/plimsoll-build.json");
    let text = fs::read_to_string(&record).unwrap();
    let root = home.path().display().to_string();
    assert!(!text.contains(&root), "it names the home: {text}");
    let copy = dir.path().join("copy");
    let copied = std::process::Command::new("cp").args(["-a"]).arg(home.path()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let other = Home::at(&copy).unwrap();
    let found = builds::fetched(&other).unwrap();
    assert_eq!(found[0].files.server, other.builds().join("postgres@99.6/bin/postgres"));
    assert_eq!(found[0].identity, build.identity);
    // As it was written before: whole paths, of the first home, which is gone.
    let older = text.replace("\"builds/", &format!("\"{root}/builds/"));
    assert_ne!(older, text);
    fs::write(copy.join("builds/postgres@99.6/plimsoll-build.json"), older).unwrap();
    fs::remove_dir_all(home.path()).unwrap();
    assert_eq!(builds::fetched(&other).unwrap(), found);
}
