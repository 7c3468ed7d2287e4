//! How much of a spread arises at which level: between server lives, and between slices within a life.
//!
//! One-way random effects: value = mean + life + slice. The analysis-of-variance estimator for groups of unequal size
//! (Searle, Casella, McCulloch: "Variance Components", 1992, section 3.6): unbiased, except that a negative estimate of
//! the upper variance is told as 0.

use crate::describe::{mean, variance};

/// Variances by level, in squares of the unit of the values (of logarithms: roughly squared shares).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Mean of the groups' means, each group weighing alike.
    pub mean: f64,
    /// Variance between groups (lives), without what the values within contribute to it.
    pub between: f64,
    /// Variance between the values (slices) of one group.
    pub within: f64,
    /// Groups that the figures rest on.
    pub groups: usize,
    /// Values in all of them.
    pub values: usize,
}

impl Components {
    /// Variance of the mean of one group of `values` values.
    pub fn of_a_mean(&self, values: usize) -> f64 {
        self.between + self.within / values.max(1) as f64
    }
}

/// Components of `groups` (for example the log-ratios of the slices of each life). Empty groups do not count. `None`
/// with fewer than two groups, or where no group has two values: the levels cannot be told apart then.
pub fn variance_components<G: AsRef<[f64]>>(groups: &[G]) -> Option<Components> {
    let groups: Vec<&[f64]> = groups.iter().map(AsRef::as_ref).filter(|group| !group.is_empty()).collect();
    let values: usize = groups.iter().map(|group| group.len()).sum();
    if groups.len() < 2 || values == groups.len() {
        return None;
    }
    let (k, n) = (groups.len() as f64, values as f64);
    let grand_mean = groups.iter().flat_map(|group| group.iter()).sum::<f64>() / n;
    let means: Vec<f64> = groups.iter().filter_map(|group| mean(group)).collect();
    let squares_within: f64 =
        groups.iter().filter_map(|group| Some(variance(group)? * (group.len() - 1) as f64)).sum();
    let within = squares_within / (n - k);
    let squares_between: f64 =
        groups.iter().zip(&means).map(|(group, mean)| group.len() as f64 * (mean - grand_mean).powi(2)).sum();
    let squared_sizes: f64 = groups.iter().map(|group| (group.len() as f64).powi(2)).sum();
    let typical_size = (n - squared_sizes / n) / (k - 1.0);
    let between = ((squares_between / (k - 1.0) - within) / typical_size).max(0.0);
    Some(Components { mean: mean(&means)?, between, within, groups: groups.len(), values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// By hand: sizes 2, 3 and 1; grand mean 4; squares within 2 + 2 + 0 = 4 with 3 degrees of freedom; squares between
    /// 2 * 4 + 3 * 1 + 1 * 1 = 12 with 2; typical size (6 - 14 / 6) / 2 = 11 / 6.
    #[test]
    fn unequal_groups_are_those_of_a_hand_computation() {
        let found = variance_components(&[vec![1.0, 3.0], vec![4.0, 5.0, 6.0], vec![5.0], vec![]]).unwrap();
        assert!((found.within - 4.0 / 3.0).abs() < 1e-12, "{found:?}");
        assert!((found.between - (6.0 - 4.0 / 3.0) / (11.0 / 6.0)).abs() < 1e-12, "{found:?}");
        assert_eq!((found.groups, found.values), (3, 6));
        assert!((found.mean - 4.0).abs() < 1e-12);
        assert!((found.of_a_mean(4) - (found.between + found.within / 4.0)).abs() < 1e-12);
    }

    #[test]
    fn levels_that_cannot_be_told_apart_have_no_components() {
        assert_eq!(variance_components::<Vec<f64>>(&[]), None);
        assert_eq!(variance_components(&[vec![1.0, 2.0]]), None);
        assert_eq!(variance_components(&[vec![1.0], vec![2.0]]), None);
    }

    #[test]
    fn lives_that_differ_less_than_their_slices_imply_have_no_variance_of_their_own() {
        let found = variance_components(&[[1.0, 5.0], [5.0, 1.0]]).unwrap();
        assert_eq!((found.between, found.within), (0.0, 8.0));
    }

    #[test]
    fn planted_variances_are_found_on_average() {
        let mut rng = Rng::new(3);
        let (mut between, mut within) = (0.0, 0.0);
        for _ in 0..400 {
            let groups: Vec<Vec<f64>> = (0..20)
                .map(|life| {
                    let level = 2.0 * rng.normal();
                    (0..2 + life % 5).map(|_| level + 3.0 * rng.normal()).collect()
                })
                .collect();
            let found = variance_components(&groups).unwrap();
            between += found.between / 400.0;
            within += found.within / 400.0;
        }
        assert!((between - 4.0).abs() < 0.25 && (within - 9.0).abs() < 0.25, "{between} {within}");
    }
}
