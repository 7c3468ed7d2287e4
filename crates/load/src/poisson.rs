//! A Poisson process that can be counted without being walked through.
//!
//! Time is cut into blocks. Each block's number of arrivals is drawn at once; a block of many is halved, and halved again,
//! with a binomial number of its arrivals in the left half, until few are left, which lie anywhere in their part with
//! equal probability. That is the same process as exponential distances (given their number, the arrivals of a Poisson
//! process are independent and uniform), but the arrivals before a time are found on one way down the halves. Every draw
//! has randomness of its own place, so that counting and taking see the same arrivals.

use crate::rng::Rng;

/// So few arrivals are drawn one by one.
const LEAF_MAX: u64 = 64;
/// A block of a slow process is long enough for so many.
const BLOCK_MIN: f64 = 64.0;
/// From this mean on a Poisson number is drawn by its normal approximation (Cornish-Fisher, one term of skewness: the
/// error is of the order of a thousandth of the standard deviation).
const NORMAL_FROM: f64 = 1_024.0;
/// Up to this number a binomial of one half is a count of random bits, beyond it normal.
const BITS_MAX: u64 = 4_096;

#[derive(Debug, Clone)]
pub(crate) struct Poisson {
    seed: u64,
    rate_tps: f64,
    block_s: f64,
    /// Blocks that have been counted, and the arrivals in them: counting goes on from there.
    counted: std::cell::Cell<(u64, u64)>,
}

/// A part of a block: a node of the tree of halves.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// 1 for the whole block, 2n and 2n + 1 for the halves of n.
    node: u64,
    /// As a part of the block.
    low: f64,
    high: f64,
    arrivals: u64,
}

impl Poisson {
    pub(crate) fn new(rate_tps: f64, seed: u64) -> Poisson {
        let block_s = (BLOCK_MIN / rate_tps).max(1.0);
        Poisson { seed, rate_tps, block_s, counted: std::cell::Cell::new((0, 0)) }
    }

    fn rng(&self, block: u64, node: u64) -> Rng {
        let mut rng = Rng::new(self.seed, block);
        Rng::new(rng.next(), node)
    }

    fn block(&self, block: u64) -> Part {
        let arrivals = poisson(self.rate_tps * self.block_s, &mut self.rng(block, 0));
        Part { node: 1, low: 0.0, high: 1.0, arrivals }
    }

    fn halves(&self, block: u64, part: Part) -> (Part, Part) {
        let left = binomial_half(part.arrivals, &mut self.rng(block, part.node));
        let middle = (part.low + part.high) / 2.0;
        (
            Part { node: 2 * part.node, high: middle, arrivals: left, ..part },
            Part { node: 2 * part.node + 1, low: middle, arrivals: part.arrivals - left, ..part },
        )
    }

    /// The arrivals of a part that is small enough, in s since the start, in any order.
    fn leaf(&self, block: u64, part: Part) -> impl Iterator<Item = f64> {
        let mut rng = self.rng(block, part.node);
        let (begin_s, block_s) = (block as f64 * self.block_s, self.block_s);
        (0..part.arrivals).map(move |_| begin_s + (part.low + (part.high - part.low) * rng.unit()) * block_s)
    }

    /// Arrivals before a time in s since the start.
    pub(crate) fn before(&self, when_s: f64) -> u64 {
        let block = (when_s / self.block_s) as u64;
        let (from, mut count) =
            Some(self.counted.get()).filter(|(from, _)| *from <= block).unwrap_or_default();
        count += (from..block).map(|block| self.block(block).arrivals).sum::<u64>();
        self.counted.set((block, count));
        let place = when_s / self.block_s - block as f64;
        let mut part = self.block(block);
        while part.arrivals > LEAF_MAX {
            let (left, right) = self.halves(block, part);
            part = if place < left.high {
                left
            } else {
                count += left.arrivals;
                right
            };
        }
        count + self.leaf(block, part).filter(|at| *at < when_s).count() as u64
    }
}

/// Takes the arrivals one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walk {
    /// The block after the one that `parts` are of.
    next_block: u64,
    /// Yet to be walked through, the last one first.
    parts: Vec<Part>,
    /// Arrivals of a leaf, the last one first.
    leaf: Vec<f64>,
}

impl Walk {
    /// The next arrival, in s since the start.
    pub(crate) fn next(&mut self, process: &Poisson) -> f64 {
        loop {
            if let Some(at) = self.leaf.pop() {
                return at;
            }
            let Some(part) = self.parts.pop() else {
                self.parts.push(process.block(self.next_block));
                self.next_block += 1;
                continue;
            };
            let block = self.next_block - 1;
            if part.arrivals > LEAF_MAX {
                let (left, right) = process.halves(block, part);
                self.parts.extend([right, left]);
            } else {
                self.leaf.extend(process.leaf(block, part));
                self.leaf.sort_unstable_by(|a, b| b.total_cmp(a));
            }
        }
    }
}

fn poisson(mean: f64, rng: &mut Rng) -> u64 {
    if mean >= NORMAL_FROM {
        let z = normal(rng);
        return (mean + mean.sqrt() * z + (z * z - 1.0) / 6.0).round().max(0.0) as u64;
    }
    let (mut count, mut at) = (0, rng.exponential());
    while at < mean {
        count += 1;
        at += rng.exponential();
    }
    count
}

/// How many of `n` fall into one of two halves.
fn binomial_half(n: u64, rng: &mut Rng) -> u64 {
    if n > BITS_MAX {
        let z = normal(rng);
        return (n as f64 / 2.0 + (n as f64).sqrt() / 2.0 * z).round().clamp(0.0, n as f64) as u64;
    }
    let whole: u64 = (0..n / 64).map(|_| u64::from(rng.next().count_ones())).sum();
    whole + u64::from((rng.next() & ((1 << (n % 64)) - 1)).count_ones())
}

/// Box and Muller (1958).
fn normal(rng: &mut Rng) -> f64 {
    (2.0 * rng.exponential()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of a Poisson number are equal, whichever way it is drawn.
    #[test]
    fn numbers_have_the_mean_and_the_variance() {
        for mean in [3.0, 500.0, 2_000.0, 1e6] {
            let mut rng = Rng::new(1, 2);
            let drawn: Vec<f64> = (0..20_000).map(|_| poisson(mean, &mut rng) as f64).collect();
            let n = drawn.len() as f64;
            let average = drawn.iter().sum::<f64>() / n;
            let variance = drawn.iter().map(|x| (x - average).powi(2)).sum::<f64>() / n;
            assert!((average - mean).abs() < 5.0 * (mean / n).sqrt(), "{mean}: {average}");
            assert!((variance / mean - 1.0).abs() < 0.06, "{mean}: {variance}");
        }
        for n in [7u64, 64, 1_000, 100_000] {
            let mut rng = Rng::new(4, 2);
            let drawn: Vec<f64> = (0..20_000).map(|_| binomial_half(n, &mut rng) as f64).collect();
            let average = drawn.iter().sum::<f64>() / 20_000.0;
            let variance = drawn.iter().map(|x| (x - average).powi(2)).sum::<f64>() / 20_000.0;
            assert!(
                (average - n as f64 / 2.0).abs() < 5.0 * (n as f64 / 4.0 / 20_000.0).sqrt(),
                "{n}: {average}"
            );
            assert!((variance / (n as f64 / 4.0) - 1.0).abs() < 0.06, "{n}: {variance}");
        }
    }

    #[test]
    fn arrivals_come_in_order_and_as_often_as_counted() {
        for rate_tps in [0.01, 5.0, 700.0, 50_000.0] {
            let process = Poisson::new(rate_tps, 77);
            let mut walk = Walk::default();
            let mut last = 0.0;
            for number in 0..100_000u64 {
                let at = walk.next(&process);
                assert!(at >= last);
                last = at;
                if number % 997 == 0 {
                    assert_eq!(process.before(at), number, "{rate_tps}");
                }
            }
            let expected = 100_000.0 / rate_tps;
            assert!((last / expected - 1.0).abs() < 0.02, "{rate_tps}: {last}");
        }
    }
}
