//! Random numbers as pgbench draws them, bit for bit from version 15 on: a seed gives the same statements.

/// xoroshiro128** by D. Blackman and S. Vigna, <https://prng.di.unimi.it>.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 2],
}

/// Least parameter of a gaussian distribution, for which the rejection below stays rare.
pub(crate) const GAUSSIAN_LEAST: f64 = 2.0;
/// Range of the exponent of a Zipfian distribution.
pub(crate) const ZIPFIAN_LEAST: f64 = 1.001;
pub(crate) const ZIPFIAN_MOST: f64 = 1000.0;

/// SplitMix64 by S. Vigna: the next number of the sequence that `state` stands in.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        let mut state = seed;
        Random { state: [split_mix(&mut state), split_mix(&mut state)] }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [first, second] = self.state;
        let mixed = second ^ first;
        self.state = [first.rotate_left(24) ^ mixed ^ (mixed << 16), mixed.rotate_left(37)];
        first.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// From 0 to below 1, in steps of 2^-52.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 12) as f64 * (1.0 / (1u64 << 52) as f64)
    }

    /// Uniform from 0 to `most`, both included: the high bits of as many draws as it takes.
    pub fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let shift = most.leading_zeros();
        loop {
            let drawn = self.bits() >> shift;
            if drawn <= most {
                return drawn;
            }
        }
    }

    /// Uniform from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low.wrapping_add(self.up_to(high.wrapping_sub(low) as u64) as i64)
    }

    /// `share` of the way from `low` to `high`.
    fn along(low: i64, high: i64, share: f64) -> i64 {
        low + ((high - low + 1) as f64 * share) as i64
    }

    /// A truncated exponential distribution: the greater the parameter, the more often what is close to `low`.
    pub fn exponential(&mut self, low: i64, high: i64, parameter: f64) -> i64 {
        let cut = (-parameter).exp();
        let uniform = 1.0 - self.unit();
        Random::along(low, high, -(cut + (1.0 - cut) * uniform).ln() / parameter)
    }

    /// A normal distribution cut off at `parameter` standard deviations on both sides (Box and Muller).
    pub fn gaussian(&mut self, low: i64, high: i64, parameter: f64) -> i64 {
        loop {
            let (first, second) = (1.0 - self.unit(), 1.0 - self.unit());
            let drawn = (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).sin();
            if (-parameter..parameter).contains(&drawn) {
                return Random::along(low, high, (drawn + parameter) / (parameter * 2.0));
            }
        }
    }

    /// A Zipfian distribution, by rejection (L. Devroye, "Non-Uniform Random Variate Generation", page 551).
    pub fn zipfian(&mut self, low: i64, high: i64, exponent: f64) -> i64 {
        if low == high {
            return low;
        }
        let count = (high - low + 1) as f64;
        let bound = 2f64.powf(exponent - 1.0);
        loop {
            let (first, second) = (self.unit(), self.unit());
            let rank = first.powf(-1.0 / (exponent - 1.0)).floor();
            let step = (1.0 + 1.0 / rank).powf(exponent - 1.0);
            if second * rank * (step - 1.0) / (bound - 1.0) <= step / bound && rank <= count {
                return low - 1 + rank as i64;
            }
        }
    }

    /// The time to the next arrival of a Poisson process whose arrivals are `mean` apart on average.
    pub fn poisson(&mut self, mean: f64) -> i64 {
        (-(1.0 - self.unit()).ln() * mean + 0.5) as i64
    }
}

/// FNV-1a over the eight bytes of `value`, lowest first.
pub(crate) fn hash_fnv1a(value: i64, seed: u64) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let mixed = value
        .to_le_bytes()
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    mixed as i64
}

/// MurmurHash2, the 64-bit version of A. Appleby's, over the eight bytes of `value`.
pub(crate) fn hash_murmur2(value: i64, seed: u64) -> i64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut key = (value as u64).wrapping_mul(MULTIPLIER);
    key ^= key >> SHIFT;
    key = key.wrapping_mul(MULTIPLIER);
    let mut hash = (seed ^ MULTIPLIER.wrapping_mul(8) ^ key).wrapping_mul(MULTIPLIER);
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    (hash ^ (hash >> SHIFT)) as i64
}

/// Where `value` modulo `size` goes in the pseudorandom permutation of 0 to `size` - 1 that `seed` stands for: six rounds
/// of mixing the lower and the upper part, each of the largest power of two that fits, and moving all on.
pub(crate) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let mut random = Random::new(seed as u64);
    let size = size as u64;
    let mut at = value as u64 % size;
    let bits = 63 - size.leading_zeros();
    let mask = (1u64 << bits) - 1;
    let mix = |at: u64, factor: u64, flip: u64| {
        let mixed = (at.wrapping_mul(factor) ^ flip) & mask;
        ((mixed << 1) & mask) | (mixed >> (bits - 1))
    };
    for _ in 0..6 {
        let (factor, flip) = ((random.bits() & mask) | 1, random.bits() & mask);
        if at <= mask {
            at = mix(at, factor, flip);
        }
        let (factor, flip) = ((random.bits() & mask) | 1, random.bits() & mask);
        let from_end = size - 1 - at;
        if from_end <= mask {
            at = size - 1 - mix(from_end, factor, flip);
        }
        let offset = random.up_to(size - 1);
        at = ((u128::from(at) + u128::from(offset)) % u128::from(size)) as u64;
    }
    at as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that pgbench 15.18 printed.
    #[test]
    fn hashes_are_pgbenchs() {
        assert_eq!(hash_murmur2(7, 0), 6469252686979372057);
        assert_eq!(hash_fnv1a(7, 0), 5465015992139406178);
    }

    /// `pgbench --random-seed=5` with one client printed these.
    #[test]
    fn draws_are_pgbenchs() {
        let mut base = Random::new(5);
        let mut random = Random::new(base.bits());
        assert_eq!(random.between(1, 1_000_000), 475806);
        assert_eq!(random.gaussian(1, 1_000_000, 3.0), 540896);
        assert_eq!(random.exponential(1, 1_000_000, 3.0), 614360);
        assert_eq!(random.zipfian(1, 1_000_000, 1.1), 413);
        assert_eq!(permute(475806, 1_000_001, 5), 18524);
        assert_eq!(base.bits() as i64, -1240385398947155067, "the default seed comes next");
    }

    #[test]
    fn permutations_hit_each_once() {
        for size in [2, 3, 7, 64, 1000] {
            let mut seen: Vec<i64> = (0..size).map(|value| permute(value, size, 42)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..size), "{size}");
        }
        assert_eq!(permute(5, 1, 0), 0);
    }

    #[test]
    fn a_whole_range_can_be_drawn() {
        let mut random = Random::new(1);
        assert!((0..100).all(|_| (-3..=3).contains(&random.between(-3, 3))));
        random.between(i64::MIN, i64::MAX);
        assert_eq!(random.between(4, 4), 4);
    }
}
