//! A study in the results file: as it is written when it begins, and found again when it goes on.

use std::collections::BTreeMap;
use std::path::Path;

use store::{Purpose, RunHead, Status, Store, StudyId, StudyRecord};

use crate::error::Error;
use crate::plan::{Plan, StoredPlan, fingerprint, workload_files};
use crate::study::{Body, Compare, Primary};
use crate::study_run::Request;

/// The newest study of that name, if it is to be gone on with.
pub(crate) fn unfinished(
    store: &Store,
    request: &Request,
    body: &Body,
) -> Result<Option<StudyRecord>, Error> {
    let studies = store.studies()?;
    let newest = studies
        .into_iter()
        .rev()
        .find(|record| record.study.name == request.study.name && record.study.is_quick == request.quick);
    let Some(record) = newest else { return Ok(None) };
    // More blocks than before leave the study what it is.
    let mut as_before = body.clone();
    as_before.load.blocks = record.study.blocks.min(body.load.blocks);
    if record.study.fingerprint == fingerprint(&as_before, request.quick) {
        return Ok(Some(record));
    }
    let heads = store.run_heads(record.id)?;
    let stands = standing(&heads);
    let open =
        (0..record.study.runs).any(|index| !stands.get(&index).is_some_and(|head| is_ended(head.status)));
    if !open {
        return Ok(None);
    }
    Err(Error::Changed {
        what: changed(&record, request, body),
        when: crate::study::units::utc(record.study.created_at_ms),
    })
}

/// The study file, or the files of its workloads, whichever is not what the study was planned from.
fn changed(record: &StudyRecord, request: &Request, body: &Body) -> String {
    let file = request.study.path.display().to_string();
    let stored = serde_json::from_value::<StoredPlan>(record.study.plan.clone()).ok();
    let before = stored.map(|plan| plan.workloads).unwrap_or_default();
    let now = workload_files(body);
    let mut files: Vec<String> = now
        .iter()
        .filter(|(path, hash)| before.get(*path).is_some_and(|known| known != *hash))
        .map(|(path, _)| format!("{path}, a workload of {file},"))
        .collect();
    if record.study.file_sha256 != request.study.file_sha256 {
        files.push(file);
    } else if files.is_empty() {
        files.push(format!("what plimsoll makes of {file}"));
    }
    files.join(" and ")
}

/// The last attempt of each run of the plan.
pub(crate) fn standing(heads: &[RunHead]) -> BTreeMap<u32, &RunHead> {
    let mut last: BTreeMap<u32, &RunHead> = BTreeMap::new();
    for head in heads.iter().filter(|head| head.start.purpose == Purpose::Measure) {
        let newer = last.get(&head.start.index).is_none_or(|known| known.attempt <= head.attempt);
        if newer {
            last.insert(head.start.index, head);
        }
    }
    last
}

/// How the runs of a plan stand by their last attempts. What an earlier version called invalid for the behaviour of the
/// server alone counts, as it does in reports.
pub(crate) fn statuses(store: &Store, heads: &[RunHead]) -> Result<BTreeMap<u32, Status>, Error> {
    let status_of = |head: &RunHead| -> Result<Status, Error> {
        if head.status != Status::Invalid {
            return Ok(head.status);
        }
        let gates = store.run(head.id)?.end.map(|end| end.gates).unwrap_or_default();
        let is_lost = gates.is_empty() || gates.iter().any(store::Gate::excludes);
        Ok(if is_lost { Status::Invalid } else { Status::Done })
    };
    standing(heads).into_iter().map(|(index, head)| Ok((index, status_of(head)?))).collect()
}

/// How often a run of the plan was begun.
pub(crate) fn attempts(store: &Store, study: StudyId, index: u32, purpose: Purpose) -> Result<usize, Error> {
    let heads = store.run_heads(study)?;
    Ok(heads.iter().filter(|head| head.start.index == index && head.start.purpose == purpose).count())
}

/// Came to an end, good or bad.
pub(crate) fn is_ended(status: Status) -> bool {
    matches!(status, Status::Done | Status::Invalid | Status::Failed)
}

/// The plan of a study that goes on.
pub(crate) fn planned_before(record: &StudyRecord, body: &Body, quick: bool) -> Result<Plan, Error> {
    let stored: StoredPlan = serde_json::from_value(record.study.plan.clone()).map_err(|error| {
        Error::Usage(format!("the stored plan cannot be read ({error}): begin anew with --new"))
    })?;
    let plan = Plan::new(body, quick, stored.seed, stored.servers.clone());
    if plan.stored().begins_with(&stored) {
        return Ok(plan);
    }
    Err(Error::Usage(format!(
        "this study was planned by plimsoll {}, whose order of runs this one does not make: finish it with that one, \
         or begin anew with --new",
        record.study.plimsoll_version
    )))
}

/// What a reader of a new record has to know of the one before it: a question that is asked until the answer pleases has not
/// been answered. `None` where there is none that compares anything.
pub(crate) fn earlier(store: &Store, new: StudyId) -> Result<Option<String>, Error> {
    let studies = store.studies()?;
    let Some(record) = studies.iter().find(|record| record.id == new) else { return Ok(None) };
    let is_same = |known: &&StudyRecord| {
        (&known.study.name, known.study.is_quick) == (&record.study.name, record.study.is_quick)
    };
    let Some(known) = studies.iter().rev().filter(is_same).find(|known| known.id != new) else {
        return Ok(None);
    };
    let (decided, open) = crate::ending::decided_and_open(store, known.id)?;
    Ok((decided + open > 0).then(|| {
        format!(
            "an earlier record of this study, begun {}: {decided} of {} comparisons have a verdict; whoever shows one of the \
             two shows both",
            crate::study::units::utc(known.study.created_at_ms),
            decided + open
        )
    }))
}

/// Whoever moves a study's end may have seen what it says so far, and so chosen where it ends: that is no last look
/// ([`stats::Rules::is_over`]). It has none then, as if it had been over before its first run.
pub(crate) fn keep_to_its_end(
    store: &mut Store,
    record: &StudyRecord,
    body: &Body,
    quick: bool,
) -> Result<(), Error> {
    let planned = crate::study::parse(Path::new(&record.study.file_path), &record.study.file_text);
    let end = |body: &Body| (body.load.blocks, body.load.until);
    if planned.is_ok_and(|planned| end(&planned.body(quick)) == end(body)) {
        return Ok(());
    }
    Ok(store.end_study(record.id, record.study.created_at_ms)?)
}

/// Gives a recorded study the blocks that its file has got since. Its verdicts may have been seen before, so from now on
/// they are judged as those of a study that is watched.
pub(crate) fn grow(
    store: &mut Store,
    request: &Request,
    body: &Body,
    plan: &Plan,
    record: &StudyRecord,
) -> Result<(), Error> {
    let mut grown = study_row(request, body, plan)?;
    grown.comparisons.iter_mut().for_each(|comparison| comparison.is_watched = true);
    store.grow_study(record.id, &grown)?;
    let note = format!(
        "{} planned, and {} from {} on; verdicts are by tests that allow for looks after each block",
        match record.study.blocks {
            1 => "1 block was".to_owned(),
            blocks => format!("{blocks} blocks were"),
        },
        grown.blocks,
        crate::study::units::utc(load::time::unix_ms())
    );
    Ok(store.add_note(record.id, load::time::unix_ms(), &note)?)
}

pub(crate) fn study_row(request: &Request, body: &Body, plan: &Plan) -> Result<store::Study, Error> {
    let study = &request.study;
    let axes = crate::cells::axes(body, plan);
    let asked = body.comparisons();
    let comparisons = asked.iter().map(|compare| store::Comparison {
        axis: compare.axis.clone(),
        base: base_of(compare, body, plan).into(),
        metrics: compare.metrics.clone(),
        margin: compare.margin,
        primary: compare.primary.as_ref().map(|primary| stored_primary(primary, body, plan)),
        is_watched: body.load.until.is_some(),
    });
    Ok(store::Study {
        name: study.name.clone(),
        title: study.title.clone(),
        question: study.question.clone(),
        file_path: study.path.display().to_string(),
        file_text: study.text.clone(),
        file_sha256: study.file_sha256.clone(),
        fingerprint: fingerprint(body, request.quick),
        plan: serde_json::to_value(plan.stored()).map_err(|error| Error::Run(error.to_string()))?,
        axes,
        comparisons: comparisons.collect(),
        blocks: plan.blocks(),
        runs: plan.runs.len() as u32,
        is_quick: request.quick,
        seed: plan.seed,
        plimsoll_version: request.version.clone(),
        command: request.command.clone(),
        created_at_ms: load::time::unix_ms(),
    })
}

/// The value that a comparison starts from, as cells' keys have it.
pub(crate) fn base_of(compare: &Compare, body: &Body, plan: &Plan) -> String {
    match (compare.axis.as_str(), crate::study::position_on_axis(&body.axes, compare)) {
        ("server", Some(index)) => plan.servers[index].name.clone(),
        _ => compare.base.clone(),
    }
}

/// What the study is about, in the values that cells have in the results file.
fn stored_primary(primary: &Primary, body: &Body, plan: &Plan) -> store::Primary {
    let value = |axis: &str, value: &String| -> serde_json::Value {
        let of_axis = crate::study::axis_values(&body.axes, axis);
        let at = of_axis.iter().position(|names| names.contains(value));
        match (axis, at) {
            ("server", Some(at)) => plan.servers[at].name.clone().into(),
            ("sessions", _) => value.parse::<u32>().map_or(value.clone().into(), Into::into),
            _ => value.clone().into(),
        }
    };
    let cells = primary.cells.iter();
    let cells = cells.map(|(axis, values)| (axis.clone(), values.iter().map(|v| value(axis, v)).collect()));
    store::Primary { metric: primary.metric.clone(), cells: cells.collect() }
}
