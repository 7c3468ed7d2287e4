//! What can be asked of a sandbox: settings, profiles, engines, places, limits, CPUs, environment; and what is refused.

use std::path::PathBuf;

use sandbox::{
    Cpus, Durability, Error, Home, Life, Limits, Listen, Logging, Profile, Sandbox, Selector, Spec, Storage,
    builds, testing,
};

fn query(server: &Sandbox, sql: &str) -> String {
    let mut client = wire::blocking::Client::connect(&server.target(None)).unwrap();
    client.query_value(sql).unwrap_or_else(|e| panic!("{}: {sql}: {e}", server.build())).unwrap_or_default()
}

/// A spec like the test servers', in a home of its own.
fn spec_of(selector: &str) -> Option<(tempfile::TempDir, Home, Spec)> {
    if !testing::servers_are_wanted(selector) {
        return None;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    let selector: Selector = selector.parse().unwrap();
    let build = builds::resolve(&Home::find().unwrap(), &selector, &|_| ()).unwrap();
    let spec = Spec { buffer_bytes: Some(128 << 20), ..Spec::new("one", build) };
    Some((dir, home, spec))
}

fn nothing_is_left(home: &Home) {
    let left: Vec<PathBuf> =
        std::fs::read_dir(home.sandboxes()).into_iter().flatten().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn settings_reach_the_server_and_unknown_ones_are_refused() {
    let set = |name: &'static str, value: &'static str| {
        move |spec: &mut Spec| drop(spec.settings.insert(name.to_owned(), value.to_owned()))
    };
    let Some(server) = testing::server_with("mariadb", set("innodb-io-capacity", "321")) else { return };
    assert_eq!(server.reported_settings().unwrap()["innodb_io_capacity"], "321");
    drop(server);
    let Some(server) = testing::server_with("postgres", set("work_mem", "7MB")) else { return };
    assert_eq!(server.reported_settings().unwrap()["work_mem"], "7MB");
    drop(server);
    for (selector, name, expected) in [
        ("mariadb", "innodb_bufer_pool_size", "is it innodb_buffer_pool_size?"),
        ("mariadb", "table_cache", "calls it table_open_cache"),
        ("mariadb", "innodb_redo_log_capacity", "calls it innodb_log_file_size"),
        ("postgres", "checkpoint_segments", "calls it max_wal_size"),
        ("postgres", "port", "sets it itself"),
    ] {
        let Some((_dir, home, mut spec)) = spec_of(selector) else { return };
        spec.settings.insert(name.to_owned(), "1".to_owned());
        let error = Sandbox::deploy(&home, &spec, &|_| ()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_usage());
        nothing_is_left(&home);
    }
}

#[test]
fn profiles_are_what_they_say() {
    let cases = [
        (Profile::Safest, "1", "1", "ON", "ON", Durability::Full),
        (Profile::Fast, "2", "0", "OFF", "ON", Durability::ProcessCrash),
        (Profile::Unsafe, "0", "0", "OFF", "OFF", Durability::Corruptible),
        (Profile::CharmUnsafe, "1", "1", "ON", "ON", Durability::Full),
    ];
    for (profile, flush, sync, binlog, doublewrite, durability) in cases {
        let Some(server) = testing::server_with("mariadb", |s| s.profile = Some(profile)) else { return };
        let reported = server.reported_settings().unwrap();
        assert_eq!(reported["innodb_flush_log_at_trx_commit"], flush);
        assert_eq!(reported["sync_binlog"], sync);
        assert_eq!(reported["log_bin"], binlog);
        assert_eq!(reported["innodb_doublewrite"], doublewrite);
        assert_eq!(server.durability(), durability);
        if binlog == "ON" {
            assert_eq!(reported["binlog_format"], "MIXED");
        }
    }
    let cases = [
        (Profile::Safest, "on", "on", "on", Durability::Full),
        (Profile::Fast, "on", "on", "off", Durability::Lossy),
        (Profile::Unsafe, "off", "off", "off", Durability::Corruptible),
    ];
    for (profile, fsync, full_page_writes, synchronous_commit, durability) in cases {
        let Some(server) = testing::server_with("postgres", |s| s.profile = Some(profile)) else { return };
        let reported = server.reported_settings().unwrap();
        assert_eq!(reported["fsync"], fsync);
        assert_eq!(reported["full_page_writes"], full_page_writes);
        assert_eq!(reported["synchronous_commit"], synchronous_commit);
        assert_eq!(server.durability(), durability);
    }
}

#[test]
fn logging_variants_log_what_they_name() {
    let Some(server) = testing::server_with("mariadb", |s| s.logging = Some(Logging::GeneralTable)) else {
        return;
    };
    query(&server, "SELECT 'a mark'");
    let count = query(&server, "SELECT COUNT(*) FROM mysql.general_log WHERE argument = \"SELECT 'a mark'\"");
    assert_eq!(count, "1");
    drop(server);
    let Some(server) = testing::server_with("mariadb", |s| s.logging = Some(Logging::GeneralFile)) else {
        return;
    };
    let reported = server.reported_settings().unwrap();
    assert_eq!((reported["general_log"].as_str(), reported["log_output"].as_str()), ("ON", "FILE"));
    assert!(server.datadir().join(&reported["general_log_file"]).is_file());
    drop(server);
    let Some(server) = testing::server_with("mariadb", |s| s.logging = Some(Logging::Binlog)) else { return };
    assert_eq!(query(&server, "SELECT @@log_bin"), "1");
    drop(server);
    let Some(server) = testing::server_with("mariadb", |s| s.logging = Some(Logging::None)) else { return };
    assert_eq!(query(&server, "SELECT @@log_bin"), "0");
}

#[test]
fn engines_are_refused_early_where_the_build_lacks_them() {
    for (selector, engine, expected) in [
        ("mariadb", "aria", None),
        ("mariadb", "MyISAM", None),
        ("mariadb", "nonesuch", Some("it has ")),
        ("postgres", "unlogged", None),
        ("postgres", "myisam", Some("`heap` or `unlogged`")),
    ] {
        let Some((_dir, home, mut spec)) = spec_of(selector) else { return };
        spec.engine = Some(engine.to_owned());
        match (Sandbox::deploy(&home, &spec, &|_| ()), expected) {
            (Ok(server), None) => server.destroy().unwrap(),
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (result, _) => panic!("{selector} {engine}: {result:?}"),
        }
        nothing_is_left(&home);
    }
    let Some((_dir, home, mut spec)) = spec_of("mariadb") else { return };
    spec.engine = Some("rocksdb".to_owned());
    let has_plugin = spec.build.files.plugins.as_ref().is_some_and(|dir| dir.join("ha_rocksdb.so").is_file());
    match Sandbox::deploy(&home, &spec, &|_| ()) {
        Ok(server) => {
            assert!(has_plugin);
            query(&server, "CREATE TABLE mysql.plimsoll_r (a INT PRIMARY KEY) ENGINE = ROCKSDB");
        }
        Err(error) => {
            assert!(!has_plugin, "{error}");
            // Debian's server names the package; no build from elsewhere can take a plugin of another one.
            let is_installed = matches!(spec.build.origin, sandbox::Origin::Installed(_));
            let remedy = if is_installed { "mariadb-plugin-rocksdb" } else { "no plugin ha_rocksdb.so" };
            assert!(error.to_string().contains(remedy), "{error}");
            testkit::not_tested("a running RocksDB", error);
        }
    }
}

#[test]
fn places_outside_the_home_hold_the_data_and_are_cleaned() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for datadir in [place.path().to_owned(), PathBuf::from("tmpfs")] {
        let is_tmpfs = datadir.as_os_str() == "tmpfs";
        let storage = Storage::at("there", datadir);
        let Some(server) = testing::server_with("postgres", |s| s.storage = Some(storage)) else { return };
        let data = server.datadir().to_owned();
        assert!(
            data.starts_with(if is_tmpfs { "/dev/shm".as_ref() } else { place.path() }),
            "{}",
            data.display()
        );
        if is_tmpfs {
            assert_eq!(server.storage_facts().unwrap().filesystem, "tmpfs");
            assert_eq!(server.durability(), Durability::Volatile, "full by its settings, and in memory");
        }
        assert_eq!(query(&server, "SELECT 1"), "1");
        server.destroy().unwrap();
        assert!(!data.parent().unwrap().exists());
    }
}

/// Says that the kernel below is one whose control groups of version 2 must take every limit.
const MUST_HOLD: &str = "PLIMSOLL_TEST_LIMITS_MUST_HOLD";

#[test]
fn a_limit_is_taken_only_when_it_holds() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        testkit::not_tested("limits by control groups", "they need root");
        return;
    }
    let must_hold = std::env::var_os(MUST_HOLD).is_some();
    let Some((_dir, home, mut spec)) = spec_of("postgres") else { return };
    let limits = Limits { write_bytes_per_s: Some(2 << 20), ..Limits::default() };
    spec.storage = Some(Storage { name: "slow".to_owned(), limits, ..Storage::default() });
    match Sandbox::deploy(&home, &spec, &|_| ()) {
        // Control groups of version 2: it holds, and the server is in the group.
        Ok(server) => {
            let group = group_of(&server);
            assert!(std::fs::read_to_string(group.join("io.max")).unwrap().contains("wbps=2097152"));
            server.destroy().unwrap();
            assert!(!group.exists());
        }
        Err(Error::Limit { what, why }) if !must_hold => {
            assert!(
                why.contains("version 2") || why.contains("need root") || why.contains("block device"),
                "{why}"
            );
            testkit::not_tested("limits by control groups", format!("{what}: {why}"));
        }
        Err(error) => panic!("{error}"),
    }
    nothing_is_left(&home);
    let limits = Limits { memory_bytes: Some(512 << 20), ..Limits::default() };
    spec.storage = Some(Storage { name: "small".to_owned(), limits, ..Storage::default() });
    match Sandbox::deploy(&home, &spec, &|_| ()) {
        Ok(server) => {
            let group = group_of(&server);
            assert!(group.is_dir());
            server.destroy().unwrap();
            assert!(!group.exists());
        }
        Err(Error::Limit { why, .. }) if !must_hold => testkit::not_tested("limits on memory", why),
        Err(error) => panic!("{error}"),
    }
    nothing_is_left(&home);
}

/// The control group that Plimsoll made for a server, of either version.
fn group_of(server: &Sandbox) -> PathBuf {
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", server.pid().unwrap())).unwrap();
    let line = groups.lines().find(|line| line.contains("plimsoll-one")).expect("a group of its own");
    let mut fields = line.splitn(3, ':').skip(1);
    let (controller, path) = (fields.next().unwrap(), fields.next().unwrap());
    PathBuf::from(format!("/sys/fs/cgroup/{controller}{path}").replace("//", "/"))
}

const VERSION_2: &str = "limits by control groups of version 2";

/// Version 2, whatever this machine has: the test above again, by user-mode Linux (Debian's package user-mode-linux), a
/// kernel as a process, with this machine's files below it and a disk of its own.
#[test]
fn limits_hold_on_control_groups_of_version_2() {
    use std::process::Command;
    let kernel = PathBuf::from("/usr/bin/linux.uml");
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 || !kernel.is_file() || std::env::var_os(MUST_HOLD).is_some() {
        if std::env::var_os(MUST_HOLD).is_none() {
            testkit::not_tested(VERSION_2, "they need root and the Debian package user-mode-linux");
        }
        return;
    }
    // Not in /tmp, in whose place the kernel below has its disk.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let disk = dir.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(1 << 30).unwrap();
    assert!(Command::new("mkfs.ext4").arg("-qF").arg(&disk).status().unwrap().success());
    // This program may itself lie in /tmp.
    let program = dir.path().join("asked");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = dir.path().join("init");
    let text = format!(
        "#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C\nmount -t proc proc /proc\nmount -t sysfs sys /sys\n\
         mount -t cgroup2 cgroup2 /sys/fs/cgroup\nmount /dev/ubda /tmp\nchmod 1777 /tmp\nmkdir -p /dev/shm\n\
         mount -t tmpfs tmpfs /dev/shm\necho booted\nPLIMSOLL_HOME=/tmp/home {MUST_HOLD}=1 {} --exact \
         a_limit_is_taken_only_when_it_holds --nocapture 2>&1\necho \"ended with $?\"\nsync\n\
         echo o > /proc/sysrq-trigger\nsleep 60\n",
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("timeout")
        .args(["-k", "5", "240"])
        .arg(&kernel)
        .args(["mem=1G", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=fd:0,fd:1"])
        .arg(format!("ubd0={}", disk.display()))
        .arg(format!("init={}", script.display()))
        .env("HOME", dir.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if !said.contains("booted") {
        testkit::not_tested(VERSION_2, format!("user-mode Linux does not start here: {said}"));
        return;
    }
    assert!(said.contains("ended with 0") && said.contains("1 passed"), "{said}");
}

#[test]
fn cpus_and_environment_reach_every_process_of_the_server() {
    for selector in ["mariadb", "postgres"] {
        let asked = |spec: &mut Spec| {
            spec.cpus = Some(Cpus(vec![0]));
            spec.env.insert("PLIMSOLL_MARK".to_owned(), "seen".to_owned());
        };
        let Some(server) = testing::server_with(selector, asked) else { return };
        let pid = server.pid().unwrap();
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(environ.windows(18).any(|w| w == b"PLIMSOLL_MARK=seen"));
        assert!(!environ.windows(5).any(|w| w == b"CARGO"), "the environment is clean");
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list")).unwrap_or("0");
            assert!(line.trim_end().ends_with('0'), "{line}");
        }
    }
}

#[test]
fn a_library_to_preload_is_there_or_refused() {
    let Some((dir, home, mut spec)) = spec_of("mariadb") else { return };
    let mut preload = |path: &std::path::Path| {
        spec.env.insert("LD_PRELOAD".to_owned(), path.display().to_string());
        Sandbox::deploy(&home, &spec, &|_| ())
    };
    let error = preload("/nowhere/libjemalloc.so.2".as_ref()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("there is no such file"), "{error}");
    nothing_is_left(&home);
    // One that the loader does not take: it would only say so in the log.
    let odd = dir.path().join("libodd.so");
    std::fs::write(&odd, "no library").unwrap();
    let error = preload(&odd).unwrap_err();
    assert!(error.to_string().contains("runs without it"), "{error}");
    nothing_is_left(&home);
    // Any library will do that the server does not load by itself.
    let library = ["/lib/x86_64-linux-gnu/libutil.so.1", "/lib64/libutil.so.1"].map(PathBuf::from);
    let Some(library) = library.iter().find(|path| path.is_file()) else {
        testkit::not_tested("a preloaded library", "none that is known is here");
        return;
    };
    let server = preload(library).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid().unwrap())).unwrap();
    assert!(maps.contains("libutil"));
}

#[test]
fn a_cold_start_keeps_the_data() {
    let Some(mut server) = testing::server("postgres") else { return };
    query(&server, "CREATE TABLE t AS SELECT 7 AS a");
    server.restart_cold().unwrap();
    assert_eq!(query(&server, "SELECT a FROM t"), "7");
}

#[test]
fn a_port_in_use_and_a_dying_server_leave_nothing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let Some((_dir, home, spec)) = spec_of("mariadb") else { return };
    let busy = Spec { listen: Listen::Port(port), ..spec.clone() };
    let error = Sandbox::deploy(&home, &busy, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("choose another --port"), "{error}");
    nothing_is_left(&home);
    // A value that the server itself refuses: its log is shown.
    let wrong = Spec { settings: [("innodb_page_size".to_owned(), "5000".to_owned())].into(), ..spec };
    let error = Sandbox::deploy(&home, &wrong, &|_| ()).unwrap_err();
    assert!(matches!(error, Error::Init { .. } | Error::Start { .. }), "{error}");
    assert!(error.to_string().contains("page"), "{error}");
    nothing_is_left(&home);
}

#[test]
fn of_two_deploys_of_one_name_one_wins() {
    let Some((_dir, home, spec)) = spec_of("postgres") else { return };
    let spec = Spec { life: Life::ByHand, ..spec };
    let results: Vec<Result<Sandbox, Error>> = std::thread::scope(|scope| {
        let deploys: Vec<_> =
            (0..3).map(|_| scope.spawn(|| Sandbox::deploy(&home, &spec, &|_| ()))).collect();
        deploys.into_iter().map(|d| d.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    for result in results {
        match result {
            Ok(server) => server.destroy().unwrap(),
            Err(error) => assert!(matches!(error, Error::Exists { .. }), "{error}"),
        }
    }
    nothing_is_left(&home);
}

#[test]
fn an_archive_that_is_none_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path().join("home")).unwrap();
    let archive = dir.path().join("mysql-9.tar.xz");
    std::fs::write(&archive, b"not an archive").unwrap();
    let error = builds::fetch_archive(&home, &archive, None, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("neither a jar"), "{error}");
    assert_eq!(std::fs::read_dir(home.builds()).unwrap().count(), 0);
    let error = builds::fetch_archive(&home, dir.path(), None, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("no server is in it"), "{error}");
}

#[test]
fn a_program_that_dies_while_it_makes_the_data_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let home = Home::at(dir.path().join("home")).unwrap();
    let bin = dir.path().join("tree/bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, script) in [
        ("postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 99.1'\n"),
        // Called with -D DIRECTORY.
        ("initdb", "#!/bin/sh\necho 'half of the files are there'\necho x > \"$2/half\"\nkill -9 $$\n"),
    ] {
        std::fs::write(bin.join(name), script).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let build = builds::fetch_archive(&home, &dir.path().join("tree"), None, &|_| ()).unwrap();
    for life in [Life::Run, Life::ByHand] {
        let spec = Spec { life, ..Spec::new("dying", build.clone()) };
        let error = Sandbox::deploy(&home, &spec, &|_| ()).unwrap_err();
        assert!(matches!(error, Error::Init { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("SIGKILL") && text.contains("half of the files are there"), "{text}");
        nothing_is_left(&home);
    }
}

#[test]
fn a_disk_too_small_for_a_server_is_said_and_nothing_is_left() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        testkit::not_tested("a full disk below a sandbox", "making one needs root");
        return;
    }
    let Some((dir, _, spec)) = spec_of("mariadb") else { return };
    let small = dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=16m,mode=755", "plimsoll-test"];
    if !std::process::Command::new("mount").args(mount).arg(&small).status().is_ok_and(|s| s.success()) {
        testkit::not_tested("a full disk below a sandbox", "mount is not allowed here");
        return;
    }
    let home = Home::at(small.join("home")).unwrap();
    let result = Sandbox::deploy(&home, &spec, &|_| ());
    let left = std::fs::read_dir(home.sandboxes()).into_iter().flatten().count();
    let failed = result.map(|_| ()).unwrap_err().to_string();
    let unmounted = std::process::Command::new("umount").arg(&small).status();
    assert!(unmounted.is_ok_and(|s| s.success()));
    assert!(failed.contains("its disk is full"), "{failed}");
    assert_eq!(left, 0);
}
