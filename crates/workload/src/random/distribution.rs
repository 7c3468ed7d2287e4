//! Distributions over whole numbers, by sysbench's formulas (`--rand-type`).

use super::Rng;

/// A family of distributions with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DistributionKind {
    /// Every number as likely.
    Uniform,
    /// Mean of 12 uniform numbers: close to normal, mean in the middle, standard deviation 1/12 of the range.
    Gaussian,
    /// sysbench 1.0's default: a few numbers in the middle get most of the draws.
    Special {
        /// How many uniform numbers are averaged for the draws that are spread out (12).
        iterations: u32,
        /// Share of the range that is special, in percent (1).
        hot_pct: f64,
        /// Share of the draws that go there, in percent (75).
        draws_pct: f64,
    },
    /// Self-similar: a share `1-h` of the draws falls in the first `h` of the range.
    Pareto {
        /// 0.2: the 80-20 rule.
        h: f64,
    },
    /// `P(k) ~ k^-exponent`, `k = 1` being the lowest number; not scrambled.
    Zipfian {
        /// 0.8 in sysbench; above 0.
        exponent: f64,
    },
}

/// A parameter out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} = {value}: {allowed}")]
pub struct DistributionError {
    /// The parameter.
    pub name: &'static str,
    /// As given.
    pub value: f64,
    pub allowed: &'static str,
}

impl DistributionKind {
    /// sysbench's `special` with its default parameters.
    pub const SPECIAL: DistributionKind =
        DistributionKind::Special { iterations: 12, hot_pct: 1.0, draws_pct: 75.0 };
    /// sysbench's `pareto` with its default parameter.
    pub const PARETO: DistributionKind = DistributionKind::Pareto { h: 0.2 };
    /// sysbench's `zipfian` with its default parameter.
    pub const ZIPFIAN: DistributionKind = DistributionKind::Zipfian { exponent: 0.8 };

    /// Prepares draws from `low` to `high`, both included.
    ///
    /// # Errors
    /// A parameter that the formula has no meaning for.
    pub fn over(self, low: u64, high: u64) -> Result<Distribution, DistributionError> {
        let refuse = |name, value, allowed| Err(DistributionError { name, value, allowed });
        let span = high.saturating_sub(low);
        let draw = match self {
            DistributionKind::Uniform => Draw::Uniform,
            DistributionKind::Gaussian => Draw::Gaussian { iterations: 12, width: span as f64 + 1.0 },
            DistributionKind::Special { iterations, hot_pct, draws_pct } => {
                if iterations == 0 {
                    return refuse("rand_spec_iter", 0.0, "wants at least 1");
                }
                if !(0.0..=100.0).contains(&hot_pct) {
                    return refuse("rand_spec_pct", hot_pct, "wants a number from 0 to 100");
                }
                if !(0.0..100.0).contains(&draws_pct) {
                    return refuse("rand_spec_res", draws_pct, "wants a number from 0 to below 100");
                }
                let span = span as f64;
                Draw::Special {
                    iterations,
                    span,
                    drawn_from: span * 100.0 / (100.0 - draws_pct),
                    hot_width: span * hot_pct / 100.0 + 1.0,
                    hot_start: span / 2.0 - span * hot_pct / 200.0,
                }
            }
            DistributionKind::Pareto { h } => {
                if !(h > 0.0 && h < 1.0) {
                    return refuse("rand_pareto_h", h, "wants a number between 0 and 1, both excluded");
                }
                Draw::Pareto { power: h.ln() / (1.0 - h).ln(), width: span as f64 + 1.0 }
            }
            DistributionKind::Zipfian { exponent } => {
                if !(exponent > 0.0 && exponent.is_finite()) {
                    return refuse("rand_zipfian_exp", exponent, "wants a number above 0");
                }
                Draw::Zipfian(Zipfian::new(span + 1, exponent))
            }
        };
        Ok(Distribution { low, high: high.max(low), draw })
    }
}

/// A distribution over a fixed range, with everything computed that does not change from draw to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    low: u64,
    high: u64,
    draw: Draw,
}

#[derive(Debug, Clone, PartialEq)]
enum Draw {
    Uniform,
    Gaussian { iterations: u32, width: f64 },
    Special { iterations: u32, span: f64, drawn_from: f64, hot_width: f64, hot_start: f64 },
    Pareto { power: f64, width: f64 },
    Zipfian(Zipfian),
}

fn mean_of(rng: &mut Rng, iterations: u32) -> f64 {
    let sum: f64 = (0..iterations).map(|_| rng.unit()).sum();
    sum / f64::from(iterations)
}

impl Distribution {
    /// Every number from `low` to `high` as likely.
    pub fn uniform(low: u64, high: u64) -> Distribution {
        Distribution { low, high: high.max(low), draw: Draw::Uniform }
    }

    /// The lowest and the highest number that can be drawn.
    pub fn bounds(&self) -> (u64, u64) {
        (self.low, self.high)
    }

    /// Draws a number.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let offset = match &self.draw {
            Draw::Uniform => return rng.uniform(self.low, self.high),
            Draw::Gaussian { iterations, width } => (width * mean_of(rng, *iterations)) as u64,
            Draw::Special { iterations, span, drawn_from, hot_width, hot_start } => {
                // The same number decides and, in the second case, is mapped to the hot part: sysbench's own form,
                // which leaves the first quarter of the hot part (draws_pct 75) without draws.
                let unit = rng.unit();
                if unit * drawn_from < *span {
                    (span * mean_of(rng, *iterations)) as u64
                } else {
                    (unit * hot_width + hot_start) as u64
                }
            }
            Draw::Pareto { power, width } => (width * rng.unit().powf(*power)) as u64,
            Draw::Zipfian(zipfian) => zipfian.sample(rng) - 1,
        };
        // Rounding of doubles may step over the end of ranges near 2^53.
        self.low + offset.min(self.high - self.low)
    }
}

/// Zipf's law over 1 to n by rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", ACM TOMACS 6.3 (1996). Constant time, no table.
#[derive(Debug, Clone, PartialEq)]
pub struct Zipfian {
    n: f64,
    exponent: f64,
    h_integral_first: f64,
    h_integral_last: f64,
    /// Draws this close to the left of a number need no second look.
    sure: f64,
}

impl Zipfian {
    /// Over 1 to `n` (at least 1) with `P(k) ~ k^-exponent`.
    pub fn new(n: u64, exponent: f64) -> Zipfian {
        let n = n.max(1) as f64;
        let h = |x: f64| (-exponent * x.ln()).exp();
        Zipfian {
            n,
            exponent,
            h_integral_first: h_integral(1.5, exponent) - 1.0,
            h_integral_last: h_integral(n + 0.5, exponent),
            sure: 2.0 - h_integral_inverse(h_integral(2.5, exponent) - h(2.0), exponent),
        }
    }

    /// Draws a number from 1 to n.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.h_integral_last + rng.unit() * (self.h_integral_first - self.h_integral_last);
            let x = h_integral_inverse(u, self.exponent);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.sure || u >= h_integral(k + 0.5, self.exponent) - (-self.exponent * k.ln()).exp()
            {
                return k as u64;
            }
        }
    }
}

/// Integral of `x^-e` with the constant chosen so that e = 1 needs no case of its own: `(x^(1-e) - 1) / (1 - e)`.
fn h_integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let z = (1.0 - exponent) * log;
    if z.abs() < 1e-8 { log * (1.0 + z / 2.0) } else { z.exp_m1() / z * log }
}

fn h_integral_inverse(y: f64, exponent: f64) -> f64 {
    // Rounding may push the argument of the logarithm below 0.
    let z = (y * (1.0 - exponent)).max(-1.0);
    let log = if z.abs() < 1e-8 { y * (1.0 - z / 2.0) } else { z.ln_1p() / z * y };
    log.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    /// Share of the draws from 1 to `high` that fall in `[from, to]`.
    fn share(kind: DistributionKind, high: u64, from: u64, to: u64) -> f64 {
        let distribution = kind.over(1, high).expect("good parameters");
        let mut rng = Rng::stream(11, 0);
        let hits = (0..DRAWS).filter(|_| (from..=to).contains(&distribution.sample(&mut rng))).count();
        hits as f64 / DRAWS as f64
    }

    fn near(found: f64, wanted: f64) {
        // Five standard deviations of a share over the draws.
        let tolerance = 5.0 * (wanted * (1.0 - wanted) / DRAWS as f64).sqrt() + 1e-9;
        assert!((found - wanted).abs() < tolerance, "share {found}, wanted {wanted} +- {tolerance}");
    }

    #[test]
    fn uniform_shares() {
        near(share(DistributionKind::Uniform, 1_000_000, 1, 250_000), 0.25);
        near(share(DistributionKind::Uniform, 10, 10, 10), 0.1);
    }

    #[test]
    fn gaussian_shares() {
        // The mean of 12 uniforms is the Irwin-Hall sum less 6 with unit variance, divided by 12.
        near(share(DistributionKind::Gaussian, 1_200_000, 1, 600_000), 0.5);
        // P(|Z| < 1) for Irwin-Hall with n = 12 (from its exact distribution function).
        let within = irwin_hall_12(7.0) - irwin_hall_12(5.0);
        near(share(DistributionKind::Gaussian, 1_200_000, 500_001, 700_000), within);
    }

    /// Distribution function of the sum of 12 uniforms.
    fn irwin_hall_12(x: f64) -> f64 {
        let choose = |k: u32| (0..k).fold(1.0, |acc, i| acc * f64::from(12 - i) / f64::from(i + 1));
        let factorial: f64 = (1..=12).map(f64::from).product();
        let terms = (0..=x.floor() as u32).map(|k| {
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            sign * choose(k) * (x - f64::from(k)).powi(12)
        });
        terms.sum::<f64>() / factorial
    }

    #[test]
    fn special_puts_three_quarters_in_the_central_percent() {
        let n = 1_000_000_u64;
        // The central 1 % holds the special 75 % and what the spread-out quarter leaves there.
        let z = 12.0 * 0.005;
        let spread = irwin_hall_12(6.0 + z) - irwin_hall_12(6.0 - z);
        let found = share(DistributionKind::SPECIAL, n, 495_001, 505_000);
        assert!((found - (0.75 + 0.25 * spread)).abs() < 0.004, "share {found}, spread {spread}");
        near(share(DistributionKind::SPECIAL, n, 1, 494_990), 0.25 * irwin_hall_12(6.0 - z));
    }

    #[test]
    fn pareto_is_self_similar() {
        near(share(DistributionKind::PARETO, 1_000_000, 1, 200_000), 0.8);
        near(share(DistributionKind::PARETO, 1_000_000, 1, 40_000), 0.64);
    }

    #[test]
    fn zipfian_follows_its_law() {
        for exponent in [0.5, 0.8, 1.0, 1.5, 3.0] {
            let n = 1000_u64;
            let total: f64 = (1..=n).map(|k| (k as f64).powf(-exponent)).sum();
            let first_ten: f64 = (1..=10).map(|k| f64::from(k).powf(-exponent)).sum();
            near(share(DistributionKind::Zipfian { exponent }, n, 1, 1), 1.0 / total);
            near(share(DistributionKind::Zipfian { exponent }, n, 2, 2), 2_f64.powf(-exponent) / total);
            near(share(DistributionKind::Zipfian { exponent }, n, 1, 10), first_ten / total);
        }
    }

    #[test]
    fn every_kind_stays_in_its_range() {
        let kinds = [
            DistributionKind::Uniform,
            DistributionKind::Gaussian,
            DistributionKind::SPECIAL,
            DistributionKind::PARETO,
            DistributionKind::ZIPFIAN,
        ];
        let mut rng = Rng::stream(2, 2);
        for kind in kinds {
            for (low, high) in [(1, 1), (1, 2), (5, 9), (1, 10_000_000_000), (u64::MAX / 2, u64::MAX - 1)] {
                let distribution = kind.over(low, high).expect("good parameters");
                for _ in 0..2000 {
                    let drawn = distribution.sample(&mut rng);
                    assert!((low..=high).contains(&drawn), "{kind:?} drew {drawn} from {low} to {high}");
                }
            }
        }
    }

    #[test]
    fn meaningless_parameters_are_refused() {
        assert!(DistributionKind::Pareto { h: 0.0 }.over(1, 2).is_err());
        assert!(DistributionKind::Pareto { h: f64::NAN }.over(1, 2).is_err());
        assert!(DistributionKind::Zipfian { exponent: 0.0 }.over(1, 2).is_err());
        let special = |iterations, hot_pct, draws_pct| {
            DistributionKind::Special { iterations, hot_pct, draws_pct }.over(1, 2)
        };
        assert!(
            special(0, 1.0, 75.0).is_err()
                && special(12, 101.0, 75.0).is_err()
                && special(12, 1.0, 100.0).is_err()
        );
    }
}
