//! A queue whose line is known: Poisson arrivals at one or more servers, first come, first served. Waiting times follow
//! Lindley's recursion (1952), with several servers Kiefer's and Wolfowitz's (1955).

use stats::rng::Rng;

/// Of the time that a transaction takes on an idle server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Service {
    Exponential,
    /// The sum of four exponential stages.
    Erlang4,
    /// The logarithm is normal, with this standard deviation.
    LogNormal(f64),
    /// One in ten takes eight times as long as the others.
    TwoKinds,
    Constant,
}

/// What else the server does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Habit {
    Plain,
    /// Whoever has waited for two mean services or more takes 10 % longer: contention.
    Knee,
    /// Once a minute nothing is served for 100 ms.
    Stall,
    /// Capacity goes up and down by 2 % in four minutes.
    Drift,
    /// At a random time between one and four minutes after the search began, and from then on, everything takes 10 % longer.
    Slows,
}

/// A server under a known load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Model {
    pub(super) servers: usize,
    pub(super) service: Service,
    pub(super) habit: Habit,
    /// Mean of the service time that is drawn.
    pub(super) mean_s: f64,
    /// What each transaction takes beside it.
    pub(super) beside_s: f64,
}

const STALL_EVERY_S: f64 = 60.0;
const STALL_S: f64 = 0.1;
const DRIFT_PERIOD_S: f64 = 240.0;
const DRIFT: f64 = 0.02;
const SLOWS_FROM_S: f64 = 60.0;
/// Of a drift's period.
const SLOWS_WITHIN: f64 = 0.75;
pub(super) const SLOWS_TO: f64 = 1.1;

/// Its state as time goes on.
pub(super) struct Queue {
    model: Model,
    rng: Rng,
    /// When each server becomes free.
    free_at: Vec<f64>,
    now: f64,
    /// Where in its minute and its drift the server was at time 0.
    phase_s: f64,
}

impl Queue {
    pub(super) fn new(model: Model, seed: u64) -> Queue {
        let mut rng = Rng::new(seed);
        let phase_s = rng.unit() * DRIFT_PERIOD_S;
        Queue { model, rng, free_at: vec![0.0; model.servers], now: 0.0, phase_s }
    }

    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// Lets time go by without arrivals; what was waited for is served or dropped.
    pub(super) fn rest(&mut self, seconds: f64) {
        self.now += seconds;
        let now = self.now;
        self.free_at.iter_mut().for_each(|free| *free = free.min(now));
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.rng.unit()).ln()
    }

    fn service(&mut self) -> f64 {
        let drawn = match self.model.service {
            Service::Exponential => self.exponential(),
            Service::Erlang4 => (0..4).map(|_| self.exponential()).sum::<f64>() / 4.0,
            Service::LogNormal(sigma) => (sigma * self.rng.normal() - 0.5 * sigma.powi(2)).exp(),
            Service::TwoKinds => (if self.rng.below(10) == 0 { 8.0 } else { 1.0 }) / 1.7,
            Service::Constant => 1.0,
        };
        let drift = match self.model.habit {
            Habit::Slows if self.now > SLOWS_FROM_S + self.phase_s * SLOWS_WITHIN => SLOWS_TO,
            Habit::Drift => {
                let turn = (self.now + self.phase_s) / DRIFT_PERIOD_S;
                1.0 + DRIFT * (std::f64::consts::TAU * turn).sin()
            }
            _ => 1.0,
        };
        drawn * self.model.mean_s * drift + self.model.beside_s
    }

    /// The end of a service that begins at `begin`, where the server stands still at times.
    fn end(&self, begin: f64, service: f64) -> f64 {
        if self.model.habit != Habit::Stall {
            return begin + service;
        }
        let stall = ((begin + self.phase_s) / STALL_EVERY_S).floor() * STALL_EVERY_S - self.phase_s;
        let begin = if begin < stall + STALL_S { stall + STALL_S } else { begin };
        let next = stall + STALL_EVERY_S;
        if begin + service > next { begin + service + STALL_S } else { begin + service }
    }

    /// The next arrival of a Poisson process of this rate: when it comes, and its response time; seconds.
    pub(super) fn arrival(&mut self, rate: f64) -> (f64, f64) {
        self.now += self.exponential() / rate;
        let service = self.service();
        let first = self.free_at.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        let (server, free) = first.map_or((0, 0.0), |(server, free)| (server, *free));
        let begin = free.max(self.now);
        let is_late = self.model.habit == Habit::Knee && begin - self.now > 2.0 * self.model.mean_s;
        let end = self.end(begin, if is_late { 1.1 * service } else { service });
        self.free_at[server] = end;
        (self.now, end - self.now)
    }

    /// How long an arrival would wait now.
    pub(super) fn backlog_s(&self) -> f64 {
        let first = self.free_at.iter().copied().fold(f64::INFINITY, f64::min);
        (first - self.now).max(0.0)
    }
}

/// Whole turns of what comes and goes, so that each phase has its share.
const TRUTH_TURNS: usize = 4;

impl Model {
    /// What the servers can do at most, in transactions per second.
    pub(super) fn capacity(&self) -> f64 {
        self.servers as f64 / (self.mean_s + self.beside_s)
    }

    /// Response times of at least `transactions` at a rate, over whole turns of drift and stalls.
    fn responses(&self, rate: f64, transactions: usize, seed: u64) -> Vec<f64> {
        let turn = DRIFT_PERIOD_S * rate;
        let turns = (transactions as f64 / turn).ceil().max(TRUTH_TURNS as f64);
        let mut queue = Queue::new(*self, seed);
        (0..(turns * turn) as usize).map(|_| queue.arrival(rate).1).collect()
    }

    /// The rate at which this quantile of the response times is the limit, within a thousandth.
    pub(super) fn line(&self, quantile: f64, limit_s: f64) -> f64 {
        let (mut low, mut high) = (0.1 * self.capacity(), 0.999 * self.capacity());
        while high / low > 1.001 {
            let rate = (low * high).sqrt();
            let responses = self.responses(rate, 3_000_000, 1);
            let over = responses.iter().filter(|response| **response >= limit_s).count() as f64;
            if over > (1.0 - quantile) * responses.len() as f64 { high = rate } else { low = rate }
        }
        (low * high).sqrt()
    }

    /// The limit for which the line of `quantile` is this rate: that quantile of the response times at it. And how steeply
    /// the share over that limit rises there: the change of its log-odds by that of the logarithm of the rate.
    pub(super) fn limit_s(&self, rate: f64, quantile: f64, transactions: usize) -> (f64, f64) {
        let mut at_line = self.responses(rate, transactions, 1);
        let rank = ((quantile * at_line.len() as f64) as usize).min(at_line.len() - 1);
        let limit = *at_line.select_nth_unstable_by(rank, f64::total_cmp).1;
        let log_odds = |rate: f64| {
            let responses = self.responses(rate, transactions / 4, 2);
            let over = responses.iter().filter(|response| **response >= limit).count() as f64;
            ((over + 0.5) / (responses.len() as f64 - over + 0.5)).ln()
        };
        (limit, (log_odds(1.03 * rate) - log_odds(0.97 * rate)) / (1.03f64 / 0.97).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of one server with exponential services the response time is exponential, with the mean 1 / (capacity - rate).
    #[test]
    fn one_exponential_server_has_the_known_percentiles() {
        let model = Model {
            servers: 1,
            service: Service::Exponential,
            habit: Habit::Plain,
            mean_s: 0.001,
            beside_s: 0.0,
        };
        let (limit, slope) = model.limit_s(800.0, 0.99, 4_000_000);
        let expected = 100f64.ln() / 200.0;
        assert!((limit / expected - 1.0).abs() < 0.03, "{limit} {expected}");
        // log p = -(capacity - rate) limit: its slope is rate x limit.
        assert!((slope / (800.0 * expected) - 1.0).abs() < 0.15, "{slope}");
    }

    #[test]
    fn the_line_of_a_limit_is_the_rate_that_has_it() {
        let model = Model {
            servers: 1,
            service: Service::Exponential,
            habit: Habit::Plain,
            mean_s: 0.0009,
            beside_s: 0.0001,
        };
        let (limit, _) = model.limit_s(700.0, 0.95, 3_000_000);
        assert!((model.line(0.95, limit) / 700.0 - 1.0).abs() < 0.005);
    }

    /// With as many servers as there is never a queue for, the response time is the service time.
    #[test]
    fn many_servers_leave_the_service_time() {
        let model = Model {
            servers: 16,
            service: Service::Constant,
            habit: Habit::Plain,
            mean_s: 0.01,
            beside_s: 0.0,
        };
        assert!((model.limit_s(100.0, 0.99, 100_000).0 - 0.01).abs() < 1e-9);
    }

    #[test]
    fn a_stall_holds_everybody_up() {
        let model = Model {
            servers: 1,
            service: Service::Constant,
            habit: Habit::Stall,
            mean_s: 0.001,
            beside_s: 0.0,
        };
        let responses = model.responses(100.0, 100_000, 3);
        let longest = responses.iter().copied().fold(0.0, f64::max);
        assert!((0.09..0.13).contains(&longest), "{longest}");
    }
}
