//! `[load]`: how sessions work, and for how long.

use std::ops::Range;
use std::time::Duration;

use super::axes::{choice, cpu_list};
use super::model::*;
use super::read::{Item, Problems, Table};
use crate::clients::CLIENTS_MAX;
use crate::stop::SIDES_MAX;

/// Repeats beyond this add nothing to what five blocks or fifty tell.
const BLOCKS_MAX: u32 = 10_000;
const RETRIES_MAX: u32 = 1_000_000;
/// Threads; more than any machine has cpus.
const WORKERS_MAX: u32 = 4096;

/// Of what is switched on and off.
const PHASE_MIN: Duration = Duration::from_millis(500);

/// A study that has a budget and no `max`.
const BLOCKS_IN_BUDGET_MAX: u32 = 100;

pub(super) fn read_blocks(table: &mut Table<'_>, problems: &mut Problems) -> Option<u32> {
    table.get("blocks").and_then(|item| item.count_within(problems, 1, BLOCKS_MAX)).map(|at| at.value)
}

/// `blocks = { min = 5, max = 40 }`, `until`, `budget`: what belongs together is there together.
fn read_end(load: &mut Load, table: &mut Table<'_>, problems: &mut Problems) {
    let least = stats::Rules::default().blocks_min as u32;
    let (blocks_span, budget_span) = (table.key_span("blocks"), table.key_span("budget"));
    let blocks = table.get("blocks");
    let is_range = blocks.is_some_and(|item| item.is_table());
    let count = |item: Item<'_>, problems: &mut Problems| item.count_within(problems, 1, BLOCKS_MAX);
    let (mut min, mut max) = (None, None);
    if let Some(mut range) = blocks.filter(|_| is_range).and_then(|item| item.table(problems, "`blocks`")) {
        min = range.get("min").and_then(|item| count(item, problems)).map(|at| at.value);
        max = range.get("max").and_then(|item| count(item, problems)).map(|at| at.value);
        range.finish(problems);
    } else if let Some(at) = blocks.filter(|_| !is_range).and_then(|item| count(item, problems)) {
        max = Some(at.value);
    }
    let budget = table.get("budget").and_then(|item| item.duration(problems)).map(|at| at.value);
    let until = table.get("until");
    let until_span = table.key_span("until");
    if choice(until, problems, "a reason to end", ["decided"]).is_none() {
        if until.is_none() && is_range {
            let help = "add until = \"decided\", or give one number of blocks";
            problems.add_help(&blocks_span, "what decides between `min` and `max`?", "no `until`", help);
        }
        if until.is_none() && budget.is_some() {
            let help = "add until = \"decided\": the study ends when it is decided, or when its time is over";
            problems.add_help(
                &budget_span,
                "a budget is for a study that ends by itself",
                "no `until`",
                help,
            );
        }
        load.blocks = max.unwrap_or(load.blocks);
        return;
    }
    let (min, most) = (min.unwrap_or(least), max.unwrap_or(BLOCKS_IN_BUDGET_MAX));
    if max.is_none() && budget.is_none() {
        let help = "add a bound: blocks = { min = 5, max = 40 }, or budget = \"20m\"";
        problems.add_help(&until_span, "a study that stays undecided would never end", "no bound", help);
    } else if most < least {
        let message = format!("a verdict needs at least {least} blocks, and this has at most {most}");
        problems.add_help(&blocks_span, message, "can never be decided", "raise `max`");
    } else if min > most {
        problems.add(&blocks_span, format!("at least {min} blocks and at most {most}"), "not possible");
    }
    load.blocks = most;
    load.until = Some(Until { blocks_min: min, budget });
}

pub(super) fn read_length(table: &mut Table<'_>, problems: &mut Problems) -> Option<Length> {
    let duration = table.get("duration").and_then(|item| item.duration(problems));
    let transactions =
        table.get("transactions").and_then(|item| item.count_within(problems, 1, TRANSACTIONS_MAX));
    if let (Some(_), Some(at)) = (&duration, &transactions) {
        problems.add(
            &at.span,
            "a level lasts for a `duration` or for a number of `transactions`, not both",
            "second",
        );
    }
    if let Some(at) = &duration
        && at.value < Duration::from_millis(100)
    {
        problems.add(
            &at.span,
            "a measured phase this short says nothing",
            "at least 100ms; 10s and more is usual",
        );
    }
    transactions.map(|at| Length::Transactions(at.value)).or(duration.map(|at| Length::Time(at.value)))
}

/// A server of today would take months for so many.
const TRANSACTIONS_MAX: u64 = 1_000_000_000_000;

/// Refuses duels that cannot be; `span` is that of `pairing`.
pub(super) fn check_duel(body: &Body, span: &Range<usize>, when: &str, problems: &mut Problems) {
    if body.load.pairing != Pairing::Duel {
        return;
    }
    let mut refuse = |message: &str, label: &str, help: &str| {
        problems.add_help(span, format!("{when}{message}"), label, help);
    };
    let Some(compare) = &body.compare else {
        return refuse(
            "a duel is between values that are compared",
            "no [compare]",
            "add [compare] with axis and base",
        );
    };
    let sides = super::compare::axis_values(&body.axes, &compare.axis).len();
    if matches!(compare.axis.as_str(), "sessions" | "climb") {
        let help = "compare another axis, or leave `pairing` out";
        refuse("a duel is between servers at the same load level", "`axis` is the load level", help);
    } else if sides > SIDES_MAX {
        let message = format!("a duel of {sides} servers, which would all be alive at once");
        refuse(&message, &format!("at most {SIDES_MAX}"), "compare fewer of them, or leave `pairing` out");
    }
    if matches!(body.axes.ladder, Ladder::Climb(_)) {
        let help = "write sessions = [..] instead of climb: each level is a duel of its own";
        refuse(
            "the levels of a climb follow each other without a break, a duel breaks them",
            "with `climb`",
            help,
        );
    }
    if body.load.clients > 1 {
        let help = "leave `clients` out, or leave `pairing` out: runs of one server at a time have room for many clients";
        refuse("the servers of a duel are loaded by one process", "with `clients`", help);
    }
    let lengths = body.axes.workload.iter().filter_map(|workload| workload.length);
    if lengths.chain([body.load.length]).any(|length| matches!(length, Length::Transactions(_))) {
        let help = "give a `duration`: it is what each server is loaded for in a block";
        refuse("a duel goes by the clock, in slices of half a second", "with `transactions`", help);
    }
}

/// Refuses levels that clients cannot share; `span` is that of `clients`.
pub(super) fn check_clients(body: &Body, span: &Range<usize>, when: &str, problems: &mut Problems) {
    let clients = body.load.clients;
    let least = body.axes.ladder.levels().iter().min().copied().unwrap_or(clients);
    if clients > 1 && least < clients {
        let message = format!("{when}{} cannot be shared out", store::counted(least, "session"));
        let help = match &body.line {
            Some(_) => format!("`sessions_max` in [line] of at least {clients}, or fewer clients"),
            None => format!("use at least {clients} sessions at each level, or fewer clients"),
        };
        problems.add_help(span, message, "clients", &help);
    }
}

/// Where keys of `[load]` stand that are checked with the rest of the study.
#[derive(Debug, Default)]
pub(super) struct LoadSpans {
    pub(super) pairing: Range<usize>,
    pub(super) clients: Range<usize>,
    pub(super) client_cpus: Range<usize>,
}

pub(super) fn read_load(mut table: Table<'_>, problems: &mut Problems) -> (Load, LoadSpans) {
    let mut load = Load::default();
    let duration = |table: &mut Table<'_>, problems: &mut Problems, key, into: &mut Duration| {
        if let Some(at) = table.get(key).and_then(|item| item.duration(problems)) {
            *into = at.value;
        }
    };
    duration(&mut table, problems, "warmup", &mut load.warmup);
    if let Some(length) = read_length(&mut table, problems) {
        load.length = length;
    }
    read_end(&mut load, &mut table, problems);
    let pairing = choice(table.get("pairing"), problems, "a way to pair runs", ["adjacent", "duel"]);
    if pairing.is_some_and(|word| word == "duel") {
        load.pairing = Pairing::Duel;
    }
    duration(&mut table, problems, "think_time", &mut load.think_time);
    duration(&mut table, problems, "backoff", &mut load.backoff);
    let backoff_span = table.key_span("backoff");
    duration(&mut table, problems, "ramp", &mut load.ramp);
    duration(&mut table, problems, "drain", &mut load.drain);
    load.rate_tps = table.get("rate").and_then(|item| {
        let at = item.number(problems)?;
        if at.value <= 0.0 {
            problems.add(&at.span, "a rate is more than 0 transactions per second", "not positive");
        } else if at.value.is_nan() || at.value > load::RATE_MAX_TPS {
            let message = format!(
                "a rate is at most {:.0} transactions per second, one for each nanosecond of the clock",
                load::RATE_MAX_TPS
            );
            problems.add(&at.span, message, "cannot be counted");
        }
        Some(at.value)
    });
    if let Some(item) = table.get("arrivals")
        && let Some(text) = choice(Some(item), problems, "a way to arrive", ["constant", "poisson"])
    {
        load.arrivals = if text == "constant" { Arrivals::Constant } else { Arrivals::Poisson };
        if load.rate_tps.is_none() {
            let message = "`arrivals` spreads the transactions of an open loop, which needs a `rate`";
            problems.add_help(&item.span(), message, "no rate given", "for example: rate = 500");
        }
    }
    if load.rate_tps.is_some() && !load.think_time.is_zero() {
        let span = table.key_span("think_time");
        problems.add(
            &span,
            "sessions of an open loop (`rate`) do not think: arrivals are scheduled",
            "with `rate`",
        );
    }
    if let Some(at) = table.get("retries").and_then(|item| item.count_within(problems, 0, RETRIES_MAX)) {
        load.retries_max = at.value;
    }
    if load.retries_max == 0 && !load.backoff.is_zero() {
        let message = "`backoff` is the wait before a retry, and there are none";
        problems.add_help(&backoff_span, message, "no `retries`", "for example: retries = 3");
    }
    load.prime = read_prime(&mut table, problems);
    load.is_lenient = read_gates(&mut table, problems);
    if let Some(word) = choice(table.get("cache"), problems, "a state of the caches", ["warm", "cold"]) {
        load.is_cold = word == "cold";
    }
    let workers = table.get("workers").and_then(|item| item.count_within(problems, 1, WORKERS_MAX));
    load.workers = workers.map(|at| at.value as usize);
    if let Some(at) = table.get("clients").and_then(|item| item.count_within(problems, 1, CLIENTS_MAX)) {
        load.clients = at.value;
    }
    load.seed =
        table.get("seed").and_then(|item| item.count::<i64>(problems, 0)).map(|at| at.value.unsigned_abs());
    if let Some(at) = table.get("hot_locks").and_then(|item| item.truth(problems)) {
        load.hot_locks = at.value;
    }
    load.phase = read_phase(&mut table, problems);
    let client_cpus = table.get("client_cpus");
    load.client_cpus = client_cpus.and_then(|item| {
        let text = item.text(problems)?;
        cpu_list(&text, problems).then_some(text.value)
    });
    let spans = LoadSpans {
        pairing: table.key_span("pairing"),
        clients: table.key_span("clients"),
        client_cpus: client_cpus.map_or(0..0, |item| item.span()),
    };
    table.finish(problems);
    (load, spans)
}

/// `gates = "warn"`: a run on a noisy machine, or with a busy client, is shown with warnings instead of being
/// called invalid. What says that the answers are wrong still does.
pub(super) fn read_gates(table: &mut Table<'_>, problems: &mut Problems) -> bool {
    choice(table.get("gates"), problems, "what a gate does", ["invalid", "warn"])
        .is_some_and(|word| word == "warn")
}

/// `phase = "5s"`.
pub(super) fn read_phase(table: &mut Table<'_>, problems: &mut Problems) -> Option<Duration> {
    let at = table.get("phase")?.duration(problems)?;
    if at.value < PHASE_MIN {
        problems.add(&at.span, "a phase this short is over before the server has settled", "at least 500ms");
    }
    Some(at.value)
}

/// `prime = "10s"`, or a number of transactions.
pub(super) fn read_prime(table: &mut Table<'_>, problems: &mut Problems) -> Option<Length> {
    let item = table.get("prime")?;
    if item.integer().is_some() {
        return item.count_within(problems, 1, TRANSACTIONS_MAX).map(|at| Length::Transactions(at.value));
    }
    item.duration(problems).map(|at| Length::Time(at.value))
}
