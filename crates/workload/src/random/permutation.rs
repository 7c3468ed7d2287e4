//! Numbers in another order.

/// A permutation of all 32-bit numbers that scatters neighbours: quadratic residues modulo the prime 4294967291 = 3 mod 4
/// (J. Preshing, "How to generate a sequence of unique random integers", 2012).
pub fn permute(number: u32) -> u32 {
    const PRIME: u64 = 4_294_967_291;
    let number = u64::from(number);
    if number >= PRIME {
        // The five numbers past the prime stay where they are.
        return number as u32;
    }
    let residue = number * number % PRIME;
    (if number <= PRIME / 2 { residue } else { PRIME - residue }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_permutation_has_no_collision_at_its_seams() {
        let seams =
            [0, 1, 2_147_483_645, 2_147_483_646, 2_147_483_647, 4_294_967_290, 4_294_967_291, u32::MAX];
        let images: HashSet<u32> = seams.iter().map(|&n| permute(n)).collect();
        assert_eq!(images.len(), seams.len());
    }
}
