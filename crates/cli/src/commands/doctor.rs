//! `plimsoll doctor`.

use sandbox::Home;
use serde_json::{Value, json};
use telemetry::doctor::{State, examine};

use crate::args::DoctorArgs;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::{Align, Table, number};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let place = args.datadir.clone().unwrap_or_else(|| home.sandboxes());
    let facts = examine(&place);
    eprintln!("looking at the storage under {} (some seconds where it is not known yet)", place.display());
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
        return print(&format!("{}\n", json!({"facts": facts, "storage": storage})));
    }
    let mut text = String::new();
    for fact in &facts {
        text.push_str(&format!("{:<8} {:<16} {}\n", word(fact.state), fact.name, fact.found));
        if !fact.meaning.is_empty() {
            text.push_str(&format!("{:25} {}\n", "", fact.meaning));
        }
    }
    match &probe {
        Ok(probe) => {
            let mut table = Table::new(&[("storage", Align::Left), ("", Align::Right), ("", Align::Left)]);
            for figure in &probe.figures {
                table.row([figure.name.replace('_', " "), number(figure.value), figure.unit.clone()]);
            }
            text.push_str(&format!("\n{}measured with {}\n", table.text(), probe.tool));
        }
        Err(error) => text.push_str(&format!("\nthe storage could not be measured: {error}\n")),
    }
    print(&text)
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Limited => "limited",
        State::Absent => "absent",
    }
}
