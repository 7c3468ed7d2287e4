//! `plimsoll fleet`, and `plimsoll run --on`.

use lab::fleet::{self, Order, Place};
use lab::study_run::{Outcome, Request};
use lab::{Error, Event};
use sandbox::Home;

use crate::args::{FleetArgs, FleetCommand, FleetStudy};
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
            let attach = lab::watch::Watch { metrics: None };
            let observer = |event: Event<'_>| plain.event(&event);
            let made = fleet::task(&Home::find()?, desk, VERSION, &attach, &observer, &stop);
            plain.finish();
            made?;
            Ok(End::Done)
        }
        FleetCommand::Look { desk } => {
            let look = fleet::look(desk, VERSION);
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
