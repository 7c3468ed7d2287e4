//! Whether the parts of what was measured agree with each other: a run's totals with its seconds, and counts with times.
//!
//! Throughput comes from totals and percentiles from the histogram of a whole level. Both are stored second by second,
//! too; whoever changes one has to change the other.

use hdrhistogram::Histogram;
use serde_json::Value;
use store::{Interval, Outcomes, Step, Store};

use super::Different;
use crate::error::Error;

/// Totals that are not the sums of their seconds, and counts that are not those of what was timed.
pub(super) fn contradictions(results: &Store) -> Result<Vec<Different>, Error> {
    let mut found = Vec::new();
    for record in results.studies()? {
        for head in results.run_heads(record.id)? {
            let Some(end) = results.run(head.id)?.end else { continue };
            for (ordinal, step) in end.steps.iter().enumerate() {
                let place = format!("run r{}, {}", head.id.0, store::counted(step.sessions, "session"));
                let seconds = results.intervals(head.id, ordinal)?;
                let measured: Vec<&Interval> = seconds.iter().filter(|second| second.second >= 1).collect();
                counts(step, &measured, &place, &mut found);
                let slices =
                    end.duel.as_ref().map_or(1, |duel| duel.slices.iter().filter(|it| it.is_counted).count());
                lengths(step, &measured, slices.max(1), &place, &mut found);
                let before = seconds.iter().rfind(|second| second.second < 1);
                // In a duel each slice is measured after a warm-up of its own.
                let slices = end.duel.as_ref().map_or(1, |duel| duel.slices.len() as u64);
                let early = slices * u64::from(step.sessions) + before.map_or(0, |second| second.backlog);
                histograms(step, &measured, early, &place, &mut found)?;
                classes(step, &place, &mut found);
                if let Some(duel) = &end.duel {
                    let counted = duel.slices.iter().filter(|slice| slice.is_counted);
                    let sum: u64 = counted.map(|slice| slice.committed).sum();
                    if step.outcomes.committed != sum {
                        found.push(different(&place, "committed in slices", step.outcomes.committed, sum));
                    }
                }
            }
        }
    }
    Ok(found)
}

fn counts(step: &Step, seconds: &[&Interval], place: &str, found: &mut Vec<Different>) {
    let sum = |of: fn(&Interval) -> u64| seconds.iter().map(|second| of(second)).sum::<u64>();
    let of_outcomes = |outcomes: &Outcomes| {
        [
            ("committed", outcomes.committed),
            ("rolled back", outcomes.rolled_back),
            ("failed", outcomes.failed()),
        ]
    };
    let mut pairs = vec![
        ("reads", step.reads, sum(|second| second.reads)),
        ("writes", step.writes, sum(|second| second.writes)),
        ("other statements", step.other, sum(|second| second.other)),
        ("retries", step.retries, sum(|second| second.retries)),
    ];
    for (at, (name, total)) in of_outcomes(&step.outcomes).into_iter().enumerate() {
        pairs.push((name, total, seconds.iter().map(|second| of_outcomes(&second.outcomes)[at].1).sum()));
    }
    for (name, total, sum) in pairs.into_iter().filter(|(_, total, sum)| total != sum) {
        found.push(different(place, name, total, sum));
    }
}

/// A level is as long as its seconds, which end by the clock: each is a second, whatever happened in it, but for the last of
/// each of `slices`, where the load ended. So a level has no more seconds and no fewer than its length says. Seconds that
/// somebody adds, in which nothing happened, are consistent: they stand in the report as stalls.
fn lengths(step: &Step, seconds: &[&Interval], slices: usize, place: &str, found: &mut Vec<Different>) {
    let length: f64 = seconds.iter().map(|second| second.duration_s).sum();
    // Also false where one of them is no number.
    let is_length = (step.duration_s - length).abs() <= LENGTH_SLACK_S + 0.01 * length;
    if !is_length {
        found.push(different(place, "length", step.duration_s, length));
    }
    let is_second = |second: &Interval| second.duration_s >= SECOND_S.0 && second.duration_s <= SECOND_S.1;
    let others: Vec<&&Interval> = seconds.iter().filter(|second| !is_second(second)).collect();
    let too_long = others.iter().find(|second| second.duration_s.is_nan() || second.duration_s > SECOND_S.1);
    if let Some(one) = too_long.or(others.get(slices)) {
        found.push(different(place, &format!("length of second {}", one.second), one.duration_s, 1.0));
    }
    let gap = (1..).zip(seconds).find(|(at, second)| second.second != *at);
    if let Some((at, second)) = gap {
        found.push(different(place, "number of a second", second.second, at));
    }
}

/// A whole second, from and to: clocks of several clients differ by less.
const SECOND_S: (f64, f64) = (0.95, 1.05);

/// Each statement is one of some class, beside classes of whole transactions; what failed did so for some error.
fn classes(step: &Step, place: &str, found: &mut Vec<Different>) {
    let (statements, of_classes) = (
        step.reads + step.writes + step.other,
        step.by_statement.iter().map(|class| class.count).sum::<u64>(),
    );
    if of_classes < statements {
        found.push(different(place, "statements of its classes", of_classes, statements));
    }
    if step.outcomes.failed() > 0 && step.errors.is_empty() {
        found.push(different(place, "errors", 0, step.outcomes.failed()));
    }
}

/// Workers begin and end their seconds some milliseconds apart.
const LENGTH_SLACK_S: f64 = 0.1;

/// Each second's response times are among those of the whole level, but for at most so many `early` ones: transactions of
/// the warm-up that ended later. The level has, beside them, only what came after the last second or never ended.
fn histograms(
    step: &Step,
    seconds: &[&Interval],
    early: u64,
    place: &str,
    found: &mut Vec<Different>,
) -> Result<(), Error> {
    let damaged = |reason: String| store::Error::Damaged {
        path: "results.db".into(),
        what: format!("the seconds of {place}"),
        reason,
    };
    let mut sum = Histogram::<u64>::new_from(&step.response);
    sum.auto(true);
    for second in seconds {
        let part = second.response.unpacked().map_err(damaged)?;
        let ended = second.outcomes.committed + second.outcomes.rolled_back;
        if part.len() != ended {
            found.push(different(
                place,
                &format!("response times of second {}", second.second),
                part.len(),
                ended,
            ));
        }
        sum.add(&part).map_err(|error| damaged(error.to_string()))?;
    }
    let lacking: u64 = sum
        .iter_recorded()
        .map(|bucket| {
            let value = bucket.value_iterated_to();
            sum.count_at(value).saturating_sub(step.response.count_at(value))
        })
        .sum();
    if lacking > early {
        found.push(different(place, "response times of its seconds that the level has not", early, lacking));
    }
    let late = step.response.len().saturating_sub(sum.len() - lacking);
    let never_counted =
        step.in_flight_at_end + step.backlog_at_end + step.unended.map_or(0, |all| all.transactions);
    let most = never_counted + step.outcomes.skipped;
    if late > most {
        found.push(different(place, "response times that no second has", late, most));
    }
    Ok(())
}

pub(super) fn different(
    place: &str,
    what: &str,
    stored: impl Into<Value>,
    recomputed: impl Into<Value>,
) -> Different {
    Different { where_: format!("{place}: {what}"), stored: stored.into(), recomputed: recomputed.into() }
}
