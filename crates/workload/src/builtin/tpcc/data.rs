//! Tables and rows (clauses 1.3 and 4.3.3).

use super::draw::{C_LAST_LOAD, nurand};
use crate::builtin::schema::{Key, Schema, Table, numbers};
use crate::loader::{LoadPlan, TableLoad};
use crate::random::{Rng, SplitMix64, digits};

pub(super) const DISTRICTS: u64 = 10;
/// Of each district.
pub(super) const CUSTOMERS: u64 = 3000;
pub(super) const ITEMS: u64 = 100_000;
/// Orders of a district from this number on are not delivered after the load.
const FIRST_UNDELIVERED: u64 = 2101;

/// Changes with anything that changes the bytes of generated rows.
const GENERATOR_VERSION: u32 = 1;

/// When everything was loaded; a constant, so that the same seed gives the same bytes.
const LOADED_AT: &[u8] = b"2026-01-01 00:00:00";

/// What decides the tables.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) warehouses: u64,
    pub(super) seed: u64,
    pub(super) schema: Schema,
}

/// Streams of random numbers, one for each kind of row.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Warehouse = 1,
    District,
    Customer,
    History,
    Order,
    OrderLine,
    Permutation,
    Item,
    Stock,
}

/// Last name of a customer (clause 4.3.2.3).
pub(super) fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let syllable = |digit: u64| SYLLABLES[(digit % 10) as usize];
    [syllable(number / 100), syllable(number / 10), syllable(number)].concat()
}

/// 64 characters, so that six random bits name one: letters and digits, two of them twice.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AZ";

/// Random letters and digits, `low` to `high` of them.
fn letters(rng: &mut Rng, low: u64, high: u64, out: &mut Vec<u8>) {
    let mut left = rng.uniform(low, high) as usize;
    while left > 0 {
        let mut bits = rng.next_u64();
        for _ in 0..left.min(10) {
            // The high bits of xoroshiro128+ are its good ones.
            out.push(CHARACTERS[(bits >> 58) as usize]);
            bits <<= 6;
        }
        left = left.saturating_sub(10);
    }
}

/// Random digits.
fn numeral(rng: &mut Rng, length: u64, out: &mut Vec<u8>) {
    out.extend((0..length).map(|_| b'0' + rng.uniform(0, 9) as u8));
}

/// An amount in hundredths or ten-thousandths as a decimal number.
fn decimal(value: u64, places: u32, out: &mut Vec<u8>) {
    let unit = 10_u64.pow(places);
    digits(value / unit, out);
    out.push(b'.');
    let fraction = value % unit;
    for place in (0..places).rev() {
        out.push(b'0' + (fraction / 10_u64.pow(place) % 10) as u8);
    }
}

/// Street, street, city, state and zip, each followed by a tab.
fn address(rng: &mut Rng, out: &mut Vec<u8>) {
    for _ in 0..3 {
        letters(rng, 10, 20, out);
        out.push(b'\t');
    }
    out.extend([b'A' + rng.uniform(0, 25) as u8, b'A' + rng.uniform(0, 25) as u8, b'\t']);
    numeral(rng, 4, out);
    out.extend_from_slice(b"11111\t");
}

/// 26 to 50 letters, a tenth of which hold "ORIGINAL".
fn original(rng: &mut Rng, out: &mut Vec<u8>) {
    const WORD: &[u8] = b"ORIGINAL";
    let start = out.len();
    letters(rng, 26, 50, out);
    if rng.uniform(1, 10) == 1 {
        let room = (out.len() - start - WORD.len()) as u64;
        let at = start + rng.uniform(0, room) as usize;
        out[at..at + WORD.len()].copy_from_slice(WORD);
    }
}

/// District of a row that counts over all districts: warehouse and district from 1.
fn district_of(index: u64) -> (u64, u64) {
    (index / DISTRICTS + 1, index % DISTRICTS + 1)
}

impl Data {
    pub(super) fn key(&self) -> String {
        format!(
            "tpcc v{GENERATOR_VERSION} warehouses={} seed={}{}",
            self.warehouses, self.seed, self.schema.suffix
        )
    }

    /// Measured with 10 warehouses: 98 MB for each on InnoDB, 107 MB on PostgreSQL; they grow while they are run on.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        self.warehouses.saturating_mul(130_000_000).saturating_add(30_000_000)
    }

    fn rng(&self, stream: Stream, row: u64) -> Rng {
        Rng::stream(SplitMix64::new(self.seed ^ ((stream as u64) << 40)).next(), row)
    }

    /// The tables, largest first: the last connection to finish should not be left with all of order_line.
    pub(super) fn plan(&self) -> LoadPlan<'_> {
        let tables = vec![
            self.order_line(),
            self.stock(),
            self.customer(),
            self.history(),
            self.orders(),
            self.new_order(),
            self.item(),
            self.district(),
            self.warehouse(),
        ];
        LoadPlan { tables }
    }

    fn table<'a>(
        &self,
        name: &str,
        columns: &str,
        key: Key<'_>,
        indexes: &[&str],
        rows: u64,
        push_row: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a,
    ) -> TableLoad<'a> {
        let after = indexes.iter().map(|index| (*index).to_owned()).collect();
        self.schema.table(Table { name, columns, key, after, rows }, push_row)
    }

    fn warehouse(&self) -> TableLoad<'_> {
        let columns = "w_id INTEGER NOT NULL, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20), \
                       w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9), w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2)";
        self.table("warehouse", columns, Key::Primary("w_id"), &[], self.warehouses, |row, out| {
            let mut rng = self.rng(Stream::Warehouse, row);
            numbers(&[row + 1], out);
            letters(&mut rng, 6, 10, out);
            out.push(b'\t');
            address(&mut rng, out);
            decimal(rng.uniform(0, 2000), 4, out);
            out.extend_from_slice(b"\t300000.00\n");
        })
    }

    fn district(&self) -> TableLoad<'_> {
        let columns = "d_id INTEGER NOT NULL, d_w_id INTEGER NOT NULL, d_name VARCHAR(10), d_street_1 VARCHAR(20), \
                       d_street_2 VARCHAR(20), d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9), d_tax DECIMAL(4,4), \
                       d_ytd DECIMAL(12,2), d_next_o_id INTEGER";
        let rows = self.warehouses * DISTRICTS;
        self.table("district", columns, Key::Primary("d_w_id, d_id"), &[], rows, |row, out| {
            let mut rng = self.rng(Stream::District, row);
            let (warehouse, district) = district_of(row);
            numbers(&[district, warehouse], out);
            letters(&mut rng, 6, 10, out);
            out.push(b'\t');
            address(&mut rng, out);
            decimal(rng.uniform(0, 2000), 4, out);
            out.extend_from_slice(b"\t30000.00\t3001\n");
        })
    }

    fn customer(&self) -> TableLoad<'_> {
        let timestamp = self.schema.dialect.syntax().timestamp;
        let columns = &format!(
            "c_id INTEGER NOT NULL, c_d_id INTEGER NOT NULL, c_w_id INTEGER NOT NULL, c_first VARCHAR(16), \
             c_middle CHAR(2), c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20), \
             c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16), c_since {timestamp}, c_credit CHAR(2), \
             c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2), c_ytd_payment DECIMAL(12,2), \
             c_payment_cnt INTEGER, c_delivery_cnt INTEGER, c_data VARCHAR(500)"
        );
        let index = ["CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)"];
        let rows = self.warehouses * DISTRICTS * CUSTOMERS;
        self.table("customer", columns, Key::Primary("c_w_id, c_d_id, c_id"), &index, rows, |row, out| {
            let mut rng = self.rng(Stream::Customer, row);
            let (warehouse, district) = district_of(row / CUSTOMERS);
            let number = row % CUSTOMERS;
            numbers(&[number + 1, district, warehouse], out);
            letters(&mut rng, 8, 16, out);
            out.extend_from_slice(b"\tOE\t");
            // The first thousand have all names; the rest as NURand draws them.
            let name = if number < 1000 { number } else { nurand(&mut rng, 255, C_LAST_LOAD, 0, 999) };
            out.extend_from_slice(last_name(name).as_bytes());
            out.push(b'\t');
            address(&mut rng, out);
            numeral(&mut rng, 16, out);
            out.push(b'\t');
            out.extend_from_slice(LOADED_AT);
            out.extend_from_slice(if rng.uniform(1, 10) == 1 {
                b"\tBC\t50000.00\t"
            } else {
                b"\tGC\t50000.00\t"
            });
            decimal(rng.uniform(0, 5000), 4, out);
            out.extend_from_slice(b"\t-10.00\t10.00\t1\t0\t");
            letters(&mut rng, 300, 500, out);
            out.push(b'\n');
        })
    }

    fn history(&self) -> TableLoad<'_> {
        let timestamp = self.schema.dialect.syntax().timestamp;
        let columns = &format!(
            "h_c_id INTEGER, h_c_d_id INTEGER, h_c_w_id INTEGER, h_d_id INTEGER, h_w_id INTEGER, h_date {timestamp}, \
             h_amount DECIMAL(6,2), h_data VARCHAR(24)"
        );
        let rows = self.warehouses * DISTRICTS * CUSTOMERS;
        self.table("history", columns, Key::None, &[], rows, |row, out| {
            let mut rng = self.rng(Stream::History, row);
            let (warehouse, district) = district_of(row / CUSTOMERS);
            numbers(&[row % CUSTOMERS + 1, district, warehouse, district, warehouse], out);
            out.extend_from_slice(LOADED_AT);
            out.extend_from_slice(b"\t10.00\t");
            letters(&mut rng, 12, 24, out);
            out.push(b'\n');
        })
    }

    /// The customer of each order: a permutation of a district's customers, here an affine one.
    fn customer_of(&self, district: u64, order: u64) -> u64 {
        let mut rng = self.rng(Stream::Permutation, district);
        let shift = rng.uniform(0, CUSTOMERS - 1);
        // Prime to 3000 = 2^3 * 3 * 5^3.
        let factor = loop {
            let factor = rng.uniform(7, CUSTOMERS - 1);
            if [2, 3, 5].iter().all(|&prime| !factor.is_multiple_of(prime)) {
                break factor;
            }
        };
        (factor * order + shift) % CUSTOMERS + 1
    }

    /// Carrier and number of lines of an order.
    fn order_terms(&self, row: u64) -> (u64, u64) {
        let mut rng = self.rng(Stream::Order, row);
        (rng.uniform(1, 10), rng.uniform(5, 15))
    }

    fn orders(&self) -> TableLoad<'_> {
        let timestamp = self.schema.dialect.syntax().timestamp;
        let columns = &format!(
            "o_id INTEGER NOT NULL, o_d_id INTEGER NOT NULL, o_w_id INTEGER NOT NULL, o_c_id INTEGER, \
             o_entry_d {timestamp}, o_carrier_id INTEGER, o_ol_cnt INTEGER, o_all_local INTEGER"
        );
        let index = ["CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)"];
        let rows = self.warehouses * DISTRICTS * CUSTOMERS;
        self.table("orders", columns, Key::Primary("o_w_id, o_d_id, o_id"), &index, rows, |row, out| {
            let (warehouse, district) = district_of(row / CUSTOMERS);
            let (carrier, lines) = self.order_terms(row);
            let order = row % CUSTOMERS + 1;
            numbers(&[order, district, warehouse, self.customer_of(row / CUSTOMERS, order)], out);
            out.extend_from_slice(LOADED_AT);
            out.push(b'\t');
            if order < FIRST_UNDELIVERED {
                numbers(&[carrier], out);
            } else {
                out.extend_from_slice(b"\\N\t");
            }
            numbers(&[lines], out);
            out.extend_from_slice(b"1\n");
        })
    }

    fn new_order(&self) -> TableLoad<'_> {
        let columns = "no_o_id INTEGER NOT NULL, no_d_id INTEGER NOT NULL, no_w_id INTEGER NOT NULL";
        let each = CUSTOMERS + 1 - FIRST_UNDELIVERED;
        let rows = self.warehouses * DISTRICTS * each;
        self.table(
            "new_order",
            columns,
            Key::Primary("no_w_id, no_d_id, no_o_id"),
            &[],
            rows,
            move |row, out| {
                let (warehouse, district) = district_of(row / each);
                numbers(&[FIRST_UNDELIVERED + row % each, district], out);
                digits(warehouse, out);
                out.push(b'\n');
            },
        )
    }

    /// Rows are counted by orders: each brings its 5 to 15 lines.
    fn order_line(&self) -> TableLoad<'_> {
        let timestamp = self.schema.dialect.syntax().timestamp;
        let columns = &format!(
            "ol_o_id INTEGER NOT NULL, ol_d_id INTEGER NOT NULL, ol_w_id INTEGER NOT NULL, \
             ol_number INTEGER NOT NULL, ol_i_id INTEGER, ol_supply_w_id INTEGER, ol_delivery_d {timestamp}, \
             ol_quantity INTEGER, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24)"
        );
        let rows = self.warehouses * DISTRICTS * CUSTOMERS;
        let key = "ol_w_id, ol_d_id, ol_o_id, ol_number";
        self.table("order_line", columns, Key::Primary(key), &[], rows, |row, out| {
            let mut rng = self.rng(Stream::OrderLine, row);
            let (warehouse, district) = district_of(row / CUSTOMERS);
            let order = row % CUSTOMERS + 1;
            for number in 1..=self.order_terms(row).1 {
                numbers(&[order, district, warehouse, number, rng.uniform(1, ITEMS), warehouse], out);
                if order < FIRST_UNDELIVERED {
                    out.extend_from_slice(LOADED_AT);
                    out.extend_from_slice(b"\t5\t0.00\t");
                } else {
                    out.extend_from_slice(b"\\N\t5\t");
                    decimal(rng.uniform(1, 999_999), 2, out);
                    out.push(b'\t');
                }
                letters(&mut rng, 24, 24, out);
                out.push(b'\n');
            }
        })
    }

    fn item(&self) -> TableLoad<'_> {
        let columns = "i_id INTEGER NOT NULL, i_im_id INTEGER, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50)";
        self.table("item", columns, Key::Primary("i_id"), &[], ITEMS, |row, out| {
            let mut rng = self.rng(Stream::Item, row);
            numbers(&[row + 1, rng.uniform(1, 10_000)], out);
            letters(&mut rng, 14, 24, out);
            out.push(b'\t');
            decimal(rng.uniform(100, 10_000), 2, out);
            out.push(b'\t');
            original(&mut rng, out);
            out.push(b'\n');
        })
    }

    fn stock(&self) -> TableLoad<'_> {
        let districts: Vec<String> =
            (1..=DISTRICTS).map(|number| format!("s_dist_{number:02} CHAR(24)")).collect();
        let columns = &format!(
            "s_i_id INTEGER NOT NULL, s_w_id INTEGER NOT NULL, s_quantity INTEGER, {}, s_ytd DECIMAL(8,0), \
             s_order_cnt INTEGER, s_remote_cnt INTEGER, s_data VARCHAR(50)",
            districts.join(", ")
        );
        let rows = self.warehouses * ITEMS;
        self.table("stock", columns, Key::Primary("s_w_id, s_i_id"), &[], rows, |row, out| {
            let mut rng = self.rng(Stream::Stock, row);
            numbers(&[row % ITEMS + 1, row / ITEMS + 1, rng.uniform(10, 100)], out);
            for _ in 0..DISTRICTS {
                letters(&mut rng, 24, 24, out);
                out.push(b'\t');
            }
            out.extend_from_slice(b"0\t0\t0\t");
            original(&mut rng, out);
            out.push(b'\n');
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Flavor, Version};
    use std::collections::HashSet;

    fn data() -> Data {
        let dialect = Dialect { flavor: Flavor::Postgres, version: Version::default(), engine: None };
        Data { warehouses: 2, seed: 1, schema: Schema { suffix: String::new(), dialect } }
    }

    fn lines(table: &TableLoad<'_>, row: u64) -> Vec<Vec<String>> {
        let mut out = Vec::new();
        (table.push_row)(row, &mut out);
        let text = String::from_utf8(out).expect("ASCII");
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_row_has_its_columns_and_widths() {
        for table in data().plan().tables {
            let columns = table.columns.split(", ").count();
            for row in [0, table.rows / 2, table.rows - 1] {
                for line in lines(&table, row) {
                    assert_eq!(line.len(), columns, "{} row {row}: {line:?}", table.name);
                }
            }
        }
    }

    #[test]
    fn rows_and_sizes_are_those_of_the_specification() {
        let data = data();
        let rows: Vec<(String, u64)> =
            data.plan().tables.iter().map(|table| (table.name.clone(), table.rows)).collect();
        let of = |name: &str| rows.iter().find(|(table, _)| table == name).map(|(_, rows)| *rows);
        assert_eq!(of("customer"), Some(60_000));
        assert_eq!(of("stock"), Some(200_000));
        assert_eq!(of("new_order"), Some(18_000));
        assert_eq!(of("item"), Some(100_000));
    }

    #[test]
    fn lines_agree_with_their_orders() {
        let data = data();
        let (orders, order_lines) = (data.orders(), data.order_line());
        for row in [0, 2099, 2100, 2999, 3000, 59_999] {
            let order = &lines(&orders, row)[0];
            let of_order = lines(&order_lines, row);
            assert_eq!(order[6], of_order.len().to_string());
            let is_delivered = row % 3000 + 1 < 2101;
            assert_eq!(order[5] != "\\N", is_delivered);
            assert!(
                of_order.iter().all(|line| (line[6] != "\\N") == is_delivered && line[..3] == order[..3])
            );
        }
    }

    #[test]
    fn each_customer_of_a_district_has_one_order() {
        let data = data();
        for district in [0, 7, 19] {
            let customers: HashSet<u64> =
                (1..=CUSTOMERS).map(|order| data.customer_of(district, order)).collect();
            assert_eq!(customers.len(), CUSTOMERS as usize);
        }
    }

    #[test]
    fn names_and_decimals() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        let written = |value, places| {
            let mut out = Vec::new();
            decimal(value, places, &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(
            (written(5, 2), written(123_456, 2), written(2000, 4)),
            ("0.05".into(), "1234.56".into(), "0.2000".into())
        );
    }
}
