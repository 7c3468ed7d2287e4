//! One scale for charts that are read beside each other.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::layout::Facet;
use crate::text::value_text;

/// Where workloads differ by more than this, each keeps a scale of its own: theirs are not the same transactions, and
/// the smaller one would be flat.
const APART: f64 = 4.0;
/// A scale has about this many steps.
const STEPS: f64 = 5.0;

/// How high a chart is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Scale {
    /// Its top; `None` where nothing was measured.
    pub(crate) top: Option<f64>,
    /// From one line with a number to the next; the top is one of them.
    step: Option<f64>,
    /// The workload that it is about, where charts differ in that.
    #[serde(skip)]
    workload: String,
}

impl Scale {
    pub(crate) fn of_facet(facet: &Facet<'_>) -> Scale {
        Scale {
            top: None,
            step: None,
            workload: facet.key.get("workload").map(value_text).unwrap_or_default(),
        }
    }
}

/// Gives charts their tops; beside each is the highest figure that was measured.
pub(crate) fn share(charts: Vec<(&mut Scale, f64)>) {
    let mut highest: BTreeMap<String, f64> = BTreeMap::new();
    for (scale, value) in &charts {
        let known = highest.entry(scale.workload.clone()).or_default();
        *known = known.max(*value);
    }
    let most = highest.values().copied().fold(0.0, f64::max);
    let least = highest.values().copied().filter(|value| *value > 0.0).fold(f64::MAX, f64::min);
    for (scale, _) in charts {
        let value = if most <= APART * least { most } else { highest[&scale.workload] };
        let rounded = (value > 0.0 && value.is_finite()).then(|| rounded_up(value));
        (scale.top, scale.step) = rounded.unzip();
    }
}

/// The next multiple of a step of 1, 2, 2.5 or 5 in some power of ten, and that step.
fn rounded_up(value: f64) -> (f64, f64) {
    let wanted = value / STEPS;
    let power = 10_f64.powf(wanted.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| *step >= wanted * 0.999);
    let step = step.unwrap_or(10.0 * power);
    // Without the tail of a product of decimals.
    let plain = |value: f64| {
        let digits = 10_f64.powf(9.0 - value.log10().floor());
        (value * digits).round() / digits
    };
    (plain((value / step * 0.999).ceil() * step), plain(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tops(charts: &[(&str, f64)]) -> Vec<Option<f64>> {
        let of = |workload: &str| Scale { workload: workload.to_owned(), ..Scale::default() };
        let mut scales: Vec<(Scale, f64)> = charts.iter().map(|(name, value)| (of(name), *value)).collect();
        share(scales.iter_mut().map(|(scale, value)| (scale, *value)).collect());
        scales.into_iter().map(|(scale, _)| scale.top).collect()
    }

    #[test]
    fn charts_of_one_workload_share_a_scale_however_far_apart_they_are() {
        assert_eq!(tops(&[("w", 90.0), ("w", 930.0), ("w", 0.0)]), [Some(1000.0); 3]);
    }

    #[test]
    fn workloads_share_one_where_both_can_be_read_on_it() {
        assert_eq!(tops(&[("a", 400.0), ("b", 1200.0)]), [Some(1250.0); 2]);
        assert_eq!(tops(&[("a", 40.0), ("b", 1200.0)]), [Some(40.0), Some(1250.0)]);
        assert_eq!(tops(&[("a", 0.0)]), [None]);
    }

    #[test]
    fn tops_are_round() {
        for (value, top) in
            [(1.0, 1.0), (0.0123, 0.0125), (7.3, 8.0), (101.0, 125.0), (4999.0, 5000.0), (5200.0, 6000.0)]
        {
            let (found, step) = rounded_up(value);
            assert!((found - top).abs() < 1e-12, "{value}: {found}");
            assert!((top / step - (top / step).round()).abs() < 1e-9, "{top} has no line of its own: {step}");
        }
    }
}
