//! `plimsoll run`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ::report::{Report, Selection, StudyReport, VerdictView};
use lab::clients::Hosts;
use lab::study_run::{Outcome, Outline, Request, outline, run_study};
use lab::{Attach, Error, Event, StopSwitch};
use sandbox::Home;
use stats::Gate;
use store::counted;
use telemetry::metrics::Metrics;

use crate::args::{RunArgs, Scheduler};
use crate::commands::out::Out;
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{Align, Live, Plain, Table, time};

pub(crate) fn run(args: &RunArgs, command: String) -> Result<End, Failure> {
    args.password.read()?;
    let study = lab::study::read(&args.study)?;
    let name = study.name.clone();
    gates_can_be_met(args, &study)?;
    let check = CheckFiles::create(args)?;
    let own_gates = study.body.compare.as_ref().map_or_else(Vec::new, |compare| compare.gates.clone());
    let request = Request {
        study,
        results: args.results.clone(),
        quick: args.quick,
        only: args.only.clone(),
        part: args.part.block.clone(),
        client_hosts: Hosts::This,
        new: args.new,
        command,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let home = Home::find()?;
    let wishes = args.part.wishes(&request.study.fleet);
    let is_on_nodes = wishes.is_on && request.part.is_none() && request.only.is_empty();
    if args.part.on == Some(Scheduler::Kubernetes) {
        return kubernetes(args, &request, &wishes);
    }
    if args.dry_run {
        return print(&dry(&request, &outline(&home, &request)?));
    }
    if is_on_nodes {
        let executable = super::fleet::executable()?;
        let order = lab::fleet::Order { wishes, leaves_jobs: args.part.leave_jobs, executable };
        let outcome = super::fleet::run_on_nodes(&request, &order);
        return conclude(&args.results, &name, &outcome?, (&args.gate, &own_gates), check);
    }
    let stop = stop_on_signals()?;
    let attach = lab::watch::Watch { metrics: args.metrics.map(serve).transpose()?, agent: None };
    let outcome = run_shown(&home, &request, &attach, &stop);
    if let Err(Error::Interrupted) = &outcome {
        let file = args.results.join(store::FILE_NAME);
        tell!("what was measured is in {}; the same command goes on from there", file.display());
    }
    conclude(&args.results, &name, &outcome?, (&args.gate, &own_gates), check)
}

/// Runs a study and shows it: live on a terminal, else in lines.
pub(super) fn run_shown(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    stop: &StopSwitch,
) -> Result<Outcome, Error> {
    match Live::start(stop) {
        Some(live) => {
            let outcome = run_study(home, request, attach, &|event: Event<'_>| live.event(&event), stop);
            live.finish().iter().for_each(|line| tell!("{line}"));
            outcome
        }
        None => {
            let plain = Plain::new();
            let outcome = run_study(home, request, attach, &|event: Event<'_>| plain.event(&event), stop);
            plain.finish();
            outcome
        }
    }
}

/// The end of a study that nobody has given gates or files for a check.
pub(super) fn concluded(request: &Request, outcome: &Outcome) -> Result<End, Failure> {
    let own = request.study.body.compare.as_ref().map_or_else(Vec::new, |compare| compare.gates.clone());
    let check = CheckFiles { junit: None, summary: None };
    conclude(&request.results, &request.study.name, outcome, (&[], &own), check)
}

/// The manifests that would make the study on Kubernetes: shown, never applied.
fn kubernetes(args: &RunArgs, request: &Request, wishes: &lab::fleet::Wishes) -> Result<End, Failure> {
    if !args.dry_run {
        return Err(Failure::Usage(
            "--on kubernetes: Plimsoll writes the manifests and applies none: add --dry-run, and hand what it prints to \
             `kubectl apply -f -`"
                .into(),
        ));
    }
    let text = lab::fleet::kubernetes::manifests(request, wishes, &args.part.image)?;
    super::print_data(&text)
}

/// A gate that no outcome could meet is said before anything is measured.
fn gates_can_be_met(args: &RunArgs, study: &lab::study::Study) -> Result<(), Failure> {
    let body = study.body(args.quick);
    for gate in &args.gate {
        let Some(compare) = &body.compare else {
            return Err(Failure::Usage(format!(
                "--gate {gate}: {} compares nothing: add [compare] with axis, base and metrics",
                study.path.display()
            )));
        };
        if let Some(metric) = gate.metric.as_ref().filter(|metric| !compare.metrics.contains(metric)) {
            return Err(Failure::Usage(format!(
                "--gate {gate}: {} does not compare {metric}; its metrics are {}",
                study.path.display(),
                compare.metrics.join(", ")
            )));
        }
        let least = stats::Rules::default().blocks_min;
        if (body.load.blocks as usize) < least {
            return Err(Failure::Usage(format!(
                "--gate {gate}: a verdict needs at least {least} blocks, and this would make {}{}",
                body.load.blocks,
                if args.quick { ": leave --quick out" } else { ": raise blocks in [load]" }
            )));
        }
    }
    Ok(())
}

/// What `--dry-run` says.
fn dry(request: &Request, outline: &Outline) -> String {
    let plan = &outline.plan;
    let mut text = format!("{}\n{}\n\n", request.study.title, request.study.question.trim());
    for server in &plan.servers {
        let obtain = outline.to_obtain.iter().find(|(name, _)| *name == server.build_name);
        let from = obtain.map_or_else(String::new, |(_, from)| format!(", {from}"));
        text.push_str(&format!("{} is {}{from}\n", server.selector, server.name));
    }
    let load = request.study.body(request.quick).load;
    let least = load.until.map_or_else(String::new, |until| format!("{} to ", until.blocks_min));
    let until = if load.until.is_some() { "until decided, at most " } else { "" };
    text.push_str(&format!(
        "\n{}, {least}{}, {until}{}, seed {}\n",
        counted(plan.cells.len(), "cell"),
        counted(plan.blocks(), "block"),
        counted(plan.runs.len(), "run"),
        plan.seed
    ));
    if let Some(length) = outline.run_length {
        let all = length * outline.chosen.len() as u32;
        text.push_str(&format!("load alone: {} a run, {} for all", time(length), time(all)));
        text.push_str("; starting, loading, draining and stopping servers come beside it\n");
    }
    if let Some((until, budget)) = load.until.and_then(|until| Some((until, until.budget?))) {
        text.push_str(&format!("no block is begun that is not likely to end within {}", time(budget)));
        let in_a_block = outline.chosen.iter().filter(|run| run.block == 1).count() as u32;
        let least = outline.run_length.map(|length| length * in_a_block * until.blocks_min);
        text.push_str(&match least {
            Some(least) if least > budget => format!(
                ": the {} that it may not be decided before are {} of load alone: raise `budget`, or shorten the levels\n",
                counted(until.blocks_min as usize, "block"),
                time(least)
            ),
            _ => "\n".to_owned(),
        });
    }
    text.push('\n');
    let mut table = Table::new(&[
        ("run", Align::Right),
        ("block", Align::Right),
        ("sessions", Align::Right),
        ("cell", Align::Left),
    ]);
    for run in outline.chosen.iter().take(RUNS_SHOWN) {
        let levels: Vec<String> = run.levels.iter().map(u32::to_string).collect();
        let key: Vec<String> = plan.key(run).iter().map(|(axis, value)| format!("{axis}={value}")).collect();
        table.row([(run.index + 1).to_string(), run.block.to_string(), levels.join(","), key.join(" ")]);
    }
    text.push_str(&table.text());
    if let Some(more) = outline.chosen.len().checked_sub(RUNS_SHOWN).filter(|&more| more > 0) {
        text.push_str(&format!("... and {}, in random order within each block\n", counted(more, "more run")));
    }
    for note in &outline.notes {
        text.push_str(&format!("\nwarning: {note}\n"));
    }
    text
}

/// Runs that `--dry-run` lists; of a longer plan the rest is counted.
const RUNS_SHOWN: usize = 200;

/// What a pull request's check reads.
struct CheckFiles {
    junit: Option<Out>,
    summary: Option<Out>,
}

impl CheckFiles {
    /// Begun before anything is measured, so that a place that cannot be written is known then.
    fn create(args: &RunArgs) -> Result<CheckFiles, Failure> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Out::create).transpose();
        Ok(CheckFiles { junit: create(&args.junit)?, summary: create(&args.summary)? })
    }

    /// Writes them, and where GitHub listens, annotations.
    fn write(self, gates: &[Gate], studies: &[StudyReport]) -> Result<(), Failure> {
        if let Some(out) = self.junit {
            out.end(&::report::ci::junit(gates, studies))?;
        }
        if let Some(out) = self.summary {
            out.end(&::report::ci::summary(gates, studies))?;
        }
        if std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
            ::report::ci::annotations(gates, studies).iter().for_each(|line| tell!("{line}"));
        }
        Ok(())
    }
}

/// The end of a study: its report, its verdicts, and how it stands.
///
/// `flags` are the gates of the command line, which stand in for the study's `own`.
fn conclude(
    results: &Path,
    name: &str,
    outcome: &Outcome,
    (flags, own): (&[Gate], &[Gate]),
    check: CheckFiles,
) -> Result<End, Failure> {
    let file = results.join(format!("{name}.html"));
    let report = Report::load(&[PathBuf::from(results)], &Selection::Records(vec![outcome.study]))
        .map_err(|error| Failure::Other(anyhow::Error::new(error).context("making the report")))?;
    super::report::write_html(&report, &file)?;
    let mut text = crate::show::summary(&report);
    let runs = counted(outcome.runs, "run");
    let are = |count: usize| if count == 1 { "is" } else { "are" };
    let unusable = match (outcome.failed, outcome.invalid) {
        (0, 0) => None,
        (0, invalid) => Some(format!("{invalid} of {runs} {} invalid", are(invalid))),
        (failed, 0) => Some(format!("{failed} of {runs} failed")),
        (failed, invalid) => Some(format!("{failed} of {runs} failed, {invalid} {} invalid", are(invalid))),
    };
    if let Some(unusable) = unusable {
        text.push_str(&format!("\n{unusable}; the report says why. The same command makes them again.\n"));
    }
    if let Some(ended) = &outcome.ended {
        text.push_str(&format!("\n{ended}.\n"));
    }
    if outcome.open() > 0 {
        text.push_str(&format!("\n{} of {runs} {} still to be made.\n", outcome.open(), are(outcome.open())));
    } else if outcome.made == 0 {
        text.push_str("\nEverything was recorded before; `--new` measures anew.\n");
    }
    let short = report.studies.first().filter(|_| outcome.open() == 0).map_or_else(Vec::new, short_of_blocks);
    if !short.is_empty() {
        let least = stats::Rules::default().blocks_min;
        text.push_str(&format!(
            "\nNo verdict, for faults of the measurement left fewer than {least} blocks:\n"
        ));
        short.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text.push_str(&format!("\nreport: {}\n", file.display()));
    print(&text)?;
    check.write(if flags.is_empty() { own } else { flags }, &report.studies)?;
    let mut end = super::report::gated(&report.studies, flags)?;
    if flags.is_empty()
        && let Some(study) = report.studies.first()
    {
        end = super::report::gated_by_itself(study, own)?;
    }
    Ok(match end {
        _ if outcome.failed > 0 => End::RunFailed,
        End::Done if !short.is_empty() => End::TooFewBlocks,
        end => end,
    })
}

/// The primary comparisons that have fewer valid blocks than a verdict needs although enough were planned, a line each. One
/// without a value, because there are too few transactions for a percentile, is short of something else.
fn short_of_blocks(study: &StudyReport) -> Vec<String> {
    let least = stats::Rules::default().blocks_min;
    if (study.blocks_planned() as usize) < least {
        return Vec::new();
    }
    let is_short = |view: &&VerdictView| view.is_primary && view.absent.is_empty() && view.result.n < least;
    let line = |view: &VerdictView| {
        let place = match &view.climb {
            Some(_) => view.at.clone(),
            None => format!("{} at {}", view.at, counted(study.points[view.other].sessions, "session")),
        };
        let (metric, other, base) = (&view.metric, &view.other_label, &view.base_label);
        format!(
            "{metric} of {other} against {base}, {}: {}",
            place.trim(),
            counted(view.result.n, "valid block")
        )
    };
    study.verdicts.iter().filter(is_short).map(line).collect()
}

/// Shows the latest values as Prometheus text while the study runs.
fn serve(address: SocketAddr) -> Result<Metrics, Failure> {
    let metrics = Metrics::default();
    let bound = metrics
        .serve(address)
        .map_err(|error| Failure::Usage(format!("--metrics {address}: {error}: choose another port")))?;
    tell!("metrics: http://{bound}/metrics");
    Ok(metrics)
}
