//! A terminal's session.

use std::sync::Arc;
use std::time::Duration;

use load::{AnySession, Completion, Failure, FailureClass, Recorder, Session, SessionFactory};
use wire::{Done, Row, StatementKind, Value};

use super::data::DISTRICTS;
use super::draw::{Customer, Input, Kind, Terminal, Terms};
use super::statements::{BEGIN, Book, COMMIT, ROLLBACK, ROLLED_BACK, Sql, class_of};
use crate::engine::link::{Link, LinkPlan};
use crate::engine::statements::{StatementPlan, Statements};
use crate::engine::tally::{Change, SessionTally, Tally};

/// Makes the sessions of a run.
#[derive(Debug)]
pub(super) struct Factory {
    pub(super) terms: Terms,
    pub(super) book: Arc<Book>,
    pub(super) link: Arc<LinkPlan>,
    pub(super) statements: Arc<StatementPlan>,
    pub(super) tally: Arc<Tally>,
    pub(super) seed: u64,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        self.book.classes()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(TpccSession {
            terminal: Terminal::new(self.terms, index, self.seed),
            tally: SessionTally::new(Arc::clone(&self.tally)),
            line: Wire {
                link: Link::new(Arc::clone(&self.link)),
                statements: Statements::new(Arc::clone(&self.statements)),
            },
            scratch: Scratch::default(),
        })
    }
}

/// Hundredths as `-123.45`, on the stack.
struct Money([u8; 24], usize);

impl Money {
    fn new(cents: i64) -> Money {
        let mut bytes = [0; 24];
        let mut at = bytes.len();
        let mut left = cents.unsigned_abs();
        let mut places = 0;
        while left > 0 || places < 3 {
            if places == 2 {
                at -= 1;
                bytes[at] = b'.';
            }
            at -= 1;
            bytes[at] = b'0' + (left % 10) as u8;
            left /= 10;
            places += 1;
        }
        if cents < 0 {
            at -= 1;
            bytes[at] = b'-';
        }
        Money(bytes, at)
    }

    fn value(&self) -> Value<'_> {
        Value::Bytes(&self.0[self.1..])
    }
}

/// A decimal of at most two places in hundredths.
pub(super) fn cents(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: i64 = match fraction.as_bytes() {
        [] => 0,
        [tenth] => i64::from(tenth.checked_sub(b'0')?) * 10,
        [tenth, hundredth, ..] => {
            i64::from(tenth.checked_sub(b'0')?) * 10 + i64::from(hundredth.checked_sub(b'0')?)
        }
    };
    Some(sign * (whole.parse::<i64>().ok()? * 100 + fraction))
}

fn int(row: &Row<'_>, column: usize) -> Option<i64> {
    row.text(column)?.parse().ok()
}

/// A row that must be there is not: the tables are not those of a load.
fn missing(what: &str) -> Failure {
    Failure {
        class: FailureClass::Other,
        code: "no row".to_owned(),
        text: format!("{what} is not there: are the tables loaded with as many warehouses?"),
        retryable: false,
        connection_lost: false,
        fatal: true,
    }
}

/// Connection and statements.
struct Wire {
    link: Link,
    statements: Statements,
}

impl Wire {
    async fn run_index(
        &mut self,
        recorder: &Recorder,
        index: usize,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Failure> {
        let Wire { link, statements } = self;
        let connection = link.connection()?;
        match statements.execute_rows(connection, index, 0, values, on_row).await {
            Ok(done) => {
                recorder.lap(Book::class(index), done.kind());
                Ok(done)
            }
            Err(error) => Err(link.failed(error)),
        }
    }

    /// A statement whose rows are looked at.
    async fn rows(
        &mut self,
        recorder: &Recorder,
        sql: Sql,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Failure> {
        self.run_index(recorder, Book::index(sql), values, on_row).await
    }

    /// A statement whose rows, if any, are skipped.
    async fn run(&mut self, recorder: &Recorder, sql: Sql, values: &[Value<'_>]) -> Result<Done, Failure> {
        let Wire { link, statements } = self;
        let index = Book::index(sql);
        let connection = link.connection()?;
        match statements.execute(connection, index, 0, values).await {
            Ok(done) => {
                recorder.lap(Book::class(index), done.kind());
                Ok(done)
            }
            Err(error) => Err(link.failed(error)),
        }
    }

    /// The id of the customer: as given, or the middle one of those with the last name (clause 2.5.2.2).
    async fn customer_id(
        &mut self,
        recorder: &Recorder,
        warehouse: i64,
        district: i64,
        customer: &Customer,
        ids: &mut Vec<i64>,
    ) -> Result<i64, Failure> {
        let name = match customer {
            Customer::Id(id) => return Ok(*id),
            Customer::LastName(name) => name,
        };
        ids.clear();
        let values = [Value::Int(warehouse), Value::Int(district), Value::Bytes(name.as_bytes())];
        self.rows(recorder, Sql::CustomersByName, &values, &mut |row| ids.extend(int(row, 0))).await?;
        if ids.is_empty() { Err(missing("a customer's last name")) } else { Ok(ids[(ids.len() - 1) / 2]) }
    }
}

/// Buffers that are kept from one transaction to the next.
#[derive(Default)]
struct Scratch {
    ids: Vec<i64>,
    text: Vec<u8>,
    dist: Vec<u8>,
}

struct TpccSession {
    terminal: Terminal,
    tally: SessionTally,
    line: Wire,
    scratch: Scratch,
}

impl TpccSession {
    /// Clause 2.4.2. `false`: rolled back because of the unused item.
    async fn new_order(&mut self, recorder: &Recorder) -> Result<bool, Failure> {
        let TpccSession { terminal: Terminal { input, .. }, line, scratch, tally, .. } = self;
        let (w, d) = (Value::Int(input.warehouse), Value::Int(input.district));
        let Customer::Id(customer) = input.customer else { return Err(missing("a customer")) };
        line.run(recorder, Sql::OrderCustomer, &[w, d, Value::Int(customer)]).await?;
        let mut order = None;
        line.rows(recorder, Sql::OrderDistrict, &[w, d], &mut |row| order = int(row, 0)).await?;
        let order = order.ok_or_else(|| missing("a district"))?;
        line.run(recorder, Sql::NextOrder, &[w, d]).await?;
        tally.changed(Change { rows: 1, k: 0 });
        let is_local = input.lines.iter().all(|line| line.warehouse == input.warehouse);
        let o = Value::Int(order);
        let (count, local) = (Value::Int(input.lines.len() as i64), Value::Int(i64::from(is_local)));
        line.run(recorder, Sql::InsertOrder, &[o, d, w, Value::Int(customer), count, local]).await?;
        line.run(recorder, Sql::InsertNewOrder, &[o, d, w]).await?;
        for (number, wanted) in (1..).zip(&input.lines) {
            let item = Value::Int(wanted.item);
            let supplier = Value::Int(wanted.warehouse);
            let mut price = None;
            line.rows(recorder, Sql::Item, &[item], &mut |row| price = row.get(0).and_then(cents)).await?;
            let Some(price) = price else { return Ok(false) };
            let (mut stock, dist) = (None, &mut scratch.dist);
            dist.clear();
            line.run_index(recorder, Book::stock(input.district), &[supplier, item], &mut |row| {
                stock = int(row, 0);
                dist.extend_from_slice(row.get(1).unwrap_or_default());
            })
            .await?;
            let stock = stock.ok_or_else(|| missing("a stock"))?;
            let quantity = wanted.quantity;
            // Clause 2.4.2.2: refilled by 91 where fewer than ten would be left.
            let left = if stock >= quantity + 10 { stock - quantity } else { stock - quantity + 91 };
            let is_remote = i64::from(wanted.warehouse != input.warehouse);
            let values = [Value::Int(left), Value::Int(quantity), Value::Int(is_remote), supplier, item];
            line.run(recorder, Sql::UpdateStock, &values).await?;
            let amount = Money::new(price * quantity);
            let values = [
                o,
                d,
                w,
                Value::Int(number),
                item,
                supplier,
                Value::Int(quantity),
                amount.value(),
                Value::Bytes(dist),
            ];
            line.run(recorder, Sql::InsertLine, &values).await?;
        }
        Ok(true)
    }

    /// Clause 2.5.2.
    async fn payment(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        let TpccSession { terminal: Terminal { input, .. }, line, scratch, .. } = self;
        let (w, d) = (Value::Int(input.warehouse), Value::Int(input.district));
        let amount = Money::new(input.amount_cents);
        let names = &mut scratch.text;
        names.clear();
        line.run(recorder, Sql::PayWarehouse, &[amount.value(), w]).await?;
        line.rows(recorder, Sql::ReadWarehouse, &[w], &mut |row| {
            names.extend_from_slice(row.get(0).unwrap_or_default());
        })
        .await?;
        names.extend_from_slice(b"    ");
        line.run(recorder, Sql::PayDistrict, &[amount.value(), w, d]).await?;
        line.rows(recorder, Sql::ReadDistrict, &[w, d], &mut |row| {
            names.extend_from_slice(row.get(0).unwrap_or_default());
        })
        .await?;
        let (cw, cd) = (input.customer_warehouse, input.customer_district);
        let id = line.customer_id(recorder, cw, cd, &input.customer, &mut scratch.ids).await?;
        let (cw, cd, c) = (Value::Int(cw), Value::Int(cd), Value::Int(id));
        let mut has_bad_credit = None;
        line.rows(recorder, Sql::LockCustomer, &[cw, cd, c], &mut |row| {
            has_bad_credit = Some(row.get(10) == Some(b"BC"));
        })
        .await?;
        if has_bad_credit.ok_or_else(|| missing("a customer"))? {
            let mut data = bad_credit_note(id, input, &amount);
            line.rows(recorder, Sql::CustomerData, &[cw, cd, c], &mut |row| {
                data.extend_from_slice(row.get(0).unwrap_or_default());
            })
            .await?;
            data.truncate(500);
            let values = [amount.value(), amount.value(), Value::Bytes(&data), cw, cd, c];
            line.run(recorder, Sql::PayWithData, &values).await?;
        } else {
            line.run(recorder, Sql::Pay, &[amount.value(), amount.value(), cw, cd, c]).await?;
        }
        let values = [c, cd, cw, d, w, amount.value(), Value::Bytes(&scratch.text)];
        line.run(recorder, Sql::InsertHistory, &values).await?;
        Ok(())
    }

    /// Clause 2.6.2.
    async fn order_status(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        let TpccSession { terminal: Terminal { input, .. }, line, scratch, .. } = self;
        let (w, d) = (Value::Int(input.warehouse), Value::Int(input.district));
        let id = line
            .customer_id(recorder, input.warehouse, input.district, &input.customer, &mut scratch.ids)
            .await?;
        let c = Value::Int(id);
        line.run(recorder, Sql::StatusCustomer, &[w, d, c]).await?;
        let mut order = None;
        line.rows(recorder, Sql::LastOrder, &[w, d, c], &mut |row| order = int(row, 0)).await?;
        let order = order.ok_or_else(|| missing("a customer's order"))?;
        line.run(recorder, Sql::OrderLines, &[w, d, Value::Int(order)]).await?;
        Ok(())
    }

    /// Clause 2.7.4: the oldest new order of each district. Where another delivery has just taken the row that
    /// was waited for, PostgreSQL returns none; the next look finds the one after it.
    async fn delivery(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        const LOOKS: usize = 3;
        let TpccSession { terminal: Terminal { input, .. }, line, .. } = self;
        let w = Value::Int(input.warehouse);
        for district in 1..=DISTRICTS as i64 {
            let d = Value::Int(district);
            let mut order = None;
            for _ in 0..LOOKS {
                line.rows(recorder, Sql::OldestNewOrder, &[w, d], &mut |row| order = int(row, 0)).await?;
                if order.is_some() {
                    break;
                }
            }
            let Some(order) = order else { continue };
            let o = Value::Int(order);
            line.run(recorder, Sql::DeleteNewOrder, &[w, d, o]).await?;
            let mut customer = None;
            line.rows(recorder, Sql::DeliveredCustomer, &[w, d, o], &mut |row| customer = int(row, 0))
                .await?;
            let customer = customer.ok_or_else(|| missing("an order"))?;
            line.run(recorder, Sql::SetCarrier, &[Value::Int(input.carrier), w, d, o]).await?;
            line.run(recorder, Sql::DeliverLines, &[w, d, o]).await?;
            let mut sum = None;
            line.rows(recorder, Sql::SumLines, &[w, d, o], &mut |row| sum = row.get(0).and_then(cents))
                .await?;
            let sum = Money::new(sum.ok_or_else(|| missing("an order's lines"))?);
            line.run(recorder, Sql::CreditCustomer, &[sum.value(), w, d, Value::Int(customer)]).await?;
        }
        Ok(())
    }

    /// Clause 2.8.2.
    async fn stock_level(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        let TpccSession { terminal: Terminal { input, .. }, line, .. } = self;
        let (w, d) = (Value::Int(input.warehouse), Value::Int(input.district));
        let mut next = None;
        line.rows(recorder, Sql::LevelDistrict, &[w, d], &mut |row| next = int(row, 0)).await?;
        let next = next.ok_or_else(|| missing("a district"))?;
        let values = [w, d, Value::Int(next - 20), Value::Int(next), Value::Int(input.threshold)];
        line.run(recorder, Sql::LowStock, &values).await?;
        Ok(())
    }

    async fn attempt(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let kind = self.terminal.input.kind;
        self.tally.begin();
        let done = self.line.link.begin().await?;
        recorder.lap(BEGIN, done.kind());
        let is_kept = match kind {
            Kind::NewOrder => self.new_order(recorder).await?,
            Kind::Payment => self.payment(recorder).await.map(|()| true)?,
            Kind::OrderStatus => self.order_status(recorder).await.map(|()| true)?,
            Kind::Delivery => self.delivery(recorder).await.map(|()| true)?,
            Kind::StockLevel => self.stock_level(recorder).await.map(|()| true)?,
        };
        if !is_kept {
            self.line.link.rollback().await?;
            recorder.lap(ROLLBACK, StatementKind::Other);
            recorder.transaction(ROLLED_BACK);
            self.tally.begin();
            return Ok(Completion::RolledBack);
        }
        self.tally.committing();
        self.line.link.commit().await?;
        self.tally.committed();
        recorder.lap(COMMIT, StatementKind::Other);
        recorder.transaction(class_of(kind));
        Ok(Completion::Committed)
    }
}

/// What is put before the data of a customer with bad credit (clause 2.5.2.2).
fn bad_credit_note(customer: i64, input: &Input, amount: &Money) -> Vec<u8> {
    let mut note = format!(
        "{customer} {} {} {} {} ",
        input.customer_district, input.customer_warehouse, input.district, input.warehouse
    )
    .into_bytes();
    note.extend_from_slice(&amount.0[amount.1..]);
    note.push(b' ');
    note
}

impl Session for TpccSession {
    async fn open(&mut self) -> Result<(), Failure> {
        let Wire { link, statements, .. } = &mut self.line;
        link.open().await?;
        let opened = statements.open(link.connection()?).await;
        opened.map_err(|error| link.failure(&error))
    }

    fn draw(&mut self) {
        self.terminal.draw();
    }

    fn pause(&mut self) -> Duration {
        self.terminal.pause
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let result = self.attempt(recorder).await;
        if let Err(failure) = &result {
            self.tally.failed(failure.connection_lost);
        }
        result
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        self.line.link.recover().await
    }

    async fn close(&mut self) {
        self.line.link.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_and_read_exactly() {
        for value in [0, 1, 9, 10, 99, 100, 12_345, 500_000, 999_999_999_999, -1, -12_345] {
            let money = Money::new(value);
            assert_eq!(cents(&money.0[money.1..]), Some(value), "{value}");
        }
        let text = |value| {
            let money = Money::new(value);
            String::from_utf8_lossy(&money.0[money.1..]).into_owned()
        };
        assert_eq!((text(5), text(-150), text(123_456)), ("0.05".into(), "-1.50".into(), "1234.56".into()));
        assert_eq!((cents(b"12"), cents(b"12.5"), cents(b"x")), (Some(1200), Some(1250), None));
    }
}
