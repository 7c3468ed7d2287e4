//! TPC-B as pgbench runs it: one account, its teller and its branch, and a row of history.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use load::SessionFactory;
use wire::{ParamType, Target};

use super::Single;
use crate::control::Control;
use crate::engine::tally::Tally;
use crate::engine::{self, Draw, DrawnWorkload, Program, StatementClass};
use crate::loader::{self, LoadPlan, TableLoad};
use crate::options::{ENGINE, Options, PS_MODE, TABLE_OPTIONS};
use crate::random::{Rng, digits};
use crate::{
    Baseline, Check, Configured, Dialect, Error, LoadAt, LoadReport, Needs, OptionError, OptionSpec,
    Progress, Ran, StatementDoc,
};

const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;

const VARIANTS: &[Cow<'static, str>] =
    &[Cow::Borrowed("tpcb"), Cow::Borrowed("simple_update"), Cow::Borrowed("select_only")];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::count("scale", "10", 1, 20_000, "branches; each has 10 tellers and 100,000 accounts"),
    OptionSpec::word(
        "variant",
        "tpcb",
        VARIANTS,
        "simple_update: neither tellers nor branches; select_only: one select, no transaction",
    ),
    OptionSpec::switch(
        "home",
        "off",
        "on: 85 % of the accounts belong to the teller's branch, as TPC-B wants",
    ),
    PS_MODE,
    ENGINE,
    TABLE_OPTIONS,
];

const DESCRIPTION: &str = "\
The tpcb-like transaction of pgbench, after TPC Benchmark B: update an account and read its balance, update the \
teller and the branch, insert a row of history. Accounts, tellers and branches are drawn uniformly (pgbench) or \
with 85 % of the accounts in the teller's own branch (`home`), amounts from -5000 to 5000.

With more sessions than `scale` they wait for each other's branches. The four sums of balances and amounts are \
equal after every run.";

pub(super) const WORKLOAD: Single = Single {
    name: "tpcb",
    summary: "TPC-B as pgbench runs it: account, teller, branch, history",
    description: DESCRIPTION,
    options: OPTIONS,
    transactions: &[],
    configure: |given, dialect| Ok(Box::new(configured(given, dialect)?)),
};

fn configured(given: &BTreeMap<String, String>, dialect: Dialect) -> Result<ConfiguredTpcb, OptionError> {
    let options = Options::for_server("tpcb", OPTIONS, given, &dialect)?;
    let bank = Bank {
        scale: options.count("scale"),
        variant: match options.text("variant") {
            "simple_update" => Variant::SimpleUpdate,
            "select_only" => Variant::SelectOnly,
            _ => Variant::Tpcb,
        },
        has_home: options.switch("home"),
    };
    let classes = classes(bank.variant);
    let workload = DrawnWorkload {
        is_prepared: options.is_prepared(),
        is_atomic: dialect.is_transactional(options.text("mysql_storage_engine")),
        ..DrawnWorkload::new(bank, dialect, classes)
    };
    Ok(ConfiguredTpcb { options, workload: Arc::new(workload) })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Tpcb,
    SimpleUpdate,
    SelectOnly,
}

fn classes(variant: Variant) -> Vec<StatementClass> {
    use ParamType::Int;
    const UNIFORM: &str = "uniform";
    let select = StatementClass::work(
        "select_account",
        "SELECT abalance FROM accounts WHERE aid = ?",
        &[Int],
        "1",
        UNIFORM,
    );
    if variant == Variant::SelectOnly {
        return vec![select];
    }
    let add = |name, sql| StatementClass::work(name, sql, &[Int, Int], "1", "-5000 to 5000; uniform");
    let mut classes = vec![
        StatementClass::begin("1"),
        add("update_account", "UPDATE accounts SET abalance = abalance + ? WHERE aid = ?"),
        select,
    ];
    if variant == Variant::Tpcb {
        classes.push(add("update_teller", "UPDATE tellers SET tbalance = tbalance + ? WHERE tid = ?"));
        classes.push(add("update_branch", "UPDATE branches SET bbalance = bbalance + ? WHERE bid = ?"));
    }
    classes.push(
        StatementClass::work(
            "insert_history",
            "INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)",
            &[Int, Int, Int, Int],
            "1",
            "as above",
        )
        .changing(1, 0),
    );
    classes.push(StatementClass::commit("1"));
    classes
}

#[derive(Debug)]
struct Bank {
    scale: u64,
    variant: Variant,
    has_home: bool,
}

impl Draw for Bank {
    type Memory = Rng;

    fn memory(&self, seed: u64, session: u32) -> Rng {
        Rng::stream(seed, u64::from(session))
    }

    fn draw(&self, rng: &mut Rng, program: &mut Program) {
        let teller = rng.uniform(1, self.scale * TELLERS);
        let (account, branch) = if self.has_home {
            let home = (teller - 1) / TELLERS;
            let is_home = self.scale == 1 || rng.uniform(1, 100) <= 85;
            let other = if is_home { home } else { (home + rng.uniform(1, self.scale - 1)) % self.scale };
            (other * ACCOUNTS + rng.uniform(1, ACCOUNTS), home + 1)
        } else {
            (rng.uniform(1, self.scale * ACCOUNTS), rng.uniform(1, self.scale))
        };
        if self.variant == Variant::SelectOnly {
            program.int(account);
            program.push(0, 0);
            return;
        }
        // Two's complement: the program's whole numbers are signed on the wire.
        let delta = (rng.uniform(0, 10_000) as i64 - 5000) as u64;
        let mut next = 0;
        let mut push = |program: &mut Program, params: &[u64]| {
            params.iter().for_each(|&param| program.int(param));
            program.push(next, 0);
            next += 1;
        };
        push(program, &[]);
        push(program, &[delta, account]);
        push(program, &[account]);
        if self.variant == Variant::Tpcb {
            push(program, &[delta, teller]);
            push(program, &[delta, branch]);
        }
        push(program, &[teller, branch, account, delta]);
        push(program, &[]);
    }
}

#[derive(Debug)]
struct ConfiguredTpcb {
    options: Options,
    workload: Arc<DrawnWorkload<Bank>>,
}

const TALLIED: [&str; 2] = ["changed rows", "doubt rows"];
const HISTORY: &str = "rows of history";

impl ConfiguredTpcb {
    fn scale(&self) -> u64 {
        self.workload.draw.scale
    }

    /// A table of balances: id, the branch where `per_branch` says how many belong to one, balance, filler.
    fn table(&self, name: &str, prefix: char, per_branch: u64, filler: usize) -> TableLoad<'static> {
        let dialect = &self.workload.dialect;
        let suffix = self.options.table_suffix(dialect);
        let is_inline = dialect.syntax().has_engines;
        let id = format!("{prefix}id");
        let branch = if prefix == 'b' { "" } else { "bid INTEGER, " };
        let key = if is_inline { format!(", PRIMARY KEY ({id})") } else { String::new() };
        let is_branch = prefix == 'b';
        TableLoad {
            name: name.to_owned(),
            create: vec![format!(
                "CREATE TABLE {name} ({id} INTEGER NOT NULL, {branch}{prefix}balance INTEGER, \
                 filler CHAR({filler}){key}){suffix}"
            )],
            columns: format!("{id}, {}{prefix}balance, filler", if is_branch { "" } else { "bid, " }),
            rows: self.scale() * per_branch,
            push_row: Box::new(move |row, out: &mut Vec<u8>| {
                digits(row + 1, out);
                out.push(b'\t');
                if !is_branch {
                    digits(row / per_branch + 1, out);
                    out.push(b'\t');
                }
                out.extend_from_slice(b"0\t\n");
            }),
            after: if is_inline {
                Vec::new()
            } else {
                vec![format!("ALTER TABLE {name} ADD PRIMARY KEY ({id})")]
            },
        }
    }

    fn history(&self) -> TableLoad<'static> {
        let dialect = &self.workload.dialect;
        let suffix = self.options.table_suffix(dialect);
        TableLoad {
            name: "history".to_owned(),
            create: vec![format!(
                "CREATE TABLE history (tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime {}, \
                 filler CHAR(22)){suffix}",
                dialect.syntax().timestamp
            )],
            columns: "tid".to_owned(),
            rows: 0,
            push_row: Box::new(|_, _| ()),
            after: Vec::new(),
        }
    }
}

impl Configured for ConfiguredTpcb {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.workload.class_names()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        self.workload.documentation("")
    }

    fn dataset_key(&self) -> String {
        format!("tpcb v1{}", self.options.key_of(&["scale", "mysql_storage_engine", "create_table_options"]))
    }

    fn data_bytes(&self) -> u64 {
        self.scale() * 16_000_000 + 1_000_000
    }

    fn needs(&self, sessions: u32) -> Needs {
        self.workload.needs(sessions)
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        let tables = vec![
            self.table("accounts", 'a', ACCOUNTS, 84),
            self.table("tellers", 't', TELLERS, 84),
            self.table("branches", 'b', 1, 88),
            self.history(),
        ];
        loader::load(at, &self.workload.dialect, LoadPlan { tables }, progress)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        let scale = self.scale();
        Ok(vec![
            ("branches".to_owned(), scale),
            ("tellers".to_owned(), scale * TELLERS),
            ("accounts".to_owned(), scale * ACCOUNTS),
        ])
    }

    fn baseline(&self, target: &Target) -> Result<Baseline, Error> {
        let mut control = Control::connect(target, "count rows before the run")?;
        let totals = self.workload.tally.totals();
        let rows = control.number("counting rows", "SELECT COUNT(*) FROM history")?;
        Ok(Baseline {
            figures: BTreeMap::from([
                (HISTORY.to_owned(), rows),
                (TALLIED[0].to_owned(), i128::from(totals.sure.rows)),
                (TALLIED[1].to_owned(), i128::from(totals.doubt_high.rows)),
            ]),
        })
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.workload.tally)
    }

    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut control = Control::connect(target, "check the tables after the run")?;
        let was = |name: &str| before.figures.get(name).copied().unwrap_or(0);
        let totals = self.workload.tally.totals();
        let low = was(HISTORY) + i128::from(totals.sure.rows) - was(TALLIED[0]);
        let high = low + i128::from(totals.doubt_high.rows) - was(TALLIED[1]);
        let rows = control.number("counting rows", "SELECT COUNT(*) FROM history")?;
        let mut checks = vec![Check::between(HISTORY, rows, low, high)];
        if self.workload.draw.variant != Variant::Tpcb {
            return Ok(checks);
        }
        let mut sum = |column: &str, table: &str| {
            control.number("adding up balances", &format!("SELECT SUM({column}) FROM {table}"))
        };
        let paid = sum("delta", "history")?;
        for (column, table) in [("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches")] {
            let name = format!("sum of {column} = sum of the amounts in history");
            checks.push(Check::between(name, sum(column, table)?, paid, paid));
        }
        Ok(checks)
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        engine::sessions(&self.workload, target, seed)
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(given: &BTreeMap<String, String>, dialect: Dialect) -> u64 {
    engine::seen::checksum(&configured(given, dialect).expect("good options").workload)
}
