//! A prepared statement: the bytes of Bind, Execute and Sync, made once and patched for each execution.

use std::io::Write;

use super::framing::MESSAGE_BYTES_MAX;
use super::frontend;
use crate::Error;
use crate::value::{ParamType, Value};

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
    name: String,
    params: Box<[ParamType]>,
    has_result_set: bool,
    /// Bind, Execute, Sync with the values of the last execution.
    template: Vec<u8>,
    /// Where the first value's length stands in `template`.
    values_at: usize,
}

/// Bind's length stands after its tag.
const BIND_LENGTH_AT: usize = 1;
/// The length word of SQL NULL.
const NULL_LENGTH: [u8; 4] = (-1i32).to_be_bytes();

impl Statement {
    /// Appends Parse, Describe and Sync to `out`.
    pub(super) fn prepare(out: &mut Vec<u8>, name: &str, sql: &str, params: &[ParamType]) {
        frontend::parse(out, name, sql, params.iter().map(|&param| oid(param)));
        frontend::describe_statement(out, name);
        frontend::sync(out);
    }

    /// The statement that the server has accepted under `name`. Results come as text.
    pub(super) fn new(name: String, params: &[ParamType], has_result_set: bool) -> Statement {
        let mut template = vec![b'B', 0, 0, 0, 0, 0];
        template.extend_from_slice(name.as_bytes());
        template.push(0);
        let count = (params.len() as u16).to_be_bytes();
        template.extend_from_slice(&count);
        for param in params {
            template.extend_from_slice(&u16::from(*param != ParamType::Text).to_be_bytes());
        }
        template.extend_from_slice(&count);
        let values_at = template.len();
        let mut statement = Statement { name, params: params.into(), has_result_set, template, values_at };
        // NULL everywhere to begin with; the first execution with other lengths lays it out anew.
        for _ in params {
            statement.template.extend_from_slice(&NULL_LENGTH);
        }
        statement.finish();
        statement
    }

    /// The name on the server.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it returns rows.
    pub fn has_result_set(&self) -> bool {
        self.has_result_set
    }

    /// The bytes that execute it with `values`. Patched in place where each value is as long as the last time,
    /// which is always so for numbers; else rebuilt in the same memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a wrong number of values or one that its declared type cannot hold; nothing
    /// has been sent then.
    #[inline]
    pub(super) fn bind(&mut self, values: &[Value<'_>]) -> Result<&[u8], Error> {
        if values.len() != self.params.len() {
            return Err(Error::Unsupported(format!(
                "{} values given for {} parameters",
                values.len(),
                self.params.len()
            )));
        }
        let mut at = self.values_at;
        for (index, (&param, &value)) in self.params.iter().zip(values).enumerate() {
            let encoded = Encoded::new(index, param, value)?;
            if self.template[at..at + 4] != encoded.length().to_be_bytes() {
                return self.rebuild(values);
            }
            at += 4;
            let bytes = encoded.bytes();
            self.template[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        Ok(&self.template)
    }

    /// Lays the values out anew.
    fn rebuild(&mut self, values: &[Value<'_>]) -> Result<&[u8], Error> {
        // All are checked first: a value that is refused must leave the template whole.
        for (index, (&param, &value)) in self.params.iter().zip(values).enumerate() {
            Encoded::new(index, param, value)?;
        }
        let bytes: usize =
            values.iter().map(|value| if let Value::Bytes(b) = value { b.len() } else { 32 }).sum();
        if bytes > MESSAGE_BYTES_MAX / 2 {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes of parameters are more than a message holds"
            )));
        }
        self.template.truncate(self.values_at);
        for (index, (&param, &value)) in self.params.iter().zip(values).enumerate() {
            let encoded = Encoded::new(index, param, value)?;
            self.template.extend_from_slice(&encoded.length().to_be_bytes());
            self.template.extend_from_slice(encoded.bytes());
        }
        self.finish();
        Ok(&self.template)
    }

    /// Completes the template behind its values: result formats (all text), Bind's length, Execute, Sync.
    fn finish(&mut self) {
        self.template.extend_from_slice(&[0, 0]);
        let length = (self.template.len() - BIND_LENGTH_AT) as u32;
        self.template[BIND_LENGTH_AT..BIND_LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
        frontend::execute(&mut self.template);
        frontend::sync(&mut self.template);
    }
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
            Encoded::Null => -1,
            // `rebuild` has bounded it.
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
    use proptest::prelude::*;

    use super::*;

    fn statement(params: &[ParamType]) -> Statement {
        Statement::new("p1".into(), params, true)
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let mut statement = statement(&[ParamType::Int, ParamType::Text]);
        let bytes = statement.bind(&[Value::Int(258), Value::Bytes(b"ab")]).unwrap();
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
    fn the_same_lengths_are_patched_in_the_same_memory() {
        let mut statement = statement(&[ParamType::Int, ParamType::Text, ParamType::BigInt]);
        let first = statement.bind(&[Value::Int(1), Value::Bytes(b"abc"), Value::Int(2)]).unwrap().to_vec();
        let memory = statement.template.as_ptr();
        let second = statement.bind(&[Value::Int(3), Value::Bytes(b"xyz"), Value::Int(4)]).unwrap();
        assert_eq!(second.as_ptr(), memory);
        assert_eq!(second.len(), first.len());
        assert_ne!(second, first);
    }

    #[test]
    fn a_refused_value_leaves_the_template_whole() {
        let params = [ParamType::Int, ParamType::Int];
        let mut statement = statement(&params);
        let good = statement.bind(&[Value::Int(1), Value::Int(2)]).unwrap().to_vec();
        for bad in [
            [Value::Int(1), Value::Int(i64::from(i32::MAX) + 1)],
            [Value::Null, Value::Int(i64::from(i32::MIN) - 1)],
            [Value::Int(1), Value::Bytes(b"2")],
            [Value::Double(1.0), Value::Int(1)],
        ] {
            let error = statement.bind(&bad).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)) && !error.is_fatal(), "{error}");
        }
        assert!(statement.bind(&[Value::Int(1)]).is_err(), "too few");
        assert_eq!(statement.bind(&[Value::Int(1), Value::Int(2)]).unwrap(), good);
    }

    #[test]
    fn numbers_for_text_parameters_are_written_out() {
        let mut statement = statement(&[ParamType::Text]);
        for (value, text) in [
            (Value::Int(i64::MIN), "-9223372036854775808"),
            (Value::Double(-1.5), "-1.5e0"),
            (Value::Double(f64::MAX), "1.7976931348623157e308"),
            (Value::Double(-2.2250738585072014e-308), "-2.2250738585072014e-308"),
        ] {
            let bytes = statement.bind(&[value]).unwrap();
            assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
    }

    fn params_and_values() -> impl Strategy<Value = (ParamType, Option<Vec<u8>>, i64)> {
        (
            prop::sample::select(vec![ParamType::Int, ParamType::BigInt, ParamType::Double, ParamType::Text]),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
            i64::from(i32::MIN)..i64::from(i32::MAX),
        )
    }

    fn value<'a>(param: ParamType, text: &'a Option<Vec<u8>>, number: i64) -> Value<'a> {
        match (param, text) {
            (_, None) => Value::Null,
            (ParamType::Text, Some(text)) => Value::Bytes(text),
            _ => Value::Int(number),
        }
    }

    proptest! {
        /// Whatever was bound before, the bytes are those of a fresh statement.
        #[test]
        fn a_patched_template_equals_a_fresh_one(
            rounds in prop::collection::vec(prop::collection::vec(params_and_values(), 4), 1..6),
        ) {
            let params: Vec<ParamType> = rounds[0].iter().map(|drawn| drawn.0).collect();
            let mut used = statement(&params);
            for round in &rounds {
                let values: Vec<Value<'_>> =
                    params.iter().zip(round).map(|(param, drawn)| value(*param, &drawn.1, drawn.2)).collect();
                let mut fresh = statement(&params);
                prop_assert_eq!(used.bind(&values).unwrap(), fresh.bind(&values).unwrap());
            }
        }
    }
}
