//! Sandboxes of the servers that Debian's packages install.

use sandbox::{Home, Life, Listen, Sandbox, Spec, State, builds, testing};

fn answers(target: &wire::Target) -> String {
    let mut client = wire::blocking::Client::connect(target).unwrap();
    client.query_value("SELECT 40 + 2").unwrap().unwrap()
}

/// Deploys, asks, stops, starts again, destroys, and looks for what is left.
fn street(selector: &str) {
    let Some(mut server) = testing::server(selector) else { return };
    let (dir, socket, pid) = (server.dir().to_owned(), server.socket(), server.pid().unwrap());
    assert_eq!(answers(&server.target(None)), "42");
    assert_eq!(server.status().unwrap().state, State::Running);
    let reported = server.reported_settings().unwrap();
    assert_eq!(reported["max_connections"], server.settings()["max_connections"]);

    let report = server.stop().unwrap();
    assert!(!report.killed);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(server.status().unwrap().state, State::Stopped);
    server.start().unwrap();
    server.start().unwrap();
    assert_eq!(answers(&server.target(None)), "42");
    server.kill().unwrap();
    server.start().unwrap();
    assert_eq!(answers(&server.target(None)), "42");
    server.destroy().unwrap();
    assert!(!dir.exists() && !socket.exists());
}

#[test]
fn mariadb_lives_and_goes() {
    street("mariadb");
}

#[test]
fn postgres_lives_and_goes() {
    street("postgres");
}

#[test]
fn a_port_takes_the_password_only() {
    for selector in ["mariadb", "postgres"] {
        let Some(server) = testing::server_with(selector, |spec| spec.listen = Listen::FreePort) else {
            return;
        };
        let target = server.tcp_target(None).unwrap();
        assert_eq!(answers(&target), "42");
        let without = wire::Target { password: wire::Secret::default(), ..target };
        assert!(
            wire::blocking::Client::connect(&without).is_err(),
            "{selector} let an administrator in unasked"
        );
    }
}

#[test]
fn one_deployed_by_hand_is_found_again_and_its_name_is_taken() {
    if testing::server("postgres").is_none() {
        return;
    }
    let home = Home::find().unwrap();
    let build = builds::resolve(&home, &"postgres".parse().unwrap(), &|_| ()).unwrap();
    let name = format!("hand-{}", std::process::id());
    let spec = Spec { life: Life::ByHand, ..Spec::new(&name, build) };
    drop(Sandbox::deploy(&home, &spec, &|_| ()).unwrap());

    let error = Sandbox::deploy(&home, &spec, &|_| ()).unwrap_err();
    assert!(matches!(error, sandbox::Error::Exists { .. }), "{error}");
    assert!(!sandbox::leftovers(&home).unwrap().contains(&name));
    let mut again = Sandbox::open(&home, &name).unwrap();
    assert_eq!(answers(&again.target(None)), "42");
    let pid = again.pid().unwrap();
    again.start().unwrap();
    assert_eq!(again.pid(), Some(pid), "a second start must not start a second server");
    assert!(!again.restart().unwrap().killed);
    assert!(Sandbox::list(&home).unwrap().iter().any(|s| s.name == name && s.state == State::Running));
    again.destroy().unwrap();
    assert!(matches!(Sandbox::open(&home, &name), Err(sandbox::Error::NoSandbox { .. })));
}

#[test]
fn tls_is_offered_with_a_certificate_that_can_be_checked() {
    for selector in ["mariadb", "postgres"] {
        let asked = |spec: &mut Spec| (spec.listen, spec.tls) = (Listen::FreePort, true);
        let Some(server) = testing::server_with(selector, asked) else { return };
        let target = server.tcp_target(None).unwrap();
        assert_eq!(target.tls, wire::TlsMode::VerifyCa);
        assert_eq!(answers(&target), "42");
        assert_eq!(answers(&wire::Target { tls: wire::TlsMode::VerifyFull, ..target }), "42");
    }
}

#[test]
fn a_snapshot_is_restored_with_its_rows_and_never_trusted_half_made() {
    use sandbox::snapshot;
    for selector in ["mariadb", "postgres"] {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let home = Home::at(dir.path()).unwrap();
        let mut spec = None;
        let asked = |s: &mut Spec| spec = Some(s.clone());
        let Some(server) = testing::server_with(selector, asked) else { return };
        server.destroy().unwrap();
        let mut spec = Spec { name: "first".to_owned(), ..spec.unwrap() };
        let mut first = Sandbox::deploy(&home, &spec, &|_| ()).unwrap();
        let mut client = wire::blocking::Client::connect(&first.target(None)).unwrap();
        client.query("CREATE DATABASE sbtest").unwrap();
        client.close();
        let mut client = wire::blocking::Client::connect(&first.target(Some("sbtest"))).unwrap();
        client.query("CREATE TABLE t (a INTEGER NOT NULL PRIMARY KEY)").unwrap();
        client.query("INSERT INTO t VALUES (1), (2), (3)").unwrap();
        client.close();
        let key = snapshot::key(&spec, "three rows");
        let kept = snapshot::save(&home, &mut first, &key, "three rows", 4 << 30, &|_| ()).unwrap().unwrap();
        assert!(first.pid().is_some(), "it ran before, so it runs after");
        assert!(snapshot::save(&home, &mut first, "other", "x", 10, &|_| ()).unwrap().is_none());
        first.destroy().unwrap();

        // More sessions leave the data as they are, another page size does not.
        spec.sessions = 500;
        assert_eq!(snapshot::key(&spec, "three rows"), key);
        let other =
            Spec { settings: [("innodb_page_size".to_owned(), "8192".to_owned())].into(), ..spec.clone() };
        assert_ne!(snapshot::key(&other, "three rows"), key);
        assert_ne!(snapshot::key(&spec, "four rows"), key);

        spec.name = "second".to_owned();
        spec.snapshot = snapshot::find(&home, &key).unwrap();
        let foreign = sandbox::Build { identity: "another".to_owned(), ..spec.build.clone() };
        let error = Sandbox::deploy(&home, &Spec { build: foreign, ..spec.clone() }, &|_| ()).unwrap_err();
        assert!(error.to_string().contains("belongs to the build that wrote it"), "{error}");
        assert_eq!(spec.snapshot.as_ref().map(|s| s.bytes), Some(kept.bytes));
        let second = Sandbox::deploy(&home, &spec, &|_| ()).unwrap();
        let mut client = wire::blocking::Client::connect(&second.target(Some("sbtest"))).unwrap();
        assert_eq!(client.query_value("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("3"));
        client.close();
        drop(second);
        assert!(!home.sandboxes().join("second").exists(), "dropping a run's sandbox removes it");

        std::fs::remove_file(kept.dir.join("snapshot.json")).unwrap();
        assert!(snapshot::find(&home, &key).unwrap().is_none());
    }
}

#[test]
fn what_a_killed_plimsoll_leaves_is_found_and_removed() {
    use std::os::unix::process::CommandExt;
    // The test program runs itself as the one that is killed.
    const VICTIM: &str = "PLIMSOLL_TEST_VICTIM";
    if let Some(dir) = std::env::var_os(VICTIM) {
        let home = Home::at(dir).unwrap();
        let found = Home::find().unwrap();
        let build = builds::resolve(&found, &"postgres".parse().unwrap(), &|_| ()).unwrap();
        let sandbox = Sandbox::deploy(&home, &Spec::new("victim", build), &|_| ()).unwrap();
        println!("{}", sandbox.pid().unwrap());
        std::thread::sleep(std::time::Duration::from_secs(60));
        return;
    }
    if testing::server("postgres").is_none() {
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "what_a_killed_plimsoll_leaves_is_found_and_removed", "--nocapture"]);
    command.env(VICTIM, dir.path()).stdout(std::process::Stdio::piped());
    let mut victim = command.process_group(0).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(victim.stdout.take().unwrap()));
    let pid = lines.map_while(Result::ok).find_map(|line| line.trim().parse::<u32>().ok()).unwrap();
    assert!(sandbox::leftovers(&home).unwrap().is_empty(), "it is looked after");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(sandbox::leftovers(&home).unwrap(), ["victim"]);
    assert!(!home.sandboxes().join("victim").exists());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "its server still runs: {stat}");
    assert!(sandbox::leftovers(&home).unwrap().is_empty());
}
