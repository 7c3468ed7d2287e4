//! Checks of a run: pure functions over what was recorded, each with a name, what was found and a remedy. Some doubt the
//! measurement, and an invalid run is kept out of averages and verdicts; others tell how the server behaved, which is
//! what was to be found out. Which is which: `store::Gate::kind`.

mod cache;

use stats::{Steadiness, SteadyState};

pub use self::cache::{ColdStart, cache_cold, cache_warm};
use crate::foreign::ForeignProcess;
use crate::track::Track;

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Looked at, nothing wrong.
    Held,
    /// Looked at, and it is wrong.
    Tripped,
    /// Could not be looked at; the detail says why.
    NotChecked,
}

/// One gate's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its name in results: `client_bound`, `not_steady`, ...
    pub name: &'static str,
    pub finding: Finding,
    /// What was found, with the figures.
    pub detail: String,
    /// What to do about it; empty where it held.
    pub remedy: String,
}

impl Gate {
    fn new(name: &'static str, is_tripped: bool, detail: String, remedy: &str) -> Self {
        let finding = if is_tripped { Finding::Tripped } else { Finding::Held };
        let remedy = if is_tripped { remedy.to_owned() } else { String::new() };
        Self { name, finding, detail, remedy }
    }

    /// Could not be looked at, and why.
    pub fn not_checked(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, finding: Finding::NotChecked, detail: why.into(), remedy: String::new() }
    }

    /// Looked at, and it is wrong.
    pub fn is_tripped(&self) -> bool {
        self.finding == Finding::Tripped
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The client, not the server, set the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientLoad {
    /// CPU of the busiest worker as a share of its core.
    pub cpu_share: f64,
    /// Share of the time in which workers could have run and did not.
    pub run_queue_share: f64,
    /// 99th percentile of how late a due wake-up was served.
    pub schedule_lag_p99_ms: f64,
    /// The engine's own judgement.
    pub is_bound: bool,
}

/// `client_bound`.
pub fn client_bound(client: &ClientLoad) -> Gate {
    let detail = format!(
        "busiest worker used {} of its core, waited {} of the time for a core, wake-ups up to {:.1} ms late (p99)",
        percent(client.cpu_share),
        percent(client.run_queue_share),
        client.schedule_lag_p99_ms
    );
    let remedy =
        "give the client more of the machine: more workers, other cores than the server's, or a lower rate";
    Gate::new("client_bound", client.is_bound, detail, remedy)
}

/// What a server of a duel did while others were loaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitingServer {
    /// For how long it was looked at; 0 where it could not be.
    pub for_s: f64,
    /// What it used meanwhile.
    pub cpu_s: f64,
    /// Cpus of the machine that it shares with the one that is loaded.
    pub cpus: f64,
    /// What it had written by the kernel.
    pub written_bytes: u64,
}

/// A server that takes a larger share of the cpus than this from the one that is loaded changes what is compared: the
/// margins that studies ask about are a few per cent.
const WAITING_SHARE_MAX: f64 = 0.05;

/// `waiting_server`: whether it was quiet while it was not its turn.
pub fn waiting_server(waiting: &WaitingServer) -> Gate {
    if waiting.for_s <= 0.0 {
        return Gate::not_checked(
            "waiting_server",
            "the process of the server that waited could not be seen",
        );
    }
    let share = waiting.cpu_s / (waiting.for_s * waiting.cpus.max(1.0));
    let detail = format!(
        "while the others were loaded this server used {} of the cpus and wrote {:.1} MB/s (at most {:.0} % of the cpus)",
        percent(share),
        waiting.written_bytes as f64 / 1e6 / waiting.for_s,
        100.0 * WAITING_SHARE_MAX
    );
    let remedy = "it has work left over from its own slices (flushing, purge, vacuum): compare them with pairing = \
                  \"adjacent\", or load them less";
    Gate::new("waiting_server", share > WAITING_SHARE_MAX, detail, remedy)
}

/// What an open loop offered, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// Arrivals of the measured phase.
    pub arrivals: u64,
    /// Of these: not begun when it ended.
    pub backlog_at_end: u64,
    /// Sessions that could have begun them.
    pub sessions: u32,
    /// Scheduled and not begun at the end of each whole second.
    pub backlogs: Vec<u64>,
}

impl Offered {
    /// Less than 99 % was served; fewer than one a session wait for chance alone.
    fn is_unserved(&self) -> bool {
        let served = self.arrivals.saturating_sub(self.backlog_at_end) as f64;
        self.backlog_at_end > u64::from(self.sessions) && served < 0.99 * self.arrivals as f64
    }

    /// More waited in every second of the last third than in any of the first, by more than one a session.
    fn is_growing(&self) -> bool {
        let third = self.backlogs.len() / 3;
        let first = self.backlogs.iter().take(third).max();
        let last = self.backlogs.iter().rev().take(third).min();
        first.zip(last).is_some_and(|(first, last)| *last > first + u64::from(self.sessions))
    }
}

/// `overloaded`: more arrived than was served. Response times are then a function of how long was measured.
pub fn overloaded(offered: &Offered) -> Gate {
    if offered.arrivals == 0 {
        return Gate::not_checked("overloaded", "nothing arrived in the measured phase");
    }
    let served = offered.arrivals.saturating_sub(offered.backlog_at_end) as f64;
    let detail = format!(
        "{} of the offered transactions were begun in time, {} waited at the end{}",
        percent(served / offered.arrivals as f64),
        offered.backlog_at_end,
        if offered.is_growing() { ", more and more of them" } else { "" }
    );
    let remedy = "offer less than the server carries (--rate, rate in [load]), or measure what it carries with sessions \
                  instead of a rate: of an overload only the throughput means anything";
    Gate::new("overloaded", offered.is_unserved() || offered.is_growing(), detail, remedy)
}

/// `stalls`: how long nothing was committed while sessions waited, in whole seconds and at the longest. It trips from
/// `limit_s` on.
pub fn stalls(seconds: u32, longest_s: f64, limit_s: f64) -> Gate {
    let is_tripped = longest_s >= limit_s;
    let detail = match is_tripped {
        true => format!(
            "nothing was committed in {seconds} whole seconds while sessions waited, {longest_s:.1} s at the longest"
        ),
        false => format!(
            "{seconds} whole seconds without a commit, the longest time without one lasted {longest_s:.1} s"
        ),
    };
    let remedy = "look at what the server's log and the series say of that time (checkpoints, flushing, purge, storage)";
    Gate::new("stalls", is_tripped, detail, remedy)
}

/// `not_steady`: a slope or a change of level in the seconds of the measured phase, of throughput or of p95. `p95` is
/// `None` where seconds have too few transactions for one.
pub fn not_steady(throughput: &Steadiness, p95: Option<&Steadiness>) -> Gate {
    let name = "not_steady";
    if throughput.state == SteadyState::TooShort {
        let (seconds, needed) = (throughput.effective_seconds, stats::SteadyRules::default().seconds_min);
        return Gate::not_checked(name, format!("{seconds:.0} whole seconds, {needed} are needed"));
    }
    let all = [Some(("throughput", throughput)), p95.map(|p95| ("p95", p95))];
    let moved =
        |steadiness: &Steadiness| matches!(steadiness.state, SteadyState::Slope | SteadyState::LevelChange);
    let found: Vec<_> = all.into_iter().flatten().filter(|(_, steadiness)| moved(steadiness)).collect();
    let Some((_, first)) = found.first() else {
        let of_p95 = match p95 {
            Some(p95) => format!(", p95 by {}", percent(p95.slope_share)),
            None => ", p95 not looked at: its seconds have too few transactions".to_owned(),
        };
        let detail =
            format!("throughput changed by {} over the phase{of_p95}", percent(throughput.slope_share));
        return Gate::new(name, false, detail, "");
    };
    let remedy = match first.state {
        SteadyState::Slope => "measure longer or after a longer warm-up, until the slope is gone",
        _ => {
            "look at the series below the throughput for what changed there (checkpoint, purge, another process), and \
             measure longer than its period"
        }
    };
    let detail: Vec<String> = found.iter().map(|(what, steadiness)| movement(what, steadiness)).collect();
    Gate::new(name, true, detail.join("; "), remedy)
}

fn movement(what: &str, steadiness: &Steadiness) -> String {
    match (steadiness.state, steadiness.change.as_ref()) {
        (SteadyState::LevelChange, Some(c)) => {
            let (before, after) = (three_digits(c.before), three_digits(c.after));
            format!("{what} went from {before} to {after} at second {}", c.index + 1)
        }
        _ => format!(
            "{what} changed by {} from the first to the last second (p = {:.4})",
            percent(steadiness.slope_share),
            steadiness.slope_p
        ),
    }
}

/// Work that the server puts off: a run that only builds it up shows a throughput that cannot last.
#[derive(Debug, Clone, PartialEq)]
pub struct Debt {
    /// `checkpoint age`, `dirty pages`, `history list`, `dead tuples`.
    pub name: &'static str,
    /// At the start of the measured phase.
    pub start: f64,
    pub end: f64,
    /// Where the server begins to pay it under the load's feet.
    pub limit: f64,
    /// `MB`, `transactions`, `rows`.
    pub unit: &'static str,
}

impl Debt {
    /// From the series over the measured phase: means of the first and last fifth.
    ///
    /// # Errors
    /// There are fewer than five samples, or no limit to judge them by.
    pub fn of(
        name: &'static str,
        unit: &'static str,
        factor: f64,
        values: &[f64],
        limit: Option<f64>,
    ) -> Result<Self, UnseenDebt> {
        let unseen = |why: String| UnseenDebt { name, why };
        let fifth = values.len() / 5;
        let first = stats::mean(&values[..fifth]);
        let last = stats::mean(&values[values.len() - fifth..]);
        match (values.len(), first.zip(last), limit) {
            (0, _, _) => Err(unseen("was not sampled".to_owned())),
            (1, _, _) => Err(unseen("was sampled once, 5 times are needed".to_owned())),
            (n, None, _) => Err(unseen(format!("was sampled {n} times, 5 are needed"))),
            (_, Some(_), None) => Err(unseen("has no known limit".to_owned())),
            (_, Some((first, last)), Some(limit)) => {
                Ok(Self { name, start: first * factor, end: last * factor, limit, unit })
            }
        }
    }

    /// Beyond half of the limit, and still growing by a tenth of the limit or more.
    fn is_growing(&self) -> bool {
        self.limit > 0.0 && self.end > 0.5 * self.limit && self.end - self.start > 0.1 * self.limit
    }
}

/// A debt that a server of its kind has, and that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenDebt {
    /// As in [`Debt`].
    pub name: &'static str,
    /// `was not sampled`.
    pub why: String,
}

/// `debt_growing`, of all debts that a server of this kind has. Every write builds up some debt, so growth counts only on
/// its way to the limit.
pub fn debt_growing(debts: &[Result<Debt, UnseenDebt>]) -> Gate {
    let name = "debt_growing";
    let seen: Vec<&Debt> = debts.iter().flatten().collect();
    let unseen = debts.iter().filter_map(|debt| debt.as_ref().err());
    let unseen = unseen.map(|debt| format!("{} {}", debt.name, debt.why));
    if seen.is_empty() {
        let unseen: Vec<String> = unseen.collect();
        let nothing = "the server's counters were not sampled".to_owned();
        return Gate::not_checked(name, if unseen.is_empty() { nothing } else { unseen.join("; ") });
    }
    let growing: Vec<&Debt> = seen.iter().copied().filter(|d| d.is_growing()).collect();
    let shown = if growing.is_empty() { &seen } else { &growing };
    let told = shown.iter().map(|d| {
        let [start, end, limit] = [d.start, d.end, d.limit].map(three_digits);
        format!("{} {start} to {end} of {limit} {}", d.name, d.unit)
    });
    let detail: Vec<String> = told.chain(unseen.map(|unseen| format!("not seen: {unseen}"))).collect();
    let remedy = "measure until the debt has levelled off, let it drain between runs, or give the server the means to \
                  pay it (larger log, more I/O capacity, more purge threads, a keener autovacuum)";
    Gate::new(name, !growing.is_empty(), detail.join("; "), remedy)
}

/// Enough digits to compare, not more than were measured.
pub fn three_digits(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", digits as usize)
}

/// What else went on on the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    /// What the cpus were worth on which server and client may run: their number, or a quota, times the time. All of
    /// these figures are seconds of these cpus.
    pub there_s: f64,
    /// Used by whomever; `None` where cpu was not measured.
    pub busy_s: Option<f64>,
    /// Of that, at a low priority, which gives way.
    pub low_priority_s: f64,
    /// Used by server and client; `None` for a server whose process is not seen.
    pub own_s: Option<f64>,
    /// Given to others by the hypervisor while something here wanted to run.
    pub stolen_s: f64,
    /// Who else used most, where that was seen.
    pub busiest: Option<ForeignProcess>,
    /// This block's canary divided by the median of the study's: below 1 is a slower machine. Shown, not judged: a loop
    /// of a second varies by 15 % on a virtual machine, and says nothing of the runs between two of them.
    pub canary_ratio: Option<f64>,
}

/// The largest part of the cpu that server and client wanted that others may take from them.
pub const TAKEN_SHARE_MAX: f64 = 0.25;

impl Noise {
    /// What other processes used at no low priority beyond what was left over, as a share of what server and client
    /// wanted: on cpus with room for all nobody takes anything from anybody.
    fn crowded_share(&self) -> Option<f64> {
        let (busy_s, own_s) = (self.busy_s?, self.own_s?);
        let foreign_s = (busy_s - own_s - self.low_priority_s).max(0.0);
        let left_s = (self.there_s - busy_s - self.stolen_s).max(0.0) + self.low_priority_s;
        let taken_s = (foreign_s - left_s).max(0.0);
        Some(taken_s / (own_s + taken_s + self.stolen_s).max(1e-9))
    }

    /// What others took of the cpu that server and client wanted, processes and the hypervisor together; `None` where that
    /// was not seen.
    pub fn taken_share(&self) -> Option<f64> {
        Some(self.stolen_share()? + self.crowded_share()?)
    }

    /// What the hypervisor took, as a share of what was wanted.
    fn stolen_share(&self) -> Option<f64> {
        let used_s = self.own_s.or(self.busy_s)?;
        Some(self.stolen_s / (used_s + self.stolen_s).max(1e-9))
    }
}

/// `noisy_host`, of the machine that the server is on.
pub fn noisy_host(noise: &Noise) -> Gate {
    noisy("server and client", noise)
}

/// `noisy_host`, of a machine that has nothing but clients.
pub fn noisy_client_host(host: &str, noise: &Noise) -> Gate {
    let gate = noisy("its clients", noise);
    Gate { detail: format!("{host}: {}", gate.detail), ..gate }
}

fn noisy(whose: &str, noise: &Noise) -> Gate {
    let name = "noisy_host";
    let Some(stolen) = noise.stolen_share() else {
        return Gate::not_checked(name, "cpu was not measured");
    };
    let crowded = noise.crowded_share();
    let is_tripped = stolen + crowded.unwrap_or(0.0) > TAKEN_SHARE_MAX;
    let mut detail = vec![match crowded {
        // Without its id, which differs from run to run: the same trouble is to be told as one.
        Some(share) => {
            let most = noise.busiest.as_ref().filter(|_| is_tripped);
            let most = most.map_or_else(String::new, |most| format!(", {} the most", most.name));
            format!("of the cpu that {whose} wanted, other processes took {}{most}", percent(share))
        }
        None => "not seen: what other processes took".to_owned(),
    }];
    detail.push(format!("the hypervisor took {}", percent(stolen)));
    if let Some(ratio) = noise.canary_ratio {
        detail.push(format!("the canary, not judged, ran at {} of its usual speed", percent(ratio)));
    }
    if crowded.is_none() && !is_tripped {
        return Gate::not_checked(name, detail.join("; "));
    }
    let remedy = "find and stop what else runs (top, virtual machines on the same host), then run the study again: \
                  invalid runs are repeated";
    Gate::new(name, is_tripped, detail.join("; "), remedy)
}

/// What may be swapped in a level without anybody noticing: the kernel puts away what nobody has used for long.
const SWAPPED_BYTES_MAX: f64 = 1024.0 * 1024.0;

/// `swapping`: memory was read from swap or written there while it was measured, by whomever. `None`: not counted.
pub fn swapping(in_bytes: Option<f64>, out_bytes: Option<f64>) -> Gate {
    let name = "swapping";
    let (Some(in_bytes), Some(out_bytes)) = (in_bytes, out_bytes) else {
        return Gate::not_checked(name, "/proc/vmstat does not count what is swapped");
    };
    let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
    let detail = format!("{:.1} MiB swapped in, {:.1} MiB out", mib(in_bytes), mib(out_bytes));
    let remedy =
        "give the server less memory, or free some: see what else is on the machine; swapoff -a makes sure";
    Gate::new(name, in_bytes.max(out_bytes) > SWAPPED_BYTES_MAX, detail, remedy)
}

/// A limit on a device, and what went through it a second in the measured phase; the unit is that of both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceLimit {
    /// `bytes written`, `reads`.
    pub what: &'static str,
    pub allowed: f64,
    /// What was seen on average; `None` where the device was not sampled.
    pub seen: Option<f64>,
}

/// How far above its limit a device may be: the sampler's seconds and the limiter's are not the same ones.
const ABOVE_LIMIT_MAX: f64 = 1.1;

/// `storage_limit`: a limit that did not hold stands in for no slower device.
pub fn storage_limit(limits: &[DeviceLimit]) -> Gate {
    let name = "storage_limit";
    if let Some(unseen) = limits.iter().find(|limit| limit.seen.is_none()) {
        return Gate::not_checked(name, format!("{} of the device were not sampled", unseen.what));
    }
    let told = limits.iter().filter_map(|limit| {
        Some(format!("{:.0} {} a second, {:.0} allowed", limit.seen?, limit.what, limit.allowed))
    });
    let detail = told.collect::<Vec<_>>().join("; ");
    let is_above =
        |limit: &DeviceLimit| limit.seen.is_some_and(|seen| seen > limit.allowed * ABOVE_LIMIT_MAX);
    let remedy = "the limit did not hold, or something else used the device: stop what else does, or take a place that \
                  is really slower";
    Gate::new(name, limits.iter().any(is_above), detail, remedy)
}

/// `errors`: failed transactions as a share of those that were started.
pub fn errors(failed: u64, started: u64, share_max: f64) -> Gate {
    let name = "errors";
    if started == 0 {
        return Gate::new(
            name,
            true,
            "no transaction was started".to_owned(),
            "look at the run's errors and the server's log",
        );
    }
    let share = failed as f64 / started as f64;
    let detail = format!("{failed} of {started} transactions failed ({})", percent(share));
    let remedy =
        "look at the errors by code; fewer sessions, more rows or retries reduce deadlocks and conflicts";
    Gate::new(name, share > share_max, detail, remedy)
}

/// `cpu_frequency`: throttled, or not the same at the end as at the beginning. `frequency_mhz` holds the samples of
/// the measured phase, `throttled` how many events the processors counted in it.
pub fn cpu_frequency(frequency_mhz: &[f64], throttled: Option<f64>) -> Gate {
    let name = "cpu_frequency";
    let third = frequency_mhz.len() / 3;
    if third == 0 && throttled.is_none() {
        return Gate::not_checked(name, "the kernel shows no frequency here (usual on virtual machines)");
    }
    let mut detail = Vec::new();
    let mut is_tripped = false;
    if let (Some(first), Some(last)) =
        (stats::mean(&frequency_mhz[..third]), stats::mean(&frequency_mhz[frequency_mhz.len() - third..]))
    {
        is_tripped |= (last / first - 1.0).abs() > 0.10;
        detail.push(format!("{first:.0} MHz in the first third, {last:.0} MHz in the last"));
    }
    if let Some(count) = throttled {
        is_tripped |= count > 0.0;
        detail.push(format!("throttled {count:.0} times"));
    }
    let remedy = "set the performance governor, switch boost off, see to the cooling";
    Gate::new(name, is_tripped, detail.join("; "), remedy)
}

/// `settings`: what was asked for against what the server itself reports, names and values as the server writes them.
pub fn settings(asked: &[(String, String)], reported: &[(String, String)]) -> Gate {
    let name = "settings";
    if reported.is_empty() {
        return Gate::not_checked(name, "the server's settings could not be read");
    }
    let key = |text: &str| text.replace('-', "_").to_ascii_lowercase();
    let mut differing = Vec::new();
    let mut unknown = 0;
    for (variable, wanted) in asked {
        match reported.iter().find(|(reported, _)| key(reported) == key(variable)) {
            // Start-up options without a variable (skip-name-resolve and such) cannot be read back.
            None => unknown += 1,
            Some((_, got)) if !is_same_value(wanted, got) => {
                differing.push(format!("{variable} is {got}, asked for {wanted}"));
            }
            Some(_) => {}
        }
    }
    if unknown > 0 && unknown == asked.len() {
        return Gate::not_checked(
            name,
            format!("{unknown} settings were asked for, and the server reports none of them"),
        );
    }
    let detail = if asked.is_empty() {
        format!("none was asked for; the {} that the server reports are recorded", reported.len())
    } else if differing.is_empty() {
        format!("{} settings are as asked for, {unknown} cannot be read back", asked.len() - unknown)
    } else {
        differing.join("; ")
    };
    let remedy = "the server adjusted or ignored it: see its log, and ask for a value that it accepts";
    Gate::new(name, !differing.is_empty(), detail, remedy)
}

/// `intervention`: whether the server was in every one of so many phases as it was asked to be, by so many variables of it.
pub fn intervention(phases: usize, variables: usize, faults: &[String]) -> Gate {
    let name = "intervention";
    if phases == 0 {
        return Gate::not_checked(name, "no phase of it was begun");
    }
    if variables == 0 {
        return Gate::not_checked(name, "its statements set no variable that could be read back");
    }
    let detail = match faults {
        [] => format!("in all of {phases} phases the server said what it was asked to be"),
        [first] => first.clone(),
        [first, rest @ ..] => format!("{first}; and {} more times", rest.len()),
    };
    let remedy = "somebody else changes the server, or it does so itself: measure where nobody does";
    Gate::new(name, !faults.is_empty(), detail, remedy)
}

/// The same value in the notations of option files and servers: `1G` and 1073741824, `ON` and 1, `16MB` and 16 MB.
fn is_same_value(asked: &str, reported: &str) -> bool {
    let plain = |text: &str| text.trim().trim_matches('\'').to_ascii_lowercase();
    let (asked, reported) = (plain(asked), plain(reported));
    if asked == reported {
        return true;
    }
    let truth = |text: &str| match text {
        "on" | "1" | "true" | "yes" => Some(true),
        "off" | "0" | "false" | "no" => Some(false),
        _ => None,
    };
    if let (Some(a), Some(b)) = (truth(&asked), truth(&reported)) {
        return a == b;
    }
    let (Some(a), Some(b)) = (quantity(&asked), quantity(&reported)) else { return false };
    // PostgreSQL's pg_settings counts in the variable's own unit (kB, 8 kB pages, MB, seconds, minutes) without naming
    // it: a bare number may be any of them.
    let is_bare = |text: &str| text.parse::<f64>().is_ok();
    let units: &[f64] = match is_bare(&reported) && !is_bare(&asked) {
        true => &[1.0, 1024.0, 8192.0, 1_048_576.0, 16_777_216.0, 1000.0, 60_000.0],
        false => &[1.0],
    };
    units.iter().any(|unit| (a - b * unit).abs() <= 1e-9 * a.abs().max(1.0))
}

/// A number with an optional unit, in bytes or milliseconds.
fn quantity(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "ms" => 1.0,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return None,
    };
    Some(number * factor)
}

/// `consistency`: checks of the tables after the run against what the counted outcomes imply. `failed` says each that did
/// not hold.
pub fn consistency(checks: usize, failed: &[String]) -> Gate {
    let name = "consistency";
    if checks == 0 {
        return Gate::not_checked(name, "the workload has no check of its tables");
    }
    let detail = match failed {
        [] => format!("{checks} checks of the tables hold"),
        failed => format!("the tables are not what the outcomes imply: {}", failed.join(", ")),
    };
    let remedy = "make sure that nobody else writes to these tables; otherwise the server lost or invented data, or \
                  Plimsoll miscounted";
    Gate::new(name, !failed.is_empty(), detail, remedy)
}

/// `server_restarted`: the process's start (ticks since boot) and the server's own (seconds since 1970) must stay what
/// they were.
pub fn server_restarted(process_start: Option<&Track>, server_start: Option<&Track>) -> Gate {
    let name = "server_restarted";
    let spread = |track: &Track| {
        let values = track.points.iter().map(|p| p.1);
        values.clone().fold(f64::NEG_INFINITY, f64::max) - values.fold(f64::INFINITY, f64::min)
    };
    let process = process_start.filter(|t| !t.points.is_empty()).map(spread);
    let server = server_start.filter(|t| !t.points.is_empty()).map(spread);
    if process.is_none() && server.is_none() {
        return Gate::not_checked(name, "neither its process nor its uptime could be watched");
    }
    // The server tells its uptime in whole seconds, so its start wobbles by one or two.
    let is_tripped = process.is_some_and(|s| s > 0.0) || server.is_some_and(|s| s > 3.0);
    let detail = if is_tripped { "the server was started again during the run" } else { "one server life" };
    Gate::new(
        name,
        is_tripped,
        detail.to_owned(),
        "see the server's log for why it went down (out of memory, crash)",
    )
}

#[cfg(test)]
mod tests;
