//! COM_STMT_EXECUTE, encoded for each execution from the little that tells statements apart.
//! MySQL internals manual, "COM_STMT_EXECUTE".

use super::framing::{finish, push_lenenc_bytes};
use super::row::Column;
use crate::error::Error;
use crate::value::{ParamType, Params, Value};

const COM_STMT_EXECUTE: u8 = 0x17;

/// A prepared statement of one connection.
#[derive(Debug)]
pub struct Statement {
    id: u32,
    /// The first execution tells the server the parameters' types; it keeps them, so later ones need not.
    types_are_known: bool,
    params: Params,
    /// What the server said last about the result; it need not say it again.
    pub(super) columns: Vec<Column>,
}

impl Statement {
    /// Statement `id` of the server.
    pub fn new(id: u32, params: &[ParamType]) -> Statement {
        Statement { id, types_are_known: false, params: Params::new(params), columns: Vec::new() }
    }

    /// Binds parameters of other types from here on.
    pub fn retype(&mut self, params: &[ParamType]) {
        self.params = Params::new(params);
        self.types_are_known = false;
    }

    /// The server's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How many parameters it takes.
    pub fn params_len(&self) -> usize {
        self.params.len()
    }

    /// It was executed once.
    pub fn types_are_known(&mut self) {
        if !self.types_are_known {
            self.types_are_known = true;
        }
    }

    /// Appends the whole packet with these values; the sequence number that the answer begins with.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a wrong number of values or one that its declared type cannot hold; `out` then
    /// holds nothing to be sent.
    #[inline(always)]
    pub fn encode(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<u8, Error> {
        let params: &[ParamType] = &self.params;
        if values.len() != params.len() {
            return Err(Error::miscounted(params.len(), values.len()));
        }
        let start = out.len();
        let [a, b, c, d] = self.id.to_le_bytes();
        // Room for the header; no cursor; the iteration count is always 1.
        out.extend_from_slice(&[0, 0, 0, 0, COM_STMT_EXECUTE, a, b, c, d, 0, 1, 0, 0, 0]);
        let nulls_at = out.len();
        match params.len() {
            0 => {}
            1..=8 if self.types_are_known => out.extend_from_slice(&[0, 0]),
            _ => self.push_nulls_and_types(out),
        }
        for (i, (value, param)) in values.iter().zip(params).enumerate() {
            match (value, param) {
                (Value::Null, _) => out[nulls_at + i / 8] |= 1 << (i % 8),
                (Value::Int(v), ParamType::Int) => match i32::try_from(*v) {
                    Ok(v) => out.extend_from_slice(&v.to_le_bytes()),
                    Err(_) => return Err(misfit(i, value, *param)),
                },
                (Value::Int(v), ParamType::BigInt) => out.extend_from_slice(&v.to_le_bytes()),
                (Value::Int(v), ParamType::Double) => out.extend_from_slice(&(*v as f64).to_le_bytes()),
                (Value::Double(v), ParamType::Double) => out.extend_from_slice(&v.to_le_bytes()),
                (Value::Bytes(v), ParamType::Text) => push_lenenc_bytes(out, v),
                _ => return Err(misfit(i, value, *param)),
            }
        }
        let mut sequence = 0;
        finish(out, start, &mut sequence);
        Ok(sequence)
    }

    /// The bits that mark NULLs, none of them set, and the parameters' types where the server does not know them.
    #[inline(never)]
    fn push_nulls_and_types(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.params.len().div_ceil(8), 0);
        out.push(u8::from(!self.types_are_known));
        if self.types_are_known {
            return;
        }
        for param in &*self.params {
            // LONG, LONGLONG, DOUBLE, VAR_STRING; the second byte would say unsigned.
            let kind = match param {
                ParamType::Int => 3,
                ParamType::BigInt => 8,
                ParamType::Double => 5,
                ParamType::Text => 253,
            };
            out.extend_from_slice(&[kind, 0]);
        }
    }
}

#[cold]
fn misfit(index: usize, value: &Value<'_>, param: ParamType) -> Error {
    let shown = match value {
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    };
    Error::Unsupported(format!(
        "value {} ({shown}) does not fit a parameter declared as {param:?}",
        index + 1
    ))
}

#[cfg(test)]
mod tests {
    use super::super::framing::{FRAME_BYTES_MAX, join};
    use super::*;

    fn encoded(statement: &Statement, values: &[Value<'_>]) -> Result<(Vec<u8>, u8), Error> {
        let mut out = Vec::new();
        let next = statement.encode(values, &mut out)?;
        Ok((out, next))
    }

    #[test]
    fn a_point_select_is_the_floors_packet() {
        let mut statement = Statement::new(5, &[ParamType::Int]);
        let (packet, next) = encoded(&statement, &[Value::Int(258)]).unwrap();
        assert_eq!(
            packet,
            [18, 0, 0, 0, 0x17, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 0, 2, 1, 0, 0],
            "with types at first"
        );
        assert_eq!(next, 1);
        statement.types_are_known();
        let (packet, _) = encoded(&statement, &[Value::Int(-1)]).unwrap();
        assert_eq!(packet, [16, 0, 0, 0, 0x17, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    }

    #[test]
    fn all_types_and_nulls() {
        use ParamType::*;
        let params = [Int, BigInt, Double, Text, Text, Int, Int, Int, Int];
        let mut statement = Statement::new(1, &params);
        statement.types_are_known();
        let values = [
            Value::Null,
            Value::Int(-2),
            Value::Double(0.5),
            Value::Bytes(b"abc"),
            Value::Bytes(b""),
            Value::Int(7),
            Value::Int(8),
            Value::Int(9),
            Value::Null,
        ];
        let (packet, _) = encoded(&statement, &values).unwrap();
        let mut expected = vec![0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0b0000_0001, 0b0000_0001, 0];
        expected.extend_from_slice(&(-2i64).to_le_bytes());
        expected.extend_from_slice(&0.5f64.to_le_bytes());
        expected.extend_from_slice(b"\x03abc\x00");
        for v in [7i32, 8, 9] {
            expected.extend_from_slice(&v.to_le_bytes());
        }
        assert_eq!(&packet[4..], expected);
        // The bitmap of the last execution is gone.
        let all: Vec<_> =
            params.iter().map(|p| if *p == Text { Value::Bytes(b"") } else { Value::Int(0) }).collect();
        let (packet, _) = encoded(&statement, &all).unwrap();
        assert_eq!(packet[14..16], [0, 0]);
    }

    #[test]
    fn no_parameters_no_bitmap() {
        let mut statement = Statement::new(9, &[]);
        statement.types_are_known();
        let (packet, _) = encoded(&statement, &[]).unwrap();
        assert_eq!(packet, [10, 0, 0, 0, 0x17, 9, 0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn misfits_are_told() {
        let statement = Statement::new(1, &[ParamType::Int, ParamType::Text]);
        for values in [
            &[Value::Int(1)][..],
            &[Value::Int(1 << 31), Value::Null],
            &[Value::Bytes(b"x"), Value::Null],
            &[Value::Int(1), Value::Int(1)],
        ] {
            assert!(matches!(encoded(&statement, values), Err(Error::Unsupported(_))));
        }
        assert!(encoded(&statement, &[Value::Null, Value::Null]).is_ok());
    }

    #[test]
    fn many_parameters_are_as_good_as_few() {
        let statement = Statement::new(1, &[ParamType::BigInt; 70]);
        let (packet, _) = encoded(&statement, &[Value::Int(1); 70]).unwrap();
        assert_eq!(packet.len(), 4 + 10 + 9 + 1 + 70 * 2 + 70 * 8);
    }

    #[test]
    fn a_value_over_16_mib_is_split() {
        let statement = Statement::new(1, &[ParamType::Text]);
        let big = vec![b'x'; FRAME_BYTES_MAX + 10];
        let (mut packet, next) = encoded(&statement, &[Value::Bytes(&big)]).unwrap();
        assert_eq!(next, 2);
        let whole = join(&mut packet, 0, 1 << 30).unwrap().unwrap();
        assert_eq!(whole.payload_len, 10 + 1 + 1 + 2 + 9 + big.len());
    }
}
