//! `--block`: which blocks of a plan are made here, when others make the rest.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A part of the blocks of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// `2/3`: the second of three like shares, every third block.
    Share {
        /// From 1.
        number: u32,
        /// How many shares there are.
        of: u32,
    },
    /// `1,4-6`: these blocks, from 1.
    Blocks(BTreeSet<u32>),
}

impl Part {
    /// Whether a block, from 1, is of this part.
    pub fn has(&self, block: u32) -> bool {
        match self {
            Part::Share { number, of } => (block - 1) % of == number - 1,
            Part::Blocks(blocks) => blocks.contains(&block),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Share { number, of } => write!(f, "{number}/{of}"),
            Part::Blocks(blocks) => {
                f.write_str(&blocks.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// More blocks than any plan has.
const BLOCKS_MAX: u32 = 100_000;

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let form = || "write 2/3 for the second of three shares, or blocks as in 1,4-6".to_owned();
        let number = |word: &str| {
            let number: Option<u32> = word.trim().parse().ok();
            number.filter(|number| (1..=BLOCKS_MAX).contains(number)).ok_or_else(form)
        };
        if let Some((one, of)) = text.split_once('/') {
            let (number, of) = (number(one)?, number(of)?);
            if number > of {
                return Err(format!("there is no share {number} of {of}"));
            }
            return Ok(Part::Share { number, of });
        }
        let mut blocks = BTreeSet::new();
        for word in text.split(',') {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(form());
            }
            blocks.extend(first..=last);
        }
        Ok(Part::Blocks(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_lists_have_their_blocks() {
        let of = |text: &str| -> Vec<u32> {
            let part: Part = text.parse().unwrap();
            assert_eq!(part.to_string().parse(), Ok(part.clone()));
            (1..=9).filter(|block| part.has(*block)).collect()
        };
        assert_eq!(of("1/3"), [1, 4, 7]);
        assert_eq!(of("3/3"), [3, 6, 9]);
        assert_eq!(of("1/1").len(), 9);
        assert_eq!(of("2,4-6"), [2, 4, 5, 6]);
        assert_eq!(of("8"), [8]);
    }

    /// Whatever the number of shares, each block is of exactly one.
    #[test]
    fn shares_are_all_blocks_once() {
        for of in 1..=7 {
            for block in 1..=40 {
                let having = (1..=of).filter(|number| Part::Share { number: *number, of }.has(block));
                assert_eq!(having.count(), 1, "block {block} of {of} shares");
            }
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["", "0", "0/2", "3/2", "1/0", "a", "4-2", "1,,2", "-1", "99999999999", "1-99999999"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }
}
