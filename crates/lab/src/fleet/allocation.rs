//! Nodes that one load needs at the same time: the server and what measures it on the first, client processes on the others.
//!
//! A command that is not on such a node yet has Slurm run it there again (`salloc`, `srun`); on it, it starts a step of the
//! job for each client, whose pipes `srun` carries.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;

use super::Wishes;
use super::slurm::{asked, of_wishes, time_limit};
use crate::error::Error;

/// The nodes of the job that this process is in, on the first of which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    job: String,
    /// For clients: all but this one.
    others: Vec<String>,
    /// By which others reach this node.
    address: IpAddr,
}

/// What this process is told by Slurm of the job that it is a part of.
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Allocation {
    /// Where this process runs on a node of a job; `None`: it does not.
    ///
    /// # Errors
    /// The job has no other node, or the address of this one is not known.
    pub fn current() -> Result<Option<Allocation>, Error> {
        let (Some(job), Some(node)) = (told("SLURM_JOB_ID"), told("SLURMD_NODENAME")) else {
            return Ok(None);
        };
        let list = told("SLURM_JOB_NODELIST").unwrap_or_default();
        let names = asked("scontrol", &["show".to_owned(), "hostnames".to_owned(), list], "")?;
        let others: Vec<String> =
            names.split_whitespace().filter(|name| *name != node).map(str::to_owned).collect();
        if others.is_empty() {
            return Err(Error::Usage(format!(
                "job {job} has one node, {node}, and no other for clients: --nodes 2 at least"
            )));
        }
        Ok(Some(Allocation { job, others, address: address_of(&node)? }))
    }

    /// By which other nodes reach this one.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The nodes that so many clients are on: some may have none.
    pub(crate) fn nodes_of(&self, clients: usize) -> &[String] {
        &self.others[..clients.min(self.others.len())]
    }

    /// The node of a client, counted from 0: they take turns.
    pub(crate) fn node(&self, client: u64) -> &str {
        &self.others[client as usize % self.others.len()]
    }

    /// A step of the job that runs `program` on the node of a client; what it reads and writes are this process's pipes.
    pub(crate) fn step(&self, client: u64, program: &Path) -> Command {
        let mut command = Command::new("srun");
        forget_job(&mut command);
        command
            .args(["--nodes=1", "--ntasks=1", "--overlap", "--unbuffered", "--quiet", "--kill-on-bad-exit"])
            .arg(format!("--jobid={}", self.job))
            .arg(format!("--nodelist={}", self.node(client)))
            .arg("--chdir=/")
            .arg(program);
        command
    }
}

/// What Slurm told this process of its own step would be taken for wishes by the `srun` that begins another one.
fn forget_job(command: &mut Command) {
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| name.to_string_lossy().starts_with("SLURM_") && name != "SLURM_CONF") {
        command.env_remove(name);
    }
}

/// The address that the cluster has of a node.
fn address_of(node: &str) -> Result<IpAddr, Error> {
    let shown = asked("scontrol", &["show".to_owned(), "node".to_owned(), node.to_owned()], "")?;
    let name = shown.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr=")).unwrap_or(node);
    (name, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .map(|found| found.ip())
        .ok_or_else(|| Error::Server(format!("the address of node {node}, {name}, is not known here")))
}

/// The command that runs `program` again with these arguments on the first of `nodes` nodes: of the job that this process
/// belongs to, or of a new one.
///
/// # Errors
/// The cluster has no such nodes.
pub fn entering(program: &Path, arguments: &[String], nodes: u32, wishes: &Wishes) -> Result<Command, Error> {
    let step = ["--nodes=1", "--ntasks=1", "--relative=0", "--overlap", "--quiet"];
    let mut command = match told("SLURM_JOB_ID") {
        Some(_) => Command::new("srun"),
        None => {
            let wishes = Wishes { nodes: Some(nodes), ..wishes.clone() };
            super::slurm::nodes(&wishes)?;
            let mut command = Command::new("salloc");
            command.args(["--exclusive", "--quiet", "--job-name=plimsoll", &format!("--nodes={nodes}")]);
            command.args(of_wishes(&wishes));
            command.args(time_limit(&wishes));
            command.arg("srun");
            command
        }
    };
    command.args(step).arg(program).args(arguments);
    Ok(command)
}
