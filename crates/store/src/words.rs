//! Words that every room writes.

/// `1 run`, `3 runs`: so many of what takes an s.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1u32, "block"), "1 block");
        assert_eq!(counted(0usize, "block"), "0 blocks");
        assert_eq!(counted(12u64, "run"), "12 runs");
    }
}
