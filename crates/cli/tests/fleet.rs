//! Studies in parts: by hand on machines without a scheduler, and on a real Slurm with several nodes on this machine.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Done, Running, plimsoll, run, signal, wait_until};
use testkit::slurm::Cluster;

/// A server that sleeps for each answer: the load takes time and no cpu.
struct FakeServer {
    _child: Running,
    socket: PathBuf,
}

impl FakeServer {
    fn start(dir: &Path) -> FakeServer {
        let socket = dir.join("fake.sock");
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name("plimsoll-fakeserver");
        let child = Command::new(&program)
            .args(["--latency", "fixed:20000", "--socket"])
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: cargo build -p testkit", program.display()));
        let server = FakeServer { _child: Running(child), socket };
        wait_until(Duration::from_secs(20), "the fake server", || server.socket.exists());
        server
    }

    /// A study of it whose blocks take some seconds.
    fn study(&self, dir: &Path, blocks: u32, more: &str) -> PathBuf {
        let sql = dir.join("ask.sql");
        std::fs::write(&sql, "-- name: ask\nSELECT 1;\n").unwrap();
        let path = dir.join("fake.toml");
        let url = format!("mysql://root@localhost/fake?socket={}", self.socket.display());
        let text = format!(
            "title = \"fake\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"{url}\"\nworkload = \"./ask.sql\"\n\
             sessions = [1, 2]\n[load]\nwarmup = \"100ms\"\nduration = \"1s\"\nblocks = {blocks}\ngates = \"warn\"\n\
             [machine]\nidle = \"as-is\"\n{more}"
        );
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[test]
fn probe() {
    let dir = tempfile::tempdir().unwrap();
    let server = FakeServer::start(dir.path());
    let study = server.study(dir.path(), 2, "");
    let done = run(&["run", study.to_str().unwrap(), "--results", dir.path().join("r").to_str().unwrap()]);
    eprintln!("{done:?}");
    let Some(cluster) = Cluster::start(&dir.path().join("slurm"), 3) else { return };
    eprintln!("{}", cluster.asked("sinfo", &[]));
    eprintln!("{}", cluster.asked("srun", &["-N", "3", "hostname"]));
    drop(cluster);
    let _ = (Instant::now(), signal as fn(u32, &str), plimsoll as fn() -> Command);
    let _: Option<(Child, Done)> = None;
}
