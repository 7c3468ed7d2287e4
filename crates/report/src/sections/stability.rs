//! How even throughput was at each level, and the curve of the Universal Scalability Law where it holds.

use super::{Section, Table, drawn, groups, name};
use crate::charts::{Ladder, Line, gaps};
use crate::model::{Point, StudyReport};
use crate::text::{number, percent};
use crate::wishes::Wishes;

/// Resamples of the bootstrap, and their seed: the same report says the same.
const ROUNDS: usize = 500;
const SEED: u64 = 2009;
/// A curve that explains less of the variation than this does not describe the points.
const R_SQUARED_MIN: f64 = 0.9;

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let groups = groups(study, &["sessions"]);
    let seconds = Table {
        caption: "Seconds of each level".to_owned(),
        heads: [
            "Cell",
            "Sessions",
            "AVG",
            "MAX",
            "MAX / AVG",
            "worst second",
            "worst / AVG",
            "CV of seconds",
            "seconds below half of AVG",
        ]
        .map(str::to_owned)
        .to_vec(),
        words: 1,
        rows: groups
            .iter()
            .flat_map(|(key, points)| {
                points.iter().filter_map(|point| seconds_row(study, name(study, key, &[]), point))
            })
            .collect(),
        notes: Vec::new(),
    };
    let mut fits = Table {
        caption: "Universal Scalability Law".to_owned(),
        heads: ["Cell", "contention α", "coherency β", "throughput of one γ", "peak at", "peak TPS", "R²"]
            .map(str::to_owned)
            .to_vec(),
        words: 1,
        rows: Vec::new(),
        notes: Vec::new(),
    };
    let mut charts = Vec::new();
    for (key, points) in &groups {
        fit(study, &name(study, key, &[]), points, &mut fits, &mut charts);
    }
    let tables = [seconds, fits].into_iter().filter(|t| !t.rows.is_empty() || !t.notes.is_empty()).collect();
    Some(Section {
        drawings: Vec::new(),
        id: "stability",
        title: "Stability and the shape of the climb",
        hint: "AVG and MAX are means over the runs of their average and best second. A server whose worst second is far \
               from its AVG stalls; one whose MAX is far above it could do more. The curve is X(N) = γN / (1 + α(N−1) + \
               βN(N−1)), fitted by weighted least squares (Gunther 2007); it is refused where the points do not bend, a \
               parameter is at its bound, or it explains less than 90 % of the variation. N is sessions here, not cores."
            .to_owned(),
        charts,
        tables,
    })
}

fn seconds_row(study: &StudyReport, label: String, point: &Point) -> Option<Vec<String>> {
    let of_runs: Vec<stats::Stability> =
        study.counted(point).filter_map(|(_, step)| stats::stability(&step.seconds())).collect();
    let mean =
        |of: &dyn Fn(&stats::Stability) -> f64| stats::mean(&of_runs.iter().map(of).collect::<Vec<f64>>());
    Some(vec![
        label,
        point.sessions.to_string(),
        number(mean(&|s| s.avg)?),
        number(mean(&|s| s.max)?),
        number(mean(&|s| s.max_over_avg)?),
        number(mean(&|s| s.min)?),
        number(mean(&|s| s.min_over_avg)?),
        percent(mean(&|s| s.cv)?),
        of_runs.iter().map(|s| s.stalled_seconds).sum::<usize>().to_string(),
    ])
}

fn fit(study: &StudyReport, label: &str, points: &[&Point], table: &mut Table, charts: &mut Vec<Ladder>) {
    let measured: Vec<stats::UslPoint> = points
        .iter()
        .map(|point| stats::UslPoint {
            level: f64::from(point.sessions),
            throughputs: study.samples(point, "tps").iter().map(|sample| sample.value).collect(),
        })
        .filter(|point| !point.throughputs.is_empty())
        .collect();
    let label = if label.is_empty() { "all" } else { label };
    let fit = match stats::fit_usl(&measured, stats::Weighting::ByVariance, ROUNDS, SEED) {
        Ok(fit) if fit.r_squared < R_SQUARED_MIN => {
            return table.notes.push(format!(
                "{label}: no curve: the best one explains {} % of the variation between the levels (R² {:.2}, at \
                 least {R_SQUARED_MIN} is wanted), so that the law does not describe these points",
                number(fit.r_squared.max(0.0) * 100.0),
                fit.r_squared
            ));
        }
        Ok(fit) => fit,
        Err(why) => return table.notes.push(format!("{label}: no curve: {why}")),
    };
    let estimate =
        |e: &stats::usl::Estimate| format!("{} ({} – {})", small(e.value), small(e.low), small(e.high));
    table.rows.push(vec![
        label.to_owned(),
        estimate(&fit.alpha),
        estimate(&fit.beta),
        estimate(&fit.gamma),
        number(fit.peak_level.value),
        number(fit.peak_throughput.value),
        format!("{:.3}", fit.r_squared),
    ]);
    let curve = points
        .iter()
        .map(|point| fit.at(f64::from(point.sessions)).map(|value| (value, value, value, 0, String::new())))
        .collect();
    let measured: Vec<_> = points.iter().map(|point| drawn(point)).collect();
    charts.push(Ladder {
        scale: crate::scale::Scale::default(),
        metric: "stability".into(),
        facet: label.to_owned(),
        title: label.to_owned(),
        unit: "committed transactions per second, and the fitted curve (dashed)",
        x: "sessions".to_owned(),
        categories: points.iter().map(|point| point.sessions.to_string()).collect(),
        bars: false,
        lines: vec![
            Line {
                name: "measured".to_owned(),
                style: 0,
                reference: false,
                is_named_before: false,
                gaps: gaps(&measured, |_| true),
                points: measured,
                invalid: vec![],
            },
            Line {
                name: "fit".to_owned(),
                style: 1,
                reference: true,
                is_named_before: false,
                points: curve,
                gaps: vec![],
                invalid: vec![],
            },
        ],
    });
}

/// Coefficients are far below 1.
fn small(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.1e}") } else { number(value) }
}
