//! Which rate to try next, and what the lines are.

use super::fit::{DISPERSION_START, Fit, Interval, Stand, dispersion, fit, is_near, stand};
use super::{Count, Probe};

/// What a search keeps to. Rates are arrivals per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// By promise: the share of transactions that may break it, within (0, 1).
    pub allowed: Vec<f64>,
    /// Seconds for all of it.
    pub budget_s: f64,
    /// How long a line is held to confirm it.
    pub hold_s: f64,
    /// Before each probe, not counted.
    pub warmup_s: f64,
    /// What a probe is thought to take beside its warm-up and its measured seconds, before one has shown it.
    pub rest_s: f64,
    /// Half of the 95 % interval, relative to the rate, that is good enough.
    pub precision: f64,
    pub start: f64,
    /// No lower rate is tried.
    pub floor: f64,
    /// No higher rate is tried.
    pub ceiling: f64,
}

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To find rates on both sides of the line.
    Bracket,
    /// To tell where between them it lies.
    Refine,
    /// To confirm it.
    Hold,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    Probe {
        /// Arrivals per second.
        rate: f64,
        /// Measured for so long, unless [`super::is_over`] ends it.
        seconds: f64,
        /// The promise whose line it is about.
        focus: usize,
        purpose: Purpose,
    },
    /// All that can be known within the budget is known.
    Done,
}

/// Why the search for a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The line is known as well as was asked for.
    Found,
    /// The budget was used up before that.
    Budget,
    /// The promise is kept at the highest rate that may be tried.
    Ceiling,
    /// The promise is broken at the lowest rate that may be tried.
    Floor,
}

/// A line that was held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// Index of the probe.
    pub probe: usize,
    /// At this rate.
    pub rate: f64,
    /// The promise was kept over all of it.
    pub is_kept: bool,
}

/// The line of one promise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The highest rate that keeps the promise, as far as it could be told; `None` where no rate is known to.
    pub line: Option<f64>,
    /// The middle of what all probes, the holds included, say of where the share of broken promises is the allowed one; `None`
    /// where no fit could be made.
    pub middle: Option<f64>,
    /// 95 % interval of the same; its ends are `None` where nothing bounds them.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// Its confirmation: the last one, or the one that was kept.
    pub hold: Option<Hold>,
    pub end: End,
}

/// What is known of one promise.
#[derive(Debug, Clone)]
enum State {
    /// The line lies between two rates that are far from each other, or beyond all that were tried.
    Bracket(f64),
    /// Broken at the floor.
    Floor,
    /// Kept at the ceiling.
    Ceiling,
    Fitted(Fit),
}

/// The highest rate known to keep a promise and the lowest known to break it; natural logarithms.
#[derive(Debug, Clone, Copy, Default)]
struct Bracket {
    kept: Option<f64>,
    broken: Option<f64>,
}

/// A search: its rules and the probes so far.
#[derive(Debug, Clone)]
pub struct Search {
    rules: Rules,
    probes: Vec<Probe>,
    spent_s: f64,
}

/// Steps while there is no bracket, as factors of the rate.
const STEP_UP: f64 = 1.35;
const STEP_DOWN: f64 = 0.65;
/// A bracket this narrow (in the logarithm of the rate) is left to the fit.
const BRACKET_MAX: f64 = 0.36;
/// A bracket that a probe lies in which could not tell is left to the fit, too, as that probe lies near the line: no farther
/// from it than this.
const FIT_MAX: f64 = 0.6;
/// By how much the log-odds of breaking a promise rise at least, as a rule, for each unit of the logarithm of the rate.
const FLAT: f64 = 4.0;
/// A fit looks beyond its bracket by this much, as a single probe may err.
const MARGIN: f64 = 0.04;
/// Probes this near to the line count as being about it.
const NEAR: f64 = 0.08;
/// So many, for so long, before a line is called known: what happens once a minute must have had its chance.
const NEAR_PROBES_MIN: usize = 3;
const NEAR_S_MIN: f64 = 60.0;
/// Transactions that the promise would allow to break it, in a probe that is worth its time.
const EXPECTED_MIN: f64 = 30.0;
/// The rate that is held: the line is below it with this probability, but it is not farther below the middle of the interval
/// than this factor says; at first, and after a hold that was broken, which has shown how much a minute may differ from others.
const HELD: [(f64, f64); 2] = [(0.2, 0.98), (0.1, 0.97)];
/// An interval that is wider than was asked for by no more than this factor is what was asked for.
const FOUND: f64 = 1.5;
/// Share of the budget.
const KEPT_BACK: f64 = 0.003;
const HOLDS_MAX: usize = 5;
/// What is left of the worth of probes when a hold has shown that the server has changed since.
const OUTDATED: f64 = 0.1;
/// Of the budget, that may be kept back for holds so that one more fits than there are lines.
const HOLDS_SHARE_MAX: f64 = 0.45;
/// A rate that could not be held is not held again.
const BELOW_FAILED: f64 = 0.985;
/// A hold shorter than this confirms nothing.
const HOLD_S_MIN: f64 = 5.0;

impl Search {
    /// Begins, or goes on after these probes. `spent_s`: of the budget, before the first of them.
    pub fn new(rules: Rules, probes: Vec<Probe>, spent_s: f64) -> Search {
        let spent_s = spent_s + probes.iter().map(|probe| probe.took_s).sum::<f64>();
        Search { rules, probes, spent_s }
    }

    /// Takes what a probe saw.
    pub fn record(&mut self, probe: Probe) {
        self.spent_s += probe.took_s;
        self.probes.push(probe);
    }

    /// Counts time that went by without a probe that can be used.
    pub fn spend(&mut self, seconds: f64) {
        self.spent_s += seconds;
    }

    /// Of the budget.
    pub fn spent_s(&self) -> f64 {
        self.spent_s
    }

    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn next(&self) -> Next {
        let states: Vec<State> = (0..self.rules.allowed.len()).map(|index| self.state(index)).collect();
        let open: Vec<usize> =
            (0..states.len()).filter(|index| self.is_open(*index, &states[*index])).collect();
        let (first, later): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|index| self.comes_first(**index));
        let hold_s = match self.hold_s(first.len()) {
            Some(hold_s) => hold_s,
            None if first.is_empty() => 0.0,
            None => return Next::Done,
        };
        let held_s = hold_s + self.beside_s();
        let reserved = (first.len() + self.spare_holds(first.len(), held_s)) as f64 * held_s;
        let left_s = self.left_s() - reserved;
        let mut wanted = self.wanted(&states, &first);
        wanted.extend(self.wanted(&states, &later));
        let within = |left_s: f64, (focus, rate, purpose): (usize, f64, Purpose)| {
            let seconds = self.seconds(focus, rate, purpose).min(left_s - self.beside_s());
            let is_worth_it = seconds >= self.seconds_min(focus, rate);
            is_worth_it.then_some(Next::Probe { rate, seconds, focus, purpose })
        };
        if let Some(next) = wanted.iter().find_map(|one| within(left_s, *one)) {
            return next;
        }
        // A line that is not bracketed cannot be held: what was kept for its hold is of more use now.
        let is_none_fitted = !open.iter().any(|index| matches!(states[*index], State::Fitted(_)));
        let bracket = wanted.first().filter(|_| is_none_fitted);
        if let Some(next) = bracket.and_then(|one| within(left_s + reserved, *one)) {
            return next;
        }
        // The highest line first: what it shows, it shows of no other.
        let held = first.iter().filter_map(|index| match &states[*index] {
            State::Fitted(fit) => Some((*index, self.held_rate(*index, fit))),
            _ => None,
        });
        if let Some((focus, rate)) = held.max_by(|a, b| a.1.total_cmp(&b.1)) {
            return Next::Probe { rate, seconds: hold_s, focus, purpose: Purpose::Hold };
        }
        // What was kept for a hold that is not needed makes the interval narrower.
        let kept: Vec<usize> = (0..states.len()).filter(|index| !open.contains(index)).collect();
        self.wanted(&states, &kept).iter().find_map(|one| within(left_s, *one)).unwrap_or(Next::Done)
    }

    /// How many holds are kept back beyond one for each line that is open: one, as a hold may be broken, unless all of them would
    /// take too much of the budget.
    fn spare_holds(&self, open: usize, held_s: f64) -> usize {
        let is_any_broken =
            (0..self.rules.allowed.len()).any(|index| self.holds(index).any(|hold| !hold.is_kept));
        let is_affordable = (open + 1) as f64 * held_s <= HOLDS_SHARE_MAX * self.rules.budget_s;
        usize::from(open > 0 && !is_any_broken && is_affordable)
    }

    /// What is to be tried about these promises, the most telling first: lines that are not bracketed yet, then those that are
    /// known worst.
    fn wanted(&self, states: &[State], open: &[usize]) -> Vec<(usize, f64, Purpose)> {
        let bracket = |index: &usize| match states[*index] {
            State::Bracket(rate) => Some((*index, rate, Purpose::Bracket)),
            _ => None,
        };
        let unknown = |index: &usize| match &states[*index] {
            State::Fitted(fit) if !self.is_known(*index, fit) => Some((*index, fit)),
            _ => None,
        };
        // Of a line that no rate is known to keep, nothing is known.
        let width = |(index, fit): &(usize, &Fit)| {
            if self.is_kept_somewhere(*index) { fit.half_width() } else { f64::INFINITY }
        };
        let mut refined: Vec<(usize, &Fit)> = open.iter().filter_map(unknown).collect();
        refined.sort_by(|a, b| width(b).total_cmp(&width(a)));
        let refined = refined.iter().map(|(index, fit)| (*index, self.refined(fit), Purpose::Refine));
        open.iter().filter_map(bracket).chain(refined).collect()
    }

    /// A promise that no rate has kept has its share of the budget, and then what the others leave: it may be one that none keeps.
    fn comes_first(&self, index: usize) -> bool {
        let theirs = self.probes.iter().filter(|probe| probe.focus == index);
        let spent_s: f64 = theirs.map(|probe| probe.took_s).sum();
        self.is_kept_somewhere(index) || spent_s < self.rules.budget_s / self.rules.allowed.len() as f64
    }

    /// The line of each promise, as far as the probes tell.
    pub fn answers(&self) -> Vec<Answer> {
        (0..self.rules.allowed.len()).map(|index| self.answer(index)).collect()
    }

    /// Where the line of a promise is looked for: the highest rate known to keep it, and the lowest known to break it.
    pub fn bracket(&self, index: usize) -> (Option<f64>, Option<f64>) {
        let bracket = self.bracket_of(index);
        (bracket.kept.map(f64::exp), bracket.broken.map(f64::exp))
    }

    /// The middle of what is known of a line, once it is bracketed.
    pub fn estimate(&self, index: usize) -> Option<f64> {
        match self.state(index) {
            State::Fitted(fit) => Some(fit.quantile(0.5)),
            _ => None,
        }
    }

    fn answer(&self, index: usize) -> Answer {
        let hold = self.last_hold(index);
        let bracket = self.bracket_of(index);
        let nothing = Answer { line: None, middle: None, low: None, high: None, hold, end: End::Floor };
        match self.state(index) {
            State::Floor => Answer { high: bracket.broken.map(f64::exp), ..nothing },
            State::Ceiling => {
                let line = Some(self.rules.ceiling);
                Answer { line, low: line, end: End::Ceiling, ..nothing }
            }
            State::Bracket(_) => {
                let [low, high] = [bracket.kept, bracket.broken].map(|end| end.map(f64::exp));
                Answer { line: low, low, high, end: End::Budget, ..nothing }
            }
            State::Fitted(fit) => {
                let Interval { low, middle, high } = fit.interval();
                let line = match hold {
                    Some(hold) if hold.is_kept => hold.rate,
                    _ => self.line(index, &fit),
                };
                if !self.is_kept_somewhere(index) {
                    return Answer { high: Some(high), end: End::Budget, ..nothing };
                }
                // A bound that the probes did not see broken is none.
                let high = bracket.broken.or(self.highest_open(index)).map(|_| high.max(line));
                // What the hold adds may widen the interval a little again.
                let is_found = fit.half_width() <= FOUND * self.rules.precision;
                let end = if is_found { End::Found } else { End::Budget };
                Answer { line: Some(line), middle: Some(middle), low: Some(low.min(line)), high, hold, end }
            }
        }
    }

    /// Whether any rate that was tried kept the promise, be it by chance.
    fn is_kept_somewhere(&self, index: usize) -> bool {
        self.probes
            .iter()
            .any(|probe| !probe.is_overloaded && probe.seen[index].total.share() <= self.rules.allowed[index])
    }

    fn highest_open(&self, index: usize) -> Option<f64> {
        let over = |probe: &&Probe| probe.seen[index].total.share() > self.rules.allowed[index];
        self.probes.iter().filter(over).map(|probe| probe.rate.ln()).max_by(f64::total_cmp)
    }

    /// Whether there is something left to find out about a promise.
    fn is_open(&self, index: usize, state: &State) -> bool {
        let holds: Vec<Hold> = self.holds(index).collect();
        let is_over = holds.iter().any(|hold| hold.is_kept) || holds.len() >= HOLDS_MAX;
        !is_over && matches!(state, State::Bracket(_) | State::Fitted(_))
    }

    fn holds(&self, index: usize) -> impl Iterator<Item = Hold> {
        let allowed = self.rules.allowed[index];
        self.probes
            .iter()
            .enumerate()
            .filter(move |(_, probe)| probe.purpose == Purpose::Hold && probe.focus == index)
            .map(move |(at, probe)| Hold {
                probe: at,
                rate: probe.rate,
                is_kept: !probe.is_overloaded && probe.seen[index].total.share() <= allowed,
            })
    }

    fn last_hold(&self, index: usize) -> Option<Hold> {
        let holds: Vec<Hold> = self.holds(index).collect();
        holds.iter().find(|hold| hold.is_kept).or(holds.last()).copied()
    }

    fn held_rate(&self, index: usize, fit: &Fit) -> f64 {
        let failed = self.holds(index).filter(|hold| !hold.is_kept).map(|hold| hold.rate * BELOW_FAILED);
        failed.fold(self.line(index, fit), f64::min).clamp(self.rules.floor, self.rules.ceiling)
    }

    /// The line is above this rate with some confidence; as far below the middle as the interval asks for, up to a limit.
    fn line(&self, index: usize, fit: &Fit) -> f64 {
        let (below, least) = HELD[self.holds(index).count().min(1)];
        let line = fit.quantile(below).max(least * fit.quantile(0.5));
        line.clamp(self.rules.floor, self.rules.ceiling)
    }

    /// Of the budget. A little is kept back: probes end on the arrival after their time.
    fn left_s(&self) -> f64 {
        (1.0 - KEPT_BACK) * self.rules.budget_s - self.spent_s
    }

    /// How long each of the lines that are open may be held; `None` where there is none, or no time for it.
    fn hold_s(&self, open: usize) -> Option<f64> {
        let each_s = self.left_s() / open as f64 - self.beside_s();
        (open > 0 && each_s >= HOLD_S_MIN.min(self.rules.hold_s)).then_some(each_s.min(self.rules.hold_s))
    }

    /// What a probe takes beside its measured seconds.
    fn beside_s(&self) -> f64 {
        let seconds = |probe: &Probe| probe.seen.first().map_or(0, |seen| seen.seconds.len()) as f64;
        let beside = self.probes.iter().map(|probe| probe.took_s - seconds(probe));
        beside.fold(self.rules.warmup_s + self.rules.rest_s, f64::max)
    }

    fn seconds(&self, focus: usize, rate: f64, purpose: Purpose) -> f64 {
        let budget_s = self.rules.budget_s;
        let told_s = EXPECTED_MIN / (self.rules.allowed[focus] * rate);
        match purpose {
            Purpose::Bracket => told_s.clamp(5.0, (budget_s / 15.0).max(5.0)),
            _ => (budget_s / 20.0).clamp(8.0, 60.0).max(told_s.min(budget_s / 8.0)),
        }
    }

    /// A probe that sees less of what it is about is not worth its warm-up.
    fn seconds_min(&self, focus: usize, rate: f64) -> f64 {
        (EXPECTED_MIN / 3.0 / (self.rules.allowed[focus] * rate))
            .clamp(3.0, (self.rules.budget_s / 8.0).max(3.0))
    }

    /// Enough is known about where the line lies.
    fn is_known(&self, index: usize, fit: &Fit) -> bool {
        let middle = fit.quantile(0.5).ln();
        let near = self.probes.iter().filter(|probe| (probe.rate.ln() - middle).abs() < NEAR);
        let (count, seconds) = near.fold((0, 0.0), |(count, seconds), probe| {
            (count + 1, seconds + probe.seen[index].seconds.len() as f64)
        });
        fit.half_width() <= self.rules.precision
            && count >= NEAR_PROBES_MIN
            && seconds >= NEAR_S_MIN.min(self.rules.budget_s / 5.0)
    }

    /// Near the line, below and above in turn: shares on both sides tell the slope.
    fn refined(&self, fit: &Fit) -> f64 {
        let middle = fit.quantile(0.5);
        let near = self.probes.iter().filter(|probe| (probe.rate / middle).ln().abs() < NEAR).count();
        let aside = (0.5 / fit.slope).clamp(0.008, 0.04);
        let rate = if near % 2 == 0 { middle * (1.0 - aside) } else { middle * (1.0 + aside) };
        rate.clamp(self.rules.floor, self.rules.ceiling)
    }

    /// What each probe alone says of a promise.
    fn stands(&self, index: usize) -> impl Iterator<Item = (&Probe, Stand)> {
        let allowed = self.rules.allowed[index];
        let seen = self.probes.iter().map(|probe| &probe.seen[index]);
        let dispersion = dispersion(seen, allowed).max(DISPERSION_START);
        self.probes
            .iter()
            .map(move |probe| (probe, stand(&probe.seen[index], probe.is_overloaded, allowed, dispersion)))
    }

    fn bracket_of(&self, index: usize) -> Bracket {
        let mut bracket = Bracket::default();
        for (probe, stand) in self.stands(index) {
            let x = probe.rate.ln();
            match stand {
                Stand::Kept => bracket.kept = Some(bracket.kept.map_or(x, |kept| kept.max(x))),
                Stand::Broken => bracket.broken = Some(bracket.broken.map_or(x, |broken| broken.min(x))),
                Stand::Open => {}
            }
        }
        bracket
    }

    /// How much each probe says of the line as it is now: a hold that was plainly broken, where the probes before it had made a
    /// kept one likely, says that the server has changed since.
    fn worth(&self, index: usize) -> Vec<f64> {
        let mut worth = vec![1.0; self.probes.len()];
        for (at, (probe, stand)) in self.stands(index).enumerate() {
            if probe.purpose == Purpose::Hold && probe.focus == index && stand == Stand::Broken {
                worth[..at].iter_mut().for_each(|worth| *worth *= OUTDATED);
            }
        }
        worth
    }

    /// Probes of this logarithm of the rate.
    fn at(&self, x: f64) -> impl Iterator<Item = &Probe> {
        self.probes.iter().filter(move |probe| (probe.rate.ln() - x).abs() < 1e-9)
    }

    /// Whether all that was tried at this rate was broken by so little that the line is not far below it.
    fn is_nearly_kept(&self, index: usize, x: f64) -> bool {
        self.at(x).all(|probe| !probe.is_overloaded && is_near(&probe.seen[index], self.rules.allowed[index]))
    }

    /// How far below the lowest rate that was tried, and not known to keep the promise, the line may be: as far as a
    /// flat slope takes the share that was seen there to the allowed one.
    fn lowest_line(&self, index: usize, lowest: f64) -> f64 {
        let share = self.at(lowest).map(|probe| probe.seen[index].total).sum::<Count>().share();
        lowest - (0.5 * BRACKET_MAX).max((share / self.rules.allowed[index]).ln() / FLAT)
    }

    /// Of the rates within a range of logarithms, that whose share was nearest to the allowed one.
    fn nearest_within(&self, index: usize, range: (f64, f64)) -> Option<f64> {
        let off = |probe: &Probe| {
            let total = probe.seen[index].total;
            // Half a transaction: none over the limit is not infinitely far.
            let share = (total.over as f64 + 0.5) / (total.transactions as f64 + 1.0);
            (share / self.rules.allowed[index]).ln().abs()
        };
        let there = self.probes.iter().filter(|probe| {
            let x = probe.rate.ln();
            range.0 + 1e-9 < x && x < range.1 - 1e-9
        });
        there.min_by(|a, b| off(a).total_cmp(&off(b))).map(|probe| probe.rate.ln())
    }

    fn state(&self, index: usize) -> State {
        let Rules { start, floor, ceiling, .. } = self.rules;
        let within = |rate: f64| State::Bracket(rate.clamp(floor, ceiling));
        if self.probes.is_empty() {
            return within(start);
        }
        let Bracket { kept, broken } = self.bracket_of(index);
        if kept.is_some_and(|kept| kept >= ceiling.ln() - 1e-9) && broken.is_none() {
            return State::Ceiling;
        }
        if broken.is_some_and(|broken| broken <= floor.ln() + 1e-9) && kept.is_none() {
            return State::Floor;
        }
        // Rates at which a probe could not tell lie near the line.
        let tried = self.probes.iter().map(|probe| probe.rate.ln());
        let (lowest, highest) =
            tried.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let range = match (kept, broken) {
            (Some(kept), Some(broken)) => (kept.min(broken), kept.max(broken)),
            (None, Some(broken)) if broken - lowest < 1e-9 && !self.is_nearly_kept(index, lowest) => {
                return within(broken.exp() * STEP_DOWN);
            }
            (None, Some(broken)) => (self.lowest_line(index, lowest), broken),
            (Some(kept), None) if highest - kept < 1e-9 => return within(kept.exp() * STEP_UP),
            (Some(kept), None) => (kept, highest + 0.5 * BRACKET_MAX),
            (None, None) => (self.lowest_line(index, lowest), highest + 0.5 * BRACKET_MAX),
        };
        let range = match self.nearest_within(index, range) {
            _ if range.1 - range.0 <= BRACKET_MAX => range,
            Some(x) => (range.0.max(x - FIT_MAX), range.1.min(x + FIT_MAX)),
            None => return within((0.5 * (range.0 + range.1)).exp()),
        };
        State::Fitted(fit(
            &self.probes,
            &self.worth(index),
            index,
            self.rules.allowed[index],
            (range.0 - MARGIN, range.1 + MARGIN),
        ))
    }
}

/// All that several counts hold.
impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |sum, count| Count {
            transactions: sum.transactions + count.transactions,
            over: sum.over + count.over,
        })
    }
}
