//! `plimsoll rerun`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::report::bundle::{Claim, Opened, claims, read, verify};
use ::report::{Report, Selection};
use lab::rerun::{Asked, Begun, Bounds, Refusal, WORKLOADS, begin};
use lab::{Error, StopSwitch};
use sandbox::Home;
use store::bundle::Limits;

use crate::args::RerunArgs;
use crate::commands::out::Out;
use crate::commands::run::run_shown;
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;

/// What a stranger's study may take at most unless `--budget` says otherwise.
const OF_STRANGERS: Duration = Duration::from_secs(20 * 60);

pub(crate) fn rerun(args: &RerunArgs, command: &str) -> Result<End, Failure> {
    let name = args.file.display();
    let wrong = |why: &dyn std::fmt::Display| Failure::Usage(format!("{name}: {why}"));
    let limits = Limits::default();
    let bytes = read(&args.file, &limits).map_err(|error| wrong(&error))?;
    if !verify(&bytes, &limits).is_verified() {
        return Err(wrong(
            &"it does not verify, so that nobody knows what it claims: `plimsoll verify` says why",
        ));
    }
    let bundle = Opened::new(&bytes, &args.file, &limits).map_err(|error| wrong(&error))?;
    let published =
        bundle.results.studies()?.into_iter().next().ok_or_else(|| wrong(&"it has no study"))?.study;
    let studies = Selection::Studies(vec![published.name.clone()]);
    let load = |paths: &[PathBuf]| {
        Report::load(paths, &studies).map_err(|error| Failure::Other(anyhow::Error::new(error)))
    };
    let there = load(std::slice::from_ref(&args.file))?;
    let claim = args.claim.as_ref().map(|id| chosen(&there, id).ok_or_else(|| wrong(&no_claim(&there, id))));
    let claim = claim.transpose()?;
    let mut json = args.json.as_deref().map(Out::create).transpose()?;
    let workloads = bundle.workloads().map_err(|error| wrong(&error))?;
    let budget = args.budget.or(args.untrusted.then_some(OF_STRANGERS));
    let asked = Asked {
        only: &args.only,
        compared: claim.as_ref().map(|claim| [&claim.base, &claim.other]),
        untrusted: budget.filter(|_| args.untrusted).map(Bounds::here),
        workloads: &workloads,
        members: &bundle.members,
        command,
        version: env!("CARGO_PKG_VERSION"),
    };
    let request = match begin(&published, &args.results, &asked)? {
        Begun::Ready(request) => request,
        Begun::Refused(all) => {
            let lines: Vec<_> = all.iter().map(Refusal::json).collect();
            if let Some(out) = &mut json {
                out.write(&format!(
                    "{}\n",
                    serde_json::json!({"schema": 2, "refused": lines, "claims": []})
                ))?;
            }
            json.map_or(Ok(()), Out::finish)?;
            let all: Vec<String> = all.iter().map(|one| format!("  {one}")).collect();
            return Err(wrong(&format!("it is not measured for a stranger:\n{}", all.join("\n"))));
        }
    };
    for workload in workloads.iter().filter(|_| !args.untrusted) {
        let place = args.results.join(WORKLOADS);
        let but = if workload.is_changed { ", but for what is private" } else { "" };
        tell!(
            "workload {} is run from its author's files as they were sealed{but}: {}",
            workload.workload,
            place.display()
        );
    }
    let stop = stop_on_signals()?;
    let is_spent = budget.map(|budget| press_after(budget, &stop));
    let home = Home::find()?;
    let attach = lab::watch::Watch::default();
    let outcome = run_shown(&home, &request, &attach, &stop);
    let failed = match outcome {
        Ok(outcome) => outcome.failed,
        Err(Error::Interrupted) if is_spent.is_some_and(|spent| spent.load(Ordering::SeqCst)) => {
            tell!("the time that --budget gave is over; the same command goes on from there");
            0
        }
        Err(error) => return Err(error.into()),
    };
    let here = load(std::slice::from_ref(&args.results))?;
    let mut claims = claims(&there, &here);
    claims.retain(|one| claim.as_ref().is_none_or(|claim| claim.id == one.id));
    if let Some(out) = &mut json {
        let lines: Vec<_> = claims.iter().map(Claim::json).collect();
        out.write(&format!("{}\n", serde_json::json!({"schema": 2, "claims": lines})))?;
    }
    json.map_or(Ok(()), Out::finish)?;
    let html = args.results.join(format!("{}.html", published.name));
    let mut both = load(&[args.file.clone(), args.results.clone()])?;
    both.studies.iter_mut().for_each(|study| study.claims.clone_from(&claims));
    super::report::write_html(&both, &html)?;
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        print(&told(&claims, &html.display().to_string()))?;
    }
    Ok(if failed > 0 { End::RunFailed } else { End::Done })
}

/// The claim of that identity. Held against itself, a report has every claim that it publishes.
fn chosen(there: &Report, id: &str) -> Option<Claim> {
    claims(there, there).into_iter().find(|claim| claim.id == id)
}

fn no_claim(there: &Report, id: &str) -> String {
    let known: Vec<String> = claims(there, there).into_iter().map(|claim| claim.id).collect();
    let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
    format!("it has no claim {id} with an interval; it claims {known}")
}

/// Asks for the end when the time is over; true from then on.
fn press_after(budget: Duration, stop: &StopSwitch) -> Arc<AtomicBool> {
    let is_spent = Arc::new(AtomicBool::new(false));
    let (told, stop) = (Arc::clone(&is_spent), stop.clone());
    std::thread::spawn(move || {
        std::thread::sleep(budget);
        told.store(true, Ordering::SeqCst);
        stop.press();
    });
    is_spent
}

fn told(claims: &[Claim], html: &str) -> String {
    let mut text = String::new();
    if claims.is_empty() {
        text.push_str("It claims nothing: no comparison in it has an interval.\n");
    }
    for claim in claims {
        let here = claim.here.as_ref().map_or_else(|| "not measured".to_owned(), Claim::span_text);
        let between = claim
            .between
            .as_ref()
            .map_or_else(String::new, |between| format!(", here / published {}", Claim::span_text(between)));
        text.push_str(&format!(
            "{}: {} of {}, {}: published {}, here {here}{between}\n",
            claim.verdict.word(),
            claim.metric,
            claim.compared(),
            claim.place(),
            Claim::span_text(&claim.published),
        ));
    }
    text.push_str(&format!("\nreport of both machines: {html}\n"));
    text
}
