//! What a search found, and how it is said.

use std::time::Duration;

use load::StepResult;
use serde_json::{Value, json};
use stats::line::{Answer, Count, End, Probe, Purpose, Search, Seen};
use store::{LineCount, LineProbe, LineSeen};

use super::probe::{Tried, Wanted};
use super::{Promise, Request};
use crate::error::Error;
use crate::subject::Subject;

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// Arrivals per second.
    pub rate: f64,
    /// Sessions that were there for them.
    pub sessions: u32,
    /// Committed per second.
    pub tps: f64,
    /// Measured for so long.
    pub seconds: f64,
    /// Response times; `None` where too few transactions ended.
    pub p50_ms: Option<f64>,
    /// See `p50_ms`.
    pub p95_ms: Option<f64>,
    /// See `p50_ms`.
    pub p99_ms: Option<f64>,
    /// By promise of the request: whether it was kept; `None` where the probe came to nothing, or the promise was not
    /// searched for.
    pub held: Vec<Option<bool>>,
    /// Something beside the server set the limit.
    limited_by: Option<EndedBy>,
    is_overloaded: bool,
}

/// What set the limit of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The promise is broken above it.
    Promise,
    /// The client cannot offer more.
    Client,
    /// There are no more sessions.
    Sessions,
    /// The budget was used up.
    Budget,
    /// The server carries no more, or did not last.
    Server,
}

impl EndedBy {
    /// The word of the JSON.
    pub fn word(self) -> &'static str {
        match self {
            EndedBy::Promise => "promise",
            EndedBy::Client => "client",
            EndedBy::Sessions => "sessions",
            EndedBy::Budget => "budget",
            EndedBy::Server => "server",
        }
    }
}

/// A line that was held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confirmation {
    /// For so long.
    pub seconds: f64,
    /// The promise was kept over all of it.
    pub held: bool,
    /// Its p99, in ms.
    pub p99_ms: Option<f64>,
}

/// The line of one promise. Rates in transactions per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The promise, as it was written.
    pub promise: String,
    /// The line; `None` where no rate is known that keeps it.
    pub line_tps: Option<f64>,
    /// 95 % interval.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// What ended the search.
    pub ended_by: EndedBy,
    /// The last hold.
    pub confirmation: Option<Confirmation>,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The workload.
    pub workload: String,
    /// `flavor@version[+label]`.
    pub server: String,
    /// Identity of its binaries.
    pub build: Option<String>,
    /// The closed loop's best: sessions, and transactions per second.
    pub peak: (u32, f64),
    /// By promise.
    pub lines: Vec<Line>,
    /// In order.
    pub probes: Vec<Rate>,
    /// Of the budget.
    pub seconds_total: f64,
}

/// Committed per second.
pub(super) fn tps(step: &StepResult) -> f64 {
    if step.duration_s > 0.0 { step.outcomes.committed as f64 / step.duration_s } else { 0.0 }
}

/// A percentile in ms, where there are enough transactions for it.
fn percentile_ms(step: &StepResult, quantile: f64) -> Option<f64> {
    let response = &step.latency.response;
    (response.len() >= stats::quantile_needs(quantile)).then(|| response.quantile_ms(quantile))
}

/// A promise is broken at one session's pace where so many times the allowed share break it, and so many do.
const BROKEN_TIMES: f64 = 2.0;
const BROKEN_OVER: u64 = 10;

/// How a promise is broken at one session's pace already; `None` where it is not.
pub(super) fn broken_alone(promise: &Promise, step: &StepResult) -> Option<String> {
    let count = promise.of_step(step);
    // Of a median twice the allowed share is all of them, which none can exceed: half way there is as clear.
    let allowed = promise.allowed();
    let clearly = (BROKEN_TIMES * allowed).min((1.0 + allowed) / 2.0);
    let is_broken = count.over >= BROKEN_OVER && count.share() > clearly;
    is_broken.then(|| {
        let (text, told) = (&promise.text, promise.told(step));
        format!("{text} is broken already at one session's pace, {:.0} transactions/s: {told}", tps(step))
    })
}

/// The words of what a probe was for.
const PURPOSES: [(Purpose, &str); 3] =
    [(Purpose::Bracket, "bracket"), (Purpose::Refine, "refine"), (Purpose::Hold, "hold")];

fn word(purpose: Purpose) -> &'static str {
    PURPOSES.iter().find(|(known, _)| *known == purpose).map_or("", |(_, word)| word)
}

fn purpose(word: &str) -> Purpose {
    PURPOSES.iter().find(|(_, known)| *known == word).map_or(Purpose::Refine, |(purpose, _)| *purpose)
}

/// A probe that nothing is known of yet.
fn empty(rate: f64, wanted: &Wanted, focus: usize) -> LineProbe {
    LineProbe {
        purpose: word(wanted.purpose).to_owned(),
        rate,
        sessions: wanted.sessions,
        tps: 0.0,
        seconds: 0.0,
        p50_ms: None,
        p95_ms: None,
        p99_ms: None,
        is_overloaded: false,
        limited_by: None,
        focus,
        seen: Vec::new(),
        took_s: 0.0,
        error: None,
        broken: Vec::new(),
    }
}

/// A probe that came to its end, as it is kept; `promises` are those that are searched for.
pub(super) fn kept(
    (rate, focus): (f64, usize),
    wanted: &Wanted,
    promises: &[Promise],
    sessions_max: u32,
    tried: &Tried,
) -> LineProbe {
    let step = &tried.step;
    let is_short = wanted.sessions == sessions_max && promises.iter().any(|one| one.waits_for_sessions(step));
    let limited_by = match (step.client.is_bound, is_short) {
        (true, _) => Some(EndedBy::Client),
        (_, true) => Some(EndedBy::Sessions),
        _ => None,
    };
    let count = |count: &Count| LineCount { transactions: count.transactions, over: count.over };
    let seen = tried.seen.iter().map(|seen| LineSeen {
        seconds: seen.seconds.iter().map(count).collect(),
        total: count(&seen.total),
    });
    LineProbe {
        tps: tps(step),
        seconds: step.duration_s,
        p50_ms: percentile_ms(step, 0.5),
        p95_ms: percentile_ms(step, 0.95),
        p99_ms: percentile_ms(step, 0.99),
        is_overloaded: tried.is_overloaded,
        limited_by: limited_by.map(|by| by.word().to_owned()),
        seen: seen.collect(),
        took_s: tried.took.as_secs_f64(),
        ..empty(rate, wanted, focus)
    }
}

/// A probe that the server did not survive.
pub(super) fn lost((rate, focus): (f64, usize), wanted: &Wanted, took: Duration, error: &Error) -> LineProbe {
    let error = Some(error.to_string());
    LineProbe { took_s: took.as_secs_f64(), error, ..empty(rate, wanted, focus) }
}

/// The same as the search takes it; `None` of one that came to nothing.
pub(super) fn searched(probe: &LineProbe) -> Option<Probe> {
    if probe.error.is_some() {
        return None;
    }
    let count = |count: &LineCount| Count { transactions: count.transactions, over: count.over };
    let seen = probe
        .seen
        .iter()
        .map(|seen| Seen { seconds: seen.seconds.iter().map(count).collect(), total: count(&seen.total) });
    Some(Probe {
        rate: probe.rate,
        seen: seen.collect(),
        is_overloaded: probe.is_overloaded,
        took_s: probe.took_s,
        purpose: purpose(&probe.purpose),
        focus: probe.focus,
    })
}

/// A search while it goes on.
pub(super) struct Seeking<'a> {
    pub(super) request: &'a Request,
    /// The closed loop.
    pub(super) climb: LineProbe,
    /// All that were tried since, those that came to nothing included.
    pub(super) probes: Vec<LineProbe>,
    pub(super) warnings: Vec<String>,
}

impl Seeking<'_> {
    /// The promises that are searched for: those that one session keeps.
    pub(super) fn searched(&self) -> Vec<Promise> {
        let all = self.request.promises.iter().zip(&self.climb.broken);
        all.filter(|(_, broken)| broken.is_none()).map(|(promise, _)| promise.clone()).collect()
    }

    pub(super) fn deaths(&self) -> usize {
        self.probes.iter().filter(|probe| probe.error.is_some()).count()
    }

    fn rate(&self, probe: &LineProbe) -> Rate {
        let mut seen = probe.seen.iter();
        let held = self.request.promises.iter().zip(&self.climb.broken).map(|(promise, broken)| {
            if broken.is_some() {
                return None;
            }
            let total = seen.next()?.total;
            let share = Count { transactions: total.transactions, over: total.over }.share();
            Some(!probe.is_overloaded && share <= promise.allowed())
        });
        let limits = [EndedBy::Client, EndedBy::Sessions];
        Rate {
            rate: probe.rate,
            sessions: probe.sessions,
            tps: probe.tps,
            seconds: probe.seconds,
            p50_ms: probe.p50_ms,
            p95_ms: probe.p95_ms,
            p99_ms: probe.p99_ms,
            held: held.collect(),
            limited_by: limits.into_iter().find(|by| probe.limited_by.as_deref() == Some(by.word())),
            is_overloaded: probe.is_overloaded,
        }
    }

    /// What all of it comes to. `search` with the promises that were searched for; `wrong` about the tables.
    pub(super) fn found(mut self, subject: &Subject, search: Option<&Search>, wrong: Vec<String>) -> Found {
        let losses = self.probes.iter().filter_map(|probe| {
            let error = probe.error.as_ref()?;
            Some(format!("the server was lost at {:.0} transactions/s offered: {error}", probe.rate))
        });
        self.warnings.extend(losses.chain(wrong));
        let rates: Vec<Rate> = self.probes.iter().map(|probe| self.rate(probe)).collect();
        let mut answers = search.map(Search::answers).unwrap_or_default().into_iter();
        let mut lines = Vec::new();
        for (at, promise) in self.request.promises.iter().enumerate() {
            lines.push(match (&self.climb.broken[at], search) {
                (None, Some(search)) => {
                    let Some(answer) = answers.next() else { continue };
                    self.line(at, promise, search, answer, &rates)
                }
                (broken, _) => self.unreachable(promise, broken.clone()),
            });
        }
        let took_s: f64 = self.probes.iter().map(|probe| probe.took_s).sum();
        Found {
            workload: self.request.workload.name().to_owned(),
            server: subject.name(),
            build: subject.build().map(|build| build.identity.clone()),
            peak: (self.climb.sessions, self.climb.rate),
            lines,
            probes: rates,
            seconds_total: self.climb.took_s + took_s,
        }
    }

    fn unreachable(&self, promise: &Promise, why: Option<String>) -> Line {
        let warnings = self.warnings.iter().cloned().chain(why).collect();
        Line {
            promise: promise.text.clone(),
            line_tps: None,
            low: None,
            high: None,
            ended_by: EndedBy::Promise,
            confirmation: None,
            warnings,
        }
    }

    fn line(&self, at: usize, promise: &Promise, search: &Search, answer: Answer, rates: &[Rate]) -> Line {
        let ended_by = self.ended_by(at, answer, rates);
        let mut warnings = self.warnings.clone();
        match ended_by {
            EndedBy::Promise if answer.line.is_none() => warnings.push(format!(
                "{} is broken at all rates tried, down to {:.0} transactions/s",
                promise.text,
                search.rules().floor
            )),
            EndedBy::Promise => {}
            EndedBy::Client => warnings.push(
                "the client used up its cpus above this rate: the server may carry more; give it --workers, or a \
                 machine of its own"
                    .into(),
            ),
            EndedBy::Sessions => warnings.push(format!(
                "all {} sessions were busy above this rate while the server kept the promise: raise --sessions-max",
                self.request.sessions_max
            )),
            EndedBy::Budget => warnings.push(
                "the budget ended before the line was known as well as it is asked for: its interval says how well \
                 it is known; --budget gives it more time"
                    .into(),
            ),
            EndedBy::Server => warnings.push(
                "the server fell behind what was offered above this rate, before the promise was broken".into(),
            ),
        }
        // Holds are the probes that the search counted; those that came to nothing are none of them.
        let tried: Vec<&Rate> = rates.iter().filter(|probe| probe.seconds > 0.0).collect();
        let confirmation = answer.hold.and_then(|hold| {
            let probe = tried.get(hold.probe)?;
            Some(Confirmation { seconds: probe.seconds, held: hold.is_kept, p99_ms: probe.p99_ms })
        });
        if confirmation.is_some_and(|confirmation| !confirmation.held) {
            warnings.push("the line could not be held: it is an estimate from the probes around it".into());
        }
        Line {
            promise: promise.text.clone(),
            line_tps: answer.line,
            low: answer.low,
            high: answer.high,
            ended_by,
            confirmation,
            warnings,
        }
    }

    fn ended_by(&self, at: usize, answer: Answer, rates: &[Rate]) -> EndedBy {
        if self.deaths() >= super::DEATHS_MAX {
            return EndedBy::Server;
        }
        // The lowest rate that broke the promise.
        let broken = rates.iter().filter(|probe| probe.held[at] == Some(false));
        let lowest = broken.min_by(|a, b| a.rate.total_cmp(&b.rate));
        match answer.end {
            End::Budget => EndedBy::Budget,
            End::Floor => EndedBy::Promise,
            End::Ceiling => EndedBy::Client,
            End::Found => match lowest {
                Some(Rate { limited_by: Some(by), .. }) => *by,
                Some(probe) if probe.is_overloaded => EndedBy::Server,
                _ => EndedBy::Promise,
            },
        }
    }
}

impl Found {
    /// Whether each promise has a line.
    pub fn is_done(&self) -> bool {
        self.lines.iter().all(|line| line.line_tps.is_some())
    }

    /// The lines of JSON, one for each promise.
    pub fn json(&self) -> Vec<Value> {
        self.lines.iter().enumerate().map(|(at, line)| self.json_of(at, line)).collect()
    }

    fn json_of(&self, at: usize, line: &Line) -> Value {
        let probes: Vec<Value> = self
            .probes
            .iter()
            .map(|probe| {
                json!({
                    "rate": probe.rate, "sessions": probe.sessions, "tps": probe.tps, "seconds": probe.seconds,
                    "p50_ms": probe.p50_ms, "p95_ms": probe.p95_ms, "p99_ms": probe.p99_ms,
                    "held": probe.held[at],
                })
            })
            .collect();
        let confirmation = line.confirmation.map(|confirmation| {
            json!({"seconds": confirmation.seconds, "held": confirmation.held, "p99_ms": confirmation.p99_ms})
        });
        json!({
            "schema": 2, "status": if line.line_tps.is_some() { "done" } else { "failed" },
            "workload": self.workload, "server": self.server, "build": self.build,
            "promise": line.promise, "line_tps": line.line_tps, "low": line.low, "high": line.high,
            "ended_by": line.ended_by.word(), "peak_tps": self.peak.1, "peak_sessions": self.peak.0,
            "probes": probes, "confirmation": confirmation,
            "seconds_total": self.seconds_total, "warnings": line.warnings,
        })
    }
}
