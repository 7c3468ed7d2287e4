//! Verdicts as a gate: what has to hold so that a command ends well.
//!
//! A gate speaks about every comparison that a study asks for (or of one metric, where it names one), but not about what is
//! switched on and off in a study that compares along another axis. Whatever could not be
//! decided has not been shown, and what has not been shown does not pass: a gate that lets noise through would
//! soon be trusted by nobody.

use stats::Gate;

use crate::model::{StudyReport, VerdictView};
use crate::text::{metric_name, ratio, ratio_ends, would_decide};
use crate::wishes::{table_of, words};

/// How a gate stands against a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateState {
    /// Comparisons that it speaks about. None at all: there is nothing that could pass.
    pub asked: usize,
    /// Of these, the comparisons that rest on runs in doubt.
    pub doubted: usize,
    /// One line for each comparison that does not hold.
    pub unmet: Vec<String>,
    /// One line for each that does.
    pub met: Vec<String>,
}

impl GateState {
    /// Whether it lets the command end well.
    pub fn is_met(&self) -> bool {
        self.asked > 0 && self.unmet.is_empty()
    }
}

/// Holds a gate against all comparisons of some studies of a report.
pub fn check(gate: &Gate, studies: &[StudyReport]) -> GateState {
    let mut state = GateState { asked: 0, doubted: 0, unmet: Vec::new(), met: Vec::new() };
    for study in studies {
        // The comparison that the file asks for comes first.
        let axis =
            study.newest().and_then(|view| view.record.study.comparisons.first().map(|first| &first.axis));
        let asked = study
            .verdicts
            .iter()
            .filter(|view| axis.is_none_or(|axis| *axis == view.axis))
            .filter(|view| gate.metric.as_ref().map_or(view.is_asked, |metric| *metric == view.metric));
        for view in asked {
            state.asked += 1;
            state.doubted += usize::from(!view.doubts.is_empty());
            let is_judged = view.result.p_adjusted.is_some();
            let holds = is_judged && gate.wanted.holds(&view.result);
            let lines = if holds { &mut state.met } else { &mut state.unmet };
            lines.push(line(study, view));
        }
    }
    state
}

impl StudyReport {
    /// What the study itself asks for: `gate` of its `[compare]`, as recorded. None where its file has no such key or
    /// cannot be read (the lab has checked it).
    pub fn gates(&self) -> Vec<Gate> {
        self.newest().map(|view| gates_of(&view.record.study.file_text)).unwrap_or_default()
    }

    /// Blocks that were planned, over all results files; of parts of one plan those of the plan. Verdicts need
    /// [`stats::Rules::blocks_min`].
    pub fn blocks_planned(&self) -> u32 {
        let mut plans: Vec<(&store::Study, u32)> = Vec::new();
        for study in self.records.iter().map(|view| &view.record.study) {
            match plans.iter_mut().find(|(known, _)| known.is_same_plan(study)) {
                Some((_, blocks)) => *blocks = study.blocks.max(*blocks),
                None => plans.push((study, study.blocks)),
            }
        }
        plans.into_iter().map(|(_, blocks)| blocks).sum()
    }
}

fn gates_of(file_text: &str) -> Vec<Gate> {
    let gates = table_of(file_text, "compare").and_then(|compare| compare.get("gate").map(words));
    gates.unwrap_or_default().iter().filter_map(|word| word.parse().ok()).collect()
}

/// A comparison and what is known about it, in a line.
fn line(study: &StudyReport, view: &VerdictView) -> String {
    let mut place = if view.at.is_empty() { String::new() } else { format!(" on {}", view.at) };
    match &view.climb {
        Some(_) => place.push_str(" over the whole climb"),
        None => {
            let sessions = store::counted(study.points[view.other].sessions, "session");
            place.push_str(&format!(" at {sessions}"));
        }
    }
    let result = &view.result;
    let found = match (result.p_adjusted, result.ratio) {
        (Some(_), _) => result.verdict.word().to_owned(),
        (None, Some(_)) => {
            let blocks = store::counted(result.n, "valid block");
            format!("no verdict, {blocks} of at least {}", stats::Rules::default().blocks_min)
        }
        (None, None) => "no verdict, no valid runs on both sides".to_owned(),
    };
    let figure = match (result.ratio, result.low, result.high) {
        (Some(centre), Some(low), Some(high)) => {
            format!(" ({}, {})", ratio(centre), ratio_ends((low, high)))
        }
        _ => String::new(),
    };
    let more = match result.blocks_needed {
        Some(blocks) => format!("; {}", would_decide(blocks, result.n)),
        None => String::new(),
    };
    let metric = metric_name(&view.metric);
    format!("{metric}, {} against {}{place}: {found}{figure}{more}", view.other_label, view.base_label)
}

#[cfg(test)]
mod tests {
    use stats::Wanted;

    use super::*;

    #[test]
    fn a_gate_is_read_and_written_back() {
        for text in ["not-slower", "faster", "p99:equivalent"] {
            assert_eq!(text.parse::<Gate>().map(|gate| gate.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "slower", ":faster", "tps:", "tps:undecided"] {
            assert!(text.parse::<Gate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_study_file_asks_for_one_several_or_none() {
        let gates = |text: &str| -> Vec<String> { gates_of(text).iter().map(Gate::to_string).collect() };
        assert_eq!(gates("[compare]\ngate = \"not-slower\""), ["not-slower"]);
        assert_eq!(gates("[compare]\ngate = [\"p95:faster\", \"equivalent\"]"), ["p95:faster", "equivalent"]);
        assert_eq!(gates("[compare]\naxis = \"server\""), [""; 0]);
        assert_eq!(gates("not [toml"), [""; 0]);
    }

    #[test]
    fn only_what_was_shown_holds() {
        let result = |ratios: [f64; 5]| {
            let samples = |values: [f64; 5]| {
                values.iter().zip(1..).map(|(&value, block)| stats::Sample { block, value }).collect()
            };
            let (base, other) = (samples([1.0; 5]), samples(ratios));
            let question = stats::Question { base, other, better: stats::Better::Higher };
            stats::compare_one(&question, &stats::Rules::default())
        };
        let results = [
            ("faster", result([1.50, 1.52, 1.49, 1.51, 1.50])),
            ("slower", result([0.70, 0.71, 0.69, 0.70, 0.70])),
            ("equivalent", result([1.00, 1.01, 0.99, 1.00, 1.00])),
            ("undecided", result([1.60, 0.60, 1.40, 0.70, 0.90])),
            // Nothing can be said of a difference, but it is not 5 % slower.
            ("a little faster", result([1.10, 0.98, 1.05, 1.00, 1.04])),
        ];
        let holding = |wanted: Wanted| -> Vec<&str> {
            results.iter().filter(|(_, result)| wanted.holds(result)).map(|(name, _)| *name).collect()
        };
        assert_eq!(holding(Wanted::Faster), ["faster"]);
        assert_eq!(holding(Wanted::NotSlower), ["faster", "equivalent", "a little faster"]);
        assert_eq!(holding(Wanted::Equivalent), ["equivalent"]);
    }
}
