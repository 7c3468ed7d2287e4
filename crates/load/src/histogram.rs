//! Latency histograms: HDR buckets (3 significant digits, units of 100 ns, up to 1 hour) with the exact minimum,
//! maximum and sum beside them.
//!
//! Two forms exist. [`Buckets`] (`Counts` and `Total`, by the width of a count) is a flat array that is counted into and
//! that is emptied in time proportional to the range it saw. [`Histogram`] is what results hold: the same buckets, packed
//! into a byte or two for each bucket that was hit, because an hour of seconds by several statement classes must fit in
//! memory. In it flat ones travel between processes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A bucket's unit.
pub(crate) const UNIT_NS: u64 = 100;
/// Longer durations are counted as this long.
pub(crate) const LONGEST_NS: u64 = 3_600_000_000_000;
/// Sub-buckets that keep 3 significant digits: the power of two that follows 2 * 10^3.
const SUB_BUCKETS: u64 = 2048;
/// log2 of half the sub-buckets: each doubling of the value adds so many buckets.
const HALF_BITS: u32 = SUB_BUCKETS.trailing_zeros() - 1;
/// Index of [`LONGEST_NS`], plus one.
const BUCKETS: usize = index_of(LONGEST_NS / UNIT_NS) + 1;

/// The bucket of a value in units. The first 2048 buckets hold one value each; from there on each doubling is
/// split into 1024.
const fn index_of(value: u64) -> usize {
    let shift = u64::BITS - (value | (SUB_BUCKETS - 1)).leading_zeros() - (HALF_BITS + 1);
    ((shift as usize) << HALF_BITS) + (value >> shift) as usize
}

/// Largest value, in units, that falls into the same bucket: what HDR histograms report for it.
const fn highest_of(index: usize) -> u64 {
    if index < SUB_BUCKETS as usize {
        return index as u64;
    }
    let shift = (index >> HALF_BITS) - 1;
    let sub = (index & ((1 << HALF_BITS) - 1)) + (1 << HALF_BITS);
    ((sub as u64 + 1) << shift) - 1
}

/// What is kept exactly beside the buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Summary {
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    clamped: u64,
}

impl Summary {
    /// Of nothing, to be added to.
    const NONE: Summary = Summary { sum_ns: 0, min_ns: u64::MAX, max_ns: 0, clamped: 0 };

    fn add(&mut self, other: Summary) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.clamped += other.clamped;
    }
}

/// A flat array of counters.
#[derive(Debug, Clone)]
pub(crate) struct Buckets<Cell> {
    cells: Box<[Cell]>,
    /// Range of the cells that are not zero; `low > high` when there are none.
    low: usize,
    high: usize,
    summary: Summary,
}

/// What one worker counts into: at most `u32::MAX` of one value.
pub(crate) type Counts = Buckets<u32>;

/// Sums of [`Counts`]: what the coordinator merges workers and intervals into.
pub(crate) type Total = Buckets<u64>;

impl<Cell: Copy + Default> Default for Buckets<Cell> {
    fn default() -> Self {
        let cells = vec![Cell::default(); BUCKETS].into_boxed_slice();
        Buckets { cells, low: BUCKETS, high: 0, summary: Summary::NONE }
    }
}

impl<Cell: Copy + Default> Buckets<Cell>
where
    u64: From<Cell>,
{
    /// Nothing was recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.low > self.high
    }

    /// Back to nothing recorded, at the cost of the range that was hit.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.cells[self.low..=self.high].fill(Cell::default());
        }
        self.low = BUCKETS;
        self.high = 0;
        self.summary = Summary::NONE;
    }

    fn widen(&mut self, low: usize, high: usize) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }

    /// Packs what was recorded.
    pub(crate) fn to_histogram(&self) -> Histogram {
        if self.is_empty() {
            return Histogram::default();
        }
        let mut packed = Vec::new();
        let mut count = 0;
        let mut next = 0;
        for (index, cell) in self.cells[..=self.high].iter().enumerate().skip(self.low) {
            let cell = u64::from(*cell);
            if cell > 0 {
                put_varint(&mut packed, (index - next) as u64);
                put_varint(&mut packed, cell);
                next = index + 1;
                count += cell;
            }
        }
        Histogram { packed: packed.into_boxed_slice(), count, summary: self.summary }
    }
}

impl Counts {
    /// Counts one duration.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        let kept = ns.min(LONGEST_NS);
        self.summary.clamped += u64::from(ns > LONGEST_NS);
        // Rounded to the nearest unit, and never into the bucket of zero: HDR's lowest value is one unit.
        let index = index_of(((kept + UNIT_NS / 2) / UNIT_NS).max(1));
        self.cells[index] += 1;
        self.low = self.low.min(index);
        self.high = self.high.max(index);
        self.summary.sum_ns += kept;
        self.summary.min_ns = self.summary.min_ns.min(kept);
        self.summary.max_ns = self.summary.max_ns.max(kept);
    }
}

impl Total {
    /// Adds what a worker counted, or other sums.
    pub(crate) fn add<Cell: Copy + Default>(&mut self, other: &Buckets<Cell>)
    where
        u64: From<Cell>,
    {
        if other.is_empty() {
            return;
        }
        let range = other.low..=other.high;
        for (sum, count) in self.cells[range.clone()].iter_mut().zip(&other.cells[range]) {
            *sum += u64::from(*count);
        }
        self.widen(other.low, other.high);
        self.summary.add(other.summary);
    }

    /// Adds one duration so many times.
    pub(crate) fn record_many(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        let kept = ns.min(LONGEST_NS);
        let index = index_of(((kept + UNIT_NS / 2) / UNIT_NS).max(1));
        self.cells[index] += times;
        self.widen(index, index);
        self.summary.add(Summary {
            sum_ns: kept.saturating_mul(times),
            min_ns: kept,
            max_ns: kept,
            clamped: if ns > LONGEST_NS { times } else { 0 },
        });
    }

    pub(crate) fn add_packed(&mut self, histogram: &Histogram) {
        for (index, count) in histogram.cells() {
            self.cells[index] += count;
            self.widen(index, index);
        }
        if histogram.count > 0 {
            self.summary.add(histogram.summary);
        }
    }
}

impl<Cell: Copy + Default> Serialize for Buckets<Cell>
where
    u64: From<Cell>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_histogram().serialize(serializer)
    }
}

impl<'de, Cell: Copy + Default + TryFrom<u64>> Deserialize<'de> for Buckets<Cell>
where
    u64: From<Cell>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let packed = Histogram::deserialize(deserializer)?;
        let mut all = Buckets::default();
        for (index, count) in packed.cells() {
            let cell = all.cells.get_mut(index).ok_or_else(|| D::Error::custom("no such bucket"))?;
            *cell = Cell::try_from(count).map_err(|_| D::Error::custom("more than a bucket can count"))?;
            all.widen(index, index);
        }
        if packed.count > 0 {
            all.summary = packed.summary;
        }
        Ok(all)
    }
}

/// A finished latency histogram. Compact, immutable, without loss against the HDR buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Pairs of varints: empty buckets skipped, count.
    packed: Box<[u8]>,
    count: u64,
    summary: Summary,
}

impl Histogram {
    /// Packs durations in ns. For tests and for times that were not measured by the engine.
    pub fn of(durations_ns: impl IntoIterator<Item = u64>) -> Histogram {
        let mut counts = Counts::default();
        let mut total = Total::default();
        // A `Counts` holds at most u32::MAX of one value: fold long inputs in parts.
        for (at, ns) in durations_ns.into_iter().enumerate() {
            counts.record(ns);
            if at % (1 << 20) == (1 << 20) - 1 {
                total.add(&counts);
                counts.clear();
            }
        }
        total.add(&counts);
        total.to_histogram()
    }

    /// The sum of several.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Histogram>) -> Histogram {
        let mut total = Total::default();
        for part in parts {
            total.add_packed(part);
        }
        total.to_histogram()
    }

    /// How many durations.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many were longer than an hour and were counted as an hour.
    pub fn clamped(&self) -> u64 {
        self.summary.clamped
    }

    /// The sum of all, in ns; exact.
    pub fn sum_ns(&self) -> u64 {
        self.summary.sum_ns
    }

    /// The shortest, in ns; exact. 0 when empty.
    pub fn min_ns(&self) -> u64 {
        self.summary.min_ns
    }

    /// The longest, in ns; exact. 0 when empty.
    pub fn max_ns(&self) -> u64 {
        self.summary.max_ns
    }

    /// The mean, in ns; exact. 0 when empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.summary.sum_ns as f64 / self.count as f64 }
    }

    /// The value, in ns, that at least `quantile` (0 to 1) of the durations do not exceed, to 3 significant
    /// digits (the highest value of its bucket, as HDR histograms have it). 0 when empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.cells() {
            seen += count;
            if seen >= wanted {
                return (highest_of(index) * UNIT_NS).clamp(self.summary.min_ns, self.summary.max_ns);
            }
        }
        self.summary.max_ns
    }

    /// [`Histogram::quantile_ns`] in ms.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.quantile_ns(quantile) as f64 / 1e6
    }

    /// [`Histogram::min_ns`] in ms.
    pub fn min_ms(&self) -> f64 {
        self.summary.min_ns as f64 / 1e6
    }

    /// [`Histogram::max_ns`] in ms.
    pub fn max_ms(&self) -> f64 {
        self.summary.max_ns as f64 / 1e6
    }

    /// [`Histogram::mean_ns`] in ms.
    pub fn mean_ms(&self) -> f64 {
        self.mean_ns() / 1e6
    }

    /// The buckets that were hit: highest duration in ns of each, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.cells().map(|(index, count)| (highest_of(index) * UNIT_NS, count))
    }

    /// As HdrHistogram has it: values are units of 100 ns, from 1 to 36,000,000,000, 3 significant digits.
    /// Its V2 serialization is what other tools read.
    pub fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS / UNIT_NS, 3)
            .expect("constant bounds are valid");
        for (index, count) in self.cells() {
            hdr.saturating_record_n(highest_of(index), count);
        }
        hdr
    }

    fn cells(&self) -> Cells<'_> {
        Cells { packed: &self.packed, next: 0 }
    }
}

struct Cells<'a> {
    packed: &'a [u8],
    next: usize,
}

impl Iterator for Cells<'_> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        if self.packed.is_empty() {
            return None;
        }
        let index = self.next + take_varint(&mut self.packed) as usize;
        self.next = index + 1;
        Some((index, take_varint(&mut self.packed)))
    }
}

/// LEB128, as HDR's V2 format packs its counts.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(from: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let Some((byte, rest)) = from.split_first() else { break };
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_agree_with_hdrhistogram() {
        let hdr = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LONGEST_NS / UNIT_NS, 3).unwrap();
        let mut value = 1u64;
        while value < LONGEST_NS / UNIT_NS {
            for v in [value - 1, value, value + 1, value * 3 / 2] {
                if (1..=LONGEST_NS / UNIT_NS).contains(&v) {
                    assert_eq!(highest_of(index_of(v)), hdr.highest_equivalent(v), "value {v}");
                }
            }
            value = value * 5 / 4 + 1;
        }
        assert!(index_of(LONGEST_NS / UNIT_NS) < BUCKETS);
    }

    #[test]
    fn packing_loses_nothing_against_hdr() {
        let durations: Vec<u64> = (0..20_000u64).map(|i| (i * i * 37) % 90_000_000 + 100).collect();
        let ours = Histogram::of(durations.iter().copied());
        let hdr = ours.to_hdr();
        assert_eq!(ours.len(), 20_000);
        assert_eq!(hdr.len(), 20_000);
        for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999] {
            let (a, b) = (ours.quantile_ns(q), hdr.value_at_quantile(q) * UNIT_NS);
            assert!(a.abs_diff(b) <= b / 1000 + UNIT_NS, "q {q}: {a} {b}");
        }
        assert_eq!(ours.max_ns(), *durations.iter().max().unwrap());
        assert_eq!(ours.min_ns(), *durations.iter().min().unwrap());
        assert_eq!(ours.sum_ns(), durations.iter().sum::<u64>());
    }

    #[test]
    fn quantiles_are_within_one_in_a_thousand_of_the_sorted_values() {
        let mut durations: Vec<u64> = (0..5_001u64).map(|i| 10_000 + (i * 7_919) % 5_001 * 1_000).collect();
        let ours = Histogram::of(durations.iter().copied());
        durations.sort_unstable();
        for q in [0.001, 0.25, 0.5, 0.95, 0.99, 0.999, 1.0] {
            let exact = durations[((q * 5_001f64).ceil() as usize).clamp(1, 5_001) - 1];
            let got = ours.quantile_ns(q);
            assert!(got.abs_diff(exact) <= exact / 1000 + UNIT_NS, "q {q}: {got} {exact}");
        }
    }

    #[test]
    fn merging_equals_recording_together() {
        let left: Vec<u64> = (1..4_000).map(|i| i * 1_234).collect();
        let right: Vec<u64> = (1..100).map(|i| i * 99_000_000).collect();
        let merged = Histogram::merged([&Histogram::of(left.clone()), &Histogram::of(right.clone())]);
        assert_eq!(merged, Histogram::of(left.into_iter().chain(right)));
    }

    #[test]
    fn flat_ones_travel_without_loss() {
        let mut counts = Counts::default();
        [1, 99, 5_000, 5_049, 70_000_000, LONGEST_NS * 2].into_iter().for_each(|ns| counts.record(ns));
        let text = serde_json::to_string(&counts).unwrap();
        let arrived: Counts = serde_json::from_str(&text).unwrap();
        assert_eq!(arrived.to_histogram(), counts.to_histogram());
        assert_eq!((arrived.low, arrived.high), (counts.low, counts.high));
        let none: Counts = serde_json::from_str(&serde_json::to_string(&Counts::default()).unwrap()).unwrap();
        assert!(none.is_empty() && none.summary == Summary::NONE);
    }

    #[test]
    fn too_long_is_clamped_and_counted() {
        let histogram = Histogram::of([LONGEST_NS * 3, 5]);
        assert_eq!((histogram.clamped(), histogram.max_ns(), histogram.len()), (1, LONGEST_NS, 2));
    }

    #[test]
    fn clearing_forgets_everything() {
        let mut counts = Counts::default();
        counts.record(5_000);
        counts.record(70_000_000);
        counts.clear();
        assert_eq!(counts.to_histogram(), Histogram::default());
        assert!(counts.cells.iter().all(|cell| *cell == 0));
    }

    #[test]
    fn an_empty_histogram_answers() {
        let empty = Histogram::default();
        assert_eq!((empty.quantile_ns(0.5), empty.max_ns(), empty.mean_ns()), (0, 0, 0.0));
        assert!(empty.is_empty());
    }
}
