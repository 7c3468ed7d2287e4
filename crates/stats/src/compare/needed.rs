//! How many blocks would decide a question that is undecided.

use super::estimate::LogRatio;
use super::{BLOCKS_MAX, Method, Rules};
use crate::anytime::ln_e_above;
use crate::rng::Rng;
use crate::student::normal_quantile;

/// Ratios and spreads that are drawn.
const DRAWS: usize = 100;

/// Blocks that would decide at the level `alpha`, if the true ratio and spread were the tenth, fiftieth and ninetieth
/// of a hundred that the blocks so far allow: drawn from the posterior under the reference prior (spread^2 = df s^2 /
/// chi^2, ratio normal around the centre), with a seed of its own, so that a stored verdict is computed again alike.
pub(super) fn blocks_needed(e: &LogRatio, alpha: f64, rules: &Rules, log_margin: f64) -> Option<[usize; 3]> {
    let spread = e.error * (e.n as f64).sqrt();
    // What decides between nodes is how many there are, which blocks do not tell.
    if spread.is_nan() || e.method == Method::Nodes {
        return None;
    }
    let mut rng = Rng::new(0x626c_6f63_6b73);
    let mut effects: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let squares: f64 = (0..e.df.round().max(1.0) as usize).map(|_| rng.normal().powi(2)).sum();
            let sigma = spread * (e.df / squares.max(1e-9)).sqrt();
            let centre = e.centre + sigma / (e.n as f64).sqrt() * rng.normal();
            distance(centre, log_margin) / sigma
        })
        .collect();
    // The larger the effect, the fewer the blocks.
    effects.sort_by(|a, b| b.total_cmp(a));
    let at = |share: f64| blocks_for(e, effects[(share * (DRAWS - 1) as f64).round() as usize], alpha, rules);
    (at(0.5) <= BLOCKS_MAX).then(|| [at(0.1), at(0.5), at(0.9)].map(|blocks| blocks.min(BLOCKS_MAX)))
}

/// What has to be shown, as a logarithm: the nearer of the two answers, a difference from 1 or from the margin.
pub(super) fn distance(centre: f64, log_margin: f64) -> f64 {
    centre.abs().max(log_margin - centre.abs())
}

/// Smallest number of blocks, more than there are, that decides for a true effect (distance / spread); one more than
/// [`BLOCKS_MAX`] where none does.
pub(super) fn blocks_for(e: &LogRatio, effect: f64, alpha: f64, rules: &Rules) -> usize {
    let least = rules.blocks_min.max(e.n + 1);
    let blocks = match e.method {
        // After the last look only evidence counts.
        Method::Anytime | Method::LastLook => watched_blocks(effect, alpha, e.ln_boost),
        Method::Paired | Method::Welch | Method::Nodes => fixed_blocks(effect, alpha, rules.power),
    };
    blocks.clamp(least, BLOCKS_MAX + 1)
}

/// Blocks of a t-test at the level `alpha` with some power, for an effect in spreads: the normal distribution's number,
/// and half a squared quantile for the unknown spread (Guenther 1981, The American Statistician 35).
fn fixed_blocks(effect: f64, alpha: f64, power: f64) -> usize {
    let level = normal_quantile(1.0 - alpha / 2.0);
    let blocks = ((level + normal_quantile(power.max(0.5))) / effect).powi(2) + 0.5 * level * level;
    // Saturates: no effect needs blocks without end.
    blocks.ceil() as usize
}

/// Blocks after which the evidence suffices, if every t is the expected one.
fn watched_blocks(effect: f64, alpha: f64, ln_boost: f64) -> usize {
    let decides = |n: usize| ln_e_above(effect * (n as f64).sqrt(), n) + ln_boost >= -(alpha / 2.0).ln();
    if !decides(BLOCKS_MAX) {
        return BLOCKS_MAX + 1;
    }
    let (mut low, mut high) = (1, BLOCKS_MAX);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if decides(middle) { high = middle } else { low = middle }
    }
    high
}
