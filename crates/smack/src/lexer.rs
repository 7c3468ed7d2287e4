//! Text of a .smack file to tokens.

use crate::error::ParseError;
use crate::syntax::Place;

/// A piece of the source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A name.
    Word(String),
    /// A quoted string, escapes resolved.
    Text(String),
    Number(f64),
    /// `$1`
    Argument(usize),
    /// `$name`
    Variable(String),
    /// One of `{ } ( ) ; , . = ::`
    Mark(&'static str),
}

impl Token {
    /// How a message names it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Word(w) => format!("`{w}`"),
            Token::Text(t) => format!("the string \"{t}\""),
            Token::Number(n) => format!("the number {n}"),
            Token::Argument(n) => format!("`${n}`"),
            Token::Variable(v) => format!("`${v}`"),
            Token::Mark(m) => format!("`{m}`"),
        }
    }
}

struct Cursor<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek() {
            if !wanted(c) {
                break;
            }
            taken.push(c);
            self.next();
        }
        taken
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// All tokens of `source`, each with its place.
///
/// # Errors
/// An unfinished string, a stray character.
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, Place)>, ParseError> {
    let mut cursor = Cursor { rest: source.chars().peekable(), place: Place { line: 1, column: 1 } };
    let mut found = Vec::new();
    while let Some(c) = cursor.peek() {
        let place = cursor.place;
        let token = match c {
            c if c.is_whitespace() => {
                cursor.next();
                continue;
            }
            '#' => {
                cursor.take_while(|c| c != '\n');
                continue;
            }
            '/' => {
                cursor.next();
                if cursor.peek() != Some('/') {
                    return Err(ParseError::at(place, "a lone `/`; a comment starts with `//` or `#`"));
                }
                cursor.take_while(|c| c != '\n');
                continue;
            }
            '"' => string(&mut cursor, place)?,
            '$' => {
                cursor.next();
                let name = cursor.take_while(is_name);
                match name.parse::<usize>() {
                    Ok(number) => Token::Argument(number),
                    Err(_) if name.is_empty() => {
                        return Err(ParseError::at(place, "`$` needs a name or a number after it"));
                    }
                    Err(_) => Token::Variable(name),
                }
            }
            c if c.is_ascii_digit() || c == '-' => {
                cursor.next();
                let text = format!("{c}{}", cursor.take_while(|c| c.is_ascii_digit() || c == '.'));
                match text.parse() {
                    Ok(number) => Token::Number(number),
                    Err(_) => return Err(ParseError::at(place, format!("`{text}` is not a number"))),
                }
            }
            c if is_name(c) => Token::Word(cursor.take_while(is_name)),
            _ => mark(&mut cursor, place)?,
        };
        found.push((token, place));
    }
    Ok(found)
}

fn mark(cursor: &mut Cursor<'_>, place: Place) -> Result<Token, ParseError> {
    let c = cursor.next().unwrap_or(' ');
    let text = match c {
        '{' => "{",
        '}' => "}",
        '(' => "(",
        ')' => ")",
        ';' => ";",
        ',' => ",",
        '.' => ".",
        '=' => "=",
        ':' if cursor.peek() == Some(':') => {
            cursor.next();
            "::"
        }
        _ => return Err(ParseError::at(place, format!("a stray `{c}`"))),
    };
    Ok(Token::Mark(text))
}

/// Strings may span lines. Escapes: `\"`, `\\`, and a newline that is kept; the original drops any other
/// escaped character, and so do we.
fn string(cursor: &mut Cursor<'_>, place: Place) -> Result<Token, ParseError> {
    cursor.next();
    let mut text = String::new();
    loop {
        match cursor.next() {
            None => return Err(ParseError::at(place, "this string has no closing quote")),
            Some('"') => return Ok(Token::Text(text)),
            Some('\\') => {
                if let Some(c @ ('"' | '\\' | '\n')) = cursor.next() {
                    text.push(c);
                }
            }
            Some(c) => text.push(c),
        }
    }
}
