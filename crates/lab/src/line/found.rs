//! What a search found, and how it is said.

use std::time::Duration;

use load::StepResult;
use serde_json::{Value, json};
use stats::line::{Answer, Count, End, Probe, Purpose, Search, Seen};
use store::{Line, LineCount, LineFound, LineHold, LineProbe, LineSearch, LineSeen};

use super::probe::{Tried, Wanted};
use super::{Asked, Promise};
use crate::error::Error;

/// A rate that was tried.
struct Rate<'a> {
    probe: &'a LineProbe,
    /// By promise of the request: whether it was kept; `None` where the probe came to nothing, or the promise was not
    /// searched for.
    held: Vec<Option<bool>>,
}

impl Rate<'_> {
    /// What beside the server set the limit.
    fn limited_by(&self) -> Option<EndedBy> {
        let limits = [EndedBy::Client, EndedBy::Sessions];
        limits.into_iter().find(|by| self.probe.limited_by.as_deref() == Some(by.word()))
    }
}

/// What set the limit of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    Promise,
    /// The client cannot offer more.
    Client,
    Sessions,
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

/// Committed per second.
pub(super) fn tps(step: &StepResult) -> f64 {
    if step.duration_s > 0.0 { step.outcomes.committed as f64 / step.duration_s } else { 0.0 }
}

/// A percentile in ms, where there are enough transactions for it.
fn percentile_ms(step: &StepResult, quantile: f64) -> Option<f64> {
    let response = &step.latency.response;
    (response.len() >= stats::quantile_needs(quantile)).then(|| response.quantile_ms(quantile))
}

/// 95 % intervals of p50, p95 and p99: the spread of the logarithm over the seconds, each of which has enough transactions
/// for it. Neighbours in a queue resemble each other more within a second than beyond.
fn spreads(step: &StepResult, seconds: &[store::Second]) -> [Option<(f64, f64)>; 3] {
    type Figure = fn(&store::SecondResponse) -> f64;
    let figures: [(f64, Figure); 3] = [(0.5, |of| of.p50), (0.95, |of| of.p95), (0.99, |of| of.p99)];
    figures.map(|(quantile, figure)| {
        let middle = percentile_ms(step, quantile)?;
        let responses =
            seconds.iter().filter(|second| second.second >= 1).filter_map(|second| second.response);
        let enough = responses.filter(|of| of.count >= stats::quantile_needs(quantile));
        let logs: Vec<f64> = enough.map(|of| figure(&of).max(1e-6).ln()).collect();
        if logs.len() < 3 {
            return None;
        }
        let half = 1.96 * (stats::describe::variance(&logs)? / logs.len() as f64).sqrt();
        Some((middle * (-half).exp(), middle * half.exp()))
    })
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
        focus,
        ..LineProbe::default()
    }
}

/// A probe that came to its end, as it is kept; `promises` are those that are searched for.
pub(super) fn kept(
    (rate, focus): (f64, usize),
    wanted: &Wanted,
    promises: &[Promise],
    sessions_max: u32,
    (tried, recorded): (&Tried, Option<&store::Step>),
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
        spreads: spreads(step, recorded.map_or(&[], |recorded| &recorded.seconds)),
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
    pub(super) asked: &'a Asked,
    /// The closed loop.
    pub(super) climb: LineProbe,
    /// All that were tried since, those that came to nothing included.
    pub(super) probes: Vec<LineProbe>,
}

impl Seeking<'_> {
    /// The promises that are searched for: those that one session was seen to keep.
    pub(super) fn searched(&self) -> Vec<Promise> {
        let all = self.asked.promises.iter().zip(&self.climb.broken);
        all.filter(|(_, broken)| broken.is_none()).map(|(promise, _)| promise.clone()).collect()
    }

    pub(super) fn deaths(&self) -> usize {
        self.probes.iter().filter(|probe| probe.error.is_some()).count()
    }

    fn rate<'p>(&self, probe: &'p LineProbe) -> Rate<'p> {
        let promises = self.asked.promises.iter().enumerate();
        let held = promises.map(|(at, promise)| probe.held(&self.climb, at, promise.allowed()));
        Rate { probe, held: held.collect() }
    }

    /// What all of it comes to. `search` with the promises that were searched for.
    pub(super) fn found(&self, search: Option<&Search>) -> LineFound {
        let deaths = self.probes.iter().filter_map(|probe| {
            let error = probe.error.as_ref()?;
            Some(format!("the server was lost at {:.0} transactions/s offered: {error}", probe.rate))
        });
        let deaths: Vec<String> = deaths.collect();
        let rates: Vec<Rate<'_>> = self.probes.iter().map(|probe| self.rate(probe)).collect();
        let mut answers = search.map(Search::answers).unwrap_or_default().into_iter();
        let mut lines = Vec::new();
        for (at, promise) in self.asked.promises.iter().enumerate() {
            let mut line = match (&self.climb.broken[at], search) {
                (None, Some(search)) => {
                    let Some(answer) = answers.next() else { continue };
                    self.line(at, promise, search, answer, &rates)
                }
                (broken, _) => {
                    // What was not met may be kept at some rate: a longer climb would tell.
                    let is_unmet = self.climb.unmet.contains(&at);
                    let ended_by = if is_unmet { EndedBy::Budget } else { EndedBy::Promise };
                    let warnings = broken.iter().cloned().collect();
                    Line { warnings, ended_by: ended_by.word().to_owned(), ..unknown(promise) }
                }
            };
            line.warnings.extend(deaths.iter().cloned());
            lines.push(line);
        }
        let took_s: f64 = self.probes.iter().map(|probe| probe.took_s).sum();
        LineFound { lines, seconds_total: self.climb.took_s + took_s }
    }

    fn line(
        &self,
        at: usize,
        promise: &Promise,
        search: &Search,
        answer: Answer,
        rates: &[Rate<'_>],
    ) -> Line {
        let ended_by = self.ended_by(at, answer, rates);
        let mut warnings = Vec::new();
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
                "all {} sessions were busy above this rate while the server kept the promise: raise the most \
                 sessions (--sessions-max, sessions_max)",
                self.asked.sessions_max
            )),
            EndedBy::Budget if answer.line.is_none() => warnings.push(format!(
                "the budget ended before a rate was found that keeps {}{}: a larger budget (--budget, budget) gives \
                 it more time",
                promise.text,
                answer.high.map_or_else(String::new, |high| format!(", which lies below {high:.0} transactions/s"))
            )),
            EndedBy::Budget => warnings.push(
                "the budget ended before the line was known as well as it is asked for: its interval says how well \
                 it is known; a larger budget (--budget, budget) gives it more time"
                    .into(),
            ),
            EndedBy::Server => warnings.push(
                "the server fell behind what was offered above this rate, before the promise was broken".into(),
            ),
        }
        // Holds are the probes that the search counted; those that came to nothing are none of them.
        let tried: Vec<&LineProbe> = self.probes.iter().filter(|probe| searched(probe).is_some()).collect();
        let hold = answer.hold.and_then(|hold| {
            let probe = tried.get(hold.probe)?;
            Some(LineHold { seconds: probe.seconds, held: hold.is_kept, p99_ms: probe.p99_ms })
        });
        if answer.line.is_some() && hold.is_some_and(|hold| !hold.held) {
            warnings.push("the line could not be held: it is an estimate from the probes around it".into());
        }
        warnings.extend(self.sunk(at, promise, answer, &tried));
        Line {
            line_tps: answer.line,
            middle_tps: answer.middle,
            low: answer.low,
            high: answer.high,
            ended_by: ended_by.word().to_owned(),
            hold,
            warnings,
            ..unknown(promise)
        }
    }

    /// A line that was broken while it was held, although it had been kept for shorter: what it sank to.
    fn sunk(&self, at: usize, promise: &Promise, answer: Answer, tried: &[&LineProbe]) -> Option<String> {
        let kept = answer.hold.filter(|hold| hold.is_kept)?;
        // Those of other promises, at rates of their own, are not about this line.
        let place = self.climb.place(at);
        let failed = tried[..kept.probe].iter().filter(|probe| {
            let is_hold_of_it = probe.is_hold() && Some(probe.focus) == place;
            is_hold_of_it && self.rate(probe).held[at] == Some(false)
        });
        let first = failed.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        Some(format!(
            "the line sank while it was held: {} was kept at {:.0} transactions/s by shorter probes, and not when \
             that was held ({:.0} s of it); {:.0} was held for {:.0} s",
            promise.text,
            first.rate,
            first.seconds,
            kept.rate,
            tried.get(kept.probe).map_or(0.0, |probe| probe.seconds)
        ))
    }

    /// The rate is above a peak that more sessions did not raise.
    fn is_beyond(&self, probe: &LineProbe) -> bool {
        probe.rate > self.climb.rate && 2 * self.climb.sessions <= self.asked.sessions_max
    }

    fn ended_by(&self, at: usize, answer: Answer, rates: &[Rate<'_>]) -> EndedBy {
        if self.deaths() >= super::seek::DEATHS_MAX {
            return EndedBy::Server;
        }
        // The lowest rate that broke the promise.
        let broken = rates.iter().filter(|rate| rate.held[at] == Some(false));
        let lowest = broken.min_by(|a, b| a.probe.rate.total_cmp(&b.probe.rate));
        match answer.end {
            End::Budget => EndedBy::Budget,
            End::Floor => EndedBy::Promise,
            End::Ceiling => EndedBy::Client,
            End::Found => match lowest.map(|rate| (rate.limited_by(), rate.probe)) {
                // No number of sessions carries more than the closed loop's peak, unless that was cut by the most sessions.
                Some((Some(EndedBy::Sessions), probe)) if self.is_beyond(probe) => EndedBy::Server,
                Some((Some(by), _)) => by,
                Some((None, probe)) if probe.is_overloaded => EndedBy::Server,
                Some((None, _)) | None => EndedBy::Promise,
            },
        }
    }
}

/// A line that no rate is known for.
fn unknown(promise: &Promise) -> Line {
    Line {
        promise: promise.text.clone(),
        allowed: promise.allowed(),
        limit_ms: promise.limit().map(|limit| 1e3 * limit.as_secs_f64()),
        ended_by: EndedBy::Promise.word().to_owned(),
        ..Line::default()
    }
}

/// A probe in a line, with what is known of the lines after it.
pub(super) fn told(rate: &LineProbe, search: &Search, promises: &[Promise]) -> String {
    let shown = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.0}"));
    let lines: Vec<String> = search
        .answers()
        .iter()
        .zip(promises)
        .map(|(answer, promise)| format!("{}: {} to {}", promise.text, shown(answer.low), shown(answer.high)))
        .collect();
    if let Some(error) = &rate.error {
        return format!("the server was lost at {:.0}/s offered: {error}", rate.rate);
    }
    let purpose = if rate.is_hold() { "held" } else { "tried" };
    let p99 = rate.p99_ms.map_or_else(String::new, |p99| format!(", p99 {p99:.1} ms"));
    format!("{purpose} {:.0}/s for {:.0} s{p99}; line of {}", rate.rate, rate.seconds, lines.join("; "))
}

/// What `plimsoll line` answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub workload: String,
    /// `flavor@version[+label]`.
    pub server: String,
    /// Identity of its binaries.
    pub build: Option<String>,
    /// Climb, probes and lines.
    pub search: LineSearch,
    /// What a reader has to know beside what the lines say.
    pub warnings: Vec<String>,
    /// No fault of the measurement was found.
    pub is_sound: bool,
}

impl Found {
    /// By promise.
    pub fn lines(&self) -> &[Line] {
        self.search.found.as_ref().map_or(&[], |found| &found.lines)
    }

    /// The closed loop's best: sessions, and transactions per second.
    pub fn peak(&self) -> (u32, f64) {
        self.search.climb().map_or((0, 0.0), |climb| (climb.sessions, climb.rate))
    }

    /// Of the budget.
    pub fn seconds_total(&self) -> f64 {
        self.search.found.as_ref().map_or(0.0, |found| found.seconds_total)
    }

    /// Whether each promise has a line.
    pub fn is_done(&self) -> bool {
        self.is_sound && self.lines().iter().all(|line| line.line_tps.is_some())
    }

    /// The lines of JSON, one for each promise.
    pub fn json(&self) -> Vec<Value> {
        self.lines().iter().enumerate().map(|(at, line)| self.json_of(at, line)).collect()
    }

    fn json_of(&self, at: usize, line: &Line) -> Value {
        let probes: Vec<Value> = self
            .search
            .tried()
            .iter()
            .map(|probe| {
                json!({
                    "rate": probe.rate, "sessions": probe.sessions, "tps": probe.tps, "seconds": probe.seconds,
                    "p50_ms": probe.p50_ms, "p95_ms": probe.p95_ms, "p99_ms": probe.p99_ms,
                    "held": self.search.held(probe, at, line.allowed),
                })
            })
            .collect();
        let (peak_sessions, peak_tps) = self.peak();
        let warnings: Vec<&String> = line.warnings.iter().chain(&self.warnings).collect();
        json!({
            "schema": 2, "status": if line.line_tps.is_some() && self.is_sound { "done" } else { "failed" },
            "workload": self.workload, "server": self.server, "build": self.build,
            "promise": line.promise, "line_tps": line.line_tps, "low": line.low, "high": line.high,
            "ended_by": line.ended_by, "peak_tps": peak_tps, "peak_sessions": peak_sessions,
            "probes": probes, "confirmation": line.hold,
            "seconds_total": self.seconds_total(), "warnings": warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let promises = vec![Promise::parse("p99 < 20ms").unwrap()];
        let s = Duration::from_secs;
        Asked::new(promises, Some(s(3000)), Some(s(600)), 64)
    }

    /// A probe of so many seconds of which each hundredth transaction in `over` of a hundred breaks the promise.
    fn probe(purpose: Purpose, rate: f64, seconds: usize, over_percent: u64) -> LineProbe {
        let wanted = Wanted {
            pacing: load::Pacing::Closed,
            sessions: 8,
            warmup: Duration::ZERO,
            length: Duration::ZERO,
            parts: 1,
            part_warmup: Duration::ZERO,
            purpose,
            held: None,
            seed: 0,
        };
        let count = LineCount { transactions: 10_000, over: 100 * over_percent };
        let total =
            LineCount { transactions: 10_000 * seconds as u64, over: 100 * over_percent * seconds as u64 };
        LineProbe {
            tps: rate,
            seconds: seconds as f64,
            took_s: seconds as f64 + 3.0,
            seen: vec![LineSeen { seconds: vec![count; seconds], total }],
            ..empty(rate, &wanted, 0)
        }
    }

    fn found(asked: &Asked, probes: Vec<LineProbe>) -> LineFound {
        let climb = LineProbe { broken: vec![None], took_s: 20.0, ..probe(Purpose::Hold, 10_000.0, 2, 0) };
        let promises = asked.promises.clone();
        let seeking = Seeking { asked, climb, probes };
        let searched = seeking.probes.iter().filter_map(searched).collect();
        let search = Search::new(asked.rules(&promises, 10_000.0, None), searched, 20.0);
        seeking.found(Some(&search))
    }

    fn around_6000() -> Vec<LineProbe> {
        vec![
            probe(Purpose::Bracket, 7000.0, 8, 40),
            probe(Purpose::Bracket, 5500.0, 8, 0),
            probe(Purpose::Refine, 6000.0, 30, 0),
            probe(Purpose::Refine, 6300.0, 30, 3),
            probe(Purpose::Refine, 6150.0, 30, 1),
        ]
    }

    #[test]
    fn a_line_that_sinks_while_it_is_held_says_from_where_to_where() {
        let asked = asked();
        let mut probes = around_6000();
        probes.push(probe(Purpose::Hold, 6100.0, 600, 4));
        probes.push(probe(Purpose::Hold, 4800.0, 600, 0));
        let line = &found(&asked, probes).lines[0];
        assert_eq!(line.line_tps, Some(4800.0));
        assert!(line.hold.is_some_and(|hold| hold.held && hold.seconds == 600.0));
        let sunk = line.warnings.iter().find(|warning| warning.contains("sank")).unwrap();
        assert!(sunk.contains("kept at 6100") && sunk.contains("4800 was held for 600 s"), "{sunk}");
        // One that was held at once sank nowhere.
        let mut probes = around_6000();
        probes.push(probe(Purpose::Hold, 6050.0, 600, 0));
        let line = &found(&asked, probes).lines[0];
        assert_eq!((line.line_tps, line.warnings.iter().any(|w| w.contains("sank"))), (Some(6050.0), false));
    }

    #[test]
    fn a_hold_of_another_promise_is_not_what_a_line_sank_from() {
        let promises = ["p99 < 20ms", "p99 < 50ms"].map(|text| Promise::parse(text).unwrap());
        let asked = Asked { promises: promises.to_vec(), ..asked() };
        // The longer limit is kept wherever the shorter one is, and at 9000, too.
        let both = |probe: LineProbe, focus: usize, is_over: bool| {
            let mut seen = probe.seen.clone();
            seen.extend(probe.seen.iter().map(|seen| {
                let none =
                    |count: &LineCount| LineCount { over: if is_over { count.over } else { 0 }, ..*count };
                LineSeen { seconds: seen.seconds.iter().map(none).collect(), total: none(&seen.total) }
            }));
            LineProbe { focus, seen, ..probe }
        };
        let mut probes: Vec<LineProbe> =
            around_6000().into_iter().map(|probe| both(probe, 0, false)).collect();
        probes.push(both(probe(Purpose::Bracket, 9500.0, 8, 40), 1, true));
        probes.push(both(probe(Purpose::Hold, 9000.0, 600, 10), 1, false));
        probes.push(both(probe(Purpose::Hold, 6050.0, 600, 0), 0, false));
        let climb = LineProbe { broken: vec![None; 2], took_s: 20.0, ..probe(Purpose::Hold, 10_000.0, 2, 0) };
        let seeking = Seeking { asked: &asked, climb, probes };
        let searched = seeking.probes.iter().filter_map(searched).collect();
        let search = Search::new(asked.rules(&promises, 10_000.0, None), searched, 20.0);
        let lines = seeking.found(Some(&search)).lines;
        assert_eq!(lines[0].line_tps, Some(6050.0));
        assert!(lines[0].hold.is_some_and(|hold| hold.held));
        assert!(!lines[0].warnings.iter().any(|text| text.contains("sank")), "{:?}", lines[0].warnings);
    }

    #[test]
    fn a_promise_about_transactions_that_the_climb_did_not_meet_is_not_told_as_broken() {
        let promises = ["p99 < 5ms", "p99 < 20ms", "p99 < 50ms"].map(|text| Promise::parse(text).unwrap());
        let asked = Asked { promises: promises.to_vec(), ..asked() };
        let broken = vec![Some("is broken".to_owned()), None, Some("was not met".to_owned())];
        let climb =
            LineProbe { broken, unmet: vec![2], took_s: 20.0, ..probe(Purpose::Hold, 10_000.0, 2, 0) };
        let seeking = Seeking { asked: &asked, climb, probes: around_6000() };
        let searched = seeking.probes.iter().filter_map(searched).collect();
        let search = Search::new(asked.rules(&promises[1..2], 10_000.0, None), searched, 20.0);
        let lines = seeking.found(Some(&search)).lines;
        let ends: Vec<&str> = lines.iter().map(|line| line.ended_by.as_str()).collect();
        assert_eq!((ends[0], ends[2]), ("promise", "budget"));
        assert_eq!((lines[0].line_tps, lines[2].line_tps), (None, None));
        assert!(lines[1].line_tps.is_some());
    }

    #[test]
    fn sessions_end_a_search_only_where_more_of_them_could_carry_more() {
        let ended_by = |sessions_max| {
            let asked = Asked { sessions_max, ..asked() };
            let mut probes = around_6000();
            // All sessions were busy at a rate above the closed loop's peak, which 8 of them made.
            probes.truncate(2);
            probes[0] = LineProbe {
                limited_by: Some(EndedBy::Sessions.word().to_owned()),
                ..probe(Purpose::Bracket, 11_000.0, 8, 40)
            };
            let climb =
                LineProbe { broken: vec![None], took_s: 20.0, ..probe(Purpose::Hold, 10_000.0, 2, 0) };
            let seeking = Seeking { asked: &asked, climb, probes };
            let rates: Vec<Rate<'_>> = seeking.probes.iter().map(|probe| seeking.rate(probe)).collect();
            let found = Answer {
                line: Some(5500.0),
                middle: None,
                low: None,
                high: None,
                hold: None,
                end: End::Found,
            };
            seeking.ended_by(0, found, &rates)
        };
        assert_eq!(ended_by(16), EndedBy::Server);
        assert_eq!(ended_by(8), EndedBy::Sessions, "the climb had no more of them");
    }

    #[test]
    fn servers_that_do_not_last_end_the_search_and_are_told() {
        let asked = asked();
        let lost = |rate| LineProbe {
            error: Some("gone".into()),
            seen: vec![],
            ..probe(Purpose::Refine, rate, 0, 0)
        };
        let mut probes = around_6000();
        probes.extend([lost(6100.0), lost(6110.0), lost(6120.0)]);
        let line = &found(&asked, probes).lines[0];
        assert_eq!(line.ended_by, "server");
        assert_eq!(line.warnings.iter().filter(|warning| warning.contains("was lost at")).count(), 3);
    }
}
