//! What the charts of the page draw, as plain data: the page's script knows how, this knows what.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figures::IntervalFigures;
use crate::layout::{Facet, Layout};
use crate::load::label_or;
use crate::model::{Point, RunView, Standing, StudyReport};
use crate::order::place;
use crate::scale::{self, Scale};
use crate::sections::sections;
use crate::text::value_text;

/// Telemetry is for the eye: four digits draw the same line as seventeen, in a third of the bytes.
const DIGITS: i32 = 4;

/// All charts of a study.
#[derive(Debug, Serialize)]
pub(crate) struct Charts {
    /// Metrics against the load level (or another axis), one for each facet, and the charts of sections.
    pub(crate) ladders: Vec<Ladder>,
    /// Average, best and worst second.
    pub(crate) seconds: Vec<Seconds>,
    /// Runs over time, by cell.
    pub(crate) times: Vec<TimeGroup>,
}

/// One metric of one facet.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Ladder {
    pub(crate) metric: String,
    pub(crate) facet: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) x: String,
    pub(crate) categories: Vec<String>,
    /// Categories are not a ladder: bars, unless there are many.
    pub(crate) bars: bool,
    pub(crate) lines: Vec<Line>,
    pub(crate) scale: Scale,
}

/// `[median, low, high, repeats, point id]`.
pub(crate) type Spot = (f64, f64, f64, usize, String);

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Colour and symbol: the same for the same name in all charts.
    pub(crate) style: usize,
    /// Published, not measured here.
    pub(crate) reference: bool,
    /// Another chart beside this one has it in its legend.
    pub(crate) is_named_before: bool,
    /// For each category.
    pub(crate) points: Vec<Option<Spot>>,
    /// Categories that were run without a figure to show for it: the curve is interrupted there, for a stroke across
    /// would look like one.
    pub(crate) gaps: Vec<usize>,
    /// Runs that do not count: `[category, value, run id]`.
    pub(crate) invalid: Vec<(usize, f64, String)>,
}

/// Average, best and worst second of one facet.
#[derive(Debug, Serialize)]
pub(crate) struct Seconds {
    pub(crate) facet: String,
    pub(crate) x: String,
    pub(crate) categories: Vec<String>,
    pub(crate) lines: Vec<SecondsLine>,
    pub(crate) scale: Scale,
}

#[derive(Debug, Serialize)]
pub(crate) struct SecondsLine {
    pub(crate) name: String,
    pub(crate) style: usize,
    /// For each category `[average, best, worst]`.
    pub(crate) points: Vec<Option<(f64, f64, f64)>>,
}

/// Runs of one cell on one time axis.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TimeGroup {
    pub(crate) label: String,
    /// Time counts from the run's start, and steps are marked.
    pub(crate) climb: bool,
    /// The percentile of the response time that is drawn: the highest one that most of its seconds have.
    pub(crate) percentile: &'static str,
    pub(crate) runs: Vec<TimeRun>,
    /// Times of telemetry: most series of a run share theirs.
    pub(crate) clocks: Vec<Vec<f64>>,
    pub(crate) telemetry: Vec<Telemetry>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TimeRun {
    pub(crate) id: String,
    pub(crate) block: u32,
    pub(crate) standing: &'static str,
    /// `[second, tps, the group's percentile in ms, errors]`.
    pub(crate) seconds: Vec<(f64, f64, Option<f64>, u64)>,
    /// `[from, to, sessions]` of each measured phase.
    pub(crate) steps: Vec<(f64, f64, u32)>,
    /// `[at, what]` of what was changed of the server at a moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<(f64, String)>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Telemetry {
    /// Source, name and instance as stored: two names may read alike.
    #[serde(skip)]
    key: String,
    pub(crate) name: String,
    pub(crate) unit: String,
    /// By run, in the order of `runs`: the place of its times in `clocks`, and the values.
    pub(crate) runs: Vec<Option<(usize, Vec<f64>)>>,
    /// Place among the charts, from [`WORTH_A_CHART`].
    #[serde(skip)]
    place: usize,
}

pub(crate) fn charts(study: &StudyReport) -> Charts {
    let layout = Layout::of(study);
    let facets = if study.has_levels() { layout.facets(study) } else { Vec::new() };
    let mut styles = Styles::default();
    for (name, _) in facets.iter().flat_map(|facet| &facet.lines) {
        styles.of(name);
    }
    let mut ladders = Vec::new();
    for (metric, title, unit) in [
        ("tps", "Throughput", "committed transactions per second"),
        ("p95", "p95 of response time", "ms"),
        ("p99", "p99 of response time", "ms"),
    ] {
        for facet in &facets {
            ladders.push(ladder(study, &layout, facet, (metric, title, unit), &mut styles));
        }
    }
    share_scales(&mut ladders);
    name_references_once(&mut ladders);
    let mut of_sections: Vec<Ladder> =
        sections(study).iter().flat_map(|section| section.charts.clone()).collect();
    share_scales(&mut of_sections);
    ladders.extend(of_sections);
    let mut seconds: Vec<Seconds> = facets.iter().map(|facet| seconds(&layout, facet, &mut styles)).collect();
    let of_seconds: Vec<(&mut Scale, f64)> = seconds
        .iter_mut()
        .map(|chart| {
            let highest = chart.lines.iter().flat_map(|line| &line.points).flatten().map(|spot| spot.1);
            let highest = highest.fold(0.0, f64::max);
            (&mut chart.scale, highest)
        })
        .collect();
    scale::share(of_seconds);
    Charts { ladders, seconds, times: times(study) }
}

/// Charts of one metric in one unit are read beside each other. Published figures of other machines do not set the
/// scale: what is beyond it is named.
fn share_scales(ladders: &mut [Ladder]) {
    let mut kinds: Vec<(String, &'static str)> =
        ladders.iter().map(|ladder| (ladder.metric.clone(), ladder.unit)).collect();
    kinds.sort();
    kinds.dedup();
    for kind in kinds {
        let alike = ladders.iter_mut().filter(|ladder| (&ladder.metric, ladder.unit) == (&kind.0, kind.1));
        scale::share(
            alike
                .map(|ladder| {
                    let highest = highest(ladder);
                    (&mut ladder.scale, highest)
                })
                .collect(),
        );
    }
    for ladder in ladders {
        let Some(top) = ladder.scale.top else { continue };
        for line in ladder.lines.iter_mut().filter(|line| line.reference) {
            if line.points.iter().flatten().all(|spot| spot.0 > top) {
                line.name.push_str(", beyond the scale");
            }
        }
    }
}

/// Small multiples with the same published figures name them once: their names would take more room than the figures.
fn name_references_once(ladders: &mut [Ladder]) {
    let mut known: Vec<(String, Vec<String>)> = Vec::new();
    for ladder in ladders {
        let names = ladder.lines.iter().filter(|line| line.reference).map(|line| line.name.clone());
        let of = (ladder.metric.clone(), names.collect());
        let is_known = known.contains(&of);
        ladder
            .lines
            .iter_mut()
            .filter(|line| line.reference)
            .for_each(|line| line.is_named_before = is_known);
        known.push(of);
    }
}

/// Intervals and runs that do not count reach no higher on a scale than so many times the highest figure: one bad run of
/// five would press all figures to the ground.
const BEYOND_FIGURES_MAX: f64 = 2.0;

/// The highest that was measured here.
fn highest(ladder: &Ladder) -> f64 {
    let measured = || ladder.lines.iter().filter(|line| !line.reference);
    let figures = measured().flat_map(|line| line.points.iter().flatten());
    let invalid = measured().flat_map(|line| line.invalid.iter().map(|(_, value, _)| *value));
    let high = figures.clone().map(|spot| spot.2).chain(invalid).fold(0.0, f64::max);
    let figure = figures.map(|spot| spot.0).fold(0.0, f64::max);
    if figure > 0.0 { figure.max(high.min(BEYOND_FIGURES_MAX * figure)) } else { high }
}

/// Numbers names in the order of their first use.
#[derive(Debug, Default)]
struct Styles(Vec<String>);

impl Styles {
    fn of(&mut self, name: &str) -> usize {
        place(&mut self.0, |known| known == name, || name.to_owned())
    }
}

fn ladder(
    study: &StudyReport,
    layout: &Layout,
    facet: &Facet<'_>,
    (metric, title, unit): (&'static str, &str, &'static str),
    styles: &mut Styles,
) -> Ladder {
    let mut lines: Vec<Line> = facet
        .lines
        .iter()
        .map(|(name, points)| {
            let spots: Vec<Option<Spot>> =
                points.iter().map(|point| point.and_then(|point| estimate(point, metric))).collect();
            Line {
                name: name.clone(),
                style: styles.of(name),
                gaps: gaps(&spots, |at| points[at].is_some()),
                points: spots,
                invalid: points
                    .iter()
                    .enumerate()
                    .flat_map(|(at, point)| {
                        point.map(|point| invalid(study, point, metric, at)).unwrap_or_default()
                    })
                    .collect(),
                ..Line::default()
            }
        })
        .collect();
    lines.extend(references(study, layout, facet, metric));
    let bars = layout.x != "sessions" && layout.categories.len() < 6 || layout.categories.len() == 1;
    let title = if facet.label.is_empty() { title.to_owned() } else { format!("{title}, {}", facet.label) };
    Ladder {
        metric: metric.to_owned(),
        facet: facet.label.clone(),
        title,
        unit,
        x: layout.x.clone(),
        categories: layout.categories.clone(),
        bars,
        lines,
        scale: Scale::of_facet(facet),
    }
}

/// The categories without a figure in which something was run.
pub(crate) fn gaps(points: &[Option<Spot>], was_run: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..points.len()).filter(|at| points[*at].is_none() && was_run(*at)).collect()
}

fn estimate(point: &Point, metric: &str) -> Option<Spot> {
    let estimate = match metric {
        "tps" => point.tps,
        "p95" => point.p95_ms,
        _ => point.p99_ms,
    }?;
    Some((round(estimate.median), round(estimate.low), round(estimate.high), estimate.n, point.id.clone()))
}

fn invalid(study: &StudyReport, point: &Point, metric: &str, at: usize) -> Vec<(usize, f64, String)> {
    study
        .measured(point)
        .filter(|(run, _)| run.standing_at(point.sessions) == Standing::Invalid)
        .filter_map(|(run, step)| Some((at, round(step.metric(metric)?), run.id.clone())))
        .collect()
}

/// Published figures that belong to the facet: one line for each series.
fn references(study: &StudyReport, layout: &Layout, facet: &Facet<'_>, metric: &str) -> Vec<Line> {
    let points: Vec<&Point> = facet.lines.iter().flat_map(|(_, points)| points).copied().flatten().collect();
    published(study, &points, (&layout.x, &layout.categories), metric)
}

/// Published figures of a metric that belong to these points, along an axis with these categories. One that names no
/// place on the axis (another machine, another version) is a level to compare with, and so stands all along it.
pub(crate) fn published(
    study: &StudyReport,
    points: &[&Point],
    (x, categories): (&str, &[String]),
    metric: &str,
) -> Vec<Line> {
    published_at(study, metric, categories.len(), |reference| {
        let is_here = points.iter().any(|point| belongs(reference, point, x));
        let place = reference.key.get(x).map(value_text);
        let is_at = |category: &String| place.as_ref().is_none_or(|place| place == category);
        categories.iter().map(|category| is_here && is_at(category)).collect()
    })
}

/// As [`published`], where each category is a point of its own.
pub(crate) fn published_by_point(study: &StudyReport, points: &[&Point], metric: &str) -> Vec<Line> {
    published_at(study, metric, points.len(), |reference| {
        points.iter().map(|point| belongs(reference, point, "")).collect()
    })
}

/// Whether nothing but the place along the chart tells a published figure from a point.
fn belongs(reference: &store::Reference, point: &Point, x: &str) -> bool {
    let mut key = reference.key.iter().filter(|(name, _)| *name != x);
    key.all(|(name, value)| point.identity.get(name).is_none_or(|known| known == value))
}

/// One line for each series; `places` says in which categories a figure stands.
fn published_at(
    study: &StudyReport,
    metric: &str,
    categories: usize,
    places: impl Fn(&store::Reference) -> Vec<bool>,
) -> Vec<Line> {
    let mut lines: BTreeMap<String, Vec<Option<Spot>>> = BTreeMap::new();
    for reference in study.references.iter().filter(|known| known.metric.trim_end_matches("_ms") == metric) {
        let name = format!("{} (published {})", reference.series, reference.year);
        let line = lines.entry(name).or_insert_with(|| vec![None; categories]);
        for (spot, _) in line.iter_mut().zip(places(reference)).filter(|(_, is_there)| *is_there) {
            *spot = Some((reference.value, reference.value, reference.value, 0, String::new()));
        }
    }
    lines
        .into_iter()
        .filter(|(_, points)| points.iter().any(Option::is_some))
        .enumerate()
        .map(|(style, (name, points))| Line { name, style, reference: true, points, ..Line::default() })
        .collect()
}

fn seconds(layout: &Layout, facet: &Facet<'_>, styles: &mut Styles) -> Seconds {
    let lines: Vec<SecondsLine> = facet
        .lines
        .iter()
        .map(|(name, points)| SecondsLine {
            name: name.clone(),
            style: styles.of(name),
            points: points
                .iter()
                .map(|point| {
                    let point = (*point)?;
                    let of = |estimate: Option<crate::Estimate>| estimate.map(|e| round(e.median));
                    Some((of(point.tps)?, of(point.tps_max)?, of(point.tps_min)?))
                })
                .collect(),
        })
        .collect();
    Seconds {
        facet: facet.label.clone(),
        x: layout.x.clone(),
        categories: layout.categories.clone(),
        lines,
        scale: Scale::of_facet(facet),
    }
}

/// Plain runs by point; climbs by cell, so that a whole server life is one graph.
fn times(study: &StudyReport) -> Vec<TimeGroup> {
    let mut groups: Vec<(String, TimeGroup, Vec<usize>)> = Vec::new();
    for point in &study.points {
        let mut key = point.identity.clone();
        if point.is_climb {
            key.remove("sessions");
        }
        let name = format!("{} {}", point.is_climb, serde_json::json!(key));
        let mut text = label_or(&key, &study.varying, &["sessions"], &point.label);
        if !point.is_climb {
            text = format!("{text} · {}", store::counted(point.sessions, "session"));
        }
        let group =
            || TimeGroup { label: text, climb: point.is_climb, percentile: "p50", ..TimeGroup::default() };
        let at = place(&mut groups, |(known, ..)| *known == name, || (name.clone(), group(), vec![]));
        for (run, step) in &point.runs {
            if step.is_some() && !groups[at].2.contains(run) {
                groups[at].2.push(*run);
            }
        }
    }
    groups
        .into_iter()
        .map(|(_, mut group, runs)| {
            let runs: Vec<&RunView> = runs.into_iter().map(|run| &study.runs[run]).collect();
            group.percentile = percentile_of(&runs);
            group.runs = runs.iter().map(|run| time_run(run, group.climb, group.percentile)).collect();
            (group.clocks, group.telemetry) = telemetry(&runs, group.climb);
            group
        })
        .filter(|group| !group.runs.is_empty())
        .collect()
}

/// The highest percentile that at least half of the seconds have transactions enough for.
fn percentile_of(runs: &[&RunView]) -> &'static str {
    let steps = runs.iter().flat_map(|run| &run.steps);
    let seconds: Vec<&IntervalFigures> =
        steps.flat_map(|step| &step.intervals).filter(|interval| interval.latency.is_some()).collect();
    let has = |name: &str| seconds.iter().filter(|interval| interval.percentile(name).is_some()).count();
    ["p99", "p95"].into_iter().find(|name| 2 * has(name) >= seconds.len().max(1)).unwrap_or("p50")
}

fn time_run(run: &RunView, is_climb: bool, percentile: &str) -> TimeRun {
    let mut seconds = Vec::new();
    let mut steps = Vec::new();
    for step in &run.steps {
        let zero = if is_climb { step.offset_s } else { 0.0 };
        steps.push((hundredths(zero), hundredths(zero + step.duration_s), step.sessions));
        let mut measured_s = 0.0;
        for interval in &step.intervals {
            // A second is drawn at its end, the way it was counted; those of a duel are as short as its slices.
            let before_s = if interval.second >= 1 { measured_s } else { (interval.second - 1) as f64 };
            measured_s += if interval.second >= 1 { interval.duration_s } else { 0.0 };
            let at = zero + before_s + interval.duration_s;
            let response = interval.percentile(percentile).map(round);
            seconds.push((hundredths(at), round(interval.tps), response, interval.errors));
        }
    }
    let zero = if is_climb { 0.0 } else { run.steps.first().map_or(0.0, |step| step.offset_s) };
    let interventions = run.end.iter().flat_map(|end| &end.interventions);
    let changes =
        interventions.filter_map(|one| Some((hundredths(one.at_s? - zero), one.name.clone()))).collect();
    TimeRun {
        id: run.id.clone(),
        block: run.head.start.block,
        standing: run.standing.word(),
        seconds,
        steps,
        changes,
    }
}

/// Series that explain throughput, in the order in which one looks; others follow as long as there is room. All of
/// them are in the results file and in the CSV.
const WORTH_A_CHART: [(&str, &str); 34] = [
    ("host", "cpu_busy_share"),
    ("host", "cpu_iowait_share"),
    ("host", "cpu_steal_share"),
    ("host", "run_queue"),
    ("process", "cpu_user"),
    ("process", "cpu_system"),
    ("process", "rss_bytes"),
    ("replica", "lag"),
    ("replica", "lag_bytes"),
    ("device", "reads"),
    ("device", "writes"),
    ("device", "flushes"),
    ("device", "read_bytes"),
    ("device", "written_bytes"),
    ("device", "utilisation_share"),
    ("device", "write_await_ms"),
    ("server", "buffer_reads"),
    ("server", "rows_read"),
    ("server", "log_bytes"),
    ("server", "log_syncs"),
    ("server", "checkpoint_age_bytes"),
    ("server", "checkpoint_age_limit_bytes"),
    ("server", "dirty_bytes"),
    ("server", "dirty_pages"),
    ("server", "history_list_length"),
    ("server", "dead_tuples"),
    ("server", "row_lock_waiting"),
    ("server", "sessions_running"),
    ("host", "pressure_io_some"),
    ("host", "pressure_cpu_some"),
    ("client", "cpu_user"),
    ("client", "cpu_system"),
    ("host", "context_switches"),
    ("host", "memory_available_bytes"),
];

/// Charts of telemetry under one graph: beyond, the page grows and nobody looks.
const TELEMETRY_MAX: usize = 36;

fn telemetry(runs: &[&RunView], is_climb: bool) -> (Vec<Vec<f64>>, Vec<Telemetry>) {
    let mut clocks: Vec<Vec<f64>> = Vec::new();
    let mut charts: Vec<Telemetry> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let zero = if is_climb { 0.0 } else { run.steps.first().map_or(0.0, |step| step.offset_s) };
        let first_clock = clocks.len();
        for series in run.end.iter().flat_map(|end| &end.series) {
            let worth = WORTH_A_CHART
                .iter()
                .position(|(source, name)| *source == series.source && *name == series.name)
                .unwrap_or(WORTH_A_CHART.len());
            let parts = [series.source.as_str(), series.name.as_str(), series.instance.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let key = parts.join("/");
            let name = parts.join(" · ").replace('_', " ").replace(" share", "");
            // A share is read as a percentage.
            let (unit, scale) =
                if series.unit == "share" { ("%", 100.0) } else { (series.unit.as_str(), 1.0) };
            let new = || {
                let runs = vec![None; runs.len()];
                Telemetry { key: key.clone(), name, unit: unit.to_owned(), runs, place: worth }
            };
            let chart = place(&mut charts, |chart| chart.key == key, new);
            let times: Vec<f64> = series.points.iter().map(|(time, _)| hundredths(*time - zero)).collect();
            let clock =
                clocks[first_clock..].iter().position(|known| *known == times).map(|at| first_clock + at);
            let clock = clock.unwrap_or_else(|| {
                clocks.push(times);
                clocks.len() - 1
            });
            let values = series.points.iter().map(|(_, value)| round(*value * scale)).collect();
            charts[chart].runs[at] = Some((clock, values));
        }
    }
    // A counter that never moved explains nothing.
    charts.retain(|chart| {
        chart.runs.iter().flatten().any(|(_, values)| values.iter().any(|value| *value != 0.0))
    });
    charts.sort_by_key(|chart| chart.place);
    charts.truncate(TELEMETRY_MAX);
    (clocks, charts)
}

/// Times to a hundredth of a second, however long the run.
fn hundredths(time_s: f64) -> f64 {
    (time_s * 100.0).round() / 100.0
}

/// To [`DIGITS`] significant digits.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

#[cfg(test)]
mod tests {
    use super::round;

    #[test]
    fn rounding_keeps_four_digits() {
        let check =
            |value: f64, expect: f64| assert!((round(value) - expect).abs() < expect.abs() * 1e-9 + 1e-300);
        check(123_456.0, 123_500.0);
        check(0.001_234_56, 0.001_235);
        check(-9.999_96, -10.0);
        check(0.0, 0.0);
        check(1.234_56e300, 1.235e300);
        assert_eq!(round(f64::INFINITY), 0.0);
    }
}
