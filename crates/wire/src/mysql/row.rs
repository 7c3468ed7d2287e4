//! Column definitions and rows, text and binary.
//! MySQL internals manual, "ProtocolText::ResultsetRow", "ProtocolBinary::ResultsetRow", "ColumnDefinition41".

use std::io::Write;

use super::framing::{Reader, malformed};
use crate::error::Error;
use crate::limits;
use crate::value::Cell;

/// The types whose binary form is not simply text.
mod kind {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const NULL: u8 = 6;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
}

const FLAG_UNSIGNED: u16 = 0x20;

/// What is kept of a column definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// As the result names it.
    pub name: String,
    kind: u8,
    is_unsigned: bool,
    decimals: u8,
}

impl Column {
    /// Reads a column definition.
    pub fn parse(payload: &[u8]) -> Result<Column, Error> {
        let mut reader = Reader::new(payload);
        for _catalog_schema_table_org_table in 0..4 {
            reader.lenenc_bytes()?;
        }
        let name = limits::text(reader.lenenc_bytes()?, limits::NAME_BYTES_MAX);
        reader.lenenc_bytes()?;
        let mut fixed = Reader::new(reader.lenenc_bytes()?);
        // Character set (2) and display width (4).
        fixed.take(6)?;
        let kind = fixed.u8()?;
        let flags = fixed.u16()?;
        let decimals = fixed.u8()?;
        Ok(Column { name, kind, is_unsigned: flags & FLAG_UNSIGNED != 0, decimals })
    }
}

/// Finds the values of a text row within `payload`.
pub fn text_cells(payload: &[u8], columns: usize, cells: &mut Vec<Option<Cell>>) -> Result<(), Error> {
    cells.clear();
    let mut reader = Reader::new(payload);
    for _ in 0..columns {
        if reader.rest().first() == Some(&0xfb) {
            reader.u8()?;
            cells.push(None);
            continue;
        }
        let len = reader.lenenc_bytes()?.len();
        let end = payload.len() - reader.rest().len();
        cells.push(Some(cell(end - len, end)?));
    }
    if !reader.rest().is_empty() {
        return malformed(format!("{} bytes after a row's last value", reader.rest().len()));
    }
    Ok(())
}

fn cell(start: usize, end: usize) -> Result<Cell, Error> {
    match (u32::try_from(start), u32::try_from(end)) {
        (Ok(start), Ok(end)) => Ok(Cell { start, end }),
        _ => malformed("a row of more than 4 GiB"),
    }
}

/// Renders a binary row as text: into `text`, with the values' places in `cells`.
pub fn binary_cells(
    payload: &[u8],
    columns: &[Column],
    text: &mut Vec<u8>,
    cells: &mut Vec<Option<Cell>>,
) -> Result<(), Error> {
    cells.clear();
    text.clear();
    let mut reader = Reader::new(payload);
    if reader.u8()? != 0 {
        return malformed("a binary row that does not begin with 0");
    }
    // The first two bits of the bitmap are reserved.
    let nulls = reader.take((columns.len() + 7 + 2) / 8)?;
    for (i, column) in columns.iter().enumerate() {
        let bit = i + 2;
        if nulls[bit / 8] & (1 << (bit % 8)) != 0 || column.kind == kind::NULL {
            cells.push(None);
            continue;
        }
        let start = text.len();
        render(&mut reader, column, text)?;
        cells.push(Some(cell(start, text.len())?));
    }
    if !reader.rest().is_empty() {
        return malformed(format!("{} bytes after a row's last value", reader.rest().len()));
    }
    Ok(())
}

fn render(reader: &mut Reader<'_>, column: &Column, text: &mut Vec<u8>) -> Result<(), Error> {
    let integer = |text: &mut Vec<u8>, signed: i64, unsigned: u64| {
        if column.is_unsigned {
            write(text, format_args!("{unsigned}"))
        } else {
            write(text, format_args!("{signed}"))
        }
    };
    match column.kind {
        kind::TINY => {
            let value = reader.u8()?;
            integer(text, i64::from(value as i8), u64::from(value));
        }
        kind::YEAR => {
            let value = reader.u16()?;
            write(text, format_args!("{value:04}"));
        }
        kind::SHORT => {
            let value = reader.u16()?;
            integer(text, i64::from(value as i16), u64::from(value));
        }
        kind::LONG | kind::INT24 => {
            let value = reader.u32()?;
            integer(text, i64::from(value as i32), u64::from(value));
        }
        kind::LONGLONG => {
            let value = reader.u64()?;
            integer(text, value as i64, value);
        }
        kind::FLOAT => float(text, f32::from_bits(reader.u32()?), |v| f64::from(v.abs())),
        kind::DOUBLE => float(text, f64::from_bits(reader.u64()?), f64::abs),
        kind::DATE | kind::DATETIME | kind::TIMESTAMP => date_time(reader, column, text)?,
        kind::TIME => time(reader, column, text)?,
        _ => text.extend_from_slice(reader.lenenc_bytes()?),
    }
    Ok(())
}

/// Writing to a vector cannot fail.
fn write(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

/// The shortest digits that give the number back; with an exponent where MySQL prints one.
fn float<F: std::fmt::Display + std::fmt::LowerExp + Copy>(
    text: &mut Vec<u8>,
    value: F,
    magnitude: impl Fn(F) -> f64,
) {
    let size = magnitude(value);
    if size != 0.0 && !(1e-15..1e15).contains(&size) {
        write(text, format_args!("{value:e}"));
    } else {
        write(text, format_args!("{value}"));
    }
}

fn date_time(reader: &mut Reader<'_>, column: &Column, text: &mut Vec<u8>) -> Result<(), Error> {
    let len = reader.u8()?;
    if !matches!(len, 0 | 4 | 7 | 11) {
        return malformed(format!("a date of {len} bytes"));
    }
    let mut bytes = Reader::new(reader.take(usize::from(len))?);
    let (year, month, day) = if len >= 4 { (bytes.u16()?, bytes.u8()?, bytes.u8()?) } else { (0, 0, 0) };
    write(text, format_args!("{year:04}-{month:02}-{day:02}"));
    if column.kind == kind::DATE {
        return Ok(());
    }
    let (hour, minute, second) = if len >= 7 { (bytes.u8()?, bytes.u8()?, bytes.u8()?) } else { (0, 0, 0) };
    write(text, format_args!(" {hour:02}:{minute:02}:{second:02}"));
    let micros = if len == 11 { bytes.u32()? } else { 0 };
    fraction(text, micros, column.decimals);
    Ok(())
}

fn time(reader: &mut Reader<'_>, column: &Column, text: &mut Vec<u8>) -> Result<(), Error> {
    let len = reader.u8()?;
    if !matches!(len, 0 | 8 | 12) {
        return malformed(format!("a time of {len} bytes"));
    }
    let mut bytes = Reader::new(reader.take(usize::from(len))?);
    let (sign, days, hour, minute, second) = if len >= 8 {
        (bytes.u8()?, bytes.u32()?, bytes.u8()?, bytes.u8()?, bytes.u8()?)
    } else {
        (0, 0, 0, 0, 0)
    };
    let hours = u64::from(days) * 24 + u64::from(hour);
    let sign = if sign != 0 { "-" } else { "" };
    write(text, format_args!("{sign}{hours:02}:{minute:02}:{second:02}"));
    let micros = if len == 12 { bytes.u32()? } else { 0 };
    fraction(text, micros, column.decimals);
    Ok(())
}

/// As many digits as the column has; 0x1f ("not fixed") and above: none.
fn fraction(text: &mut Vec<u8>, micros: u32, decimals: u8) {
    if (1..=6).contains(&decimals) {
        let digits = format!("{:06}", micros % 1_000_000);
        text.push(b'.');
        text.extend_from_slice(&digits.as_bytes()[..usize::from(decimals)]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::push_lenenc_bytes;
    use super::*;
    use crate::value::Row;
    use proptest::prelude::*;

    fn column(kind: u8, flags: u16, decimals: u8) -> Column {
        let mut out = Vec::new();
        for text in ["def", "db", "t", "t", "name", "name"] {
            push_lenenc_bytes(&mut out, text.as_bytes());
        }
        out.extend_from_slice(&[0x0c, 45, 0, 255, 0, 0, 0, kind]);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[decimals, 0, 0]);
        Column::parse(&out).unwrap()
    }

    fn rendered(kind: u8, flags: u16, decimals: u8, value: &[u8]) -> String {
        let payload = [&[0, 0], value].concat();
        let (mut text, mut cells) = (Vec::new(), Vec::new());
        binary_cells(&payload, &[column(kind, flags, decimals)], &mut text, &mut cells).unwrap();
        Row::new(&text, &cells).text(0).unwrap().to_owned()
    }

    #[test]
    fn binary_values_become_text() {
        for (kind, flags, decimals, value, expected) in [
            (kind::TINY, 0, 0, &[0xff][..], "-1"),
            (kind::TINY, FLAG_UNSIGNED, 0, &[0xff], "255"),
            (kind::SHORT, 0, 0, &[0, 0x80], "-32768"),
            (kind::YEAR, FLAG_UNSIGNED, 0, &[0xea, 0x07], "2026"),
            (kind::LONG, 0, 0, &[1, 0, 0, 0], "1"),
            (kind::INT24, 0, 0, &[0xfe, 0xff, 0xff, 0xff], "-2"),
            (kind::LONGLONG, FLAG_UNSIGNED, 0, &[0xff; 8], "18446744073709551615"),
            (kind::FLOAT, 0, 31, &1.5f32.to_le_bytes(), "1.5"),
            (kind::DOUBLE, 0, 31, &(-0.1f64).to_le_bytes(), "-0.1"),
            (kind::DOUBLE, 0, 31, &1e300f64.to_le_bytes(), "1e300"),
            (253, 0, 0, b"\x05hello", "hello"),
            (246, 0, 2, b"\x0512.50", "12.50"),
            (kind::DATE, 0, 0, &[4, 0xea, 7, 11, 21], "2026-11-21"),
            (kind::DATE, 0, 0, &[0], "0000-00-00"),
            (kind::DATETIME, 0, 0, &[4, 0xea, 7, 11, 21], "2026-11-21 00:00:00"),
            (kind::TIMESTAMP, 0, 0, &[7, 0xea, 7, 11, 21, 9, 8, 7], "2026-11-21 09:08:07"),
            (
                kind::DATETIME,
                0,
                3,
                &[11, 0xea, 7, 11, 21, 9, 8, 7, 0x40, 0xe2, 1, 0],
                "2026-11-21 09:08:07.123",
            ),
            (kind::TIME, 0, 0, &[0], "00:00:00"),
            (kind::TIME, 0, 0, &[8, 1, 2, 0, 0, 0, 3, 4, 5], "-51:04:05"),
            (kind::TIME, 0, 6, &[12, 0, 0, 0, 0, 0, 3, 4, 5, 1, 0, 0, 0], "03:04:05.000001"),
        ] {
            assert_eq!(rendered(kind, flags, decimals, value), expected);
        }
    }

    #[test]
    fn nulls() {
        let columns = vec![column(kind::LONG, 0, 0); 8];
        // Bits 2 and 9 (the first and the last column) of two bytes.
        let mut payload = vec![0, 0b0000_0100, 0b0000_0010];
        for i in 0..6u32 {
            payload.extend_from_slice(&i.to_le_bytes());
        }
        let (mut text, mut cells) = (Vec::new(), Vec::new());
        binary_cells(&payload, &columns, &mut text, &mut cells).unwrap();
        let row = Row::new(&text, &cells);
        assert_eq!((row.len(), row.get(0), row.get(7)), (8, None, None));
        assert_eq!(row.text(6), Some("5"));

        text_cells(b"\xfb\x00\x02ab", 3, &mut cells).unwrap();
        let row = Row::new(b"\xfb\x00\x02ab", &cells);
        assert_eq!((row.get(0), row.get(1), row.text(2)), (None, Some(&b""[..]), Some("ab")));
        assert!(text_cells(b"\x02ab", 2, &mut cells).is_err());
        assert!(text_cells(b"\x02abc", 1, &mut cells).is_err());
        assert!(text_cells(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xffabc", 1, &mut cells).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(payload in proptest::collection::vec(any::<u8>(), 0..100), kinds: [u8; 5], decimals: u8) {
            let columns: Vec<_> = kinds.iter().map(|kind| column(kind % 17, 0, decimals)).collect();
            let (mut text, mut cells) = (Vec::new(), Vec::new());
            let _ = binary_cells(&payload, &columns, &mut text, &mut cells);
            let _ = text_cells(&payload, 5, &mut cells);
            let _ = Column::parse(&payload);
        }

        #[test]
        fn text_rows_come_back(values in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)), 0..10)) {
            let mut payload = Vec::new();
            for value in &values {
                match value {
                    None => payload.push(0xfb),
                    Some(bytes) => push_lenenc_bytes(&mut payload, bytes),
                }
            }
            let mut cells = Vec::new();
            text_cells(&payload, values.len(), &mut cells).unwrap();
            prop_assert_eq!(Row::new(&payload, &cells).to_owned_row(), values);
        }
    }
}
