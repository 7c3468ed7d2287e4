//! What a point select costs the client, beside sysbench's steady phase and the floor.

use anyhow::Result;

use super::client::{self, Asked, Slices};
use super::lab::{Slice, median, paired, ratio_interval};

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked = Asked {
        workload: "oltp_point_select",
        rounds: 9,
        seconds: 6,
        settle: 8,
        levels: vec![1, 8, 64, 256],
        servers: vec!["mariadb".to_owned()],
        against: None,
    };
    client::run(&asked.read("bench client-cost", arguments)?, judge)
}

fn judge(slices: &Slices, sessions: u32) -> bool {
    let total_max = if sessions == 1 { 1.2 } else { 1.15 };
    let total = median(paired(&slices.plimsoll, &slices.floor, |slice| slice.total_us));
    println!("  total cpu / floor   {total:.3} (at most {total_max})");
    let speed = |base: &[Slice]| ratio_interval(&paired(&slices.plimsoll, base, |slice| slice.qps));
    let (by_floor, by_sysbench) = (speed(&slices.floor), speed(&slices.sysbench));
    for (name, (mean, low, high)) in [("floor", by_floor), ("sysbench", by_sysbench)] {
        println!("  qps / {name:13} {mean:.3} [{low:.3}, {high:.3}] (one of both must reach 1)");
    }
    let is_fast = by_floor.2 >= 1.0 || by_sysbench.2 >= 1.0;
    slices.is_as_cheap_as_other() && total <= total_max && is_fast
}
