//! Recomputing a bundle's figures and holding them against what it says.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use store::Study;
use store::bundle::{BundleError, FIGURES, INDEX, Limits, Manifest, Member, STUDY, WORKLOADS, index_of};

use super::{Opened, author, figures, hash_of, lines, planned_hash, report_of, sound, study_of};
use crate::error::Error;

/// A figure that is not what was stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Different {
    /// Its way through the figures: `comparisons[0].ratio`; or the run whose parts contradict each other.
    pub where_: String,
    /// As the bundle has it.
    pub stored: Value,
    /// As it comes out of what was measured.
    pub recomputed: Value,
}

/// Who stands for a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// Nobody signed.
    None,
    /// A key of this fingerprint signed the manifest.
    Good(String),
    /// There is one, and it is not of this manifest.
    Bad,
}

impl Signature {
    /// The word of the JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Signature::None => "none",
            Signature::Good(_) => "good",
            Signature::Bad => "bad",
        }
    }
}

/// What a look at a bundle has shown.
#[derive(Debug)]
pub struct Proof {
    /// What the bundle says of itself; `None` where it could not be opened.
    pub manifest: Option<Manifest>,
    pub signature: Signature,
    /// Figures that it stores, and that were computed again.
    pub figures: usize,
    pub different: Vec<Different>,
    /// What of it is not proved, a sentence each.
    pub unproved: Vec<String>,
    /// Why it could not be looked at in full.
    pub refused: Option<String>,
}

impl Proof {
    /// All figures are those of what was measured, and nothing was changed since it was sealed.
    pub fn is_verified(&self) -> bool {
        self.refused.is_none() && self.different.is_empty() && self.signature != Signature::Bad
    }

    /// What it means that a bundle verifies.
    pub const PROVES: &'static str = "every figure is the one that comes out of the stored histograms and seconds, \
         these agree with the totals of their runs, and nothing was changed since it was sealed";
    /// What it cannot mean.
    pub const CANNOT: &'static str = "that the measurements took place as stored: whoever invents consistent ones (or \
         seconds without a transaction) can seal them. A signature says whose word it is; `plimsoll rerun` measures again";

    fn refused(signature: Signature, why: &dyn std::fmt::Display) -> Proof {
        let refused = Some(why.to_string());
        Proof { manifest: None, signature, figures: 0, different: vec![], unproved: vec![], refused }
    }

    /// The JSON of `verify`, as the command line's contract has it.
    pub fn json(&self) -> Value {
        let different: Vec<Value> = self
            .different
            .iter()
            .map(|d| serde_json::json!({"where": d.where_, "stored": d.stored, "recomputed": d.recomputed}))
            .collect();
        let signer = match &self.signature {
            Signature::Good(signer) => Some(signer),
            Signature::None | Signature::Bad => None,
        };
        serde_json::json!({
            "schema": 2, "verified": self.is_verified(), "figures": self.figures, "different": different,
            "signature": self.signature.word(), "signer": signer, "refused": self.refused,
            "study": self.manifest.as_ref().map(|manifest| &manifest.study),
            "format": self.manifest.as_ref().map(|manifest| manifest.format),
            "proves": Proof::PROVES, "cannot_prove": Proof::CANNOT, "unproved": self.unproved,
        })
    }
}

/// Looks at a bundle in full: the seal, the manifest, the signature, then every figure anew from what was measured.
pub fn verify(bytes: &[u8], limits: &Limits) -> Proof {
    let opened = match Opened::new(bytes, Path::new("results.db"), limits) {
        Ok(opened) => opened,
        Err(error) => {
            let is_signature = matches!(&error, BundleError::Refused(why) if why.contains("signature"));
            let signature = if is_signature { Signature::Bad } else { Signature::None };
            return Proof::refused(signature, &error);
        }
    };
    let signature = opened.signer.clone().map_or(Signature::None, Signature::Good);
    let mut unproved = Vec::new();
    match compared(&opened, &mut unproved) {
        Ok((figures, different)) => {
            Proof { manifest: Some(opened.manifest), signature, figures, different, unproved, refused: None }
        }
        Err(error) => Proof { manifest: Some(opened.manifest), ..Proof::refused(signature, &error) },
    }
}

fn compared(opened: &Opened, unproved: &mut Vec<String>) -> Result<(usize, Vec<Different>), Error> {
    let bundle = |why: String| super::refused(BundleError::Refused(why));
    let stored = opened.member(FIGURES).ok_or_else(|| bundle("it has no figures".to_owned()))?;
    let recomputed = figures::of_all_versions(&report_of(&opened.results)?);
    if stored.len() > LONGER_MAX * figures::bytes(&recomputed).len() {
        return Err(bundle(format!("{FIGURES} is longer than the figures of what was measured")));
    }
    let stored: Value = serde_json::from_slice(stored)
        .map_err(|error| bundle(format!("{FIGURES} cannot be read: {error}")))?;
    if let Some(name) = ALWAYS.iter().find(|name| !stored.get(name).is_some_and(Value::is_array)) {
        return Err(bundle(format!("{FIGURES} has no {name}")));
    }
    opened.calibrations().map_err(super::refused)?;
    let mut different = Vec::new();
    compare(&stored, Some(&recomputed), &mut String::new(), &mut different);

    let study = study_of(&opened.results)?;
    let mut same = |where_: &str, stored: Value, recomputed: Value| {
        if stored != recomputed {
            let (stored, recomputed) = (shown(&stored), shown(&recomputed));
            different.push(Different { where_: where_.to_owned(), stored, recomputed });
        }
    };
    let text = opened.member(STUDY).map(|text| String::from_utf8_lossy(text).into_owned());
    same(STUDY, text.into(), study.file_text.clone().into());
    let manifest = &opened.manifest;
    same("manifest.study", manifest.study.clone().into(), study.name.clone().into());
    let json = |author: &store::bundle::Author| serde_json::to_value(author).unwrap_or_default();
    same("manifest.author", json(&manifest.author), json(&author(&study.file_text)));

    workloads(opened, &study, &mut different, unproved).map_err(super::refused)?;
    different.extend(sound::contradictions(&opened.results)?);
    let searches = opened.results.line_searches()?;
    different.extend(lines::contradictions(&searches));
    unproved.extend(lines::unproved(&searches));
    Ok((figures::count(&stored), different))
}

/// Holds the files of workloads against the hashes of the plan. Where something private was replaced in them they cannot be
/// what it says, which is told; a file that no workload is made of is none of ours.
fn workloads(
    opened: &Opened,
    study: &Study,
    different: &mut Vec<Different>,
    unproved: &mut Vec<String>,
) -> Result<(), BundleError> {
    let files = |(name, _): &&Member| name.starts_with(WORKLOADS) && name != INDEX;
    let Some(index) = index_of(&opened.members)? else {
        // Versions before the index sealed some files by their names alone.
        if opened.members.iter().any(|member| files(&member)) {
            unproved
                .push("its workload files were sealed without what leads from the plan to them".to_owned());
        }
        return Ok(());
    };
    for workload in &index {
        let name = &workload.workload;
        let is_once = index.iter().filter(|other| other.workload == *name).count() == 1;
        let planned = planned_hash(study, name).filter(|_| is_once);
        let found = hash_of(workload, &opened.members);
        if found.is_some() && planned.is_some() && workload.is_changed {
            unproved.push(format!(
                "workload {name:?} is as it was run but for what is private: that was replaced in its files or their names"
            ));
        } else if found.is_none() || found != planned {
            different.push(Different {
                where_: format!("{INDEX}: the files of {name:?}"),
                stored: found.into(),
                recomputed: planned.into(),
            });
        }
    }
    let is_of = |name: &String| index.iter().flat_map(|it| &it.files).any(|file| file.member == *name);
    for (name, _) in opened.members.iter().filter(files).filter(|(name, _)| !is_of(name)) {
        different.push(Different {
            where_: name.clone(),
            stored: "a file".into(),
            recomputed: "none: no workload is made of it".into(),
        });
    }
    Ok(())
}

/// What makes a comparison this one.
const COMPARISON: [&str; 5] = ["metric", "axis", "base", "other", "climb"];
/// What figures of every version have.
const ALWAYS: [&str; 3] = ["studies", "cells", "comparisons"];
/// What names a row of a section's table.
const ROW: &str = "row";
/// Figures of another version may be longer than those of this one, but not that much.
const LONGER_MAX: usize = 4;
/// Of a value that is shown; a forged one may be of any length.
const SHOWN_MAX: usize = 200;

/// Every figure that is stored must come out again, to the letter. Later versions may compute more of them and compare
/// more, but never have more runs or cells. `None` where nothing has the name.
fn compare(stored: &Value, recomputed: Option<&Value>, path: &mut String, out: &mut Vec<Different>) {
    let length = path.len();
    match (stored, recomputed) {
        (Value::Object(one), Some(Value::Object(other))) => {
            for (name, value) in one {
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(name);
                compare(value, other.get(name), path, out);
                path.truncate(length);
            }
        }
        (Value::Array(one), Some(Value::Array(other))) if path == "comparisons" => {
            let mut rest = other.iter();
            for (at, value) in one.iter().enumerate() {
                let is_same =
                    |other: &&Value| COMPARISON.iter().all(|name| other.get(name) == value.get(name));
                path.push_str(&format!("[{at}]"));
                compare(value, rest.find(is_same), path, out);
                path.truncate(length);
            }
        }
        (Value::Array(one), Some(Value::Array(other))) if one.iter().any(|row| row.get(ROW).is_some()) => {
            compare_rows(one, other, path, out);
        }
        (Value::Array(one), Some(Value::Array(other))) if one.len() == other.len() => {
            for (at, (value, other)) in one.iter().zip(other).enumerate() {
                path.push_str(&format!("[{at}]"));
                compare(value, Some(other), path, out);
                path.truncate(length);
            }
        }
        (stored, Some(recomputed)) if stored == recomputed => {}
        _ => out.push(Different {
            where_: cut(path),
            stored: shown(stored),
            recomputed: recomputed.map_or_else(|| "nothing".into(), shown),
        }),
    }
}

/// Rows of a table are told apart by what names them, so that one that is missing is told as that. Those of names that are
/// not there are held against each other in their order: a later version may call them otherwise.
fn compare_rows(stored: &[Value], recomputed: &[Value], path: &mut String, out: &mut Vec<Different>) {
    let length = path.len();
    let mut others: Vec<Option<&Value>> = recomputed.iter().map(Some).collect();
    let mut pairs: Vec<(usize, &Value, Option<&Value>)> = Vec::new();
    for (at, row) in stored.iter().enumerate() {
        let is_same = |other: &Value| row.get(ROW).is_some() && other.get(ROW) == row.get(ROW);
        pairs.push((at, row, taken(&mut others, is_same)));
    }
    for (at, row, found) in &mut pairs {
        if found.is_none() && stored.len() == recomputed.len() {
            *found = taken(&mut others, |_| true);
        }
        let name = row.get(ROW).and_then(Value::as_str).map(|name| format!(" ({name})"));
        path.push_str(&format!("[{at}]{}", name.unwrap_or_default()));
        match found {
            Some(_) => compare(&without_name(row), *found, path, out),
            None => compare(row, None, path, out),
        }
        path.truncate(length);
    }
    for row in others.into_iter().flatten() {
        let name = row.get(ROW).and_then(Value::as_str).unwrap_or_default();
        out.push(Different {
            where_: cut(&format!("{path}[] ({name})")),
            stored: "nothing".into(),
            recomputed: shown(row),
        });
    }
}

/// The first that it is, which nobody else gets.
fn taken<'a>(others: &mut [Option<&'a Value>], is_it: impl Fn(&Value) -> bool) -> Option<&'a Value> {
    others.iter_mut().find(|other| other.is_some_and(&is_it)).and_then(Option::take)
}

fn without_name(row: &Value) -> Value {
    let mut row = row.clone();
    row.as_object_mut().and_then(|row| row.remove(ROW));
    row
}

fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() <= SHOWN_MAX => value.clone(),
        Value::String(text) => cut(text).into(),
        Value::Array(all) => format!("a list of {}", all.len()).into(),
        Value::Object(all) => format!("{} names", all.len()).into(),
        value => value.clone(),
    }
}

fn cut(text: &str) -> String {
    let kept: String = text.chars().take(SHOWN_MAX).collect();
    if kept.len() < text.len() { format!("{kept}…") } else { kept }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn different(stored: &Value, recomputed: &Value) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        compare(stored, Some(recomputed), &mut String::new(), &mut found);
        found.into_iter().map(|one| (one.where_, one.recomputed)).collect()
    }

    #[test]
    fn rows_are_matched_by_what_names_them() {
        let row = |name: &str, tps: f64| json!({"row": name, "tps": tps});
        let table = |rows: &[Value]| json!({"places": [{"rows": rows}]});
        let (a, b, c) = (row("a, 8", 1.0), row("b, 8", 2.0), row("b, 16", 3.0));
        let all = table(&[a.clone(), b.clone(), c.clone()]);
        assert_eq!(different(&all, &all), []);
        // One that is missing on either side is told as that, and those after it are the same.
        let missing = different(&table(&[a.clone(), c.clone()]), &all);
        assert_eq!(missing, [("places[0].rows[] (b, 8)".to_owned(), json!("2 names"))]);
        let more = different(&all, &table(&[b.clone(), c.clone()]));
        assert_eq!(more, [("places[0].rows[0] (a, 8)".to_owned(), json!("nothing"))]);
        let changed = different(&table(&[a.clone(), row("b, 8", 9.0), c.clone()]), &all);
        assert_eq!(changed, [("places[0].rows[1] (b, 8).tps".to_owned(), json!(2.0))]);
        // Of another version: other words, the same figures.
        assert_eq!(different(&table(&[row("old words", 1.0), b, c]), &all), []);
        // Of one without names.
        let bare = |tps: f64| json!({"tps": tps});
        assert_eq!(different(&table(&[bare(1.0), bare(2.0), bare(3.0)]), &all), []);
        assert_eq!(different(&table(&[bare(1.0), bare(2.0), bare(4.0)]), &all).len(), 1);
        assert_eq!(different(&table(&[bare(1.0)]), &all).len(), 1);
    }
}
