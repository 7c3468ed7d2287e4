//! Parameters of the transactions (clause 2) and the terminal's waits (clause 5.2.5).

use std::time::Duration;

use super::data::{CUSTOMERS, DISTRICTS, ITEMS, last_name};
use crate::random::Rng;

/// The five transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its class in the figures.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new_order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order_status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock_level",
        }
    }

    /// Cards in the deck of 100: at least the minima of clause 5.2.3.
    pub(super) fn cards(self) -> usize {
        match self {
            Kind::NewOrder => 45,
            Kind::Payment => 43,
            Kind::OrderStatus | Kind::Delivery | Kind::StockLevel => 4,
        }
    }

    /// 90 % must be answered within this (clause 5.2.5.3).
    pub(super) fn limit_ms(self) -> f64 {
        if self == Kind::StockLevel { 20_000.0 } else { 5_000.0 }
    }

    fn keying(self) -> Duration {
        Duration::from_secs(match self {
            Kind::NewOrder => 18,
            Kind::Payment => 3,
            _ => 2,
        })
    }

    fn think_mean_s(self) -> f64 {
        match self {
            Kind::NewOrder | Kind::Payment => 12.0,
            Kind::OrderStatus => 10.0,
            Kind::Delivery | Kind::StockLevel => 5.0,
        }
    }
}

/// Non-uniform random numbers (clause 2.1.6); the constants differ between load and run as 2.1.6.1 wants.
pub(super) fn nurand(rng: &mut Rng, a: u64, c: u64, low: u64, high: u64) -> u64 {
    (((rng.uniform(0, a) | rng.uniform(low, high)) + c) % (high - low + 1)) + low
}

/// The constant of last names while loading and while running: 66 apart, which 2.1.6.1 allows.
pub(super) const C_LAST_LOAD: u64 = 157;
const C_LAST_RUN: u64 = 223;
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7911;

/// How a customer is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Customer {
    Id(i64),
    LastName(String),
}

/// A line of a new order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) item: i64,
    pub(super) warehouse: i64,
    pub(super) quantity: i64,
}

/// What a terminal has keyed in. Fields that a transaction does not use keep old values.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) kind: Kind,
    pub(super) warehouse: i64,
    pub(super) district: i64,
    pub(super) customer_warehouse: i64,
    pub(super) customer_district: i64,
    pub(super) customer: Customer,
    pub(super) lines: Vec<Line>,
    pub(super) amount_cents: i64,
    pub(super) carrier: i64,
    pub(super) threshold: i64,
}

/// What the options say about terminals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) warehouses: u64,
    pub(super) is_home_fixed: bool,
    pub(super) has_waits: bool,
}

/// One terminal: its home, its deck, its stream of random numbers.
#[derive(Debug)]
pub(super) struct Terminal {
    terms: Terms,
    home: u64,
    /// Stock-Level always asks for the terminal's own district (clause 2.8.1.1).
    district: u64,
    rng: Rng,
    deck: Vec<Kind>,
    /// Keying of the next transaction and thinking after the last.
    pub(super) pause: Duration,
    pub(super) input: Input,
}

impl Terminal {
    pub(super) fn new(terms: Terms, session: u32, seed: u64) -> Terminal {
        let session = u64::from(session);
        Terminal {
            home: session % terms.warehouses + 1,
            district: session / terms.warehouses % DISTRICTS + 1,
            rng: Rng::stream(seed, session),
            deck: Vec::new(),
            pause: Duration::ZERO,
            input: Input {
                kind: Kind::NewOrder,
                warehouse: 1,
                district: 1,
                customer_warehouse: 1,
                customer_district: 1,
                customer: Customer::Id(1),
                lines: Vec::new(),
                amount_cents: 0,
                carrier: 1,
                threshold: 10,
            },
            terms,
        }
    }

    fn deal(&mut self) -> Kind {
        if self.deck.is_empty() {
            for kind in Kind::ALL {
                self.deck.extend(std::iter::repeat_n(kind, kind.cards()));
            }
            for last in (1..self.deck.len()).rev() {
                let other = self.rng.uniform(0, last as u64) as usize;
                self.deck.swap(last, other);
            }
        }
        self.deck.pop().unwrap_or(Kind::NewOrder)
    }

    /// Another warehouse where there is one.
    fn remote(&mut self, home: u64) -> u64 {
        if self.terms.warehouses == 1 {
            return home;
        }
        let other = self.rng.uniform(1, self.terms.warehouses - 1);
        if other >= home { other + 1 } else { other }
    }

    fn customer_id(&mut self) -> i64 {
        nurand(&mut self.rng, 1023, C_CUSTOMER, 1, CUSTOMERS) as i64
    }

    fn by_name_or_id(&mut self) -> Customer {
        if self.rng.uniform(1, 100) <= 60 {
            Customer::LastName(last_name(nurand(&mut self.rng, 255, C_LAST_RUN, 0, 999)))
        } else {
            Customer::Id(self.customer_id())
        }
    }

    /// Draws the next transaction.
    pub(super) fn draw(&mut self) {
        let last = self.input.kind;
        let kind = self.deal();
        let home =
            if self.terms.is_home_fixed { self.home } else { self.rng.uniform(1, self.terms.warehouses) };
        self.input.kind = kind;
        self.input.warehouse = home as i64;
        self.input.district = self.rng.uniform(1, DISTRICTS) as i64;
        match kind {
            Kind::NewOrder => self.draw_new_order(home),
            Kind::Payment => self.draw_payment(home),
            Kind::OrderStatus => self.input.customer = self.by_name_or_id(),
            Kind::Delivery => self.input.carrier = self.rng.uniform(1, 10) as i64,
            Kind::StockLevel => {
                self.input.district = self.district as i64;
                self.input.threshold = self.rng.uniform(10, 20) as i64;
            }
        }
        self.pause = Duration::ZERO;
        if self.terms.has_waits {
            // Negative exponential, cut at ten times its mean (clause 5.2.5.4).
            let mean = last.think_mean_s();
            let think = self.rng.exponential(mean).min(10.0 * mean);
            self.pause = kind.keying() + Duration::from_secs_f64(think);
        }
    }

    fn draw_new_order(&mut self, home: u64) {
        self.input.customer = Customer::Id(self.customer_id());
        self.input.lines.clear();
        let count = self.rng.uniform(5, 15);
        let is_rolled_back = self.rng.uniform(1, 100) == 1;
        for number in 1..=count {
            let is_unused = is_rolled_back && number == count;
            let item = nurand(&mut self.rng, 8191, C_ITEM, 1, ITEMS);
            let is_remote = self.rng.uniform(1, 100) == 1;
            let warehouse = if is_remote { self.remote(home) } else { home };
            self.input.lines.push(Line {
                item: if is_unused { ITEMS as i64 + 1 } else { item as i64 },
                warehouse: warehouse as i64,
                quantity: self.rng.uniform(1, 10) as i64,
            });
        }
    }

    fn draw_payment(&mut self, home: u64) {
        let is_remote = self.rng.uniform(1, 100) > 85;
        self.input.customer_warehouse = if is_remote { self.remote(home) } else { home } as i64;
        self.input.customer_district =
            if is_remote { self.rng.uniform(1, DISTRICTS) as i64 } else { self.input.district };
        self.input.customer = self.by_name_or_id();
        self.input.amount_cents = self.rng.uniform(100, 500_000) as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(has_waits: bool) -> Terminal {
        Terminal::new(Terms { warehouses: 10, is_home_fixed: true, has_waits }, 3, 7)
    }

    #[test]
    fn the_mix_is_exact_over_each_hundred() {
        let mut terminal = terminal(false);
        for _ in 0..5 {
            let mut seen = [0; 5];
            for _ in 0..100 {
                terminal.draw();
                seen[terminal.input.kind as usize] += 1;
            }
            assert_eq!(seen, [45, 43, 4, 4, 4]);
        }
    }

    #[test]
    fn shares_are_those_of_the_specification() {
        let mut terminal = terminal(false);
        let (mut orders, mut lines, mut remote_lines, mut unused) = (0, 0, 0, 0);
        let (mut payments, mut remote_payments, mut by_name) = (0, 0, 0);
        for _ in 0..40_000 {
            terminal.draw();
            let input = &terminal.input;
            match input.kind {
                Kind::NewOrder => {
                    orders += 1;
                    assert!((5..=15).contains(&input.lines.len()));
                    lines += input.lines.len();
                    remote_lines +=
                        input.lines.iter().filter(|line| line.warehouse != input.warehouse).count();
                    unused += input.lines.iter().filter(|line| line.item > ITEMS as i64).count();
                }
                Kind::Payment => {
                    payments += 1;
                    remote_payments += usize::from(input.customer_warehouse != input.warehouse);
                    by_name += usize::from(matches!(input.customer, Customer::LastName(_)));
                }
                _ => {}
            }
        }
        let near = |part: usize, whole: usize, share: f64| {
            let sigma = (share * (1.0 - share) / whole as f64).sqrt();
            let found = part as f64 / whole as f64;
            assert!((found - share).abs() < 5.0 * sigma, "{found}, wanted {share}");
        };
        near(remote_lines, lines, 0.01);
        near(unused, orders, 0.01);
        near(remote_payments, payments, 0.15);
        near(by_name, payments, 0.6);
    }

    #[test]
    fn nurand_stays_in_range_and_is_not_uniform() {
        let mut rng = Rng::stream(1, 1);
        let mut seen = vec![0_u32; 3001];
        for _ in 0..300_000 {
            seen[nurand(&mut rng, 1023, C_CUSTOMER, 1, 3000) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        // The bitwise or favours numbers with many bits set: the most frequent is far above the mean of 100.
        assert!(seen.iter().max().is_some_and(|&most| most > 400));
    }

    #[test]
    fn waits_are_keying_and_thinking() {
        let mut terminal = terminal(true);
        let (mut total, mut turns) = (0.0, 0.0);
        for _ in 0..20_000 {
            terminal.draw();
            assert!(terminal.pause >= Duration::from_secs(2) && terminal.pause <= Duration::from_secs(138));
            total += terminal.pause.as_secs_f64();
            turns += 1.0;
        }
        // 0.45*18 + 0.43*3 + 0.12*2 of keying and 0.88*12 + 0.04*(10+5+5) of thinking = 9.63 + 11.36 s.
        let mean: f64 = total / turns;
        assert!((mean - 20.99).abs() < 0.5, "{mean}");
    }

    #[test]
    fn the_same_seed_draws_the_same_terminal() {
        let drawn = |seed| {
            let terms = Terms { warehouses: 3, is_home_fixed: false, has_waits: false };
            let mut terminal = Terminal::new(terms, 1, seed);
            (0..50)
                .map(|_| {
                    terminal.draw();
                    format!("{:?}", terminal.input)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
