//! What each of the engine's tricks (load/src/tuning.rs) earns: a build that can leave them out, with and without each
//! in turns.

use std::process::Command;

use anyhow::Result;

use super::lab::{Server, Slice, output, paired, print_slices, ratio_interval};

const WORKLOAD: &str = "oltp_point_select";
const ROWS: u64 = 100_000;
/// What a trick has to earn at 64 sessions, of the client's cpu for a statement.
const EARNED_MIN: f64 = 0.03;
/// Tricks that are left out, one set for each measurement (`a,b`: two at once).
const SETS: &str = "fetch-ahead huge-pages notes own-descriptors patience drained";

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value = "mariadb")]
    server: String,
    #[arg(long, default_value_t = 64)]
    sessions: u32,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    #[arg(long, default_value = SETS)]
    without: String,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { server, sessions, rounds, seconds, without } = crate::asked("bench tricks", arguments);
    let sets: Vec<&str> = without.split_whitespace().collect();
    let compiled = crate::compiled("cli", "plimsoll", &["--features", "load/trials"])?;
    // A copy: what others find in target/release has nothing that can be left out.
    let directory = tempfile::tempdir()?;
    let plimsoll = directory.path().join("plimsoll");
    std::fs::rename(&compiled, &plimsoll).or_else(|_| std::fs::copy(&compiled, &plimsoll).map(drop))?;
    let server = Server::deploy(&plimsoll, &server)?;
    server.load(WORKLOAD, ROWS)?;
    let command = server.bench_command(WORKLOAD, ROWS, sessions, seconds);
    let slice = |without: &str| {
        Slice::from_json(&output(Command::new(&plimsoll).args(&command).env("PLIMSOLL_WITHOUT", without))?)
    };
    let mut whole = Vec::new();
    let mut without: Vec<Vec<Slice>> = vec![Vec::new(); sets.len()];
    for round in 0..rounds {
        // Each begins one round in as many: what follows whom evens out.
        for turn in 0..=sets.len() {
            match (round + turn) % (sets.len() + 1) {
                0 => whole.push(slice("")?),
                at => without[at - 1].push(slice(sets[at - 1])?),
            }
        }
    }
    println!("{sessions} sessions, {rounds} rounds of {seconds} s; total cpu and QPS without / with");
    print_slices("with all", &whole);
    let mut is_reached = true;
    for (set, slices) in sets.iter().zip(&without) {
        let (cost, low, high) = ratio_interval(&paired(slices, &whole, |slice| slice.total_us));
        let (user, ..) = ratio_interval(&paired(slices, &whole, |slice| slice.user_us));
        let (qps, qps_low, qps_high) = ratio_interval(&paired(slices, &whole, |slice| slice.qps));
        println!(
            "  {set}: cpu {cost:.3} [{low:.3}, {high:.3}], user {user:.3}, qps {qps:.3} [{qps_low:.3}, {qps_high:.3}]"
        );
        is_reached &= high >= 1.0 + EARNED_MIN;
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached: what earns less than 3 % goes" });
    Ok(is_reached)
}
