//! COM_STMT_EXECUTE as a template: encoded once, its values written in place.
//! MySQL internals manual, "COM_STMT_EXECUTE".

use super::packet::{FRAME_BYTES_MAX, HEADER_BYTES, finish, header_bytes, push_lenenc_bytes};
use super::row::Column;
use crate::error::Error;
use crate::value::{ParamType, Value};

const COM_STMT_EXECUTE: u8 = 0x17;
/// Packet header, command, statement id, cursor flags, iteration count.
const NULLS_AT: usize = HEADER_BYTES + 1 + 4 + 1 + 4;
/// Memory that a large value leaves behind is given back above this.
const PACKET_BYTES_KEPT: usize = 1 << 20;

/// A prepared statement of one connection.
#[derive(Debug)]
pub struct Statement {
    id: u32,
    params: Vec<ParamType>,
    packet: Vec<u8>,
    /// Where the values begin in `packet`.
    values_at: usize,
    /// What the server said last about the result; it need not say it again.
    pub(super) columns: Vec<Column>,
}

impl Statement {
    /// The template of statement `id`.
    pub fn new(id: u32, params: &[ParamType]) -> Statement {
        let mut statement =
            Statement { id, params: params.to_vec(), packet: Vec::new(), values_at: 0, columns: Vec::new() };
        statement.build(true);
        statement
    }

    /// Binds parameters of other types from here on.
    pub fn retype(&mut self, params: &[ParamType]) {
        self.params = params.to_vec();
        self.build(true);
    }

    /// The server's number for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How many parameters it takes.
    pub fn params_len(&self) -> usize {
        self.params.len()
    }

    /// The first execution tells the server the parameters' types; it keeps them, so later ones need not.
    pub fn types_are_known(&mut self) {
        if !self.params.is_empty() && self.packet[self.bound_at()] == 1 {
            self.build(false);
        }
    }

    fn nulls_len(&self) -> usize {
        self.params.len().div_ceil(8)
    }

    fn bound_at(&self) -> usize {
        NULLS_AT + self.nulls_len()
    }

    fn build(&mut self, with_types: bool) {
        let packet = &mut self.packet;
        packet.clear();
        packet.extend_from_slice(&[0; HEADER_BYTES]);
        packet.push(COM_STMT_EXECUTE);
        packet.extend_from_slice(&self.id.to_le_bytes());
        // No cursor; the iteration count is always 1.
        packet.extend_from_slice(&[0, 1, 0, 0, 0]);
        if !self.params.is_empty() {
            packet.resize(NULLS_AT + self.params.len().div_ceil(8), 0);
            packet.push(u8::from(with_types));
            if with_types {
                for param in &self.params {
                    // LONG, LONGLONG, DOUBLE, VAR_STRING; the second byte would say unsigned.
                    let kind = match param {
                        ParamType::Int => 3,
                        ParamType::BigInt => 8,
                        ParamType::Double => 5,
                        ParamType::Text => 253,
                    };
                    packet.extend_from_slice(&[kind, 0]);
                }
            }
        }
        self.values_at = packet.len();
    }

    /// The whole packet with these values, and the sequence number that the answer begins with.
    pub fn encode(&mut self, values: &[Value<'_>]) -> Result<(&[u8], u8), Error> {
        if values.len() != self.params.len() {
            return Err(Error::Unsupported(format!(
                "the statement takes {} values and was given {}",
                self.params.len(),
                values.len()
            )));
        }
        let nulls = NULLS_AT..NULLS_AT + self.nulls_len();
        self.packet.truncate(self.values_at);
        if !nulls.is_empty() {
            self.packet[nulls].fill(0);
        }
        for (i, (value, param)) in values.iter().zip(&self.params).enumerate() {
            match (value, param) {
                (Value::Null, _) => self.packet[NULLS_AT + i / 8] |= 1 << (i % 8),
                (Value::Int(v), ParamType::Int) => match i32::try_from(*v) {
                    Ok(v) => self.packet.extend_from_slice(&v.to_le_bytes()),
                    Err(_) => return Err(misfit(i, value, *param)),
                },
                (Value::Int(v), ParamType::BigInt) => self.packet.extend_from_slice(&v.to_le_bytes()),
                (Value::Int(v), ParamType::Double) => {
                    self.packet.extend_from_slice(&(*v as f64).to_le_bytes())
                }
                (Value::Double(v), ParamType::Double) => self.packet.extend_from_slice(&v.to_le_bytes()),
                (Value::Bytes(v), ParamType::Text) => push_lenenc_bytes(&mut self.packet, v),
                _ => return Err(misfit(i, value, *param)),
            }
        }
        let payload_len = self.packet.len() - HEADER_BYTES;
        let mut sequence = 0;
        if payload_len < FRAME_BYTES_MAX {
            self.packet[..HEADER_BYTES].copy_from_slice(&header_bytes(payload_len, 0));
            sequence = 1;
        } else {
            finish(&mut self.packet, 0, &mut sequence);
        }
        Ok((&self.packet, sequence))
    }

    /// To be called when the packet is sent: restores the template where a large value has disturbed it.
    pub fn settle(&mut self) {
        if self.packet.capacity() > PACKET_BYTES_KEPT {
            let with_types = !self.params.is_empty() && self.packet[self.bound_at()] == 1;
            self.packet = Vec::new();
            self.build(with_types);
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
    use super::super::packet::join;
    use super::*;

    #[test]
    fn a_point_select_is_the_floors_packet() {
        let mut statement = Statement::new(5, &[ParamType::Int]);
        let (packet, next) = statement.encode(&[Value::Int(258)]).unwrap();
        assert_eq!(
            packet,
            [18, 0, 0, 0, 0x17, 5, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 0, 2, 1, 0, 0],
            "with types at first"
        );
        assert_eq!(next, 1);
        statement.types_are_known();
        let (packet, _) = statement.encode(&[Value::Int(-1)]).unwrap();
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
        let (packet, _) = statement.encode(&values).unwrap();
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
        let (packet, _) = statement.encode(&all).unwrap();
        assert_eq!(packet[14..16], [0, 0]);
    }

    #[test]
    fn no_parameters_no_bitmap() {
        let mut statement = Statement::new(9, &[]);
        statement.types_are_known();
        let (packet, _) = statement.encode(&[]).unwrap();
        assert_eq!(packet, [10, 0, 0, 0, 0x17, 9, 0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn misfits_are_told() {
        let mut statement = Statement::new(1, &[ParamType::Int, ParamType::Text]);
        for values in [
            &[Value::Int(1)][..],
            &[Value::Int(1 << 31), Value::Null],
            &[Value::Bytes(b"x"), Value::Null],
            &[Value::Int(1), Value::Int(1)],
        ] {
            assert!(matches!(statement.encode(values), Err(Error::Unsupported(_))));
        }
        assert!(statement.encode(&[Value::Null, Value::Null]).is_ok());
    }

    #[test]
    fn a_value_over_16_mib_is_split_and_forgotten() {
        let mut statement = Statement::new(1, &[ParamType::Text]);
        let big = vec![b'x'; FRAME_BYTES_MAX + 10];
        let (packet, next) = statement.encode(&[Value::Bytes(&big)]).unwrap();
        assert_eq!(next, 2);
        let mut copy = packet.to_vec();
        let whole = join(&mut copy, 0).unwrap().unwrap();
        assert_eq!(whole.payload_len, 10 + 1 + 1 + 2 + 9 + big.len());
        statement.settle();
        let (packet, next) = statement.encode(&[Value::Bytes(b"y")]).unwrap();
        assert_eq!((packet.len(), next), (4 + 10 + 1 + 1 + 2 + 2, 1));
        assert_eq!(packet[15], 1, "types are still to be told");
    }
}
