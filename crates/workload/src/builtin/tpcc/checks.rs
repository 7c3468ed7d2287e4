//! The consistency conditions of clause 3.3.2, and that the new orders are those that were counted.

use std::collections::HashMap;

use crate::control::Control;
use crate::engine::sums::{Sum, Wanted};
use crate::{Check, Error};

/// Conditions 1 to 9: what must hold, and a query that counts where it does not. 10 and 12 are in [`customers`].
const CONDITIONS: [(&str, &str); 9] = [
    (
        "W_YTD = sum(D_YTD)",
        "SELECT COUNT(*) FROM warehouse WHERE w_ytd <> (SELECT SUM(d_ytd) FROM district WHERE d_w_id = w_id)",
    ),
    (
        "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        "SELECT COUNT(*) FROM (SELECT d_next_o_id - 1 AS latest, \
         (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS ordered, \
         (SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS waiting \
         FROM district) AS t WHERE latest <> ordered OR latest <> COALESCE(waiting, latest)",
    ),
    (
        "max(NO_O_ID) - min(NO_O_ID) + 1 = number of new orders of the district",
        "SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 AS span, COUNT(*) AS n FROM new_order \
         GROUP BY no_w_id, no_d_id) AS t WHERE span <> n",
    ),
    (
        "sum(O_OL_CNT) = number of order lines of the district",
        "SELECT COUNT(*) FROM district \
         WHERE (SELECT SUM(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
         <> (SELECT COUNT(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    ),
    (
        "O_CARRIER_ID is null where there is a new order, and nowhere else",
        "SELECT COUNT(*) FROM orders LEFT JOIN new_order \
         ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL AND no_o_id IS NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL)",
    ),
    (
        "O_OL_CNT = number of lines of the order",
        "SELECT COUNT(*) FROM orders WHERE o_ol_cnt <> (SELECT COUNT(*) FROM order_line \
         WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
    ),
    (
        "OL_DELIVERY_D is null where O_CARRIER_ID is, and nowhere else",
        "SELECT COUNT(*) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
         WHERE (ol_delivery_d IS NULL AND o_carrier_id IS NOT NULL) \
         OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NULL)",
    ),
    (
        "W_YTD = sum(H_AMOUNT)",
        "SELECT COUNT(*) FROM warehouse JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) \
         AS h ON h_w_id = w_id WHERE w_ytd <> paid",
    ),
    (
        "D_YTD = sum(H_AMOUNT)",
        "SELECT COUNT(*) FROM district JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history \
         GROUP BY h_w_id, h_d_id) AS h ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> paid",
    ),
];

/// Holds right after the load only.
const CONDITION_11: (&str, &str) = (
    "orders - new orders = 2100 in each district",
    "SELECT COUNT(*) FROM district \
     WHERE (SELECT COUNT(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
     - (SELECT COUNT(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) <> 2100",
);

/// Checks the conditions, with 11 where the tables have just been loaded.
pub(super) fn conditions(control: &mut Control, is_fresh: bool) -> Result<Vec<Check>, Error> {
    control.client().set_statement_timeout(std::time::Duration::from_secs(3600));
    let mut checks = Vec::new();
    let eleven = is_fresh.then_some((11, CONDITION_11));
    for (number, (what, sql)) in (1..).zip(CONDITIONS).chain(eleven) {
        let broken = control.number(&format!("checking condition {number}"), sql)?;
        checks.push(Check::between(name(number, what), broken, 0, 0));
    }
    checks.extend(customers(control)?);
    checks.sort_by_key(|check| check.name.clone());
    Ok(checks)
}

fn name(number: u32, what: &str) -> String {
    format!("condition {number:02}, rows against: {what}")
}

/// Warehouse, district, customer.
type CustomerId = (i64, i64, i64);

/// Conditions 10 and 12: each customer's balance against what was delivered and what was paid. History has no
/// index, and old servers do not build one for a derived table, so the sums by customer meet here.
fn customers(control: &mut Control) -> Result<[Check; 2], Error> {
    let doing = "checking conditions 10 and 12";
    let mut paid: HashMap<CustomerId, i64> = HashMap::new();
    let sql =
        "SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id";
    each_row(control, doing, sql, &mut |id, numbers| {
        paid.insert(id, numbers[0]);
    })?;
    let mut delivered: HashMap<CustomerId, i64> = HashMap::new();
    let sql = "SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) FROM orders JOIN order_line \
               ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
               WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id";
    each_row(control, doing, sql, &mut |id, numbers| {
        delivered.insert(id, numbers[0]);
    })?;
    let (mut ten, mut twelve) = (0, 0);
    let sql = "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment FROM customer";
    each_row(control, doing, sql, &mut |id, numbers| {
        let of = |sums: &HashMap<CustomerId, i64>| sums.get(&id).copied().unwrap_or(0);
        ten += i128::from(numbers[0] != of(&delivered) - of(&paid));
        twelve += i128::from(numbers[0] + numbers[1] != of(&delivered));
    })?;
    Ok([
        Check::between(name(10, "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)"), ten, 0, 0),
        Check::between(name(12, "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)"), twelve, 0, 0),
    ])
}

/// Shows each row: a customer's id, and the columns after it in hundredths.
fn each_row(
    control: &mut Control,
    doing: &str,
    sql: &str,
    show: &mut dyn FnMut(CustomerId, [i64; 2]),
) -> Result<(), Error> {
    let asked = control.client().query_rows(sql, &mut |row| {
        let int = |column| row.text(column).and_then(|text| text.parse().ok()).unwrap_or(0);
        let money = |column| row.get(column).and_then(super::session::cents).unwrap_or(0);
        show((int(0), int(1), int(2)), [money(3), money(4)]);
    });
    asked.map(drop).map_err(|source| crate::control::statement_error(doing, sql, source))
}

/// Each new order takes a number of its district.
pub(super) fn new_orders() -> Sum {
    Sum::of("SUM(d_next_o_id)", "new orders as counted (sum of D_NEXT_O_ID)", ["district"], Wanted::Rows)
}
