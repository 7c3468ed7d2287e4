//! A program that needs one shared library more: found by the loader before all others, as if it had been linked so.
//!
//! The dynamic section and its strings are copied to the end of the file with the new entry, and the segment of notes,
//! which no program needs to run, becomes the one that loads them (System V ABI, chapter 5: program headers, dynamic
//! section). Only 64-bit little-endian files.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const READ_WRITE: u32 = 6;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const PAGE: u64 = 4096;
const ENTRY: usize = 16;

#[derive(Clone, Copy)]
struct Segment {
    /// Where its header stands in the file.
    header: usize,
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

/// `program` with `library` as the first that it needs. `None` where it is not a program with shared libraries as this
/// module knows them.
pub(crate) fn with_library(program: &[u8], library: &Path) -> Option<Vec<u8>> {
    if program.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let segments = segments(program)?;
    let dynamic = *segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let note = *segments.iter().rfind(|segment| segment.kind == PT_NOTE)?;
    let loads = || segments.iter().filter(|segment| segment.kind == PT_LOAD);
    // The loader wants them in the order of their addresses, and the new one comes last.
    if loads().any(|load| load.header > note.header) {
        return None;
    }
    let entries = program.get(dynamic.offset as usize..(dynamic.offset + dynamic.file_bytes) as usize)?;
    let entries: Vec<(u64, u64)> = entries
        .chunks_exact(ENTRY)
        .map_while(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect();
    let value_of = |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
    let (strings_at, strings_bytes) = (value_of(DT_STRTAB)?, value_of(DT_STRSZ)?);
    let holder = loads().find(|load| (load.address..load.address + load.file_bytes).contains(&strings_at))?;
    let start = (strings_at - holder.address + holder.offset) as usize;
    let mut strings = program.get(start..start + strings_bytes as usize)?.to_vec();
    let name = strings.len() as u64;
    strings.extend_from_slice(library.as_os_str().as_bytes());
    strings.push(0);

    let mut changed = program.to_vec();
    changed.resize(changed.len().next_multiple_of(PAGE as usize), 0);
    let offset = changed.len() as u64;
    let end = loads().map(|load| load.address + load.memory_bytes).max()?;
    let address = end.next_multiple_of(PAGE);
    let dynamic_bytes = ((entries.len() + 2) * ENTRY) as u64;
    let new_entries = std::iter::once((DT_NEEDED, name))
        .chain(entries.iter().map(|&(tag, value)| match tag {
            DT_STRTAB => (tag, address + dynamic_bytes),
            DT_STRSZ => (tag, strings.len() as u64),
            _ => (tag, value),
        }))
        .chain([(DT_NULL, 0)]);
    for (tag, value) in new_entries {
        changed.extend_from_slice(&tag.to_le_bytes());
        changed.extend_from_slice(&value.to_le_bytes());
    }
    changed.extend_from_slice(&strings);
    let bytes = dynamic_bytes + strings.len() as u64;
    write_segment(&mut changed, note.header, PT_LOAD, [offset, address, address, bytes, bytes, PAGE]);
    write_segment(
        &mut changed,
        dynamic.header,
        PT_DYNAMIC,
        [offset, address, address, dynamic_bytes, dynamic_bytes, 8],
    );
    Some(changed)
}

fn segments(program: &[u8]) -> Option<Vec<Segment>> {
    let start = u64_at(program, 32)? as usize;
    let size = usize::from(u16_at(program, 54)?);
    let count = usize::from(u16_at(program, 56)?);
    (0..count)
        .map(|i| {
            let header = start + i * size;
            Some(Segment {
                header,
                kind: u32::from_le_bytes(program.get(header..header + 4)?.try_into().ok()?),
                offset: u64_at(program, header + 8)?,
                address: u64_at(program, header + 16)?,
                file_bytes: u64_at(program, header + 32)?,
                memory_bytes: u64_at(program, header + 40)?,
            })
        })
        .collect()
}

/// Writes a program header: kind, readable and writable, then offset, address, physical address, bytes in the file and in
/// memory, alignment. The caller has read it from there.
fn write_segment(program: &mut [u8], header: usize, kind: u32, fields: [u64; 6]) {
    program[header..header + 4].copy_from_slice(&kind.to_le_bytes());
    program[header + 4..header + 8].copy_from_slice(&READ_WRITE.to_le_bytes());
    for (i, field) in fields.iter().enumerate() {
        let at = header + 8 + i * 8;
        program[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
