//! Histograms that scripts make for themselves (`sysbench.histogram`, `sb_histogram_*`): counts in steps of equal
//! ratio, kept as sysbench keeps them. The engine's own latencies are in finer ones.

use std::ffi::c_void;
use std::fmt::Write;

/// Counts between two values, in steps of equal ratio.
#[derive(Debug, Clone)]
pub(crate) struct StepHistogram {
    counts: Vec<u64>,
    least: f64,
    most: f64,
    /// Steps for a factor of e.
    scale: f64,
}

impl StepHistogram {
    /// `size` steps from `least` to `most`, both above 0.
    pub(crate) fn new(size: usize, least: f64, most: f64) -> StepHistogram {
        let size = size.max(2);
        let (least, most) = (least.max(f64::MIN_POSITIVE), most.max(f64::MIN_POSITIVE));
        let scale = (size - 1) as f64 / (most.ln() - least.ln());
        StepHistogram { counts: vec![0; size], least, most, scale }
    }

    /// Counts a value; those outside go to the first or last step.
    pub(crate) fn update(&mut self, value: f64) {
        self.add(value, 1);
    }

    /// Counts a value several times.
    pub(crate) fn add(&mut self, value: f64, times: u64) {
        let at = (value.clamp(self.least, self.most).ln() - self.least.ln()) * self.scale;
        let at = ((at + 0.5).floor() as usize).min(self.counts.len() - 1);
        self.counts[at] += times;
    }

    fn value(&self, at: usize) -> f64 {
        (at as f64 / self.scale).exp() * self.least
    }

    /// The value of the step below which `percent` of all lie; 0 of nothing.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let total: u64 = self.counts.iter().sum();
        if total == 0 {
            return 0.0;
        }
        let wanted = (total as f64 * percent / 100.0 + 0.5).floor() as u64;
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(self.most, |at| self.value(at))
    }

    /// The steps that have counts, with bars; empty where nothing was counted.
    pub(crate) fn text(&self) -> String {
        let largest = self.counts.iter().copied().max().unwrap_or(0);
        if largest == 0 {
            return String::new();
        }
        let mut text = String::from("       value  ------------- distribution ------------- count\n");
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let width = (*count as f64 * 40.0 / largest as f64 + 0.5).floor() as usize;
            let _ = writeln!(text, "{:12.3} |{:<40} {count}", self.value(at), "*".repeat(width));
        }
        text
    }
}

/// A new histogram; the caller deletes it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_histogram_new(size: usize, least: f64, most: f64) -> *mut StepHistogram {
    Box::into_raw(Box::new(StepHistogram::new(size, least, most)))
}

/// Deletes a histogram.
///
/// # Safety
/// `histogram` is NULL or came from [`sb_histogram_new`] and was not deleted.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_histogram_delete(histogram: *mut StepHistogram) {
    if !histogram.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(histogram) });
    }
}

/// Counts a value.
///
/// # Safety
/// As [`sb_histogram_delete`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_histogram_update(histogram: *mut StepHistogram, value: f64) {
    // SAFETY: the caller's promise.
    if let Some(histogram) = unsafe { histogram.as_mut() } {
        histogram.update(value);
    }
}

/// The percentile of all that was counted.
///
/// # Safety
/// As [`sb_histogram_delete`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_histogram_get_pct_cumulative(
    histogram: *mut StepHistogram,
    percent: f64,
) -> f64 {
    // SAFETY: the caller's promise.
    unsafe { histogram.as_ref() }.map_or(0.0, |histogram| histogram.percentile(percent))
}

/// Prints a histogram on standard output.
///
/// # Safety
/// As [`sb_histogram_delete`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_histogram_print(histogram: *mut StepHistogram) {
    // SAFETY: the caller's promise.
    if let Some(histogram) = unsafe { histogram.as_ref() } {
        crate::run::flush_lua();
        print!("{}", histogram.text());
    }
}

/// All of this file.
pub(crate) fn table() -> Vec<(&'static str, *const c_void, &'static str)> {
    crate::ffi::functions! {
        sb_histogram_new: "sb_histogram_t *(*)(size_t, double, double)",
        sb_histogram_delete: "void (*)(sb_histogram_t *)",
        sb_histogram_update: "void (*)(sb_histogram_t *, double)",
        sb_histogram_get_pct_cumulative: "double (*)(sb_histogram_t *, double)",
        sb_histogram_print: "void (*)(sb_histogram_t *)",
    }
}

#[cfg(test)]
mod tests {
    use super::StepHistogram;

    #[test]
    fn values_fall_into_steps_of_equal_ratio() {
        let mut histogram = StepHistogram::new(5, 1.0, 10_000.0);
        for value in [0.5, 1.0, 9.0, 11.0, 100.0, 1e9] {
            histogram.update(value);
        }
        assert_eq!(histogram.counts, [2, 2, 1, 0, 1]);
        assert!((histogram.percentile(50.0) - 10.0).abs() < 1e-9);
        assert!((histogram.percentile(100.0) - 10_000.0).abs() < 1e-6);
        assert!(histogram.text().lines().nth(1).unwrap().ends_with("* 2"));
        assert_eq!(StepHistogram::new(5, 1.0, 2.0).text(), "");
    }
}
