//! Small drawings that need no script: intervals of ratios, and the seconds of runs as sparklines. Colours come from
//! the page's style sheet, so that they follow light and dark.

use std::fmt::Write;

use crate::model::Standing;

/// Width and height of an interval in the table of verdicts, in units of its own coordinates.
const FOREST: (f64, f64) = (240.0, 22.0);

/// The common scale of the ratios of a table: logarithmic and symmetric around 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RatioScale {
    /// Natural logarithm of the largest ratio that is drawn.
    reach: f64,
}

impl RatioScale {
    /// Wide enough for all given ratios (but at most a factor of 20: beyond, an arrow says so).
    pub(crate) fn of(ratios: impl Iterator<Item = f64>) -> Self {
        let widest = ratios.filter(|r| r.is_finite() && *r > 0.0).map(|r| r.ln().abs()).fold(0.0, f64::max);
        Self { reach: (widest * 1.08).clamp(0.12, 20.0_f64.ln()) }
    }

    fn x(self, ratio: f64) -> f64 {
        let place = (ratio.ln() / self.reach).clamp(-1.0, 1.0);
        FOREST.0 / 2.0 * (1.0 + place * 0.94)
    }

    /// Round ratios to label the scale with: 1, and the largest that keeps clear of the edges, both ways.
    fn ticks(self) -> Vec<(f64, String)> {
        let rounds = [1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0];
        let outer =
            rounds.into_iter().rev().find(|round: &f64| round.ln() < self.reach * 0.86).unwrap_or(rounds[0]);
        vec![(1.0 / outer, format!("÷{outer}")), (1.0, "1".to_owned()), (outer, format!("×{outer}"))]
    }
}

/// The scale's labels as a drawing of the same width.
pub(crate) fn ratio_axis(scale: RatioScale) -> String {
    let (width, _) = FOREST;
    let mut svg = format!("<svg class=\"forest\" viewBox=\"0 0 {width} 14\" aria-hidden=\"true\">");
    for (tick, text) in scale.ticks() {
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"11\" text-anchor=\"middle\">{text}</text>", scale.x(tick));
    }
    svg.push_str("</svg>");
    svg
}

/// One ratio with its interval; the band is the margin of equivalence.
pub(crate) fn ratio_interval(
    scale: RatioScale,
    ratio: f64,
    interval: Option<(f64, f64)>,
    margin: f64,
    class: &str,
) -> String {
    let (width, height) = FOREST;
    let middle = height / 2.0;
    let (band_low, band_high) = (scale.x(1.0 / (1.0 + margin)), scale.x(1.0 + margin));
    let mut svg = format!(
        "<svg class=\"forest {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"ratio {ratio:.3}\">\
         <rect class=\"band\" x=\"{band_low:.1}\" y=\"0\" width=\"{:.1}\" height=\"{height}\"/>",
        band_high - band_low
    );
    for (tick, _) in scale.ticks() {
        let class = if tick == 1.0 { "one" } else { "tick" };
        let x = scale.x(tick);
        let _ = write!(svg, "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height}\"/>");
    }
    if let Some((low, high)) = interval {
        let (low_x, high_x) = (scale.x(low), scale.x(high));
        let _ = write!(
            svg,
            "<line class=\"reach\" x1=\"{low_x:.1}\" x2=\"{high_x:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
        );
        for (value, x) in [(low, low_x), (high, high_x)] {
            let _ = if value.ln().abs() > scale.reach {
                let towards = if value < 1.0 { -4.0 } else { 4.0 };
                write!(
                    svg,
                    "<path class=\"reach\" d=\"M{:.1} {:.1}L{x:.1} {middle}L{:.1} {:.1}\"/>",
                    x - towards,
                    middle - 4.0,
                    x - towards,
                    middle + 4.0
                )
            } else {
                write!(
                    svg,
                    "<line class=\"reach\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    middle - 4.0,
                    middle + 4.0
                )
            };
        }
    }
    let _ = write!(svg, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{middle}\" r=\"4\"/></svg>", scale.x(ratio));
    svg
}

/// The seconds of the runs of a point, from zero; runs that do not count are dashed.
pub(crate) fn sparkline(runs: &[(Standing, Vec<f64>)]) -> String {
    let (width, height) = (110.0, 24.0);
    let most = runs.iter().flat_map(|(_, seconds)| seconds).copied().fold(0.0, f64::max);
    let longest = runs.iter().map(|(_, seconds)| seconds.len()).max().unwrap_or(0);
    if most <= 0.0 || longest < 2 {
        return String::new();
    }
    let mut svg = format!("<svg class=\"spark\" viewBox=\"0 0 {width} {height}\" aria-hidden=\"true\">");
    let _ = write!(svg, "<line class=\"zero\" x1=\"0\" x2=\"{width}\" y1=\"{0}\" y2=\"{0}\"/>", height - 1.0);
    for (standing, seconds) in runs {
        let points: Vec<String> = seconds
            .iter()
            .enumerate()
            .map(|(at, tps)| {
                let x = at as f64 / (longest - 1) as f64 * width;
                format!("{x:.1},{:.1}", (height - 1.0) - tps / most * (height - 3.0))
            })
            .collect();
        let class = if *standing == Standing::Counted { "" } else { " class=\"out\"" };
        let _ = write!(svg, "<polyline{class} points=\"{}\"/>", points.join(" "));
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_in_the_middle_and_intervals_stay_inside() {
        let scale = RatioScale::of([0.8, 1.3, 500.0].into_iter());
        assert_eq!(scale.x(1.0), 120.0);
        let svg = ratio_interval(scale, 1.3, Some((0.001, 500.0)), 0.05, "undecided");
        assert!(svg.contains("<path"), "what reaches beyond the scale ends in an arrow");
        assert!(scale.x(1e9) <= 240.0 && scale.x(1e-9) >= 0.0);
        assert!(!ratio_interval(scale, 1.1, Some((1.0, 1.2)), 0.05, "").contains("<path"));
    }

    #[test]
    fn sparklines_need_two_seconds() {
        assert_eq!(sparkline(&[(Standing::Counted, vec![5.0])]), "");
        assert_eq!(sparkline(&[]), "");
        let svg = sparkline(&[(Standing::Counted, vec![5.0, 10.0]), (Standing::Invalid, vec![1.0, 2.0])]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("class=\"out\"").count(), 1);
    }
}
