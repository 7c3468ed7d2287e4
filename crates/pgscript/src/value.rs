//! What a variable holds.

use std::fmt;

/// Digits of a double as text: what survives any way through text (C's DBL_DIG).
const DIGITS: usize = 15;

/// A value of an expression or a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unknown.
    Null,
    /// True or false.
    Bool(bool),
    /// 64 bits.
    Int(i64),
    /// A double.
    Double(f64),
    /// Text of a result column, of `-D` or of a shell command: an expression that uses it reads it as a value first.
    Text(Box<str>),
}

impl Value {
    /// The value that text stands for where an expression wants one: a number, true, false or null, the boolean words in
    /// any unambiguous short form.
    ///
    /// # Errors
    /// It stands for none.
    pub(crate) fn of_text(text: &str) -> Result<Value, String> {
        let lower = text.to_ascii_lowercase();
        let begins = |word: &str| !lower.is_empty() && word.starts_with(&lower);
        if lower.is_empty() {
            return Err("the value is empty".to_owned());
        }
        if lower == "null" {
            return Ok(Value::Null);
        }
        if begins("true") || begins("yes") || lower == "on" {
            return Ok(Value::Bool(true));
        }
        if begins("false") || begins("no") || lower == "off" || lower == "of" {
            return Ok(Value::Bool(false));
        }
        let trimmed = lower.trim_start();
        let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed).trim_end();
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = trimmed.trim_end().parse::<i64>();
            return number
                .map(Value::Int)
                .map_err(|_| format!("value \"{text}\" is out of range for type bigint"));
        }
        trimmed
            .parse::<f64>()
            .map(Value::Double)
            .map_err(|_| format!("invalid input syntax for type double: \"{text}\""))
    }

    /// The name of its type in error texts.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
            Value::Text(_) => "text",
        }
    }

    /// As a condition: null is false, numbers are true unless 0.
    ///
    /// # Errors
    /// Text that stands for no value.
    pub fn is_true(&self) -> Result<bool, String> {
        Ok(match self {
            Value::Null => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != 0,
            Value::Double(number) => *number != 0.0,
            Value::Text(text) => return Value::of_text(text)?.is_true(),
        })
    }

    /// Appends what stands in a statement in its place.
    pub fn push_to(&self, out: &mut String) {
        use fmt::Write as _;
        // Writing to a String cannot fail.
        let _ = write!(out, "{self}");
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Double(number) => f.write_str(&general(*number)),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// C's `%.15g`, with PostgreSQL's words for what is no number.
fn general(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:.*e}", DIGITS - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let bare = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= DIGITS as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", bare(mantissa), exponent.abs());
    }
    bare(&format!("{number:.*}", (DIGITS as i32 - 1 - exponent) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (2.5, "2.5"),
            (-1.0, "-1"),
            (1e30, "1e+30"),
            (-9.223372036854776e18, "-9.22337203685478e+18"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (123456789012345.0, "123456789012345"),
            (1234567890123456.0, "1.23456789012346e+15"),
            (1.0 / 3.0, "0.333333333333333"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(general(number), text);
        }
    }

    #[test]
    fn texts_stand_for_values() {
        assert_eq!(Value::of_text("12"), Ok(Value::Int(12)));
        assert_eq!(Value::of_text("-12"), Ok(Value::Int(-12)));
        assert_eq!(Value::of_text("1e3"), Ok(Value::Double(1000.0)));
        assert_eq!(Value::of_text("NULL"), Ok(Value::Null));
        assert_eq!(Value::of_text("t"), Ok(Value::Bool(true)));
        assert_eq!(Value::of_text("Y"), Ok(Value::Bool(true)));
        assert_eq!(Value::of_text("off"), Ok(Value::Bool(false)));
        assert!(Value::of_text("o").is_err() && Value::of_text("x").is_err());
        assert!(Value::of_text("99999999999999999999").is_err());
    }
}
