//! Random kills of all that makes a study on a Slurm of four nodes: tasks, nodes (slurmd, with and without what runs on
//! them), slurmctld, the controller; and a shared directory that is full for some seconds. Each round is a study of a server
//! that sleeps, on a cluster of its own. When it has ended, each of its runs must be in its results file once, none that any
//! task has recorded may be missing, and the verdicts must be those of the tasks' own files, read here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use lab::fleet::desk::Desk;
use serde_json::Value;
use stats::rng::Rng;
use store::Store;
use testkit::slurm::Cluster;

use super::fake::FakeServer;
use super::told;

const STUDY: &str = "kills";
/// Of a round, at most: more of them need a longer study, and a round is what can be made again by its seed.
const KILLS_PER_ROUND: u32 = 20;
/// Blocks for each kill, so that there is something to be killed until the last one, and as many as a verdict needs.
const BLOCKS_PER_KILL: u32 = 2;
const BLOCKS_MIN: u32 = 6;
/// Between two kills.
const PAUSE_S: (f64, f64) = (1.0, 4.0);
/// How long what was killed stays away. Slurm takes a node for lost after 6 s.
const AWAY_S: (f64, f64) = (0.5, 9.0);
/// slurmctld forgets what it has not written down: it is killed when it has, and left alone where that takes longer.
const SAVED_WITHIN: Duration = Duration::from_secs(10);
/// The shared directory, and how long it is full.
const DISK_MIB: u32 = 96;
const FULL_S: (f64, f64) = (1.0, 4.0);
/// Without progress for so long the study hangs.
const END_LIMIT: Duration = Duration::from_secs(600);

#[derive(clap::Parser)]
struct Arguments {
    /// Kills in all; each 20 of them are a round
    #[arg(long, default_value_t = 200)]
    kills: u32,
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    nodes: u32,
    /// Of the first round; the next ones have the next numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where plimsoll and plimsoll-fakeserver are, instead of compiling them
    #[arg(long)]
    programs: Option<PathBuf>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Arguments { kills, nodes, seed, programs } = crate::asked("bench fleet-kills", arguments);
    let (plimsoll, fake) = match programs {
        Some(dir) => (dir.join("plimsoll"), dir.join("plimsoll-fakeserver")),
        None => (
            crate::plimsoll()?,
            crate::compiled("testkit", "plimsoll-fakeserver", &["--bin", "plimsoll-fakeserver"])?,
        ),
    };
    let plimsoll = plimsoll.canonicalize().with_context(|| plimsoll.display().to_string())?;
    own_mounts()?;
    let (mut left, mut is_sound, mut all) = (kills, true, BTreeMap::new());
    for round in 0.. {
        if left == 0 {
            break;
        }
        let of_round = left.min(KILLS_PER_ROUND);
        left -= of_round;
        let began = Instant::now();
        let mut made = Round::begin(&plimsoll, &fake, nodes, of_round, seed + round)?;
        made.kill_all(of_round)?;
        made.wait_for_the_end()?;
        let found = made.look()?;
        println!(
            "seed {:<4} {} in {:.0} s: {}; {} of plimsoll, {} brought back by scontrol",
            seed + round,
            store::counted(of_round, "kill"),
            began.elapsed().as_secs_f64(),
            listed(&made.kills),
            store::counted(made.commands, "start"),
            store::counted(made.resumed, "node"),
        );
        println!("          {}", found.text());
        made.kills.iter().for_each(|(kind, count)| *all.entry(*kind).or_insert(0) += count);
        if !found.is_sound() {
            is_sound = false;
            println!("          kept: {}", made.keep()?.display());
        }
    }
    let made: u32 = all.values().sum();
    println!("kills     {made} of {kills} ({})", listed(&all));
    told(is_sound && made == kills)
}

fn listed(kills: &BTreeMap<&'static str, u32>) -> String {
    kills.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

/// File systems that are mounted from here on are this process's and its children's: none is left behind.
fn own_mounts() -> Result<()> {
    // SAFETY: unshare takes no pointers.
    ensure!(
        unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0,
        "no mounts of one's own may be made here: {}",
        std::io::Error::last_os_error()
    );
    shell("mount", &["--make-rprivate", "/"])
}

fn shell(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(())
}

/// A study under fire. What is not killed yet ends with it.
struct Round {
    cluster: Cluster,
    plimsoll: PathBuf,
    study: PathBuf,
    results: PathBuf,
    controller: Controller,
    random: Rng,
    /// Daemons that were killed, and when they come back.
    away: Vec<(String, Instant)>,
    kills: BTreeMap<&'static str, u32>,
    commands: u32,
    resumed: u32,
    blocks: u32,
    _server: FakeServer,
    /// Last: all else lies in it.
    dir: tempfile::TempDir,
}

/// The plimsoll that a user would have started.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        // One that has ended finds nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Round {
    fn begin(plimsoll: &Path, fake: &Path, nodes: u32, kills: u32, seed: u64) -> Result<Round> {
        let dir = tempfile::tempdir()?;
        let results = dir.path().join("results");
        fs::create_dir(&results)?;
        let size = format!("size={DISK_MIB}m");
        shell("mount", &["-t", "tmpfs", "-o", &size, "none", &results.display().to_string()])?;
        let server = FakeServer::start_program(fake, &["--latency", "lognormal:20000:0.2"])?;
        let blocks = BLOCKS_MIN.max(kills * BLOCKS_PER_KILL);
        let study = study(dir.path(), &server.url(), blocks)?;
        let cluster = Cluster::try_start(&dir.path().join("slurm"), nodes as usize, false)
            .map_err(|why| anyhow!("there can be no Slurm here: {why}"))?;
        let controller = Controller(started(&cluster, plimsoll, &study, &results, dir.path())?);
        Ok(Round {
            cluster,
            plimsoll: plimsoll.to_owned(),
            study,
            results,
            controller,
            random: Rng::new(seed),
            away: Vec::new(),
            kills: BTreeMap::new(),
            commands: 1,
            resumed: 0,
            blocks,
            _server: server,
            dir,
        })
    }

    fn between(&mut self, (low, high): (f64, f64)) -> Duration {
        Duration::from_secs_f64(low + (high - low) * self.random.unit())
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.random.below(of.len())].clone())
    }

    /// The study must begin before it is shot at; then so many kills are made, each with something to kill.
    fn kill_all(&mut self, kills: u32) -> Result<()> {
        let mut made = 0;
        let began = Instant::now();
        while self.tasks().is_empty() {
            ensure!(began.elapsed() < END_LIMIT, "no task has begun:\n{}", self.said());
            self.tend()?;
            std::thread::sleep(Duration::from_millis(200));
        }
        while made < kills {
            let pause = self.between(PAUSE_S);
            self.tend_for(pause)?;
            if self.is_over()? {
                println!("          the study ended before its last kill");
                return Ok(());
            }
            let kinds = ["task", "slurmd", "node", "slurmctld", "controller", "full disk"];
            let Some(kind) = self.one_of(&kinds) else { continue };
            if self.kill(kind)? {
                *self.kills.entry(kind).or_insert(0) += 1;
                made += 1;
            }
        }
        Ok(())
    }

    /// Whether there was such a thing to kill.
    fn kill(&mut self, kind: &str) -> Result<bool> {
        match kind {
            "task" => {
                let tasks = self.tasks();
                let Some(pid) = self.one_of(&tasks) else { return Ok(false) };
                Ok(end(pid))
            }
            "slurmd" | "node" => {
                let nodes: Vec<String> = self
                    .cluster
                    .daemons()
                    .into_iter()
                    .filter(|name| self.cluster.nodes().contains(name))
                    .collect();
                // One is left, or there is no study.
                let Some(node) = self.one_of(&nodes).filter(|_| nodes.len() > 1) else { return Ok(false) };
                self.cluster.kill(&node);
                if kind == "node" {
                    // With all that runs on it.
                    for pid in self.of_node(&node) {
                        end(pid);
                    }
                }
                self.send_away(node);
                Ok(true)
            }
            "slurmctld" => {
                let began = Instant::now();
                while !self.cluster.is_state_saved() {
                    if began.elapsed() > SAVED_WITHIN || !self.cluster.daemons().contains(&kind.to_owned()) {
                        return Ok(false);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                self.cluster.kill(kind);
                self.send_away(kind.to_owned());
                Ok(true)
            }
            "controller" => {
                self.controller.0.kill()?;
                self.controller.0.wait()?;
                Ok(true)
            }
            _ => {
                let time = self.between(FULL_S);
                self.fill_disk(time)?;
                Ok(true)
            }
        }
    }

    fn send_away(&mut self, name: String) {
        let time = self.between(AWAY_S);
        self.away.push((name, Instant::now() + time));
    }

    /// Writes until nothing more fits, and takes it away again.
    fn fill_disk(&mut self, time: Duration) -> Result<()> {
        let ballast = self.results.join("ballast");
        let mut file = fs::File::create(&ballast)?;
        let block = vec![0; 1 << 16];
        let until = Instant::now() + time;
        while Instant::now() < until {
            // What others free meanwhile is taken, too.
            while file.write_all(&block).is_ok() {}
            self.tend()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(file);
        fs::remove_file(ballast).map_err(Into::into)
    }

    /// Tasks that run, as the controller's own program.
    fn tasks(&self) -> Vec<u32> {
        let is_task = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("fleet\0task")
        };
        self.cluster.processes().into_iter().filter(is_task).collect()
    }

    fn of_node(&self, node: &str) -> Vec<u32> {
        let mark = format!("SLURMD_NODENAME={node}");
        let is_on = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        };
        self.cluster.processes().into_iter().filter(is_on).collect()
    }

    /// What an operator and a user do: daemons come back, nodes that Slurm has drained are resumed, the command is given
    /// again.
    fn tend(&mut self) -> Result<()> {
        let now = Instant::now();
        let (back, away): (Vec<_>, Vec<_>) = self.away.drain(..).partition(|(_, when)| *when <= now);
        self.away = away;
        for (name, _) in back {
            match name.as_str() {
                "slurmctld" => self.cluster.start_controller(),
                node => self.cluster.start_node(node),
            }
        }
        if let Some(status) = self.controller.0.try_wait()?
            && !status.success()
        {
            let is_refused = status.code() == Some(2) && self.kills.is_empty();
            ensure!(!is_refused, "the study is refused:\n{}", self.said());
            self.controller = Controller(started(
                &self.cluster,
                &self.plimsoll,
                &self.study,
                &self.results,
                self.dir.path(),
            )?);
            self.commands += 1;
        }
        Ok(())
    }

    fn tend_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.tend()?;
            std::thread::sleep(Duration::from_millis(200));
        }
        let drained =
            self.cluster.asked("sinfo", &["-h", "-N", "-t", "drain,drained,draining,down", "-o", "%N"]);
        let running = self.cluster.daemons();
        for node in drained.lines().filter(|node| running.iter().any(|name| name == node)) {
            let node = format!("NodeName={node}");
            self.cluster.asked("scontrol", &["update", &node, "State=RESUME"]);
            self.resumed += 1;
        }
        Ok(())
    }

    fn is_over(&mut self) -> Result<bool> {
        Ok(self.controller.0.try_wait()?.is_some_and(|status| status.success()))
    }

    /// Nobody shoots any more.
    fn wait_for_the_end(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.is_over()? {
            ensure!(
                began.elapsed() < END_LIMIT,
                "the study goes on {END_LIMIT:?} after the last kill:\n{}\n{}",
                self.said(),
                self.cluster.logs()
            );
            self.tend_for(Duration::from_secs(1))?;
        }
        // What was begun twice while its node was lost ends by itself, and is taken over by the same command.
        while !self.tasks().is_empty() {
            ensure!(began.elapsed() < END_LIMIT, "tasks go on after the study's end");
            self.tend_for(Duration::from_secs(1))?;
        }
        self.controller =
            Controller(started(&self.cluster, &self.plimsoll, &self.study, &self.results, self.dir.path())?);
        let status = self.controller.0.wait()?;
        ensure!(status.success(), "the last command ended with {status}:\n{}", self.said());
        Ok(())
    }

    /// The last that the controllers have said.
    fn said(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("said")).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(30).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn look(&self) -> Result<Found> {
        let recorded = runs_of(&self.results)?;
        let (desk, _) = Desk::newest(&self.results, STUDY)?;
        // A try that was killed before it had a file has no runs.
        let of_tasks: Vec<Recorded> =
            desk.tries().iter().filter_map(|one| runs_of(&one.dir).ok()).flatten().collect();
        let once: BTreeSet<&Recorded> = recorded.iter().collect();
        let by_tasks: BTreeSet<&Recorded> = of_tasks.iter().collect();
        let gathered = self.gathered(&desk)?;
        let (own, elsewhere) = (self.report(&self.results)?, self.report(&gathered)?);
        let cells = own["cells"].as_array().context("no cells")?;
        let blocks: Vec<usize> = cells.iter().map(counted_blocks).collect();
        Ok(Found {
            runs: recorded.len(),
            doubled: recorded.len() - once.len(),
            lost: by_tasks.difference(&once).count(),
            made_up: once.difference(&by_tasks).count(),
            missing: blocks.iter().map(|made| self.blocks as usize - made).sum(),
            verdicts: verdicts(&own),
            others: verdicts(&elsewhere),
        })
    }

    /// The tasks' runs in a results file that is made here, in one go and with nobody killed.
    fn gathered(&self, desk: &Desk) -> Result<PathBuf> {
        let dir = self.dir.path().join("gathered");
        let mut store = Store::open(&dir)?;
        let id = store.add_study(&desk.study()?)?;
        for one in desk.tries() {
            let Ok(from) = Store::open_read_only(&one.dir) else { continue };
            for its in from.studies()? {
                store.import(id, &from, its.id, &str::to_owned)?;
            }
        }
        Ok(dir)
    }

    /// A copy of all that the round has written, to be looked at.
    fn keep(&self) -> Result<PathBuf> {
        let kept = tempfile::Builder::new().prefix("fleet-kills-").tempdir()?.keep();
        let of = |path: &Path| path.display().to_string();
        shell("cp", &["-r", &of(self.dir.path()), &of(&kept)])?;
        Ok(kept)
    }

    fn report(&self, of: &Path) -> Result<Value> {
        let output = Command::new(&self.plimsoll).arg("report").arg(of).args(["--json", "-"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plimsoll report: {said}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn started(cluster: &Cluster, plimsoll: &Path, study: &Path, results: &Path, dir: &Path) -> Result<Child> {
    let said = fs::File::options().create(true).append(true).open(dir.join("said"))?;
    let mut command = cluster.command(plimsoll);
    command.arg("run").arg(study).args(["--on", "slurm", "--results"]).arg(results);
    command.env("NO_COLOR", "1").stdout(Stdio::null()).stderr(said);
    command.spawn().with_context(|| format!("starting {}", plimsoll.display()))
}

/// A server that is compared with itself; blocks of a few seconds.
fn study(dir: &Path, url: &str, blocks: u32) -> Result<PathBuf> {
    let sql = dir.join("ask.sql");
    fs::write(&sql, "-- name: ask\nSELECT 1;\n")?;
    let path = dir.join(format!("{STUDY}.toml"));
    let server = |label: &str| format!("{{ server = \"{url}\", label = \"{label}\" }}");
    let text = format!(
        "title = \"kills\"\nquestion = \"Does it hold?\"\n[axes]\nserver = [{}, {}]\nworkload = \"{}\"\n\
         sessions = 2\n[load]\nwarmup = \"100ms\"\nduration = \"1s\"\nblocks = {blocks}\ngates = \"warn\"\n\
         [compare]\naxis = \"server\"\nbase = \"first\"\n[machine]\nidle = \"as-is\"\n",
        server("first"),
        server("again"),
        sql.display()
    );
    fs::write(&path, text)?;
    Ok(path)
}

/// Kills a process; whether it was there.
fn end(pid: u32) -> bool {
    // SAFETY: kill takes no pointers; the process was found among those of our own cluster.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) == 0 }
}

/// What makes a run another one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Recorded {
    index: u32,
    node: String,
    started_at_ms: i64,
    status: String,
}

/// The runs of a results directory that came to an end.
fn runs_of(results: &Path) -> Result<Vec<Recorded>> {
    let store = Store::open_read_only(results)?;
    let mut all = Vec::new();
    for study in store.studies()? {
        for head in store.run_heads(study.id)? {
            if head.status == store::Status::Running {
                continue;
            }
            all.push(Recorded {
                index: head.start.index,
                node: store.host(head.start.host)?.name,
                started_at_ms: head.start.started_at_ms,
                status: format!("{:?}", head.status),
            });
        }
    }
    Ok(all)
}

/// How many blocks of a cell have a run that counts.
fn counted_blocks(cell: &Value) -> usize {
    let runs = cell["runs"].as_array().into_iter().flatten();
    let counts = |run: &&Value| ["done", "invalid"].contains(&run["status"].as_str().unwrap_or_default());
    runs.filter(counts).filter_map(|run| run["block"].as_u64()).collect::<BTreeSet<u64>>().len()
}

/// What the comparisons say, to the last digit.
fn verdicts(report: &Value) -> Vec<String> {
    let all = report["comparisons"].as_array().into_iter().flatten();
    let text = |one: &Value| {
        let fields = ["metric", "n", "ratio", "low", "high", "method", "verdict"];
        fields.map(|field| one[field].to_string()).join(" ")
    };
    all.map(text).collect()
}

/// What a round has left.
struct Found {
    runs: usize,
    /// Runs that are in the results file twice.
    doubled: usize,
    /// Runs of a task that are not there.
    lost: usize,
    /// Runs that no task has recorded.
    made_up: usize,
    /// Blocks without a run, over all cells.
    missing: usize,
    verdicts: Vec<String>,
    /// Those of the tasks' own files, gathered here.
    others: Vec<String>,
}

impl Found {
    fn is_sound(&self) -> bool {
        let is_whole = [self.doubled, self.lost, self.made_up, self.missing] == [0; 4];
        is_whole && !self.verdicts.is_empty() && self.verdicts == self.others
    }

    fn text(&self) -> String {
        let same = if self.verdicts == self.others { "the same" } else { "NOT the same" };
        let mut text = format!(
            "{} runs: {} doubled, {} lost, {} made up, {} blocks missing; {} {} from the tasks' files",
            self.runs,
            self.doubled,
            self.lost,
            self.made_up,
            self.missing,
            same,
            store::counted(self.verdicts.len(), "verdict"),
        );
        if self.verdicts != self.others {
            text.push_str(&format!("\n  recorded:    {:?}\n  gathered:  {:?}", self.verdicts, self.others));
        }
        text
    }
}
