//! COM_STMT_BULK_EXECUTE: a prepared statement executed once for each of many rows. MariaDB from 10.2.7 on.
//! MariaDB knowledge base, "COM_STMT_BULK_EXECUTE".

use super::framing::push_lenenc_bytes;

const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
/// The types of the parameters follow.
const SEND_TYPES: u16 = 128;
const VAR_STRING: u8 = 253;
/// What stands before each value: that there is one, or that it is NULL.
const HAS_VALUE: u8 = 0;
const IS_NULL: u8 = 1;

/// Where the values of the rows go, one after the other, all as text.
#[derive(Debug)]
pub struct BulkRows<'a> {
    packet: &'a mut Vec<u8>,
    values: u64,
}

/// Pushes the values of the next row; `false`: that was the last one.
pub type BulkSource<'a> = &'a mut dyn FnMut(&mut BulkRows<'_>) -> bool;

impl BulkRows<'_> {
    /// The next value; `None` is NULL.
    #[inline]
    pub fn push(&mut self, value: Option<&[u8]>) {
        self.values += 1;
        match value {
            Some(value) => {
                self.packet.push(HAS_VALUE);
                push_lenenc_bytes(self.packet, value);
            }
            None => self.packet.push(IS_NULL),
        }
    }
}

/// Begins the payload: statement `id` with so many parameters.
pub(super) fn push_head(packet: &mut Vec<u8>, id: u32, params: usize) {
    packet.push(COM_STMT_BULK_EXECUTE);
    packet.extend_from_slice(&id.to_le_bytes());
    packet.extend_from_slice(&SEND_TYPES.to_le_bytes());
    for _ in 0..params {
        packet.extend_from_slice(&[VAR_STRING, 0]);
    }
}

/// Appends what `source` gives until the packet is `full_bytes` long or there is no more. Returns whether there is more,
/// and how many values there are.
pub(super) fn push_rows(packet: &mut Vec<u8>, full_bytes: usize, source: BulkSource<'_>) -> (bool, u64) {
    let mut rows = BulkRows { packet, values: 0 };
    let mut has_more = true;
    while has_more && rows.packet.len() < full_bytes {
        has_more = source(&mut rows);
    }
    (has_more, rows.values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_values_with_indicators() {
        let mut packet = Vec::new();
        push_head(&mut packet, 0x0102, 2);
        assert_eq!(packet, [0xfa, 2, 1, 0, 0, 128, 0, 253, 0, 253, 0]);
        let mut left = 2;
        let (has_more, values) = push_rows(&mut packet, 1000, &mut |rows| {
            rows.push(Some(b"ab"));
            rows.push(None);
            left -= 1;
            left > 0
        });
        assert_eq!((has_more, values), (false, 4));
        assert_eq!(packet[11..], [0, 2, b'a', b'b', 1, 0, 2, b'a', b'b', 1]);
    }

    #[test]
    fn a_full_packet_ends_between_two_rows() {
        let mut packet = vec![0; 10];
        let mut pushed = 0;
        let (has_more, values) = push_rows(&mut packet, 15, &mut |rows| {
            rows.push(Some(b"x"));
            pushed += 1;
            true
        });
        assert_eq!((has_more, values, pushed, packet.len()), (true, 2, 2, 16));
    }
}
