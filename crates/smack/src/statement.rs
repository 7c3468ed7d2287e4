//! Query texts with `$dictionary` words.

use workload::random::Rng;

use crate::dictionary::{Dictionary, Position};
use crate::syntax::Query;

/// A query cut into literal text and words to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    parts: Vec<Part>,
    /// Index of the statistics group.
    pub group: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Word(usize),
}

/// How a word is made safe inside quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// Backslashes and quotes (MySQL).
    Backslash,
    /// Quotes only (standard_conforming_strings).
    Quote,
}

impl Compiled {
    /// Cuts the text of `query`.
    ///
    /// A `$word` is replaced when the first character that is no part of a name follows it; at the very end of
    /// the text nothing follows and it vanishes, as in the original.
    ///
    /// # Errors
    /// A `$name` that is no dictionary.
    pub fn new(query: &Query, group: usize, dictionaries: &[Dictionary]) -> Result<Compiled, String> {
        if !query.parsed {
            return Ok(Compiled { parts: vec![Part::Text(query.text.clone())], group });
        }
        let mut parts = Vec::new();
        let mut rest = query.text.as_str();
        while let Some(at) = rest.find('$') {
            let (text, tail) = rest.split_at(at);
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            let tail = &tail[1..];
            let end = tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let Some(end) = end else {
                rest = "";
                break;
            };
            let (name, after) = tail.split_at(end);
            match dictionaries.iter().position(|d| d.name == name) {
                Some(index) => parts.push(Part::Word(index)),
                None => return Err(format!("query \"{}\": no dictionary \"{name}\"", query.name)),
            }
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Compiled { parts, group })
    }

    /// Writes the statement with freshly drawn words into `out`.
    pub fn fill(
        &self,
        dictionaries: &[Dictionary],
        positions: &mut [Position],
        random: &mut Rng,
        escape: Escape,
        out: &mut String,
    ) {
        out.clear();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Word(index) => {
                    dictionaries[*index].draw(&mut positions[*index], random, |word| {
                        for c in word.chars() {
                            if c == '\'' || (escape == Escape::Backslash && matches!(c, '\\' | '"')) {
                                out.push(if c == '\'' { '\'' } else { '\\' });
                            }
                            out.push(c);
                        }
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{DictionarySource, Draw, Place, Words};

    fn filled(text: &str, parsed: bool) -> Result<String, String> {
        let source = DictionarySource {
            name: "w".into(),
            draw: Draw::Sequence,
            words: Words::List(vec!["a".into(), "b'\\".into()]),
            place: Place::default(),
        };
        let dictionaries = [Dictionary::load(&source, &|_| Ok(Vec::new())).unwrap()];
        let query = Query { name: "q".into(), text: text.into(), parsed, ..Query::default() };
        let compiled = Compiled::new(&query, 0, &dictionaries)?;
        let (mut positions, mut random) = ([Position::default()], Rng::stream(1, 1));
        let mut out = String::new();
        compiled.fill(&dictionaries, &mut positions, &mut random, Escape::Backslash, &mut out);
        Ok(out)
    }

    #[test]
    fn words_are_drawn_from_left_to_right_and_escaped() {
        assert_eq!(filled("set a='$w' where b='$w'", true).unwrap(), "set a='a' where b='b''\\\\'");
    }

    #[test]
    fn a_word_at_the_very_end_vanishes() {
        assert_eq!(filled("where a = $w", true).unwrap(), "where a = ");
        assert_eq!(filled("where a = $w;", true).unwrap(), "where a = a;");
    }

    #[test]
    fn unparsed_queries_are_sent_as_they_are() {
        assert_eq!(filled("$w '", false).unwrap(), "$w '");
        assert!(filled("$x '", true).unwrap_err().contains("no dictionary \"x\""));
    }
}
