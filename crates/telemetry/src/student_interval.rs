//! Interval of a total from the scatter of its batches.

use stats::student::upper_quantile;

/// 95 % interval of a total that was observed in `batches` equal batches, of which only those in `times` were not
/// zero. Batch means tame the resemblance of neighbouring samples. With fewer than three batches nothing is known but
/// that it is not negative.
pub(crate) fn over_batches(times: &[f64], batches: usize, total: f64) -> (f64, f64) {
    if batches < 3 {
        return (0.0, f64::INFINITY);
    }
    let n = batches as f64;
    let mean = total / n;
    let zeros = batches.saturating_sub(times.len()) as f64;
    let squares: f64 = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() + zeros * mean * mean;
    let half = upper_quantile(0.025, n - 1.0) * (squares / (n - 1.0) * n).sqrt();
    ((total - half).max(0.0), total + half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_batches_leave_no_doubt_and_few_leave_all() {
        assert_eq!(over_batches(&[1.0; 10], 10, 10.0), (10.0, 10.0));
        assert_eq!(over_batches(&[1.0; 2], 2, 2.0), (0.0, f64::INFINITY));
        let (low, high) = over_batches(&[1.0; 5], 10, 5.0);
        assert!(low > 0.0 && low < 5.0 && high > 5.0);
    }
}
