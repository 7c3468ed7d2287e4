//! The picture of a load line: percentiles of the response time against the offered rate, the promise as a level, the
//! line as a ship has it, and the closed loop's peak beside it. Drawn without a script, in the colours of the page's
//! style sheet.

use std::fmt::Write;

use store::{Line, LineProbe};

use crate::lines::{Tried, line_of};
use crate::model::{Point, StudyReport};
use crate::text::number;

/// Width and height in units of its own coordinates, and the room around the drawing itself.
const SIZE: (f64, f64) = (480.0, 300.0);
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 38.0;

/// What is drawn of a cell.
pub(crate) struct Picture<'a> {
    pub(crate) caption: String,
    tried: Vec<Tried<'a>>,
    /// By promise: over the counted runs, and as the first of them found it.
    lines: Vec<(Option<f64>, &'a Line)>,
    /// Of the closed loop.
    peak_tps: Option<f64>,
}

impl<'a> Picture<'a> {
    /// `None` where nothing was tried.
    pub(crate) fn of(study: &'a StudyReport, point: &'a Point) -> Option<Picture<'a>> {
        let tried = study.tried(point);
        if tried.is_empty() {
            return None;
        }
        let promises = study.promises();
        let lines = promises.iter().filter_map(|promise| {
            let (run, _) = study.counted(point).next()?;
            let line_tps = study.estimate(point, promise).map(|line| line.median);
            Some((line_tps, line_of(run, promise)?))
        });
        let lines: Vec<(Option<f64>, &Line)> = lines.collect();
        let peak_tps = study.peak(point).map(|peak| peak.median);
        Some(Picture { caption: point.label.clone(), tried, lines, peak_tps })
    }
}

/// The percentiles that are drawn, with the class of their marks.
type Percentile = (&'static str, fn(&LineProbe) -> Option<f64>, usize);
const PERCENTILES: [Percentile; 3] =
    [("p50", |probe| probe.p50_ms, 0), ("p95", |probe| probe.p95_ms, 1), ("p99", |probe| probe.p99_ms, 2)];

/// Common to the pictures of a study, so that they can be read beside each other.
pub(crate) struct Axes {
    rate_max: f64,
    /// Powers of ten.
    low: f64,
    high: f64,
}

/// Response times of a rate far beyond the line say nothing but that it is beyond: the scale ends at so many times the
/// highest limit.
const BEYOND_LIMIT: f64 = 20.0;

impl Axes {
    pub(crate) fn of(pictures: &[Picture<'_>]) -> Axes {
        let rates = pictures
            .iter()
            .flat_map(|one| one.tried.iter().map(|tried| tried.probe.rate).chain(one.peak_tps));
        let rate_max = 1.04 * rates.fold(1.0, f64::max);
        let times = || {
            let probes = pictures.iter().flat_map(|one| &one.tried);
            probes.flat_map(|tried| PERCENTILES.map(|(_, of, _)| of(tried.probe))).flatten()
        };
        let limits = || pictures.iter().flat_map(|one| &one.lines).filter_map(|(_, line)| line.limit_ms);
        let low = times().chain(limits()).filter(|ms| *ms > 0.0).fold(f64::MAX, f64::min);
        let limit = limits().fold(0.0, f64::max);
        let most = times().fold(limit, f64::max);
        let high = if limit > 0.0 { most.min(BEYOND_LIMIT * limit) } else { most };
        let low = if low == f64::MAX { 0.1 } else { low };
        Axes { rate_max, low: (0.8 * low).log10(), high: (1.25 * high.max(2.0 * low)).log10() }
    }

    fn x(&self, rate: f64) -> f64 {
        LEFT + (SIZE.0 - LEFT - RIGHT) * (rate / self.rate_max).clamp(0.0, 1.0)
    }

    fn y(&self, ms: f64) -> f64 {
        let share = ((ms.max(1e-9).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        SIZE.1 - BOTTOM - (SIZE.1 - BOTTOM - TOP) * share
    }

    /// Rates at round distances.
    fn rates(&self) -> Vec<f64> {
        let power = 10_f64.powf((self.rate_max / 4.0).log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| self.rate_max / step <= 5.0);
        let step = step.unwrap_or(10.0 * power);
        (0..).map(|at| f64::from(at) * step).take_while(|rate| *rate <= self.rate_max).collect()
    }

    /// 1, 2 and 5 in each power of ten; only powers where these are many.
    fn times(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low > 2.2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|ms| (self.low..=self.high).contains(&ms.log10())).collect()
    }
}

/// The drawing.
pub(crate) fn picture(of: &Picture<'_>, axes: &Axes) -> String {
    let mut svg = format!(
        "<svg class=\"loadline\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"response time against offered rate\">",
        SIZE.0, SIZE.1
    );
    grid(&mut svg, axes);
    let (top, bottom) = (TOP, SIZE.1 - BOTTOM);
    if let Some(peak) = of.peak_tps {
        let x = axes.x(peak);
        let _ = write!(
            svg,
            "<line class=\"peak\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"peak\" x=\"{:.1}\" y=\"13\" text-anchor=\"end\">closed loop: {}</text>",
            SIZE.0 - RIGHT,
            number(peak)
        );
    }
    levels(&mut svg, of, axes);
    for (_, value, style) in PERCENTILES {
        marks(&mut svg, of, axes, value, style);
    }
    let lines: Vec<(f64, &Line)> =
        of.lines.iter().filter_map(|(line_tps, line)| Some(((*line_tps)?, *line))).collect();
    for (line_tps, line) in &lines {
        load_line(&mut svg, axes, *line_tps, line, lines.len() == 1);
    }
    svg.push_str("</svg>");
    svg
}

fn grid(svg: &mut String, axes: &Axes) {
    let (bottom, right) = (SIZE.1 - BOTTOM, SIZE.0 - RIGHT);
    for rate in axes.rates() {
        let x = axes.x(rate);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            number(rate)
        );
    }
    for ms in axes.times() {
        let y = axes.y(ms);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms}</text>",
            LEFT - 5.0,
            y + 4.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">offered transactions/s</text><text x=\"4\" y=\"13\">ms</text>",
        SIZE.1 - 5.0
    );
}

/// What is promised.
fn levels(svg: &mut String, of: &Picture<'_>, axes: &Axes) {
    for (_, line) in &of.lines {
        let Some(limit) = line.limit_ms else { continue };
        let (y, right) = (axes.y(limit), SIZE.0 - RIGHT);
        let _ = write!(
            svg,
            "<line class=\"promise\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"promise\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y - 4.0,
            escaped(&line.promise)
        );
    }
}

/// One percentile of all probes; those beyond the scale are arrows at its top.
fn marks(
    svg: &mut String,
    of: &Picture<'_>,
    axes: &Axes,
    value: fn(&LineProbe) -> Option<f64>,
    style: usize,
) {
    let mut probes: Vec<(&Tried<'_>, f64)> =
        of.tried.iter().filter_map(|tried| Some((tried, value(tried.probe)?))).collect();
    probes.sort_by(|a, b| a.0.probe.rate.total_cmp(&b.0.probe.rate));
    let path: Vec<String> = probes
        .iter()
        .filter(|(tried, _)| tried.counts)
        .map(|(tried, ms)| format!("{:.1},{:.1}", axes.x(tried.probe.rate), axes.y(*ms)))
        .collect();
    let _ = write!(svg, "<polyline class=\"p{style}\" points=\"{}\"/>", path.join(" "));
    for (tried, ms) in probes {
        let (x, y) = (axes.x(tried.probe.rate), axes.y(ms));
        let out = if tried.counts { "" } else { " out" };
        if ms.log10() > axes.high {
            let _ =
                write!(svg, "<path class=\"p{style}{out}\" d=\"M{:.1} {:.1}l4 -5l4 5z\"/>", x - 4.0, y + 5.0);
            continue;
        }
        if let Some((low, high)) = tried.probe.spreads.get(style).copied().flatten() {
            let _ = write!(
                svg,
                "<line class=\"p{style}{out}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                axes.y(low),
                axes.y(high)
            );
        }
        let radius = if tried.probe.is_hold() { 4.0 } else { 2.6 };
        let _ = write!(svg, "<circle class=\"p{style}{out}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
    }
}

/// A circle with a stroke through it, as on a hull. A line that is alone has it at the top, with its interval as a band;
/// several have it where each meets the level of its promise.
fn load_line(svg: &mut String, axes: &Axes, line_tps: f64, line: &Line, is_alone: bool) {
    let (x, bottom) = (axes.x(line_tps), SIZE.1 - BOTTOM);
    if let (Some(low), Some(high), true) = (line.low, line.high, is_alone) {
        let (low, high) = (axes.x(low), axes.x(high));
        let _ = write!(
            svg,
            "<rect class=\"band\" x=\"{low:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            (high - low).max(1.0),
            bottom - TOP
        );
    }
    let level = line.limit_ms.filter(|_| !is_alone).map(|limit| axes.y(limit));
    let (from, at) = (level.unwrap_or(TOP), level.unwrap_or(TOP - 7.0));
    let _ = write!(
        svg,
        "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{bottom}\"/>\
         <circle class=\"mark\" cx=\"{x:.1}\" cy=\"{at:.1}\" r=\"6\"/>\
         <line class=\"mark\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
        x - 10.0,
        x + 10.0
    );
    let (anchor, beside) = if x < SIZE.0 / 2.0 { ("start", x + 13.0) } else { ("end", x - 13.0) };
    let _ = write!(
        svg,
        "<text class=\"mark\" x=\"{beside:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        if is_alone { at + 4.0 } else { at - 6.0 },
        number(line_tps)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ticks_and_nothing_leaves_the_drawing() {
        let axes = Axes { rate_max: 10_400.0, low: -0.3, high: 2.0 };
        assert_eq!(axes.rates(), [0.0, 5000.0, 10_000.0]);
        assert_eq!(axes.times(), [1.0, 10.0, 100.0]);
        let narrow = Axes { rate_max: 90.0, low: 0.0, high: 1.5 };
        assert_eq!(narrow.times(), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert!(axes.x(1e9) <= SIZE.0 - RIGHT && axes.y(1e9) >= TOP && axes.y(0.0) <= SIZE.1 - BOTTOM);
    }
}
