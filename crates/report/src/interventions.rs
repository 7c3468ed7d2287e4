//! What was changed of a server while it was loaded, as figures.

use crate::model::RunView;

/// Committed transactions per second before and after a change that came at a moment: over the whole seconds that lie on one
/// side of it. `None` where one side has none.
pub(crate) fn before_after(run: &RunView, of: &store::Intervention) -> Option<(f64, f64)> {
    let (began, took) = (of.at_s?, of.took_s.unwrap_or_default());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for step in &run.steps {
        for second in
            step.intervals.iter().filter(|interval| interval.second >= 1 && interval.duration_s > 0.99)
        {
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
