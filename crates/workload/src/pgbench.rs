//! pgbench's scripts as a workload: built-in ones by name, files of anyone's, several of them with weights, on
//! PostgreSQL and, as far as their SQL goes, on MySQL.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use load::{AnySession, Completion, Failure, Recorder, Session, SessionFactory};
use pgscript::random::Random;
use pgscript::{Action, Names, Place, Script, SyntaxError, Value};
use wire::{StatementKind, Target};

use crate::builtin::schema::{Key, Schema, Table};
use crate::control::Control;
use crate::loader::{self, LoadPlan, TableLoad};
use crate::options::Options;
use crate::scripted::{Abort, Client, Plan, QueryMode, Watch};
use crate::{
    Baseline, Check, Configured, Dialect, Error, Given, LoadAt, LoadMethod, LoadReport, Needs, OptionError,
    OptionSpec, Progress, Ran, StatementDoc, Workload,
};

/// Rows of pgbench's tables at scale 1.
const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;

const PROTOCOLS: &[&str] = &["simple", "extended", "prepared"];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::count(
        "scale",
        "1",
        1,
        20_000,
        "of pgbench's tables, where scripts use them; `:scale` in scripts",
    ),
    OptionSpec::word("protocol", "simple", PROTOCOLS, "how statements are sent: pgbench's -M"),
];

const DESCRIPTION: &str = "\
Scripts in pgbench's language, as pgbench runs them: variables are written into statements (protocol=simple) or sent \
beside them, results come back by \\gset. Where a script names pgbench's tables, they are made and filled as by \
`pgbench -i`; others come from the file that `init` names, or are there.

A failed transaction (deadlock, serialization) is tried again with the same random numbers. On MySQL there are no \
pipelines, and the SQL is the script's own.";

/// A script and how often it is chosen.
#[derive(Debug, Clone)]
pub struct Weighted {
    /// What messages call it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its part of the sum of all weights.
    pub weight: u64,
}

/// Scripts that are one workload.
#[derive(Debug)]
pub struct Scripts {
    name: String,
    scripts: Vec<Weighted>,
    /// Statements that make the tables.
    init: Option<String>,
    parsed: Vec<Script>,
    names: Names,
    /// Whether a script names pgbench's own tables.
    uses_tables: bool,
}

impl Scripts {
    /// Reads scripts. `init` has SQL statements that make the tables.
    ///
    /// # Errors
    /// The first mistake of a script.
    pub fn parse(name: &str, scripts: Vec<Weighted>, init: Option<String>) -> Result<Scripts, SyntaxError> {
        let mut names = Names::default();
        for special in ["scale", "client_id", "default_seed", "random_seed"] {
            names.slot(special);
        }
        let read = |script: &Weighted| Script::parse(&script.name, &script.text, &mut names);
        let parsed = scripts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let uses_tables = scripts.iter().any(|script| script.text.contains("pgbench_"));
        Ok(Scripts { name: name.to_owned(), scripts, init, parsed, names, uses_tables })
    }
}

impl Workload for Scripts {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        "scripts in pgbench's language"
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn options(&self) -> &[OptionSpec] {
        OPTIONS
    }

    /// Its scripts, where there are several.
    fn transaction_classes(&self) -> Vec<String> {
        let names: Vec<String> = self.parsed.iter().map(stem).collect();
        if names.len() > 1 { names } else { Vec::new() }
    }

    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
        let options = Options::parse(&self.name, OPTIONS, given)?;
        let mode = match options.text("protocol") {
            "extended" => QueryMode::Extended,
            "prepared" => QueryMode::Prepared,
            _ => QueryMode::Simple,
        };
        let mut classes = Vec::new();
        let class_of = self.parsed.iter().map(|script| class_numbers(script, &mut classes)).collect();
        Ok(Box::new(ConfiguredScripts {
            scale: options.count("scale"),
            options: options.all().clone(),
            scripts: self.scripts.clone(),
            init: self.init.clone(),
            parsed: self.parsed.clone(),
            names: self.names.clone(),
            uses_tables: self.uses_tables,
            classes,
            class_of,
            transactions: self.transaction_classes(),
            mode,
            dialect,
        }))
    }
}

/// What the figures call a script.
fn stem(script: &Script) -> String {
    let file = script.name.rsplit('/').next().unwrap_or_default();
    file.split('.').next().unwrap_or_default().trim_matches(['<', '>']).replace([' ', ':'], "_")
}

/// The class of each command of a script; what is no statement has none.
fn class_numbers(script: &Script, classes: &mut Vec<StatementDoc>) -> Vec<Option<usize>> {
    let stem = stem(script);
    let mut number = 0;
    let mut class = |action: &Action| match action {
        Action::Sql(sql) => {
            number += 1;
            classes.push(StatementDoc {
                class: format!("{stem}_{number}"),
                sql: sql.text.trim_end_matches(';').to_owned(),
                per_transaction: "1".to_owned(),
                parameters: String::new(),
            });
            Some(classes.len() - 1)
        }
        _ => None,
    };
    script.commands.iter().map(|command| class(&command.action)).collect()
}

#[derive(Debug)]
struct ConfiguredScripts {
    options: BTreeMap<String, String>,
    scale: u64,
    mode: QueryMode,
    scripts: Vec<Weighted>,
    init: Option<String>,
    parsed: Vec<Script>,
    names: Names,
    uses_tables: bool,
    classes: Vec<StatementDoc>,
    /// Classes of transactions, after those of statements: the scripts, where there are several.
    transactions: Vec<String>,
    class_of: Vec<Vec<Option<usize>>>,
    dialect: Dialect,
}

impl ConfiguredScripts {
    /// pgbench's tables.
    fn tables(&self) -> Vec<TableLoad<'_>> {
        if !self.uses_tables {
            return Vec::new();
        }
        let schema = Schema { dialect: self.dialect.clone(), suffix: String::new() };
        // As `pgbench -i` makes them: balances of 0, and the filler is NULL, but that of accounts is empty.
        let balances = |name, key, columns, per_branch, rest| {
            schema.balances(name, key, columns, (self.scale, per_branch), rest)
        };
        let columns = "tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)";
        let history = Table { name: "pgbench_history", columns, key: Key::None, after: Vec::new(), rows: 0 };
        let tellers = "bid int, tbalance int, filler char(84)";
        let accounts = "bid int, abalance int, filler char(84)";
        vec![
            balances("pgbench_branches", "bid", "bbalance int, filler char(88)", 1, b"0\t\\N\n"),
            balances("pgbench_tellers", "tid", tellers, TELLERS, b"0\t\\N\n"),
            balances("pgbench_accounts", "aid", accounts, ACCOUNTS, b"0\t\n"),
            schema.table(history, |_, _| ()),
        ]
    }
}

impl Configured for ConfiguredScripts {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        let statements = self.classes.iter().map(|doc| doc.class.clone());
        statements.chain(self.transactions.iter().cloned()).collect()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        self.classes.clone()
    }

    fn dataset_key(&self) -> String {
        // 2: InnoDB has the primary keys from the start.
        let mut key = format!("pgbench v2 tables={} scale={}\n", self.uses_tables, self.scale);
        if let Some(init) = &self.init {
            // Writing to a String cannot fail.
            let _ = write!(key, "{init}");
        }
        key
    }

    fn data_bytes(&self) -> u64 {
        let rows = if self.uses_tables { self.scale * ACCOUNTS } else { 0 };
        rows.saturating_mul(160).saturating_add(1_000_000)
    }

    fn needs(&self, sessions: u32) -> Needs {
        let prepared = if self.mode == QueryMode::Simple { 0 } else { self.classes.len() as u64 };
        Needs { connections: sessions, prepared_statements: prepared * u64::from(sessions) }
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        let started = Instant::now();
        let tables = self.tables();
        let has_rows = !tables.is_empty();
        let mut report = loader::load(at, &self.dialect, LoadPlan { tables }, progress)?;
        if let Some(init) = &self.init {
            let mut control = Control::connect_until(&at.target, "set up the tables", &at.stop)?;
            control.client().set_statement_timeout(std::time::Duration::from_secs(24 * 3600));
            for statement in pgscript::statements(init) {
                control.run("setting up (init)", &statement)?;
            }
        }
        if !has_rows {
            let made = if self.init.is_some() { LoadMethod::Statements } else { LoadMethod::Nothing };
            report.method = made;
            report.rows_time = started.elapsed();
        }
        Ok(report)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        if self.init.is_some() {
            return Ok(Vec::new());
        }
        let rows = self.tables().into_iter().filter(|table| table.rows > 0);
        Ok(rows.map(|table| (table.name, table.rows)).collect())
    }

    fn is_loaded(&self, target: &Target) -> Result<bool, Error> {
        // Nothing tells whether a file of statements has been run.
        if self.init.is_some() {
            return Ok(false);
        }
        loader::is_loaded(target, self.rows_by_table()?)
    }

    fn baseline(&self, _target: &Target, _counted: &BTreeMap<String, u64>) -> Result<Baseline, Error> {
        Ok(Baseline::default())
    }

    fn check(&self, _target: &Target, _before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        Ok(Vec::new())
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        let mut base = Random::new(seed);
        let mut variables = Script::no_values(&self.names);
        let special = [
            ("scale", self.scale as i64),
            ("default_seed", base.bits() as i64),
            ("random_seed", seed as i64),
        ];
        for (name, value) in special {
            if let Some(slot) = self.names.find(name) {
                variables[slot] = Some(Value::Int(value));
            }
        }
        let plan = Plan {
            scripts: self.parsed.clone(),
            names: self.names.clone(),
            mode: self.mode,
            allows_shell: false,
            target: target.clone(),
        };
        Box::new(Factory(Arc::new(Shared {
            client_id: self.names.find("client_id"),
            plan: Arc::new(plan),
            weights: self.scripts.iter().map(|script| script.weight).collect(),
            class_of: self.class_of.clone(),
            class_names: self.statement_classes(),
            first_transaction: (!self.transactions.is_empty()).then_some(self.classes.len()),
            dialect: self.dialect.clone(),
            variables,
            seed,
        })))
    }
}

#[derive(Debug)]
struct Shared {
    plan: Arc<Plan>,
    weights: Vec<u64>,
    /// By script and command.
    class_of: Vec<Vec<Option<usize>>>,
    class_names: Vec<String>,
    /// The class of the first script's transactions, where they have classes.
    first_transaction: Option<usize>,
    dialect: Dialect,
    variables: Vec<Option<Value>>,
    client_id: Option<usize>,
    seed: u64,
}

struct Factory(Arc<Shared>);

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        self.0.class_names.clone()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        let shared = Arc::clone(&self.0);
        let mut variables = shared.variables.clone();
        if let Some(slot) = shared.client_id {
            variables[slot] = Some(Value::Int(i64::from(index)));
        }
        // Far apart for sessions of one seed, and the same for the same session.
        let mut base = Random::new(shared.seed ^ (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Box::new(ScriptSession {
            chooser: Random::new(base.bits()),
            client: Client::new(Arc::clone(&shared.plan), variables, Random::new(base.bits())),
            before: Random::new(0),
            drawn: None,
            script: 0,
            shared,
        })
    }
}

/// A session that runs scripts.
struct ScriptSession {
    shared: Arc<Shared>,
    client: Client,
    chooser: Random,
    script: usize,
    /// Random numbers as they stood before the transaction, for when it is tried again.
    before: Random,
    /// Where the transaction that was drawn begins with a server.
    drawn: Option<Result<Place, Abort>>,
}

/// Tells the recorder about statements.
struct Laps<'a> {
    recorder: Option<&'a Recorder>,
    class_of: &'a [Option<usize>],
}

impl Watch for Laps<'_> {
    fn ended(&mut self, command: usize, kind: Option<StatementKind>) {
        let Some(recorder) = self.recorder else { return };
        match (kind, self.class_of.get(command).copied().flatten()) {
            (Some(kind), Some(class)) => recorder.lap(class, kind),
            // Computing and pauses of the client's own.
            _ => recorder.restart(),
        }
    }

    fn debug(&mut self, _command: usize, _text: &str) {}
}

impl ScriptSession {
    fn draw(&mut self) {
        let mut laps = Laps { recorder: None, class_of: &[] };
        self.drawn = Some(self.client.begin(self.script, &mut laps));
    }

    fn failure(&self, abort: &Abort) -> Failure {
        abort.failure(&self.shared.dialect, &self.shared.plan.scripts[self.script])
    }
}

impl Session for ScriptSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.client.open().await.map_err(|error| self.shared.dialect.failure(&error, &[]))
    }

    fn draw(&mut self) {
        let total: u64 = self.shared.weights.iter().sum();
        let mut ticket = self.chooser.up_to(total.saturating_sub(1));
        self.script = 0;
        for (script, weight) in self.shared.weights.iter().enumerate() {
            if ticket < *weight {
                self.script = script;
                break;
            }
            ticket -= weight;
        }
        self.before = self.client.random.clone();
        self.draw();
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        if self.drawn.is_none() {
            // Tried again: the same transaction.
            self.client.random = self.before.clone();
            self.draw();
        }
        let place = match self.drawn.take() {
            Some(Ok(place)) => place,
            Some(Err(abort)) => return Err(self.failure(&abort)),
            None => Script::START,
        };
        let shared = Arc::clone(&self.shared);
        let mut laps = Laps { recorder: Some(recorder), class_of: &shared.class_of[self.script] };
        match self.client.run(self.script, place, &mut laps).await {
            Ok(()) => {
                if let Some(first) = shared.first_transaction {
                    recorder.transaction(first + self.script);
                }
                Ok(Completion::Committed)
            }
            Err(abort) => Err(self.failure(&abort)),
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        self.client.recover().await.map_err(|error| self.shared.dialect.failure(&error, &[]))
    }

    async fn close(&mut self) {
        self.client.close().await;
    }
}
