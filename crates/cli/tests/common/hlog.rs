//! Reads interval logs, as other tools do.

use std::path::Path;

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

/// Tag and count of each interval.
pub(crate) fn read(log: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read(log).unwrap();
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        let bytes = base64(interval.encoded_histogram());
        let count = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).unwrap().len();
        found.push((interval.tag().unwrap().as_str().to_owned(), count));
    }
    found
}

/// Standard base64 to bytes.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.bytes().filter(|&symbol| symbol != b'=') {
        bits = bits << 6 | ALPHABET.iter().position(|&known| known == symbol).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
