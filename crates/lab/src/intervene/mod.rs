//! Interventions: what is switched on and off while a server is loaded, so that both are measured within one life of it.
//!
//! The load of such a life is cut into phases, as that of a duel is into slices, and all phases of one state are one level:
//! a run of the study's own, which differs from those of the other states in the axis `intervene`. Rounds of all states in
//! a random order are each followed by one in the opposite order.

mod server;
pub(crate) mod timed;
pub(crate) mod variable;

use std::time::Duration;

use load::Step;
use store::NO_INTERVENTION;

use crate::duel::crowd::Taken;
use crate::duel::turns::{ROUNDS_FACTOR, Seat, Turns};
use crate::duel::{SLICE_WARMUP, in_parts};
use crate::error::Error;
use crate::intervene::server::{Readings, Server};
use crate::study::{Body, Change, Intervention, Length};

/// What a run switches between.
pub(crate) struct Phases {
    /// The states that are measured, in the order of the runs that they become. `None`: nothing is switched on.
    states: Vec<Option<State>>,
    turns: Turns,
    /// Phases of each state.
    pub(crate) wanted: u32,
    phase: Duration,
}

/// A state of the server that is switched on.
#[derive(Debug, Clone)]
pub(crate) struct State {
    name: String,
    change: Change,
}

impl Phases {
    /// Of the runs with these values of the axis, in a level of `length`.
    ///
    /// # Errors
    /// One of them says nothing of servers of the flavour.
    pub(crate) fn new(
        body: &Body,
        flavor: sandbox::Flavor,
        values: &[&str],
        length: Length,
        seed: u64,
    ) -> Result<Phases, Error> {
        let state = |value: &&str| {
            let of_study = body.axes.intervene.iter().find(|intervention| intervention.name == **value);
            let change = |known: &Intervention| {
                known.change.of(flavor).cloned().ok_or_else(|| unsaid(&known.name, flavor))
            };
            let state = |known: &Intervention| Ok(State { name: known.name.clone(), change: change(known)? });
            of_study.map(state).transpose()
        };
        let states: Vec<Option<State>> = values.iter().map(state).collect::<Result<_, Error>>()?;
        let phase = phase_of(body);
        let wanted = phases_in(length, phase);
        Ok(Phases { turns: Turns::new(states.len(), wanted, seed), states, wanted, phase })
    }

    /// How many runs it becomes.
    pub(crate) fn sides(&self) -> usize {
        self.states.len()
    }

    /// The steps of the load of `level`: as many as there may be, should others disturb some of them.
    pub(crate) fn steps(&self, level: Step) -> Vec<Step> {
        let warmup = (self.phase / 10).max(SLICE_WARMUP);
        in_parts(level, self.wanted * self.states.len() as u32 * ROUNDS_FACTOR, self.phase, warmup)
    }
}

/// A change that is none on servers of a flavour.
pub(crate) fn unsaid(name: &str, flavor: sandbox::Flavor) -> Error {
    Error::Usage(format!("[[intervene]] `{name}` says nothing of {flavor}"))
}

/// How long one phase of a study lasts: a second where it does not say.
pub(crate) fn phase_of(body: &Body) -> Duration {
    body.load.phase.unwrap_or(Duration::from_secs(1))
}

/// Phases of each state in a level: together as long as it, and at least two.
pub(crate) fn phases_in(length: Length, phase: Duration) -> u32 {
    let Length::Time(length) = length else { return crate::study::PHASES_MIN };
    ((length.as_secs_f64() / phase.as_secs_f64()).round() as u32).max(crate::study::PHASES_MIN)
}

/// A life whose server is switched.
pub(crate) struct Switching<'a> {
    order: &'a Phases,
    seats: Vec<Seat<'a>>,
    server: Server,
    /// What the server's variables are in each state.
    expected: Vec<Readings>,
    /// By phase that began: its state.
    begun: Vec<usize>,
    /// The state that the server is in.
    at: usize,
    /// Phases in which the server was not in the state that was asked for.
    faults: Vec<String>,
    /// Why the life cannot go on.
    failed: Option<Error>,
}

impl<'a> Switching<'a> {
    /// Goes through all states once before there is load: what a server does not take is told before minutes are spent on
    /// it, and what its variables are in each state is known.
    pub(crate) fn open(order: &'a Phases, target: &wire::Target) -> Result<Switching<'a>, Error> {
        let changes: Vec<&Change> = order.states.iter().flatten().map(|state| &state.change).collect();
        let mut server = Server::open(target, &changes)?;
        let mut expected = Vec::new();
        for state in &order.states {
            let Some(state) = state else {
                expected.push(Readings::default());
                continue;
            };
            let tried = server.try_out(&state.name, &state.change);
            if tried.is_err() {
                // Whatever it got to.
                let _ = server.switch_off(&state.change);
            }
            expected.push(tried?);
        }
        let nothing = server.read()?;
        for (state, readings) in order.states.iter().zip(&mut expected) {
            // What is not this state's own is as it is where nothing is switched on.
            let own = state.as_ref().map(|state| server::variables(&state.change)).unwrap_or_default();
            readings.0.retain(|name, _| own.contains(name));
            nothing.0.iter().for_each(|(name, value)| {
                readings.0.entry(name.clone()).or_insert_with(|| value.clone());
            });
        }
        // Nothing is switched on now; it may be no state of the run's own.
        let at = order.states.len();
        let seats = (0..order.states.len()).map(|side| order.turns.seat(side)).collect();
        Ok(Switching {
            order,
            seats,
            server,
            expected,
            begun: Vec::new(),
            at,
            faults: Vec::new(),
            failed: None,
        })
    }

    /// The processes of the server and its replicas, for what others take of the machine meanwhile.
    pub(crate) fn servers(&self, pids: &[u32]) {
        if let Some(seat) = self.seats.first() {
            seat.servers(pids);
        }
    }

    /// A phase is about to begin: its state is switched. False where there is none, be it that all are measured, be it
    /// that the server refused.
    pub(crate) fn begin(&mut self, is_over: &dyn Fn() -> bool) -> bool {
        let Some(side) = self.order.turns.whose().filter(|_| self.failed.is_none()) else { return false };
        if !self.seats[side].take(is_over) {
            return false;
        }
        match self.switch_to(side) {
            Ok(()) => {
                self.begun.push(side);
                true
            }
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    /// The phase is over: whether the server was in its state to the end.
    pub(crate) fn end(&mut self) {
        let Some(side) = self.begun.last().copied() else { return };
        self.seats[side].pass();
        let number = self.begun.len();
        match self.server.read() {
            Ok(readings) => {
                self.find_faults(&readings, side, &format!("phase {number}, {}", self.name(side)));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// How many runs it becomes.
    pub(crate) fn sides(&self) -> usize {
        self.order.states.len()
    }

    fn name(&self, side: usize) -> &str {
        self.order.states.get(side).and_then(Option::as_ref).map_or(NO_INTERVENTION, |state| &state.name)
    }

    fn switch_to(&mut self, side: usize) -> Result<(), Error> {
        if self.at != side {
            self.switch_off()?;
            if let Some(state) = &self.order.states[side] {
                // Before it is tried: half of it may be done when it fails.
                self.at = side;
                self.server.switch_on(&state.change)?;
            }
            self.at = side;
        }
        let readings =
            self.server.read_until(|readings| self.expected[side].differing(readings).next().is_none())?;
        let number = self.begun.len() + 1;
        self.find_faults(&readings, side, &format!("phase {number}, {}, at its start", self.name(side)));
        Ok(())
    }

    fn find_faults(&mut self, readings: &Readings, side: usize, when: &str) {
        let differing = self.expected[side].differing(readings);
        self.faults.extend(differing.map(|text| format!("{when}: {text}")));
    }

    fn switch_off(&mut self) -> Result<(), Error> {
        if let Some(state) = self.order.states.get(self.at).and_then(Option::as_ref) {
            self.server.switch_off(&state.change)?;
        }
        self.at = self.order.states.len();
        Ok(())
    }

    /// Switches back, however the load ended. What could not be taken back, and what is not as it was found, for people.
    pub(crate) fn restore(&mut self) -> Vec<String> {
        let name = self.name(self.at).to_owned();
        let mut told = Vec::new();
        if let Err(error) = self.switch_off() {
            let change = self.order.states.get(self.at).and_then(Option::as_ref).map(|state| &state.change);
            let back = change.map(|change| self.server.statements_off(change).join("; ")).unwrap_or_default();
            told.push(format!("`{name}` could not be switched off again: {error}; do it by hand: {back}"));
            return told;
        }
        if let Ok(readings) = self.server.read() {
            told.extend(self.server.found.differing(&readings).map(|text| {
                format!(
                    "{text}; the run found it otherwise, and leaves it as its [[intervene]] switches it off"
                )
            }));
        }
        told
    }

    /// Why the load had to end, if a switch was the reason.
    pub(crate) fn failed(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// By phase of the load: the run that it is of, and what is known of it.
    pub(crate) fn phases(&self) -> Vec<(usize, Taken)> {
        let mut of_sides: Vec<_> = self.seats.iter().map(|seat| seat.slices().into_iter()).collect();
        self.begun.iter().map(|side| (*side, of_sides[*side].next().unwrap_or(Taken::UNSEEN))).collect()
    }

    /// What the run of a state was, for its record.
    pub(crate) fn record(&self, side: usize) -> store::Intervention {
        let state = self.order.states[side].as_ref();
        let masked = |statements: Vec<String>| server::shown(&statements);
        store::Intervention {
            name: self.name(side).to_owned(),
            on: state.map(|state| masked(self.server.statements_on(&state.change))).unwrap_or_default(),
            off: state.map(|state| masked(self.server.statements_off(&state.change))).unwrap_or_default(),
            readings: self.expected[side].0.clone(),
            at_s: None,
            took_s: None,
        }
    }

    /// Whether the server was in every phase as it was asked to be.
    pub(crate) fn gate(&self) -> telemetry::gates::Gate {
        let variables = self.expected.first().map_or(0, |readings| readings.0.len());
        telemetry::gates::intervention(self.begun.len(), variables, &self.faults)
    }
}

impl Drop for Switching<'_> {
    /// Also where the run ended in a panic.
    fn drop(&mut self) {
        let _ = self.switch_off();
    }
}
