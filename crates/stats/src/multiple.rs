//! Many comparisons at once.

/// Adjusted p values of Benjamini and Hochberg (1995): rejecting all that are at most q keeps the expected share of
/// false ones among the rejected at q. In the order of the input; NaN stays NaN and does not count as a comparison.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|i| !p[*i].is_nan()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let m = order.len();
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut smallest = 1.0f64;
    for (from_top, i) in order.into_iter().enumerate() {
        let rank = m - from_top;
        smallest = smallest.min(p[i] * (m as f64 / rank as f64));
        adjusted[i] = smallest;
    }
    adjusted
}

/// Adjusted p values of Holm (1979): rejecting all that are at most alpha makes any false rejection at all no likelier
/// than alpha, however the comparisons depend on each other. NaN as above.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|i| !p[*i].is_nan()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let m = order.len();
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut largest = 0.0f64;
    for (rank, i) in order.into_iter().enumerate() {
        largest = largest.max((p[i] * (m - rank) as f64).min(1.0));
        adjusted[i] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holm_is_that_of_r() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005, f64::NAN]);
        for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - want).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(adjusted[4].is_nan());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn textbook_example() {
        // R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "BH") is 0.05 for each.
        let adjusted = benjamini_hochberg(&[0.01, 0.02, 0.03, 0.04, 0.05]);
        assert!(adjusted.iter().all(|p| (p - 0.05).abs() < 1e-12));
        // R: p.adjust(c(0.001, 0.5, 0.02), "BH") is 0.003 0.5 0.03.
        let adjusted = benjamini_hochberg(&[0.001, 0.5, 0.02]);
        for (got, want) in adjusted.iter().zip([0.003, 0.5, 0.03]) {
            assert!((got - want).abs() < 1e-12, "{adjusted:?}");
        }
    }

    #[test]
    fn nan_is_no_comparison() {
        let adjusted = benjamini_hochberg(&[0.04, f64::NAN]);
        assert!((adjusted[0] - 0.04).abs() < 1e-15 && adjusted[1].is_nan());
    }

    proptest! {
        #[test]
        fn adjusted_is_never_smaller_and_keeps_the_order(p in prop::collection::vec(0f64..1.0, 1..40)) {
            let adjusted = benjamini_hochberg(&p);
            for i in 0..p.len() {
                prop_assert!(adjusted[i] >= p[i] && adjusted[i] <= 1.0);
                for j in 0..p.len() {
                    if p[i] < p[j] { prop_assert!(adjusted[i] <= adjusted[j]); }
                }
            }
        }
    }
}
