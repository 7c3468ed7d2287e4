//! Words for queries.

use std::sync::Arc;

use workload::random::Rng;

use crate::error::Error;
use crate::syntax::{DictionarySource, Draw, Words};

/// A dictionary with its words loaded; shared by all instances of all clients.
#[derive(Debug, Clone)]
pub struct Dictionary {
    /// `$name` in queries.
    pub name: String,
    draw: Draw,
    words: Arc<[String]>,
    template: Option<IntegerFormat>,
}

/// Where one instance stands in a dictionary.
#[derive(Debug, Clone, Copy, Default)]
pub struct Position(u64);

impl Dictionary {
    /// Loads the words; `read` gives the bytes of a file of the data directory.
    ///
    /// # Errors
    /// The file is missing, there is no word, or a template is wrong.
    pub fn load(
        source: &DictionarySource,
        read: &dyn Fn(&str) -> Result<Vec<u8>, Error>,
    ) -> Result<Dictionary, Error> {
        let fault = |message: String| Error::Dictionary { name: source.name.clone(), message };
        let mut template = None;
        let words = match &source.words {
            Words::List(items) => items.clone(),
            Words::Template(text) => {
                template = Some(IntegerFormat::parse(text).map_err(fault)?);
                Vec::new()
            }
            Words::File { path, delimiter, size_equivalent } => {
                thinned(&read(path)?, *delimiter, *size_equivalent)
            }
        };
        if template.is_none() && words.is_empty() {
            return Err(fault("no words (in a list the last item needs a comma after it)".into()));
        }
        Ok(Dictionary { name: source.name.clone(), draw: source.draw, words: words.into(), template })
    }

    /// How many different words it can give; `None` for a template.
    pub fn len(&self) -> Option<usize> {
        self.template.is_none().then_some(self.words.len())
    }

    /// Whether it has no words of its own (a template makes them).
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Appends the next word of an instance, through `escape`.
    pub fn draw(&self, position: &mut Position, random: &mut Rng, mut append: impl FnMut(&str)) {
        if let Some(template) = &self.template {
            append(&template.print(position.0));
            position.0 += 1;
            return;
        }
        let count = self.words.len() as u64;
        let index = match self.draw {
            Draw::Random => random.uniform(0, count - 1),
            Draw::Sequence | Draw::Unique => {
                let index = position.0 % count;
                position.0 += 1;
                index
            }
        };
        append(&self.words[index as usize]);
    }
}

/// Keeps line i (from 1) where i mod step = 0, with step = size of the file / `size_equivalent`, and of each the
/// text before the delimiter: with the 90,000 rows of the 2005 study and 45,000 this leaves 750 words.
fn thinned(file: &[u8], delimiter: Option<char>, size_equivalent: Option<u64>) -> Vec<String> {
    let step = match size_equivalent {
        Some(size) if size > 0 => (file.len() as u64 / size).max(1),
        _ => 1,
    };
    String::from_utf8_lossy(file)
        .lines()
        .enumerate()
        .filter(|(index, _)| (*index as u64 + 1).is_multiple_of(step))
        .map(|(_, line)| match delimiter {
            Some(delimiter) => line.split(delimiter).next().unwrap_or_default().to_owned(),
            None => line.to_owned(),
        })
        .collect()
}

/// A printf template with exactly one integer field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IntegerFormat {
    before: String,
    after: String,
    zero: bool,
    left: bool,
    width: usize,
    radix: char,
}

impl IntegerFormat {
    fn parse(text: &str) -> Result<IntegerFormat, String> {
        let wrong = || format!("the template `{text}` wants exactly one integer field such as %d or %08d");
        let (before, rest) = text.split_once('%').ok_or_else(wrong)?;
        let spec_end = rest.find(|c: char| c.is_ascii_alphabetic() && c != 'l').ok_or_else(wrong)?;
        let (spec, tail) = rest.split_at(spec_end);
        let mut tail = tail.chars();
        let radix =
            tail.next().filter(|c| matches!(c, 'd' | 'i' | 'u' | 'x' | 'X' | 'o')).ok_or_else(wrong)?;
        let after = tail.as_str();
        let spec = spec.trim_end_matches('l');
        let left = spec.contains('-');
        let digits = spec.trim_start_matches('-');
        let zero = digits.starts_with('0') && !left;
        let width = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| wrong())? };
        if after.contains('%') || width > 1024 {
            return Err(wrong());
        }
        Ok(IntegerFormat { before: before.into(), after: after.into(), zero, left, width, radix })
    }

    fn print(&self, number: u64) -> String {
        let digits = match self.radix {
            'x' => format!("{number:x}"),
            'X' => format!("{number:X}"),
            'o' => format!("{number:o}"),
            _ => number.to_string(),
        };
        let width = self.width;
        let padded = match (self.left, self.zero) {
            (true, _) => format!("{digits:<width$}"),
            (false, true) => format!("{digits:0>width$}"),
            (false, false) => format!("{digits:>width$}"),
        };
        format!("{}{padded}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::Place;

    fn dictionary(draw: Draw, words: Words) -> Result<Dictionary, Error> {
        let source = DictionarySource { name: "word".into(), draw, words, place: Place::default() };
        let (rows, template) =
            crate::gen_data::command("gen-data -n 90000 -f %12-12s%n,%25-25s,%n,%d").unwrap().unwrap();
        Dictionary::load(&source, &move |_| Ok(template.file(rows)))
    }

    fn words(dictionary: &Dictionary, count: usize) -> Vec<String> {
        let (mut position, mut random) = (Position::default(), Rng::stream(1, 0));
        (0..count)
            .map(|_| {
                let mut word = String::new();
                dictionary.draw(&mut position, &mut random, |text| word.push_str(text));
                word
            })
            .collect()
    }

    #[test]
    fn the_dictionary_of_the_2005_study_draws_from_750_keys() {
        let file =
            Words::File { path: "words.dat".into(), delimiter: Some(','), size_equivalent: Some(45_000) };
        let dictionary = dictionary(Draw::Random, file).unwrap();
        assert_eq!(dictionary.len(), Some(750));
        let drawn: std::collections::BTreeSet<String> = words(&dictionary, 20_000).into_iter().collect();
        assert_eq!(drawn.len(), 750);
        // Line 120 is the first that is kept.
        assert!(drawn.iter().any(|word| word.len() == 15 && word.ends_with("120")));
    }

    #[test]
    fn sequences_wrap_and_templates_count() {
        let list = dictionary(Draw::Sequence, Words::List(vec!["a".into(), "b".into()])).unwrap();
        assert_eq!(words(&list, 3), ["a", "b", "a"]);
        let unique = dictionary(Draw::Unique, Words::Template("user%05ldx".into())).unwrap();
        assert_eq!(words(&unique, 2), ["user00000x", "user00001x"]);
        assert!(dictionary(Draw::Unique, Words::Template("%s".into())).is_err());
        assert!(dictionary(Draw::Unique, Words::Template("%d%d".into())).is_err());
        assert!(dictionary(Draw::Random, Words::List(vec![])).is_err());
    }
}
