//! The words of expressions.

/// A word of an expression and where it ends in the line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// Byte after its last one.
    pub(crate) end: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    Int(i64),
    /// 9223372036854775808, which is a number behind a minus only.
    IntMaxPlusOne,
    Double(f64),
    Variable(String),
    /// Lower case: a keyword or a function.
    Word(String),
    /// An operator, a parenthesis or a comma.
    Symbol(&'static str),
    /// The end of the line.
    End,
}

/// Why a word is none, and where it ends.
pub(crate) struct BadWord {
    pub(crate) message: &'static str,
    pub(crate) more: String,
    pub(crate) end: usize,
}

/// Longest first.
const SYMBOLS: [&str; 20] = [
    "<=", ">=", "<>", "!=", "<<", ">>", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")", ",", "&", "|", "#",
];

/// The words from `start` on. `\` before a line's end is a blank.
pub(crate) fn tokens(line: &str, start: usize) -> Result<Vec<Token>, BadWord> {
    let mut found = Vec::new();
    let mut at = start;
    loop {
        at = skip_blanks(line, at);
        let rest = &line[at..];
        let Some(first) = rest.chars().next() else {
            // The line's end is a word, too.
            found.push(Token { kind: TokenKind::End, end: at + 1 });
            return Ok(found);
        };
        let (kind, length) = match first {
            '0'..='9' | '.' => number(rest, at)?,
            ':' => variable(rest, at)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
                (TokenKind::Word(rest[..length].to_ascii_lowercase()), length)
            }
            '~' => (TokenKind::Symbol("~"), 1),
            other => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (TokenKind::Symbol(symbol), symbol.len()),
                None => return Err(unexpected(other, at)),
            },
        };
        at += length;
        found.push(Token { kind, end: at });
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Blanks and continued line ends.
pub(crate) fn skip_blanks(line: &str, mut at: usize) -> usize {
    loop {
        let rest = &line[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        let continued = trimmed.strip_prefix("\\\n").or_else(|| trimmed.strip_prefix("\\\r\n"));
        match continued {
            Some(behind) => at = line.len() - behind.len(),
            None => return at,
        }
    }
}

fn unexpected(what: char, at: usize) -> BadWord {
    BadWord { message: "unexpected character", more: what.to_string(), end: at + what.len_utf8() }
}

fn variable(rest: &str, at: usize) -> Result<(TokenKind, usize), BadWord> {
    let name = &rest[1..];
    let length = name.find(|c: char| !is_word(c) && c.is_ascii()).unwrap_or(name.len());
    if length == 0 {
        return Err(unexpected(':', at));
    }
    Ok((TokenKind::Variable(name[..length].to_owned()), length + 1))
}

fn number(rest: &str, at: usize) -> Result<(TokenKind, usize), BadWord> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut length = whole;
    let mut is_double = false;
    if bytes.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        if whole == 0 && fraction == 0 {
            return Err(unexpected('.', at));
        }
        is_double = true;
        length += 1 + fraction;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(length + 1 + sign..).map_or(0, |_| digits(length + 1 + sign));
        if exponent > 0 {
            is_double = true;
            length += 1 + sign + exponent;
        }
    }
    let text = &rest[..length];
    let overflow = |message| BadWord { message, more: text.to_owned(), end: at + length };
    if is_double {
        return match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok((TokenKind::Double(number), length)),
            _ => Err(overflow("double constant overflow")),
        };
    }
    match text.parse::<i64>() {
        Ok(number) => Ok((TokenKind::Int(number), length)),
        Err(_) if text.trim_start_matches('0') == "9223372036854775808" => {
            Ok((TokenKind::IntMaxPlusOne, length))
        }
        Err(_) => Err(overflow("bigint constant overflow")),
    }
}
