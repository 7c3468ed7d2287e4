//! Machines that made parts of one plan: nodes of a class are one host in a cell's key, and the node is a random effect in
//! verdicts. Machines that differ in cpu, memory, kernel or storage, and those that each made a plan of their own, stay
//! apart.

use std::collections::{BTreeMap, BTreeSet};

use stats::Nodes;
use store::{Host, Probe};

use crate::model::{HostView, Report, RunView, StudyReport, VerdictView};
use crate::text::{listed, ratio};

/// The name of the host in the key of each run's cell, in the order of the runs.
pub(crate) fn host_names(study: &StudyReport, hosts: &[HostView]) -> Vec<String> {
    let class_of = |run: &RunView| (run.plan, class(&hosts[run.host].host, &storage(study, run.host)));
    let mut machines: BTreeMap<(usize, String), BTreeSet<usize>> = BTreeMap::new();
    for run in &study.runs {
        machines.entry(class_of(run)).or_default().insert(run.host);
    }
    let several: Vec<&(usize, String)> =
        machines.iter().filter(|(_, hosts)| hosts.len() > 1).map(|(class, _)| class).collect();
    study
        .runs
        .iter()
        .map(|run| {
            let class = class_of(run);
            let host = &hosts[run.host];
            let Some(number) = several.iter().position(|known| **known == class) else {
                return host.label.clone();
            };
            let nodes = machines[&class].len();
            let name = format!("{nodes} nodes ({})", shape(&host.host));
            if several.len() > 1 { format!("{name}, class {}", number + 1) } else { name }
        })
        .collect()
}

/// What two nodes must have in common for their ratios to be combined.
fn class(host: &Host, storage: &str) -> String {
    let memory_gib = (host.memory_bytes as f64 / f64::from(1 << 30)).round();
    let facts = (&host.arch, &host.cpu_model, host.cpus, &host.kernel);
    format!("{facts:?} {memory_gib} {storage}")
}

fn shape(host: &Host) -> String {
    let memory_gib = (host.memory_bytes as f64 / f64::from(1 << 30)).round();
    let cpu = if host.cpu_model.is_empty() { &host.arch } else { &host.cpu_model };
    format!("{cpu}, {} cpus, {memory_gib} GiB", host.cpus)
}

/// The devices under a host's data directories, without what a mount is called.
fn storage(study: &StudyReport, host: usize) -> String {
    let fact = |probe: &Probe, name: &str| probe.facts.get(name).cloned().unwrap_or_default();
    let places: BTreeSet<String> = study
        .probes
        .iter()
        .filter(|(on, _)| *on == host)
        .map(|(_, probe)| {
            let facts = ["filesystem", "mount options", "rotational", "model"].map(|name| fact(probe, name));
            format!("{} {}", probe.place, facts.join(" "))
        })
        .collect();
    places.into_iter().collect::<Vec<_>>().join("; ")
}

impl StudyReport {
    /// The machine of each block, by its index in the report.
    pub(crate) fn nodes(&self) -> Nodes {
        Nodes(self.runs.iter().map(|run| (run.block, run.host as u32)).collect())
    }
}

/// The machines that a study ran on, by their names.
pub(crate) fn hosts<'a>(report: &'a Report, study: &StudyReport) -> Vec<&'a str> {
    let names: BTreeSet<&str> = study.runs.iter().map(|run| report.hosts[run.host].label.as_str()).collect();
    names.into_iter().collect()
}

/// Says, of verdicts that rest on several nodes, which of these disagree.
pub(crate) fn tell_odd(verdicts: &mut [VerdictView], hosts: &[HostView]) {
    for view in verdicts {
        let odd = view.result.nodes.iter().flat_map(|nodes| &nodes.odd);
        let flags: Vec<String> = odd
            .map(|odd| {
                let name = hosts.get(odd.node as usize).map_or("?", |host| host.label.as_str());
                format!("{name} disagrees: {} against {} elsewhere", ratio(odd.ratio), ratio(odd.elsewhere))
            })
            .collect();
        view.flags.extend(flags);
    }
}

/// What a reader has to know of a study whose verdicts rest on several nodes.
pub(crate) fn sentence(verdicts: &[VerdictView], hosts: &[HostView]) -> Option<String> {
    let across = || verdicts.iter().filter_map(|view| view.result.nodes.as_ref());
    let machines: BTreeSet<u32> = across().flat_map(|nodes| &nodes.nodes).map(|node| node.node).collect();
    if machines.is_empty() {
        return None;
    }
    let mut names: Vec<String> =
        machines.iter().filter_map(|at| hosts.get(*at as usize)).map(|host| host.label.clone()).collect();
    names.sort();
    let spread = across().map(|nodes| nodes.spread).fold(0.0, f64::max);
    let differ = if spread >= 0.0005 {
        format!(
            "Their ratios differ by up to {:.1} % (standard deviation) beyond what blocks do.",
            100.0 * spread
        )
    } else {
        "Their ratios differ by no more than blocks do.".to_owned()
    };
    Some(format!(
        "Blocks ran on {}. Sides are compared within a node only; the nodes' ratios are combined with the node as a random \
         effect, so few nodes give wide intervals. {differ}",
        listed(&names)
    ))
}
