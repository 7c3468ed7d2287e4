//! What a point select costs the client, beside sysbench's steady phase and the floor, by the yardstick script.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::{Server, build_plimsoll, median, output, ratio_interval};

const ROWS: u64 = 1_000_000;
const USAGE: &str = "client-cost [--yardstick ../shared/yardstick/client-cost] [--server mariadb] [--rounds 9] \
                     [--seconds 6] [--settle 8] [--sessions 1,8,64,256]";

/// What one round of one session count gave.
struct Round {
    total_vs_floor: f64,
    user_more_us: f64,
    qps_vs_floor: f64,
    qps_vs_sysbench: f64,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let mut yardstick = PathBuf::from("../shared/yardstick/client-cost");
    let (mut selector, mut rounds, mut seconds, mut settle) = ("mariadb", 9, 6, "8");
    let mut levels = vec![1, 8, 64, 256];
    for pair in arguments.chunks(2) {
        match *pair {
            ["--yardstick", path] => yardstick = path.into(),
            ["--server", server] => selector = server,
            ["--rounds", count] => rounds = count.parse().context(USAGE)?,
            ["--seconds", count] => seconds = count.parse().context(USAGE)?,
            ["--settle", count] => settle = count,
            ["--sessions", list] => {
                levels = list.split(',').map(str::parse).collect::<Result<_, _>>().context(USAGE)?;
            }
            _ => anyhow::bail!("{USAGE}"),
        }
    }
    ensure!(yardstick.exists(), "{} is not there: give its path with --yardstick", yardstick.display());
    let server = Server::deploy(&build_plimsoll()?, selector)?;
    server.load("oltp_point_select", ROWS)?;
    let mut is_reached = true;
    for sessions in levels {
        let mut measured = Vec::new();
        for _ in 0..rounds {
            let candidate = server.bench_command("oltp_point_select", ROWS, sessions, seconds)?.join(" ");
            let text = output(
                Command::new(&yardstick)
                    .args(["--socket", &server.socket()?, "--rows", &ROWS.to_string(), "--rounds", "1"])
                    .args(["--sessions", &sessions.to_string(), "--seconds", &seconds.to_string()])
                    .args(["--settle", settle, "--candidate", &candidate, "--json"]),
            )?;
            measured.push(round(&text, sessions)?);
        }
        is_reached &= judge(sessions, &measured);
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

fn round(text: &str, sessions: u32) -> Result<Round> {
    let line =
        text.lines().rev().find(|line| line.starts_with('{')).context("the yardstick printed no JSON")?;
    let json: Value = serde_json::from_str(line)?;
    let number = |who: &str, what: &str| {
        json.pointer(&format!("/{sessions}/{who}/{what}"))
            .and_then(Value::as_f64)
            .with_context(|| format!("no {who} {what} in {line}"))
    };
    Ok(Round {
        total_vs_floor: number("candidate", "total_us")? / number("floor", "total_us")?,
        user_more_us: number("candidate", "user_us")? - number("floor", "user_us")?,
        qps_vs_floor: number("candidate", "qps")? / number("floor", "qps")?,
        qps_vs_sysbench: number("candidate", "qps")? / number("sysbench", "qps")?,
    })
}

fn judge(sessions: u32, rounds: &[Round]) -> bool {
    let total_max = if sessions == 1 { 1.3 } else { 1.15 };
    let middle = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let interval = |what: fn(&Round) -> f64| ratio_interval(&rounds.iter().map(what).collect::<Vec<_>>());
    let (total, user) = (middle(|r| r.total_vs_floor), middle(|r| r.user_more_us));
    let (by_floor, by_sysbench) = (interval(|r| r.qps_vs_floor), interval(|r| r.qps_vs_sysbench));
    println!("{sessions:4} sessions, {} rounds", rounds.len());
    println!("     total cpu / floor   {total:.3} (at most {total_max})");
    println!("     user cpu - floor    {user:+.2} us (at most +1.5)");
    for (name, (mean, low, high)) in [("floor", by_floor), ("sysbench", by_sysbench)] {
        println!("     qps / {name:13} {mean:.3} [{low:.3}, {high:.3}] (one of both must reach 1)");
    }
    total <= total_max && user <= 1.5 && (by_floor.2 >= 1.0 || by_sysbench.2 >= 1.0)
}
