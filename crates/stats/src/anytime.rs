//! Evidence that may be looked at after every block: e-values of a t-test whose expectation stays at most 1 under the
//! null hypothesis whenever one looks, stops, resumes or adds blocks (Ville's inequality).
//!
//! The test: log-ratios are normal with unknown mean and spread; under the alternative the effect size, mean / spread,
//! is one of [`EFFECTS`], and the spread has the right Haar prior, which makes the ratio of the two marginal likelihoods
//! a test martingale of the t statistics alone (Pérez-Ortiz, Lardy, de Heide, Grünwald: "E-statistics, group invariance
//! and anytime-valid testing", Annals of Statistics 52, 2024; Wang and Ramdas: "Anytime-valid t-tests and confidence
//! sequences for Gaussian means with unknown variance", 2024). One-sided hypotheses keep the guarantee inside of them,
//! because shifting all values shifts every t the same way. Equivalence is the smaller of two one-sided e-values, each
//! against its margin: under the null hypothesis one of them is an e-value, so nothing is paid for there being two
//! (Berger: "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982).
//!
//! What looks have excluded stays excluded where a question stands alone (`compare::estimate`). A study that is over gets a
//! last look by a t-test, with a part of the error that the looks before it left ([`last_level`]).
//!
//! Several questions: Benjamini and Hochberg's procedure on 1 / e, which is e-BH, with boosted e-values ([`ln_boost`]);
//! both by Wang and Ramdas: "False discovery rate control with e-values", JRSS B 84, 2022.

use statrs::function::gamma::ln_gamma;

/// Effect sizes (mean / spread of the blocks' log-ratios) that the test is made for, with their weights. Each twice the
/// one before, so that the limit for t is nearly the same for 5 blocks and for 40, which is where studies are decided; a
/// prior that spreads over all effects (the half-normal one) gives a third of its evidence away to effects that are seen
/// in no study. The two small ones make intervals shrink for as long as blocks are added. `cargo xtask bench verdicts`
/// shows what it is worth.
pub(crate) const EFFECTS: [(f64, f64); 5] =
    [(0.1, 0.005), (0.2, 0.015), (0.4, 0.2), (0.8, 0.39), (1.6, 0.39)];

/// The first look that [`ln_boost`] holds for, in blocks.
pub(crate) const FIRST_LOOK: usize = 5;

/// Bound of x times the chance that a true null hypothesis ever has an e-value of x or more, looked at after every block
/// from [`FIRST_LOOK`] on: Ville's inequality says 1, but evidence jumps over x, it does not creep up to it. Measured for
/// x from 10 to 1,000 (`the_overshoot_is_bounded`).
const OVERSHOOT: f64 = 0.76;

/// What e-values of `questions` questions asked together are multiplied by before e-BH, as a logarithm: their jumps over
/// the limit are known ([`OVERSHOOT`]), so that the expected share of false verdicts stays at most alpha however the
/// questions depend on each other. From three questions on it is 0. Holds where nobody looks before [`FIRST_LOOK`].
pub(crate) fn ln_boost(questions: usize) -> f64 {
    let harmonic: f64 = (1..=questions.max(1)).map(|k| 1.0 / k as f64).sum();
    (OVERSHOOT * harmonic).recip().max(1.0).ln()
}

/// One-sided levels that [`LAST_LOOK`] was drawn for.
const LAST_LEVELS: [f64; 3] = [0.05, 0.025, 0.005];

/// How much of the error that the looks before it left a last look may spend. The rest is kept: [`LAST_LOOK`] is drawn
/// from normal values, which the blocks of real machines are not, and what the e-values leave does not rest on a draw.
#[cfg(test)]
const LAST_SPENDS: f64 = 0.5;

/// Of a study that is over after so many blocks, whatever was seen of it: what share of each of [`LAST_LEVELS`] a t-test may
/// have at a last look, so that it and the looks after every block from [`FIRST_LOOK`] on err no more often than the level
/// says. The t statistics of normal values without an effect do not depend on their spread, so that it can be drawn how
/// often the looks before the last one err by themselves, and which t the rest is worth: a group sequential design whose
/// boundary before its end is that of the e-values (Jennison and Turnbull: Group Sequential Methods, 2000, ch. 7). Drawn
/// from 2,000,000 sequences by `draw_the_last_look`.
const LAST_LOOK: [(usize, [f64; 3]); 14] = [
    (5, [0.602, 0.559, 0.501]),
    (6, [0.584, 0.572, 0.508]),
    (7, [0.548, 0.550, 0.535]),
    (8, [0.522, 0.517, 0.548]),
    (10, [0.473, 0.466, 0.529]),
    (12, [0.436, 0.426, 0.480]),
    (15, [0.398, 0.383, 0.431]),
    (20, [0.346, 0.334, 0.383]),
    (25, [0.304, 0.292, 0.339]),
    (30, [0.266, 0.255, 0.305]),
    (40, [0.225, 0.204, 0.243]),
    (60, [0.175, 0.151, 0.180]),
    (80, [0.150, 0.122, 0.150]),
    (120, [0.112, 0.081, 0.110]),
];

/// The level of a t-test at a last look at `blocks` blocks, where it and the looks before it may err with probability
/// `alpha` on one side; 0 where there were more blocks than are known of.
pub(crate) fn last_level(blocks: usize, alpha: f64) -> f64 {
    let Some(next) = LAST_LOOK.iter().position(|(at, _)| *at >= blocks).filter(|_| blocks >= FIRST_LOOK)
    else {
        return 0.0;
    };
    let ((low, below), (high, above)) = (LAST_LOOK[next.saturating_sub(1)], LAST_LOOK[next]);
    // In proportion to the logarithms of blocks and level.
    let part =
        if next == 0 { 1.0 } else { (blocks as f64 / low as f64).ln() / (high as f64 / low as f64).ln() };
    let share = |level: usize| below[level] + part * (above[level] - below[level]);
    let at = usize::from(alpha < LAST_LEVELS[1]);
    let (large, small) = (LAST_LEVELS[at], LAST_LEVELS[at + 1]);
    let towards_small = ((large / alpha).ln() / (large / small).ln()).clamp(0.0, 1.0);
    alpha * (share(at) + towards_small * (share(at + 1) - share(at)))
}

/// The smallest level at which a last look with this p of its t-test decides.
pub(crate) fn last_p(blocks: usize, p: f64) -> f64 {
    // The share hardly depends on the level, so that this comes to rest within a few steps.
    let next = |alpha: f64| p * alpha / last_level(blocks, alpha);
    (0..20).fold(LAST_LEVELS[0], |alpha, _| next(alpha).clamp(p.max(f64::MIN_POSITIVE), 1.0))
}

/// Natural logarithm of the e-value against "the mean is 0 or less", from the t statistic of `n` values. 0 for fewer
/// than two values, which tell nothing.
pub(crate) fn ln_e_above(t: f64, n: usize) -> f64 {
    if n < 2 || t.is_nan() {
        return 0.0;
    }
    let count = n as f64;
    let df = count - 1.0;
    // Stays below 1 for a t without bound: values without any spread are strong evidence, not endless one.
    let sine = if (t * t).is_finite() { t / (df + t * t).sqrt() } else { t.signum() };
    // The density of t under an effect over that under none (Johnson, Kotz: Continuous Univariate Distributions 2, ch.
    // 31), as an integral over the spread.
    let null = 0.5 * (df - 1.0) * std::f64::consts::LN_2 + ln_gamma(0.5 * count);
    let parts = EFFECTS.map(|(effect, weight)| {
        let shift = count.sqrt() * effect;
        weight.ln() + ln_moment(df, shift * sine) - null - 0.5 * shift * shift * (1.0 - sine * sine)
    });
    let largest = parts.into_iter().fold(f64::NEG_INFINITY, f64::max);
    largest + parts.into_iter().map(|part| (part - largest).exp()).sum::<f64>().ln()
}

/// Logarithm of the integral over y > 0 of y^df exp(-(y - centre)^2 / 2), by the trapezoid rule over ln y, where the
/// integrand is smooth and falls off on both sides, so that the rule's error vanishes with the step (Trefethen and
/// Weideman, SIAM Review 56, 2014).
fn ln_moment(df: f64, centre: f64) -> f64 {
    let powers = df + 1.0;
    let root = (centre * centre + 4.0 * powers).sqrt();
    // Both forms are the peak's place; each is exact on its side of 0.
    let peak = if centre > 0.0 { 0.5 * (centre + root) } else { 2.0 * powers / (root - centre) };
    let step = 0.7 / (peak * peak + powers).sqrt();
    let at = |u: f64| powers * u - 0.5 * (u.exp() - centre).powi(2);
    let top = at(peak.ln());
    let mut sum = 1.0;
    for direction in [-step, step] {
        for k in 1.. {
            let part = (at(peak.ln() + f64::from(k) * direction) - top).exp();
            sum += part;
            if part < 1e-13 {
                break;
            }
        }
    }
    top + (sum * step).ln()
}

/// How far the mean may lie below `centre` before the evidence against it, times the boost, reaches `1 / alpha`, in
/// standard errors: the half-width of a one-sided confidence sequence. Infinite where so few values can exclude nothing
/// at that level.
pub(crate) fn half_width(n: usize, alpha: f64, ln_boost: f64) -> f64 {
    let wanted = -alpha.ln() - ln_boost;
    if ln_e_above(f64::INFINITY, n) < wanted {
        return f64::INFINITY;
    }
    let lacking = |t: f64| ln_e_above(t, n) - wanted;
    let (mut low, mut high) = ((0.0, lacking(0.0)), (4.0, lacking(4.0)));
    while high.1 < 0.0 {
        low = high;
        high = (2.0 * high.0, lacking(2.0 * high.0));
    }
    // False position, where an end that stays twice counts half (the Illinois method: Dowell and Jarratt, BIT 11, 1971).
    let mut last = None;
    for _ in 0..100 {
        let next = (low.0 * high.1 - high.0 * low.1) / (high.1 - low.1);
        let value = lacking(next);
        if value.abs() < 1e-9 || high.0 - low.0 < 1e-9 * high.0 {
            return next;
        }
        let is_low = value < 0.0;
        if is_low {
            low = (next, value)
        } else {
            high = (next, value)
        }
        match last == Some(is_low) {
            true if is_low => high.1 *= 0.5,
            true => low.1 *= 0.5,
            false => {}
        }
        last = Some(is_low);
    }
    high.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    /// The e-value by its definition: the non-central t density over the central one, averaged over the effects. The
    /// density as a plain sum over the spread.
    fn by_definition(t: f64, n: usize) -> f64 {
        let n = n as f64;
        let df = n - 1.0;
        let density = |d: f64| {
            let a = t * (n / (t * t + df)).sqrt() * d;
            let step = 0.005;
            let sum: f64 = (1..6000)
                .map(|i| f64::from(i) * step)
                .map(|y| (df * y.ln() - 0.5 * (y - a).powi(2)).exp() * step)
                .sum();
            sum * (-0.5 * n * d * d * df / (t * t + df)).exp()
        };
        EFFECTS.iter().map(|(effect, weight)| weight * density(*effect) / density(0.0)).sum()
    }

    #[test]
    fn the_e_value_is_the_ratio_of_densities_that_it_stands_for() {
        assert!((EFFECTS.iter().map(|(_, weight)| weight).sum::<f64>() - 1.0).abs() < 1e-12);
        for (t, n) in [(0.0, 5), (1.3, 5), (4.0, 6), (-2.0, 8), (3.1, 12), (2.2, 40)] {
            let (got, want) = (ln_e_above(t, n).exp(), by_definition(t, n));
            assert!((got / want - 1.0).abs() < 1e-3, "t {t}, n {n}: {got} against {want}");
        }
    }

    /// Mean and squares of values that come one by one.
    struct Sequence {
        rng: Rng,
        effect: f64,
        n: usize,
        sum: f64,
        squares: f64,
    }

    impl Sequence {
        fn new(seed: u64, effect: f64) -> Sequence {
            Sequence { rng: Rng::new(seed), effect, n: 0, sum: 0.0, squares: 0.0 }
        }

        /// Adds a value and answers t.
        fn next(&mut self) -> f64 {
            let x = self.effect + self.rng.normal();
            self.n += 1;
            self.sum += x;
            self.squares += x * x;
            let n = self.n as f64;
            self.sum / n / ((self.squares - self.sum * self.sum / n) / (n - 1.0) / n).sqrt()
        }
    }

    /// The guarantee itself: looked at after every value from the fifth to the 200th, the boosted e-value of a true null
    /// hypothesis reaches 20 in at most one of 20 sequences.
    #[test]
    fn looking_after_every_value_misleads_in_at_most_one_of_twenty() {
        let sequences = 4000u32;
        let half: Vec<f64> = (0..=200).map(|n| half_width(n.max(2), 0.05, ln_boost(1))).collect();
        let misled = (0..sequences)
            .filter(|seed| {
                let mut sequence = Sequence::new(u64::from(*seed), 0.0);
                (1..=200usize).any(|n| sequence.next() >= half[n] && n >= FIRST_LOOK)
            })
            .count();
        let share = f64::from(misled as u32) / f64::from(sequences);
        assert!((0.02..=0.05).contains(&share), "{share}");
    }

    /// The chance of ever reaching x under the null hypothesis is the mean of 1 / e at the first look that reaches it
    /// under the alternative (Wald's identity; Siegmund: "Sequential Analysis", 1985, chapter 2), which simulation finds
    /// for looks without end: what has not reached x after 400 values counts as 1 / x, more than it can be.
    #[test]
    fn the_overshoot_is_bounded() {
        for x in [10f64, 20.0, 40.0, 200.0, 1000.0] {
            let half: Vec<f64> = (0..=400).map(|n| half_width(n.max(2), 1.0 / x, 0.0)).collect();
            let sequences = 4000u32;
            let mut draw = Rng::new(9);
            let total: f64 = (0..sequences)
                .map(|seed| {
                    let mut left = draw.unit();
                    let chosen = EFFECTS.iter().find(|(_, weight)| {
                        left -= weight;
                        left < 0.0
                    });
                    let mut sequence =
                        Sequence::new(u64::from(seed), chosen.map_or(0.1, |(effect, _)| *effect));
                    (1..=400usize)
                        .find_map(|n| {
                            let t = sequence.next();
                            (n >= FIRST_LOOK && t >= half[n]).then(|| x / ln_e_above(t, n).exp())
                        })
                        .unwrap_or(1.0)
                })
                .sum();
            let share = total / f64::from(sequences);
            assert!((0.6..=OVERSHOOT).contains(&share), "{x}: {share}");
        }
    }

    /// What share of the level `alpha` a t-test may have that comes last, by sequences of that many blocks in which the looks
    /// before it were those of one question.
    fn drawn_share(blocks: usize, alpha: f64, sequences: u64) -> f64 {
        let half: Vec<f64> = (0..=blocks).map(|n| half_width(n.max(2), alpha, ln_boost(1))).collect();
        let mut crossed = 0;
        let mut last: Vec<f64> = (0..sequences)
            .filter_map(|seed| {
                let mut sequence = Sequence::new(seed, 0.0);
                let t: Vec<f64> = (0..blocks).map(|_| sequence.next()).collect();
                let is_open = (FIRST_LOOK..=blocks).all(|n| t[n - 1] < half[n]);
                crossed += u64::from(!is_open);
                is_open.then_some(t[blocks - 1])
            })
            .collect();
        last.sort_by(|a, b| b.total_cmp(a));
        let left = (LAST_SPENDS * (alpha * sequences as f64 - crossed as f64)) as u64;
        crate::student::cdf(-last[left as usize], blocks as f64 - 1.0) / alpha
    }

    /// Prints the table.
    #[test]
    #[ignore = "makes LAST_LOOK; takes minutes"]
    fn draw_the_last_look() {
        for (blocks, _) in LAST_LOOK {
            let shares = LAST_LEVELS.map(|alpha| drawn_share(blocks, alpha, 2_000_000));
            println!("({blocks}, {shares:.3?}),");
        }
    }

    /// Whenever a study is over, and at levels between those that were drawn: the last look errs as often as its part of what
    /// the looks before it left.
    #[test]
    fn the_last_look_spends_its_part_of_what_is_left() {
        let sequences = 20_000u32;
        for (blocks, alpha) in [(5, 0.05), (9, 0.025), (14, 0.05), (14, 0.01), (20, 0.025), (50, 0.05)] {
            let half: Vec<f64> = (0..=blocks).map(|n| half_width(n.max(2), alpha, ln_boost(1))).collect();
            let level = last_level(blocks, alpha);
            let (mut before, mut last) = (0u32, 0u32);
            for seed in 0..sequences {
                let mut sequence = Sequence::new(u64::from(seed), 0.0);
                let t: Vec<f64> = (0..blocks).map(|_| sequence.next()).collect();
                let is_open = (FIRST_LOOK..=blocks).all(|n| t[n - 1] < half[n]);
                before += u32::from(!is_open);
                last +=
                    u32::from(is_open && crate::student::cdf(-t[blocks - 1], blocks as f64 - 1.0) <= level);
            }
            let share = |count: u32| f64::from(count) / f64::from(sequences);
            let error = (alpha / f64::from(sequences)).sqrt();
            let want = LAST_SPENDS * (alpha - share(before));
            assert!(
                (share(last) - want).abs() < 3.0 * error + 0.05 * alpha,
                "{blocks} {alpha}: {}",
                share(last)
            );
        }
    }

    #[test]
    fn a_last_look_decides_at_the_level_that_its_p_says() {
        for blocks in [5, 11, 40, 120] {
            for p in [1e-6, 0.002, 0.02] {
                let alpha = last_p(blocks, p);
                assert!(
                    alpha >= p && (last_level(blocks, alpha) / p - 1.0).abs() < 1e-6,
                    "{blocks} {p}: {alpha}"
                );
            }
            assert_eq!(last_p(blocks, 1.0), 1.0);
        }
        assert_eq!((last_level(4, 0.05), last_level(121, 0.05)), (0.0, 0.0));
    }

    #[test]
    fn the_boost_is_for_one_question_and_vanishes_with_many() {
        assert!((ln_boost(1).exp() - 1.0 / OVERSHOOT).abs() < 1e-12);
        assert_eq!((ln_boost(2), ln_boost(10)), (0.0, 0.0));
    }

    #[test]
    fn values_without_spread_are_finite_evidence() {
        assert!(ln_e_above(f64::INFINITY, 5).is_finite());
        assert!(ln_e_above(f64::INFINITY, 5) > ln_e_above(1e6, 5) - 1e-6);
        assert!(ln_e_above(f64::NEG_INFINITY, 5) < 0.0);
        assert_eq!(half_width(2, 1e-9, 0.0), f64::INFINITY);
    }

    /// Of a study with ten thousand blocks the interval is far narrower than the smallest of the large effects.
    #[test]
    fn intervals_shrink_for_as_long_as_blocks_are_added() {
        let in_spreads = |n: usize| half_width(n, 0.025, 0.0) / (n as f64).sqrt();
        assert!(in_spreads(40) < 0.6 && in_spreads(400) < 0.25 && in_spreads(10_000) < 0.07);
    }

    proptest! {
        #[test]
        fn evidence_grows_with_t(n in 2usize..60, t in -20f64..20.0, more in 0.001f64..5.0) {
            prop_assert!(ln_e_above(t + more, n) > ln_e_above(t, n));
        }

        #[test]
        fn the_half_width_is_where_the_evidence_suffices(n in 4usize..60, alpha in 0.01f64..0.2) {
            let half = half_width(n, alpha, 0.1);
            prop_assert!(half.is_infinite() || (ln_e_above(half, n) + 0.1 + alpha.ln()).abs() < 1e-6);
        }
    }
}
