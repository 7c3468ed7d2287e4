//! Random text, written into buffers that the caller keeps.

use super::Rng;

/// The 100 pairs of digits, as text. A table of longer groups would do with fewer look-ups and would not stay in the
/// caches beside a server.
static TWO_DIGITS: [[u8; 2]; 100] = {
    let mut table = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        table[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    table
};

/// Twelve random digits from 64 random bits: the word is a fraction, and each multiplication by 100 moves its next two
/// digits in front of the point. The 64 bits hold 19 digits, so the twelve are unbiased for all purposes.
#[inline]
fn twelve_digits(rng: &mut Rng) -> [u8; 12] {
    let mut out = [0; 12];
    let mut fraction = rng.next_u64();
    for pair in out.chunks_exact_mut(2) {
        let product = u128::from(fraction) * 100;
        pair.copy_from_slice(&TWO_DIGITS[(product >> 64) as usize]);
        fraction = product as u64;
    }
    out
}

/// Appends `groups` groups of eleven random digits joined by `-`: sysbench's `c` has 10, its `pad` 5.
#[inline]
pub fn digit_groups(rng: &mut Rng, groups: usize, out: &mut Vec<u8>) {
    for group in 0..groups {
        let mut digits = twelve_digits(rng);
        // The twelfth digit is not wanted; its place takes the separator.
        digits[11] = b'-';
        let length = if group + 1 == groups { 11 } else { 12 };
        out.extend_from_slice(&digits[..length]);
    }
}

/// Appends a number in decimal.
#[inline]
pub fn digits(mut number: u64, out: &mut Vec<u8>) {
    let mut buffer = [0_u8; 20];
    let mut at = buffer.len();
    while number >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&TWO_DIGITS[(number % 100) as usize]);
        number /= 100;
    }
    if number > 0 || at == buffer.len() {
        at -= 1;
        buffer[at] = b'0' + number as u8;
    }
    out.extend_from_slice(&buffer[at..]);
}

/// Appends `template` with each `#` replaced by a random digit and each `@` by a random letter a to z.
pub fn fill_template(rng: &mut Rng, template: &[u8], out: &mut Vec<u8>) {
    out.extend(template.iter().map(|&byte| match byte {
        b'#' => b'0' + rng.uniform(0, 9) as u8,
        b'@' => b'a' + rng.uniform(0, 25) as u8,
        other => other,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_shape_of_sysbench_columns() {
        let mut rng = Rng::stream(1, 1);
        let mut c = Vec::new();
        digit_groups(&mut rng, 10, &mut c);
        assert_eq!(c.len(), 119);
        let text = String::from_utf8(c).expect("digits and dashes");
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!(parts.len(), 10);
        assert!(
            parts.iter().all(|part| part.len() == 11 && part.bytes().all(|b| b.is_ascii_digit())),
            "{text}"
        );
        let mut pad = Vec::new();
        digit_groups(&mut rng, 5, &mut pad);
        assert_eq!(pad.len(), 59);
    }

    #[test]
    fn every_digit_is_as_likely_at_every_place() {
        let mut rng = Rng::stream(3, 0);
        let mut seen = [[0_u32; 10]; 11];
        for _ in 0..20_000 {
            let mut group = Vec::with_capacity(12);
            digit_groups(&mut rng, 1, &mut group);
            for (place, digit) in group.iter().enumerate() {
                seen[place][usize::from(digit - b'0')] += 1;
            }
        }
        // 2000 expected, standard deviation 42.
        assert!(seen.iter().flatten().all(|&n| (1750..2250).contains(&n)), "{seen:?}");
    }

    #[test]
    fn numbers_are_written_as_display_writes_them() {
        for n in [0, 7, 10, 99, 100, 999, 1000, 9999, 10_000, 10_001, 100_000, 12_345_678, u64::MAX] {
            let mut out = Vec::new();
            digits(n, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), n.to_string());
        }
    }

    #[test]
    fn templates_keep_what_is_not_a_placeholder() {
        let mut out = Vec::new();
        fill_template(&mut Rng::stream(5, 0), b"x#-@@", &mut out);
        assert_eq!((out[0], out[2]), (b'x', b'-'));
        assert!(out[1].is_ascii_digit() && out[3].is_ascii_lowercase() && out[4].is_ascii_lowercase());
    }
}
