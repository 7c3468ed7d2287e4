//! From nothing to the first query answered: `plimsoll`'s deploy against the same by hand (`mariadb-install-db`,
//! `mysqld --initialize-insecure` or `initdb`, then a start), in turns; and a deploy from a snapshot of a million rows.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Build, Flavor, Home, Sandbox, Spec, builds, snapshot};
use wire::blocking::Client;

use super::lab::{configured, each_server, load_at, median};

const ROUNDS: usize = 5;
const RATIO_MAX: f64 = 1.2;
const SNAPSHOT_S_MAX: f64 = 3.0;
const ROWS: &str = "1000000";
/// Not one of those that sandboxes get.
const HAND_UID: u32 = 64_995;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let servers = if arguments.is_empty() { &["mariadb", "mysql@8.0.33", "postgres"] } else { arguments };
    each_server(servers, |home, selector| {
        let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
        Ok(against_hand(home, &build)? & from_snapshot(home, &build)?)
    })
}

fn against_hand(home: &Home, build: &Build) -> Result<bool> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for is_ours in [round % 2 == 0, round % 2 == 1] {
            if is_ours {
                let spec = Spec::new(format!("bench-{}-{round}", std::process::id()), build.clone());
                let begin = Instant::now();
                let server = Sandbox::deploy(home, &spec, &|_| ())?;
                first_query(&server.target(None))?;
                ours.push(begin.elapsed().as_secs_f64());
                server.destroy()?;
            } else {
                let hand = Hand::new(build)?;
                let begin = Instant::now();
                let server = hand.start()?;
                theirs.push(begin.elapsed().as_secs_f64());
                drop(server);
            }
        }
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let ratio = median(ratios.clone());
    println!("{build}: deploy to the first answer, {ROUNDS} rounds in turns");
    println!("  by hand   {:.3} s (median)", median(theirs));
    println!("  plimsoll  {:.3} s", median(ours));
    println!("  ratio     {ratio:.2} (median of the rounds {ratios:.2?}; at most {RATIO_MAX})");
    Ok(ratio <= RATIO_MAX)
}

fn from_snapshot(home: &Home, build: &Build) -> Result<bool> {
    let mut spec = Spec::new(format!("bench-{}-rows", std::process::id()), build.clone());
    let mut server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("load"));
    workload::create_database(&target)?;
    let configured = configured(&target, "oltp_read_write", &[("table_size", ROWS)])?;
    configured.load(&load_at(&target, 2), &|_| ())?;
    let dataset = configured.dataset_key();
    let key = snapshot::key(&spec, &dataset);
    let kept =
        snapshot::save(home, &mut server, &key, &dataset, u64::MAX, &|_| ())?.context("the snapshot")?;
    server.destroy()?;
    let mut times = Vec::new();
    for turn in 0..ROUNDS {
        spec.name = format!("bench-{}-rows-{turn}", std::process::id());
        spec.snapshot = Some(kept.clone());
        let begin = Instant::now();
        let server = Sandbox::deploy(home, &spec, &|_| ())?;
        let count = Client::connect(&server.target(Some("load")))?
            .query_value("SELECT COUNT(*) FROM sbtest1 WHERE id <= 10")?;
        times.push(begin.elapsed().as_secs_f64());
        ensure!(count.as_deref() == Some("10"), "the snapshot does not hold the rows: {count:?}");
        server.destroy()?;
    }
    snapshot::remove(&kept)?;
    let worst = times.iter().copied().fold(0.0, f64::max);
    println!(
        "  from a snapshot of {ROWS} rows ({} MB): {:.2} s (median), {worst:.2} s at worst (under {SNAPSHOT_S_MAX})",
        kept.bytes >> 20,
        median(times)
    );
    Ok(worst < SNAPSHOT_S_MAX)
}

fn first_query(target: &wire::Target) -> Result<()> {
    let answer = Client::connect(target)?.query_value("SELECT 40 + 2")?;
    ensure!(answer.as_deref() == Some("42"), "it answers {answer:?}");
    Ok(())
}

/// A server set up the way its manual says, as an unprivileged user.
struct Hand {
    build: Build,
    dir: PathBuf,
    uid: u32,
    gid: u32,
}

/// One that runs; dropping it removes it.
struct HandServer {
    hand: Hand,
    child: Child,
}

impl Hand {
    fn new(build: &Build) -> Result<Hand> {
        let dir = PathBuf::from(format!("/tmp/plimsoll-hand-{}", std::process::id()));
        std::fs::create_dir(&dir)?;
        let (mut uid, mut gid) = (HAND_UID, HAND_UID);
        if build.flavor == Flavor::Postgres {
            // initdb insists on a user with a name.
            let passwd = std::fs::read_to_string("/etc/passwd")?;
            let line =
                passwd.lines().find(|l| l.starts_with("postgres:")).context("a user postgres for initdb")?;
            let ids: Vec<u32> = line.split(':').skip(2).take(2).map_while(|n| n.parse().ok()).collect();
            let [user, group] = ids[..] else { bail!("no ids in {line}") };
            (uid, gid) = (user, group);
        }
        for path in [dir.clone(), dir.join("tmp")] {
            std::fs::create_dir_all(&path)?;
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(Hand { build: build.clone(), dir, uid, gid })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([
                format!("--reuid={}", self.uid),
                format!("--regid={}", self.gid),
                "--clear-groups".to_owned(),
            ])
            .arg(program)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn init(&self) -> Result<()> {
        let files = &self.build.files;
        let data = self.dir.join("data");
        let mut command = match self.build.flavor {
            Flavor::Postgres => {
                let mut command = self.command(files.initdb.as_deref().context("initdb")?);
                let options = "-U postgres -A trust -E UTF8 --locale=C";
                command.arg("-D").arg(&data).args(options.split(' '));
                command
            }
            Flavor::Mariadb => {
                let places =
                    ["scripts/mariadb-install-db", "bin/mariadb-install-db", "scripts/mysql_install_db"];
                let script =
                    places.iter().map(|p| files.base.join(p)).find(|p| p.is_file()).context("install-db")?;
                let mut command = self.command(&script);
                command.arg("--no-defaults").arg(format!("--basedir={}", files.base.display()));
                command
                    .arg(format!("--datadir={}", data.display()))
                    .arg("--auth-root-authentication-method=normal");
                command.current_dir(&files.base);
                command
            }
            Flavor::Mysql | Flavor::Percona => {
                let mut command = self.command(&files.server);
                command.arg("--no-defaults").arg(format!("--basedir={}", files.base.display()));
                command.arg(format!("--datadir={}", data.display())).arg("--initialize-insecure");
                command
            }
        };
        let status = command.status()?;
        ensure!(status.success(), "setting up by hand ended with {status}");
        Ok(())
    }

    fn start(self) -> Result<HandServer> {
        self.init()?;
        let mut command = self.command(&self.build.files.server);
        let data = self.dir.join("data");
        let endpoint = wire::Endpoint::Unix(self.dir.join("mysql.sock"));
        let mut target = wire::Target::new(self.build.flavor.protocol(), endpoint, "root");
        if self.build.flavor == Flavor::Postgres {
            command.arg("-D").arg(data).arg("-k").arg(&self.dir).args(["-c", "listen_addresses="]);
            target.endpoint = wire::Endpoint::Unix(self.dir.join(".s.PGSQL.5432"));
            target.user = "postgres".to_owned();
            target.database = Some("postgres".to_owned());
        } else {
            command.arg("--no-defaults").arg(format!("--basedir={}", self.build.files.base.display()));
            command
                .arg(format!("--datadir={}", data.display()))
                .arg(format!("--socket={}/mysql.sock", self.dir.display()));
            command.args(["--skip-networking", "--skip-ssl"]);
            if let Some(messages) = &self.build.files.messages {
                command.arg(format!("--lc-messages-dir={}", messages.display()));
            }
        }
        let child = command.spawn()?;
        let server = HandServer { hand: self, child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while first_query(&target).is_err() {
            ensure!(Instant::now() < deadline, "the server started by hand does not answer");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }
}

impl Drop for HandServer {
    fn drop(&mut self) {
        // setpriv became the server, so this is its process. The benchmark reports what came before.
        let quit = if self.hand.build.flavor == Flavor::Postgres { libc::SIGQUIT } else { libc::SIGKILL };
        // SAFETY: kill has no memory preconditions.
        unsafe { libc::kill(self.child.id() as i32, quit) };
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.hand.dir);
    }
}
