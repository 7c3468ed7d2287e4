//! Slurm's commands, and what they print. Nothing here knows studies.
//!
//! Tried with Slurm 22.05 (Debian 12). Formats are asked for by the letters that all versions have since 2.6: `--json`
//! came later, and differs from version to version.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Wishes;
use crate::error::Error;

/// What to do where a command of Slurm is not there.
pub const NO_SLURM: &str = "install Slurm's commands (Debian: slurm-client), run this on a machine of the cluster, or share the \
                        blocks out by hand: `--block 1/2` here, `--block 2/2` there";

/// How a task of the queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for a node, for the first time or again.
    Waiting,
    /// It has a node.
    Running,
    /// It is being taken down: its node is not free yet.
    Ending,
}

/// A task that the queue has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The array's job.
    pub job: u64,
    /// Place in the array: the block.
    pub task: u32,
    pub state: State,
    /// Its node; empty while it waits.
    pub node: String,
    /// Why it waits, in Slurm's word: `Resources`, `Priority`, `JobArrayTaskLimit` ...
    pub reason: String,
}

/// Runs a command of Slurm. `Err`: it is not there, or said no; in its words.
pub(super) fn asked(program: &str, arguments: &[String], input: &str) -> Result<String, Error> {
    let output = spawn(program, arguments, input)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::Server(told(program, &said)))
}

/// What a command said of why it failed: its last words, which name the cause, where the cluster cannot be found or reached.
fn told(program: &str, said: &str) -> String {
    let is_away = ["Could not establish a configuration source", "Unable to contact slurm controller"]
        .iter()
        .any(|words| said.contains(words));
    if !is_away {
        return format!("{program}: {said}");
    }
    let last = said.lines().last().unwrap_or(said).trim_start_matches(&format!("{program}: "));
    format!(
        "{program}: {last}: this machine is part of no cluster whose controller answers; `scontrol ping` asks it, and \
         SLURM_CONF names the cluster's configuration"
    )
}

fn spawn(program: &str, arguments: &[String], input: &str) -> Result<Output, Error> {
    use std::io::Write;
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Server(format!("there is no `{program}` here: {NO_SLURM}")),
        _ => Error::Server(format!("{program} cannot be started: {error}")),
    })?;
    // A command that wants no input may have closed it.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    child.wait_with_output().map_err(|error| Error::Server(format!("{program}: {error}")))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What the cluster has of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeLine {
    partition: String,
    is_default: bool,
    node: String,
    state: String,
    features: BTreeSet<String>,
}

/// `sinfo -h -N -o "%R|%P|%N|%T|%f"`.
fn node_lines(text: &str) -> Vec<NodeLine> {
    let line = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let (partition, marked) = (fields.next()?.to_owned(), fields.next()?);
        let (node, state) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let features = fields.next().unwrap_or_default().split(',').map(str::to_owned);
        let is_default = marked.ends_with('*');
        Some(NodeLine { partition, is_default, node, state, features: features.collect() })
    };
    text.lines().filter_map(line).collect()
}

/// Whether Slurm would start a job on a node in this state one day without anybody's help. Marks behind the word tell
/// more: `*` does not answer, `$` reserved, `~` asleep.
fn is_of_use(state: &str) -> bool {
    let word = state.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-']).to_lowercase();
    let is_lost = state.contains('*');
    let gone =
        ["down", "drained", "draining", "fail", "failing", "error", "unknown", "future", "powered_down"];
    !is_lost && !gone.contains(&word.as_str())
}

/// Looks whether all commands that a fleet needs are there. slurmctld may be down.
///
/// # Errors
/// One is missing.
pub fn commands() -> Result<(), Error> {
    for program in ["sinfo", "sbatch", "squeue", "scancel", "srun", "scontrol"] {
        asked(program, &words(&["--version"]), "")?;
    }
    Ok(())
}

/// Looks whether the cluster has what is wished for, before anything is submitted. The names of the nodes that would do.
///
/// # Errors
/// What is missing, with what there is instead.
pub fn nodes(wishes: &Wishes) -> Result<Vec<String>, Error> {
    wanted(&all_nodes()?, wishes).map_err(Error::Usage)
}

/// Nodes of the partition that take no job before somebody helps them, each with its state: `n3 is drained`.
///
/// # Errors
/// Slurm cannot be asked, or has no such partition.
pub(super) fn out_of_use(wishes: &Wishes) -> Result<Vec<String>, Error> {
    away(&all_nodes()?, wishes).map_err(Error::Usage)
}

fn all_nodes() -> Result<Vec<NodeLine>, Error> {
    Ok(node_lines(&asked("sinfo", &words(&["-h", "-N", "-o", "%R|%P|%N|%T|%f"]), "")?))
}

fn away(lines: &[NodeLine], wishes: &Wishes) -> Result<Vec<String>, String> {
    let partition = partition(lines, wishes)?;
    let inside = lines.iter().filter(|line| line.partition == partition && !is_of_use(&line.state));
    Ok(inside.map(|line| format!("{} is {}", line.node, line.state)).collect())
}

/// The partition that is wished for, or the default one.
fn partition(lines: &[NodeLine], wishes: &Wishes) -> Result<String, String> {
    let names: BTreeSet<&str> = lines.iter().map(|line| line.partition.as_str()).collect();
    let listed = || names.iter().copied().collect::<Vec<_>>().join(", ");
    match &wishes.partition {
        Some(name) if !names.contains(name.as_str()) => {
            Err(format!("--partition {name}: the cluster has no such partition; it has {}", listed()))
        }
        Some(name) => Ok(name.clone()),
        None => match lines.iter().find(|line| line.is_default) {
            Some(line) => Ok(line.partition.clone()),
            None => Err(format!("no partition is the default one: --partition one of {}", listed())),
        },
    }
}

fn wanted(lines: &[NodeLine], wishes: &Wishes) -> Result<Vec<String>, String> {
    let partition = partition(lines, wishes)?;
    let inside: Vec<&NodeLine> = lines.iter().filter(|line| line.partition == partition).collect();
    let features: BTreeSet<&str> =
        inside.iter().flat_map(|line| &line.features).map(String::as_str).collect();
    // Only a plain name can be looked up; what is combined (`a&b`, `[x|y]`) Slurm judges.
    let plain = wishes
        .constraint
        .as_deref()
        .filter(|text| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-.:".contains(c)));
    if let Some(feature) = plain.filter(|feature| !features.contains(feature)) {
        let has = features.iter().filter(|feature| **feature != "(null)").copied().collect::<Vec<_>>();
        let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
        return Err(format!(
            "--constraint {feature}: no node of partition {partition} has this feature; it has {has}"
        ));
    }
    let fitting = |line: &&&NodeLine| plain.is_none_or(|feature| line.features.contains(feature));
    let usable: Vec<String> = inside
        .iter()
        .filter(fitting)
        .filter(|line| is_of_use(&line.state))
        .map(|line| line.node.clone())
        .collect();
    if usable.is_empty() {
        let states: Vec<String> =
            inside.iter().filter(fitting).map(|line| format!("{} is {}", line.node, line.state)).collect();
        return Err(format!(
            "no node of partition {partition} can run anything ({}): `sinfo -R` says why, `scontrol update NodeName=... \
             State=RESUME` brings a node back",
            states.join(", ")
        ));
    }
    let needed = wishes.nodes_of_block();
    if needed as usize > usable.len() {
        return Err(format!(
            "a block with its clients takes {needed} nodes, and partition {partition} has {} that can run it: ask for \
             fewer nodes for clients",
            usable.len()
        ));
    }
    if let Some(nodes) = wishes.nodes.filter(|nodes| *nodes as usize > usable.len()) {
        return Err(format!(
            "--nodes {nodes}: partition {partition} has {} nodes that can run it: ask for as many or fewer",
            usable.len()
        ));
    }
    Ok(usable)
}

/// What all of Slurm's commands that ask for nodes are told of the wishes.
pub(super) fn of_wishes(wishes: &Wishes) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(partition) = &wishes.partition {
        flags.push(format!("--partition={partition}"));
    }
    if let Some(constraint) = &wishes.constraint {
        flags.push(format!("--constraint={constraint}"));
    }
    flags
}

/// The limit of a job that measures, in minutes, which is what Slurm counts in.
pub(super) fn time_limit(wishes: &Wishes) -> Option<String> {
    wishes.time_limit.map(|limit| format!("--time={}", limit.as_secs().div_ceil(60).max(1)))
}

/// An array of tasks, each alone on one node.
#[derive(Debug, Clone)]
pub struct Array<'a> {
    /// What all jobs of the fleet are called: they are found again by it.
    pub name: &'a str,
    /// Places in the array.
    pub tasks: &'a BTreeSet<u32>,
    /// File of what tasks say, with Slurm's `%A` and `%a`.
    pub output: &'a Path,
    /// What each task runs.
    pub script: &'a str,
    /// Nodes that get none of them.
    pub aside: &'a BTreeSet<String>,
}

/// Submits an array. Its job.
///
/// # Errors
/// Slurm refuses it.
pub fn submit(array: &Array<'_>, wishes: &Wishes) -> Result<u64, Error> {
    let answer = asked("sbatch", &submission(array, wishes), array.script)?;
    answer
        .split(';')
        .next()
        .and_then(|job| job.trim().parse().ok())
        .ok_or_else(|| Error::Server(format!("sbatch: `{answer}` names no job")))
}

fn submission(array: &Array<'_>, wishes: &Wishes) -> Vec<String> {
    let tasks: Vec<String> = array.tasks.iter().map(u32::to_string).collect();
    let of_block = wishes.nodes_of_block();
    let throttle = wishes.nodes.map_or_else(String::new, |nodes| format!("%{}", (nodes / of_block).max(1)));
    let mut flags = words(&["--parsable", "--exclusive", "--requeue", "--open-mode=append"]);
    flags.push(format!("--nodes={of_block}"));
    flags.push(format!("--job-name={}", array.name));
    flags.push(format!("--array={}{throttle}", tasks.join(",")));
    flags.push(format!("--output={}", array.output.display()));
    if !array.aside.is_empty() {
        flags.push(format!("--exclude={}", listed(array.aside)));
    }
    flags.extend(time_limit(wishes));
    flags.extend(of_wishes(wishes));
    flags
}

fn listed(nodes: &BTreeSet<String>) -> String {
    nodes.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Keeps what still waits of an array away from these nodes.
///
/// # Errors
/// Slurm refuses it.
pub fn keep_away(job: u64, aside: &BTreeSet<String>) -> Result<(), Error> {
    let flags = ["update".to_owned(), format!("JobId={job}"), format!("ExcNodeList={}", listed(aside))];
    match asked("scontrol", &flags, "") {
        // It tells of each task of the array: of those that wait no error, and of those that have begun that it is too late.
        Err(error) if !error.to_string().contains("No error") => Err(error),
        _ => Ok(()),
    }
}

/// What the queue has of the jobs of a name.
///
/// # Errors
/// It cannot be asked now: nothing is known of any task then.
pub fn queue(name: &str) -> Result<Vec<Queued>, Error> {
    let mut flags = words(&["-h", "-r", "-o", "%i|%T|%N|%r"]);
    flags.push(format!("--name={name}"));
    Ok(queued(&asked("squeue", &flags, "")?))
}

/// `squeue -h -r -o "%i|%T|%N|%r"`.
fn queued(text: &str) -> Vec<Queued> {
    let line = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let (job, task) = fields.next()?.split_once('_')?;
        let state = match fields.next()? {
            "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" => State::Running,
            "COMPLETING" => State::Ending,
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" | "RESIZING" => State::Waiting,
            // It has ended, and is remembered for a while.
            _ => return None,
        };
        let node = fields.next()?.to_owned();
        let reason = fields.next().unwrap_or_default().to_owned();
        Some(Queued { job: job.parse().ok()?, task: task.parse().ok()?, state, node, reason })
    };
    text.lines().filter_map(line).collect()
}

/// Takes the jobs of a name out of the queue: all of them, or those that still wait.
///
/// # Errors
/// It cannot be asked.
pub fn cancel(name: &str, only_waiting: bool) -> Result<(), Error> {
    let mut flags = vec![format!("--name={name}"), "--quiet".to_owned()];
    if only_waiting {
        flags.push("--state=PENDING".to_owned());
    }
    asked("scancel", &flags, "").map(|_| ())
}

/// Runs a short command once on each of so many nodes, and answers what they print, a line each.
///
/// # Errors
/// It did not run everywhere, in the words of Slurm and the nodes.
pub fn everywhere(name: &str, nodes: u32, command: &[String], wishes: &Wishes) -> Result<String, Error> {
    let mut flags = words(&["--ntasks-per-node=1", "--time=5", "--kill-on-bad-exit=0", "--input=none"]);
    flags.push(format!("--job-name={name}"));
    flags.push(format!("--nodes={nodes}"));
    flags.extend(of_wishes(wishes));
    flags.extend(command.iter().cloned());
    asked("srun", &flags, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_not_there_is_told_in_one_sentence() {
        let said = "sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsinfo: error: fetch_config: DNS SRV \
                    lookup failed\nsinfo: fatal: Could not establish a configuration source";
        let told = told("sinfo", said);
        assert!(
            told.starts_with("sinfo: fatal: Could not establish a configuration source: this machine"),
            "{told}"
        );
        assert_eq!(told.lines().count(), 1);
        assert_eq!(
            super::told("sbatch", "sbatch: error: Batch job submission failed"),
            "sbatch: sbatch: error: Batch job submission failed"
        );
    }

    /// As Slurm 22.05 prints it, with two partitions.
    const SINFO: &str = "lab|lab*|n1|idle|zen4,nvme\nlab|lab*|n2|mixed|zen4\nlab|lab*|n3|down*|zen4\nold|old|o1|idle~|(null)\n\
                         old|old|o2|drained|(null)\n";

    fn wish(partition: Option<&str>, constraint: Option<&str>, nodes: Option<u32>) -> Wishes {
        Wishes {
            is_on: true,
            partition: partition.map(str::to_owned),
            constraint: constraint.map(str::to_owned),
            nodes,
            ..Wishes::default()
        }
    }

    #[test]
    fn nodes_that_would_do_are_found() {
        let lines = node_lines(SINFO);
        let of = |wishes: Wishes| wanted(&lines, &wishes);
        assert_eq!(of(wish(None, None, None)), Ok(vec!["n1".to_owned(), "n2".to_owned()]));
        assert_eq!(of(wish(Some("old"), None, Some(1))), Ok(vec!["o1".to_owned()]));
        assert_eq!(of(wish(None, Some("nvme"), None)), Ok(vec!["n1".to_owned()]));
        assert_eq!(of(wish(None, Some("zen4&nvme"), None)).map(|nodes| nodes.len()), Ok(2));
    }

    #[test]
    fn what_the_cluster_does_not_have_is_told_with_what_it_has() {
        let lines = node_lines(SINFO);
        let refused = |wishes: Wishes, parts: &[&str]| {
            let text = wanted(&lines, &wishes).unwrap_err();
            parts.iter().for_each(|part| assert!(text.contains(part), "{text}"));
        };
        refused(wish(Some("big"), None, None), &["--partition big", "it has lab, old"]);
        refused(wish(None, Some("zen5"), None), &["--constraint zen5", "nvme, zen4"]);
        refused(wish(Some("old"), Some("zen4"), None), &["it has none"]);
        refused(wish(None, None, Some(9)), &["--nodes 9", "2 nodes that can run it"]);
        let wide = Wishes { client_nodes: Some(2), ..wish(None, None, None) };
        refused(wide, &["takes 3 nodes", "has 2 that can run it"]);
        let down = node_lines("lab|lab*|n1|down*|(null)\n");
        assert!(wanted(&down, &wish(None, None, None)).unwrap_err().contains("n1 is down*"));
        assert!(wanted(&[], &wish(None, None, None)).is_err());
    }

    #[test]
    fn nodes_that_take_no_job_are_named() {
        let of = |text: &str, partition: Option<&str>| away(&node_lines(text), &wish(partition, None, None));
        assert_eq!(of(SINFO, None), Ok(vec!["n3 is down*".to_owned()]));
        assert_eq!(of(SINFO, Some("old")), Ok(vec!["o2 is drained".to_owned()]));
        assert_eq!(of("lab|lab*|n1|idle|(null)\n", None), Ok(vec![]));
    }

    /// Recorded while a task ran, one was being taken down, one waited and one had been killed.
    #[test]
    fn a_queue_is_read() {
        let text = "8_1|RUNNING|n1|None\n8_2|COMPLETING|n2|None\n8_3|PENDING||JobArrayTaskLimit\n8_4|CANCELLED||None\n\
                    9_5|PENDING||BeginTime\n12|RUNNING|n4|None\n";
        let got = queued(text);
        assert_eq!(got.iter().map(|one| one.task).collect::<Vec<_>>(), [1, 2, 3, 5]);
        assert_eq!((got[0].job, got[0].state, got[0].node.as_str()), (8, State::Running, "n1"));
        assert_eq!((got[1].state, got[2].state), (State::Ending, State::Waiting));
        assert_eq!(got[2].reason, "JobArrayTaskLimit");
        assert!(queued("slurm_load_jobs error: Unable to contact slurm controller").is_empty());
    }

    #[test]
    fn a_submission_says_what_was_wished_for() {
        let tasks = BTreeSet::from([1, 2, 7]);
        let aside = &BTreeSet::from(["n3".to_owned(), "n5".to_owned()]);
        let array = Array {
            name: "plimsoll-x",
            tasks: &tasks,
            output: Path::new("/s/log/%A_%a.out"),
            script: "",
            aside,
        };
        let mut wishes = wish(Some("lab"), Some("zen4"), Some(4));
        wishes.time_limit = Some(std::time::Duration::from_secs(90 * 60 + 1));
        let flags = submission(&array, &wishes);
        for flag in [
            "--array=1,2,7%4",
            "--exclude=n3,n5",
            "--exclusive",
            "--requeue",
            "--nodes=1",
            "--time=91",
            "--partition=lab",
            "--constraint=zen4",
            "--job-name=plimsoll-x",
            "--output=/s/log/%A_%a.out",
        ] {
            assert!(flags.iter().any(|known| known == flag), "{flag} is not in {flags:?}");
        }
        wishes.client_nodes = Some(1);
        let with_clients = submission(&array, &wishes);
        for flag in ["--nodes=2", "--array=1,2,7%2"] {
            assert!(with_clients.iter().any(|known| known == flag), "{flag} is not in {with_clients:?}");
        }
        let array = Array { aside: &BTreeSet::new(), ..array };
        let plain = submission(&array, &wish(None, None, None));
        assert!(plain.contains(&"--array=1,2,7".to_owned()));
        assert!(!plain.iter().any(|flag| flag.starts_with("--exclude")
            || flag.starts_with("--time")
            || flag.starts_with("--partition")));
    }
}
