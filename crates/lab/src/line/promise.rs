//! What a server is to keep: `p99 < 20ms`, `p90 of new_order < 5s`, `errors < 0.1%`.

use std::time::Duration;

use load::{Histogram, IntervalResult, StepResult};
use stats::line::Count;
use workload::Workload;

use crate::error::Error;

/// A limit, and the share of the transactions that may break it.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    /// As it was written.
    pub text: String,
    kind: Kind,
    /// The class of transactions whose response times are meant; all where there is none.
    class: Option<String>,
}

/// What decides a study is what was written.
impl serde::Serialize for Promise {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// This percentile of the response times is below a limit.
    Response { percent: f64, limit: Duration },
    /// Fewer than this share fail.
    Errors { share: f64 },
}

const FORMS: &str = "a promise is `p99 < 20ms` (a percentile of the response time; us, ms or s), `p90 of new_order < 5s` \
                     (of one class of transactions) or `errors < 0.1%`";

/// The response times that TPC-C asks for (clause 5.2.5), by the name that stands for all five.
const TPCC: (&str, [&str; 5]) = (
    "tpcc",
    [
        "p90 of new_order < 5s",
        "p90 of payment < 5s",
        "p90 of order_status < 5s",
        "p90 of delivery < 5s",
        "p90 of stock_level < 20s",
    ],
);

impl Promise {
    /// Reads one, or those that a name stands for: `tpcc`, the response times that TPC-C asks for.
    ///
    /// # Errors
    /// It is no promise; the message says what is missing.
    pub fn read(text: &str) -> Result<Vec<Promise>, Error> {
        let (name, promises) = TPCC;
        if text.trim() == name {
            return promises.iter().map(|text| Promise::parse(text)).collect();
        }
        Promise::parse(text).map(|promise| vec![promise])
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is no promise; the message says what is missing.
    pub fn parse(text: &str) -> Result<Promise, Error> {
        let refuse = |why: &str| Err(Error::Usage(format!("promise `{text}`: {why}: {FORMS}")));
        let Some((what, limit)) = text.split_once('<') else {
            return refuse("no `<`");
        };
        let (what, limit) = (what.trim(), limit.trim());
        let digits = limit.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(limit.len());
        let (number, unit) = limit.split_at(digits);
        let Ok(number) = number.parse::<f64>() else {
            return refuse(&format!("`{limit}` is no limit"));
        };
        if number <= 0.0 {
            return refuse("a limit of 0 cannot be kept");
        }
        let words: Vec<&str> = what.split_whitespace().collect();
        let (what, class) = match words[..] {
            [_, "of"] => return refuse("of which class of transactions?"),
            [what, "of", class] => (what, Some(class.to_owned())),
            _ => (what, None),
        };
        let kind = if what == "errors" && class.is_some() {
            return refuse("errors are counted over all classes of transactions");
        } else if what == "errors" {
            match unit.trim() {
                "%" if number < 100.0 => Kind::Errors { share: number / 100.0 },
                "%" => return refuse("all may fail"),
                "" => return refuse(&format!("`{limit}` of what? write `{limit}%`")),
                unit => return refuse(&format!("`{unit}` is no unit of a share")),
            }
        } else {
            let percent = what.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
            let Some(percent) = percent.filter(|percent| *percent > 0.0 && *percent < 100.0) else {
                return refuse(&format!("`{what}` is no percentile (p50, p99, p99.9) and not `errors`"));
            };
            let unit_s = match unit.trim() {
                "us" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "" => return refuse(&format!("the unit is missing: `{limit}ms` or `{limit}s`?")),
                unit => return refuse(&format!("`{unit}` is no unit of time")),
            };
            Kind::Response { percent, limit: Duration::from_secs_f64(number * unit_s) }
        };
        Ok(Promise { text: text.trim().to_owned(), kind, class })
    }

    /// Refuses a class of transactions that the workload does not have.
    ///
    /// # Errors
    /// Says which ones it has.
    pub(crate) fn check(&self, workload: &dyn Workload) -> Result<(), Error> {
        let Some(class) = &self.class else { return Ok(()) };
        let known = workload.transaction_classes();
        if known.contains(class) {
            return Ok(());
        }
        let hint = match wire::spelling::nearest(class, known.iter().map(String::as_str)) {
            _ if known.is_empty() => {
                format!("all its transactions are of one kind: leave out ` of {class}`")
            }
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has {}", known.join(", ")),
        };
        let (text, name) = (&self.text, workload.name());
        Err(Error::Usage(format!("promise `{text}`: {name} has no class of transactions `{class}`: {hint}")))
    }

    /// Which of these classes it is about.
    pub(super) fn class_in(&self, names: &[String]) -> Option<usize> {
        let class = self.class.as_ref()?;
        names.iter().position(|name| name == class)
    }

    /// The share of the transactions that may break it.
    pub fn allowed(&self) -> f64 {
        match self.kind {
            Kind::Response { percent, .. } => 1.0 - percent / 100.0,
            Kind::Errors { share } => share,
        }
    }

    /// The limit of a response time.
    pub(super) fn limit(&self) -> Option<Duration> {
        match self.kind {
            Kind::Response { limit, .. } => Some(limit),
            Kind::Errors { .. } => None,
        }
    }

    /// What it saw of a second; `class` is its place among the classes, see [`Promise::class_in`].
    pub(super) fn of_second(&self, interval: &IntervalResult, class: Option<usize>) -> Count {
        let response = match class {
            Some(class) => interval.by_statement.get(class),
            None => Some(&interval.latency.response),
        };
        self.count(response, &interval.outcomes)
    }

    /// What it saw of a probe, those that ended after it and those that never did included.
    pub(super) fn of_step(&self, step: &StepResult) -> Count {
        let seen = self.count(self.response(step), &step.outcomes);
        let Kind::Response { limit, .. } = self.kind else { return seen };
        if self.class.is_none() || step.unended.is_empty() {
            return seen;
        }
        // Which class they would have been of is not known of those that never began: as many as of those that ended.
        let share = seen.transactions as f64 / step.latency.response.len().max(1) as f64;
        let part = |count: u64| (count as f64 * share).ceil() as u64;
        Count {
            transactions: seen.transactions + part(step.unended.len()),
            over: seen.over + part(over(&step.unended, limit)),
        }
    }

    /// The response times that it is about.
    fn response<'s>(&self, step: &'s StepResult) -> Option<&'s Histogram> {
        match &self.class {
            None => Some(&step.latency.response),
            Some(class) => {
                let found = step.by_statement.iter().find(|statement| statement.name == *class);
                found.map(|statement| &statement.latency)
            }
        }
    }

    fn count(&self, response: Option<&Histogram>, outcomes: &load::Outcomes) -> Count {
        match self.kind {
            Kind::Response { limit, .. } => Count {
                transactions: response.map_or(0, Histogram::len),
                over: response.map_or(0, |response| over(response, limit)),
            },
            Kind::Errors { .. } => {
                let over = outcomes.failed();
                Count { transactions: outcomes.committed + outcomes.rolled_back + over, over }
            }
        }
    }

    /// By how much these response times and outcomes break it, for people.
    pub(super) fn told(&self, step: &StepResult) -> String {
        match self.kind {
            Kind::Response { percent, .. } => {
                let ms = self.response(step).map_or(0.0, |response| response.quantile_ms(percent / 100.0));
                format!("p{percent} is {ms:.2} ms")
            }
            Kind::Errors { .. } => format!("{:.3} % fail", 100.0 * self.of_step(step).share()),
        }
    }

    /// The sessions, not the server, made its transactions wait: service times keep it, response times do not.
    pub(super) fn waits_for_sessions(&self, step: &StepResult) -> bool {
        let Kind::Response { percent, limit } = self.kind else { return false };
        let quantile = percent / 100.0;
        let Some(service) = &step.latency.service else { return false };
        let limit_ns = limit.as_nanos() as u64;
        let response = self.response(step);
        service.quantile_ns(quantile) < limit_ns
            && response.is_some_and(|response| response.quantile_ns(quantile) >= limit_ns)
    }
}

/// How many took the limit or longer.
fn over(response: &Histogram, limit: Duration) -> u64 {
    let limit_ns = limit.as_nanos() as u64;
    response.buckets().filter(|(highest_ns, _)| *highest_ns >= limit_ns).map(|(_, count)| count).sum()
}

/// Probes that a search makes at least, its hold included.
const PROBES_MIN: f64 = 6.0;
/// Transactions that a promise would allow to break it, in each of them.
const EXPECTED: f64 = 30.0;

/// Refuses promises that could not be judged within the budget at this rate.
///
/// # Errors
/// One of them; the message says how long it would take.
pub(super) fn within_budget(
    promises: &[Promise],
    budget: Duration,
    rate_tps: f64,
    why: &str,
) -> Result<(), Error> {
    for promise in promises {
        let needed_s = PROBES_MIN * EXPECTED / (promise.allowed() * rate_tps);
        if needed_s > budget.as_secs_f64() {
            return Err(Error::Usage(format!(
                "promise `{}` cannot be judged within {}: at {rate_tps:.0} transactions a second{why} one of {:.0} \
                 may break it, and a search that has to see that often enough takes {}: give it a budget of {}, or \
                 promise a lower percentile",
                promise.text,
                rounded(budget.as_secs_f64()),
                1.0 / promise.allowed(),
                rounded(needed_s),
                rounded(needed_s),
            )));
        }
    }
    Ok(())
}

/// A time as the command line takes it, rounded up.
pub(super) fn rounded(seconds: f64) -> String {
    if seconds <= 90.0 {
        format!("{:.0}s", seconds.ceil())
    } else {
        format!("{:.0}m", (seconds / 60.0).ceil())
    }
}

/// The longest time that one of them gives to a transaction; `None` where none is about time.
pub(super) fn longest_limit(promises: &[Promise]) -> Option<Duration> {
    promises.iter().filter_map(Promise::limit).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_read_with_their_units() {
        let p99 = Promise::parse("p99 < 20ms").unwrap();
        assert_eq!(p99.limit(), Some(Duration::from_millis(20)));
        assert!((p99.allowed() - 0.01).abs() < 1e-12);
        assert!((Promise::parse("p99.9<1.5s").unwrap().allowed() - 0.001).abs() < 1e-12);
        let errors = Promise::parse("errors < 0.1%").unwrap();
        assert_eq!((errors.limit(), errors.allowed()), (None, 0.001));
    }

    #[test]
    fn a_promise_may_be_about_one_class_of_transactions() {
        let tpcc = workload::find("tpcc").unwrap();
        let read = Promise::read("tpcc").unwrap();
        assert_eq!(read.len(), 5);
        assert!(read.iter().all(|promise| promise.check(tpcc).is_ok()));
        assert_eq!(read[4].limit(), Some(Duration::from_secs(20)));
        let names: Vec<String> = ["a", "b", "payment"].map(str::to_owned).into();
        assert_eq!((read[1].class_in(&names), read[0].class_in(&names)), (Some(2), None));

        let told =
            |text: &str, workload| Promise::parse(text).unwrap().check(workload).unwrap_err().to_string();
        assert!(told("p99 of new_ordr < 20ms", tpcc).contains("did you mean `new_order`?"));
        let alike = told("p99 of select < 20ms", workload::find("oltp_read_only").unwrap());
        assert!(alike.contains("of one kind: leave out ` of select`"), "{alike}");
    }

    #[test]
    fn transactions_that_never_ended_count_in_their_share_of_a_class() {
        let ms = |ms: u64| ms * 1_000_000;
        let response = Histogram::of((1..=100).map(|_| ms(1)).chain([ms(30_000); 10]));
        let unended = Histogram::of([ms(30_000); 10]);
        let statement = |name: &str, count: u64| load::StatementResult {
            name: name.into(),
            count,
            latency: Histogram::of((0..count).map(|_| ms(1))),
        };
        let step = StepResult {
            latency: load::LatencyPair { response, service: None },
            unended,
            by_statement: vec![statement("often", 88), statement("seldom", 12)],
            ..StepResult::default()
        };
        let of = |text: &str| Promise::parse(text).unwrap().of_step(&step);
        assert_eq!(of("p90 < 5s"), Count { transactions: 110, over: 10 });
        assert_eq!(of("p90 of often < 5s"), Count { transactions: 96, over: 8 });
        // Rounded up: one that is not known of is not taken for kept.
        assert_eq!(of("p90 of seldom < 5s"), Count { transactions: 14, over: 2 });
    }

    #[test]
    fn what_is_no_promise_is_refused_with_what_is_missing() {
        for (text, told) in [
            ("p99 < 20", "`20ms` or `20s`?"),
            ("errors < 0.1", "`0.1%`"),
            ("p99 20ms", "no `<`"),
            ("p999 < 20ms", "`p999` is no percentile"),
            ("tps < 20ms", "`tps` is no percentile"),
            ("p99 < fast", "`fast` is no limit"),
            ("p99 < 20m", "`m` is no unit"),
            ("p99 < 0ms", "cannot be kept"),
            ("p99 of < 20ms", "of which class"),
            ("errors of payment < 1%", "over all classes"),
            ("tpch", "no `<`"),
        ] {
            let error = Promise::parse(text).unwrap_err();
            assert!(error.to_string().contains(told) && error.class() == crate::Class::Usage, "{error}");
        }
    }

    #[test]
    fn a_percentile_beyond_the_budget_is_refused_with_the_time_that_it_takes() {
        let promises = [Promise::parse("p99.99 < 20ms").unwrap()];
        let error = within_budget(&promises, Duration::from_secs(30), 10_000.0, "").unwrap_err().to_string();
        assert!(error.contains("within 30s") && error.contains("a budget of 3m"), "{error}");
        assert!(within_budget(&promises, Duration::from_secs(181), 10_000.0, "").is_ok());
    }

    #[test]
    fn a_response_at_the_limit_breaks_the_promise() {
        let promise = Promise::parse("p99 < 20ms").unwrap();
        let response = Histogram::of([1_000_000, 19_000_000, 20_000_000, 500_000_000]);
        let step =
            StepResult { latency: load::LatencyPair { response, service: None }, ..StepResult::default() };
        assert_eq!(promise.of_step(&step), Count { transactions: 4, over: 2 });
    }
}
