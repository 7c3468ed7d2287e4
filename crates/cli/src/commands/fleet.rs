//! `plimsoll fleet`, and `plimsoll run --on`.

use lab::clients::Hosts;
use lab::fleet::allocation::{Allocation, entering};
use lab::fleet::slurm::NO_SLURM;
use lab::fleet::{self, Order, Place};
use lab::study_run::{Outcome, Request};
use lab::{Error, Event};
use sandbox::Home;

use crate::args::{FleetArgs, FleetCommand, FleetStudy, OnServerArgs};
use crate::commands::{print, print_data, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::{Align, Plain, Table};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn fleet(args: &FleetArgs, command: String) -> Result<End, Failure> {
    match &args.command {
        FleetCommand::Attach { which, leave_jobs } => attach(which, *leave_jobs, command),
        FleetCommand::Status(which) => status(which),
        FleetCommand::Cancel(which) => {
            let tasks = fleet::cancel(&which.results, &which.name())?;
            print(&format!(
                "cancelled {}; what was recorded is taken over by the next `plimsoll run`\n",
                store::counted(tasks, "task")
            ))
        }
        FleetCommand::Task { desk } => {
            let stop = stop_on_signals()?;
            let plain = Plain::new();
            let attach = lab::watch::Watch::default();
            let observer = |event: Event<'_>| plain.event(&event);
            let made = fleet::task(&Home::find()?, desk, VERSION, &attach, &observer, &stop);
            plain.finish();
            made?;
            Ok(End::Done)
        }
        FleetCommand::Look { desk } => {
            let look = fleet::look(&Home::find()?, desk, VERSION);
            let line = serde_json::to_string(&look).map_err(|error| Failure::Other(error.into()))?;
            print_data(&format!("{line}\n"))
        }
    }
}

/// Makes the blocks of a study by a scheduler, and shows how they stand.
pub(crate) fn run_on_nodes(request: &Request, order: &Order) -> Result<Outcome, Error> {
    let home = Home::find()?;
    let stop = stop_on_signals().map_err(|_| Error::Run("Ctrl-C cannot be taken over".into()))?;
    let plain = Plain::new();
    let outcome = fleet::run_fleet(&home, request, order, &|event: Event<'_>| plain.event(&event), &stop);
    plain.finish();
    outcome
}

fn attach(which: &FleetStudy, leaves_jobs: bool, command: String) -> Result<End, Failure> {
    let (_, known) = fleet::desk::Desk::newest(&which.results, &which.name())?;
    let request = Request {
        study: lab::study::read(&known.study_file)?,
        results: which.results.clone(),
        quick: known.quick,
        only: Vec::new(),
        part: None,
        client_hosts: Hosts::This,
        new: false,
        command,
        version: VERSION.to_owned(),
    };
    let order = Order { wishes: known.wishes(), leaves_jobs, executable: executable()? };
    let outcome = run_on_nodes(&request, &order)?;
    crate::commands::run::concluded(&request, &outcome)
}

/// This program, as nodes find it.
pub(crate) fn executable() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Other(anyhow::Error::new(error).context("where this program is")))
}

/// Where a command with clients on nodes goes on.
pub(crate) enum Start {
    /// In this process, with its clients there.
    Here(Hosts),
    /// It was made by a process on a node, which ended so.
    OnNode(End),
}

/// Without `--on` clients are processes of this machine. With it this command is made again on the first node of a job,
/// unless that is where it runs already.
pub(crate) fn client_hosts(on: &OnServerArgs) -> Result<Start, Failure> {
    let wanted = &on.client_nodes;
    if wanted.on.is_none() {
        return Ok(Start::Here(Hosts::This));
    }
    if on.clients < 2 {
        return Err(Failure::Usage("--on slurm is for several clients: --clients 2 at least".into()));
    }
    if let Some(allocation) = Allocation::current()? {
        return Ok(Start::Here(Hosts::Nodes(allocation)));
    }
    if wire::Target::parse(&on.server).is_ok_and(|target| !target.password.is_empty()) {
        return Err(Failure::Usage(
            "the password in the URL would stand in command lines on the nodes: leave it out of the URL, and give it by \
             PLIMSOLL_PASSWORD or --password-file"
                .into(),
        ));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let nodes = wanted.nodes.unwrap_or(on.clients + 1);
    let command = entering(&executable()?, &arguments, nodes, &wanted.wishes())?;
    let program = command.get_program().to_string_lossy().into_owned();
    let status = super::relayed(command).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Server(format!("there is no `{program}` here: {NO_SLURM}")),
        _ => Error::Server(format!("{program} cannot be started: {error}")),
    })?;
    Ok(Start::OnNode(End::OfTool(status.code().map_or(1, |code| code as u8))))
}

fn status(which: &FleetStudy) -> Result<End, Failure> {
    let standing = fleet::standing(&which.results, &which.name())?;
    let mut table = Table::new(&[
        ("block", Align::Right),
        ("state", Align::Left),
        ("node", Align::Left),
        ("tries", Align::Right),
        ("", Align::Left),
    ]);
    for one in &standing.blocks {
        let (state, node, why) = match &one.place {
            Place::Waiting(reason) => ("waits", "", reason.clone()),
            Place::Running(node) => ("runs", node.as_str(), String::new()),
            Place::Ended(node) => ("made", node.as_str(), String::new()),
            Place::Lost(node) => ("lost", node.as_str(), one.error.clone().unwrap_or_default()),
        };
        table.row([one.block.to_string(), state.to_owned(), node.to_owned(), one.tries.to_string(), why]);
    }
    print(&format!("{}{}\n", table.text(), standing.text()))
}
