//! TPC-B as pgbench runs it: one account, its teller and its branch, and a row of history.

use std::sync::Arc;

use wire::ParamType;

use super::Single;
use super::drawn::{Drawn, Own};
use super::schema::{Key, Schema, Table};
use crate::control::Control;
use crate::engine::sums::{Sum, Wanted};
use crate::engine::{Draw, DrawnWorkload, Program, StatementClass};
use crate::loader::TableLoad;
use crate::options::{ENGINE, Options, PS_MODE, TABLE_OPTIONS};
use crate::random::Rng;
use crate::{Check, Dialect, Error, Given, OptionError, OptionSpec};

const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;

const VARIANTS: &[&str] = &["tpcb", "simple_update", "select_only"];

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

fn configured(given: &Given, dialect: Dialect) -> Result<Drawn<Bank>, OptionError> {
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
    Ok(Drawn { options, workload: Arc::new(workload) })
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

impl Own for Drawn<Bank> {
    fn key(&self) -> String {
        format!("tpcb v1{}", self.options.key_of(&["scale", "mysql_storage_engine", "create_table_options"]))
    }

    fn bytes_on_disk(&self) -> u64 {
        self.workload.draw.scale * 16_000_000 + 1_000_000
    }

    fn tables(&self) -> Vec<TableLoad<'_>> {
        let schema = Schema::of(&self.options, &self.workload.dialect);
        let branches = self.workload.draw.scale;
        // The filler is empty.
        let balances = |name, key, columns, per_branch| {
            schema.balances(name, key, columns, (branches, per_branch), b"0\t\n")
        };
        let timestamp = schema.dialect.syntax().timestamp;
        let history = Table {
            name: "history",
            columns: &format!(
                "tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime {timestamp}, filler CHAR(22)"
            ),
            key: Key::None,
            after: Vec::new(),
            rows: 0,
        };
        vec![
            balances("accounts", "aid", "bid INTEGER, abalance INTEGER, filler CHAR(84)", ACCOUNTS),
            balances("tellers", "tid", "bid INTEGER, tbalance INTEGER, filler CHAR(84)", TELLERS),
            balances("branches", "bid", "bbalance INTEGER, filler CHAR(88)", 1),
            schema.table(history, |_, _| ()),
        ]
    }

    fn lasting_tables(&self) -> Vec<(String, u64)> {
        let tables = self.tables().into_iter().filter(|table| table.name != "history");
        tables.map(|table| (table.name, table.rows)).collect()
    }

    fn sums(&self) -> Vec<Sum> {
        vec![Sum::of_rows("rows of history", ["history"], Wanted::Rows)]
    }

    fn conditions(&self, control: &mut Control) -> Result<Vec<Check>, Error> {
        if self.workload.draw.variant != Variant::Tpcb {
            return Ok(Vec::new());
        }
        let mut sum = |column: &str, table: &str| {
            control.number("adding up balances", &format!("SELECT SUM({column}) FROM {table}"))
        };
        let paid = sum("delta", "history")?;
        let balances = [("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches")];
        let check = |(column, table)| {
            let name = format!("sum of {column} = sum of the amounts in history");
            Ok(Check::between(name, sum(column, table)?, paid, paid))
        };
        balances.into_iter().map(check).collect()
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(given: &Given, dialect: Dialect) -> u64 {
    crate::engine::seen::checksum(&configured(given, dialect).expect("good options").workload)
}
