//! MySQL's compressed packets: whatever comes, in whatever pieces, ends alike; what is sealed comes out again.
#![no_main]

use wire::mysql::compression::Compression;
use wire::mysql::packet::{begin, finish};

/// All that can be taken once `bytes` were fed in pieces, or why not.
fn opened(bytes: &[u8], piece: usize) -> Result<Vec<u8>, String> {
    let mut reader = Compression::new();
    let mut plain = Vec::new();
    for part in bytes.chunks(piece) {
        reader.feed(part).map_err(|error| error.to_string())?;
        let mut buf = [0; 1000];
        loop {
            match reader.take(&mut buf) {
                0 => break,
                count => plain.extend_from_slice(&buf[..count]),
            }
        }
    }
    Ok(plain)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&first, bytes)) = data.split_first() else { return };
    let piece = usize::from(first) + 1;
    assert_eq!(opened(bytes, usize::MAX), opened(bytes, piece), "in pieces of {piece}");

    let mut packet = Vec::new();
    let start = begin(&mut packet);
    packet.extend_from_slice(bytes);
    finish(&mut packet, start, &mut 0);
    let mut writer = Compression::new();
    writer.push(&packet);
    writer.seal();
    assert_eq!(opened(writer.unsent(), piece), Ok(packet));
});
