//! Who is loaded when, while the servers of a duel are alive at the same time: one holds the turn, the others wait.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::duel::SLICE;
use crate::duel::crowd::{self, Look, Taken};
use crate::duel::quiet::{Used, Waited};
use crate::plan::mix;

/// How often a wait looks whether it is to end for another reason.
const LOOK: Duration = Duration::from_millis(50);

/// How long the machine is looked at before a slice, and the share of its cpus that others may use meanwhile.
const QUIET_LOOK: Duration = Duration::from_millis(50);
const QUIET_SHARE_MAX: f64 = 0.2;

/// All waits of a duel for a quiet machine together, where it has many slices.
const PATIENCE_MAX: Duration = Duration::from_secs(30);

/// At most so many times the slices that are wanted: those that others disturbed are made again.
pub(crate) const ROUNDS_FACTOR: u32 = 2;

/// The order in which the sides of a duel are loaded: rounds of all sides in a random order, each followed by a round in
/// the opposite one (ABBA for two), so that a steady drift of the machine favours none.
pub(crate) fn order(sides: usize, slices: u32, seed: u64) -> Vec<usize> {
    let mut order = Vec::with_capacity(sides * slices as usize);
    let mut round: Vec<usize> = (0..sides).collect();
    for slice in 0..slices {
        if slice.is_multiple_of(2) {
            crate::plan::shuffle(&mut round, mix(seed ^ u64::from(slice)));
        } else {
            round.reverse();
        }
        order.extend(&round);
    }
    order
}

/// What the sides of one duel share.
pub(crate) struct Turns {
    order: Vec<usize>,
    /// Quiet slices of each side.
    wanted: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Whose turn it is, as an index into the order.
    at: usize,
    taken: Instant,
    /// The cpus when it was taken.
    look: Option<Look>,
    /// How long slices may still wait for a quiet machine, all together.
    patience: Duration,
    sides: Vec<Side>,
    /// Of searches for load lines: what the last side that chose for itself tries.
    depth: Option<Depth>,
}

/// A probe near a load line.
struct Depth {
    side: usize,
    /// Rounds in which it has its turns.
    rounds: Range<usize>,
    /// Whose line it is about.
    line: usize,
    /// The fraction of its own estimate of that line.
    fraction: f64,
}

#[derive(Default)]
struct Side {
    has_left: bool,
    /// It left before it had measured all that it was to.
    has_failed: bool,
    /// It has measured all that it was to, and takes no more turns.
    has_rested: bool,
    /// Points at which all meet that it has reached.
    met: u32,
    /// The processes of its server and of the replicas; empty while there are none, or where they cannot be seen.
    servers: Vec<u32>,
    waited: Waited,
    /// What it had used when the present slice of another side began.
    used: Option<Used>,
    /// What others took of the machine, by slice of this side.
    shares: Vec<Option<f64>>,
}

impl Turns {
    /// Turns of `sides` sides until each has `slices` slices that nobody disturbed, in at most [`ROUNDS_FACTOR`] times as
    /// many. `seed` decides who begins.
    pub(crate) fn new(sides: usize, slices: u32, seed: u64) -> Turns {
        Turns::in_order(order(sides, slices * ROUNDS_FACTOR, seed), sides, slices)
    }

    fn in_order(order: Vec<usize>, sides: usize, slices: u32) -> Turns {
        let state = State {
            at: 0,
            taken: Instant::now(),
            look: None,
            patience: (SLICE * slices).min(PATIENCE_MAX),
            sides: (0..sides).map(|_| Side::default()).collect(),
            depth: None,
        };
        Turns { order, wanted: slices as usize, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The side whose turn it is; `None` when the duel has all slices that it needs, or may have.
    pub(crate) fn whose(&self) -> Option<usize> {
        self.order.get(self.lock().at).copied()
    }

    /// The seat of a side; when it is dropped the others go on without it.
    pub(crate) fn seat(&self, side: usize) -> Seat<'_> {
        Seat { turns: self, side }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `is_so`, or until `is_over`.
    fn wait(&self, is_over: &dyn Fn() -> bool, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !is_so(&state) && !is_over() {
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

impl State {
    /// Goes to the next turn of a side that still takes some.
    fn advance(&mut self, order: &[usize]) {
        let is_out = |side: &Side| side.has_left || side.has_failed || side.has_rested;
        while order.get(self.at).is_some_and(|&side| is_out(&self.sides[side])) {
            self.at += 1;
        }
    }

    fn shares(&self) -> Vec<&[Option<f64>]> {
        self.sides.iter().map(|side| side.shares.as_slice()).collect()
    }

    fn server_pids(&self) -> Vec<u32> {
        self.sides.iter().flat_map(|side| side.servers.iter().copied()).collect()
    }
}

/// One side's part in the turns.
pub(crate) struct Seat<'a> {
    turns: &'a Turns,
    side: usize,
}

impl Seat<'_> {
    pub(crate) fn sides(&self) -> u32 {
        self.turns.lock().sides.len() as u32
    }

    /// Which one this is, from 0.
    pub(crate) fn side(&self) -> u32 {
        self.side as u32
    }

    /// This side's server and its replicas are up: their processes.
    pub(crate) fn servers(&self, pids: &[u32]) {
        self.turns.lock().sides[self.side].servers = pids.to_vec();
    }

    /// Waits until all sides that are still there have come to this point, or until `is_over`.
    pub(crate) fn meet(&self, is_over: &dyn Fn() -> bool) {
        let mine = {
            let mut state = self.turns.lock();
            state.sides[self.side].met += 1;
            state.sides[self.side].met
        };
        self.turns.changed.notify_all();
        let have_all = |state: &State| state.sides.iter().all(|side| side.has_left || side.met >= mine);
        drop(self.turns.wait(is_over, have_all));
    }

    /// Waits until it is this side's turn, and the machine quiet as long as there is patience, or until `is_over`; false
    /// where the duel has all slices that it needs.
    pub(crate) fn take(&self, is_over: &dyn Fn() -> bool) -> bool {
        let order = &self.turns.order;
        let mine = |state: &State| order.get(state.at).is_none_or(|&at| at == self.side);
        let state = self.turns.wait(is_over, mine);
        if state.at >= order.len() {
            return false;
        }
        let mut patience = state.patience;
        // Nobody else moves while it is this side's turn.
        drop(state);
        while !patience.is_zero()
            && !is_over()
            && telemetry::taken_by_others(QUIET_LOOK).is_some_and(|share| share > QUIET_SHARE_MAX)
        {
            patience = patience.saturating_sub(QUIET_LOOK);
        }
        let mut state = self.turns.lock();
        state.patience = patience;
        state.taken = Instant::now();
        state.look = Look::now(&state.server_pids());
        self.of_others(&mut state, |side| side.used = Used::of_all(&side.servers));
        true
    }

    /// The turn is over: the next side goes on.
    pub(crate) fn pass(&self) {
        let mut state = self.turns.lock();
        let slice_s = state.taken.elapsed().as_secs_f64();
        self.of_others(&mut state, |side| {
            let now = Used::of_all(&side.servers);
            side.waited.add(slice_s, side.used.take(), now);
        });
        let now = Look::now(&state.server_pids());
        let share = now.zip(state.look.take()).and_then(|(now, before)| now.taken_share(&before));
        state.sides[self.side].shares.push(share);
        state.at += 1;
        let is_round = state.at.is_multiple_of(state.sides.len());
        if is_round && crowd::is_enough(&state.shares(), self.turns.wanted) {
            state.at = self.turns.order.len();
        }
        state.advance(&self.turns.order);
        drop(state);
        self.turns.changed.notify_all();
    }

    /// What is known of this side's slices, once all sides have had theirs.
    pub(crate) fn slices(&self) -> Vec<Taken> {
        let state = self.turns.lock();
        crowd::counted(&state.shares(), self.side, self.turns.wanted)
    }

    /// At which fraction of its own estimate of a line this side is to try a rate, in so many turns from this one on: where
    /// another side tries one of the same line in this round, at that one's.
    pub(crate) fn depth(&self, line: usize, own: f64, turns: u32) -> f64 {
        let mut state = self.turns.lock();
        let round = state.at / state.sides.len().max(1);
        match &state.depth {
            Some(known) if known.side != self.side && known.rounds.contains(&round) && known.line == line => {
                known.fraction
            }
            _ => {
                let rounds = round..round + turns as usize;
                state.depth = Some(Depth { side: self.side, rounds, line, fraction: own });
                own
            }
        }
    }

    /// This side has measured all that it was to; the others go on.
    pub(crate) fn rest(&self) {
        self.goes_out(|side| side.has_rested = true);
    }

    /// It takes no more turns.
    fn goes_out(&self, how: impl FnOnce(&mut Side)) {
        let mut state = self.turns.lock();
        how(&mut state.sides[self.side]);
        state.advance(&self.turns.order);
        drop(state);
        self.turns.changed.notify_all();
    }

    fn of_others(&self, state: &mut State, act: impl Fn(&mut Side)) {
        let others = state.sides.iter_mut().enumerate().filter(|(at, _)| *at != self.side);
        others.for_each(|(_, side)| act(side));
    }

    /// This side takes no more turns: what the others measure is compared with nothing.
    pub(crate) fn fail(&self) {
        self.goes_out(|side| side.has_failed = true);
    }

    /// Whether all other sides are, or were, there to the end.
    pub(crate) fn is_alone(&self) -> bool {
        self.turns.lock().sides.iter().enumerate().any(|(at, side)| at != self.side && side.has_failed)
    }

    /// What this side's server did while others were loaded.
    pub(crate) fn waited(&self) -> Waited {
        self.turns.lock().sides[self.side].waited
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.goes_out(|side| {
            side.has_left = true;
            side.servers.clear();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_followed_by_its_opposite() {
        for (sides, slices) in [(2, 12), (3, 8), (4, 7)] {
            let order = order(sides, slices, 7);
            assert_eq!(order.len(), sides * slices as usize);
            for (at, round) in order.chunks(sides).enumerate() {
                let mut sorted = round.to_vec();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..sides).collect::<Vec<_>>(), "round {at}: each side once");
            }
            for pair in order.chunks_exact(2 * sides) {
                let mut opposite = pair[..sides].to_vec();
                opposite.reverse();
                assert_eq!(opposite, pair[sides..]);
            }
        }
        let firsts = (0..200).filter(|seed| order(2, 2, *seed)[0] == 0).count();
        assert!((60..140).contains(&firsts), "a random side begins: {firsts} of 200");
    }

    #[test]
    fn sides_take_turns_and_nobody_waits_for_one_that_has_left() {
        let order = vec![0, 1, 1, 0, 1, 0];
        let turns = Turns::in_order(order.clone(), 2, 3);
        let taken = Mutex::new(Vec::new());
        let never = || false;
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (side, slices) in [(0, 3), (1, 2)] {
                let (turns, taken) = (&turns, &taken);
                scope.spawn(move || {
                    let seat = turns.seat(side);
                    seat.meet(&never);
                    for _ in 0..slices {
                        seat.take(&never);
                        taken.lock().unwrap().push(side);
                        seat.pass();
                    }
                    if side == 0 {
                        // The other side left before its third turn.
                        seat.meet(&never);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner().unwrap(), [0, 1, 1, 0, 0]);
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn the_sides_of_a_round_try_the_same_depth_and_go_on_alone_when_one_rests() {
        let turns = Turns::in_order(vec![0, 1, 1, 0, 0, 1], 2, 9);
        let never = || false;
        let (one, other) = (turns.seat(0), turns.seat(1));
        one.take(&never);
        assert_eq!(one.depth(0, 0.98, 1), 0.98);
        one.pass();
        other.take(&never);
        assert_eq!(
            (other.depth(0, 1.03, 1), other.depth(1, 1.03, 1)),
            (0.98, 1.03),
            "another line has its own"
        );
        other.pass();
        other.take(&never);
        assert_eq!(other.depth(0, 1.02, 1), 1.02, "the next round begins");
        other.pass();
        one.take(&never);
        assert_eq!(one.depth(0, 0.97, 1), 1.02);
        one.pass();
        one.rest();
        other.take(&never);
        other.pass();
        assert!(!other.is_alone(), "it has not failed");
    }

    #[test]
    fn who_comes_later_joins_a_depth_that_is_tried_in_several_turns() {
        let turns = Turns::in_order([0, 1].repeat(4), 2, 9);
        let never = || false;
        let (one, other) = (turns.seat(0), turns.seat(1));
        let round = |of_one: Option<f64>, of_other: Option<f64>| {
            let mut tried = Vec::new();
            for (seat, own) in [(&one, of_one), (&other, of_other)] {
                seat.take(&never);
                tried.extend(own.map(|own| seat.depth(0, own, 3)));
                seat.pass();
            }
            tried
        };
        assert_eq!(round(Some(0.98), None), [0.98]);
        assert_eq!(round(None, Some(1.03)), [0.98], "the second of three turns");
        assert_eq!(round(None, None), [0.0; 0]);
        assert_eq!(round(Some(1.02), None), [1.02]);
    }

    #[test]
    fn a_side_that_failed_leaves_the_others_alone() {
        let turns = Turns::in_order(vec![0, 1], 2, 1);
        let (one, other) = (turns.seat(0), turns.seat(1));
        assert!(!one.is_alone());
        other.fail();
        drop(other);
        assert!(one.is_alone());
    }

    #[test]
    fn nobody_waits_for_the_turns_of_a_side_whose_load_has_failed() {
        let turns = Turns::in_order(vec![0, 1, 1, 0], 2, 2);
        let never = || false;
        let (one, other) = (turns.seat(0), turns.seat(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                other.take(&never);
                other.pass();
                // Its load breaks off: it has a turn left, and waits for the others' ends.
                other.fail();
                other.meet(&never);
            });
            for _ in 0..2 {
                one.take(&never);
                one.pass();
            }
            one.meet(&never);
        });
        assert!(one.is_alone());
    }
}
