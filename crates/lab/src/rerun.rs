//! A published study measured here: the same plan with the same seeds, on the same builds.

use std::path::Path;

use store::Store;

use crate::error::Error;
use crate::plan::{Plan, StoredPlan, fingerprint};
use crate::study_run::Request;

/// Records a published study as one that is begun here and not yet measured, so that [`crate::study_run::run_study`] goes
/// on with it: order, seeds and builds are those of its stored plan. A rerun that was begun before goes on.
///
/// # Errors
/// The study's name names no file, its text cannot be read by this version, or nothing can be written to `results`.
pub fn begin(
    published: &store::Study,
    results: &Path,
    only: &[(String, String)],
    command: &str,
    version: &str,
) -> Result<Request, Error> {
    let name = &published.name;
    if !store::is_file_name(name) {
        return Err(Error::Usage(format!(
            "the study is called {name:?}; its report and logs are named after it, and this names no file within the results \
             directory: ask its author for a bundle under another name"
        )));
    }
    let path = format!("{name}.toml");
    let study = crate::study::parse(Path::new(&path), &published.file_text)
        .map_err(|problems| Error::Study(Box::new(problems)))?;
    let mut body = study.body(published.is_quick);
    body.load.blocks = published.blocks.min(body.load.blocks);
    let stored: StoredPlan = serde_json::from_value(published.plan.clone())
        .map_err(|error| Error::Usage(format!("the plan in the bundle cannot be read ({error})")))?;
    // A version that orders runs in another way makes them in its own order.
    let plan = Plan::new(&body, published.is_quick, stored.seed, stored.servers.clone()).stored();
    let is_same_order = plan.begins_with(&stored);
    let plan = if is_same_order { stored } else { plan };
    let row = store::Study {
        plan: serde_json::to_value(&plan).map_err(|error| Error::Run(error.to_string()))?,
        file_path: path,
        // What was left out of the text on its way may be part of what the study means.
        fingerprint: fingerprint(&body, published.is_quick),
        plimsoll_version: version.to_owned(),
        command: command.to_owned(),
        created_at_ms: load::time::unix_ms(),
        ..published.clone()
    };
    let mut store = Store::open(results)?;
    let newest = store.studies()?.into_iter().rev().find(|record| record.study.name == row.name);
    let goes_on = newest.is_some_and(|record| {
        let known = &record.study;
        (known.seed, &known.fingerprint, known.is_quick) == (row.seed, &row.fingerprint, row.is_quick)
    });
    if !goes_on {
        let id = store.add_study(&row)?;
        let note = format!(
            "this measures again what was planned on {} by plimsoll {}{}",
            crate::study::units::utc(published.created_at_ms),
            published.plimsoll_version,
            if is_same_order { "" } else { ", whose order of runs this version does not make" }
        );
        store.add_note(id, load::time::unix_ms(), &note)?;
    }
    Ok(Request {
        study,
        results: results.to_owned(),
        quick: published.is_quick,
        only: only.to_vec(),
        part: None,
        new: false,
        command: command.to_owned(),
        version: version.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(name: &str) -> store::Study {
        let text =
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n";
        let study = crate::study::parse(Path::new("s.toml"), text).unwrap();
        let body = study.body(false);
        let plan = Plan::new(&body, false, 7, Vec::new());
        store::Study {
            name: name.to_owned(),
            title: study.title.clone(),
            question: study.question.clone(),
            file_path: "s.toml".to_owned(),
            file_text: text.to_owned(),
            file_sha256: study.file_sha256.clone(),
            fingerprint: fingerprint(&body, false),
            plan: serde_json::to_value(plan.stored()).unwrap(),
            axes: Vec::new(),
            comparisons: Vec::new(),
            blocks: plan.blocks(),
            runs: plan.runs.len() as u32,
            is_quick: false,
            seed: 7,
            plimsoll_version: "0".to_owned(),
            command: String::new(),
            created_at_ms: 0,
        }
    }

    #[test]
    fn a_strangers_name_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r");
        let begun = |name: &str| begin(&published(name), &results, &[], "plimsoll rerun", "0");
        for name in ["../../x", "/tmp/x", "a/b", "a/", "..", ".", "", "a\0b"] {
            let Err(Error::Usage(why)) = begun(name) else { panic!("{name:?} is taken") };
            assert!(why.contains(&format!("{name:?}")) && why.contains("names no file"), "{why}");
            assert!(!results.exists(), "{name:?} has begun");
        }
        assert_eq!(begun("tiny..x").unwrap().study.name, "tiny..x");
        assert!(results.join(store::FILE_NAME).is_file());
    }
}
