//! `plimsoll doctor`.

use sandbox::Home;
use serde_json::{Value, json};
use store::Probe;
use telemetry::doctor::{Fact, State, examine};

use crate::args::DoctorArgs;
use crate::commands::{print, print_data};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{self, number};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let place = args.datadir.clone().unwrap_or_else(|| home.sandboxes());
    if args.datadir.is_some() && !place.is_dir() {
        return Err(Failure::Usage(format!(
            "there is no directory {}: doctor looks at the disk under it, so it has to be there",
            place.display()
        )));
    }
    let facts = examine(&place);
    let known = lab::calibrate::known(&home);
    tell!("looking at the storage under {} (some seconds where it is not known yet)", place.display());
    let probe = lab::watch::storage_probe("default", &place, &home.path().join("probes"), args.refresh);
    if args.json {
        let facts: Vec<Value> = facts
            .iter()
            .map(|fact| {
                json!({"name": fact.name, "state": word(fact.state), "found": fact.found, "meaning": fact.meaning})
            })
            .collect();
        let storage = match &probe {
            Ok(probe) => json!({"tool": probe.tool, "figures": probe.figures, "facts": probe.facts}),
            Err(error) => json!({"error": error.to_string()}),
        };
        let host = lab::host::facts();
        let calibrations: Vec<Value> = known.iter().map(|found| found.json(&host)).collect();
        return print_data(&format!(
            "{}\n",
            json!({"facts": facts, "storage": storage, "calibrations": calibrations})
        ));
    }
    let width = show::width().unwrap_or(100);
    let mut text = screen(&facts, &probe, width, args.long);
    for summary in &known {
        text.push_str(&wrapped("tells", &told(summary), width));
    }
    print(&text)
}

/// What calibrations found.
fn told(summary: &lab::calibrate::Summary) -> String {
    let differences =
        summary.resolvable_text().unwrap_or_else(|| "not known yet: calibrate for longer".to_owned());
    format!(
        "{}: {differences} ({} lives; {} of {} A/A studies called a difference).",
        summary.server, summary.lives, summary.false_verdicts, summary.studies
    )
}

/// One screen: what is as a study wants it in a paragraph, the rest one by one with what it means.
fn screen(facts: &[Fact], probe: &std::io::Result<Probe>, width: usize, is_long: bool) -> String {
    let mut text = String::new();
    let short: Vec<String> = facts
        .iter()
        .filter(|fact| fact.state == State::Good && !is_long)
        .map(|fact| format!("{}: {}", fact.name, fact.found))
        .collect();
    if !short.is_empty() {
        text.push_str(&wrapped("good", &format!("{}.", short.join("; ")), width));
    }
    for fact in facts.iter().filter(|fact| fact.state != State::Good || is_long) {
        let line = format!("{}: {}. {}.", fact.name, fact.found, fact.meaning.trim_end_matches('.'));
        text.push_str(&wrapped(word(fact.state), &line, width));
    }
    let storage = match probe {
        Ok(probe) => {
            let of = |name: &str| probe.facts.get(name).map_or("unknown", String::as_str);
            let figures: Vec<String> = probe
                .figures
                .iter()
                .map(|figure| {
                    let unit =
                        if figure.unit == "1/s" { "/s".to_owned() } else { format!(" {}", figure.unit) };
                    format!("{} {}{unit}", figure.name.replace('_', " "), number(figure.value))
                })
                .collect();
            let notes = probe.facts.get("notes").map_or_else(String::new, |notes| format!("; {notes}"));
            let (filesystem, device) = (of("filesystem"), of("device"));
            format!("{filesystem} on {device}, by {}: {}{notes}.", probe.tool, figures.join(", "))
        }
        Err(error) => format!("could not be measured: {error}."),
    };
    text.push_str(&wrapped("storage", &storage, width));
    text
}

/// Where texts begin.
const INDENT: usize = 9;

/// A word, and beside it a text that is broken between words.
fn wrapped(head: &str, text: &str, width: usize) -> String {
    format!("{head:<INDENT$}{}\n", show::wrapped(text, &" ".repeat(INDENT), Some(width)))
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Limited => "limited",
        State::Absent => "absent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &'static str, state: State) -> Fact {
        let meaning =
            "client and server share cores, and figures include what the client costs; compare servers"
                .into();
        Fact { name, state, found: "2 of them, with a name that takes some room".into(), meaning }
    }

    /// As many of each state as a small virtual machine has, which is the worst place.
    #[test]
    fn one_screen_of_80_by_24_says_it_all() {
        let good = ["user", "clock", "memory", "file limit", "page cache", "cgroups", "fio", "perf"]
            .map(|n| (n, State::Good));
        let limited = ["cores", "cpu frequency", "virtualisation", "I/O limits", "pressure"]
            .map(|n| (n, State::Limited));
        let facts: Vec<Fact> =
            good.into_iter().chain(limited).map(|(name, state)| fact(name, state)).collect();
        let quantity =
            |name: &str| store::Quantity { name: name.to_owned(), value: 123_456.0, unit: "1/s".to_owned() };
        let probe = Probe {
            place: "default".to_owned(),
            path: "/var/lib/plimsoll/sandboxes".to_owned(),
            facts: [("filesystem".to_owned(), "ext4".to_owned()), ("device".to_owned(), "vda".to_owned())]
                .into(),
            tool: "fio-3.33".to_owned(),
            measured_at_ms: 0,
            figures: ["sequential_write", "sequential_read", "random_read_4k", "random_write_4k"]
                .map(quantity)
                .to_vec(),
        };
        let text = screen(&facts, &Ok(probe), 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() <= 24, "{text}");
        assert!(facts.iter().all(|fact| text.contains(fact.name)), "{text}");
        // The long form says what good means, too.
        let long = screen(&facts, &Err(std::io::Error::other("no room")), 80, true);
        let unbroken = long.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(unbroken.matches("compare servers").count(), facts.len(), "{long}");
        assert!(long.contains("could not be measured: no room"));
    }

    #[test]
    fn long_words_stand_alone_and_are_not_cut() {
        assert_eq!(
            wrapped("good", "a bb ccccccccccccccc d", 16),
            "good     a bb\n         ccccccccccccccc\n         d\n"
        );
    }
}
