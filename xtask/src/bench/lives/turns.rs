//! What the length of a duel's turns costs: how much two equal servers that take turns on one machine differ by chance.
//!
//! The slices of both lives of a recorded duel, each relative to the mean of its own life, show what the machine gave at
//! each moment. Cut into turns, the even ones stand for one server and the odd ones for the other; what the ratio of
//! their means spreads by is the machine's doing alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use stats::mean;
use store::lives::Life;

use super::drawn::{Pair, pairs};

/// The load of both servers together that is compared, in seconds.
const STRETCH_S: f64 = 40.0;
const TURNS_S: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 20.0];
/// Of each side, so that a stretch says something.
const SLICES_MIN: usize = 10;

/// When a slice began, in seconds, and its rate relative to its life's mean.
type Point = (f64, f64);

/// By kind of duel, the points of each in the order of time.
fn duels(lives: &[Life]) -> BTreeMap<String, Vec<Vec<Point>>> {
    let mut kinds: BTreeMap<String, Vec<Vec<Point>>> = BTreeMap::new();
    for Pair { name, lives, .. } in pairs(lives) {
        let mut points: Vec<Point> = lives.into_iter().flat_map(relative).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        kinds.entry(name).or_default().push(points);
    }
    kinds
}

fn relative(life: &Life) -> Vec<Point> {
    let rates: Vec<f64> = life.slices.iter().map(|slice| slice.tps()).collect();
    let Some(mean) = mean(&rates) else { return Vec::new() };
    // The two lives of a duel begin together but not in the same millisecond.
    let began_s = (life.started_at_ms - life.duel) as f64 / 1e3;
    life.slices.iter().zip(rates).map(|(slice, rate)| (began_s + slice.at_s, rate / mean)).collect()
}

/// The log-ratio of each stretch of a duel that is long enough, for turns of `turn_s`.
fn log_ratios(points: &[Point], turn_s: f64) -> Vec<f64> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let stretches = ((last.0 - first.0) / STRETCH_S) as usize;
    let ratio = |stretch: usize| {
        let from = first.0 + stretch as f64 * STRETCH_S;
        let side = |which: usize| {
            let of_side = |at: f64| (0.0..STRETCH_S).contains(&at) && (at / turn_s) as usize % 2 == which;
            let mine = points.iter().filter(|(at, _)| of_side(at - from)).map(|(_, rate)| *rate);
            let mine: Vec<f64> = mine.collect();
            mean(&mine).filter(|mean| mine.len() >= SLICES_MIN && *mean > 0.0)
        };
        Some((side(1)? / side(0)?).ln())
    };
    (0..stretches).filter_map(ratio).collect()
}

/// Prints the spread by kind and length of turn. There is no figure to reach.
pub(super) fn run(file: &Path) -> Result<bool> {
    let (lives, _) = store::lives::read(file)?;
    let kinds = duels(&lives);
    ensure!(!kinds.is_empty(), "{} has no duel of two valid lives: record some", file.display());
    println!("{:.0} s of each of two equal servers; standard deviation of their log-ratio", STRETCH_S / 2.0);
    let turns: String = TURNS_S.iter().map(|turn| format!("{:>9}", format!("{turn} s"))).collect();
    println!("{:54}{turns}  stretches", "turns of");
    let mut pooled: Vec<Vec<f64>> = vec![Vec::new(); TURNS_S.len()];
    for (name, duels) in &kinds {
        let mut row: Vec<Vec<f64>> = Vec::new();
        for (turn_s, all) in TURNS_S.iter().zip(&mut pooled) {
            let ratios: Vec<f64> = duels.iter().flat_map(|points| log_ratios(points, *turn_s)).collect();
            all.extend(&ratios);
            row.push(ratios);
        }
        print_row(name, &row);
    }
    print_row("all", &pooled);
    Ok(true)
}

fn print_row(name: &str, row: &[Vec<f64>]) {
    // Around 0: the servers are equal, and each slice is relative to its own life.
    let spread = |ratios: &Vec<f64>| match mean(&ratios.iter().map(|ratio| ratio * ratio).collect::<Vec<_>>())
    {
        Some(square) => format!("{:>7.2} %", square.sqrt() * 100.0),
        None => format!("{:>9}", "-"),
    };
    let spreads: String = row.iter().map(spread).collect();
    println!("{name:54}{spreads}  {}", row.first().map_or(0, Vec::len));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that gives 10 % more for eight seconds in sixteen, and then less.
    fn points() -> Vec<Point> {
        let slow = |at: f64| if at % 16.0 < 8.0 { 1.1 } else { 0.9 };
        (0..200).map(|at| at as f64).map(|at| (at, slow(at))).collect()
    }

    #[test]
    fn turns_as_long_as_the_machine_wanders_take_it_for_the_server() {
        let off =
            |turn_s: f64| log_ratios(&points(), turn_s).iter().map(|ratio| ratio.abs()).fold(0.0, f64::max);
        assert!((off(8.0) - (1.1f64 / 0.9).ln()).abs() < 1e-9, "{}", off(8.0));
        assert!(off(2.0) < 1e-9, "{}", off(2.0));
    }

    #[test]
    fn a_duel_that_is_too_short_says_nothing() {
        assert!(log_ratios(&points()[..40], 2.0).is_empty());
    }
}
