//! The one way of texts to the terminal: what servers, scripts and study files wrote in them cannot draw on it.

use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write, stderr, stdout};

use wire::shown;

/// A line on standard error, as `eprintln!` takes it.
macro_rules! tell {
    ($($text:tt)*) => { $crate::show::terminal::line(format_args!($($text)*)) };
}
pub(crate) use tell;

/// See [`tell`]. A terminal that has gone away is no reason to stop.
pub(crate) fn line(text: Arguments<'_>) {
    let text = text.to_string();
    let _ = writeln!(stderr().lock(), "{}", shown(&text));
}

/// A text of ours that draws, on standard error. Texts of others are put into it by way of [`shown`].
pub(crate) fn draw(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Standard output: for a terminal without what it would obey, for anything else as it is.
pub(crate) fn output() -> Box<dyn Write + Send> {
    match stdout().is_terminal() {
        true => Box::new(Shown { out: stdout(), rest: Vec::new() }),
        false => Box::new(stdout()),
    }
}

/// Writes texts by way of [`shown`]. What is no UTF-8 becomes replacement characters.
struct Shown<W> {
    out: W,
    /// The beginning of a character whose other bytes have not come.
    rest: Vec<u8>,
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let begun = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => self.rest.split_off(error.valid_up_to()),
            _ => Vec::new(),
        };
        let whole = std::mem::replace(&mut self.rest, begun);
        self.out.write_all(shown(&String::from_utf8_lossy(&whole)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_a_terminal_cannot_draw_however_it_is_cut() {
        let text = "größe \u{1b}[2J\u{9b}1m\n";
        for piece in 1..=text.len() {
            let mut writer = Shown { out: Vec::new(), rest: Vec::new() };
            for part in text.as_bytes().chunks(piece) {
                writer.write_all(part).unwrap();
            }
            assert_eq!(String::from_utf8(writer.out).unwrap(), "größe \\u{1b}[2J\\u{9b}1m\n", "{piece}");
        }
        let mut writer = Shown { out: Vec::new(), rest: Vec::new() };
        writer.write_all(b"a\xff\xfeb").unwrap();
        assert_eq!(String::from_utf8(writer.out).unwrap(), "a\u{fffd}\u{fffd}b");
    }
}
