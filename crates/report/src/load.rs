//! From results files to the view model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use store::{
    Axis, BuildId, Host, HostId, INTERVENE, Key, Purpose, RunIdentity, Store, StudyId, StudyRecord,
    intervention_text,
};

use crate::answer::{Order, answer};
use crate::error::Error;
use crate::figures::StepFigures;
use crate::model::{
    AuditView, HostView, Point, RecordView, Report, RunView, Standing, StudyReport, standing_of,
};
use crate::order::place;
use crate::ranking;
use crate::text::value_text;
use crate::verdict;

/// Which studies of the results files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The newest record of each study name in each file.
    Latest,
    /// The newest record of each study of these names in each file. A name that no file has is an error.
    Studies(Vec<String>),
    /// These records, of the first file.
    Records(Vec<StudyId>),
}

impl Report {
    /// Reads results files, results directories, or bundles.
    pub fn load(paths: &[PathBuf], selection: &Selection) -> Result<Self, Error> {
        let stores = paths.iter().map(|path| open(path)).collect::<Result<Vec<_>, Error>>()?;
        Self::of_stores(&stores.iter().collect::<Vec<_>>(), selection)
    }

    /// Reads open results files.
    pub fn of_stores(stores: &[&Store], selection: &Selection) -> Result<Self, Error> {
        let mut loader = Loader {
            stores,
            hosts: Vec::new(),
            studies: Vec::new(),
            seen: BTreeSet::new(),
            blocks: Vec::new(),
        };
        for (file, store) in stores.iter().enumerate() {
            for record in selected(store, file, selection)? {
                loader.add(file, record)?;
            }
        }
        if let Some(wanted) = missing(&loader.studies, selection) {
            return Err(no_study(stores, wanted)?);
        }
        let hosts = host_views(&loader.hosts);
        let mut studies = loader.studies;
        for study in &mut studies {
            finish(study, &hosts);
        }
        Ok(Self { plimsoll_version: env!("CARGO_PKG_VERSION").to_owned(), hosts, studies })
    }
}

/// Opens a results file, a results directory, or what is in a bundle.
pub(crate) fn open(path: &Path) -> Result<Store, Error> {
    match crate::bundle::is_bundle(path) {
        true => crate::bundle::results_in(path),
        false => Ok(Store::open_read_only(path)?),
    }
}

fn selected(store: &Store, file: usize, selection: &Selection) -> Result<Vec<StudyRecord>, Error> {
    let mut latest: BTreeMap<String, StudyRecord> = BTreeMap::new();
    let all = store.studies()?;
    Ok(match selection {
        Selection::Records(ids) => {
            all.into_iter().filter(|record| file == 0 && ids.contains(&record.id)).collect()
        }
        Selection::Latest | Selection::Studies(_) => {
            for record in all {
                let is_left_out =
                    matches!(selection, Selection::Studies(names) if !names.contains(&record.study.name));
                // A first look is not the study: where there is the whole one, a later first look does not stand for it.
                let shadows = |known: &StudyRecord| record.study.is_quick && !known.study.is_quick;
                if !is_left_out && !latest.get(&record.study.name).is_some_and(shadows) {
                    latest.insert(record.study.name.clone(), record);
                }
            }
            let mut records: Vec<_> = latest.into_values().collect();
            records.sort_by_key(|record| record.id);
            records
        }
    })
}

/// What was asked for and is in none of the files.
fn missing(found: &[StudyReport], selection: &Selection) -> Option<String> {
    match selection {
        Selection::Studies(names) => {
            names.iter().find(|name| !found.iter().any(|study| study.name == **name)).cloned()
        }
        Selection::Latest => found.is_empty().then(|| "to report".to_owned()),
        Selection::Records(ids) => found.is_empty().then(|| format!("with record {ids:?}")),
    }
}

fn no_study(stores: &[&Store], wanted: String) -> Result<Error, Error> {
    let mut known = BTreeSet::new();
    for store in stores {
        known.extend(store.studies()?.into_iter().map(|record| record.study.name));
    }
    Ok(Error::NoStudy { wanted, known: known.into_iter().collect() })
}

/// Gathers runs; points and verdicts follow when all files are read.
struct Loader<'a> {
    stores: &'a [&'a Store],
    hosts: Vec<Host>,
    studies: Vec<StudyReport>,
    /// Runs of earlier files: one that two of them have is one run.
    seen: BTreeSet<RunIdentity>,
    /// Results files and machines: the blocks of each are numbered apart.
    blocks: Vec<(usize, usize)>,
}

impl Loader<'_> {
    fn add(&mut self, file: usize, record: StudyRecord) -> Result<(), Error> {
        let store = self.stores[file];
        let at = self.study_of(&record);
        let same_plan = |view: &RecordView| view.record.study.is_same_plan(&record.study);
        let plan =
            self.studies[at].records.iter().position(same_plan).unwrap_or(self.studies[at].records.len());
        let mut seen = Vec::new();
        let mut hosts: BTreeMap<HostId, (usize, String)> = BTreeMap::new();
        let mut builds = BTreeMap::new();
        let heads = store.run_heads(record.id)?;
        let searches = store.line_searches()?;
        let mut last_attempt: BTreeMap<(String, Vec<u32>, u32, Purpose), u32> = BTreeMap::new();
        let plan_of = |head: &store::RunHead| {
            let key = serde_json::json!(head.start.key).to_string();
            (key, head.start.levels.clone(), head.start.block, head.start.purpose)
        };
        for head in &heads {
            let last = last_attempt.entry(plan_of(head)).or_default();
            *last = head.attempt.max(*last);
        }
        for head in heads {
            let (host, boot_id) = self.host(store, head.start.host, &mut hosts)?;
            let identity = RunIdentity::of(&record.study, &head, &self.hosts[host]);
            if self.seen.contains(&identity) {
                continue;
            }
            seen.push(identity);
            let build = match head.start.build {
                Some(id) => Some(build(store, id, &mut builds)?),
                None => None,
            };
            let is_last = last_attempt.get(&plan_of(&head)) == Some(&head.attempt);
            let mut end = store.run(head.id)?.end;
            if let Some(end) = &mut end {
                crate::durability::of_place(&mut end.server);
            }
            let steps = end.iter_mut().flat_map(|end| std::mem::take(&mut end.steps));
            let steps = steps.map(|step| StepFigures::of(&step)).collect();
            let prefix = if self.stores.len() > 1 { format!("{}-", file + 1) } else { String::new() };
            let view = RunView {
                id: format!("{prefix}r{}", head.id.0),
                host,
                boot_id,
                standing: match head.start.purpose {
                    Purpose::Locks => Standing::LockPass,
                    Purpose::Measure if !is_last => Standing::Superseded,
                    Purpose::Measure => standing_of(head.status, &head.start.levels, end.as_ref()),
                },
                plan,
                block: self.block(file, host, head.start.block),
                line: end
                    .as_ref()
                    .and_then(|end| end.line)
                    .and_then(|id| searches.iter().find(|search| search.id == id).cloned()),
                head,
                end,
                steps,
                build,
            };
            self.studies[at].runs.push(view);
        }
        self.seen.extend(seen);
        for (id, probe) in store.probes(record.id)? {
            let (host, _) = self.host(store, id, &mut hosts)?;
            self.studies[at].probes.push((host, probe));
        }
        for (id, canary) in store.canaries(record.id)? {
            let (host, _) = self.host(store, id, &mut hosts)?;
            self.studies[at].canaries.push((host, canary));
        }
        for reference in store.references(record.id)? {
            if !self.studies[at].references.contains(&reference) {
                self.studies[at].references.push(reference);
            }
        }
        for audit in store.audits()? {
            let audited = build(store, audit.build, &mut builds)?;
            let ran = |run: &RunView| run.build.as_ref().is_some_and(|b| b.identity == audited.identity);
            // Several records of a study in one file see the same audits.
            let is_known = self.studies[at]
                .audits
                .iter()
                .any(|view| view.audit.start == audit.start && view.audit.rounds == audit.rounds);
            if !is_known && self.studies[at].runs.iter().any(ran) {
                let (host, _) = self.host(store, audit.host, &mut hosts)?;
                self.studies[at].audits.push(AuditView { host, build: audited, audit });
            }
        }
        let file = store.path().display().to_string();
        let looks = store.looks(record.id)?;
        self.studies[at].records.push(RecordView { file, record, looks });
        Ok(())
    }

    /// A block's number in the report. Blocks of two files are not the same blocks, even on one machine, nor are those of
    /// two machines.
    fn block(&mut self, file: usize, host: usize, block: u32) -> u32 {
        let at = place(&mut self.blocks, |known| *known == (file, host), || (file, host));
        at as u32 * 1_000_000 + block
    }

    /// Records of the same name form one study; its axes are the union.
    fn study_of(&mut self, record: &StudyRecord) -> usize {
        let study = &record.study;
        let at = place(
            &mut self.studies,
            |report| report.name == study.name,
            || StudyReport {
                name: study.name.clone(),
                title: study.title.clone(),
                question: study.question.clone(),
                ..StudyReport::default()
            },
        );
        for axis in &study.axes {
            merge_axis(&mut self.studies[at].axes, axis);
        }
        at
    }

    fn host(
        &mut self,
        store: &Store,
        id: HostId,
        known: &mut BTreeMap<HostId, (usize, String)>,
    ) -> Result<(usize, String), Error> {
        if let Some(found) = known.get(&id) {
            return Ok(found.clone());
        }
        let host = store.host(id)?;
        // A reboot does not make another machine; another kernel does.
        let is_same = |other: &Host| {
            (&other.name, &other.fingerprint, &other.kernel) == (&host.name, &host.fingerprint, &host.kernel)
        };
        let at = place(&mut self.hosts, is_same, || host.clone());
        let found = (at, host.boot_id);
        known.insert(id, found.clone());
        Ok(found)
    }
}

fn build(
    store: &Store,
    id: BuildId,
    known: &mut BTreeMap<BuildId, store::Build>,
) -> Result<store::Build, Error> {
    if let Some(build) = known.get(&id) {
        return Ok(build.clone());
    }
    let build = store.build(id)?;
    known.insert(id, build.clone());
    Ok(build)
}

fn merge_axis(axes: &mut Vec<Axis>, axis: &Axis) {
    match axes.iter_mut().find(|known| known.name == axis.name) {
        None => axes.push(axis.clone()),
        Some(known) => {
            for value in &axis.values {
                if !known.values.contains(value) {
                    known.values.push(value.clone());
                }
            }
        }
    }
}

fn host_views(hosts: &[Host]) -> Vec<HostView> {
    let is_alone = |host: &Host, of: &dyn Fn(&Host) -> String| {
        hosts.iter().filter(|other| of(other) == of(host)).count() == 1
    };
    let name = |host: &Host| host.name.clone();
    let with_kernel = |host: &Host| format!("{} ({})", host.name, host.kernel);
    hosts
        .iter()
        .map(|host| {
            let label = if is_alone(host, &name) {
                name(host)
            } else if is_alone(host, &with_kernel) {
                with_kernel(host)
            } else {
                let short: String = host.fingerprint.chars().take(8).collect();
                format!("{} ({}, {short})", host.name, host.kernel)
            };
            HostView { label, host: host.clone() }
        })
        .collect()
}

/// Points, verdicts and sentences of a study whose runs are all there.
fn finish(study: &mut StudyReport, hosts: &[HostView]) {
    let mut points: Vec<Point> = Vec::new();
    let host_names = crate::nodes::host_names(study, hosts);
    let additions = crate::unlike::additions(&study.runs, &host_names);
    for (index, run) in study.runs.iter().enumerate() {
        if run.head.start.purpose != Purpose::Measure {
            continue;
        }
        for (at, sessions) in run.head.start.levels.iter().enumerate() {
            let mut identity = identity(run, &host_names[index], *sessions);
            identity.extend(additions[index].clone());
            let step = run.steps.get(at).map(|_| at);
            let known = points
                .iter_mut()
                .find(|point| point.identity == identity && point.is_climb == run.head.start.is_climb);
            match known {
                Some(point) => point.runs.push((index, step)),
                None => points.push(Point {
                    identity,
                    sessions: *sessions,
                    is_climb: run.head.start.is_climb,
                    runs: vec![(index, step)],
                    ..Point::default()
                }),
            }
        }
    }
    points.sort_by_cached_key(|point| order(point, &study.axes));
    study.varying = varying(&points, &study.axes);
    let names = naming(&points, &study.axes);
    for (index, point) in points.iter_mut().enumerate() {
        point.id = format!("c{}", index + 1);
        point.key = full_key(study, point, hosts);
        let server = point.key.get("server").map(value_text).unwrap_or_default();
        point.label = label_or(&point.identity, &names, &["sessions", "climb"], &server);
    }
    for point in &mut points {
        let metrics = ["tps", "tps_max", "tps_min", "qps", "mean", "p50", "p95", "p99"];
        let [tps, tps_max, tps_min, qps, mean_ms, p50_ms, p95_ms, p99_ms] =
            metrics.map(|metric| study.estimate(point, metric));
        *point =
            Point { tps, tps_max, tps_min, qps, mean_ms, p50_ms, p95_ms, p99_ms, ..std::mem::take(point) };
        let freezes = study.counted(point).filter_map(|(_, step)| step.stalls);
        point.freeze_s = freezes.map(|stalls| stalls.longest_s).reduce(f64::max);
    }
    study.points = points;
    for figure in crate::published::figures(&crate::sections::wishes(study).published) {
        if !study.references.contains(&figure) {
            study.references.push(figure);
        }
    }
    study.inequalities = verdict::inequalities(study);
    study.inequalities.extend(crate::unlike::sentence(&additions));
    study.verdicts = verdict::verdicts(study);
    crate::nodes::tell_odd(&mut study.verdicts, hosts);
    study.inequalities.extend(crate::nodes::sentence(&study.verdicts, hosts));
    study.rankings = ranking::rankings(study);
    study.answer = answer(study, &Order::of(study));
}

fn identity(run: &RunView, host: &str, sessions: u32) -> Key {
    let mut key = run.head.start.key.clone();
    key.insert("host".to_owned(), Value::from(host));
    key.insert("sessions".to_owned(), Value::from(sessions));
    key
}

/// The order of the study file along each axis, then the load level.
fn order(point: &Point, axes: &[Axis]) -> (Vec<(usize, String)>, String, u32) {
    let places = axes.iter().filter(|axis| axis.name != "sessions" && axis.name != "climb").map(|axis| {
        let value = point.identity.get(&axis.name);
        let place = value.and_then(|value| axis.values.iter().position(|known| known == value));
        (place.unwrap_or(usize::MAX), value.map(value_text).unwrap_or_default())
    });
    let rest: Vec<String> = point
        .identity
        .iter()
        .filter(|(name, _)| *name != "sessions" && !axes.iter().any(|axis| axis.name == **name))
        .map(|(name, value)| format!("{name} {}", value_text(value)))
        .collect();
    (places.collect(), rest.join("\n"), point.sessions)
}

/// The axes with more than one value among what was recorded.
fn varying(points: &[Point], axes: &[Axis]) -> Vec<String> {
    several(points, axes, |_| false)
}

/// Those, and the ones that the study varies: a cell is called the same when only some of the cells were run.
fn naming(points: &[Point], axes: &[Axis]) -> Vec<String> {
    several(points, axes, |name| axes.iter().any(|axis| axis.name == name && axis.values.len() > 1))
}

fn several(points: &[Point], axes: &[Axis], is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in points.iter().flat_map(|point| &point.identity) {
        values.entry(name).or_default().insert(value_text(value));
    }
    let in_order = axes.iter().map(|axis| axis.name.as_str());
    let mut names: Vec<&str> = in_order.filter(|name| values.contains_key(name)).collect();
    let rest: Vec<&str> = values.keys().copied().filter(|name| !names.contains(name)).collect();
    names.extend(rest);
    names.retain(|name| values[name].len() > 1 || is_wanted(name));
    names.into_iter().map(str::to_owned).collect()
}

/// Axes whose values speak for themselves.
const BARE: [&str; 8] =
    ["server", "workload", "settings", "profile", "engine", "storage", "host", "isolation"];

/// The values of `names` but `without`, in order.
pub(crate) fn label(key: &Key, names: &[String], without: &[&str]) -> String {
    let parts: Vec<String> = names
        .iter()
        .filter(|name| !without.contains(&name.as_str()))
        .filter_map(|name| {
            let text = value_text(key.get(name)?);
            Some(match name.as_str() {
                "cpus" => format!("{text} {}", if text == "1" { "cpu" } else { "cpus" }),
                INTERVENE => intervention_text(&text),
                name if BARE.contains(&name) => text,
                name => format!("{name} {text}"),
            })
        })
        .collect();
    parts.join(" · ")
}

/// The same, or `otherwise` where there is nothing to tell.
pub(crate) fn label_or(key: &Key, names: &[String], without: &[&str], otherwise: &str) -> String {
    Some(label(key, names, without)).filter(|label| !label.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

/// The JSON's key: the identity, and what is known besides.
fn full_key(study: &StudyReport, point: &Point, hosts: &[HostView]) -> Key {
    let mut key = point.identity.clone();
    key.insert("study".to_owned(), Value::from(study.name.clone()));
    let mut put = |name: &str, value: &str| {
        if !value.is_empty() {
            key.entry(name.to_owned()).or_insert_with(|| Value::from(value));
        }
    };
    let run = point.runs.iter().map(|(run, _)| &study.runs[*run]).find(|run| run.end.is_some());
    if let Some((run, end)) = run.and_then(|run| Some((run, run.end.as_ref()?))) {
        put("server", &end.server.name);
        put("workload", &end.workload.name);
        put("engine", &end.server.engine);
        put("cpus", &end.server.cpus);
        put("cpus", &hosts[run.host].host.cpus.to_string());
        put("storage", end.server.storage.get("name").map_or("", String::as_str));
        put("durability", &end.server.durability_class);
    }
    put("settings", "default");
    if point.is_climb {
        key.insert("climb".to_owned(), Value::from(true));
    }
    key
}
