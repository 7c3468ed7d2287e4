//! A study as the check of a pull request: JUnit, a summary in Markdown, annotations.

use std::fmt::Write;

use stats::Gate;

use crate::gate::{GateState, check};
use crate::history::xml;
use crate::markdown::plain;
use crate::model::StudyReport;

/// How each gate stands against the studies.
fn states(gates: &[Gate], studies: &[StudyReport]) -> Vec<(String, GateState)> {
    gates.iter().map(|gate| (gate.to_string(), check(gate, studies))).collect()
}

/// JUnit: a test for each comparison that a gate asks about.
pub fn junit(gates: &[Gate], studies: &[StudyReport]) -> String {
    let mut suites = String::new();
    for (gate, state) in states(gates, studies) {
        let name = xml(&format!("plimsoll {gate}"));
        let (tests, failures) = (state.asked, state.unmet.len());
        let _ = writeln!(
            suites,
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">"
        );
        for line in &state.met {
            let _ =
                writeln!(suites, "    <testcase classname=\"{name}\" name=\"{}\"/>", xml(comparison(line)));
        }
        for line in &state.unmet {
            let _ = writeln!(
                suites,
                "    <testcase classname=\"{name}\" name=\"{}\">\n      <failure message=\"{}\"/>\n    </testcase>",
                xml(comparison(line)),
                xml(line)
            );
        }
        suites.push_str("  </testsuite>\n");
    }
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

/// What a line speaks about, without what was found: the same from run to run.
fn comparison(line: &str) -> &str {
    line.split_once(": ").map_or(line, |(comparison, _)| comparison)
}

/// A summary in Markdown, as GitHub's step summary and GitLab's comments take it.
pub fn summary(gates: &[Gate], studies: &[StudyReport]) -> String {
    let mut text = String::new();
    for study in studies {
        let _ = writeln!(text, "## {}\n\n{}\n", plain(study.title.trim()), plain(study.question.trim()));
        for sentence in &study.answer {
            let _ = writeln!(text, "- {}", plain(&sentence.text));
        }
        text.push('\n');
    }
    if gates.is_empty() {
        text.push_str("No gate was asked for.\n");
    }
    for (gate, state) in states(gates, studies) {
        let found = match (state.is_met(), state.unmet.len()) {
            (true, _) => "met".to_owned(),
            (false, unmet) => {
                format!("**not met** by {unmet} of {}", store::counted(state.asked, "comparison"))
            }
        };
        let _ = writeln!(text, "Gate `{gate}`: {found}\n");
        for line in &state.unmet {
            let _ = writeln!(text, "- ❌ {}", plain(line));
        }
        for line in &state.met {
            let _ = writeln!(text, "- ✅ {}", plain(line));
        }
        text.push('\n');
    }
    text
}

/// Lines that GitHub Actions shows beside the pull request: an error for each comparison that does not hold.
pub fn annotations(gates: &[Gate], studies: &[StudyReport]) -> Vec<String> {
    let of_gate = |(gate, state): (String, GateState)| {
        let lines = state.unmet.into_iter();
        lines.map(move |line| format!("::error title={}::{}", escaped(&gate, true), escaped(&line, false)))
    };
    states(gates, studies).into_iter().flat_map(of_gate).collect()
}

/// Text within a workflow command, as GitHub's toolkit escapes it.
fn escaped(text: &str, is_property: bool) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    if is_property { text.replace(':', "%3A").replace(',', "%2C") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflow_commands_end_where_they_should() {
        assert_eq!(escaped("p95:not-slower, 5 %\nx", true), "p95%3Anot-slower%2C 5 %25%0Ax");
        assert_eq!(escaped("a: b, 5 %", false), "a: b, 5 %25");
        assert_eq!(comparison("TPS, b against a on x: slower (x 0.9)"), "TPS, b against a on x");
    }
}
