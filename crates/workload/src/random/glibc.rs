//! glibc's `srandom` and `random`: sysbench seeds its generators with them, so equal table contents under its
//! seed need the same numbers. TYPE_3, an additive feedback generator of degree 31 with separation 3
//! (glibc manual, "BSD Random"; Peter Selinger, "The GLIBC random number generator").

/// The state behind `random()` after `srandom(seed)`.
#[derive(Debug, Clone)]
pub struct GlibcRandom {
    ring: [u32; 31],
    at: usize,
}

impl GlibcRandom {
    /// `srandom(seed)`. As in glibc, 0 is taken as 1.
    pub fn new(seed: u32) -> GlibcRandom {
        let mut ring = [0_u32; 31];
        let mut word = if seed == 0 { 1 } else { seed as i32 };
        ring[0] = word as u32;
        for slot in ring.iter_mut().skip(1) {
            // 16807 * word mod (2^31 - 1), computed without overflow as glibc does, with its sign fix.
            let (high, low) = (word / 127_773, word % 127_773);
            word = 16_807 * low - 2_836 * high;
            if word < 0 {
                word += 2_147_483_647;
            }
            *slot = word as u32;
        }
        // The front pointer starts `separation` words in.
        let mut random = GlibcRandom { ring, at: 3 };
        // The first 310 numbers are thrown away.
        for _ in 0..310 {
            random.next();
        }
        random
    }

    /// `random()`: 31 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u32 {
        // r[i] = r[i-3] + r[i-31]; the slot at `at` holds r[i-31].
        let sum = self.ring[self.at].wrapping_add(self.ring[(self.at + 28) % 31]);
        self.ring[self.at] = sum;
        self.at = (self.at + 1) % 31;
        sum >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_libc_of_this_machine() {
        for seed in [0_u32, 1, 42, 2_147_483_648, u32::MAX] {
            let mut ours = GlibcRandom::new(seed);
            let mut state = [0_u64; 16];
            let mut data: libc_random::RandomData = unsafe { std::mem::zeroed() };
            let theirs: Vec<u32> = unsafe {
                libc_random::initstate_r(seed, state.as_mut_ptr().cast(), 128, &mut data);
                (0..100)
                    .map(|_| {
                        let mut out = 0_i32;
                        libc_random::random_r(&mut data, &mut out);
                        out as u32
                    })
                    .collect()
            };
            let ours: Vec<u32> = (0..100).map(|_| ours.next()).collect();
            assert_eq!(ours, theirs, "seed {seed}");
        }
    }

    #[test]
    fn first_numbers_of_seed_one() {
        // What every program that never calls srandom sees.
        let mut random = GlibcRandom::new(1);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [1_804_289_383, 846_930_886, 1_681_692_777]
        );
    }

    /// The reentrant form, so that the test does not disturb the process-wide state.
    mod libc_random {
        #[repr(C)]
        pub(super) struct RandomData {
            pointers: [*mut i32; 3],
            kind: i32,
            degree: i32,
            separation: i32,
            end: *mut i32,
        }
        unsafe extern "C" {
            pub(super) fn initstate_r(
                seed: u32,
                state: *mut std::ffi::c_char,
                length: usize,
                data: *mut RandomData,
            ) -> i32;
            pub(super) fn random_r(data: *mut RandomData, out: *mut i32) -> i32;
        }
    }
}
