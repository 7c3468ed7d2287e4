//! The statements of the five transactions, written once.

use wire::ParamType::{Int, Text};

use super::data::DISTRICTS;
use super::draw::Kind;
use crate::engine::statements::Template;
use crate::{Dialect, StatementDoc};

/// What the session sends; the order is that of [`Book::templates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sql {
    OrderCustomer,
    OrderDistrict,
    NextOrder,
    InsertOrder,
    InsertNewOrder,
    Item,
    UpdateStock,
    InsertLine,
    PayWarehouse,
    ReadWarehouse,
    PayDistrict,
    ReadDistrict,
    CustomersByName,
    LockCustomer,
    CustomerData,
    Pay,
    PayWithData,
    InsertHistory,
    StatusCustomer,
    LastOrder,
    OrderLines,
    OldestNewOrder,
    DeleteNewOrder,
    DeliveredCustomer,
    SetCarrier,
    DeliverLines,
    SumLines,
    CreditCustomer,
    LevelDistrict,
    LowStock,
    /// The first of ten, one for each district's column.
    Stock,
}

const MONEY: &str = "CAST(? AS DECIMAL(12,2))";

/// By transaction: class and text, for [`Sql`] in order. Parameters are whole numbers (`?`), texts (`$T`), and amounts (`$M`),
/// which travel as text and are cast, so that they stay exact.
const STATEMENTS: [(Kind, &[(&str, &str)]); 5] = [
    (
        Kind::NewOrder,
        &[
            (
                "customer",
                "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            ),
            ("district", "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE"),
            ("next_order", "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?"),
            (
                "insert_order",
                "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
                 VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP, ?, ?)",
            ),
            ("insert_new_order", "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)"),
            ("item", "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?"),
            (
                "update_stock",
                "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
                 s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
            ),
            (
                "insert_line",
                "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, \
                 ol_amount, ol_dist_info) VALUES (?, ?, ?, ?, ?, ?, ?, $M, $T)",
            ),
        ],
    ),
    (
        Kind::Payment,
        &[
            ("pay_warehouse", "UPDATE warehouse SET w_ytd = w_ytd + $M WHERE w_id = ?"),
            (
                "warehouse",
                "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
            ),
            ("pay_district", "UPDATE district SET d_ytd = d_ytd + $M WHERE d_w_id = ? AND d_id = ?"),
            (
                "district",
                "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
                 WHERE d_w_id = ? AND d_id = ?",
            ),
            (
                "customers_by_name",
                "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = $T ORDER BY c_first",
            ),
            (
                "customer",
                "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
                 c_credit, c_credit_lim, c_discount, c_balance FROM customer \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
            ),
            ("customer_data", "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?"),
            (
                "pay",
                "UPDATE customer SET c_balance = c_balance - $M, c_ytd_payment = c_ytd_payment + $M, \
                 c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            ),
            (
                "pay_with_data",
                "UPDATE customer SET c_balance = c_balance - $M, c_ytd_payment = c_ytd_payment + $M, \
                 c_payment_cnt = c_payment_cnt + 1, c_data = $T WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            ),
            (
                "insert_history",
                "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
                 VALUES (?, ?, ?, ?, ?, CURRENT_TIMESTAMP, $M, $T)",
            ),
        ],
    ),
    (
        Kind::OrderStatus,
        &[
            (
                "customer",
                "SELECT c_balance, c_first, c_middle, c_last FROM customer \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            ),
            (
                "last_order",
                "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? \
                 ORDER BY o_id DESC LIMIT 1",
            ),
            (
                "lines",
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            ),
        ],
    ),
    (
        Kind::Delivery,
        &[
            (
                "oldest",
                "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE",
            ),
            ("delete_new_order", "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?"),
            ("order", "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE"),
            (
                "set_carrier",
                "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            ),
            (
                "deliver_lines",
                "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            ),
            (
                "sum_lines",
                "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            ),
            (
                "credit_customer",
                "UPDATE customer SET c_balance = c_balance + $M, c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            ),
        ],
    ),
    (
        Kind::StockLevel,
        &[
            ("district", "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?"),
            (
                "low_stock",
                "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id < ? AND s_quantity < ?",
            ),
        ],
    ),
];

/// Statements and classes. The classes are: the statements, the stock select of New-Order, the brackets, then the
/// transactions themselves.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) templates: Vec<Template>,
}

/// All of them, with their transactions.
fn statements() -> impl Iterator<Item = (Kind, &'static str, &'static str)> {
    STATEMENTS.iter().flat_map(|(kind, all)| all.iter().map(move |(name, sql)| (*kind, *name, *sql)))
}

/// The text as it is sent.
fn text(sql: &str) -> String {
    sql.replace("$M", MONEY).replace("$T", "?")
}

/// Classes after those of [`STATEMENTS`].
const STOCK: usize = Sql::Stock as usize;
pub(super) const BEGIN: usize = STOCK + 1;
pub(super) const COMMIT: usize = STOCK + 2;
pub(super) const ROLLBACK: usize = STOCK + 3;
const FIRST_KIND: usize = STOCK + 4;

/// The class of a whole transaction; a new order that is rolled back on purpose has one of its own, because NOPM
/// counts what is committed.
pub(super) fn class_of(kind: Kind) -> usize {
    FIRST_KIND + kind as usize
}

/// See [`class_of`].
pub(super) const ROLLED_BACK: usize = FIRST_KIND + Kind::ALL.len();

/// The select of a stock with the column of its district.
fn stock_select(district: u64) -> String {
    format!(
        "SELECT s_quantity, s_dist_{district:02}, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE"
    )
}

impl Book {
    pub(super) fn new() -> Book {
        let param = |c| match c {
            '?' => Some(Int),
            '$' => Some(Text),
            _ => None,
        };
        let plain = statements()
            .map(|(.., sql)| Template::new(text(sql), &sql.chars().filter_map(param).collect::<Vec<_>>()));
        let stocks = (1..=DISTRICTS).map(|district| Template::new(stock_select(district), &[Int, Int]));
        Book { templates: plain.chain(stocks).collect() }
    }

    /// Index of a statement.
    #[inline]
    pub(super) fn index(sql: Sql) -> usize {
        sql as usize
    }

    /// Index of the stock select of a district.
    #[inline]
    pub(super) fn stock(district: i64) -> usize {
        Sql::Stock as usize + district as usize - 1
    }

    /// The class of a statement: those of all districts' stocks are one.
    #[inline]
    pub(super) fn class(index: usize) -> usize {
        index.min(STOCK)
    }

    pub(super) fn classes(&self) -> Vec<String> {
        let statements = statements().map(|(kind, name, _)| format!("{}.{name}", kind.name()));
        let more = ["new_order.stock", "begin", "commit", "rollback"].map(str::to_owned);
        let kinds = Kind::ALL.iter().map(|kind| kind.name().to_owned());
        statements.chain(more).chain(kinds).chain(["new_order_rolled_back".to_owned()]).collect()
    }

    pub(super) fn documentation(&self, dialect: &Dialect) -> Vec<StatementDoc> {
        let doc = |class: String, sql: &str, kind: &str, cards: usize| StatementDoc {
            class,
            sql: dialect.placeholders(sql),
            per_transaction: format!("{kind}, {cards} of 100 transactions"),
            parameters: "clause 2 of the specification".to_owned(),
        };
        let plain = statements().map(|(kind, name, sql)| {
            doc(format!("{}.{name}", kind.name()), &text(sql), kind.name(), kind.cards())
        });
        let mut docs: Vec<StatementDoc> = plain.collect();
        docs.push(doc("new_order.stock".to_owned(), &stock_select(1), "new_order", 45));
        for (class, sql) in [("begin", "BEGIN"), ("commit", "COMMIT"), ("rollback", "ROLLBACK")] {
            let per_transaction = if class == "rollback" { "1 of 100 new orders" } else { "1" };
            docs.push(StatementDoc {
                class: class.to_owned(),
                sql: sql.to_owned(),
                per_transaction: per_transaction.to_owned(),
                parameters: String::new(),
            });
        }
        docs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_indices_and_parameters_agree() {
        let book = Book::new();
        assert_eq!(Book::index(Sql::Stock), statements().count());
        assert_eq!(book.templates.len(), statements().count() + 10);
        for template in &book.templates {
            assert_eq!(template.sql.matches('?').count(), template.params.len(), "{}", template.sql);
        }
        let has =
            |sql: Sql, part: &str| assert!(book.templates[Book::index(sql)].sql.contains(part), "{sql:?}");
        has(Sql::InsertLine, "INSERT INTO order_line");
        has(Sql::InsertHistory, "INSERT INTO history");
        has(Sql::OrderLines, "SELECT ol_i_id");
        has(Sql::LowStock, "COUNT(DISTINCT");
        assert!(book.templates[Book::stock(10)].sql.contains("s_dist_10"));
        let classes = book.classes();
        assert_eq!(classes[class_of(Kind::StockLevel)], "stock_level");
        assert_eq!(classes[ROLLED_BACK], "new_order_rolled_back");
        assert_eq!((classes[BEGIN].as_str(), classes[ROLLBACK].as_str()), ("begin", "rollback"));
    }
}
