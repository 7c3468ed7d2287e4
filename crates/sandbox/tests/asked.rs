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
    if std::env::var_os("PLIMSOLL_TEST_SERVERS").is_some_and(|v| v == "none") {
        eprintln!("NOT TESTED: {selector}");
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
        ("postgres", "myisam", Some("heap or unlogged")),
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
            assert!(error.to_string().contains("mariadb-plugin-rocksdb"), "{error}");
            eprintln!("NOT TESTED: a running RocksDB; its plugin is not installed");
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
        let storage = Storage { name: "there".to_owned(), datadir: Some(datadir), limits: Limits::default() };
        let Some(server) = testing::server_with("postgres", |s| s.storage = Some(storage)) else { return };
        let data = server.datadir().to_owned();
        assert!(
            data.starts_with(if is_tmpfs { "/dev/shm".as_ref() } else { place.path() }),
            "{}",
            data.display()
        );
        if is_tmpfs {
            assert_eq!(server.storage_facts().unwrap().filesystem, "tmpfs");
        }
        assert_eq!(query(&server, "SELECT 1"), "1");
        server.destroy().unwrap();
        assert!(!data.parent().unwrap().exists());
    }
}

#[test]
fn a_limit_is_taken_only_when_it_holds() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("NOT TESTED: limits need root");
        return;
    }
    let Some((_dir, home, mut spec)) = spec_of("postgres") else { return };
    let limits = Limits { write_bytes_per_s: Some(2 << 20), ..Limits::default() };
    spec.storage = Some(Storage { name: "slow".to_owned(), datadir: None, limits });
    match Sandbox::deploy(&home, &spec, &|_| ()) {
        // Control groups of version 2: it holds, and the server is in the group.
        Ok(server) => server.destroy().unwrap(),
        Err(Error::Limit { what, why }) => eprintln!("limit {what} refused here: {why}"),
        Err(error) => panic!("{error}"),
    }
    nothing_is_left(&home);
    let limits = Limits { memory_bytes: Some(512 << 20), ..Limits::default() };
    spec.storage = Some(Storage { name: "small".to_owned(), datadir: None, limits });
    match Sandbox::deploy(&home, &spec, &|_| ()) {
        Ok(server) => {
            let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", server.pid().unwrap())).unwrap();
            let group = groups
                .lines()
                .find(|line| line.contains("plimsoll-one"))
                .expect("a group of its own")
                .to_owned();
            server.destroy().unwrap();
            let name = group.rsplit('/').next().unwrap();
            for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
                assert!(!std::path::Path::new(root).join(name).exists(), "{name} is left");
            }
        }
        Err(Error::Limit { why, .. }) => eprintln!("NOT TESTED: memory limits: {why}"),
        Err(error) => panic!("{error}"),
    }
    nothing_is_left(&home);
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
