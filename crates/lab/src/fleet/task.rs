//! A task of a fleet: one whole block on this node, into a results directory of its own.

use std::collections::BTreeSet;
use std::path::Path;

use sandbox::Home;
use sandbox::builds::handed;
use serde::{Deserialize, Serialize};
use store::Store;

use super::allocation::Allocation;
use super::desk::{Desk, Ended, Fleet, Started};
use super::quiet;
use crate::clients::Hosts;
use crate::error::{Class, Error};
use crate::hooks::Attach;
use crate::observe::Observer;
use crate::stop::StopSwitch;
use crate::study_run::{Outcome, Part, Request, outline, run_study};

/// A number that Slurm tells its tasks.
fn told(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

fn node() -> String {
    std::env::var("SLURMD_NODENAME").unwrap_or_else(|_| crate::host::facts().name)
}

/// Makes the block that this task of an array is for. How it ended stands in the directory, too.
///
/// # Errors
/// It could not be made, or not be told.
pub fn task(
    home: &Home,
    desk: &Path,
    version: &str,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<(), Error> {
    let desk = Desk::at(desk);
    let no_task =
        || Error::Usage("this is what Slurm runs for `plimsoll run --on slurm`; nobody else needs it".into());
    let block =
        told("SLURM_ARRAY_TASK_ID").and_then(|block| u32::try_from(block).ok()).ok_or_else(no_task)?;
    let started = Started {
        block,
        job: told("SLURM_ARRAY_JOB_ID").ok_or_else(no_task)?,
        restart: told("SLURM_RESTART_COUNT").unwrap_or(0) as u32,
        node: node(),
        at_ms: load::time::unix_ms(),
    };
    let fleet = desk.fleet()?;
    let dir = desk.begin(&started)?;
    let made = make(home, &desk, &fleet, (&dir, block), version, (attach, observer, stop));
    let nothing = Ended::default();
    let ended = match &made {
        Ok(Made::Nothing(why)) => Ended { set_aside: Some(why.clone()), ..nothing },
        Ok(Made::Block(outcome)) => {
            Ended { done: outcome.done, invalid: outcome.invalid, failed: outcome.failed, ..nothing }
        }
        Err(error) => {
            let text = Some(format!("{}: {error}", started.node));
            match error.class() {
                Class::Interrupted => Ended { is_interrupted: true, ..nothing },
                Class::Usage => Ended { refused: text, ..nothing },
                Class::Server | Class::Run => Ended { error: text, ..nothing },
            }
        }
    };
    Desk::end(&dir, &ended)?;
    made.map(|_| ())
}

/// What came of a task.
enum Made {
    Block(Outcome),
    /// The node is too noisy.
    Nothing(String),
}

fn make(
    home: &Home,
    desk: &Desk,
    fleet: &Fleet,
    (dir, block): (&Path, u32),
    version: &str,
    (attach, observer, stop): (&dyn Attach, Observer<'_>, &StopSwitch),
) -> Result<Made, Error> {
    same_version(fleet, version)?;
    desk.take(home)?;
    if let Some(bound) = &fleet.bound
        && let Some(why) = quiet::judge(home, bound, block.into(), (attach, observer, stop))?
    {
        return Ok(Made::Nothing(why));
    }
    // The study as it was planned: this block is the one that the controller means.
    let row = desk.study()?;
    Store::open(dir)?.add_study(&row)?;
    let client_hosts = match fleet.client_nodes {
        None | Some(0) => Hosts::This,
        Some(_) => Hosts::Nodes(Allocation::current()?.ok_or_else(|| {
            Error::Usage(
                "Slurm does not tell this task of its job's nodes: its clients cannot be started".into(),
            )
        })?),
    };
    let request = Request {
        client_hosts,
        part: Some(Part::Blocks(BTreeSet::from([block]))),
        command: row.command,
        ..asked(fleet, dir)?
    };
    run_study(home, &request, attach, observer, stop).map(Made::Block)
}

/// The study of a fleet, all of it, as a command would ask for it.
fn asked(fleet: &Fleet, results: &Path) -> Result<Request, Error> {
    Ok(Request {
        study: crate::study::read(&fleet.study_file)?,
        client_hosts: Hosts::This,
        results: results.to_owned(),
        quick: fleet.quick,
        only: Vec::new(),
        part: None,
        new: false,
        command: String::new(),
        version: fleet.version.clone(),
    })
}

fn same_version(fleet: &Fleet, version: &str) -> Result<(), Error> {
    if fleet.version == version {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "this node has plimsoll {version}, the study is controlled by {}: install the same one on all nodes, or put it where \
         all of them see it, and start it from there",
        fleet.version
    )))
}

/// What a node says of itself before anything is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub node: String,
    pub version: String,
    /// It sees the controller's directory.
    pub has_desk: bool,
    pub has_study: bool,
    /// It can write into the directory.
    pub may_write: bool,
    /// Why this machine cannot make a block of the study: no room for its tables, a build that does not run here.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Builds of the study that this machine's home does not have.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// This node looks whether it can do its part.
pub fn look(home: &Home, desk: &Path, version: &str) -> Look {
    let node = node();
    let fleet = Desk::at(desk).fleet().ok();
    // Of another version, or a study that is not seen here, something else is told.
    let known = fleet.as_ref().filter(|fleet| fleet.version == version);
    let taken = known.map_or(Ok(()), |_| Desk::at(desk).take(home));
    let request = known.and_then(|fleet| asked(fleet, desk).ok());
    let refusal = taken.err().or_else(|| request.and_then(|request| outline(home, &request).err()));
    let mark = desk.join("tasks").join(format!(".{node}"));
    let may_write = std::fs::write(&mark, "").is_ok();
    // Where it could be written it can be removed; where not it is not there.
    let _ = std::fs::remove_file(&mark);
    Look {
        node,
        version: version.to_owned(),
        has_desk: fleet.is_some(),
        has_study: fleet.as_ref().is_some_and(|fleet| std::fs::File::open(&fleet.study_file).is_ok()),
        may_write,
        refusal: refusal.map(|error| error.to_string()),
        lacks: fleet.map_or_else(Vec::new, |fleet| lacking(home, &fleet.builds)),
        at_ms: load::time::unix_ms(),
    }
}

/// Those of the builds that are neither in the home nor installed on this machine.
fn lacking(home: &Home, builds: &[(String, String)]) -> Vec<String> {
    let installed = sandbox::builds::installed(home).unwrap_or_default();
    let is_here = |name: &str, identity: &str| {
        handed::has(home, name, identity) || installed.iter().any(|build| build.identity == identity)
    };
    builds.iter().filter(|(name, identity)| !is_here(name, identity)).map(|(name, _)| name.clone()).collect()
}

/// What nodes said of themselves, each a line of JSON.
pub(super) fn looks(said: &str) -> Vec<Look> {
    said.lines().filter_map(|line| serde_json::from_str(line.trim()).ok()).collect()
}

/// Clocks that differ by more than this make times of runs misleading. The looks themselves are some seconds apart.
const CLOCKS_APART_MAX_MS: i64 = 10_000;

/// Judges what nodes said (lines of JSON). What is odd but no reason to stop.
///
/// # Errors
/// A node cannot do its part: what is missing there, and the remedy.
pub(super) fn judge(
    said: &str,
    fleet: &Fleet,
    desk: &Desk,
    nodes: u32,
    now_ms: i64,
) -> Result<Vec<String>, Error> {
    let looks = looks(said);
    let (dir, study) = (desk.path().display(), fleet.study_file.display());
    let mut wrong = Vec::new();
    let mut odd = Vec::new();
    for look in &looks {
        let node = &look.node;
        if look.version != fleet.version {
            wrong.push(format!(
                "{node} has plimsoll {}, this is {}: install the same one on all nodes, or start it from where all of them \
                 see it",
                look.version, fleet.version
            ));
        } else if !look.has_desk {
            wrong.push(format!(
                "{node} does not see {dir}: put --results on a directory that all nodes share"
            ));
        } else if !look.may_write {
            wrong.push(format!("{node} cannot write into {dir}: share it so that your user may write there"));
        } else if !look.has_study {
            wrong.push(format!("{node} does not see {study}: put the study file where all nodes see it"));
        } else if let Some(why) = &look.refusal {
            wrong.push(format!(
                "{node} cannot make a block of this study; --partition or --constraint keep such nodes out\n{why}"
            ));
        }
        let apart = look.at_ms - now_ms;
        if apart.abs() > CLOCKS_APART_MAX_MS {
            odd.push(format!(
                "the clock of {node} is {} s {} this one: times of its runs are by its own; let all follow one time server",
                apart.abs() / 1000,
                if apart > 0 { "ahead of" } else { "behind" }
            ));
        }
    }
    if looks.len() < nodes as usize && wrong.is_empty() {
        wrong.push(format!("{} of {nodes} nodes answered: {said}", looks.len()));
    }
    if wrong.is_empty() { Ok(odd) } else { Err(Error::Usage(wrong.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Fleet {
        Fleet {
            study: 1,
            name: "s".to_owned(),
            study_file: "/s/s.toml".into(),
            quick: false,
            version: "2.0".to_owned(),
            jobs: "plimsoll-s".to_owned(),
            nodes: None,
            partition: None,
            constraint: None,
            time_limit_s: None,
            calibrate_s: None,
            client_nodes: None,
            noise_max: None,
            bound: None,
            builds: Vec::new(),
        }
    }

    fn said(change: impl Fn(&mut Look)) -> String {
        let mut look = Look {
            node: "n3".to_owned(),
            version: "2.0".to_owned(),
            has_desk: true,
            has_study: true,
            may_write: true,
            refusal: None,
            lacks: Vec::new(),
            at_ms: 1_000_000,
        };
        change(&mut look);
        serde_json::to_string(&look).unwrap()
    }

    #[test]
    fn what_a_node_lacks_is_told_with_the_remedy() {
        let of = |text: &str, nodes| judge(text, &fleet(), &Desk::at(Path::new("/r")), nodes, 1_000_000);
        assert_eq!(of(&said(|_| {}), 1).unwrap(), [""; 0]);
        let refused = |text: String, parts: &[&str]| {
            let error = of(&text, 1).unwrap_err();
            assert_eq!(error.class(), Class::Usage);
            parts.iter().for_each(|part| assert!(error.to_string().contains(part), "{error}"));
        };
        refused(
            said(|look| look.version = "1.9".into()),
            &["n3 has plimsoll 1.9, this is 2.0", "the same one"],
        );
        refused(said(|look| look.has_desk = false), &["n3 does not see /r", "--results"]);
        refused(said(|look| look.may_write = false), &["cannot write into /r"]);
        refused(said(|look| look.has_study = false), &["n3 does not see /s/s.toml"]);
        refused(
            said(|look| look.refusal = Some("no room".into())),
            &["n3 cannot make", "--constraint", "no room"],
        );
        refused("slurmstepd: error: execve(): No such file".to_owned(), &["0 of 1 nodes", "execve"]);
        let late = said(|look| look.at_ms = 1_060_000);
        assert!(of(&late, 1).unwrap()[0].contains("the clock of n3 is 60 s ahead of"));
    }
}
