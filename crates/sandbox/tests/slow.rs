//! Slow-downs that `testkit::slow` plants into real servers arrive, once an answer and in the size that was asked for: by
//! the environment, and as builds of their own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::{Home, Sandbox, Selector, builds, testing};
use testkit::slow::{self, Slow};
use wire::blocking::Client;

const SERVERS: [&str; 2] = ["mariadb", "postgres"];
const ANSWERS: u32 = 200;

/// A folder that servers of other uids can enter.
fn open_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn with_env(selector: &str, library: &Path, slow: &Slow) -> Option<Sandbox> {
    testing::server_with(selector, |spec| spec.env.extend(slow.env(library)))
}

/// Cpu that the server's processes have used, ended ones that they waited for included, in the kernel's ticks of 10 ms. They
/// are whole: a difference of seconds would be a hair less than the ticks between them.
fn cpu_ticks(server: &Sandbox) -> u64 {
    let head = server.pid().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{head}/task/{head}/children")).unwrap_or_default();
    let of = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
        rest.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    std::iter::once(head.to_string().as_str()).chain(children.split_whitespace()).map(of).sum()
}

/// Seconds of cpu since `before`, which [`cpu_ticks`] gave.
fn cpu_s_since(server: &Sandbox, before: u64) -> f64 {
    cpu_ticks(server).saturating_sub(before) as f64 / 100.0
}

/// Waits until what a server does for itself once it has started is over: it would count as the answers' cpu.
fn settle(server: &Sandbox) {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        let before = cpu_ticks(server);
        std::thread::sleep(Duration::from_millis(300));
        let used_s = cpu_s_since(server, before);
        if used_s <= 0.011 {
            return;
        }
        assert!(
            Instant::now() < limit,
            "the server used {used_s} s of cpu in 0.3 s although nobody asks it anything"
        );
    }
}

/// Seconds on the clock, and of the server's cpu, for [`ANSWERS`] answers that are none of a login.
fn cost(server: &Sandbox) -> (f64, f64) {
    let mut client = Client::connect(&server.target(None)).unwrap();
    client.query("SELECT 1").unwrap();
    let (begun, cpu) = (Instant::now(), cpu_ticks(server));
    for _ in 0..ANSWERS {
        client.query("SELECT 1").unwrap();
    }
    let cost = (begun.elapsed().as_secs_f64(), cpu_s_since(server, cpu));
    client.close();
    cost
}

#[test]
fn cpu_is_used_once_an_answer() {
    let folder = open_folder();
    let library = slow::library(folder.path(), &Slow::default()).unwrap();
    for selector in SERVERS {
        let Some(server) = with_env(selector, &library, &Slow { cpu_us: 5000, ..Slow::default() }) else {
            return;
        };
        settle(&server);
        let (_, cpu_s) = cost(&server);
        // What a SELECT 1 costs by itself, and the clock's ticks, are small beside it.
        assert!((1.0..1.4).contains(&cpu_s), "{selector}: {cpu_s} s for {ANSWERS} answers of 5 ms");
    }
}

#[test]
fn sleep_takes_time_and_no_cpu() {
    let folder = open_folder();
    let library = slow::library(folder.path(), &Slow::default()).unwrap();
    for selector in SERVERS {
        let Some(server) = with_env(selector, &library, &Slow { sleep_us: 5000, ..Slow::default() }) else {
            return;
        };
        settle(&server);
        let (clock_s, cpu_s) = cost(&server);
        assert!(clock_s >= 1.0 && cpu_s < 0.4, "{selector}: {clock_s} s, {cpu_s} s of cpu");
    }
}

#[test]
fn a_lock_is_held_by_one_session_at_a_time() {
    let folder = open_folder();
    let library = slow::library(folder.path(), &Slow::default()).unwrap();
    for selector in SERVERS {
        let Some(server) = with_env(selector, &library, &Slow { lock_us: 2000, ..Slow::default() }) else {
            return;
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| cost(&server));
            }
        });
        // Two cpus would need half of that, four a quarter.
        let alone_s = f64::from(4 * ANSWERS) * 2e-3;
        assert!(begun.elapsed().as_secs_f64() >= alone_s, "{selector}: {:?}", begun.elapsed());
    }
}

#[test]
fn each_answer_writes_to_a_file_of_its_own() {
    let folder = open_folder();
    let library = slow::library(folder.path(), &Slow::default()).unwrap();
    for selector in SERVERS {
        let Some(server) = with_env(selector, &library, &Slow { fsync_every: 1, ..Slow::default() }) else {
            return;
        };
        let file = server.datadir().join("plimsoll-slow.tmp");
        let client = Client::connect(&server.target(None)).unwrap();
        let written = || std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = written();
        std::thread::sleep(Duration::from_millis(20));
        cost(&server);
        assert!(written() > before, "{selector}");
        client.close();
    }
}

/// What a bisection needs: many builds of one version that differ in nothing but how slow they are.
#[test]
fn labelled_builds_are_slow_by_themselves() {
    let folder = open_folder();
    let home = Home::at(folder.path().join("home")).unwrap();
    for selector in SERVERS {
        let Some(original) = testing::server(selector) else { return };
        let files = &original.build().files;
        let mut found = Vec::new();
        for (label, cpu_us) in [("b0", 0), ("b1", 5000)] {
            let into = folder.path().join(format!("{selector}-{label}"));
            slow::build(&files.base, &files.server, &into, &Slow { cpu_us, ..Slow::default() }).unwrap();
            let named: Selector = format!("{selector}@{}+{label}", original.build().version).parse().unwrap();
            let build = builds::fetch_archive(&home, &into, Some(&named), &|_| ()).unwrap();
            assert_eq!(build.name(), named.to_string());
            let server = testing::server_with(selector, |spec| spec.build = build.clone()).unwrap();
            settle(&server);
            let (_, cpu_s) = cost(&server);
            let planted_s = f64::from(ANSWERS * cpu_us) / 1e6;
            assert!(
                (planted_s..planted_s + 0.4).contains(&cpu_s),
                "{label}: {cpu_s} s, planted {planted_s} s"
            );
            found.push(build.identity);
        }
        assert_ne!(found[0], found[1]);
    }
}
