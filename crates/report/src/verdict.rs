//! The questions of `[compare]` and their answers.

use std::collections::{BTreeMap, BTreeSet};

use stats::climb::whole_climb;
use stats::{Better, ClimbPoint, Design, Nodes, Question, Rules, Sample};
use store::{Comparison, Key, ServerFacts};

use crate::load::label;
use crate::marks;
use crate::model::{
    CPU_PER_TRANSACTION, Lost, Point, RecordView, RunView, Standing, StudyReport, VerdictView,
};
use crate::order::distinct;
use crate::text::{listed, metric_name};

/// Throughput is better high, times are better low.
pub(crate) fn better(metric: &str) -> Better {
    if matches!(metric, "tps" | "qps" | "tps_max" | "tps_min") || crate::lines::is_line(metric) {
        Better::Higher
    } else {
        Better::Lower
    }
}

/// All comparisons of the newest record, primary ones first, adjusted together (those of one margin at a time).
pub(crate) fn verdicts(study: &StudyReport) -> Vec<VerdictView> {
    let Some(newest) = study.newest() else { return vec![] };
    let comparisons = &newest.record.study.comparisons;
    let design = match comparisons.iter().any(|comparison| comparison.is_watched) {
        true => Design::Watched,
        false => Design::Fixed,
    };
    let design = (design, is_over(study, newest));
    let counted = asked(study, comparisons, &|point, metric| study.samples(point, metric));
    let nodes = study.nodes();
    let mut views = answered(counted, &nodes, design);
    if views.iter().all(|view| view.lost.is_none()) {
        return views;
    }
    let completed = asked(study, comparisons, &|point, metric| study.all_samples(point, metric));
    for (view, over_all) in views.iter_mut().zip(answered(completed, &nodes, design)) {
        if let Some(lost) = &mut view.lost {
            lost.over_all = over_all.result;
        }
    }
    views
}

/// Whether this is the study as it was when it was first over by its blocks or its budget, and not because its verdicts were
/// seen. Parts that were made apart are over when all blocks are there.
fn is_over(study: &StudyReport, newest: &RecordView) -> bool {
    let mut runs = study.runs.iter();
    if let Some(ended_at_ms) = newest.record.ended_at_ms {
        return runs.all(|run| run.head.start.started_at_ms <= ended_at_ms);
    }
    let made: BTreeSet<u32> =
        runs.filter(|run| run.standing != Standing::Running).map(|run| run.block).collect();
    made.len() >= newest.record.study.blocks as usize
}

/// Values of a metric at a point.
type Samples<'a> = &'a dyn Fn(&Point, &str) -> Vec<Sample>;

/// The questions of the comparisons, each with its view, which has no answer yet.
fn asked(
    study: &StudyReport,
    comparisons: &[Comparison],
    samples: Samples<'_>,
) -> Vec<(VerdictView, Question)> {
    let mut asked = Vec::new();
    for comparison in comparisons {
        for metric in &comparison.metrics {
            asked.extend(of_whole_climbs(study, comparison, metric, samples));
            asked.extend(of_points(study, comparison, metric, samples));
        }
    }
    // A record that has nothing of what its study is about: the rest is not secondary to anything.
    if asked.iter().all(|(view, _)| !view.is_primary) {
        asked.iter_mut().for_each(|(view, _)| view.is_primary = true);
    }
    asked.extend(comparisons.iter().flat_map(|comparison| cpu_beside(study, comparison, samples)));
    asked
}

/// What the sides' transactions cost, beside the metrics that are asked for, where it was measured on both sides.
fn cpu_beside(
    study: &StudyReport,
    comparison: &Comparison,
    samples: Samples<'_>,
) -> Vec<(VerdictView, Question)> {
    if comparison.metrics.iter().any(|metric| metric == CPU_PER_TRANSACTION) {
        return vec![];
    }
    let mut beside = of_whole_climbs(study, comparison, CPU_PER_TRANSACTION, samples);
    beside.extend(of_points(study, comparison, CPU_PER_TRANSACTION, samples));
    beside.retain(|(_, question)| !question.base.is_empty() && !question.other.is_empty());
    for (view, _) in &mut beside {
        (view.is_asked, view.is_primary) = (false, false);
    }
    beside
}

/// The questions answered: primary ones of one margin share the error, secondary ones among themselves.
fn answered(
    mut asked: Vec<(VerdictView, Question)>,
    nodes: &Nodes,
    (design, is_over): (Design, bool),
) -> Vec<VerdictView> {
    let family = |view: &VerdictView| (view.margin.to_bits(), view.is_primary);
    let families: BTreeSet<(u64, bool)> = asked.iter().map(|(view, _)| family(view)).collect();
    for of in families {
        let members: Vec<usize> = (0..asked.len()).filter(|at| family(&asked[*at].0) == of).collect();
        let questions: Vec<Question> = members.iter().map(|at| asked[*at].1.clone()).collect();
        let rules = Rules { margin: f64::from_bits(of.0), design, is_over, ..Rules::default() };
        for (at, result) in members.into_iter().zip(stats::compare_on(&questions, nodes, &rules)) {
            asked[at].0.result = result;
        }
    }
    // Stable: within each kind in the order of the study.
    asked.sort_by_key(|(view, _)| !view.is_primary);
    asked.into_iter().map(|(view, _)| view).collect()
}

/// Whether the study is about this metric in this cell. Of a climb that is the climb as a whole, unless the study names
/// session counts.
fn is_primary(comparison: &Comparison, metric: &str, point: &Point, is_whole_climb: bool) -> bool {
    let Some(primary) = &comparison.primary else { return true };
    let is_of_whole = point.is_climb && !primary.cells.contains_key("sessions");
    let holds = |(axis, values): (&String, &Vec<serde_json::Value>)| {
        point.identity.get(axis).is_some_and(|value| values.contains(value))
    };
    primary.metric == metric && is_whole_climb == is_of_whole && primary.cells.iter().all(holds)
}

fn of_points(
    study: &StudyReport,
    comparison: &Comparison,
    metric: &str,
    samples: Samples<'_>,
) -> Vec<(VerdictView, Question)> {
    pairs(study, comparison)
        .into_iter()
        .map(|(base, other)| {
            let question = Question {
                base: samples(&study.points[base], metric),
                other: samples(&study.points[other], metric),
                better: better(metric),
            };
            (view(study, comparison, metric, &[(base, other)]), question)
        })
        .collect()
}

/// Pairs of points that differ in the axis and in nothing else.
fn pairs(study: &StudyReport, comparison: &Comparison) -> Vec<(usize, usize)> {
    let without = |point: &Point| {
        let mut key = point.identity.clone();
        key.remove(&comparison.axis);
        (key, point.is_climb)
    };
    let is_base = |point: &Point| point.identity.get(&comparison.axis) == Some(&comparison.base);
    let bases: Vec<usize> = (0..study.points.len()).filter(|at| is_base(&study.points[*at])).collect();
    (0..study.points.len())
        .filter(|at| {
            !is_base(&study.points[*at]) && study.points[*at].identity.contains_key(&comparison.axis)
        })
        .filter_map(|other| {
            let rest = without(&study.points[other]);
            bases.iter().find(|base| without(&study.points[**base]) == rest).map(|base| (*base, other))
        })
        .collect()
}

fn of_whole_climbs(
    study: &StudyReport,
    comparison: &Comparison,
    metric: &str,
    samples: Samples<'_>,
) -> Vec<(VerdictView, Question)> {
    let mut climbs: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (base, other) in pairs(study, comparison) {
        let point = &study.points[other];
        if point.is_climb && comparison.axis != "sessions" {
            let mut key = point.identity.clone();
            key.remove("sessions");
            climbs.entry(serde_json::json!(key).to_string()).or_default().push((base, other));
        }
    }
    climbs
        .into_values()
        .filter(|levels| levels.len() > 1)
        .map(|levels| {
            let points = |side: &dyn Fn(&(usize, usize)) -> usize| -> Vec<ClimbPoint> {
                let of_level = |pair: &(usize, usize)| {
                    let point = &study.points[side(pair)];
                    samples(point, metric).into_iter().map(|sample| ClimbPoint {
                        block: sample.block,
                        level: point.sessions,
                        value: sample.value,
                    })
                };
                levels.iter().flat_map(of_level).collect()
            };
            let question = whole_climb(&points(&|pair| pair.0), &points(&|pair| pair.1), better(metric));
            let mut view = view(study, comparison, metric, &levels);
            view.climb = Some(levels.iter().map(|(_, other)| study.points[*other].sessions).collect());
            (view, question)
        })
        .collect()
}

fn view(
    study: &StudyReport,
    comparison: &Comparison,
    metric: &str,
    levels: &[(usize, usize)],
) -> VerdictView {
    let (base, other) = levels[0];
    let (bases, others): (Vec<usize>, Vec<usize>) = levels.iter().copied().unzip();
    let at = &study.points[other].identity;
    let of = |key: &Key| label(key, std::slice::from_ref(&comparison.axis), &[]);
    let (base_label, other_label) = (of(&study.points[base].identity), of(at));
    let nothing = Question { base: vec![], other: vec![], better: better(metric) };
    let unanswered = stats::compare_one(&nothing, &Rules::default());
    VerdictView {
        metric: metric.to_owned(),
        axis: comparison.axis.clone(),
        base,
        other,
        climb: None,
        margin: comparison.margin,
        is_asked: true,
        is_primary: is_primary(comparison, metric, &study.points[other], levels.len() > 1),
        marks: marks::of_sides(study, (&others, &other_label), (&bases, &base_label)),
        absent: absent(study, metric, [(&others, &other_label), (&bases, &base_label)]),
        lost: lost(study, &bases, &others, &unanswered),
        base_label,
        other_label,
        at: label(at, &study.varying, &[&comparison.axis, "sessions"]),
        result: unanswered,
        flags: flags(study, &study.points[base], &study.points[other], &comparison.axis),
        doubts: doubts(study, "it", bases.into_iter().chain(others)).into_iter().collect(),
    }
}

/// Why sides have no value of a metric, with the level where there are several.
fn absent(study: &StudyReport, metric: &str, sides: [(&[usize], &str); 2]) -> Vec<String> {
    let mut told = Vec::new();
    for (points, label) in sides {
        for point in points.iter().map(|at| &study.points[*at]) {
            if let Some(why) = study.why_absent(point, metric) {
                let level = if points.len() > 1 { format!(" at {}", point.sessions) } else { String::new() };
                told.push(format!("no {} of {label}{level}: it {why}", metric_name(metric)));
            }
        }
    }
    told
}

/// What faults of the measurement cost the sides, where the shares differ; its answer is still to come.
fn lost(
    study: &StudyReport,
    bases: &[usize],
    others: &[usize],
    unanswered: &stats::Comparison,
) -> Option<Lost> {
    let (base, other) = (study.lost(bases), study.lost(others));
    (base.0 != other.0).then(|| Lost { base, other, over_all: unanswered.clone() })
}

/// The axis that would explain a difference, the fact's name, and where it stands.
type Fact = (&'static str, &'static str, fn(&ServerFacts) -> &str);

/// What must be equal on both sides of a comparison, or be said.
const FACTS: [Fact; 5] = [
    ("durability", "durability class", |server| &server.durability_class),
    ("isolation", "isolation level", |server| &server.isolation),
    ("charset", "character set", |server| &server.charset),
    ("collation", "collation", |server| &server.collation),
    ("client_cpus", "cpus of the client", |server| &server.client_cpus),
];

/// Servers spell the same thing differently: `READ-COMMITTED`, `read committed`; `utf8mb4` is what others call UTF8.
fn plain(fact: &str) -> String {
    let letters: String = fact.chars().filter(|c| c.is_alphanumeric()).collect();
    let letters = letters.to_lowercase().replace("utf8mb4", "utf8");
    // Orders by the bytes: PostgreSQL's C and POSIX, MySQL's ..._bin and binary.
    let is_binary = ["c", "posix", "binary", "cutf8"].contains(&letters.as_str()) || fact.ends_with("_bin");
    if is_binary { "binary".to_owned() } else { letters }
}

fn server_of<'a>(study: &'a StudyReport, point: &Point) -> Option<&'a ServerFacts> {
    let runs = point.runs.iter().map(|(run, _)| &study.runs[*run]);
    let mut counted = runs.filter(|run| run.standing == Standing::Counted);
    counted.find_map(|run| run.end.as_ref()).map(|end| &end.server)
}

fn flags(study: &StudyReport, base: &Point, other: &Point, axis: &str) -> Vec<String> {
    let (Some(base), Some(other)) = (server_of(study, base), server_of(study, other)) else { return vec![] };
    FACTS
        .iter()
        .filter(|(name, _, _)| *name != axis)
        .filter_map(|(_, name, fact)| {
            let (base, other) = (fact(base), fact(other));
            let is_unequal = plain(base) != plain(other) && !base.is_empty() && !other.is_empty();
            is_unequal.then(|| format!("{name}: {other} against {base}"))
        })
        .collect()
}

/// What is doubtful about the counted runs of some points; each run once, although a climb has it at every level.
pub(crate) fn doubts(
    study: &StudyReport,
    what: &str,
    points: impl IntoIterator<Item = usize>,
) -> Option<String> {
    let mut runs: BTreeMap<&str, &RunView> = BTreeMap::new();
    for point in points {
        runs.extend(study.counted(&study.points[point]).map(|(run, _)| (run.id.as_str(), run)));
    }
    let is_doubted = |run: &&&RunView| run.doubted_by().next().is_some();
    let doubted = runs.values().filter(is_doubted).count();
    let gates: BTreeSet<String> =
        runs.values().flat_map(|run| run.doubted_by()).map(|gate| gate.name.replace('_', " ")).collect();
    let gates: Vec<String> = gates.into_iter().collect();
    (doubted > 0).then(|| {
        format!("{doubted} of the {} runs that {what} rests on are in doubt ({})", runs.len(), listed(&gates))
    })
}

/// The fewest axes that tell some points from all others name them: `memory` where all that is in memory is meant.
fn names_of(study: &StudyReport, points: &[&Point]) -> Vec<String> {
    let axes: Vec<String> = study
        .varying
        .iter()
        .filter(|name| !["sessions", "workload"].contains(&name.as_str()))
        .cloned()
        .collect();
    let is_among = |point: &Point| points.iter().any(|known| known.id == point.id);
    let mut choices: Vec<Vec<String>> = (1_u32..1 << axes.len().min(8))
        .map(|choice| {
            let chosen = axes.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1);
            chosen.map(|(_, name)| name.clone()).collect()
        })
        .collect();
    choices.sort_by_key(Vec::len);
    let names = |names: &[String]| distinct(points.iter().map(|point| label(&point.identity, names, &[])));
    let tells_apart = |choice: &&Vec<String>| {
        let inside = names(choice);
        let mut others = study.points.iter().filter(|point| !is_among(point));
        others.all(|point| !inside.contains(&label(&point.identity, choice, &[])))
    };
    names(choices.iter().find(tells_apart).unwrap_or(&axes))
}

/// Facts that differ between the cells of a study and are none of its axes.
pub(crate) fn inequalities(study: &StudyReport) -> Vec<String> {
    let mut sentences = Vec::new();
    for (axis, name, fact) in FACTS {
        if study.axes.iter().any(|known| known.name == axis) {
            continue;
        }
        let mut who: BTreeMap<String, (&str, Vec<&Point>)> = BTreeMap::new();
        for point in &study.points {
            let Some(value) = server_of(study, point).map(fact).filter(|value| !value.is_empty()) else {
                continue;
            };
            who.entry(plain(value)).or_insert((value, vec![])).1.push(point);
        }
        if who.len() > 1 {
            let parts: Vec<String> = who
                .values()
                .map(|(value, points)| format!("{value} ({})", names_of(study, points).join(", ")))
                .collect();
            sentences.push(format!("Not the same {name} everywhere: {}.", parts.join("; ")));
        }
    }
    let fingerprints: BTreeSet<&str> =
        study.records.iter().map(|view| view.record.study.fingerprint.as_str()).collect();
    if fingerprints.len() > 1 {
        sentences.push("The results files come from different versions of the study file.".to_owned());
    }
    sentences
}
