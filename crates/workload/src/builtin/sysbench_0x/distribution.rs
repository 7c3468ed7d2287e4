//! Row numbers by the formulas of sysbench 0.4 (sb_oltp.c of 2006): whole numbers throughout, other than those of 1.0.

use crate::options::Options;
use crate::random::Rng;

/// How row numbers are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Uniform,
    Gaussian,
    Special { hot_pct: u64, draws_pct: u64 },
}

/// A distribution over the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    kind: Kind,
    iterations: u64,
    rows: u64,
}

impl Rows {
    pub(super) fn of(options: &Options) -> Rows {
        let kind = match options.text("dist_type") {
            "uniform" => Kind::Uniform,
            "gaussian" => Kind::Gaussian,
            _ => Kind::Special { hot_pct: options.count("dist_pct"), draws_pct: options.count("dist_res") },
        };
        Rows { kind, iterations: options.count("dist_iter"), rows: options.count("table_size") }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn sample(&self, rng: &mut Rng) -> u64 {
        let rows = self.rows;
        let number = match self.kind {
            Kind::Uniform => rng.uniform(1, rows),
            Kind::Gaussian => self.gaussian(rng),
            Kind::Special { hot_pct, draws_pct } => {
                let drawn = rng.uniform(1, rows * (100 / (100 - draws_pct)));
                if drawn <= rows {
                    self.gaussian(rng)
                } else {
                    let hot = (rows * hot_pct / 100).max(1);
                    // A hot range wider than the table's half would begin before its first row.
                    (drawn % hot + rows / 2).saturating_sub(rows * hot_pct / 200)
                }
            }
        };
        number.clamp(1, rows)
    }

    /// The mean of some uniform numbers: near to normal, mean in the middle, deviation a twelfth of the rows.
    fn gaussian(&self, rng: &mut Rng) -> u64 {
        let sum: u64 = (0..self.iterations).map(|_| rng.uniform(1, self.rows)).sum();
        sum / self.iterations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(kind: Kind, rows: u64) -> Rows {
        Rows { kind, iterations: 12, rows }
    }

    const SPECIAL: Kind = Kind::Special { hot_pct: 1, draws_pct: 75 };

    #[test]
    fn three_quarters_of_the_draws_fall_on_the_central_hundredth() {
        let rows = rows(SPECIAL, 1_000_000);
        let mut rng = Rng::stream(1, 0);
        let draws = 200_000;
        let numbers: Vec<u64> = (0..draws).map(|_| rows.sample(&mut rng)).collect();
        let hot = numbers.iter().filter(|n| (495_000..=504_999).contains(*n)).count() as f64;
        // 75 % and, of the other quarter's normal (deviation N/12), the 4.8 % within 0.06 deviations.
        let share = hot / draws as f64;
        assert!((share - 0.762).abs() < 0.004, "{share}");
        assert!(numbers.iter().all(|n| (1..=1_000_000).contains(n)));
        // The rest is spread like a normal: about 68 % of it within one deviation.
        let rest: Vec<&u64> = numbers.iter().filter(|n| !(495_000..=504_999).contains(*n)).collect();
        let near =
            rest.iter().filter(|n| (416_667..=583_333).contains(**n)).count() as f64 / rest.len() as f64;
        assert!((near - 0.664).abs() < 0.02, "{near}");
    }

    #[test]
    fn the_other_share_of_draws_is_as_asked() {
        // 100 DIV (100 - 50) = 2: half of the draws are hot.
        let rows = rows(Kind::Special { hot_pct: 10, draws_pct: 50 }, 100_000);
        let mut rng = Rng::stream(2, 0);
        let hot = (0..100_000).filter(|_| (45_000..55_000).contains(&rows.sample(&mut rng))).count() as f64;
        // Half, and of the normal half the 45 % within 0.6 deviations.
        assert!((hot / 100_000.0 - 0.726).abs() < 0.01, "{hot}");
    }

    #[test]
    fn gaussian_has_the_deviation_of_a_twelfth() {
        let rows = rows(Kind::Gaussian, 120_000);
        let mut rng = Rng::stream(3, 0);
        let numbers: Vec<f64> = (0..50_000).map(|_| rows.sample(&mut rng) as f64).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
        assert!((mean - 60_000.0).abs() < 200.0 && (variance.sqrt() - 10_000.0).abs() < 200.0);
    }

    #[test]
    fn small_tables_stay_within_their_rows() {
        for count in [1, 2, 3, 99] {
            for kind in [Kind::Uniform, Kind::Gaussian, SPECIAL] {
                let rows = rows(kind, count);
                let mut rng = Rng::stream(4, count);
                assert!((0..500).all(|_| (1..=count).contains(&rows.sample(&mut rng))), "{kind:?} {count}");
            }
        }
    }
}
