//! `--only`: which runs of the plan are made.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::plan::{Plan, PlannedRun};
use crate::study::one_of;

/// The runs that `--only` leaves: those with one of the values given for each axis that is named.
pub(super) fn choose(plan: &Plan, only: &[(String, String)]) -> Result<Vec<PlannedRun>, Error> {
    let mut chosen = plan.runs.clone();
    let mut wanted: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    only.iter().for_each(|(axis, value)| wanted.entry(axis).or_default().push(value));
    for (axis, wanted) in wanted {
        let values = |run: &PlannedRun| -> Vec<String> {
            match axis {
                "sessions" | "climb" => run.levels.iter().map(u32::to_string).collect(),
                "block" => vec![run.block.to_string()],
                "server" => {
                    let pinned = &plan.servers[plan.cells[run.cell].server];
                    let flavor = pinned.name.split(['@', '+']).next().unwrap_or_default();
                    vec![pinned.name.clone(), pinned.selector.clone(), flavor.to_owned()]
                }
                axis => plan.key(run).get(axis).cloned().into_iter().collect(),
            }
        };
        let mut known: Vec<String> = plan.runs.iter().flat_map(&values).collect();
        known.sort();
        known.dedup();
        if known.is_empty() {
            let mut axes: Vec<String> =
                plan.runs.first().map(|run| plan.key(run).into_keys().collect()).unwrap_or_default();
            axes.extend(["sessions".to_owned(), "block".to_owned()]);
            let names = axes.iter().map(String::as_str);
            let hint = wire::spelling::nearest(axis, names.clone())
                .map_or_else(|| one_of(names), |near| format!("did you mean `{near}`?"));
            return Err(Error::Usage(format!(
                "--only {axis}={}: `{axis}` is not an axis of this study: {hint}",
                wanted[0]
            )));
        }
        if let Some(value) = wanted.iter().find(|value| !known.contains(value)) {
            let names = known.iter().map(String::as_str);
            let asked = wire::mask::value(value);
            return Err(Error::Usage(format!("--only {axis}={asked}: the axis has {}", one_of(names))));
        }
        chosen.retain(|run| values(run).iter().any(|value| wanted.contains(&value)));
    }
    if chosen.is_empty() {
        return Err(Error::Usage("--only leaves no run of this study".into()));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::super::pins::pin;
    use super::*;

    #[test]
    fn only_takes_alternatives_on_one_axis_and_all_of_several_axes() {
        let text = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\n\
                    workload = \"oltp_read_only\"\nsessions = [1, 8, 64]\n[load]\nblocks = 1\n";
        let study = crate::study::parse(std::path::Path::new("s.toml"), text).unwrap();
        let servers = ["mariadb@10.11.1", "postgres@16.1"];
        let pins = servers.map(|name| pin(name, None, name, "x")).to_vec();
        let plan = Plan::new(&study.body, false, 1, pins);
        let chosen = |only: &[(&str, &str)]| -> Result<Vec<(usize, u32)>, String> {
            let only: Vec<(String, String)> =
                only.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect();
            let mut runs: Vec<(usize, u32)> = choose(&plan, &only)
                .map_err(|error| error.to_string())?
                .iter()
                .map(|run| (run.cell, run.levels[0]))
                .collect();
            runs.sort_unstable();
            Ok(runs)
        };
        assert_eq!(
            chosen(&[("sessions", "1"), ("sessions", "64")]).unwrap(),
            [(0, 1), (0, 64), (1, 1), (1, 64)]
        );
        assert_eq!(
            chosen(&[("sessions", "1"), ("server", "postgres"), ("sessions", "8")]).unwrap(),
            [(1, 1), (1, 8)]
        );
        assert!(
            chosen(&[("sessions", "1"), ("sessions", "9")])
                .unwrap_err()
                .contains("sessions=9: the axis has 1")
        );
    }
}
