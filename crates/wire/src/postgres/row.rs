//! Rows that somebody looks at, and the names of their columns (PostgreSQL documentation, "Message Formats").

use super::framing::malformed;
use crate::Error;
use crate::limits::{self, COLUMNS_MAX, NAME_BYTES_MAX};
use crate::value::Cell;

/// Splits a DataRow into cells over its body.
pub(super) fn parse_row(body: &[u8], cells: &mut Vec<Option<Cell>>) -> Result<(), Error> {
    cells.clear();
    let (count, _) = body.split_first_chunk::<2>().ok_or_else(|| malformed("DataRow"))?;
    let mut at = 2;
    let count = u16::from_be_bytes(*count);
    if usize::from(count) > COLUMNS_MAX {
        return Err(Error::Protocol(format!("a row of {count} columns")));
    }
    for _ in 0..count {
        let length = body[at..].first_chunk::<4>().ok_or_else(|| malformed("DataRow"))?;
        at += 4;
        match i32::from_be_bytes(*length) {
            -1 => cells.push(None),
            length => {
                let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
                let end = end.filter(|&end| end <= body.len()).ok_or_else(|| malformed("DataRow"))?;
                // A message is shorter than 1 GiB, hence offsets fit.
                cells.push(Some(Cell { start: at as u32, end: end as u32 }));
                at = end;
            }
        }
    }
    if at != body.len() { Err(malformed("DataRow")) } else { Ok(()) }
}

/// Column names of a RowDescription.
pub(super) fn parse_columns(body: &[u8]) -> Result<Vec<String>, Error> {
    let bad = || malformed("RowDescription");
    let (count, mut rest) = body.split_first_chunk::<2>().ok_or_else(bad)?;
    let count = u16::from_be_bytes(*count);
    if usize::from(count) > COLUMNS_MAX {
        return Err(Error::Protocol(format!("a result of {count} columns")));
    }
    let mut columns = Vec::new();
    for _ in 0..count {
        let end = rest.iter().position(|&byte| byte == 0).ok_or_else(bad)?;
        columns.push(limits::text(&rest[..end], NAME_BYTES_MAX));
        // After the name: table, column number, type, type length, type modifier, format.
        rest = rest.get(end + 1 + 18..).ok_or_else(bad)?;
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_rows_and_descriptions_are_refused() {
        let mut cells = Vec::new();
        for body in [
            b"".as_slice(),
            b"\0",
            b"\0\x01",
            b"\0\x01\0\0\0\x05abc",
            b"\0\x01\0\0\0\x01abc",
            b"\xff\xff",
            b"\0\x01\xff\xff\xff\xfe",
            b"\0\x01\x7f\xff\xff\xff",
        ] {
            assert!(parse_row(body, &mut cells).is_err(), "{body:?}");
            assert!(parse_columns(body).is_err(), "{body:?}");
        }
    }
}
