//! Bytes of histograms and series.

use std::io::{Read, Write};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// HdrHistogram V2, deflated. An error is a text: the caller knows what it was writing.
pub(crate) fn histogram_to_bytes(histogram: &Histogram<u64>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

pub(crate) fn histogram_from_bytes(bytes: &[u8]) -> Result<Histogram<u64>, String> {
    Deserializer::new().deserialize(&mut &bytes[..]).map_err(|error| error.to_string())
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
    let mut plain = Vec::new();
    DeflateDecoder::new(bytes).read_to_end(&mut plain).map_err(|error| error.to_string())?;
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

    #[test]
    fn points_survive() {
        let points = vec![(0.0, 1.5), (1.0, -2.0), (2.0, f64::MAX)];
        assert_eq!(points_from_bytes(&points_to_bytes(&points).unwrap()).unwrap(), points);
        assert_eq!(points_from_bytes(&points_to_bytes(&[]).unwrap()).unwrap(), vec![]);
    }
}
