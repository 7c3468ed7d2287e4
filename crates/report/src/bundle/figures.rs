//! The figures of a report: its JSON without the prose.
//!
//! What a later version words in another way must not make an older bundle wrong, so that no sentence of ours is in it:
//! figures, counts, verdicts, and the names that tell which ones they are.

use serde_json::{Map, Value};

use crate::json;
use crate::model::Report;

/// Texts that are kept, with all that stands below these names.
const NAMES: [&str; 28] = [
    "key",
    "base",
    "other",
    "metric",
    "axis",
    "verdict",
    "method",
    "status",
    "finding",
    "kind",
    "standing",
    "server",
    "workload",
    "options",
    "build",
    "name",
    "fingerprint",
    "boot_id",
    "started_at",
    "ended_at",
    "groups",
    "value",
    "isolation",
    "durability_class",
    "settings_asked",
    "file_sha256",
    "planned_at",
    "row",
];

/// The figures of a report.
pub(crate) fn of(report: &Report) -> Value {
    kept(&json::json(report), false).unwrap_or(Value::Null)
}

/// With those that earlier versions sealed and that are defined otherwise since.
pub(crate) fn of_all_versions(report: &Report) -> Value {
    let mut json = json::json(report);
    json["sections"] = report.studies.iter().map(crate::sections::earlier_json_line).collect();
    kept(&json, false).unwrap_or(Value::Null)
}

/// As they are stored: a line each, so that two of them can be compared by eye.
pub(crate) fn bytes(figures: &Value) -> Vec<u8> {
    let mut text = format!("{figures:#}").into_bytes();
    text.push(b'\n');
    text
}

fn kept(value: &Value, is_name: bool) -> Option<Value> {
    match value {
        Value::String(_) => is_name.then(|| value.clone()),
        Value::Number(number) if number.is_f64() => Some(rounded(number.as_f64()?)),
        Value::Array(all) => {
            // An element that is dropped leaves its place, so that a list keeps its length.
            Some(all.iter().map(|value| kept(value, is_name).unwrap_or(Value::Null)).collect())
        }
        Value::Object(map) => {
            let each = map.iter().filter_map(|(name, value)| {
                let is_name = is_name || NAMES.contains(&name.as_str());
                Some((name.clone(), kept(value, is_name)?))
            });
            Some(Value::Object(each.collect::<Map<_, _>>()))
        }
        other => Some(other.clone()),
    }
}

/// Nine significant digits: logarithms and exponentials of two machines' libraries differ in the last two of seventeen.
fn rounded(figure: f64) -> Value {
    format!("{figure:.8e}").parse::<f64>().map_or(Value::Null, Value::from)
}

/// How many figures there are: everything that is not a list or a map.
pub(crate) fn count(value: &Value) -> usize {
    match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_and_names_are_kept_and_sentences_are_not() {
        let report = json!({"answer": ["a is faster"], "tps": 1.0 / 3.0, "key": {"server": "a", "sessions": 8},
                            "gates": {"errors": {"finding": "held", "detail": "none"}}, "n": 5, "low": null});
        let figures = json!({"answer": [null], "tps": 0.333_333_333, "key": {"server": "a", "sessions": 8},
                             "gates": {"errors": {"finding": "held"}}, "n": 5, "low": null});
        assert_eq!(kept(&report, false).unwrap(), figures);
        assert_eq!(count(&figures), 7);
    }
}
