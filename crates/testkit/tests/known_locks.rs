//! Lock samplers against a program that counts its own waits: within 10 % in waiting time, and perf in count too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use telemetry::locks::futex;
use telemetry::locks::perf::Recording;
use telemetry::locks::{LockTable, LockWait};

struct Truth {
    name: String,
    waits: u64,
    waited_s: f64,
}

fn start() -> Child {
    Command::new(env!("CARGO_BIN_EXE_plimsoll-knownlocks"))
        .arg("4")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the program contend and reads what it counted.
fn contend(child: &mut Child) -> Vec<Truth> {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().take(3);
    lines
        .map(|line| {
            let line = line.unwrap();
            let v: Vec<&str> = line.split(' ').collect();
            Truth { name: v[0].to_owned(), waits: v[2].parse().unwrap(), waited_s: v[3].parse().unwrap() }
        })
        .collect()
}

fn of<'a>(table: &'a LockTable, name: &str) -> Option<&'a LockWait> {
    table.waits.iter().find(|w| w.lock == name)
}

fn within(got: f64, want: f64, share: f64) -> bool {
    (got / want - 1.0).abs() <= share
}

fn check_times(table: &LockTable, truth: &[Truth]) {
    for lock in truth.iter().filter(|lock| lock.waits > 20) {
        let got = of(table, &lock.name).unwrap_or_else(|| panic!("no {}: {table:?}", lock.name));
        assert!(
            within(got.wait_s, lock.waited_s, 0.10),
            "{}: {} instead of {}",
            lock.name,
            got.wait_s,
            lock.waited_s
        );
    }
    assert_eq!(table.waits[0].lock, "KNOWN_LOCK_HOT", "{table:?}");
    assert!(truth[0].waits > 100, "the program did not contend");
}

#[test]
fn sampling_finds_waiting_time_within_ten_per_cent() {
    let _alone = ALONE.lock();
    let mut child = start();
    let sampler = futex::start(child.id(), Duration::from_millis(2));
    let truth = contend(&mut child);
    let table = sampler.stop();
    end(&mut child);
    assert!(table.missing.is_empty(), "{:?}", table.missing);
    check_times(&table, &truth);
    let hot = &table.waits[0];
    let (low, high) = hot.interval_s.unwrap();
    assert!(low > 0.0 && low < hot.wait_s && hot.wait_s < high && hot.count.is_none());
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Two recordings at once take the cpus from each other and from what they look at.
static ALONE: Mutex<()> = Mutex::new(());

/// What the program counted and what perf did, beside so many `busy` threads. Where perf may not look or saw no event at all, `what` was not tested.
fn recorded(what: &str, with_callers: bool, busy: usize) -> Option<(Vec<Truth>, LockTable)> {
    let _alone = ALONE.lock();
    let _busy = Busy::new(busy);
    let mut child = start();
    let dir = tempfile::tempdir().unwrap();
    let (truth, table) = match Recording::start(child.id(), dir.path(), with_callers) {
        Ok(recording) => (contend(&mut child), recording.stop()),
        Err(table) => (Vec::new(), table),
    };
    end(&mut child);
    if table.waits.is_empty() && !table.missing.is_empty() {
        let why = table.missing.iter().map(|missing| missing.why.as_str()).collect::<Vec<_>>().join("; ");
        testkit::not_tested(what, why);
        return None;
    }
    Some((truth, table))
}

#[test]
fn perf_finds_counts_within_ten_per_cent() {
    let Some((truth, table)) = recorded("counts of hot locks by perf", false, 0) else { return };
    check_times(&table, &truth);
    for lock in truth.iter().filter(|lock| lock.waits > 20) {
        let count = of(&table, &lock.name).unwrap().count.unwrap();
        assert!(
            within(count as f64, lock.waits as f64, 0.10),
            "{}: {count} instead of {}",
            lock.name,
            lock.waits
        );
    }
}

/// Keeps the cpus busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new(threads: usize) -> Busy {
        let busy = Busy(Arc::new(AtomicBool::new(true)));
        for _ in 0..threads {
            let goes_on = Arc::clone(&busy.0);
            std::thread::spawn(move || while goes_on.load(Ordering::Relaxed) {});
        }
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// On a busy machine: perf takes long to attach, and threads that the program starts meanwhile must not be missed.
#[test]
fn perf_names_the_caller() {
    let Some((_, table)) = recorded("callers of hot locks by perf", true, 8) else { return };
    let hot = of(&table, "KNOWN_LOCK_HOT").unwrap_or_else(|| panic!("{table:?}"));
    assert!(hot.caller.contains("contend"), "{table:?}");
}
