//! Bytes of histograms and series.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use flate2::write::DeflateEncoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// HdrHistogram V2, deflated. An error is a text: the caller knows what it was writing.
pub(crate) fn histogram_to_bytes(histogram: &Histogram<u64>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// HdrHistogram V2, deflated and plain.
const DEFLATED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
const PLAIN: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
/// Of a plain histogram: its cookie, the length of its counts, an offset, digits, least and largest value, a ratio.
const HEAD_BYTES: usize = 40;
/// More digits than ours have take a hundred times their memory for each histogram of a file.
const DIGITS_MAX: u32 = 3;
/// Ours have 27,000 counts of at most nine bytes.
const HISTOGRAM_BYTES_MAX: u64 = 1 << 20;
/// Time and value of each second of 48 days.
const POINTS_BYTES_MAX: u64 = 1 << 26;

/// The file may be anybody's: its histograms get no memory that they only claim.
pub(crate) fn histogram_from_bytes(bytes: &[u8]) -> Result<Histogram<u64>, String> {
    let inflated;
    let plain = match bytes.split_at_checked(8) {
        // The length that follows says nothing that the stream does not say itself.
        Some((head, deflated)) if head.starts_with(&DEFLATED) => {
            inflated = read_bounded(ZlibDecoder::new(deflated), HISTOGRAM_BYTES_MAX)?;
            &inflated[..]
        }
        _ => bytes,
    };
    let number = |at: usize| {
        plain.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(u32::MAX, u32::from_be_bytes)
    };
    if plain.len() < HEAD_BYTES || !plain.starts_with(&PLAIN) || number(12) > DIGITS_MAX {
        return Err("it is no histogram of Plimsoll's".to_owned());
    }
    if number(4) as usize > plain.len() - HEAD_BYTES {
        return Err("a histogram is cut short".to_owned());
    }
    Deserializer::new().deserialize(&mut &plain[..]).map_err(|error| error.to_string())
}

fn read_bounded(stream: impl Read, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    stream.take(bytes_max + 1).read_to_end(&mut plain).map_err(|error| error.to_string())?;
    if plain.len() as u64 > bytes_max {
        return Err(format!("it unpacks to more than {bytes_max} bytes"));
    }
    Ok(plain)
}

/// A histogram as it is stored. Thousands of them (by second and class of statement) would not fit into memory as
/// counters; their bytes do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedHistogram(pub(crate) Vec<u8>);

impl PackedHistogram {
    /// Packs it, losing nothing.
    ///
    /// # Panics
    /// The encoder refuses a histogram, for which it has no reason: it writes to memory.
    pub fn of(histogram: &Histogram<u64>) -> PackedHistogram {
        PackedHistogram(histogram_to_bytes(histogram).expect("a histogram is encoded in memory"))
    }

    /// HdrHistogram V2, deflated: what any library of HdrHistogram reads.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The histogram, to be looked at or added to others.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn unpacked(&self) -> Result<Histogram<u64>, String> {
        histogram_from_bytes(&self.0)
    }
}

/// Times first, then values: neighbours resemble each other and deflate well.
pub(crate) fn points_to_bytes(points: &[(f64, f64)]) -> std::io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    for value in points.iter().map(|point| point.0).chain(points.iter().map(|point| point.1)) {
        encoder.write_all(&value.to_le_bytes())?;
    }
    encoder.finish()
}

pub(crate) fn points_from_bytes(bytes: &[u8]) -> Result<Vec<(f64, f64)>, String> {
    let plain = read_bounded(DeflateDecoder::new(bytes), POINTS_BYTES_MAX)?;
    if !plain.len().is_multiple_of(16) {
        return Err(format!("{} bytes are no pairs of 8-byte numbers", plain.len()));
    }
    let values: Vec<f64> =
        plain.chunks_exact(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect();
    let (times, values) = values.split_at(values.len() / 2);
    Ok(times.iter().copied().zip(values.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use flate2::write::ZlibEncoder;

    use super::*;

    #[test]
    fn histogram_survives() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 36_000_000_000, 3).unwrap();
        for value in [1, 7, 1000, 12_345_678, 36_000_000_000] {
            histogram.record(value).unwrap();
        }
        let back = histogram_from_bytes(&histogram_to_bytes(&histogram).unwrap()).unwrap();
        assert_eq!(back, histogram);
        assert_eq!(back.len(), 5);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        assert!(histogram_from_bytes(b"no histogram").is_err());
        assert!(histogram_from_bytes(b"").is_err());
        assert!(points_from_bytes(b"\xff\xff\xff").is_err());
        let mut odd = DeflateEncoder::new(Vec::new(), Compression::default());
        odd.write_all(&[0; 24]).unwrap();
        assert!(points_from_bytes(&odd.finish().unwrap()).is_err());
    }

    /// A plain histogram without counts, which claims some.
    fn claiming(digits: u32, counts_bytes: u32) -> Vec<u8> {
        let numbers = [0x1c84_9313, counts_bytes, 0, digits, 0, 1, 8, 0x61c4_6800];
        let ratio = 1f64.to_be_bytes();
        numbers.iter().flat_map(|number: &u32| number.to_be_bytes()).chain(ratio).collect()
    }

    #[test]
    fn histograms_get_no_memory_that_they_only_claim() {
        assert!(histogram_from_bytes(&claiming(3, 0)).unwrap().is_empty());
        assert_eq!(histogram_from_bytes(&claiming(3, u32::MAX)).unwrap_err(), "a histogram is cut short");
        // 8 million counters, where ours have 27,000.
        assert!(histogram_from_bytes(&claiming(5, 0)).unwrap_err().contains("no histogram of Plimsoll's"));
    }

    #[test]
    fn what_was_deflated_to_fill_the_memory_is_refused() {
        let mut points = DeflateEncoder::new(Vec::new(), Compression::fast());
        std::io::copy(&mut std::io::repeat(0).take(POINTS_BYTES_MAX + 1), &mut points).unwrap();
        let error = points_from_bytes(&points.finish().unwrap()).unwrap_err();
        assert_eq!(error, format!("it unpacks to more than {POINTS_BYTES_MAX} bytes"));

        let mut histogram = ZlibEncoder::new(Vec::new(), Compression::fast());
        histogram.write_all(&claiming(3, HISTOGRAM_BYTES_MAX as u32)).unwrap();
        std::io::copy(&mut std::io::repeat(0).take(HISTOGRAM_BYTES_MAX), &mut histogram).unwrap();
        let bytes = [&DEFLATED[..], &[0; 4], &histogram.finish().unwrap()].concat();
        let error = histogram_from_bytes(&bytes).unwrap_err();
        assert_eq!(error, format!("it unpacks to more than {HISTOGRAM_BYTES_MAX} bytes"));
    }

    #[test]
    fn points_survive() {
        let points = vec![(0.0, 1.5), (1.0, -2.0), (2.0, f64::MAX)];
        assert_eq!(points_from_bytes(&points_to_bytes(&points).unwrap()).unwrap(), points);
        assert_eq!(points_from_bytes(&points_to_bytes(&[]).unwrap()).unwrap(), vec![]);
    }
}
