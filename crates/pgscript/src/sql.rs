//! Where SQL statements end, and where variables stand in them.

use crate::script::Names;
use crate::token::is_word;
use crate::value::Value;

/// A SQL statement of a script, or several joined by `\;`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sql {
    /// As written, its `;` included.
    pub text: String,
    /// With `$1`, `$2` ... in place of the variables, for the extended protocol.
    pub numbered: String,
    /// Variables of `$1`, `$2` ..., by the indices of [`Names`].
    pub params: Vec<usize>,
    /// The text between the variables: one piece more than there are variables.
    pub(crate) pieces: Vec<String>,
    /// Where its result goes (`\gset`, `\aset`).
    pub store: Option<Store>,
}

/// What keeps a statement's result in variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Goes before the names of the columns.
    pub prefix: String,
    /// `\aset`: each statement of a line joined by `\;`, and no row is no error.
    pub of_all: bool,
}

impl Sql {
    pub(crate) fn new(text: String, names: &mut Names) -> Sql {
        let mut pieces = vec![String::new()];
        let mut params = Vec::new();
        let mut numbered = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(':') {
            let colons = rest[at..].len() - rest[at..].trim_start_matches(':').len();
            let name = name_at(&rest[at + 1..]);
            let taken = match name {
                Some(name) => at + 1 + name.len(),
                None => at + colons,
            };
            let kept = if name.is_some() { at } else { taken };
            numbered.push_str(&rest[..kept]);
            // There is always a last piece.
            if let Some(last) = pieces.last_mut() {
                last.push_str(&rest[..kept]);
            }
            if let Some(name) = name {
                params.push(names.slot(name));
                numbered.push_str(&format!("${}", params.len()));
                pieces.push(String::new());
            }
            rest = &rest[taken..];
        }
        numbered.push_str(rest);
        if let Some(last) = pieces.last_mut() {
            last.push_str(rest);
        }
        Sql { text, numbered, params, pieces, store: None }
    }

    /// The text with `?` in place of the variables, as MySQL prepares it.
    pub fn with_marks(&self) -> String {
        self.pieces.join("?")
    }

    /// Writes the statement with the values of variables in their places; one that was never set stays as it is written.
    pub fn fill(&self, names: &Names, variables: &[Option<Value>], out: &mut String) {
        out.clear();
        for (at, piece) in self.pieces.iter().enumerate() {
            out.push_str(piece);
            let Some(&slot) = self.params.get(at) else { continue };
            match variables.get(slot) {
                Some(Some(value)) => value.push_to(out),
                _ => {
                    out.push(':');
                    out.push_str(names.name(slot));
                }
            }
        }
    }
}

/// A variable's name at the front: no digit first, so that times of day stay what they are.
fn name_at(text: &str) -> Option<&str> {
    let length = text.find(|c: char| c.is_ascii() && !is_word(c)).unwrap_or(text.len());
    let begins = text.starts_with(|c: char| !c.is_ascii_digit());
    (length > 0 && begins).then(|| &text[..length])
}

/// The statements of a text without backslash commands, each without its `;`.
pub fn statements(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (statement, taken, end) = take(&text[at..]);
        let statement = statement.trim_end().trim_end_matches(';').trim_end();
        if !statement.is_empty() {
            found.push(statement.to_owned());
        }
        // A backslash on its own is left out with the rest of its line.
        let rest = &text[at + taken..];
        let skipped = if end == End::Backslash { rest.find('\n').unwrap_or(rest.len()) } else { 0 };
        at += taken + skipped;
    }
    found
}

/// What ended a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// `;`, which belongs to it.
    Semicolon,
    /// A backslash command follows.
    Backslash,
    /// The text's.
    Text,
}

/// Takes one statement off the front of `text`: what it says, the bytes that it took, and what ended it. Blanks and `--`
/// comments in front are left out.
pub(crate) fn take(text: &str) -> (String, usize, End) {
    let mut scan = Scan { text, at: 0, out: String::new(), depth: 0, words: Words::default() };
    let end = scan.run();
    let statement = without_leading_comments(&scan.out).to_owned();
    (statement, scan.at, end)
}

fn without_leading_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while rest.starts_with("--") {
        rest = rest.split_once('\n').map_or("", |(_, behind)| behind).trim_start();
    }
    rest
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    out: String,
    /// Of parentheses.
    depth: usize,
    words: Words,
}

/// The bodies of SQL functions (`BEGIN ATOMIC ... END`), whose semicolons end nothing.
#[derive(Default)]
struct Words {
    first: Vec<String>,
    depth: usize,
}

impl Words {
    fn note(&mut self, word: &str, is_in_parentheses: bool) {
        let lower = word.to_ascii_lowercase();
        if self.first.len() < 4 {
            self.first.push(lower.clone());
        }
        let words: Vec<&str> = self.first.iter().map(String::as_str).collect();
        let makes_function = matches!(
            words.as_slice(),
            ["create", "function" | "procedure", ..] | ["create", "or", "replace", "function" | "procedure"]
        );
        if !makes_function || is_in_parentheses {
            return;
        }
        match lower.as_str() {
            "begin" => self.depth += 1,
            "case" if self.depth > 0 => self.depth += 1,
            "end" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

impl Scan<'_> {
    fn run(&mut self) -> End {
        while let Some(c) = self.text[self.at..].chars().next() {
            let rest = &self.text[self.at..];
            match c {
                ';' => {
                    self.push(1);
                    if self.depth == 0 && self.words.depth == 0 {
                        return End::Semicolon;
                    }
                }
                '\\' if rest[1..].starts_with([';', ':']) => {
                    self.at += 1;
                    self.push(1);
                }
                '\\' => return End::Backslash,
                '(' => {
                    self.depth += 1;
                    self.push(1);
                }
                ')' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.push(1);
                }
                '\'' => self.push(quoted(rest, '\'', false)),
                '"' => self.push(quoted(rest, '"', false)),
                '$' => self.push(dollar_quoted(rest)),
                '-' if rest.starts_with("--") => self.push(rest.find('\n').unwrap_or(rest.len())),
                '/' if rest.starts_with("/*") => self.push(comment(rest)),
                c if is_word(c) || !c.is_ascii() => self.word(rest),
                c => self.push(c.len_utf8()),
            }
        }
        End::Text
    }

    fn word(&mut self, rest: &str) {
        let is_inside = |c: char| is_word(c) || c == '$' || !c.is_ascii();
        let length = rest.find(|c: char| !is_inside(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        self.words.note(word, self.depth > 0);
        let is_escaped = word.eq_ignore_ascii_case("e") && rest[1..].starts_with('\'');
        self.push(if is_escaped { 1 + quoted(&rest[1..], '\'', true) } else { length });
    }

    fn push(&mut self, bytes: usize) {
        self.out.push_str(&self.text[self.at..self.at + bytes]);
        self.at += bytes;
    }
}

/// The length of what is quoted at the front; one that does not end goes on to the text's end. A quote that is doubled
/// ends one quoted text and begins the next.
fn quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if has_escapes && c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

fn dollar_quoted(text: &str) -> usize {
    let tag = text[1..].find('$').map(|at| &text[..at + 2]);
    let is_tag = |tag: &&str| {
        let name = &tag[1..tag.len() - 1];
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| is_word(c) || !c.is_ascii())
    };
    match tag.filter(is_tag) {
        Some(tag) => text[tag.len()..].find(tag).map_or(text.len(), |at| at + 2 * tag.len()),
        None => 1,
    }
}

/// They nest.
fn comment(text: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        let rest = &text[at..];
        match (rest.find("/*"), rest.find("*/")) {
            (Some(open), Some(close)) if open < close => (at, depth) = (at + open + 2, depth + 1),
            (_, Some(close)) => (at, depth) = (at + close + 2, depth - 1),
            _ => return text.len(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, statements: &[&str]) {
        let mut rest = text;
        let mut found = Vec::new();
        loop {
            let (statement, taken, end) = take(rest);
            if !statement.is_empty() {
                found.push(statement);
            }
            rest = &rest[taken..];
            match end {
                End::Semicolon => {}
                End::Backslash => rest = rest.split_once('\n').map_or("", |(_, behind)| behind),
                End::Text => break,
            }
        }
        assert_eq!(found, statements, "{text}");
    }

    #[test]
    fn statements_end_where_psql_ends_them() {
        check("SELECT 1; SELECT 2", &["SELECT 1;", "SELECT 2"]);
        check("SELECT ';' ; SELECT \";\";", &["SELECT ';' ;", "SELECT \";\";"]);
        check("SELECT e'\\';'; SELECT '\\';", &["SELECT e'\\';';", "SELECT '\\';"]);
        check("SELECT 'it''s;';", &["SELECT 'it''s;';"]);
        check("SELECT $$;$$, $a$;$$;$a$; x$1;", &["SELECT $$;$$, $a$;$$;$a$;", "x$1;"]);
        check("-- one;\nSELECT 1 -- two;\n;", &["SELECT 1 -- two;\n;"]);
        check("/* ; /* ; */ ; */ SELECT 1;", &["/* ; /* ; */ ; */ SELECT 1;"]);
        check("SELECT 1 \\; SELECT 2;", &["SELECT 1 ; SELECT 2;"]);
        check(
            "CREATE RULE r AS DO (SELECT 1; SELECT 2); x",
            &["CREATE RULE r AS DO (SELECT 1; SELECT 2);", "x"],
        );
        let function = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; END;";
        check(&format!("{function} SELECT 1;"), &[function, "SELECT 1;"]);
        check("BEGIN; SELECT 1; END;", &["BEGIN;", "SELECT 1;", "END;"]);
        check("SELECT 1 \\gset\nSELECT 2;", &["SELECT 1 ", "SELECT 2;"]);
    }

    #[test]
    fn variables_stand_where_pgbench_finds_them() {
        let mut names = Names::default();
        let sql = Sql::new("SELECT :a::int, '12:30', ':b', :a, ::x, :ü;".to_owned(), &mut names);
        assert_eq!(sql.numbered, "SELECT $1::int, '12:30', '$2', $3, ::x, $4;");
        let mut variables = vec![None; names.len()];
        variables[names.slot("a")] = Some(Value::Int(-5));
        let mut out = String::new();
        sql.fill(&names, &variables, &mut out);
        assert_eq!(out, "SELECT -5::int, '12:30', ':b', -5, ::x, :ü;");
    }
}
