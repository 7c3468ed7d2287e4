//! Why a build is slower: what a transaction costs on it and on the one before, from lives of both.

use std::collections::BTreeMap;

use crate::duel::{Life, SideLife};

/// A mean with its 95 % interval over lives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Span {
    /// `None` where there are too few.
    fn of(lives: &[f64]) -> Option<Span> {
        let n = lives.len() as f64;
        let value = stats::mean(lives)?;
        let error = stats::describe::standard_deviation(lives)? / n.sqrt();
        let reach = stats::student::upper_quantile(0.025, n - 1.0) * error;
        Some(Span { value, low: value - reach, high: value + reach })
    }

    /// How far it is from nothing, beyond its own uncertainty.
    fn clearness(self) -> f64 {
        self.value.abs() - (self.high - self.low) / 2.0
    }

    fn exp(self) -> Span {
        Span { value: self.value.exp(), low: self.low.exp(), high: self.high.exp() }
    }
}

/// A figure by transaction that differs between the build before the guilty one and that one.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// `server_cpu_us_per_transaction` ...
    pub what: String,
    /// Guilty over the one before; `None` where one of them is nothing.
    pub ratio: Option<Span>,
    /// Of the time that sessions spend at locks, at the disk, asleep and at the cpu: guilty less the one before, in
    /// microseconds.
    pub more_us: Option<Span>,
}

/// Names of figures that are a session's time.
const SESSION: &str = "session_";
/// Of those, its time at all locks, and at one of them.
const AT_LOCKS: &str = "session_at_locks_us_per_transaction";
const AT_LOCK: &str = "session_at_lock/";

/// By figure: of each life, that of the build before and that of the guilty one.
#[derive(Debug, Default)]
pub(super) struct Figures(BTreeMap<String, Vec<[f64; 2]>>);

impl Figures {
    /// A life of the one before and of the guilty one.
    pub(super) fn add(&mut self, life: &Life) {
        if let ([one, other], true) = (&life.sides[..], life.is_valid()) {
            self.add_costs(&costs(one), &costs(other));
        }
    }

    /// The same of lives in which locks were looked at: the time at each.
    pub(super) fn add_locks(&mut self, life: &Life) {
        if let ([one, other], true) = (&life.sides[..], life.is_valid()) {
            self.add_waits(waits(one), waits(other));
        }
    }

    fn add_waits(&mut self, mut before: BTreeMap<String, f64>, mut after: BTreeMap<String, f64>) {
        // A lock that is never waited for is in no table.
        let all: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
        for lock in all {
            before.entry(lock.clone()).or_default();
            after.entry(lock).or_default();
        }
        self.add_costs(&before, &after);
    }

    /// Whether sessions of the guilty build spend more time at locks.
    pub(super) fn are_longer_at_locks(&self) -> bool {
        let is_more = |why: &Why| why.what == AT_LOCKS && why.more_us.is_some_and(|more| more.low > 0.0);
        self.why().iter().any(is_more)
    }

    fn add_costs(&mut self, one: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>) {
        for (name, before) in one {
            if let Some(after) = other.get(name) {
                self.0.entry(name.clone()).or_default().push([*before, *after]);
            }
        }
    }

    /// What differs. Where sessions spend more time comes first, most of it before all: that is what a transaction is
    /// longer by; at which locks next. The other figures follow by how much they differ beyond their own uncertainty.
    pub(super) fn why(&self) -> Vec<Why> {
        let of = |(what, lives): (&String, &Vec<[f64; 2]>)| -> Option<Why> {
            let logs: Option<Vec<f64>> = lives
                .iter()
                .map(|[before, after]| (*before > 0.0 && *after > 0.0).then(|| (after / before).ln()))
                .collect();
            let ratio = logs.and_then(|logs| Span::of(&logs)).map(Span::exp);
            let more: Vec<f64> = lives.iter().map(|[before, after]| after - before).collect();
            let more_us = what.starts_with(SESSION).then(|| Span::of(&more)).flatten();
            (ratio.is_some() || more_us.is_some()).then(|| Why { what: what.clone(), ratio, more_us })
        };
        let (mut times, mut others): (Vec<Why>, Vec<Why>) =
            self.0.iter().filter_map(of).partition(|why| why.more_us.is_some_and(|more| more.low > 0.0));
        let more_us = |why: &Why| why.more_us.map_or(0.0, |more| more.value);
        let is_one_lock = |why: &Why| why.what.starts_with(AT_LOCK);
        times.sort_by(|a, b| is_one_lock(a).cmp(&is_one_lock(b)).then(more_us(b).total_cmp(&more_us(a))));
        let clearness = |why: &Why| {
            let log = |span: Span| Span { value: span.value.ln(), low: span.low.ln(), high: span.high.ln() };
            why.ratio.map_or(f64::NEG_INFINITY, |ratio| log(ratio).clearness())
        };
        others.sort_by(|a, b| clearness(b).total_cmp(&clearness(a)));
        times.extend(others);
        times
    }
}

/// What a transaction cost, by name and unit.
fn costs(side: &SideLife) -> BTreeMap<String, f64> {
    let mut costs = BTreeMap::new();
    for (fact, text) in &side.end.facts {
        let Some(name) = fact.strip_prefix("per_transaction/").and_then(|rest| rest.split_once('/')) else {
            continue;
        };
        let mut words = text.split(' ');
        let Some(value) = words.next().and_then(|value| value.parse::<f64>().ok()) else { continue };
        let unit = words.next().map(|unit| format!("_{unit}")).unwrap_or_default();
        costs.insert(format!("{}{unit}_per_transaction", name.1), value);
    }
    for statement in side.end.steps.first().iter().flat_map(|step| &step.by_statement) {
        costs.insert(format!("{}_ms", statement.name), store::LatencyUnit::to_ms(statement.latency.mean()));
    }
    costs
}

/// What a transaction waits at each lock, in microseconds. Waits of warm-ups are among them, and so are their transactions;
/// those of slices that do not count are taken out in proportion.
fn waits(side: &SideLife) -> BTreeMap<String, f64> {
    let slices = side.end.duel.iter().flat_map(|duel| &duel.slices);
    let (all, counted) =
        slices.fold((0, 0), |(all, counted), slice| (all + 1, counted + u32::from(slice.is_counted)));
    let committed = side.end.steps.first().map_or(0, |step| step.outcomes_whole.committed);
    if committed == 0 {
        return BTreeMap::new();
    }
    waits_of(&side.end.hot_locks, f64::from(counted) / f64::from(all.max(1)) / committed as f64)
}

/// `share` of the waits at each lock.
fn waits_of(locks: &[store::HotLock], share: f64) -> BTreeMap<String, f64> {
    let mut waits = BTreeMap::new();
    // A look of perf is a short one, for who waits.
    for lock in locks.iter().filter(|lock| lock.source != store::LockSource::Perf) {
        *waits.entry(format!("{AT_LOCK}{}_us_per_transaction", lock.lock)).or_default() +=
            1e6 * lock.wait_total_s * share;
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_times_of_sessions_come_first_with_intervals_over_lives() {
        let mut figures = Figures::default();
        let figure = |cpu: f64, asleep: f64, locks: f64| {
            BTreeMap::from([
                ("server_cpu_us_per_transaction".to_owned(), cpu),
                ("session_asleep_us_per_transaction".to_owned(), asleep),
                ("session_at_locks_us_per_transaction".to_owned(), locks),
            ])
        };
        for k in 0..4 {
            let k = f64::from(k);
            figures.add_costs(&figure(1000.0, 0.0, 50.0), &figure(1010.0 + k, 80.0 + k, 55.0));
        }
        let why = figures.why();
        assert_eq!(why[0].what, "session_asleep_us_per_transaction");
        let more = why[0].more_us.unwrap();
        assert!((more.value - 81.5).abs() < 1e-9 && more.low > 79.0 && why[0].ratio.is_none());
        assert_eq!(why[1].what, "session_at_locks_us_per_transaction");
        assert_eq!(why[2].what, "server_cpu_us_per_transaction");
        let ratio = why[2].ratio.unwrap();
        assert!(ratio.low > 1.0 && ratio.high < 1.02 && why[2].more_us.is_none(), "{why:?}");
    }

    #[test]
    fn locks_by_name_follow_the_time_at_all_of_them() {
        let lock = |lock: &str, source, wait_total_s| store::HotLock {
            sessions: 8,
            source,
            lock: lock.to_owned(),
            caller: String::new(),
            count: None,
            wait_total_s,
            wait_interval_s: None,
            observed_s: 12.0,
        };
        let waits = |trx_s: f64| {
            let (schema, perf) = (store::LockSource::PerformanceSchema, store::LockSource::Perf);
            let mut locks = vec![lock("log", schema, 0.12), lock("trx", perf, 99.0)];
            locks.extend((trx_s > 0.0).then(|| lock("trx", schema, trx_s)));
            waits_of(&locks, 1e-3)
        };
        let mut figures = Figures::default();
        for k in 0..4 {
            let k = f64::from(k);
            let all = |us: f64| BTreeMap::from([(AT_LOCKS.to_owned(), us)]);
            figures.add_costs(&all(10.0), &all(15.0 + 0.1 * k));
            assert_eq!(figures.are_longer_at_locks(), k > 0.0, "one life tells nothing");
            figures.add_waits(waits(0.0), waits(1.2 + 0.01 * k));
        }
        let why = figures.why();
        assert_eq!(why[0].what, AT_LOCKS, "{why:?}");
        assert_eq!(why[1].what, "session_at_lock/trx_us_per_transaction");
        assert!((why[1].more_us.unwrap().value - 1215.0).abs() < 1e-6, "{why:?}");
    }

    #[test]
    fn one_life_has_no_interval() {
        let mut figures = Figures::default();
        let one = BTreeMap::from([("reads_per_transaction".to_owned(), 1.0)]);
        figures.add_costs(&one, &one);
        assert!(figures.why().is_empty());
    }
}
