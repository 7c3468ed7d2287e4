//! When a study ends that may be watched: after each block its verdicts are looked at, and its budget.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use store::{Look, Purpose, RunHead, Store, StudyId, counted};

use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::study::Until;

/// Why a study ended before its last block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every primary comparison has a verdict.
    Decided { blocks: u32 },
    /// Another block would have been likely to end after its time.
    OverBudget {
        /// Blocks that there are.
        blocks: u32,
        /// Primary comparisons without a verdict.
        open: u32,
    },
}

impl Ended {
    pub(crate) fn blocks(self) -> u32 {
        match self {
            Ended::Decided { blocks } | Ended::OverBudget { blocks, .. } => blocks,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Decided { blocks } => write!(f, "decided after {}", counted(*blocks, "block")),
            Ended::OverBudget { blocks, open: 0 } => {
                write!(f, "its budget is used up after {}", counted(*blocks, "block"))
            }
            Ended::OverBudget { blocks, open } => {
                let are = if *open == 1 { "is" } else { "are" };
                let (blocks, open) = (counted(*blocks, "block"), counted(*open, "comparison"));
                write!(f, "its budget is used up after {blocks}, and {open} {are} undecided")
            }
        }
    }
}

/// What comes before a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Ends(Ended),
    /// The block is begun. With a budget: how long it may wait for a quiet machine and still be likely to end in time.
    Begins {
        spare: Option<Duration>,
    },
}

/// Whether the study ends before block `next` is begun. Each look is recorded, and told. `since_ms` is when the command
/// began that makes its blocks here: since then all of the time counts, with the waits for a quiet machine, and of earlier
/// commands that of their runs. `None` where blocks are made elsewhere, several at a time.
pub(crate) fn before_block(
    store: &mut Store,
    study: StudyId,
    until: Until,
    next: u32,
    since_ms: Option<i64>,
    observer: Observer<'_>,
) -> Result<Next, Error> {
    let blocks = next - 1;
    let mut open = 0;
    if blocks >= until.blocks_min {
        let look = look(store, study, blocks, observer)?;
        if look.open == 0 && look.decided > 0 {
            return Ok(Next::Ends(Ended::Decided { blocks }));
        }
        open = look.open;
    }
    let Some(budget) = until.budget else { return Ok(Next::Begins { spare: None }) };
    let heads = store.run_heads(study)?;
    let spent = spent(&heads, since_ms.map(|since| (since, load::time::unix_ms())));
    if let Some(spare) = spare(budget, spent, blocks, &lengths(&heads)) {
        return Ok(Next::Begins { spare: Some(spare) });
    }
    // Where several are made at a time, some are still to come.
    if since_ms.is_some() && blocks >= until.blocks_min {
        open = last_look(store, study, blocks, observer)?.open;
    }
    Ok(Next::Ends(Ended::OverBudget { blocks, open }))
}

/// The look at a study that is over by its blocks or its budget, which is allowed more than those before it
/// ([`stats::Rules::is_over`]).
pub(crate) fn last_look(
    store: &mut Store,
    study: StudyId,
    block: u32,
    observer: Observer<'_>,
) -> Result<Look, Error> {
    store.end_study(study, load::time::unix_ms())?;
    look(store, study, block, observer)
}

/// Looks at the verdicts of the study as its report would show them now.
pub(crate) fn look(
    store: &mut Store,
    study: StudyId,
    block: u32,
    observer: Observer<'_>,
) -> Result<Look, Error> {
    let (decided, open) = decided_and_open(store, study)?;
    let look = Look { at_ms: load::time::unix_ms(), block, decided: decided as u32, open: open as u32 };
    let looks = store.looks(study)?;
    // A command that goes on without a new run since has seen nothing new.
    let is_new = looks.last().is_none_or(|last| Look { at_ms: look.at_ms, ..last.clone() } != look);
    if is_new {
        store.add_look(study, &look)?;
        observer(Event::Looked { number: looks.len() + 1, look: &look });
    }
    Ok(look)
}

/// How many primary comparisons of a record have a verdict, and how many have none.
pub(crate) fn decided_and_open(store: &Store, study: StudyId) -> Result<(usize, usize), Error> {
    let report = report::Report::of_stores(&[store], &report::Selection::Records(vec![study]))
        .map_err(|error| Error::Run(format!("looking at the verdicts: {error}")))?;
    Ok(report.studies.first().map_or((0, 0), report::StudyReport::decided))
}

/// What the study took so far: the span of the command that is at work, and the runs that it does not hold, all attempts.
/// The runs of a duel go on at the same time, which counts once.
fn spent(heads: &[RunHead], command_ms: Option<(i64, i64)>) -> Duration {
    time_of_spans(measured(heads).map(|(_, span_ms)| span_ms).chain(command_ms).collect())
}

/// The block of each measured run that has ended, and when it began and ended in ms.
fn measured(heads: &[RunHead]) -> impl Iterator<Item = (u32, (i64, i64))> {
    let measured = heads.iter().filter(|head| head.start.purpose == Purpose::Measure);
    measured.filter_map(|head| Some((head.start.block, (head.start.started_at_ms, head.ended_at_ms?))))
}

/// The time in which at least one of them went on; each is from and to in ms.
fn time_of_spans(mut spans_ms: Vec<(i64, i64)>) -> Duration {
    spans_ms.sort_unstable();
    let (mut sum_ms, mut counted_to_ms) = (0, i64::MIN);
    for (from_ms, to_ms) in spans_ms {
        sum_ms += (to_ms - from_ms.max(counted_to_ms)).max(0);
        counted_to_ms = counted_to_ms.max(to_ms);
    }
    Duration::from_millis(sum_ms as u64)
}

/// How long the blocks took, in their order, all attempts of their runs; of one that was interrupted, what there is.
fn lengths(heads: &[RunHead]) -> Vec<Duration> {
    let mut spans_ms: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for (block, span_ms) in measured(heads) {
        spans_ms.entry(block).or_default().push(span_ms);
    }
    spans_ms.into_values().map(time_of_spans).collect()
}

/// What of the budget is left when another block is made after so many `blocks`: one as long as the longest of the last
/// three `lengths`, which know how busy the machine is now, or as the mean of all with what lies between them. `None`: it
/// would end too late. The first one is always begun, and gone on with where it was interrupted.
fn spare(budget: Duration, spent: Duration, blocks: u32, lengths: &[Duration]) -> Option<Duration> {
    if blocks == 0 {
        return Some(budget.saturating_sub(spent));
    }
    let longest = lengths.iter().rev().take(3).max().copied().unwrap_or_default();
    budget.checked_sub(spent + longest.max(spent / blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_begun_that_would_end_after_the_budget() {
        let minute = Duration::from_secs(60);
        assert_eq!(spare(minute, Duration::ZERO, 0, &[]), Some(minute));
        assert_eq!(spare(minute, minute * 2, 0, &[]), Some(Duration::ZERO), "the first is always begun");
        let half = [minute * 2];
        assert_eq!(spare(minute, minute * 2, 0, &half), Some(Duration::ZERO), "and gone on with");
        assert_eq!(spare(minute * 5, minute * 4, 4, &[minute; 4]), Some(Duration::ZERO));
        assert_eq!(spare(minute * 7, minute * 4, 4, &[minute; 4]), Some(minute * 2), "it may wait");
        assert_eq!(spare(minute * 5 - Duration::from_millis(1), minute * 4, 4, &[minute; 4]), None);
        assert_eq!(spare(minute * 5, minute * 9, 1, &[minute]), None);
    }

    #[test]
    fn a_block_is_expected_to_take_as_long_as_the_longest_of_late() {
        let second = Duration::from_secs(1);
        let crowded = [50, 50, 80, 60].map(|length| second * length);
        assert_eq!(spare(second * 320, second * 240, 4, &crowded), Some(Duration::ZERO));
        assert_eq!(spare(second * 319, second * 240, 4, &crowded), None);
        // The first one has the tables loaded.
        let first = [200, 50, 50, 50].map(|length| second * length);
        assert_eq!(
            spare(second * 440, second * 350, 4, &first),
            Some(second * 440 - second * 350 - second * 175 / 2)
        );
    }

    #[test]
    fn waits_between_the_runs_of_this_command_count() {
        let head = |from_ms: i64, to_ms: i64| {
            let start = store::RunStart::new(store::Key::new(), vec![8], 1, from_ms);
            RunHead {
                id: store::RunId(1),
                study: StudyId(1),
                start,
                attempt: 1,
                status: store::Status::Done,
                error: None,
                ended_at_ms: Some(to_ms),
            }
        };
        // Two runs of a command that ended long ago, and two of one that began at 100,000 and waited twice.
        let heads = [head(0, 1000), head(5000, 6000), head(110_000, 120_000), head(150_000, 160_000)];
        assert_eq!(spent(&heads, Some((100_000, 170_000))), Duration::from_secs(2 + 70));
        assert_eq!(spent(&heads, None), Duration::from_secs(2 + 20));
    }

    #[test]
    fn what_goes_on_at_the_same_time_counts_once() {
        let alone = time_of_spans(vec![(20_000, 30_000), (0, 10_000)]);
        assert_eq!(alone, Duration::from_secs(20));
        let duels = time_of_spans(vec![(0, 10_000), (100, 10_200), (20_000, 30_000), (20_000, 29_000)]);
        assert_eq!(duels, Duration::from_millis(20_200));
        assert_eq!(time_of_spans(vec![(5_000, 1_000)]), Duration::ZERO, "a clock that was set back");
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(Ended::Decided { blocks: 7 }.to_string(), "decided after 7 blocks");
        let over = Ended::OverBudget { blocks: 6, open: 2 }.to_string();
        assert!(over.contains("after 6 blocks") && over.contains("2 comparisons are undecided"), "{over}");
        let all = Ended::OverBudget { blocks: 6, open: 0 }.to_string();
        assert_eq!(all, "its budget is used up after 6 blocks");
    }
}
