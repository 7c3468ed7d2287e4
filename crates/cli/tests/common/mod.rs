//! What the tests of the command share: the binary, short studies, waiting.

// Each test file uses its part of this.
#![allow(dead_code)]

pub(crate) mod contract;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command under test. Servers and snapshots are those of the user's own home, as in other tests: builds are then
/// fetched once.
pub(crate) fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Done {
    Done::of(plimsoll().args(arguments).output().unwrap())
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Done {
        Done {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The exit code, words that its message must have, and no backtrace.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> Done {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in\n{}", self.err);
        }
        assert!(!self.err.contains("panicked") && !self.err.contains("stack backtrace"), "{}", self.err);
        self
    }
}

/// Whether real servers may be used; says so when not.
pub(crate) fn servers_are_there() -> bool {
    sandbox::testing::servers_are_wanted("real servers")
}

/// A study so short that its figures mean nothing.
pub(crate) fn tiny_study(dir: &Path, name: &str, servers: &str, sessions: &str, blocks: u32) -> String {
    let path = dir.join(format!("{name}.toml"));
    let text = format!(
        "title = \"tiny\"\nquestion = \"Does it run?\"\n[axes]\nserver = [{servers}]\nworkload = [\"oltp_point_select\", \
         \"oltp_read_write\"]\nsessions = [{sessions}]\n[options]\ntable_size = 1000\n[load]\nwarmup = \"100ms\"\n\
         duration = \"1s\"\nblocks = {blocks}\nseed = 1\ngates = \"warn\"\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn wait_until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A child that is killed when its test is over, however that ends: it would go on measuring, and keep others from it.
pub(crate) struct Running(pub(crate) Child);

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has most often ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal (`INT`, `STOP`, `KILL` ...) to a process.
#[track_caller]
pub(crate) fn signal(pid: u32, signal: &str) {
    let done = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
    assert!(done.success(), "kill -{signal} {pid}");
}

/// The sandbox that a `run` or `bench` has deployed for itself.
pub(crate) fn own_sandbox(child: &Child) -> Option<String> {
    let done = run(&["sandbox", "list", "--json"]).expect(0, &[]);
    let all: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let names = all.as_array().unwrap().iter().filter_map(|one| one["name"].as_str());
    let part = format!("-{}-", child.id());
    names.filter(|name| name.contains(&part)).map(str::to_owned).next()
}

/// The process of that sandbox's server.
pub(crate) fn own_server(child: &Child) -> Option<u32> {
    let name = own_sandbox(child)?;
    let done = run(&["sandbox", "list", "--json"]).expect(0, &[]);
    let all: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let mine = all.as_array().unwrap().iter().find(|one| one["name"] == name.as_str())?;
    mine["pid"].as_u64().map(|pid| pid as u32)
}

/// A MariaDB that a `run` or `bench` under test uses.
pub(crate) struct Loaded {
    /// Its sandbox.
    pub(crate) name: String,
    /// Its process.
    pub(crate) pid: u32,
}

/// Waits until the child's own MariaDB carries at least that many sessions of the workload, and leaves the child
/// stopped (SIGSTOP) in this state, so that whatever the test does next happens to a load that is under way, however
/// slow the machine is. Let it go on with `signal(child.id(), "CONT")`. More sessions than a loader has connections
/// tell the load from what comes before it, and many SELECTs that the sessions know themselves to be connected: the
/// server knows first.
#[track_caller]
pub(crate) fn stop_under_load(child: &Child, sessions: u64) -> Loaded {
    let mut found = None;
    wait_until(Duration::from_secs(300), "the load", || {
        // Asked while the child goes on: it may hold a lock that the answer waits for.
        let Some((name, target)) = own_mariadb(child) else { return false };
        signal(child.id(), "STOP");
        found = loaded(&target, sessions).map(|pid| Loaded { name, pid });
        if found.is_none() {
            signal(child.id(), "CONT");
        }
        found.is_some()
    });
    found.unwrap()
}

fn own_mariadb(child: &Child) -> Option<(String, wire::Target)> {
    let name = own_sandbox(child)?;
    let env = run(&["sandbox", "env", &name]);
    let socket = env.out.lines().find_map(|line| line.strip_prefix("export MYSQL_UNIX_PORT="))?;
    let socket = socket.trim_matches(['\'', '"']);
    let target = wire::Target::parse(&format!("mysql://root@localhost/?socket={socket}")).unwrap();
    Some((name, target))
}

/// SELECTs that a server has seen only under load: checks and counts before it are some tens.
const LOADED_SELECTS_MIN: u64 = 500;

/// The server's process, if it has that many sessions and they are at work.
fn loaded(target: &wire::Target, sessions: u64) -> Option<u32> {
    // It may be starting or stopping.
    let mut client = wire::blocking::Client::connect(target).ok()?;
    let count = client
        .query_value("SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'sbtest'")
        .ok()??
        .parse::<u64>()
        .ok()?;
    let selects =
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_SELECT'";
    let selects = client.query_value(selects).ok()??.parse::<u64>().ok()?;
    let pid_file = client.query_value("SELECT @@pid_file").ok()??;
    let pid = std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    (count >= sessions && selects >= LOADED_SELECTS_MIN).then_some(pid)
}

/// A smack file that loads its rows and draws its words from `colours.dat` beside it.
pub(crate) const SMACK: &str = r#"// Looks colours up.
client "admin" { user "root"; host "localhost"; db "test"; }
table "colours" {
  client "admin";
  create "create table colours(name char(20) not null primary key, n int)";
  min_rows "3";
  data_file "colours.dat";
  gen_data_file "";
}
dictionary "name" { type "rand"; source_type "file"; source "colours.dat"; delim ","; }
query "look" { query "select n from colours where name = '$name'"; type "look"; has_result_set "y"; parsed "y"; }
client "reader" { user "root"; host "localhost"; db "test"; query_barrel "1 look"; }
main { reader.init(); reader.set_num_rounds(1); reader.create_threads(1); reader.connect();
       reader.unload_query_barrel(); reader.collect_threads(); reader.disconnect(); }
"#;
