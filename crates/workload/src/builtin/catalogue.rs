//! A shop's catalogue that is only read, from memory: after the load of AnandTech's server tests of 2004 to 2006,
//! whose data and queries were never published; see [`DESCRIPTION`].

use std::sync::Arc;

use wire::ParamType;

use super::Single;
use super::drawn::{Drawn, Own};
use super::schema::{Key, Schema, Table, numbers};
use crate::engine::sums::{Sum, Wanted};
use crate::engine::{Draw, DrawnWorkload, Program, StatementClass};
use crate::loader::TableLoad;
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, TABLE_OPTIONS};
use crate::random::{Rng, digit_groups, digits};
use crate::{Dialect, Given, OptionError, OptionSpec};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::real(
        "scale",
        "1",
        0.001,
        1000.0,
        "1: about 1 GB (200,000 products, 7.5 million order lines)",
    ),
    PS_MODE,
    ENGINE,
    TABLE_OPTIONS,
    DATA_SEED,
];

const DESCRIPTION: &str = "\
A select-dominated load: a web shop's catalogue and orders of about 1 GB that stay in memory, queried by sessions \
without think time.

RECONSTRUCTED after what AnandTech's articles of 2004 to 2006 (J. De Gelas) tell of theirs: about 1 GB, resident in \
memory, read-intensive queries that select, group and order over one or more tables, 1 to 50 concurrent clients, \
query cache off. Their data and SQL were not published; schema, queries and shares are ours, so figures compare with \
each other and not with the articles'.

One transaction is one query: 30 % by key, 25 % filtered, 20 % grouped over three tables, 20 % a customer's newest \
order lines, 5 % a ranking of a department. All are outside of explicit transactions.";

const DEPARTMENTS: u64 = 25;
const CATEGORIES: u64 = 500;
const MAKERS: u64 = 50;
const DAYS: u64 = 1095;
const LINES: u64 = 5;
const PRICE_MAX: u64 = 100_000;
/// Orders that one grouped query looks at.
const GROUPED_ORDERS: u64 = 100;

pub(super) const WORKLOAD: Single = Single {
    name: "catalogue",
    summary: "selects over a shop's catalogue in memory: by key, filtered, grouped, ordered",
    description: DESCRIPTION,
    options: OPTIONS,
    transactions: &[],
    configure: |given, dialect| Ok(Box::new(configured(given, dialect)?)),
};

fn configured(given: &Given, dialect: Dialect) -> Result<Drawn<Shop>, OptionError> {
    let options = Options::for_server("catalogue", OPTIONS, given, &dialect)?;
    let shop = Shop::of_scale(options.real("scale"));
    let workload =
        DrawnWorkload { is_prepared: options.is_prepared(), ..DrawnWorkload::new(shop, dialect, classes()) };
    Ok(Drawn { options, workload: Arc::new(workload) })
}

const POINT: usize = 0;
const FILTERED: usize = 1;
const GROUPED: usize = 2;
const ORDERED: usize = 3;
const RANKED: usize = 4;
/// Of a hundred queries, by kind.
const SHARES: [u64; 5] = [30, 25, 20, 20, 5];

fn classes() -> Vec<StatementClass> {
    use ParamType::Int;
    let share = |kind: usize| format!("{} of 100 transactions", SHARES[kind]);
    vec![
        StatementClass::work(
            "point",
            "SELECT p.id, p.name, p.price, p.stock, p.rating, p.description, c.name FROM product p \
             JOIN category c ON c.id = p.category_id WHERE p.id = ?",
            &[Int],
            share(POINT),
            "a product, uniform",
        ),
        StatementClass::work(
            "filtered",
            "SELECT p.id, p.name, p.price, p.rating FROM product p \
             WHERE p.category_id = ? AND p.price BETWEEN ? AND ?",
            &[Int, Int, Int],
            share(FILTERED),
            "a category, uniform; a quarter of all prices",
        ),
        StatementClass::work(
            "grouped",
            "SELECT p.maker, COUNT(*), SUM(l.quantity), SUM(l.quantity * l.price) FROM orders o \
             JOIN order_line l ON l.order_id = o.id JOIN product p ON p.id = l.product_id \
             WHERE o.id BETWEEN ? AND ? GROUP BY p.maker",
            &[Int, Int],
            share(GROUPED),
            "100 orders in a row: 500 lines into up to 50 groups",
        ),
        StatementClass::work(
            "ordered",
            "SELECT o.id, o.day, o.total, l.line, l.quantity, p.name FROM orders o \
             JOIN order_line l ON l.order_id = o.id JOIN product p ON p.id = l.product_id \
             WHERE o.customer_id = ? ORDER BY o.day DESC, o.id DESC, l.line LIMIT 20",
            &[Int],
            share(ORDERED),
            "a customer, uniform: about 10 orders of 5 lines",
        ),
        StatementClass::work(
            "ranked",
            "SELECT p.id, p.name, p.rating, p.price FROM product p JOIN category c ON c.id = p.category_id \
             WHERE c.department = ? AND p.rating >= ? ORDER BY p.price DESC, p.id LIMIT 20",
            &[Int, Int],
            share(RANKED),
            "a department, uniform; a rating from 50 to 95",
        ),
    ]
}

/// Numbers of rows, and how queries are drawn over them.
#[derive(Debug)]
struct Shop {
    products: u64,
    customers: u64,
    orders: u64,
}

impl Shop {
    fn of_scale(scale: f64) -> Shop {
        let scaled = |count: f64| ((count * scale) as u64).max(100);
        Shop { products: scaled(200_000.0), customers: scaled(150_000.0), orders: scaled(1_500_000.0) }
    }

    fn kind(percent: u64) -> usize {
        let mut below = 0;
        SHARES
            .iter()
            .position(|share| {
                below += share;
                percent < below
            })
            .unwrap_or(POINT)
    }
}

impl Draw for Shop {
    type Memory = Rng;

    fn memory(&self, seed: u64, session: u32) -> Rng {
        Rng::stream(seed, u64::from(session))
    }

    fn draw(&self, rng: &mut Rng, program: &mut Program) {
        let kind = Shop::kind(rng.uniform(0, 99));
        match kind {
            POINT => program.int(rng.uniform(1, self.products)),
            FILTERED => {
                program.int(rng.uniform(1, CATEGORIES));
                let low = rng.uniform(100, PRICE_MAX * 3 / 4);
                program.int(low);
                program.int(low + PRICE_MAX / 4);
            }
            GROUPED => {
                let first = rng.uniform(1, self.orders - GROUPED_ORDERS + 1);
                program.int(first);
                program.int(first + GROUPED_ORDERS - 1);
            }
            ORDERED => program.int(rng.uniform(1, self.customers)),
            _ => {
                program.int(rng.uniform(1, DEPARTMENTS));
                program.int(rng.uniform(50, 95));
            }
        }
        program.push(kind, 0);
    }
}

/// Changes with anything that changes the bytes of generated rows. 2: PostgreSQL builds the primary key from the rows.
const GENERATOR_VERSION: u32 = 2;

impl Drawn<Shop> {
    fn table<'a>(
        &self,
        table: Table<'_>,
        push_row: impl Fn(&mut Rng, u64, &mut Vec<u8>) + Send + Sync + 'a,
    ) -> TableLoad<'a> {
        let seed = self.options.count("data_seed") ^ ((table.name.len() as u64) << 40);
        Schema::of(&self.options, &self.workload.dialect)
            .table(table, move |row, out| push_row(&mut Rng::stream(seed, row), row, out))
    }
}

impl Own for Drawn<Shop> {
    fn key(&self) -> String {
        let names = ["scale", "mysql_storage_engine", "create_table_options", "data_seed"];
        format!("catalogue v{GENERATOR_VERSION}{}", self.options.key_of(&names))
    }

    fn bytes_on_disk(&self) -> u64 {
        let Shop { products, orders, .. } = self.workload.draw;
        products * 420 + orders * (110 + LINES * 110) + 1_000_000
    }

    fn tables(&self) -> Vec<TableLoad<'_>> {
        let Shop { products, customers, orders } = self.workload.draw;
        vec![
            self.table(
                Table {
                    name: "category",
                    columns: "id INTEGER NOT NULL, department INTEGER NOT NULL, name VARCHAR(40) NOT NULL",
                    key: Key::Primary("id"),
                    after: vec!["CREATE INDEX category_1 ON category (department)".to_owned()],
                    rows: CATEGORIES,
                },
                |rng, row, out| {
                    numbers(&[row + 1, row % DEPARTMENTS + 1], out);
                    digit_groups(rng, 2, out);
                    out.push(b'\n');
                },
            ),
            self.table(
                Table {
                    name: "product",
                    columns: "id INTEGER NOT NULL, category_id INTEGER NOT NULL, maker INTEGER NOT NULL, \
                              price INTEGER NOT NULL, stock INTEGER NOT NULL, rating INTEGER NOT NULL, \
                              name VARCHAR(60) NOT NULL, description VARCHAR(250) NOT NULL",
                    key: Key::Primary("id"),
                    after: vec!["CREATE INDEX product_1 ON product (category_id, price)".to_owned()],
                    rows: products,
                },
                |rng, row, out| {
                    let price = rng.uniform(100, PRICE_MAX);
                    let (maker, stock, rating) =
                        (rng.uniform(1, MAKERS), rng.uniform(0, 500), rng.uniform(0, 100));
                    numbers(&[row + 1, row % CATEGORIES + 1, maker, price, stock, rating], out);
                    digit_groups(rng, 4, out);
                    out.push(b'\t');
                    digit_groups(rng, 20, out);
                    out.push(b'\n');
                },
            ),
            self.table(
                Table {
                    name: "orders",
                    columns: "id INTEGER NOT NULL, customer_id INTEGER NOT NULL, day INTEGER NOT NULL, \
                              status INTEGER NOT NULL, total INTEGER NOT NULL",
                    key: Key::Primary("id"),
                    after: vec!["CREATE INDEX orders_1 ON orders (customer_id)".to_owned()],
                    rows: orders,
                },
                move |rng, row, out| {
                    let customer = rng.uniform(1, customers);
                    let day = row * DAYS / orders + 1;
                    numbers(&[row + 1, customer, day, rng.uniform(0, 4)], out);
                    digits(rng.uniform(100, PRICE_MAX * LINES), out);
                    out.push(b'\n');
                },
            ),
            self.table(
                Table {
                    name: "order_line",
                    columns: "order_id INTEGER NOT NULL, line INTEGER NOT NULL, product_id INTEGER NOT NULL, \
                              quantity INTEGER NOT NULL, price INTEGER NOT NULL",
                    key: Key::Primary("order_id, line"),
                    after: vec!["CREATE INDEX order_line_1 ON order_line (product_id)".to_owned()],
                    rows: orders * LINES,
                },
                move |rng, row, out| {
                    let (product, quantity) = (rng.uniform(1, products), rng.uniform(1, 9));
                    numbers(&[row / LINES + 1, row % LINES + 1, product, quantity], out);
                    digits(rng.uniform(100, PRICE_MAX), out);
                    out.push(b'\n');
                },
            ),
        ]
    }

    fn sums(&self) -> Vec<Sum> {
        // Nothing writes: the rows are those of the load. Counting 7.5 million lines after each run would cost more
        // than it tells.
        let small = self.tables().into_iter().filter(|table| table.name != "order_line");
        let sum = |table: TableLoad<'_>| {
            Sum::of_rows(format!("rows of {}", table.name), [&table.name], Wanted::Exactly(table.rows))
        };
        small.map(sum).collect()
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(given: &Given, dialect: Dialect) -> u64 {
    crate::engine::seen::checksum(&configured(given, dialect).expect("good options").workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::seen;
    use crate::{Flavor, Version};
    use std::collections::BTreeMap;

    fn shop(scale: &str) -> Drawn<Shop> {
        let given = BTreeMap::from([("scale".to_owned(), scale.to_owned())]);
        let dialect = Dialect { flavor: Flavor::Mysql, version: Version::default(), engine: None };
        configured(&given, dialect).expect("good options")
    }

    #[test]
    fn shares_of_the_queries_are_as_documented() {
        assert_eq!(SHARES.iter().sum::<u64>(), 100);
        let shop = shop("1");
        let mut memory = shop.workload.draw.memory(7, 0);
        let mut seen_kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for _ in 0..20_000 {
            let transaction = seen::transaction(&shop.workload, &mut memory);
            assert_eq!(transaction.len(), 1);
            *seen_kinds.entry(transaction[0].0).or_default() += 1;
        }
        for (name, share) in ["point", "filtered", "grouped", "ordered", "ranked"].into_iter().zip(SHARES) {
            let found = seen_kinds[name] as f64 / 200.0;
            assert!((found - share as f64).abs() < 1.2, "{name}: {found} % of {share} %");
        }
    }

    #[test]
    fn the_default_scale_is_about_a_gigabyte() {
        assert!((900_000_000..1_200_000_000).contains(&shop("1").bytes_on_disk()));
        let tables = shop("1");
        let rows: Vec<(String, u64)> =
            tables.tables().into_iter().map(|table| (table.name, table.rows)).collect();
        assert_eq!(
            rows[1..],
            [
                ("product".to_owned(), 200_000),
                ("orders".to_owned(), 1_500_000),
                ("order_line".to_owned(), 7_500_000)
            ]
        );
    }

    #[test]
    fn rows_refer_to_rows_that_there_are() {
        let shop = shop("0.01");
        let tables = shop.tables();
        for row in [0, 1, 9_999, 74_999] {
            let mut out = Vec::new();
            (tables[3].push_row)(row, &mut out);
            let line = String::from_utf8(out).expect("ASCII");
            let fields: Vec<u64> =
                line.trim_end().split('\t').map(|field| field.parse().expect("a number")).collect();
            assert_eq!((fields[0], fields[1], fields.len()), (row / 5 + 1, row % 5 + 1, 5));
            assert!((1..=2000).contains(&fields[2]));
        }
        let mut memory = shop.workload.draw.memory(1, 0);
        for _ in 0..2000 {
            let (name, values) = seen::transaction(&shop.workload, &mut memory).remove(0);
            if name == "grouped" {
                assert!(values[1].parse::<u64>().expect("a number") <= 15_000);
            }
        }
    }
}
