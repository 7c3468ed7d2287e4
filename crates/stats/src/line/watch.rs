//! When a probe has told enough: it is cut where it is plain on which side of the line it lies.

use super::{Count, Purpose, Seen};

/// Why a probe may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Far more transactions break the promise than it allows, second after second.
    Broken,
    /// Far fewer do.
    Kept,
}

/// Seconds that have to agree where most transactions break the promise: a stall alone fills one or two.
const SECONDS_MIN: usize = 3;
/// The same where they are but many: a queue's busy period may last for some.
const SECONDS_LONG: usize = 8;
/// Most.
const MOST: f64 = 0.6;
/// Times the allowed share that a second must have to be far above.
const FAR_ABOVE: f64 = 4.0;
/// Of the allowed share, what a probe must stay below to be far below.
const FAR_BELOW: f64 = 0.3;
/// Transactions over the limit that the promise would have allowed by now, before a probe is called far below.
const EXPECTED_MIN: f64 = 25.0;
/// The same, in each second, for far above.
const EXPECTED_IN_SECOND_MIN: f64 = 1.0;

/// Whether the seconds so far of a probe tell all that it is for. `seen` and `allowed` by promise; `held`: of a hold, the place of
/// the promise whose line it confirms, and how many transactions it is to have.
pub fn is_over(seen: &[Seen], allowed: &[f64], purpose: Purpose, held: Option<(usize, f64)>) -> bool {
    let is_lost =
        held.is_some_and(|(at, transactions)| is_lost(&seen[at].seconds, allowed[at], transactions));
    let cut = is_cut(seen, allowed);
    is_lost || cut == Some(Cut::Broken) || cut.is_some() && purpose == Purpose::Bracket
}

/// Whether the seconds so far of a probe tell enough for every promise. Far above: a majority of the seconds, the last
/// one included, is far above by itself, so that neither a stall nor a single busy period, whose transactions all break the
/// promise together, is taken for the server's capacity. Far below: so few in so many that no autocorrelation explains it.
///
/// `seen` and `allowed` by promise. A probe that is near the line of one promise is not cut.
pub(super) fn is_cut(seen: &[Seen], allowed: &[f64]) -> Option<Cut> {
    let cuts: Option<Vec<Cut>> =
        seen.iter().zip(allowed).map(|(seen, allowed)| of_one(&seen.seconds, *allowed)).collect();
    let cuts = cuts?;
    // Above one line and below another says something about both.
    cuts.iter().copied().find(|cut| *cut == Cut::Broken).or(cuts.first().copied())
}

/// Whether a hold that is to have about so many transactions is broken whatever comes: more have broken the promise than it allows
/// of all of them, and of what chance may add to Poisson arrivals.
pub(super) fn is_lost(seconds: &[Count], allowed: f64, transactions: f64) -> bool {
    let over: u64 = seconds.iter().map(|count| count.over).sum();
    over as f64 > allowed * (transactions + 4.0 * transactions.sqrt())
}

fn of_one(seconds: &[Count], allowed: f64) -> Option<Cut> {
    let total: Count = seconds.iter().copied().sum();
    let expected = allowed * total.transactions as f64;
    if seconds.len() < SECONDS_MIN {
        return None;
    }
    let is_long = seconds.len() >= SECONDS_LONG;
    let share_far = if is_long { (FAR_ABOVE * allowed).min(MOST) } else { MOST };
    let is_far = |count: &Count| count.transactions == 0 || count.share() > share_far;
    let far = seconds.iter().filter(|count| is_far(count)).count();
    let is_enough = expected >= EXPECTED_IN_SECOND_MIN * seconds.len() as f64
        || total.over as f64 >= 10.0 * seconds.len() as f64;
    if is_enough && 2 * far > seconds.len() && seconds.last().is_some_and(is_far) {
        return Some(Cut::Broken);
    }
    (expected >= EXPECTED_MIN && (total.over as f64) < FAR_BELOW * expected).then_some(Cut::Kept)
}
