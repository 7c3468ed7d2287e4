//! What a block of a study tells for its time: interleaved runs against duels of the same server with itself, on the same
//! machine, in turns.
//!
//! For each workload: the spread of a block's log-ratio, the time that a block takes, and the spread that a minute of
//! measuring comes to (`spread * sqrt(minutes of a block)`: what independent blocks made for a minute leave of it); and
//! of duels how much of the spread arises from life to life and from slice to slice. What is judged: a minute of duels
//! tells no less than a minute of interleaved runs.
//!
//! Each life of a duel and each run has as many seconds of load.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lab::bench::{self, Data, Level};
use lab::clients::Hosts;
use lab::duel::{self, Side};
use lab::servers::{Server, parse_argument};
use lab::study::ReplicasChoice;
use lab::watch::Watch;
use lab::{Event, OnServer, StopSwitch};
use sandbox::Home;

const WORKLOADS: [&str; 3] = ["oltp_read_write", "oltp_point_select", "tpcb"];
const WARMUP: Duration = Duration::from_secs(1);

#[derive(clap::Parser)]
struct Asked {
    #[arg(default_value = "mariadb")]
    server: String,
    #[arg(long, default_value_t = 6)]
    blocks: u32,
    #[arg(long, default_value_t = 10)]
    slices: u32,
    #[arg(long, default_value_t = 8)]
    sessions: u32,
    #[arg(long = "workload", default_values = WORKLOADS)]
    workloads: Vec<String>,
}

/// Log-ratios of one way to measure, by block, and what they took.
#[derive(Default)]
struct Blocks {
    log_ratios: Vec<f64>,
    /// Of blocks that count: by pair of slices. Empty where there are none.
    by_slice: Vec<Vec<f64>>,
    lost: u32,
    took: Duration,
}

impl Blocks {
    fn spread(&self) -> Option<f64> {
        let mean = stats::mean(&self.log_ratios)?;
        let squares: f64 = self.log_ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        let n = self.log_ratios.len() as f64;
        (n >= 2.0).then(|| (squares / (n - 1.0)).sqrt())
    }

    fn minutes_a_block(&self) -> f64 {
        let blocks = self.log_ratios.len() as f64 + f64::from(self.lost);
        self.took.as_secs_f64() / 60.0 / blocks.max(1.0)
    }

    /// The spread that is left after a minute; a lost block's time counts, its ratio does not.
    fn spread_of_a_minute(&self) -> Option<f64> {
        let counted = self.log_ratios.len() as f64;
        let all = counted + f64::from(self.lost);
        Some(self.spread()? * (self.minutes_a_block() * all / counted).sqrt())
    }
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked: Asked = crate::asked("bench power", arguments);
    let home = Home::find()?;
    let mut is_reached = true;
    println!(
        "{} with itself, {} sessions; a block has {} s of load for each side\n",
        asked.server, asked.sessions, asked.slices
    );
    for workload in &asked.workloads {
        let (interleaved, duels) = measure(&home, &asked, workload)?;
        println!("{workload}");
        for (way, blocks) in [("interleaved", &interleaved), ("duel", &duels)] {
            println!("  {way:12} {}", line(blocks));
        }
        if let Some(parts) = stats::variance_components(&duels.by_slice) {
            println!(
                "  of a duel's spread: {:.2} % from life to life, {:.2} % from slice to slice ({} lives, {} pairs of \
                 slices)",
                100.0 * parts.between.sqrt(),
                100.0 * parts.within.sqrt(),
                parts.groups,
                parts.values
            );
        }
        match (interleaved.spread_of_a_minute(), duels.spread_of_a_minute()) {
            (Some(before), Some(now)) => {
                println!("  a minute of duels leaves {:.2} x the spread of a minute of runs\n", now / before);
                is_reached &= now <= before;
            }
            _ => bail!("{workload}: too few blocks count for a spread"),
        }
    }
    Ok(is_reached)
}

fn line(blocks: &Blocks) -> String {
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{:.2} %", 100.0 * v));
    format!(
        "{} blocks ({} lost), {:.0} s each, spread {}, mean {}, {} after a minute",
        blocks.log_ratios.len(),
        blocks.lost,
        60.0 * blocks.minutes_a_block(),
        percent(blocks.spread()),
        percent(stats::mean(&blocks.log_ratios)),
        percent(blocks.spread_of_a_minute()),
    )
}

/// Blocks of both ways in turns: what the machine does meanwhile is done to both.
fn measure(home: &Home, asked: &Asked, workload: &str) -> Result<(Blocks, Blocks)> {
    let (mut interleaved, mut duels) = (Blocks::default(), Blocks::default());
    let Server::Selector(selector) = parse_argument(&asked.server)? else {
        bail!("{} is not a build", asked.server);
    };
    let stop = StopSwitch::default();
    let observer = |event: Event<'_>| {
        if let Event::RunEnded { label, summary } = event {
            eprintln!(
                "  {}: {} {}",
                label.text(),
                summary.status.as_str(),
                summary.error.as_deref().unwrap_or("")
            );
        }
    };
    let build = lab::servers::obtain(home, &selector, &observer)?;
    let resolved = lab::workloads::resolve(workload)?;
    let sizes: &[(&str, &str)] =
        if workload.starts_with("oltp_") { &[("tables", "2"), ("table_size", "20000")] } else { &[] };
    let options: BTreeMap<String, String> =
        sizes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    // Loads the tables and keeps a snapshot, which neither way pays for.
    let mut counted = false;
    for block in 0..=asked.blocks {
        let request = duel::Request {
            sides: vec![Side::new("a", build.clone()), Side::new("b", build.clone())],
            workload: resolved.clone(),
            options: options.clone(),
            sessions: asked.sessions,
            lives: 1,
            slices: if counted { asked.slices } else { 2 },
            warmup: WARMUP,
            pacing: load::Pacing::Closed,
            seed: u64::from(block),
        };
        duel::duel(home, &request, &Watch::default(), &observer, &stop, &mut |life| {
            if !counted {
                return ControlFlow::Break(());
            }
            duels.took += life.took;
            match life.log_ratio(0, 1) {
                None => duels.lost += 1,
                Some(ratio) => {
                    duels.log_ratios.push(ratio);
                    let (one, other) = (life.sides[0].slices_tps(), life.sides[1].slices_tps());
                    duels
                        .by_slice
                        .push(one.iter().zip(&other).map(|(one, other)| (other / one).ln()).collect());
                }
            }
            ControlFlow::Continue(())
        })?;
        if !counted {
            counted = true;
            continue;
        }
        let request = bench::Request {
            on: OnServer {
                workload: resolved.clone(),
                options: options.clone(),
                server: Server::Selector(selector.clone()),
                workers: None,
                clients: 1,
                client_hosts: Hosts::This,
                settings: BTreeMap::new(),
                profile: None,
                replicas: ReplicasChoice::none(),
                seed: u64::from(block),
            },
            sessions: vec![asked.sessions; 2],
            length: load::Length::Time(Duration::from_secs(u64::from(asked.slices))),
            warmup: WARMUP,
            pacing: load::Pacing::Closed,
            cpus: None,
            data: Data::Any,
        };
        let began = Instant::now();
        let mut tps = Vec::new();
        bench::bench(home, &request, &Watch::default(), &observer, &stop, &mut |level: Level| {
            let step = level.end.steps.first().filter(|_| level.end.status == store::Status::Done);
            tps.extend(step.map(|step| step.outcomes.committed as f64 / step.duration_s));
        })?;
        interleaved.took += began.elapsed();
        match tps.as_slice() {
            [one, other] => interleaved.log_ratios.push((other / one).ln()),
            _ => interleaved.lost += 1,
        }
    }
    Ok((interleaved, duels))
}
