//! MySQL's codecs by themselves.

use wire::mysql::answer::{Answer, Dialect, Event};
use wire::mysql::compression::Compression;
use wire::mysql::framing::{begin, finish, join};
use wire::mysql::handshake::Greeting;
use wire::mysql::row::{Column, binary_cells, text_cells};
use wire::{Done, Row};

/// What came of it, how many bytes were used.
fn skip(dialect: Dialect, bytes: &[u8], piece: usize) -> (Result<Done, String>, usize) {
    let mut answer = Answer::new(dialect, 1).keeping_definitions();
    let (mut used, mut given) = (0, 0);
    loop {
        let (count, event) = answer.skip(&bytes[used..given]);
        used += count;
        assert!(used <= given);
        match event {
            Err(error) => return (Err(error.to_string()), used),
            Ok(Event::StatementEnd(_)) if answer.is_finished() => return (Ok(answer.done()), used),
            Ok(Event::Nothing) if given == bytes.len() => return (Err("cut short".into()), 0),
            Ok(Event::Nothing) => given = (given + piece).min(bytes.len()),
            Ok(_) => {}
        }
    }
}

fn read_rows(payload: &[u8]) {
    let (mut text, mut cells) = (Vec::new(), Vec::new());
    for columns in 0..4 {
        if text_cells(payload, columns, &mut cells).is_ok() {
            std::hint::black_box(Row::new(payload, &cells).to_owned_row());
        }
    }
    // A definition and a row in one: the first half says how to read the second.
    let (definition, row) = payload.split_at(payload.len() / 2);
    if let Ok(column) = Column::parse(definition) {
        let columns = [column.clone(), column];
        if binary_cells(row, &columns, &mut text, &mut cells).is_ok() {
            std::hint::black_box(Row::new(&text, &cells).to_owned_row());
        }
    }
}

/// In every form of results, and cut into reads in every way, an answer that is skipped must have the same outcome.
pub fn mysql_codecs(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let dialect = Dialect { deprecate_eof: first & 1 != 0, cache_metadata: first & 2 != 0 };
    let whole = skip(dialect, bytes, usize::MAX / 2);
    let piece = usize::from(first >> 2) + 1;
    assert_eq!(whole, skip(dialect, bytes, piece), "in pieces of {piece}");
    let _ = Greeting::parse(bytes);
    read_rows(bytes);
    let mut copy = bytes.to_vec();
    if let Ok(Some(packet)) = join(&mut copy, 1, 1 << 20) {
        assert!(packet.wire_len <= copy.len());
        read_rows(packet.payload(&copy));
    }
}

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

/// Compressed packets: whatever comes, in whatever pieces, ends alike; what is sealed comes out again.
pub fn mysql_compression(data: &[u8]) {
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
}
