//! What oltp_read_write costs the client on both protocols, beside sysbench's steady phase and a floor.

use anyhow::Result;

use super::client::{self, Asked, Slices};
use super::lab::{Slice, median, paired};

const VS_FLOOR_MAX: f64 = 1.2;

/// Sessions, and the largest part of sysbench's cost that is asked for.
fn vs_sysbench_max(sessions: u32) -> f64 {
    if sessions >= 256 { 0.65 } else { 0.8 }
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked = Asked {
        workload: "oltp_read_write",
        rounds: 3,
        seconds: 20,
        settle: 8,
        levels: vec![64, 256],
        servers: vec!["mariadb".to_owned(), "postgres".to_owned()],
        against: None,
    };
    client::run(&asked.read("bench oltp-cost", arguments)?, judge)
}

fn judge(slices: &Slices, sessions: u32) -> bool {
    let ratio = |base: &[Slice], what| median(paired(&slices.plimsoll, base, what));
    let (cost, speed) = (|slice: &Slice| slice.total_us, |slice: &Slice| slice.qps);
    let (vs_sysbench, vs_floor) = (ratio(&slices.sysbench, cost), ratio(&slices.floor, cost));
    println!("  plimsoll / sysbench {vs_sysbench:.3} (at most {})", vs_sysbench_max(sessions));
    println!("  plimsoll / floor    {vs_floor:.3} (at most {VS_FLOOR_MAX})");
    println!(
        "  throughput: plimsoll / sysbench {:.3}, / floor {:.3}",
        ratio(&slices.sysbench, speed),
        ratio(&slices.floor, speed)
    );
    let is_cheap = vs_sysbench <= vs_sysbench_max(sessions) && vs_floor <= VS_FLOOR_MAX;
    slices.is_as_cheap_as_other() && is_cheap
}
