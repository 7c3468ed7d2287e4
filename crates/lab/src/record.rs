//! From what the engine and the workload give to what the results file keeps.

use std::collections::BTreeMap;

use load::{Pacing, StepResult};

use crate::progress::Level;

fn outcomes(from: &load::Outcomes) -> store::Outcomes {
    store::Outcomes {
        committed: from.committed,
        rolled_back: from.rolled_back,
        deadlock: from.deadlock,
        serialization: from.serialization,
        lock_timeout: from.lock_timeout,
        constraint: from.constraint,
        connection: from.connection,
        other: from.other,
        skipped: from.skipped,
    }
}

/// As it is stored: as counters, a second of them would take 200 kB.
fn packed(latency: &load::Histogram) -> store::PackedHistogram {
    store::PackedHistogram::of(&latency.to_hdr())
}

/// One second in full, and what reports show of it.
pub(crate) fn interval(from: &load::IntervalResult) -> (store::Interval, store::Second) {
    let response = from.latency.response.to_hdr();
    let interval = store::Interval {
        second: from.second,
        duration_s: from.duration_s,
        outcomes: outcomes(&from.outcomes),
        reads: from.reads,
        writes: from.writes,
        other: from.other,
        retries: from.retries,
        backlog: from.backlog,
        response: store::PackedHistogram::of(&response),
        service: from.latency.service.as_ref().map(packed),
        by_statement: from
            .by_statement
            .iter()
            .enumerate()
            .filter(|(_, latency)| !latency.is_empty())
            .map(|(at, latency)| (at as u32, packed(latency)))
            .collect(),
    };
    let second = interval.figures(&response);
    (interval, second)
}

/// One load level, with its seconds. `offset_s` is from the run's start to that of its measured phase.
pub(crate) fn step(planned: &load::Step, from: &StepResult, level: Level, offset_s: f64) -> store::Step {
    let (rate_tps, arrivals) = match planned.pacing {
        Pacing::Closed => (None, None),
        Pacing::Open { rate_tps, arrivals } => (
            Some(rate_tps),
            Some(match arrivals {
                load::Arrivals::Constant => "constant".to_owned(),
                load::Arrivals::Poisson => "poisson".to_owned(),
            }),
        ),
    };
    let errors = from.errors.iter().map(|(code, tally)| {
        (code.clone(), store::ErrorTally { count: tally.count, text: tally.text.clone() })
    });
    store::Step {
        sessions: from.sessions,
        rate_tps,
        arrivals,
        offset_s,
        warmup_s: planned.warmup.as_secs_f64(),
        duration_s: from.duration_s,
        connect_s: from.connect_s,
        outcomes: outcomes(&from.outcomes),
        outcomes_whole: outcomes(&from.outcomes_whole),
        reads: from.reads,
        writes: from.writes,
        other: from.other,
        retries: from.retries,
        in_flight_at_end: from.in_flight_at_end,
        backlog_at_end: from.backlog_at_end,
        drained: from.drained,
        response: from.latency.response.to_hdr(),
        service: from.latency.service.as_ref().map(load::Histogram::to_hdr),
        by_statement: from
            .by_statement
            .iter()
            .map(|statement| store::Statement {
                name: statement.name.clone(),
                count: statement.count,
                latency: statement.latency.to_hdr(),
            })
            .collect(),
        errors: errors.collect::<BTreeMap<_, _>>(),
        seconds: level.seconds,
        intervals: level.intervals,
        client: clients(from),
        ended_by: from.ended_by.clone(),
        arrivals_offered: from.arrivals,
        failed: Some(from.failed.to_hdr()),
        unended: Some(store::Unended { transactions: from.unended.len(), from_ms: from.unended.min_ms() }),
        stalls: Some(store::Stalls { seconds: from.stalls.seconds, longest_s: from.stalls.longest_s }),
    }
}

/// What the client used; all of its processes together, and each of several.
fn clients(from: &load::StepResult) -> store::ClientUsage {
    let plain = |client: &load::ClientUsage| store::ClientUsage {
        workers: client.workers,
        cpu_user_s: client.cpu_user_s,
        cpu_sys_s: client.cpu_sys_s,
        cpu_share: client.cpu_share,
        run_queue_share: client.run_queue_share,
        schedule_lag_p99_ms: client.schedule_lag_p99_ms,
        is_bound: client.is_bound,
        ..store::ClientUsage::default()
    };
    let each = |client: &load::ClientUsage| store::ClientUsage {
        host: client.host.clone(),
        start_lag_ms: Some(client.start_lag_ms),
        clock_offset_us: client.clock.map(|clock| clock.offset_ns as f64 / 1e3),
        clock_within_us: client.clock.map(|clock| clock.within_ns as f64 / 1e3),
        ..plain(client)
    };
    let each: Vec<store::ClientUsage> = from.clients.iter().map(each).collect();
    let clients = (!each.is_empty()).then_some(each.len() as u32);
    store::ClientUsage { clients, each, ..plain(&from.client) }
}

pub(crate) fn check(from: &workload::Check) -> store::Check {
    store::Check {
        name: from.name.clone(),
        is_ok: from.passed,
        expected: from.expected.clone(),
        found: from.found.clone(),
    }
}

/// A build.
pub(crate) fn build(from: &sandbox::Build) -> store::Build {
    store::Build {
        flavor: from.flavor.name().to_owned(),
        version: from.version.clone(),
        label: from.label.clone().unwrap_or_default(),
        identity: from.identity.clone(),
        origin: from.origin.to_string(),
        facts: from
            .facts
            .clone()
            .into_iter()
            .chain([("server".to_owned(), from.files.server.display().to_string())])
            .collect(),
    }
}
