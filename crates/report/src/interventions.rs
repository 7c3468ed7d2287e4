//! What was changed of a server while it was loaded, as figures.

use crate::load::label;
use crate::model::{Point, RunView, Sentence, StudyReport};
use crate::text::{number, ratio, value_text};

/// A change that came once while a point was loaded, over the lives that count: one value of each life.
pub(crate) struct Moment<'a> {
    pub(crate) name: &'a str,
    pub(crate) statements: &'a [String],
    /// Seconds after the start of the level.
    pub(crate) at_s: Vec<f64>,
    before_tps: Vec<f64>,
    after_tps: Vec<f64>,
    /// After over before.
    ratios: Vec<f64>,
}

impl Moment<'_> {
    /// The changes of a point, in the order of their first life.
    pub(crate) fn of<'a>(study: &'a StudyReport, point: &'a Point) -> Vec<Moment<'a>> {
        let mut all: Vec<Moment<'a>> = Vec::new();
        for (run, step) in study.counted(point) {
            for one in run.end.iter().flat_map(|end| &end.interventions) {
                let Some(at_s) = one.at_s else { continue };
                let known = all.iter().position(|moment| moment.name == one.name).unwrap_or(all.len());
                if known == all.len() {
                    all.push(Moment::new(one));
                }
                all[known].at_s.push(at_s - step.offset_s);
                if let Some((before, after)) = before_after(run, one) {
                    all[known].before_tps.push(before);
                    all[known].after_tps.push(after);
                    all[known].ratios.push(after / before.max(f64::MIN_POSITIVE));
                }
            }
        }
        all
    }

    fn new(of: &store::Intervention) -> Moment<'_> {
        let (at_s, before_tps, after_tps, ratios) = Default::default();
        Moment { name: &of.name, statements: &of.on, at_s, before_tps, after_tps, ratios }
    }

    pub(crate) fn lives(&self) -> usize {
        self.ratios.len()
    }

    /// Medians of the throughput before and after; `None` where no life has whole seconds on both sides.
    pub(crate) fn sides_tps(&self) -> Option<(f64, f64)> {
        stats::median(&self.before_tps).zip(stats::median(&self.after_tps))
    }

    /// The median ratio, the lowest and the highest.
    pub(crate) fn ratio(&self) -> Option<[f64; 3]> {
        let least = self.ratios.iter().copied().fold(f64::MAX, f64::min);
        let most = self.ratios.iter().copied().fold(f64::MIN, f64::max);
        stats::median(&self.ratios).map(|middle| [middle, least, most])
    }

    /// The same for people: `×0.93 [×0.92 to ×0.94]`.
    pub(crate) fn ratio_text(&self) -> Option<String> {
        let [middle, least, most] = self.ratio()?;
        let span = match self.lives() {
            0 | 1 => String::new(),
            _ => format!(" [{} to {}]", ratio(least), ratio(most)),
        };
        Some(format!("{}{span}", ratio(middle)))
    }
}

/// Before and after each change, where nothing is compared: `With "drop_index" at 5 s: ...`.
pub(crate) fn sentences(study: &StudyReport) -> Vec<Sentence> {
    let mut all = Vec::new();
    for point in &study.points {
        let cell = label(&point.identity, &study.varying, &[]);
        let cell = if cell.is_empty() { point.label.clone() } else { cell };
        let workload = point.key.get("workload").map(value_text).unwrap_or_default();
        let on = if cell.contains(&workload) { String::new() } else { format!(" on {workload}") };
        for moment in Moment::of(study, point) {
            let (Some((before, after)), Some(ratio), Some(at_s)) =
                (moment.sides_tps(), moment.ratio_text(), stats::median(&moment.at_s))
            else {
                continue;
            };
            let lives = moment.lives();
            let lives = if lives == 1 { "one life".to_owned() } else { format!("median of {lives} lives") };
            all.push(Sentence::plain(&format!(
                "{} after {at_s:.0} s: {cell} went from {} to {} TPS{on} ({ratio}, {lives}; a before and after, no verdict).",
                moment.name,
                number(before),
                number(after),
            )));
        }
    }
    all
}

/// Committed transactions per second before and after a change that came at a moment: over the whole seconds that lie on one
/// side of it. `None` where one side has none.
pub(crate) fn before_after(run: &RunView, of: &store::Intervention) -> Option<(f64, f64)> {
    let (began, took) = (of.at_s?, of.took_s.unwrap_or_default());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for step in &run.steps {
        for second in step.intervals.iter().filter(|interval| interval.is_whole) {
            let from = step.offset_s + (second.second - 1) as f64;
            if from + second.duration_s <= began {
                before.push(second.tps);
            } else if from >= began + took {
                after.push(second.tps);
            }
        }
    }
    let mean = |tps: &[f64]| (!tps.is_empty()).then(|| tps.iter().sum::<f64>() / tps.len() as f64);
    Some((mean(&before)?, mean(&after)?))
}
