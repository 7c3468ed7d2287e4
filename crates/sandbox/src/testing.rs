//! One-line servers for the tests of other rooms.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::build::Version;
use crate::{Error, Flavor, Home, Sandbox, Selector, Spec, builds, leftovers};

/// One build of each flavour and era.
const ERAS: [&str; 8] = [
    "mysql@5.5.34",
    "mysql@5.6.14",
    "mysql@8.0.33",
    "mariadb@10.1.23",
    "mariadb@11.4.5",
    "postgres@9.6.24",
    "postgres@15",
    "postgres@18.6",
];

/// The others that Plimsoll promises to run.
const OTHERS: [&str; 6] = [
    "mysql@5.5.9",
    "mariadb@10.2.11",
    "mariadb@10.11.5",
    "mariadb@10.11",
    "postgres@12.22",
    "postgres@17.11",
];

/// The builds that `PLIMSOLL_TEST_BUILDS` asks for: `eras` is one of each flavour and era, `all` every one that Plimsoll
/// promises. They are fetched where they are missing, hence opt-in; without it none, and that is said.
pub fn chosen_builds() -> Vec<&'static str> {
    match std::env::var("PLIMSOLL_TEST_BUILDS").as_deref() {
        Ok("all") => ERAS.into_iter().chain(OTHERS).collect(),
        Ok("eras") => ERAS.to_vec(),
        _ => {
            testkit::not_tested(
                of_this_test("every era of servers"),
                "PLIMSOLL_TEST_BUILDS=eras or =all runs them",
            );
            Vec::new()
        }
    }
}

/// What of this test: tests run on threads of their names.
fn of_this_test(what: &str) -> String {
    format!("{what} in {}", std::thread::current().name().unwrap_or("a test"))
}

/// Whether tests may use servers; where `PLIMSOLL_TEST_SERVERS=none` forbids it, that `what` is not tested is said.
pub fn servers_are_wanted(what: &str) -> bool {
    let is_wanted = std::env::var_os("PLIMSOLL_TEST_SERVERS").is_none_or(|value| value != "none");
    if !is_wanted {
        testkit::not_tested(of_this_test(what), "PLIMSOLL_TEST_SERVERS=none");
    }
    is_wanted
}

/// A running sandbox of `selector` (`"mariadb"`, `"mysql@8.0"`, `"postgres@16"`), destroyed when dropped. `None` only
/// when `PLIMSOLL_TEST_SERVERS=none`, and then it has said what was not tested.
///
/// # Panics
/// When no such server can be had: a test that needs one must fail, not pass unseen.
pub fn server(selector: &str) -> Option<Sandbox> {
    server_with(selector, |_| ())
}

/// [`server`] with changes to its [`Spec`]; TCP, TLS and other sessions are asked for here.
///
/// # Panics
/// As [`server`].
pub fn server_with(selector: &str, change: impl FnOnce(&mut Spec)) -> Option<Sandbox> {
    if !servers_are_wanted(selector) {
        return None;
    }
    match deploy(selector, change) {
        Ok(sandbox) => Some(sandbox),
        Err(error) => panic!(
            "no test server {selector}: {error}\n(PLIMSOLL_TEST_SERVERS=none runs the tests without servers, and says \
             what was not tested)"
        ),
    }
}

fn deploy(selector: &str, change: impl FnOnce(&mut Spec)) -> Result<Sandbox, Error> {
    let home = Home::find()?;
    leftovers(&home)?;
    let mut spec = spec(&home, selector)?;
    change(&mut spec);
    Sandbox::deploy(&home, &spec, &|_| ())
}

/// What [`server`] deploys, under a name that no other test has; the build comes from the user's own home.
pub fn spec(home: &Home, selector: &str) -> Result<Spec, Error> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let selector: Selector = selector.parse()?;
    let build = builds::resolve(home, &selector, &|_| ())?;
    let name = format!("test-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let mut spec = Spec::new(name, build);
    // Many test servers run at once, and their first start should not write half a gigabyte of log.
    spec.buffer_bytes = Some(128 << 20);
    let is_modern_mysql =
        spec.build.flavor != Flavor::Mariadb && spec.build.numbers() >= Version(8, 0, 30, 0);
    match spec.build.flavor {
        Flavor::Postgres => {}
        _ if is_modern_mysql => {
            drop(spec.settings.insert("innodb_redo_log_capacity".into(), (64 << 20).to_string()))
        }
        _ => drop(spec.settings.insert("innodb_log_file_size".into(), (32 << 20).to_string())),
    }
    Ok(spec)
}

/// A build that is nowhere, `flavor@version`.
#[cfg(test)]
pub(crate) fn build_of(name: &str) -> crate::Build {
    let (flavor, version) = name.split_once('@').unwrap();
    crate::Build {
        flavor: Flavor::ALL.into_iter().find(|known| known.name() == flavor).unwrap(),
        version: version.to_owned(),
        label: None,
        identity: name.to_owned(),
        origin: crate::Origin::Directory("/".into()),
        archive_sha256: None,
        facts: std::collections::BTreeMap::new(),
        files: crate::build::Files {
            server: "/nowhere".into(),
            base: "/".into(),
            share: None,
            messages: None,
            plugins: None,
            initdb: None,
            client: None,
            libraries: Vec::new(),
        },
    }
}

/// Unpacks a whole archive into a folder and repairs what is there, as `fetch` does, and runs nothing of it.
///
/// # Errors
/// What `fetch` says of it.
pub fn unpack(archive: &std::path::Path, into: &std::path::Path) -> Result<(), Error> {
    builds::unpack::unpack(archive, &[], into, &|_| ())?;
    builds::unpack::repair(into)
}
