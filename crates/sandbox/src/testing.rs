//! One-line servers for the tests of other rooms.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::build::Version;
use crate::{Error, Flavor, Home, Sandbox, Selector, Spec, builds, leftovers};

/// A running sandbox of `selector` (`"mariadb"`, `"mysql@8.0"`, `"postgres@16"`), destroyed when dropped. `None` only
/// when `PLIMSOLL_TEST_SERVERS=none`, and then it has said on stderr what was not tested.
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
    if std::env::var_os("PLIMSOLL_TEST_SERVERS").is_some_and(|v| v == "none") {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        eprintln!("NOT TESTED: {test} needs the server {selector}, and PLIMSOLL_TEST_SERVERS=none");
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
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let home = Home::find()?;
    leftovers(&home)?;
    let selector: Selector = selector.parse()?;
    let build = builds::resolve(&home, &selector, &|_| ())?;
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
    change(&mut spec);
    Sandbox::deploy(&home, &spec, &|_| ())
}
