//! Random numbers and the distributions that sysbench defines, exactly by its formulas.
//!
//! Generators are seeded by the caller, never by the clock. One [`Rng`] belongs to one session; generated rows use
//! one that is seeded by the row's number, so that a table does not depend on how its rows were shared out.

mod distribution;
mod glibc;
mod permutation;
mod text;

pub use distribution::{Distribution, DistributionError, DistributionKind, Zipfian};
pub use glibc::GlibcRandom;
pub use permutation::permute;
pub use text::{digit_groups, digits, fill_template};

/// xoroshiro128+ in its first form (Blackman and Vigna, 2016; rotations 55, 14, 36), which is also sysbench's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 2],
}

impl Rng {
    /// A generator with exactly this state. The all-zero state, which would only ever give zeros, is replaced.
    pub fn from_state(state: [u64; 2]) -> Rng {
        if state == [0, 0] { Rng::stream(0, 0) } else { Rng { state } }
    }

    /// Stream `stream` of a seed: different streams are independent for all practical purposes. The state comes
    /// from SplitMix64, as the authors of xoroshiro recommend.
    pub fn stream(seed: u64, stream: u64) -> Rng {
        let mut mix = SplitMix64::new(seed);
        // The stream's number is mixed before it is added, or (seed 1, stream 2) would meet (seed 2, stream 1).
        let mut mix = SplitMix64::new(mix.next() ^ SplitMix64::new(stream ^ 0x6a09_e667_f3bc_c908).next());
        Rng { state: [mix.next(), mix.next() | 1] }
    }

    /// The state that sysbench gives a thread: four numbers of glibc's `random()`.
    pub fn from_glibc(source: &mut GlibcRandom) -> Rng {
        let mut word = || (u64::from(source.next()) << 32) | u64::from(source.next());
        let first = word();
        let second = word();
        Rng::from_state([first, second])
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [first, mut second] = self.state;
        let result = first.wrapping_add(second);
        second ^= first;
        self.state = [first.rotate_left(55) ^ second ^ (second << 14), second.rotate_left(36)];
        result
    }

    /// A double in [0, 1) from the 52 high bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        f64::from_bits(0x3FF0_0000_0000_0000 | (self.next_u64() >> 12)) - 1.0
    }

    /// A whole number from `low` to `high`, both included, each as likely as the others
    /// (`low + floor(U * (high - low + 1))`, sysbench's own form; exact for ranges under 2^52).
    #[inline]
    pub fn uniform(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        // The minimum only matters where rounding of doubles steps over the end.
        low + ((self.unit() * ((high - low) as f64 + 1.0)) as u64).min(high - low)
    }

    /// Whether an event of this probability happens.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Steele, Lea and Flood's SplitMix64: turns any seed into well-mixed words.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts from a seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next word.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut rng = Rng::stream(seed, stream);
            (rng.next_u64(), rng.next_u64())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(1, 0), draw(1, 1));
    }

    #[test]
    fn splitmix_matches_its_reference() {
        // First outputs for seed 1234567, as published with the reference implementation.
        let mut mix = SplitMix64::new(1_234_567);
        assert_eq!(mix.next(), 6_457_827_717_110_365_317);
        assert_eq!(mix.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn uniform_reaches_both_ends_and_nothing_else() {
        let mut rng = Rng::stream(7, 0);
        let mut seen = [0_u32; 6];
        for _ in 0..6000 {
            seen[rng.uniform(0, 5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(rng.uniform(9, 9), 9);
    }
}
