//! The first study of a newcomer, made again and again: how long it takes, and how much of what it asks it decides, on this
//! machine as it is and beside a neighbour that loads it in random bursts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::ArgAction;
use clap::builder::BoolishValueParser;
use sandbox::Home;
use stats::Verdict;

use super::{duels, whole_study};

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// `on` or `off`.
    #[arg(long, default_value = "off", action = ArgAction::Set)]
    #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    neighbour: bool,
    #[arg(long)]
    results: Option<PathBuf>,
}

/// What is asked for: the share of the primary questions that get a verdict, and in what time.
struct Wanted {
    decided_share: f64,
    limit: Duration,
}

const QUIET: Wanted = Wanted { decided_share: 0.95, limit: Duration::from_secs(300) };
const BESIDE_NEIGHBOUR: Wanted = Wanted { decided_share: 0.80, limit: Duration::from_secs(480) };

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { times, neighbour: has_neighbour, results } = crate::asked("bench quickstart", arguments);
    let home = Home::find()?;
    // Builds are not part of the time.
    for server in ["mariadb", "postgres"] {
        duels::build(&home, server)?;
    }
    let folder = tempfile::tempdir()?;
    let results = results.unwrap_or_else(|| folder.path().join("results"));
    let wanted = if has_neighbour { BESIDE_NEIGHBOUR } else { QUIET };
    let at_work = has_neighbour.then(|| duels::neighbour(folder.path())).transpose()?;
    let (mut asked, mut decided, mut longest) = (0, 0, Duration::ZERO);
    let mut answers: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
    for time in 1..=times {
        let (took, found) = once(&home, &results.join(time.to_string()))?;
        println!("{time} of {times}: {:.0} s", took.as_secs_f64());
        longest = longest.max(took);
        for (question, verdict, text) in found {
            println!("  {text}");
            asked += 1;
            if verdict != Verdict::Undecided {
                decided += 1;
                answers.entry(question).or_default().push(verdict);
            }
        }
    }
    drop(at_work);
    let is_same = answers.values().all(|verdicts| verdicts.iter().all(|one| *one == verdicts[0]));
    let share = f64::from(decided) / f64::from(asked.max(1));
    println!(
        "{decided} of {asked} primary questions decided ({:.0} %, asked for: {:.0} %), the longest study {:.0} s (at most {:.0} s), \
         answers {}",
        100.0 * share,
        100.0 * wanted.decided_share,
        longest.as_secs_f64(),
        wanted.limit.as_secs_f64(),
        if is_same { "the same each time" } else { "NOT the same each time" }
    );
    Ok(asked > 0 && share >= wanted.decided_share && longest <= wanted.limit && is_same)
}

/// A primary question, its verdict, and both in words.
type Found = (String, Verdict, String);

/// The whole study, in a folder of its own.
fn once(home: &Home, results: &Path) -> Result<(Duration, Vec<Found>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../studies/quickstart.toml");
    let (took, study) = whole_study::made(home, &path, results, "quickstart")?;
    let primary = study.verdicts.iter().filter(|verdict| verdict.is_asked && verdict.is_primary);
    let found = primary.map(|verdict| {
        let (question, result) = (study.verdict_name(verdict), &verdict.result);
        let ratio = result.ratio.map_or_else(|| "no ratio".to_owned(), report::ratio);
        let text = format!("{question}: {} ({ratio}, {} blocks)", result.verdict.word(), result.n);
        (question, result.verdict, text)
    });
    Ok((took, found.collect()))
}
