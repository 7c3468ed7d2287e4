//! TPC-C: five transactions of a wholesale supplier (TPC Benchmark C, revision 5.11).
//!
//! Not an audited result and not comparable with one: [`DESCRIPTION`] says what differs.

mod checks;
mod data;
mod draw;
mod session;
mod statements;

use std::collections::BTreeMap;
use std::sync::Arc;

use load::{SessionFactory, StepResult};
use wire::Target;

use super::Single;
use super::schema::Schema;
use crate::control::Control;
use crate::engine::link::LinkPlan;
use crate::engine::statements::StatementPlan;
use crate::engine::sums;
use crate::engine::tally::Tally;
use crate::loader;
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, TABLE_OPTIONS};
use crate::{
    Baseline, Check, Configured, Dialect, Error, Figure, Given, LoadAt, LoadReport, Needs, OptionError,
    OptionSpec, Progress, Ran, StatementDoc,
};
use data::Data;
use draw::Kind;
use statements::Book;

const HOMES: &[&str] = &["fixed", "random"];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::count("warehouses", "10", 1, 100_000, "scale: about 100 MB for each"),
    OptionSpec::switch(
        "waits",
        "off",
        "keying and think times; about 12.86 new orders per minute and warehouse at most",
    ),
    OptionSpec::word(
        "home",
        "fixed",
        HOMES,
        "fixed: session i works for warehouse i, counted round; random: any",
    ),
    PS_MODE,
    ENGINE,
    TABLE_OPTIONS,
    DATA_SEED,
];

const DESCRIPTION: &str = "\
The transaction mix of TPC Benchmark C, revision 5.11: New-Order 45 %, Payment 43 %, Order-Status, Delivery and \
Stock-Level 4 % each, dealt from a shuffled deck of 100 for each session; NURand with its constants; 1 % of new \
orders name an item that does not exist and are rolled back; 1 % of the lines and 15 % of the payments concern \
another warehouse; 60 % of payments and order-status queries go by last name.

Nine tables: item (100,000 rows) and, for each warehouse, 10 districts, 30,000 customers with a row of history \
and an order each, 9,000 undelivered orders, about 300,000 order lines, 100,000 stocks. The load and every run are \
followed by the consistency conditions of clause 3.3.2 (1 to 12 after the load, all but 11 after a run).

NOPM counts committed new orders per minute. It is not tpmC, which only audited results may report: there is no \
remote terminal emulator, Delivery runs at once instead of being queued, the screens are not shown, and by \
default (`waits` off) sessions neither key nor think. The response-time limits of clause 5.2.5.3 (90 % within \
5 s, Stock-Level 20 s) are reported beside the 90th percentiles.";

pub(super) const WORKLOAD: Single = Single {
    name: "tpcc",
    summary: "TPC-C: five transactions of a wholesale supplier",
    description: DESCRIPTION,
    options: OPTIONS,
    transactions: &[
        Kind::NewOrder.name(),
        Kind::Payment.name(),
        Kind::OrderStatus.name(),
        Kind::Delivery.name(),
        Kind::StockLevel.name(),
    ],
    configure,
};

fn configure(given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
    let options = Options::for_server("tpcc", OPTIONS, given, &dialect)?;
    Ok(Box::new(ConfiguredTpcc {
        data: Data {
            warehouses: options.count("warehouses"),
            seed: options.count("data_seed"),
            schema: Schema::of(&options, &dialect),
        },
        book: Arc::new(Book::new()),
        tally: Arc::default(),
        options,
        dialect,
    }))
}

#[derive(Debug)]
struct ConfiguredTpcc {
    options: Options,
    dialect: Dialect,
    data: Data,
    book: Arc<Book>,
    tally: Arc<Tally>,
}

impl ConfiguredTpcc {
    fn statement_plan(&self) -> StatementPlan {
        let (templates, is_prepared) = (self.book.templates.clone(), self.options.is_prepared());
        StatementPlan::new(&self.dialect, templates, vec![String::new()], is_prepared)
    }
}

impl Configured for ConfiguredTpcc {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.book.classes()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        self.book.documentation(&self.dialect)
    }

    fn dataset_key(&self) -> String {
        self.data.key()
    }

    fn data_bytes(&self) -> u64 {
        self.data.bytes_on_disk()
    }

    fn needs(&self, sessions: u32) -> Needs {
        Needs {
            connections: sessions,
            prepared_statements: self.statement_plan().prepared_per_session() as u64 * u64::from(sessions),
        }
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        let report = loader::load(at, &self.dialect, self.data.plan(), progress)?;
        let mut control = Control::connect(&at.target, "check the loaded tables")?;
        for check in checks::conditions(&mut control, true)? {
            if !check.passed {
                return Err(Error::Answer {
                    doing: format!("after the load, {}", check.name),
                    found: check.found,
                    wanted: check.expected,
                });
            }
        }
        Ok(report)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        // Orders and history grow with every run; a run that has begun from a load may go on.
        Ok(vec![
            ("warehouse".to_owned(), self.data.warehouses),
            ("item".to_owned(), data::ITEMS),
            ("stock".to_owned(), self.data.warehouses * data::ITEMS),
            ("customer".to_owned(), self.data.warehouses * 30_000),
        ])
    }

    fn baseline(&self, target: &Target, counted: &BTreeMap<String, u64>) -> Result<Baseline, Error> {
        sums::baseline(target, &[checks::new_orders()], &self.tally, counted)
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.tally)
    }

    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut control = Control::connect(target, "check the tables after the run")?;
        let mut checks = sums::check(&mut control, &[checks::new_orders()], before, &self.tally)?;
        checks.extend(checks::conditions(&mut control, false)?);
        Ok(checks)
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        let link = LinkPlan {
            target: target.clone(),
            dialect: self.dialect.clone(),
            setup: Vec::new(),
            retryable: &[],
        };
        Box::new(session::Factory {
            terms: draw::Terms {
                warehouses: self.data.warehouses,
                is_home_fixed: self.options.text("home") == "fixed",
                has_waits: self.options.switch("waits"),
            },
            book: Arc::clone(&self.book),
            link: Arc::new(link),
            statements: Arc::new(self.statement_plan()),
            tally: Arc::clone(&self.tally),
            seed,
        })
    }

    fn figures(&self, step: &StepResult) -> Vec<Figure> {
        let mut figures = Vec::new();
        for kind in Kind::ALL {
            let Some(class) = step.by_statement.iter().find(|class| class.name == kind.name()) else {
                continue;
            };
            if kind == Kind::NewOrder && step.duration_s > 0.0 {
                figures.push(Figure {
                    name: "NOPM".to_owned(),
                    value: class.count as f64 / step.duration_s * 60.0,
                    unit: "1/min".to_owned(),
                    limit: None,
                });
            }
            if class.count > 0 {
                figures.push(Figure {
                    name: format!("p90 {}", kind.name()),
                    value: class.latency.quantile_ms(0.9),
                    unit: "ms".to_owned(),
                    limit: Some(kind.limit_ms()),
                });
            }
        }
        figures
    }
}
