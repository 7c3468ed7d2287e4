//! How often a quiet series changes, and how often and how exactly a step is found: series whose truth is known, in the
//! kinds of noise that runs have on real machines.
//!
//! A series has 100 points, as a history of 100 builds. Its noise has a standard deviation of 0.5 to 5 % (medians of runs
//! on quiet and on shared machines), and each step is 1 to 10 %, twice that noise, up or down, with 15 points or more to
//! the next one. What is judged, over all kinds together: quiet series with any change at all, at most 1 in 20; steps found within
//! 3 points of their place, at least 90 %.

use anyhow::Result;
use stats::rng::Rng;
use stats::{ChangeRules, change_points};

use super::told;

const POINTS: usize = 100;
const FALSE_SHARE_MAX: f64 = 0.05;
const FOUND_SHARE_MIN: f64 = 0.90;
/// Points between a step and where it is said to be.
const PLACES: usize = 3;
const STEP_IN_NOISES: f64 = 2.0;
/// Points between steps, and before the first and after the last.
const APART: usize = 15;

/// What a series has in it besides its levels.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    /// Each point on its own, normal.
    Independent,
    /// Now and then a point lies far off (Student's t with 4 degrees of freedom).
    HeavyTails,
    /// One point in thirty is a run beside a neighbour's burst: 4 to 10 standard deviations lower.
    Outliers,
    /// Neighbouring points resemble each other, with a correlation of 0.2, as measured on real seconds.
    Wandering,
    /// A slow drift of one and a half standard deviations over the whole series.
    Drift,
}

const NOISES: [Noise; 5] =
    [Noise::Independent, Noise::HeavyTails, Noise::Outliers, Noise::Wandering, Noise::Drift];

/// Points, and where their level steps.
struct Series {
    points: Vec<f64>,
    steps: Vec<usize>,
}

impl Series {
    fn new(seed: u64, noise: Noise, steps: usize) -> Series {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let spread = 0.005 * 10f64.powf(rng.unit());
        let places = places(&mut rng, steps);
        let mut level = 1000.0;
        let mut state = rng.normal();
        let points = (0..POINTS)
            .map(|at| {
                if places.contains(&at) {
                    level *= if rng.below(2) == 0 {
                        1.0 - STEP_IN_NOISES * spread
                    } else {
                        1.0 + STEP_IN_NOISES * spread
                    };
                }
                level * (1.0 + spread * drawn(noise, at, &mut state, &mut rng))
            })
            .collect();
        Series { points, steps: places }
    }
}

/// Places at least [`APART`] from each other and from both ends, all such sets equally likely.
fn places(rng: &mut Rng, steps: usize) -> Vec<usize> {
    loop {
        let mut places: Vec<usize> = (0..steps).map(|_| APART + rng.below(POINTS - 2 * APART + 1)).collect();
        places.sort_unstable();
        if places.windows(2).all(|pair| pair[1] - pair[0] >= APART) {
            return places;
        }
    }
}

/// One point's noise in standard deviations.
fn drawn(noise: Noise, at: usize, state: &mut f64, rng: &mut Rng) -> f64 {
    let normal = rng.normal();
    match noise {
        Noise::Independent => normal,
        Noise::HeavyTails => {
            let squares: f64 = (0..4).map(|_| rng.normal().powi(2)).sum();
            // Variance 2 for 4 degrees of freedom.
            normal / (squares / 4.0).sqrt() / 2f64.sqrt()
        }
        Noise::Outliers if rng.below(30) == 0 => -4.0 - 6.0 * rng.unit(),
        Noise::Outliers => normal,
        Noise::Wandering => {
            *state = 0.2 * *state + (1.0f64 - 0.2 * 0.2).sqrt() * normal;
            *state
        }
        Noise::Drift => normal - 1.5 * at as f64 / POINTS as f64,
    }
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 500)]
    series: u64,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { series } = crate::asked("bench change-points", arguments);
    let of_kind = (series / 2).div_ceil(NOISES.len() as u64).max(1);
    let rules = ChangeRules::default();
    println!(
        "{} series of {POINTS} points, half of them quiet; p at most {}",
        2 * of_kind * NOISES.len() as u64,
        rules.p_max
    );
    println!(
        "{:14} {:>16} {:>24} {:>16}",
        "noise", "quiet: changed", "steps: within 3 points", "others found"
    );
    let (mut alarms, mut steps, mut found) = (0, 0, 0);
    for noise in NOISES {
        let changed = (0..of_kind)
            .filter(|seed| !change_points(&Series::new(*seed, noise, 0).points, &rules).is_empty())
            .count();
        let (mut of_these, mut found_here, mut others) = (0, 0, 0);
        for seed in 0..of_kind {
            let series = Series::new(100_000 + seed, noise, 1 + seed as usize % 3);
            let changes = change_points(&series.points, &rules);
            let hit = series
                .steps
                .iter()
                .filter(|step| changes.iter().any(|c| c.index.abs_diff(**step) <= PLACES))
                .count();
            of_these += series.steps.len();
            found_here += hit;
            others += changes.len() - hit.min(changes.len());
        }
        println!(
            "{:14} {changed:>9} of {of_kind:<4} {:>14} of {of_these:<4} {:.1} % {others:>12}",
            format!("{noise:?}"),
            found_here,
            100.0 * found_here as f64 / of_these as f64
        );
        alarms += changed;
        steps += of_these;
        found += found_here;
    }
    let false_share = alarms as f64 / (of_kind * NOISES.len() as u64) as f64;
    let found_share = found as f64 / steps as f64;
    println!("quiet series that change: {false_share:.3} (limit {FALSE_SHARE_MAX})");
    println!(
        "steps of twice the noise within {PLACES} points: {found_share:.3} (at least {FOUND_SHARE_MIN})"
    );
    let is_reached = false_share <= FALSE_SHARE_MAX && found_share >= FOUND_SHARE_MIN;
    told(is_reached)
}
