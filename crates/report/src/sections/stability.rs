//! How even throughput was at each level, and the curve of the Universal Scalability Law where it holds.

use super::{Cell, Section, Table, drawn, groups, heads, name};
use crate::charts::{Ladder, Line, gaps};
use crate::model::{Point, StudyReport};
use crate::text::{listed, number, percent};
use crate::wishes::Wishes;

/// Resamples of the bootstrap, and their seed: the same report says the same.
const ROUNDS: usize = 500;
const SEED: u64 = 2009;
/// A curve that explains less of the variation than this does not describe the points.
const R_SQUARED_MIN: f64 = 0.9;

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let groups = groups(study, &["sessions"]);
    let seconds = Table {
        id: "seconds",
        caption: "Seconds of each level".to_owned(),
        heads: heads(
            "Cell | Sessions | AVG | MAX | MAX / AVG | worst second | worst / AVG | CV of seconds | seconds below half of AVG",
        ),
        words: 1,
        rows: groups
            .iter()
            .flat_map(|(key, points)| {
                points.iter().filter_map(|point| seconds_row(study, name(study, key, &[]), point))
            })
            .collect(),
        ..Table::default()
    };
    let mut fits = Table {
        id: "usl",
        caption: "Universal Scalability Law".to_owned(),
        heads: heads("Cell | contention α | coherency β | throughput of one γ | peak at | peak TPS | R²"),
        words: 1,
        ..Table::default()
    };
    let mut charts = Vec::new();
    let mut refused: Vec<(String, Vec<String>)> = Vec::new();
    for (key, points) in &groups {
        let label = name(study, key, &[]);
        let label = if label.is_empty() { "all".to_owned() } else { label };
        let Err(why) = fit(study, &label, points, &mut fits, &mut charts) else { continue };
        match refused.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, labels)) => labels.push(label),
            None => refused.push((why, vec![label])),
        }
    }
    fits.notes = refused.iter().map(|(why, labels)| refusal(why, labels, groups.len())).collect();
    let tables = [seconds, fits].into_iter().filter(|t| !t.rows.is_empty() || !t.notes.is_empty()).collect();
    Some(Section {
        id: "stability",
        title: "Stability and the shape of the climb",
        hint: "AVG and MAX are means over the runs of their average and best second. A server whose worst second is far \
               from its AVG stalls; one whose MAX is far above it could do more. The curve is X(N) = γN / (1 + α(N−1) + \
               βN(N−1)), fitted by weighted least squares (Gunther 2007); it is refused where the points do not bend, a \
               parameter is at its bound, or it explains less than 90 % of the variation. N is sessions here, not cores."
            .to_owned(),
        charts,
        tables,
        ..Section::default()
    })
}

fn seconds_row(study: &StudyReport, label: String, point: &Point) -> Option<Vec<Cell>> {
    let of_runs: Vec<stats::Stability> =
        study.counted(point).filter_map(|(_, step)| stats::stability(&step.seconds())).collect();
    let mean =
        |of: &dyn Fn(&stats::Stability) -> f64| stats::mean(&of_runs.iter().map(of).collect::<Vec<f64>>());
    if of_runs.is_empty() {
        return None;
    }
    Some(vec![
        label.into(),
        Cell::count("sessions", point.sessions as usize),
        Cell::number("avg_tps", mean(&|s| s.avg)),
        Cell::number("max_tps", mean(&|s| s.max)),
        Cell::number("max_over_avg", mean(&|s| s.max_over_avg)),
        Cell::number("min_tps", mean(&|s| s.min)),
        Cell::number("min_over_avg", mean(&|s| s.min_over_avg)),
        Cell::written("cv", mean(&|s| s.cv), percent),
        Cell::count("stalled_seconds", of_runs.iter().map(|s| s.stalled_seconds).sum()),
    ])
}

/// Why some of so many groups of cells have no curve.
fn refusal(why: &str, labels: &[String], all: usize) -> String {
    if labels.len() == all {
        format!("No curve: {why}")
    } else {
        format!("No curve of {}: {why}", listed(labels))
    }
}

/// Adds the row and the chart of one climb's curve.
///
/// # Errors
/// Why there is no curve.
fn fit(
    study: &StudyReport,
    label: &str,
    points: &[&Point],
    table: &mut Table,
    charts: &mut Vec<Ladder>,
) -> Result<(), String> {
    let measured: Vec<stats::UslPoint> = points
        .iter()
        .map(|point| stats::UslPoint {
            level: f64::from(point.sessions),
            throughputs: study.samples(point, "tps").iter().map(|sample| sample.value).collect(),
        })
        .filter(|point| !point.throughputs.is_empty())
        .collect();
    let share = |r_squared| Cell::written("r_squared", Some(r_squared), |share| format!("{share:.3}"));
    let fit = match stats::fit_usl(&measured, stats::Weighting::ByVariance, ROUNDS, SEED) {
        Ok(fit) if fit.r_squared < R_SQUARED_MIN => {
            let mut row = vec![Cell::dash(); table.heads.len()];
            row[0] = label.into();
            row[6] = share(fit.r_squared);
            table.rows.push(row);
            return Err(format!(
                "the best one explains {} % of the variation between the levels (R² {:.2}, at least \
                 {R_SQUARED_MIN} is wanted), so that the law does not describe these points",
                number(fit.r_squared.max(0.0) * 100.0),
                fit.r_squared
            ));
        }
        Ok(fit) => fit,
        Err(why) => return Err(why.to_string()),
    };
    let estimate = |name: &str, e: &stats::usl::Estimate| {
        let text = format!("{} ({} – {})", small(e.value), small(e.low), small(e.high));
        Cell::several(
            name,
            text,
            vec![("value", e.value.into()), ("low", e.low.into()), ("high", e.high.into())],
        )
    };
    table.rows.push(vec![
        label.into(),
        estimate("alpha", &fit.alpha),
        estimate("beta", &fit.beta),
        estimate("gamma", &fit.gamma),
        Cell::number("peak_sessions", Some(fit.peak_level.value)),
        Cell::number("peak_tps", Some(fit.peak_throughput.value)),
        share(fit.r_squared),
    ]);
    let curve = points
        .iter()
        .map(|point| fit.at(f64::from(point.sessions)).map(|value| (value, value, value, 0, String::new())))
        .collect();
    let measured: Vec<_> = points.iter().map(|point| drawn(point)).collect();
    let gaps = gaps(&measured, |_| true);
    let measured = Line { name: "measured".to_owned(), gaps, points: measured, ..Line::default() };
    let curve = Line { name: "fit".to_owned(), style: 1, reference: true, points: curve, ..Line::default() };
    charts.push(Ladder {
        metric: "stability".into(),
        facet: label.to_owned(),
        title: label.to_owned(),
        unit: "committed transactions per second, and the fitted curve (dashed)",
        x: "sessions".to_owned(),
        categories: points.iter().map(|point| point.sessions.to_string()).collect(),
        lines: vec![measured, curve],
        ..Ladder::default()
    });
    Ok(())
}

/// Coefficients are far below 1.
fn small(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.1e}") } else { number(value) }
}
