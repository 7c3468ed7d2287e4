//! What each of the engine's tricks (load/src/tuning.rs) earns: a build that can leave them out, with and without each
//! in turns.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::lab::{Server, Slice, output, paired, print_slices, ratio_interval};

const WORKLOAD: &str = "oltp_point_select";
const ROWS: u64 = 100_000;
/// What a trick has to earn at 64 sessions, of the client's cpu for a statement.
const EARNED_MIN: f64 = 0.03;
/// Tricks that are left out, one set for each measurement (`a,b`: two at once).
const SETS: &str = "fetch-ahead huge-pages notes own-descriptors patience drained";

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let (mut server, mut sessions, mut rounds, mut seconds) = ("mariadb", 64, 9, 3);
    let mut sets: Vec<&str> = SETS.split_whitespace().collect();
    for pair in arguments.chunks(2) {
        match *pair {
            ["--server", selector] => server = selector,
            ["--sessions", count] => sessions = count.parse()?,
            ["--rounds", count] => rounds = count.parse()?,
            ["--seconds", count] => seconds = count.parse()?,
            ["--without", list] => sets = list.split_whitespace().collect(),
            _ => bail!(
                "--server {server} --sessions {sessions} --rounds {rounds} --seconds {seconds} --without {SETS:?}"
            ),
        }
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "cli", "--features", "load/trials"])
        .status()
        .context("running cargo")?;
    ensure!(built.success(), "plimsoll does not build");
    // A copy: what others find in target/release has nothing that can be left out.
    let directory = tempfile::tempdir()?;
    let plimsoll = directory.path().join("plimsoll");
    std::fs::rename(std::env::current_exe()?.with_file_name("plimsoll"), &plimsoll).or_else(|_| {
        std::fs::copy(std::env::current_exe()?.with_file_name("plimsoll"), &plimsoll).map(drop)
    })?;
    let server = Server::deploy(&plimsoll, server)?;
    server.load(WORKLOAD, ROWS)?;
    let command = server.bench_command(WORKLOAD, ROWS, sessions, seconds)?;
    let (program, arguments) = command.split_first().context("no command")?;
    let slice = |without: &str| {
        Slice::from_json(&output(Command::new(program).args(arguments).env("PLIMSOLL_WITHOUT", without))?)
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
