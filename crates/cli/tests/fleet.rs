//! Studies in parts: by hand on machines without a scheduler, and on a real Slurm with several nodes on this machine.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Done, Running, run, signal, wait_until};
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
        let sql = sql.display();
        let url = format!("mysql://root@localhost/fake?socket={}", self.socket.display());
        let text = format!(
            "title = \"fake\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"{url}\"\nworkload = \"{sql}\"\n\
             sessions = [1, 2]\n[load]\nwarmup = \"100ms\"\nduration = \"1s\"\nblocks = {blocks}\ngates = \"warn\"\n\
             [machine]\nidle = \"as-is\"\n{more}"
        );
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// The JSON report over results files or directories.
fn report(files: &[PathBuf]) -> serde_json::Value {
    let mut words = vec!["report".to_owned()];
    words.extend(files.iter().map(|file| file.display().to_string()));
    words.extend(["--json".to_owned(), "-".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = run(&words).expect(0, &[]);
    serde_json::from_str(&done.out).unwrap()
}

/// Blocks of the runs that count, by session count.
fn counted_blocks(report: &serde_json::Value) -> Vec<(u64, Vec<u64>)> {
    let cells = report["cells"].as_array().unwrap().iter();
    let cells = cells.map(|cell| {
        let runs = cell["runs"].as_array().unwrap().iter();
        let counted =
            runs.filter(|run| ["done", "invalid"].contains(&run["status"].as_str().unwrap_or_default()));
        let mut blocks: Vec<u64> = counted.filter_map(|run| run["block"].as_u64()).collect();
        blocks.sort_unstable();
        (cell["key"]["sessions"].as_u64().unwrap(), blocks)
    });
    cells.collect()
}

#[test]
fn parts_that_were_made_apart_are_one_report() {
    let dir = tempfile::tempdir().unwrap();
    let server = FakeServer::start(dir.path());
    let study = server.study(dir.path(), 4, "");
    let study = study.to_str().unwrap();
    let part = |block: &str, name: &str, code: i32| {
        let results = dir.path().join(name);
        run(&["run", study, "--block", block, "--results", results.to_str().unwrap()]).expect(code, &[]);
        results.join("results.db")
    };
    let files = [part("1/2", "a", 0), part("2/2", "b", 0)];
    let both = report(&files);
    assert_eq!(counted_blocks(&both), [(1, vec![1, 2, 3, 4]), (2, vec![1, 2, 3, 4])]);
    // The same plan in both: no seed was drawn.
    assert_eq!(both["studies"][0]["seed"], both["studies"][1]["seed"]);
    let doubled = report(&[files[0].clone(), files[1].clone(), files[0].clone()]);
    assert_eq!(counted_blocks(&doubled), counted_blocks(&both));
    // A part that is whole has nothing left to do; one that was not begun is told.
    let again = run(&["run", study, "--block", "1,3", "--results", dir.path().join("a").to_str().unwrap()]);
    again.expect(0, &[]).out.contains("Everything was recorded before").then_some(()).unwrap();
    run(&["run", study, "--block", "9", "--results", dir.path().join("a").to_str().unwrap()])
        .expect(2, &["--block 9", "1 to 4"]);
    run(&["run", study, "--block", "3/2"]).expect(2, &["no share 3 of 2"]);
}

/// A study on a cluster.
struct Fleet {
    dir: tempfile::TempDir,
    cluster: Cluster,
    _server: FakeServer,
    study: PathBuf,
}

impl Fleet {
    fn start(nodes: usize, blocks: u32, more: &str) -> Option<Fleet> {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(&dir.path().join("slurm"), nodes)?;
        let server = FakeServer::start(dir.path());
        let study = server.study(dir.path(), blocks, more);
        Some(Fleet { dir, cluster, _server: server, study })
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.cluster.command(env!("CARGO_BIN_EXE_plimsoll"));
        command.env("NO_COLOR", "1").args(words).arg("--results").arg(self.results());
        command
    }

    fn run(&self, more: &[&str]) -> Command {
        let mut words = vec!["run", self.study.to_str().unwrap(), "--on", "slurm"];
        words.extend(more);
        self.command(&words)
    }

    /// Starts a controller whose words go to a file of that name.
    fn begin(&self, name: &str, more: &[&str]) -> Running {
        let said = std::fs::File::create(self.dir.path().join(name)).unwrap();
        let mut command = self.run(more);
        Running(command.stdout(Stdio::null()).stderr(said).spawn().unwrap())
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Ends that tasks have told of.
    fn ended(&self) -> usize {
        let tasks =
            std::fs::read_dir(self.results().join("fleet/fake-1/tasks")).into_iter().flatten().flatten();
        tasks.filter(|task| task.path().join("ended.json").exists()).count()
    }

    fn runs_on(&self, node: &str) -> bool {
        !self.cluster.asked("squeue", &["-h", "-t", "RUNNING", "-w", node]).is_empty()
    }
}

/// Waits for a controller; its exit code.
fn ends(child: &mut Child, limit: Duration, fleet: &Fleet) -> Option<i32> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("the controller goes on after {limit:?}\n{}", fleet.cluster.logs());
}

/// Blocks are made on all nodes; each once; the user's results file has all of them.
#[test]
fn a_study_is_made_on_all_nodes() {
    let Some(fleet) = Fleet::start(3, 6, "") else { return };
    let done = Done::of(fleet.run(&["--nodes", "3"]).output().unwrap());
    let done = done.expect(0, &["submitted 6 blocks", "block 1 was made on n"]);
    assert!(done.out.contains("report:"), "{}", done.out);
    let json = report(&[fleet.results()]);
    assert_eq!(counted_blocks(&json), [(1, vec![1, 2, 3, 4, 5, 6]), (2, vec![1, 2, 3, 4, 5, 6])]);
    let runs = json["cells"][0]["runs"].as_array().unwrap();
    let names: std::collections::BTreeSet<&str> =
        runs.iter().map(|run| run["host"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    // Logs of runs came along, and nothing is left in the queue.
    assert_eq!(fleet.cluster.asked("squeue", &["-h"]), "");
    let status = Done::of(fleet.command(&["fleet", "status", "fake"]).output().unwrap()).expect(0, &[]);
    assert!(status.out.contains("6 of 6 blocks"), "{}", status.out);
    let again = Done::of(fleet.run(&[]).output().unwrap()).expect(0, &[]);
    assert!(again.out.contains("Everything was recorded before"), "{}", again.out);
}

/// A task, a node, slurmctld and the controller are killed; no recorded run is lost or doubled, and the study ends.
#[test]
fn a_fleet_survives_those_who_make_it() {
    let Some(mut fleet) = Fleet::start(3, 8, "") else { return };
    let first = fleet.begin("first", &[]);
    let limit = Duration::from_secs(120);
    wait_until(limit, "the first block", || fleet.ended() >= 1);
    // The controller, the hard way; its tasks go on.
    signal(first.id(), "KILL");
    drop(first);
    let second = fleet.begin("second", &[]);
    // A task: its process and all of its step.
    let task = || {
        let is_task = |pid: &u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("fleet\0task")
        };
        fleet.cluster.processes().into_iter().find(is_task)
    };
    let mut found = None;
    wait_until(limit, "a task", || {
        found = task();
        found.is_some()
    });
    signal(found.unwrap(), "KILL");
    // The scheduler, for some seconds. Not with jobs that it has not written down: Slurm itself then drains their nodes, which
    // waits for an operator.
    wait_until(limit, "slurmctld's state with all that runs", || fleet.cluster.is_state_saved());
    fleet.cluster.kill("slurmctld");
    std::thread::sleep(Duration::from_secs(4));
    fleet.cluster.start_controller();
    // A node: what it runs goes on without it, until Slurm takes it for lost and begins it again elsewhere.
    wait_until(limit, "a task on n3", || fleet.runs_on("n3") || fleet.ended() >= 7);
    fleet.cluster.kill("n3");
    let mut second = second;
    // Where others load the machine each block waits for quiet, for a while.
    assert_eq!(ends(&mut second, Duration::from_secs(480), &fleet), Some(0), "{}", fleet.said("second"));
    let json = report(&[fleet.results()]);
    let all: Vec<u64> = (1..=8).collect();
    let got = counted_blocks(&json);
    for (sessions, blocks) in &got {
        let mut once = blocks.clone();
        once.dedup();
        assert_eq!(once, all, "{sessions} sessions\n{}\n{}", fleet.said("first"), fleet.said("second"));
    }
    // All that any task has recorded is in the user's file, once.
    let tasks = fleet.results().join("fleet/fake-1/tasks");
    let mut recorded = 0;
    for task in std::fs::read_dir(tasks).unwrap().flatten() {
        let Ok(store) = store::Store::open_read_only(&task.path()) else { continue };
        for study in store.studies().unwrap() {
            let heads = store.run_heads(study.id).unwrap();
            recorded += heads.iter().filter(|head| head.status != store::Status::Running).count();
        }
    }
    let store = store::Store::open_read_only(&fleet.results()).unwrap();
    let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
    assert_eq!(heads.len(), recorded);
    let pids = fleet.cluster.processes();
    drop(fleet);
    assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}/cmdline")).exists() || is_gone(*pid)));
}

/// Its number may be somebody else's by now.
fn is_gone(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    !String::from_utf8_lossy(&environment).contains("slurm.conf")
}

/// The server and what measures it on one node, clients on two others, whose clocks show other times: one result.
#[test]
fn clients_of_a_bench_live_on_nodes_of_their_own() {
    if !common::servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(&dir.path().join("slurm"), 3) else { return };
    let bench = |words: &[&str]| {
        let mut command = cluster.command(env!("CARGO_BIN_EXE_plimsoll"));
        let fixed =
            ["bench", "oltp_read_write", "-o", "table_size=1000", "--on", "slurm", "--warmup", "200ms"];
        command.env("NO_COLOR", "1").args(fixed).args(["--time", "2s", "--json", "-"]).args(words);
        Done::of(command.output().unwrap())
    };
    for server in ["mariadb", "postgres"] {
        let done = bench(&["--server", server, "--sessions", "4", "--clients", "2"]).expect(0, &[]);
        let run: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert!(run["outcomes"]["committed"].as_u64().unwrap() > 20, "{run}");
        let each = run["client"]["each"].as_array().unwrap();
        assert_eq!(each.len(), 2, "{run}");
        for (client, node_up_s) in each.iter().zip([2000.0, 3000.0]) {
            // The first node, on which the leader is, has been up for 1,000 s.
            let offset_s = client["clock_offset_us"].as_f64().unwrap() / 1e6;
            assert!((offset_s - (node_up_s - 1000.0)).abs() < 0.1, "{client}");
            assert!(client["clock_within_us"].as_f64().unwrap() < 50_000.0, "{client}");
        }
        let hosts: Vec<&str> = each.iter().map(|client| client["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, ["n2", "n3"]);
        let measured_s = run["duration_s"].as_f64().unwrap();
        assert!((measured_s - 2.0).abs() < 0.2, "{run}");
        assert_eq!(run["intervals"].as_array().unwrap().len(), 2, "{run}");
        assert!(run["client"]["cpu_share"].as_f64().unwrap() > 0.001, "{run}");
        let noise = &run["gates"]["noisy_host"];
        assert_ne!(noise["finding"], "not_checked", "{run}");
        let told = noise["detail"].as_str().unwrap();
        for of in
            ["that server and client wanted", "n2: of the cpu that its clients wanted", "n3: of the cpu"]
        {
            assert!(told.contains(of), "{told}");
        }
    }
    // Who ends the command ends all of it.
    let mut command = cluster.command(env!("CARGO_BIN_EXE_plimsoll"));
    command.args([
        "bench",
        "oltp_point_select",
        "-o",
        "table_size=1000",
        "--on",
        "slurm",
        "--server",
        "mariadb",
    ]);
    command.args(["--sessions", "4", "--clients", "2", "--time", "60s"]);
    let mut child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // Its own step, and one for each client.
    let steps = || cluster.asked("squeue", &["-h", "--steps"]).lines().count();
    wait_until(Duration::from_secs(60), "steps of the clients", || steps() >= 3);
    signal(child.id(), "INT");
    wait_until(Duration::from_secs(30), "its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(4));
    wait_until(Duration::from_secs(30), "an empty queue", || cluster.asked("squeue", &["-h"]).is_empty());
    bench(&["--server", "mariadb", "--sessions", "4"]).expect(2, &["--clients 2 at least"]);
    bench(&["--server", "mysql://root:geheim@127.0.0.1/x", "--sessions", "4", "--clients", "2"])
        .expect(2, &["PLIMSOLL_PASSWORD"]);
    bench(&["--server", "mariadb", "--sessions", "8", "--clients", "4"])
        .expect(2, &["--nodes 5", "has 3 nodes"]);
}

/// Each block of a study takes a node for the server and others for its clients.
#[test]
fn clients_of_a_study_live_on_nodes_of_their_own() {
    if !common::servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(&dir.path().join("slurm"), 3) else { return };
    let path = dir.path().join("wide.toml");
    let text = "title = \"wide\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"postgres\"\nworkload = \"oltp_point_select\"\n\
                sessions = 4\n[options]\ntable_size = 1000\n[load]\nclients = 2\nwarmup = \"100ms\"\nduration = \"1s\"\n\
                blocks = 2\ngates = \"warn\"\n[fleet]\non = \"slurm\"\nclient_nodes = 2\n";
    std::fs::write(&path, text).unwrap();
    let run = |more: &[&str]| {
        let mut command = cluster.command(env!("CARGO_BIN_EXE_plimsoll"));
        command.env("NO_COLOR", "1").arg("run").arg(&path).arg("--results").arg(dir.path().join("results"));
        Done::of(command.args(more).output().unwrap())
    };
    run(&["--client-nodes", "3"]).expect(2, &["--client-nodes 3", "2 clients"]);
    run(&[]).expect(0, &[]);
    let json = report(&[dir.path().join("results")]);
    let runs = json["cells"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{json}");
    for run in runs {
        let each = run["client"]["each"].as_array().unwrap();
        let up_more_s = each.iter().map(|one| one["clock_offset_us"].as_f64().unwrap() / 1e6);
        assert_eq!(up_more_s.map(f64::round).collect::<Vec<_>>(), [1000.0, 2000.0], "{run}");
        assert_eq!(run["host"]["name"], "n1", "{run}");
    }
}

/// Ctrl-C cancels the jobs, or leaves them; who comes back goes on.
#[test]
fn a_fleet_is_left_taken_up_and_cancelled() {
    let Some(fleet) = Fleet::start(2, 6, "") else { return };
    let limit = Duration::from_secs(120);
    let mut left = fleet.begin("left", &["--leave-jobs"]);
    wait_until(limit, "a task", || fleet.runs_on("n1"));
    signal(left.id(), "INT");
    assert_eq!(ends(&mut left, limit, &fleet), Some(4), "{}", fleet.said("left"));
    assert!(fleet.said("left").contains("plimsoll fleet attach fake"), "{}", fleet.said("left"));
    assert_ne!(fleet.cluster.asked("squeue", &["-h"]), "");
    let said = std::fs::File::create(fleet.dir.path().join("attached")).unwrap();
    let mut command = fleet.command(&["fleet", "attach", "fake"]);
    let mut attached = Running(command.stdout(Stdio::null()).stderr(said).spawn().unwrap());
    wait_until(limit, "a block", || fleet.said("attached").contains("was made on"));
    signal(attached.id(), "INT");
    assert_eq!(ends(&mut attached, limit, &fleet), Some(4), "{}", fleet.said("attached"));
    wait_until(limit, "the queue's end", || fleet.cluster.asked("squeue", &["-h"]).is_empty());
    let json = report(&[fleet.results()]);
    assert!(!counted_blocks(&json).is_empty());
    Done::of(fleet.command(&["fleet", "cancel", "fake"]).output().unwrap()).expect(0, &[]);
    let done = Done::of(fleet.run(&[]).output().unwrap()).expect(0, &[]);
    assert!(!done.out.contains("still to be made"), "{}", done.out);
    let last: Vec<u64> = (1..=6).collect();
    assert!(counted_blocks(&report(&[fleet.results()])).iter().all(|(_, blocks)| *blocks == last));
}

/// Searches for load lines are blocks as others; each is driven by two client processes of its node.
#[test]
fn searches_for_lines_are_made_on_nodes() {
    let Some(fleet) = Fleet::start(2, 2, "") else { return };
    let text = std::fs::read_to_string(&fleet.study).unwrap();
    let search =
        "clients = 2\n[line]\npromises = [\"p90 < 100ms\"]\nbudget = \"20s\"\nsessions_max = 8\n[machine]\n";
    let text = text.replace("sessions = [1, 2]\n", "").replace("warmup = \"100ms\"\nduration = \"1s\"\n", "");
    std::fs::write(&fleet.study, text.replace("[machine]\n", search)).unwrap();
    let done = Done::of(fleet.run(&["--nodes", "2"]).output().unwrap());
    done.expect(0, &["block 1 was made on n", "block 2 was made on n"]);
    let json = report(&[fleet.results()]);
    let runs = json["cells"][0]["runs"].as_array().unwrap();
    let nodes: std::collections::BTreeSet<&str> =
        runs.iter().map(|run| run["host"]["name"].as_str().unwrap()).collect();
    assert_eq!((runs.len(), nodes.len()), (2, 2), "{json}");
    for run in runs {
        assert!(!run["line"]["probes"].as_array().unwrap().is_empty(), "{run}");
        assert_eq!(run["client"]["clients"], 2, "{run}");
    }
    assert_eq!(json["cells"][0]["lines"][0]["promise"], "p90 < 100ms");
}

/// A node on which the study could not tell its margin gets no block: what is known of it decides, before a server is started.
#[test]
fn a_noisy_node_is_set_aside_and_the_others_make_its_blocks() {
    if !common::servers_are_there() {
        return;
    }
    let Some(fleet) = Fleet::start(2, 2, "") else { return };
    // Which machines the nodes are.
    Done::of(fleet.run(&["--nodes", "2"]).output().unwrap()).expect(0, &["nodes are not calibrated"]);
    let json = report(&[fleet.results()]);
    let runs = json["cells"][0]["runs"].as_array().unwrap();
    let known: std::collections::BTreeMap<&str, &str> = runs
        .iter()
        .map(|run| (run["host"]["name"].as_str().unwrap(), run["host"]["fingerprint"].as_str().unwrap()))
        .collect();
    assert_eq!(known.len(), 2, "{known:?}");
    let study = fleet.dir.path().join("real.toml");
    let text = "title = \"real\"\nquestion = \"Which?\"\n[axes]\nserver = [\"mariadb\", { server = \"mariadb\", label = \"again\" }]\n\
                workload = \"oltp_point_select\"\nsessions = 1\n[options]\ntable_size = 100\n[load]\nwarmup = \"0s\"\n\
                duration = \"1s\"\nblocks = 20\ngates = \"warn\"\n[compare]\naxis = \"server\"\nbase = \"mariadb\"\n\
                margin = 0.3\n[machine]\nidle = \"as-is\"\n";
    std::fs::write(&study, text).unwrap();
    let study = study.display().to_string();
    let planned = run(&["run", &study, "--dry-run"]).expect(0, &[]).out;
    let name = planned.lines().find_map(|line| line.strip_prefix("mariadb is ")).unwrap().to_owned();
    let folder = sandbox::Home::find().unwrap().path().join("calibrations");
    for (node, fingerprint) in &known {
        let mut made = store::testing::calibrations(10, 1.0);
        made.server.clone_from(&name);
        let noise = if *node == "n2" { 3.0 } else { 1.0 };
        for life in made.lives.iter_mut().step_by(2) {
            life.tps[1].iter_mut().for_each(|tps| *tps *= noise);
        }
        made.write(&folder, fingerprint).unwrap();
    }
    let said = std::fs::File::create(fleet.dir.path().join("real")).unwrap();
    let mut command = fleet.command(&["run", &study, "--on", "slurm"]);
    let mut child = Running(command.stdout(Stdio::null()).stderr(said).spawn().unwrap());
    let limit = Duration::from_secs(120);
    wait_until(limit, "the noisy node", || fleet.said("real").contains("n2 is set aside: 20 blocks tell no"));
    wait_until(limit, "who waits", || {
        fleet.cluster.asked("scontrol", &["show", "job"]).contains("ExcNodeList=n2")
    });
    wait_until(limit, "a block on the other", || fleet.said("real").contains("runs on n1"));
    signal(child.id(), "INT");
    assert_eq!(ends(&mut child, limit, &fleet), Some(4), "{}", fleet.said("real"));
    // Stricter, and no node is left.
    let none =
        Done::of(fleet.command(&["run", &study, "--on", "slurm", "--noise-max", "0.0001"]).output().unwrap());
    none.expect(1, &["n1 is set aside", "no node is left", "--noise-max"]);
    for fingerprint in known.values() {
        std::fs::remove_dir_all(folder.join(fingerprint)).unwrap();
    }
    let said = fleet.said("real");
    assert!(!said.contains("cannot be kept away") && !said.contains("made on n2"), "{said}");
}

/// A node whose disk is full fails in seconds, is idle again, and would be given every block that waits: the others make
/// them all.
#[test]
fn what_a_node_with_a_full_disk_cannot_make_the_others_do() {
    if !common::servers_are_there() {
        return;
    }
    let Some(mut fleet) = Fleet::start(3, 1, "") else { return };
    // Where the servers' data directories are made.
    let sandboxes = sandbox::Home::find().unwrap().sandboxes();
    std::fs::create_dir_all(&sandboxes).unwrap();
    fleet.cluster.give_disk("n2", &sandboxes, 1 << 20);
    let study = fleet.dir.path().join("real.toml");
    let text = "title = \"real\"\nquestion = \"Does it run?\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\n\
                workload = \"oltp_point_select\"\nsessions = 1\n[options]\ntable_size = 100\n[load]\nwarmup = \"0s\"\n\
                duration = \"2s\"\nblocks = 12\ngates = \"warn\"\n[machine]\nidle = \"as-is\"\n";
    std::fs::write(&study, text).unwrap();
    let study = study.display().to_string();
    let words = ["run", &study, "--on", "slurm", "--nodes", "3", "--calibrate", "0s"];
    let own = fleet.cluster.root_of("n2").join(sandboxes.strip_prefix("/").unwrap());
    std::fs::write(own.join("ballast"), vec![0; (1 << 30) - (64 << 10)]).unwrap();
    let done = Done::of(fleet.command(&words).output().unwrap());
    let done = done.expect(0, &["n2 is set aside: ", "came to nothing there, and n", "can make them"]);
    assert!(!done.err.contains("given up"), "{}", done.err);
    let json = report(&[fleet.results()]);
    // What n2 has recorded of its failures is there, too: its disk makes it another class of node.
    let made: Vec<Vec<u64>> = counted_blocks(&json).into_iter().map(|(_, blocks)| blocks).collect();
    let whole = made.iter().filter(|blocks| !blocks.is_empty());
    assert_eq!(whole.collect::<Vec<_>>(), [&(1..=12).collect::<Vec<u64>>(); 2]);
    for cell in json["cells"].as_array().unwrap() {
        for run in cell["runs"].as_array().unwrap().iter().filter(|run| run["status"] == "done") {
            assert_ne!(run["host"]["name"], "n2", "{run}");
        }
    }
    let told = run(&["report", &fleet.results().display().to_string(), "--md", "-"]).expect(0, &[]).out;
    assert!(told.contains("n2 is set aside"), "{told}");
}

/// A node with a home of its own gets the builds that its study needs from the one that controls it.
#[test]
fn builds_get_to_nodes_that_lack_them() {
    let home = sandbox::Home::find().unwrap();
    let fetched = sandbox::builds::fetched(&home).unwrap();
    // No other test's own, and not MySQL, which is large.
    let is_wanted = |build: &&sandbox::Build| {
        let is_small = matches!(build.flavor, sandbox::Flavor::Mariadb | sandbox::Flavor::Postgres);
        is_small && build.label.is_none() && build.files.server.starts_with(home.builds())
    };
    let Some(build) = fetched.iter().find(is_wanted) else {
        return testkit::not_tested("builds that are handed to nodes", "no build was fetched into this home");
    };
    let Some(mut fleet) = Fleet::start(2, 1, "") else { return };
    fleet.cluster.give_disk("n2", home.path(), 4 << 20);
    let study = fleet.dir.path().join("real.toml");
    let text = format!(
        "title = \"real\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"{}\"\nworkload = \"oltp_point_select\"\nsessions = 1\n\
         [options]\ntable_size = 100\n[load]\nwarmup = \"0s\"\nduration = \"2s\"\nblocks = 4\ngates = \"warn\"\n\
         [machine]\nidle = \"as-is\"\n",
        build.name()
    );
    std::fs::write(&study, text).unwrap();
    let study = study.display().to_string();
    let done = Done::of(fleet.command(&["run", &study, "--on", "slurm", "--nodes", "2"]).output().unwrap());
    done.expect(0, &[&format!("n2 lacks {}", build.name()), "made on n2"]);
    let own = fleet.cluster.root_of("n2").join(home.path().strip_prefix("/").unwrap());
    assert!(own.join("builds").join(build.name()).exists(), "{}", own.display());
    assert!(!own.join("downloads").exists(), "it was not fetched");
}

/// The objects of a study fit the schemas that Kubernetes publishes, where the program that has them is installed.
#[test]
fn objects_of_kubernetes_fit_its_schemas() {
    let checks = |program: &Path, files: &[PathBuf]| {
        Command::new(program).args(["--strict", "--no-warn"]).args(files).output()
    };
    let program = Path::new("kubernetes-validate");
    if let Err(error) = Command::new(program).arg("--version").output() {
        testkit::not_tested("objects of Kubernetes", format!("{error}: pip install kubernetes-validate"));
        return;
    }
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/quickstart.toml");
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "--on",
        "kubernetes",
        "--dry-run",
        "--nodes",
        "4",
        "--constraint",
        "disk=nvme",
        "--time-limit",
        "2h",
    ];
    let done = run(&[&["run", study.to_str().unwrap()], &words[..]].concat()).expect(0, &[]);
    let list: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let written = |object: &serde_json::Value| {
        let file = dir.path().join(format!("{}.json", object["kind"].as_str().unwrap()));
        std::fs::write(&file, object.to_string()).unwrap();
        file
    };
    let files: Vec<PathBuf> = list["items"].as_array().unwrap().iter().map(written).collect();
    let checked = checks(program, &files).unwrap();
    let said =
        String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.matches("passed").count() == 3, "{said}");
    // It does look.
    let mut odd = list["items"][2].clone();
    odd["spec"]["completionz"] = 3.into();
    assert!(!checks(program, &[written(&odd)]).unwrap().status.success());
}

/// What the files below a directory take on disk.
fn kib_below(dir: &Path) -> u64 {
    let said = Command::new("du").arg("-sk").arg(dir).output().unwrap();
    String::from_utf8(said.stdout).unwrap().split('\t').next().unwrap().parse().unwrap()
}

/// What cannot work is told before anything is measured.
#[test]
fn a_cluster_that_cannot_do_it_is_told_before_anything_is_measured() {
    let Some(mut fleet) = Fleet::start(2, 2, "[fleet]\non = \"slurm\"\npartition = \"big\"\n") else {
        return;
    };
    let study = fleet.study.to_str().unwrap().to_owned();
    let refused = |words: &[&str], parts: &[&str]| {
        Done::of(fleet.command(words).output().unwrap()).expect(2, parts);
        assert_eq!(fleet.ended(), 0);
    };
    // By the study's own words, and by flags that stand in for them.
    refused(&["run", &study], &["--partition big", "it has lab"]);
    refused(&["run", &study, "--partition", "lab", "--nodes", "5"], &["--nodes 5", "2 nodes"]);
    refused(
        &["run", &study, "--partition", "lab", "--constraint", "gpu"],
        &["--constraint gpu", "it has fake"],
    );
    refused(&["run", &study, "--on", "kubernetes"], &["--dry-run"]);
    refused(&["fleet", "status", "nobody"], &["no fleet has worked on `nobody`"]);
    let mut without = fleet.command(&["run", &study, "--partition", "lab"]);
    without.env("PATH", "/nowhere");
    Done::of(without.output().unwrap()).expect(3, &["there is no `sinfo` here", "--block 1/2"]);
    // A directory that nodes do not see: each has a /run/lock of its own.
    let hidden = tempfile::tempdir_in("/run/lock").unwrap();
    let mut command = fleet.cluster.command(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["run", &study, "--partition", "lab", "--results", hidden.path().to_str().unwrap()]);
    Done::of(command.output().unwrap()).expect(2, &["does not see", "all nodes share"]);
    // A node without room for the build, which it lacks where it is not installed, and one without room for the tables.
    if !common::servers_are_there() {
        return;
    }
    let home = sandbox::Home::find().unwrap();
    let real = fleet.dir.path().join("real.toml");
    let text = "title = \"real\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_point_select\"\n\
                sessions = 1\n[load]\nduration = \"1s\"\nblocks = 2\n";
    std::fs::write(&real, text).unwrap();
    let build = sandbox::builds::resolve(&home, &"mariadb".parse().unwrap(), &|_| ()).unwrap();
    let place = home.builds().join(build.name());
    let handed_kib = if build.files.server.starts_with(&place) { kib_below(&place) } else { 0 };
    let mut too_small = |kib: u64, remedy: &str| {
        fleet.cluster.give_disk("n2", home.path(), kib.try_into().unwrap());
        let words = ["run", real.to_str().unwrap(), "--on", "slurm", "--nodes", "2"];
        Done::of(fleet.command(&words).output().unwrap())
            .expect(2, &["n2 cannot make a block of this study", "--constraint", " MB free", remedy]);
    };
    too_small(1024, if handed_kib > 0 { "PLIMSOLL_HOME to a larger disk" } else { "use smaller tables" });
    too_small(handed_kib + (128 << 10), "use smaller tables");
}
