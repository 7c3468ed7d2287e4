//! A Slurm of one's own: slurmctld and several nodes on this machine, with everything in one directory and nothing left
//! behind. Each node has a name, a machine-id and a monotonic clock of its own. Where all that runs on it only sleeps, each has its own measuring
//! lock of Plimsoll, too; else nodes wait for each other as plimsolls of one machine do.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running cluster. It ends, with all that runs on it, when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    daemons: Vec<(String, Child)>,
    nodes: Vec<String>,
    is_one_machine: bool,
    /// What is done in a node's own mounts before it begins: node, and the shell's words.
    own: Vec<(String, String)>,
}

/// How long the cluster may take to come up.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Why there can be none here; `None`: there can.
fn missing() -> Option<String> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("not root, which slurmd and its namespaces need".to_owned());
    }
    let search = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let is_there = |program: &&str| std::env::split_paths(&search).any(|dir| dir.join(program).exists());
    let wanted = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "unshare"];
    if let Some(program) = wanted.iter().find(|program| !is_there(program)) {
        return Some(format!("there is no {program} (Debian: slurm-wlm)"));
    }
    let spaces = Command::new("unshare")
        .args(["--mount", "--uts", "--time", "--monotonic", "1", "true"])
        .stderr(Stdio::null())
        .status();
    (!spaces.is_ok_and(|status| status.success())).then(|| "no namespaces may be made here".to_owned())
}

impl Cluster {
    /// Starts one with nodes `n1`, `n2` ... in a partition `lab`, in `dir`, for workloads that only sleep. `None`, and said as
    /// not tested, where there can be none.
    ///
    /// # Panics
    /// It could be, and does not come up.
    pub fn start(dir: &Path, node_count: usize) -> Option<Cluster> {
        match Cluster::try_start(dir, node_count, false) {
            Ok(cluster) => Some(cluster),
            Err(why) => {
                crate::not_tested("studies on a Slurm cluster", why);
                None
            }
        }
    }

    /// The same; `is_one_machine`: what its nodes measure they measure one after the other.
    ///
    /// # Errors
    /// Why there can be none here.
    ///
    /// # Panics
    /// It could be, and does not come up.
    pub fn try_start(dir: &Path, node_count: usize, is_one_machine: bool) -> Result<Cluster, String> {
        if let Some(why) = missing() {
            return Err(why);
        }
        let nodes: Vec<String> = (1..=node_count).map(|number| format!("n{number}")).collect();
        for made in ["state", "log", "munge"] {
            std::fs::create_dir_all(dir.join(made)).unwrap();
        }
        let mut cluster =
            Cluster { dir: dir.to_owned(), daemons: Vec::new(), nodes, is_one_machine, own: Vec::new() };
        std::fs::write(cluster.conf(), cluster.configuration()).unwrap();
        cluster.start_munge();
        cluster.start_controller();
        for node in cluster.nodes.clone() {
            cluster.start_node(&node);
        }
        let began = Instant::now();
        while cluster.idle() < node_count {
            assert!(began.elapsed() < START_LIMIT, "no cluster after {START_LIMIT:?}:\n{}", cluster.logs());
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(cluster)
    }

    fn conf(&self) -> PathBuf {
        self.dir.join("slurm.conf")
    }

    /// A command that talks to this cluster.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.conf()).stdin(Stdio::null());
        command
    }

    /// What a command of Slurm prints; empty where it fails.
    pub fn asked(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn idle(&self) -> usize {
        self.asked("sinfo", &["-h", "-N", "-t", "idle", "-o", "%N"]).lines().count()
    }

    fn configuration(&self) -> String {
        let dir = self.dir.display();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        // Kept until all are known, so that none is given twice.
        let ports: Vec<TcpListener> =
            (0..=self.nodes.len()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = ports.iter().map(|port| port.local_addr().unwrap().port()).collect();
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nAuthType=auth/munge\n\
             AuthInfo=socket={dir}/munge/socket\nCryptoType=crypto/munge\nSlurmUser=root\nSlurmdUser=root\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool.%n\nSlurmctldPidFile={dir}/slurmctld.pid\n\
             SlurmdPidFile={dir}/slurmd.%n.pid\nSlurmctldLogFile={dir}/log/slurmctld.log\n\
             SlurmdLogFile={dir}/log/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSchedulerType=sched/backfill\n\
             SchedulerParameters=sched_interval=1,bf_interval=1\nReturnToService=2\nMpiDefault=none\n\
             SwitchType=switch/none\nJobCompType=jobcomp/none\nAccountingStorageType=accounting_storage/none\n\
             SlurmdTimeout=6\nSlurmctldTimeout=6\nKillWait=4\nMinJobAge=10\nInactiveLimit=0\nBatchStartTimeout=10\n\
             SlurmdParameters=config_overrides\nPluginDir={}\n",
            ports[0],
            plugins()
        );
        for (node, port) in self.nodes.iter().zip(&ports[1..]) {
            let _ = writeln!(
                text,
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=500 \
                 Feature=fake State=UNKNOWN"
            );
        }
        let all = self.nodes.join(",");
        let _ = writeln!(
            text,
            "PartitionName=lab Nodes={all} Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE"
        );
        text
    }

    fn daemon(&mut self, name: &str, mut command: Command) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log").join(format!("{name}.err")))
            .unwrap();
        // SAFETY: prctl is async-signal-safe and takes no pointers. The daemon ends with whoever started it, however that ends.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        // Ctrl-C is for what runs on the cluster.
        let child = command.process_group(0).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.daemons.push((name.to_owned(), child));
    }

    fn start_munge(&mut self) {
        let munge = self.dir.join("munge");
        let key: Vec<u8> = (0..128_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(munge.join("key"), key).unwrap();
        let mut chmod = Command::new("chmod");
        assert!(chmod.arg("600").arg(munge.join("key")).status().unwrap().success());
        let mut command = self.command("/usr/sbin/munged");
        command.args(["--foreground", "--force"]);
        for (flag, file) in [
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("seed-file", "seed"),
            ("log-file", "log"),
        ] {
            command.arg(format!("--{flag}={}", munge.join(file).display()));
        }
        self.daemon("munged", command);
        let began = Instant::now();
        while !munge.join("socket").exists() {
            assert!(began.elapsed() < START_LIMIT, "no munged:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts slurmctld, or starts it again.
    pub fn start_controller(&mut self) {
        let mut command = self.command("/usr/sbin/slurmctld");
        command.arg("-D");
        self.daemon("slurmctld", command);
    }

    /// Starts a node, or starts it again.
    pub fn start_node(&mut self, node: &str) {
        let mut command = self.command("unshare");
        let own_lock = if self.is_one_machine { "" } else { "mount -t tmpfs none /run/lock && " };
        let own_id = match Path::new("/etc/machine-id").exists() {
            true => {
                let id = self.dir.join(format!("machine-id.{node}"));
                std::fs::write(&id, format!("{node}\n")).unwrap();
                format!("mount --bind '{}' /etc/machine-id && ", id.display())
            }
            false => String::new(),
        };
        let own: String =
            self.own.iter().filter(|(of, _)| of == node).map(|(_, words)| words.as_str()).collect();
        // Low, so that what nodes do counts for no plimsoll on this machine as what others take of its cpus.
        let script =
            format!("hostname {node} && {own_lock}{own_id}{own}exec nice -n 5 /usr/sbin/slurmd -D -N {node}");
        // What two machines have been up for is not the same.
        let place = self.nodes.iter().position(|known| known == node).unwrap_or_default();
        let up_s = (1000 * (place + 1)).to_string();
        command.args(["--mount", "--uts", "--time", "--monotonic", &up_s, "--propagation", "private"]);
        command.args(["sh", "-c", &script]);
        self.daemon(node, command);
    }

    /// Starts a node again, with its own file system of so many KiB on a directory.
    pub fn give_disk(&mut self, node: &str, dir: &Path, kib: u32) {
        let mount = format!("mount -t tmpfs -o size={kib}k,mode=755 none '{}' && ", dir.display());
        self.own.push((node.to_owned(), mount));
        self.kill(node);
        self.start_node(node);
        let device = |dir: &Path| std::fs::metadata(dir).map(|facts| facts.dev()).ok();
        let inside = self.root_of(node).join(dir.strip_prefix("/").unwrap());
        let began = Instant::now();
        while device(&inside).is_none_or(|inside| Some(inside) == device(dir)) {
            assert!(began.elapsed() < START_LIMIT, "{node} has no disk:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The file system as a node sees it.
    pub fn root_of(&self, node: &str) -> PathBuf {
        let (_, child) =
            self.daemons.iter().find(|(name, _)| name == node).unwrap_or_else(|| panic!("no {node}"));
        PathBuf::from(format!("/proc/{}/root", child.id()))
    }

    /// Kills a daemon (`slurmctld`, `n3`) the hard way. What a node runs goes on without it.
    pub fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|(known, _)| known == name);
        let (_, mut child) = self.daemons.remove(at.unwrap_or_else(|| panic!("no {name} runs")));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Those of its daemons that run.
    pub fn daemons(&self) -> Vec<String> {
        self.daemons.iter().map(|(name, _)| name.clone()).collect()
    }

    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Whether slurmctld has written down all that runs. It writes its state every few seconds; jobs that it began since are
    /// forgotten when it is killed, it gives their numbers to others, and then drains the nodes that know better.
    pub fn is_state_saved(&self) -> bool {
        let Ok(saved) =
            std::fs::metadata(self.dir.join("state/job_state")).and_then(|facts| facts.modified())
        else {
            return false;
        };
        let saved = saved.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seconds = ["SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "RUNNING", "-o", "%S"];
        let starts = self.asked("env", &seconds);
        !starts.is_empty()
            && starts.lines().all(|start| start.trim().parse().is_ok_and(|start: u64| start < saved))
    }

    /// What its daemons have said.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.dir.join("log")).into_iter().flatten().flatten() {
            let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(15).collect();
            let _ = writeln!(text, "--- {}", entry.path().display());
            last.into_iter().rev().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        text
    }

    /// All processes that were started for this cluster: daemons, steps and what these run.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("SLURM_CONF={}", self.conf().display());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            *pid != std::process::id()
                && environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        };
        pids.filter(is_ours).collect()
    }
}

/// Where Slurm's plugins are: beside the libraries of this architecture.
fn plugins() -> String {
    let entries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let places = entries.map(|entry| entry.path()).flat_map(|dir| [dir.join("slurm-wlm"), dir.join("slurm")]);
    let found = places.into_iter().find(|dir| dir.join("auth_munge.so").exists());
    found.unwrap_or_else(|| "/usr/lib/slurm".into()).display().to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Steps and tasks outlive their slurmd; a task may start one more while it is looked.
        for _ in 0..20 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                // SAFETY: kill takes no pointers; the process was started with this cluster's own configuration.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
