//! What is wrong with a study file, shown where it stands.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// Bytes of the file that it is about.
    pub span: Range<usize>,
    /// Said at the offending text (`not a key of [load]`).
    pub label: String,
    /// What is allowed, or the nearest name.
    pub help: Option<String>,
}

/// A study file that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyError {
    pub path: PathBuf,
    pub text: String,
    /// All that was found, in the order of the file.
    pub problems: Vec<Problem>,
}

impl StudyError {
    /// The problems as a compiler would show them: file, line, column, the text and what to write instead.
    pub fn render(&self, coloured: bool) -> String {
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let path = self.path.display().to_string();
        let mut shown = Vec::new();
        for problem in &self.problems {
            let end = problem.span.end.min(self.text.len());
            let start = problem.span.start.min(end);
            let snippet = Snippet::source(&self.text)
                .path(&path)
                .annotation(AnnotationKind::Primary.span(start..end).label(&problem.label));
            let mut group = Level::ERROR.primary_title(&problem.message).element(snippet);
            if let Some(help) = &problem.help {
                group = group.element(Level::HELP.message(help));
            }
            shown.push(renderer.render(&[group]).to_string());
        }
        shown.join("\n\n")
    }

    /// Line and column (both from 1, in characters) of a byte of the file.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        position(&self.text, byte)
    }
}

/// A text up to a byte, or to the character that the byte is in the middle of.
pub(super) fn before(text: &str, byte: usize) -> &str {
    let end = (0..=byte.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Line and column (both from 1, in characters) of a byte of a text.
pub(super) fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = before(text, byte);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for StudyError {}

/// `a, b or c`.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    // A server's name may be a URL.
    let names: Vec<String> = names.into_iter().map(wire::mask::value).collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let error = StudyError { path: "s.toml".into(), text: "a = 1\nö = 2\n".into(), problems: vec![] };
        assert_eq!(error.position(0), (1, 1));
        assert_eq!(error.position(6), (2, 1));
        assert_eq!(error.position(8), (2, 2));
    }

    #[test]
    fn lists_read_as_english() {
        assert_eq!(one_of(["a"]), "a");
        assert_eq!(one_of(["a", "b", "c"]), "a, b or c");
    }
}
