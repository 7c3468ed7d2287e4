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
