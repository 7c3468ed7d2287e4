//! What the user sees while something goes on. Everything here goes to standard error: data belongs to standard
//! output.

pub(crate) mod bar;
mod live;
mod plain;
mod state;
mod summary;
mod tables;
pub(crate) mod terminal;

use std::io::IsTerminal;

pub(crate) use live::{Live, is_drawing, restore};
pub(crate) use plain::Plain;
pub(crate) use summary::{summary, width, wrapped};
pub(crate) use tables::{Align, Table};

/// Whether escape sequences are welcome there: a terminal that can, and a user who did not say NO_COLOR.
pub(crate) fn has_colour(stream: &impl IsTerminal) -> bool {
    is_capable(stream) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A terminal that understands cursor movements.
pub(crate) fn is_capable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `1,234,567` or `12.3`: three significant digits at least, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{rest}")
}

/// `812 ms`, `5.8 s`, `3 min 20 s`, `1 h 5 min`.
pub(crate) fn time(duration: std::time::Duration) -> String {
    let s = duration.as_secs_f64();
    match s {
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 59.95 => format!("{s:.1} s"),
        s if s < 3599.5 => format!("{} min {} s", s.round() as u64 / 60, s.round() as u64 % 60),
        s => format!("{} h {} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

/// `12 MB`.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        count if count < 1 << 10 => format!("{count} B"),
        count if count < 1 << 20 => format!("{} KB", count >> 10),
        count if count < 10 << 30 => format!("{} MB", count >> 20),
        count => format!("{} GB", count >> 30),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_are_short_and_readable() {
        for (value, text) in [
            (0.0, "0.000"),
            (0.1234, "0.123"),
            (5.0, "5.00"),
            (64.25, "64.2"),
            (999.6, "1,000"),
            (1234567.0, "1,234,567"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(f64::NAN), "-");
        for (ms, text) in
            [(812, "812 ms"), (5_800, "5.8 s"), (200_000, "3 min 20 s"), (3_900_000, "1 h 5 min")]
        {
            assert_eq!(time(Duration::from_millis(ms)), text);
        }
        assert_eq!(bytes(12 << 20), "12 MB");
    }
}
