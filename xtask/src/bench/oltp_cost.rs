//! What oltp_read_write costs the client on both protocols, beside sysbench's steady phase and a floor.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::lab::{DATABASE, Server, Slice, build_plimsoll, median, output};

const ROWS: u64 = 1_000_000;
const FLOOR_SOURCE: &str = "benches/floor/oltp_read_write.c";
const VS_FLOOR_MAX: f64 = 1.2;
const USAGE: &str =
    "oltp-cost [--servers mariadb,postgres] [--rounds 3] [--seconds 20] [--settle 8] [--sessions 64,256]";

/// Sessions, and the largest part of sysbench's cost that is asked for.
fn vs_sysbench_max(sessions: u32) -> f64 {
    if sessions >= 256 { 0.65 } else { 0.8 }
}

struct Asked<'a> {
    rounds: usize,
    seconds: u64,
    settle: u64,
    levels: Vec<u32>,
    servers: Vec<&'a str>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let mut asked = Asked {
        rounds: 3,
        seconds: 20,
        settle: 8,
        levels: vec![64, 256],
        servers: vec!["mariadb", "postgres"],
    };
    for pair in arguments.chunks(2) {
        match *pair {
            ["--servers", list] => asked.servers = list.split(',').collect(),
            ["--rounds", count] => asked.rounds = count.parse().context(USAGE)?,
            ["--seconds", count] => asked.seconds = count.parse().context(USAGE)?,
            ["--settle", count] => asked.settle = count.parse().context(USAGE)?,
            ["--sessions", list] => {
                asked.levels = list.split(',').map(str::parse).collect::<Result<_, _>>().context(USAGE)?;
            }
            _ => bail!("{USAGE}"),
        }
    }
    let directory = tempfile::tempdir()?;
    let floor = directory.path().join("floor");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&floor).arg(FLOOR_SOURCE))?;
    let plimsoll = build_plimsoll()?;
    let mut is_reached = true;
    for selector in &asked.servers {
        let server = Server::deploy(&plimsoll, selector)?;
        server.load("oltp_read_write", ROWS)?;
        for sessions in asked.levels.clone() {
            is_reached &= level(&server, selector, &floor, sessions, &asked)?;
        }
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

type Measure<'a> = Box<dyn Fn() -> Result<Slice> + 'a>;

fn level(server: &Server, name: &str, floor: &Path, sessions: u32, asked: &Asked<'_>) -> Result<bool> {
    let who: [(&str, Measure<'_>); 3] = [
        ("sysbench", Box::new(|| sysbench(server, sessions, asked.settle, asked.seconds))),
        ("floor", Box::new(|| run_floor(server, floor, sessions, asked.seconds))),
        ("plimsoll", Box::new(|| run_plimsoll(server, sessions, asked.seconds))),
    ];
    let mut slices: [Vec<Slice>; 3] = Default::default();
    for round in 0..asked.rounds {
        // Each begins one round in three: what follows whom evens out.
        for turn in 0..who.len() {
            let at = (round + turn) % who.len();
            slices[at].push(who[at].1().with_context(|| format!("{} at {sessions} sessions", who[at].0))?);
        }
    }
    println!("{name}, {sessions} sessions, {} rounds of {} s", asked.rounds, asked.seconds);
    for ((who, _), slices) in who.iter().zip(&slices) {
        let middle = |what: fn(&Slice) -> f64| median(slices.iter().map(what).collect());
        println!(
            "  {who:9} {:8.0} statements/s  user {:5.2} us  total {:5.2} us a statement",
            middle(|slice| slice.qps),
            middle(|slice| slice.user_us),
            middle(|slice| slice.total_us)
        );
    }
    let [sysbench, floor, plimsoll] = &slices;
    let ratio = |base: &[Slice]| {
        median(plimsoll.iter().zip(base).map(|(ours, theirs)| ours.total_us / theirs.total_us).collect())
    };
    let (vs_sysbench, vs_floor) = (ratio(sysbench), ratio(floor));
    println!("  plimsoll / sysbench {vs_sysbench:.3} (at most {})", vs_sysbench_max(sessions));
    println!("  plimsoll / floor    {vs_floor:.3} (at most {VS_FLOOR_MAX})");
    Ok(vs_sysbench <= vs_sysbench_max(sessions) && vs_floor <= VS_FLOOR_MAX)
}

fn run_floor(server: &Server, floor: &Path, sessions: u32, seconds: u64) -> Result<Slice> {
    let protocol = if server.is_postgres { "postgres" } else { "mysql" };
    let text = output(
        Command::new(floor)
            .args([protocol, &server.socket()?, server.user(), &sessions.to_string()])
            .args([seconds.to_string(), ROWS.to_string()]),
    )?;
    Slice::from_json(&text)
}

fn run_plimsoll(server: &Server, sessions: u32, seconds: u64) -> Result<Slice> {
    let command = server.bench_command("oltp_read_write", ROWS, sessions, seconds)?;
    let (program, arguments) = command.split_first().context("no command")?;
    Slice::from_json(&output(Command::new(program).args(arguments))?)
}

/// sysbench's steady phase: CPU read from the kernel once it has settled and again after the slice.
fn sysbench(server: &Server, sessions: u32, settle: u64, seconds: u64) -> Result<Slice> {
    ensure!(DATABASE == "sbtest", "sysbench's default");
    let mut child = Command::new("sysbench")
        .arg("oltp_read_write")
        .args(server.sysbench_options()?)
        .args([format!("--table-size={ROWS}"), format!("--threads={sessions}")])
        .args([format!("--time={}", settle + seconds + 2), "--report-interval=1".to_owned()])
        .args(["--rand-type=uniform", "run"])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting sysbench")?;
    let stdout = child.stdout.take().context("no standard output")?;
    let (mut began, mut ended, mut queries, mut printed) = (None, None, 0.0, String::new());
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some((second, qps)) = report_line(&line) {
            if second == settle {
                began = Some((cpu_of(child.id())?, Instant::now()));
            } else if began.is_some() && second <= settle + seconds {
                queries += qps;
                if second == settle + seconds {
                    ended = Some((cpu_of(child.id())?, Instant::now()));
                }
            }
        }
        printed += &line;
        printed.push('\n');
    }
    let status = child.wait()?;
    let (Some((before, began)), Some((after, ended))) = (began, ended) else {
        bail!("sysbench ended with {status}\n{printed}");
    };
    Ok(Slice::new(queries, (ended - began).as_secs_f64(), after.0 - before.0, after.1 - before.1))
}

/// `[ 10s ] thds: 24 tps: 375.19 qps: 8059.91 (r/w/o: ...`
pub(super) fn report_line(line: &str) -> Option<(u64, f64)> {
    let second = line.strip_prefix("[ ")?.split_once("s ]")?.0.parse().ok()?;
    let qps = line.split_once(" qps: ")?.1.split_whitespace().next()?.parse().ok()?;
    Some((second, qps))
}

/// User and system CPU of a process and its threads, in s (proc(5), stat).
pub(super) fn cpu_of(pid: u32) -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat")))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // SAFETY: a plain question to the C library.
    let tick = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, sys) = ticks(11).zip(ticks(12)).context("/proc/PID/stat has too few fields")?;
    Ok((user / tick, sys / tick))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_sysbench_are_read() {
        let line =
            "[ 10s ] thds: 24 tps: 375.19 qps: 8059.91 (r/w/o: 1/2/3) lat (ms,95%): 106.75 err/s: 44.76";
        assert_eq!(report_line(line), Some((10, 8059.91)));
        assert_eq!(report_line("Threads started!"), None);
    }
}
