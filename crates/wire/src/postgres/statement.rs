//! A prepared statement: Bind, Execute and Sync, encoded for each execution from the little that tells statements
//! apart.

use std::io::Write;

use super::framing::MESSAGE_BYTES_MAX;
use super::frontend;
use crate::Error;
use crate::value::{ParamType, Params, Value};

/// Type oids of pg_type: int4, int8, float8; 0 lets the server infer the type.
fn oid(param: ParamType) -> u32 {
    match param {
        ParamType::Int => 23,
        ParamType::BigInt => 20,
        ParamType::Double => 701,
        ParamType::Text => 0,
    }
}

/// A prepared statement of one connection.
#[derive(Debug)]
pub struct Statement {
    /// On the server it is called `p` and this.
    number: u32,
    has_result_set: bool,
    params: Params,
}

/// The length word of SQL NULL.
const NULL_LENGTH: i32 = -1;
/// Execute of the unnamed portal, all rows; Sync.
const EXECUTE_SYNC: &[u8] = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

impl Statement {
    /// Appends Parse, Describe and Sync to `out`.
    pub(super) fn prepare(out: &mut Vec<u8>, number: u32, sql: &str, params: &[ParamType]) {
        let name = name(number);
        frontend::parse(out, &name, sql, params.iter().map(|&param| oid(param)));
        frontend::describe_statement(out, &name);
        frontend::sync(out);
    }

    /// The statement that the server has accepted. Results come as text.
    pub(super) fn new(number: u32, params: &[ParamType], has_result_set: bool) -> Statement {
        Statement { number, has_result_set, params: Params::new(params) }
    }

    /// The name on the server.
    pub(super) fn name(&self) -> String {
        name(self.number)
    }

    /// Whether it returns rows.
    pub fn has_result_set(&self) -> bool {
        self.has_result_set
    }

    /// Appends the bytes that execute it with `values`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a wrong number of values or one that its declared type cannot hold; `out` then
    /// holds nothing to be sent.
    #[inline]
    pub(super) fn encode(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), Error> {
        let params: &[ParamType] = &self.params;
        if values.len() != params.len() {
            return Err(Error::miscounted(params.len(), values.len()));
        }
        let start = out.len();
        let count = (params.len() as u16).to_be_bytes();
        // Bind: its length, the unnamed portal, the statement, formats.
        out.extend_from_slice(b"B\0\0\0\0\0p");
        push_digits(self.number, out);
        out.push(0);
        out.extend_from_slice(&count);
        for param in params {
            out.extend_from_slice(&[0, u8::from(*param != ParamType::Text)]);
        }
        out.extend_from_slice(&count);
        for (index, (&param, &value)) in params.iter().zip(values).enumerate() {
            match Encoded::new(index, param, value)? {
                // Most parameters, in one piece.
                Encoded::Int([a, b, c, d]) => out.extend_from_slice(&[0, 0, 0, 4, a, b, c, d]),
                encoded => {
                    out.extend_from_slice(&encoded.length().to_be_bytes());
                    out.extend_from_slice(encoded.bytes());
                }
            }
            if out.len() - start > MESSAGE_BYTES_MAX / 2 {
                return Err(too_long(out.len() - start));
            }
        }
        // Results all as text.
        out.extend_from_slice(&[0, 0]);
        let length = (out.len() - start - 1) as u32;
        out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(EXECUTE_SYNC);
        Ok(())
    }
}

fn name(number: u32) -> String {
    format!("p{number}")
}

/// Appends a number in decimal.
#[inline]
fn push_digits(number: u32, out: &mut Vec<u8>) {
    match number {
        0..=9 => out.push(b'0' + number as u8),
        10..=99 => out.extend_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]),
        _ => push_many_digits(number, out),
    }
}

fn push_many_digits(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cold]
fn too_long(bytes: usize) -> Error {
    Error::Unsupported(format!("{bytes} bytes of parameters are more than a message holds"))
}

/// A value as it travels.
enum Encoded<'a> {
    Null,
    Int([u8; 4]),
    Long([u8; 8]),
    /// A number where the server expects text.
    Digits(Digits),
    Bytes(&'a [u8]),
}

impl<'a> Encoded<'a> {
    #[inline]
    fn new(index: usize, param: ParamType, value: Value<'a>) -> Result<Encoded<'a>, Error> {
        Ok(match (param, value) {
            (ParamType::Int, Value::Int(n)) => match i32::try_from(n) {
                Ok(n) => Encoded::Int(n.to_be_bytes()),
                Err(_) => return Err(does_not_fit(index, param, value)),
            },
            (ParamType::BigInt, Value::Int(n)) => Encoded::Long(n.to_be_bytes()),
            (ParamType::Double, Value::Double(n)) => Encoded::Long(n.to_be_bytes()),
            (ParamType::Double, Value::Int(n)) => Encoded::Long((n as f64).to_be_bytes()),
            (ParamType::Text, Value::Bytes(bytes)) if bytes.len() <= MESSAGE_BYTES_MAX => {
                Encoded::Bytes(bytes)
            }
            (ParamType::Text, Value::Int(n)) => Encoded::Digits(Digits::new(format_args!("{n}"))),
            (ParamType::Text, Value::Double(n)) => Encoded::Digits(Digits::new(format_args!("{n:e}"))),
            (_, Value::Null) => Encoded::Null,
            _ => return Err(does_not_fit(index, param, value)),
        })
    }

    /// The length word in front of the bytes.
    #[inline]
    fn length(&self) -> i32 {
        match self {
            Encoded::Null => NULL_LENGTH,
            // `new` has bounded it.
            encoded => encoded.bytes().len() as i32,
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Encoded::Null => &[],
            Encoded::Int(bytes) => bytes,
            Encoded::Long(bytes) => bytes,
            Encoded::Digits(digits) => &digits.text[..digits.length],
            Encoded::Bytes(bytes) => bytes,
        }
    }
}

/// A number as text, without an allocation: 20 characters at most for an integer, 24 for a double.
struct Digits {
    text: [u8; 32],
    length: usize,
}

impl Digits {
    fn new(number: std::fmt::Arguments<'_>) -> Digits {
        let mut text = [0; 32];
        let mut rest = text.as_mut_slice();
        // It fits, see above.
        let _ = rest.write_fmt(number);
        let length = 32 - rest.len();
        Digits { text, length }
    }
}

#[cold]
fn does_not_fit(index: usize, param: ParamType, value: Value<'_>) -> Error {
    let value = match value {
        Value::Bytes(bytes) => format!("text of {} bytes", bytes.len()),
        other => format!("{other:?}"),
    };
    Error::Unsupported(format!("parameter {}: {value} does not fit the declared type {param:?}", index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(params: &[ParamType], values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        Statement::new(1, params, true).encode(values, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let bytes =
            encoded(&[ParamType::Int, ParamType::Text], &[Value::Int(258), Value::Bytes(b"ab")]).unwrap();
        let expected = [
            b"B\0\0\0\x20\0p1\0".as_slice(),
            b"\0\x02\0\x01\0\0",
            b"\0\x02\0\0\0\x04\0\0\x01\x02\0\0\0\x02ab",
            b"\0\0",
            b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
        ]
        .concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn null_is_a_length_of_its_own() {
        let bytes = encoded(&[ParamType::Text, ParamType::BigInt], &[Value::Null, Value::Int(-1)]).unwrap();
        let values = [&[0xff; 4], b"\0\0\0\x08".as_slice(), &[0xff; 8], b"\0\0E"].concat();
        assert!(bytes.windows(values.len()).any(|window| window == values));
    }

    #[test]
    fn names_count_in_decimal() {
        for number in [0, 9, 10, 4_294_967_295] {
            let statement = Statement::new(number, &[], false);
            let mut out = Vec::new();
            statement.encode(&[], &mut out).unwrap();
            let name = format!("\0{}\0", statement.name());
            assert!(out.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_told() {
        let params = [ParamType::Int, ParamType::Int];
        for bad in [
            &[Value::Int(1), Value::Int(i64::from(i32::MAX) + 1)][..],
            &[Value::Null, Value::Int(i64::from(i32::MIN) - 1)],
            &[Value::Int(1), Value::Bytes(b"2")],
            &[Value::Double(1.0), Value::Int(1)],
            &[Value::Int(1)],
        ] {
            let error = encoded(&params, bad).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)) && !error.is_fatal(), "{error}");
        }
        let many = [ParamType::Int; 40];
        assert!(encoded(&many, &[Value::Int(7); 40]).is_ok());
        assert!(encoded(&many, &[Value::Int(7); 39]).is_err());
    }

    #[test]
    fn numbers_for_text_parameters_are_written_out() {
        for (value, text) in [
            (Value::Int(i64::MIN), "-9223372036854775808"),
            (Value::Double(-1.5), "-1.5e0"),
            (Value::Double(f64::MAX), "1.7976931348623157e308"),
            (Value::Double(-2.2250738585072014e-308), "-2.2250738585072014e-308"),
        ] {
            let bytes = encoded(&[ParamType::Text], &[value]).unwrap();
            assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
    }
}
