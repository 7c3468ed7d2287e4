//! Every build of the catalogue that Plimsoll promises to run, for real: fetched, deployed, asked, stopped, restarted
//! with its data, destroyed; all of them at once; packed and fetched again as a vendor's archive would be.
//! `PLIMSOLL_TEST_BUILDS=eras` runs one of each flavour and era, `=all` every one.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::{Flavor, Home, Life, Limits, Listen, Sandbox, Selector, Spec, Storage, builds, testing};

fn query(server: &Sandbox, database: Option<&str>, sql: &str) -> Option<String> {
    let mut client = wire::blocking::Client::connect(&server.target(database)).unwrap();
    client.query_value(sql).unwrap_or_else(|e| panic!("{}: {sql}: {e}", server.build()))
}

#[test]
fn every_build_lives_keeps_its_data_and_goes() {
    for selector in testing::chosen_builds() {
        let begin = std::time::Instant::now();
        let Some(mut server) = testing::server(selector) else { return };
        let name = server.build().name();
        let deployed_s = begin.elapsed().as_secs_f64();
        assert_eq!(query(&server, None, "SELECT 40 + 2").as_deref(), Some("42"), "{name}");
        query(&server, None, "CREATE DATABASE sbtest");
        query(&server, Some("sbtest"), "CREATE TABLE t (a INTEGER NOT NULL PRIMARY KEY, b VARCHAR(20))");
        query(&server, Some("sbtest"), "INSERT INTO t VALUES (1, 'one'), (2, 'two')");
        let reported = server.reported_settings().unwrap();
        assert_eq!(reported["max_connections"], server.settings()["max_connections"], "{name}");
        let (dir, stop) = (server.dir().to_owned(), server.restart().unwrap());
        assert!(!stop.killed, "{name} had to be killed");
        assert_eq!(query(&server, Some("sbtest"), "SELECT COUNT(*) FROM t").as_deref(), Some("2"), "{name}");
        let pid = server.pid().unwrap();
        server.destroy().unwrap();
        assert!(!dir.exists() && !Path::new(&format!("/proc/{pid}")).exists(), "{name} left something");
        eprintln!("{name}: deployed in {deployed_s:.2} s, stopped in {:.2} s", stop.took.as_secs_f64());
    }
}

/// A home that servers of other uids can enter.
fn open_home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let home = Home::at(dir.path().join("home")).unwrap();
    (dir, home)
}

/// Processes whose working directory or arguments are below `dir`.
fn processes_of(dir: &Path) -> Vec<u32> {
    let dir = dir.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            cwd.starts_with(dir) || String::from_utf8_lossy(&line).contains(dir)
        })
        .collect()
}

/// Control groups with a part of a name in theirs, of either version.
fn groups_of(name: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(name) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

/// POSIX shared memory that a server and its children have mapped.
fn shared_memory_of(pids: &[u32]) -> Vec<PathBuf> {
    let maps =
        pids.iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
    let mut files: Vec<PathBuf> = maps
        .flat_map(|text| {
            let paths = text.lines().filter_map(|line| Some(line[line.find("/dev/shm/")?..].to_owned()));
            paths.collect::<Vec<_>>()
        })
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect();
    files.sort();
    files.dedup();
    files
}

/// Number of the System V segment in a PostgreSQL server's lock file.
fn segment_of(server: &Sandbox) -> Option<String> {
    let text = std::fs::read_to_string(server.datadir().join("postmaster.pid")).ok()?;
    Some(text.lines().nth(6)?.split_whitespace().nth(1)?.to_owned())
}

fn segments() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
}

/// All at once, with ports, places outside of the home and control groups where the machine lets us, as a user's own
/// that outlive their maker; then gone without a process, mount, control group, shared memory or file.
#[test]
fn all_builds_run_at_once_and_leave_nothing() {
    let chosen = testing::chosen_builds();
    if chosen.is_empty() {
        return;
    }
    let (dir, home) = open_home();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let mounts = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().filter(|line| line.contains(dir.path().to_str().unwrap())).count()
    };
    let found = Home::find().unwrap();
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let limits =
        if is_root { Limits { memory_bytes: Some(2 << 30), ..Limits::default() } } else { Limits::default() };
    let mut servers: Vec<Sandbox> = Vec::new();
    for (index, selector) in chosen.iter().enumerate() {
        let mut spec = testing::spec(&found, selector).unwrap();
        spec.life = Life::ByHand;
        spec.listen = Listen::FreePort;
        // Every other one outside of its home.
        let datadir = (index % 2 == 0).then(|| place.clone());
        spec.storage = Some(Storage { name: "there".to_owned(), datadir, limits, ..Storage::default() });
        let server = match Sandbox::deploy(&home, &spec, &|_| ()) {
            Err(sandbox::Error::Limit { why, .. }) => {
                testkit::not_tested("limits on servers of every era, by control groups", why);
                spec.storage.as_mut().unwrap().limits = Limits::default();
                Sandbox::deploy(&home, &spec, &|_| ())
            }
            other => other,
        };
        servers.push(server.unwrap_or_else(|e| panic!("{selector}: {e}")));
    }
    let mut ports: Vec<u16> = servers.iter().map(|server| server.status().unwrap().port.unwrap()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), chosen.len(), "each has a port of its own");
    for server in &servers {
        assert_eq!(query(server, None, "SELECT 40 + 2").as_deref(), Some("42"), "{}", server.build());
    }
    let pids = processes_of(dir.path());
    assert!(pids.len() >= chosen.len(), "{pids:?}");
    let memory = shared_memory_of(&pids);
    let own_segments: Vec<String> = servers.iter().filter_map(segment_of).collect();
    let has_postgres = servers.iter().any(|server| server.build().flavor == Flavor::Postgres);
    assert_eq!(has_postgres, !own_segments.is_empty());
    let names: Vec<String> = servers.iter().map(|server| server.name().to_owned()).collect();
    eprintln!("{} servers at once, {} processes", servers.len(), pids.len());
    // Half of them stopped first, half running.
    for (index, mut server) in servers.into_iter().enumerate() {
        if index % 2 == 1 {
            assert!(!server.stop().unwrap().killed, "{}", server.build());
        }
        server.destroy().unwrap();
    }
    assert_eq!(processes_of(dir.path()), Vec::<u32>::new());
    assert_eq!(mounts(), 0);
    for name in names {
        assert_eq!(groups_of(&format!("plimsoll-{name}-")), Vec::<PathBuf>::new());
    }
    let left: Vec<&PathBuf> = memory.iter().filter(|file| file.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    let now = segments();
    assert!(!own_segments.iter().any(|segment| now.contains(segment)), "{own_segments:?}");
    let left = |dir: &Path| std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).collect::<Vec<_>>();
    assert_eq!(left(&place), Vec::<PathBuf>::new());
    assert_eq!(left(&home.sandboxes()), Vec::<PathBuf>::new());
}

/// Packs a build's directory as vendors do, wrapped in a folder, and returns the archive.
fn packed(build: &sandbox::Build, into: &Path, ending: &str) -> PathBuf {
    let path = into.join(format!("server.{ending}"));
    let base = &build.files.base;
    let (parent, name) = (base.parent().unwrap(), base.file_name().unwrap());
    let mut command = match ending {
        "zip" => Command::new("zip"),
        _ => Command::new("tar"),
    };
    match ending {
        // Fast rather than small; -y keeps links.
        "zip" => {
            command.args(["-q", "-r", "-1", "-y"]).arg(&path).arg(name).args(["-x", "*/plimsoll-build.json"])
        }
        "tar.gz" => {
            command.args(["-I", "gzip -1", "-cf"]).arg(&path).arg("--exclude=plimsoll-build.json").arg(name)
        }
        "tar.xz" => {
            command.args(["-I", "xz -0", "-cf"]).arg(&path).arg("--exclude=plimsoll-build.json").arg(name)
        }
        "tar.zst" => {
            command.args(["-I", "zstd -1", "-cf"]).arg(&path).arg("--exclude=plimsoll-build.json").arg(name)
        }
        _ => unreachable!("{ending}"),
    };
    let output = command.current_dir(parent).output().unwrap_or_else(|e| panic!("packing {ending}: {e}"));
    assert!(output.status.success(), "{ending}: {}", String::from_utf8_lossy(&output.stderr));
    path
}

#[test]
fn real_builds_come_out_of_every_kind_of_archive_and_run() {
    if testing::chosen_builds().is_empty() {
        return;
    }
    let (dir, home) = open_home();
    let found = Home::find().unwrap();
    for (selector, ending) in [
        ("postgres@18.6", "tar.gz"),
        ("postgres@18.6", "tar.xz"),
        ("postgres@18.6", "tar.zst"),
        ("postgres@18.6", "zip"),
        ("mysql@5.5.34", "tar.gz"),
    ] {
        let build = builds::resolve(&found, &selector.parse().unwrap(), &|_| ()).unwrap();
        let archive = packed(&build, dir.path(), ending);
        let label = ending.replace('.', "-");
        let named: Selector = format!("{}+{label}", build.name()).parse().unwrap();
        let own = builds::fetch_archive(&home, &archive, Some(&named), &|_| ()).unwrap();
        assert_eq!(own.name(), named.to_string());
        let mut spec = testing::spec(&found, selector).unwrap();
        spec.build = own;
        let server = Sandbox::deploy(&home, &spec, &|_| ()).unwrap();
        assert_eq!(query(&server, None, "SELECT 40 + 2").as_deref(), Some("42"), "{selector} {ending}");
        server.destroy().unwrap();
        std::fs::remove_file(archive).unwrap();
    }
}

/// A source tree after `make`: the server in `sql/`, its client, system tables and messages each somewhere else.
#[test]
fn a_source_tree_after_make_runs_where_it_is() {
    if testing::chosen_builds().is_empty() {
        return;
    }
    let (dir, home) = open_home();
    let found = Home::find().unwrap();
    let build = builds::resolve(&found, &"mysql@5.5.34".parse().unwrap(), &|_| ()).unwrap();
    let tree = dir.path().join("mysql-5.5.34");
    for folder in ["sql/share", "scripts", "client"] {
        std::fs::create_dir_all(tree.join(folder)).unwrap();
    }
    std::fs::copy(&build.files.server, tree.join("sql/mysqld")).unwrap();
    let share = build.files.share.as_ref().unwrap();
    for entry in std::fs::read_dir(share).unwrap().flatten() {
        if entry.path().extension().is_some_and(|e| e == "sql") {
            std::fs::copy(entry.path(), tree.join("scripts").join(entry.file_name())).unwrap();
        }
    }
    let messages = build.files.messages.as_ref().unwrap();
    for folder in ["english", "charsets"] {
        let status =
            Command::new("cp").arg("-r").arg(messages.join(folder)).arg(tree.join("sql/share")).status();
        assert!(status.unwrap().success());
    }
    let named: Selector = "mysql@5.5.34+make".parse().unwrap();
    let own = builds::fetch_archive(&home, &tree, Some(&named), &|_| ()).unwrap();
    assert!(own.files.server.ends_with("mysql-5.5.34/sql/mysqld"));
    let mut spec: Spec = testing::spec(&found, "mysql@5.5.34").unwrap();
    spec.build = builds::resolve(&home, &named, &|_| ()).unwrap();
    let server = Sandbox::deploy(&home, &spec, &|_| ()).unwrap();
    assert_eq!(query(&server, None, "SELECT VERSION()").as_deref(), Some("5.5.34"));
}

#[test]
fn a_stranger_in_the_data_directory_is_neither_the_server_nor_ended() {
    for selector in ["postgres", "mariadb"] {
        let Some(mut server) = testing::server(selector) else { return };
        server.stop().unwrap();
        let mut stranger = Command::new("sleep").arg("600").current_dir(server.datadir()).spawn().unwrap();
        assert_eq!(server.pid(), None, "{selector}");
        let begin = std::time::Instant::now();
        server.start().unwrap();
        assert!(begin.elapsed().as_secs() < 120, "{selector}");
        let pid = server.pid().unwrap();
        assert_ne!(pid, stranger.id());
        // Not through the child that it still knows: as another plimsoll would look.
        let home = Home::at(server.dir().parent().unwrap().parent().unwrap()).unwrap();
        let seen = Sandbox::open(&home, server.name()).unwrap();
        assert_eq!(seen.pid(), Some(pid), "{selector}");
        assert!(!server.stop().unwrap().killed, "{selector}");
        server.start().unwrap();
        server.kill().unwrap();
        server.destroy().unwrap();
        assert!(matches!(stranger.try_wait(), Ok(None)), "{selector}: the stranger was ended");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

#[test]
fn only_their_owner_reads_a_sandboxs_record_and_log_and_no_log_has_the_password() {
    for selector in ["postgres", "mariadb"] {
        let change = |spec: &mut Spec| {
            spec.listen = Listen::FreePort;
            spec.logging = Some(sandbox::Logging::GeneralFile);
        };
        let Some(server) = testing::server_with(selector, change) else { return };
        let record = server.dir().join("sandbox.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&record), mode(&server.log_path())), (0o600, 0o600), "{selector}");
        // One that was written before is closed when it is read.
        std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o644)).unwrap();
        let home = Home::at(server.dir().parent().unwrap().parent().unwrap()).unwrap();
        drop(Sandbox::open(&home, server.name()).unwrap());
        assert_eq!(mode(&record), 0o600, "{selector}");
        let password = server.tcp_target(None).unwrap().password.reveal().to_owned();
        assert!(password.len() >= 32);
        query(&server, None, "SELECT 4711");
        let found = Command::new("grep").args(["-rlaF", &password]).arg(server.dir()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), record.display().to_string(), "{selector}");
        let logged = Command::new("grep").args(["-rlaF", "SELECT 4711"]).arg(server.dir()).output().unwrap();
        assert!(!logged.stdout.is_empty(), "{selector} logs no statements: nothing was shown");
    }
}

#[test]
fn a_build_that_a_sandbox_uses_is_not_removed() {
    let Some(server) = testing::server("mariadb") else { return };
    let home = Home::at(server.dir().parent().unwrap().parent().unwrap()).unwrap();
    let error = builds::remove(&home, server.build()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains(server.name()), "{error}");
    assert!(server.build().files.server.is_file());
}

/// A copy of the home that a sandbox is in, of that sandbox and its build alone.
fn copied_home(server: &Sandbox, to: &Path) -> Home {
    let home = server.dir().parent().unwrap().parent().unwrap();
    for part in [format!("sandboxes/{}", server.name()), format!("builds/{}", server.build().name())] {
        let folder = to.join(&part);
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let from = home.join(&part);
        let copied = Command::new("cp").arg("-a").arg(&from).arg(&folder).status().unwrap();
        assert!(copied.success(), "cp {}", from.display());
    }
    Home::at(to).unwrap()
}

#[test]
fn a_copied_home_runs_its_own_binaries_on_its_own_data() {
    let (dir, _) = open_home();
    let Some(mut server) = testing::server("postgres@12.22") else { return };
    query(&server, None, "CREATE TABLE t AS SELECT 1 AS a");
    server.stop().unwrap();
    let other = copied_home(&server, &dir.path().join("copy"));
    server.start().unwrap();
    let mut copy = Sandbox::open(&other, server.name()).unwrap();
    assert_eq!(copy.pid(), None, "the first one's server is not its own");
    copy.start().unwrap();
    let pid = copy.pid().unwrap();
    assert_ne!(Some(pid), server.pid());
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert!(exe.starts_with(other.path()), "{}", exe.display());
    assert!(copy.datadir().starts_with(other.path()), "{}", copy.datadir().display());
    query(&copy, None, "DROP TABLE t");
    assert_eq!(query(&server, None, "SELECT a FROM t").as_deref(), Some("1"));
    copy.destroy().unwrap();
    assert_eq!(query(&server, None, "SELECT a FROM t").as_deref(), Some("1"));
}

#[test]
fn a_copy_leaves_data_outside_of_the_home_to_the_first_one() {
    let (dir, _) = open_home();
    let place = dir.path().join("disk");
    std::fs::create_dir(&place).unwrap();
    let storage = Storage::at("disk", place);
    let Some(server) = testing::server_with("postgres@12.22", |spec| spec.storage = Some(storage)) else {
        return;
    };
    let other = copied_home(&server, &dir.path().join("copy"));
    let mut copy = Sandbox::open(&other, server.name()).unwrap();
    assert_eq!(copy.pid(), None);
    let error = copy.start().unwrap_err().to_string();
    assert!(error.contains("belongs to the first home's"), "{error}");
    copy.destroy().unwrap();
    assert_eq!(query(&server, None, "SELECT 40 + 2").as_deref(), Some("42"));
    assert!(server.datadir().is_dir());
}
