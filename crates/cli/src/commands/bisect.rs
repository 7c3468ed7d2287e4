//! `plimsoll bisect`.

use lab::Event;
use lab::bisect::{Candidate, Outcome, Request, Told, bisect as search, candidates};
use sandbox::Home;
use sandbox::builds::source::Recipe;
use serde_json::{Value, json};
use stats::BisectStatus;

use crate::args::BisectArgs;
use crate::commands::out::Out;
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{Align, Plain, Table};

pub(crate) fn bisect(args: &BisectArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let study = lab::study::read(&args.study)?;
    let recipe = args.recipe.as_deref().map(Recipe::find).transpose()?;
    let all = candidates(&home, args.from.as_deref(), recipe.as_ref(), &args.good, &args.bad)?;
    let out = args.json.as_deref().map(Out::create).transpose()?;
    let request = Request {
        study,
        is_quick: args.quick,
        results: args.results.clone(),
        candidates: all,
        metric: args.metric.clone(),
        margin: args.margin,
        is_new: args.new,
    };
    tell!("{} from {} to {}", store::counted(request.candidates.len(), "build"), args.good, args.bad);
    let names: Vec<String> = request.candidates.iter().map(Candidate::name).collect();
    let described: Vec<String> = request.candidates.iter().map(Candidate::described).collect();
    let stop = stop_on_signals()?;
    let shown = Plain::new();
    let told = |told: &Told| tell!("{}", line(told, &described));
    let attach = lab::watch::Watch::default();
    let outcome = search(&home, &request, &attach, &|event: Event<'_>| shown.event(&event), &stop, &told);
    shown.finish();
    if let Err(lab::Error::Interrupted) = &outcome {
        tell!(
            "what was found out is kept in {}; the same command goes on from there",
            args.results.display()
        );
    }
    let outcome = outcome?;
    if let Some(out) = out {
        out.end(&format!("{}\n", as_json(&outcome, &names)))?;
    }
    if args.json.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        print(&text(&outcome, &described))?;
    }
    Ok(if outcome.status == BisectStatus::Undecided { End::GateUnmet } else { End::Done })
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

/// A step of the search, with the few builds that are likeliest after it.
fn line(told: &Told, names: &[String]) -> String {
    match told {
        Told::Ends(lives, comparison) => {
            let ratio = comparison.ratio.map_or_else(|| "-".to_owned(), percent);
            format!("good and bad, {lives} pairs of lives: {ratio}, {}", comparison.verdict.word())
        }
        Told::Asked { candidate, log_ratio, probabilities } => {
            let mut likely: Vec<(usize, f64)> = probabilities.iter().copied().enumerate().collect();
            likely.sort_by(|a, b| b.1.total_cmp(&a.1));
            let likely: Vec<String> = likely
                .iter()
                .take(3)
                .map(|(at, probability)| format!("{} {:.0} %", names[*at], 100.0 * probability))
                .collect();
            let ratio = percent(log_ratio.exp());
            format!("{} {ratio}; likeliest: {}", names[*candidate], likely.join(", "))
        }
        Told::Skipped { candidate, why } => format!("{} left out: {why}", names[*candidate]),
    }
}

fn as_json(outcome: &Outcome, names: &[String]) -> Value {
    let status = match outcome.status {
        BisectStatus::Found => "found",
        BisectStatus::NoDifference => "no_difference",
        BisectStatus::Undecided => "undecided",
    };
    let comparison = outcome.comparison.as_ref();
    let why: Vec<Value> = outcome
        .why
        .iter()
        .map(|why| {
            let (ratio, more) = (why.ratio, why.more_us);
            json!({
                "what": why.what, "ratio": ratio.map(|r| r.value), "low": ratio.map(|r| r.low),
                "high": ratio.map(|r| r.high), "more_us": more.map(|m| m.value), "more_us_low": more.map(|m| m.low),
                "more_us_high": more.map(|m| m.high),
            })
        })
        .collect();
    let alternatives: Vec<&String> = outcome.alternatives.iter().map(|at| &names[*at]).collect();
    json!({
        "schema": 2, "status": status, "guilty": outcome.guilty.map(|at| &names[at]),
        "probability": outcome.probability, "ratio": comparison.and_then(|c| c.ratio),
        "low": comparison.and_then(|c| c.low), "high": comparison.and_then(|c| c.high), "why": why,
        "steps": outcome.steps, "seconds": outcome.seconds, "cannot_be_told_apart": alternatives,
        "skipped": outcome.skipped.iter().map(|(at, why)| json!({"build": names[*at], "why": why})).collect::<Vec<_>>(),
    })
}

fn text(outcome: &Outcome, names: &[String]) -> String {
    let ratio = outcome.comparison.as_ref().and_then(|c| Some((c.ratio?, c.low?, c.high?)));
    let ratio = ratio.map_or_else(String::new, |(ratio, low, high)| {
        format!(" {} ({} to {})", percent(ratio), percent(low), percent(high))
    });
    let cost = format!("{} steps, {:.0} s", outcome.steps, outcome.seconds);
    let Some(guilty) = outcome.guilty.filter(|_| outcome.status == BisectStatus::Found) else {
        let found = match outcome.status {
            BisectStatus::NoDifference => "no difference between good and bad",
            _ => "undecided",
        };
        return format!("{found}:{ratio}; {cost}\n");
    };
    let mut text =
        format!("guilty: {}, {:.1} % sure;{ratio}; {cost}\n", names[guilty], 100.0 * outcome.probability);
    if !outcome.alternatives.is_empty() {
        let others: Vec<&str> = outcome.alternatives.iter().map(|at| names[*at].as_str()).collect();
        text.push_str(&format!("cannot be told from {}: they do not build or start\n", others.join(", ")));
    }
    if !outcome.why.is_empty() {
        let mut table = Table::new(&[
            ("by transaction", Align::Left),
            ("change", Align::Right),
            ("95 % interval", Align::Right),
        ]);
        for why in outcome.why.iter().take(12) {
            let (change, interval) = match (why.more_us, why.ratio) {
                (Some(more), _) => {
                    (format!("{:+.0} us", more.value), format!("{:+.0} to {:+.0} us", more.low, more.high))
                }
                (None, Some(ratio)) => {
                    (percent(ratio.value), format!("{} to {}", percent(ratio.low), percent(ratio.high)))
                }
                (None, None) => continue,
            };
            table.row([why.what.clone(), change, interval]);
        }
        text.push_str(&format!("\nagainst the build before it:\n{}", table.text()));
    }
    text
}
