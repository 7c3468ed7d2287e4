//! Texts of others as a terminal may get them.

use std::borrow::Cow;

/// What a terminal, or a reader, would obey instead of showing it: control characters apart from line feeds and tabs, and
/// the marks that turn the direction of writing around.
fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || turns
}

/// A text in which such characters stand as their numbers (`\u{1b}`), so that whoever wrote it cannot draw on the terminal.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_obeyed(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_and_not_obeyed() {
        assert_eq!(shown("größe\t1\n"), "größe\t1\n");
        assert_eq!(shown("a\u{1b}[2Jb\r\u{9b}1m\u{7f}"), "a\\u{1b}[2Jb\\u{d}\\u{9b}1m\\u{7f}");
        assert_eq!(shown("x\u{202e}y"), "x\\u{202e}y");
    }
}
