//! The statements of 10,000 transactions of each workload, as the server logs them, against those of sysbench's
//! script of the same name: with all values taken out, the same statements the same number of times.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use load::{Length, LoadPlan, Stop};
use sandbox::{Home, Sandbox, Spec, builds};
use wire::blocking::Client;
use wire::{Protocol, Target};
use workload::Workload;

use super::lab::{closed, configured, load_at, on_both_families};
use super::sysbench;

const TRANSACTIONS: u64 = 10_000;
const ROWS: &str = "10000";

/// How often each statement was run, values taken out.
type Counts = BTreeMap<String, u64>;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    sysbench::check()?;
    on_both_families(arguments, one_server)
}

fn one_server(home: &Home, selector: &str) -> Result<bool> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("statement-mix-{}", std::process::id()), build);
    spec.buffer_bytes = Some(256 << 20);
    let server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("mix"));
    workload::create_database(&target)?;
    let log = Log::start(&server, &target)?;
    println!("{selector}: statements of {TRANSACTIONS} transactions, sysbench / plimsoll");
    let mut is_equal = true;
    // Others of the name are not sysbench 1.0's; bulk_insert's events are rows, and it is compared apart.
    for name in workload::oltp_members().map(Workload::name) {
        // The tables are made anew for each side: oltp_delete and oltp_insert change them.
        load(name, &target)?;
        let theirs = log.during(|| sysbench_run(name, &target))?;
        load(name, &target)?;
        let ours = log.during(|| native_run(name, &target, TRANSACTIONS))?;
        is_equal &= compare(name, &theirs, &ours);
    }
    is_equal &= bulk_insert(&log, &target)?;
    server.destroy()?;
    Ok(is_equal)
}

fn sysbench_run(script: &str, target: &Target) -> Result<()> {
    let size = format!("--table-size={ROWS}");
    let events = format!("--events={TRANSACTIONS}");
    sysbench::call(script, target, &[&size, &events, "--time=0", "--threads=1"], "run").map(drop)
}

fn load(name: &str, target: &Target) -> Result<()> {
    configure(name, target)?.load(&load_at(target, 1), &|_| ())?;
    Ok(())
}

fn configure(name: &str, target: &Target) -> Result<Box<dyn workload::Configured>> {
    let option = if name == "bulk_insert" { ("tables", "1") } else { ("table_size", ROWS) };
    configured(target, name, &[option])
}

fn native_run(name: &str, target: &Target, transactions: u64) -> Result<()> {
    let length = Length::Transactions { count: transactions, at_most: None };
    let plan = LoadPlan { steps: vec![closed(1, 0, length)], workers: Some(1), ..LoadPlan::default() };
    let sessions = configure(name, target)?.sessions(target, 1);
    let result = load::run(&plan, &*sessions, &mut |_| (), &Stop::new())?;
    let outcomes = result.steps[0].outcomes_whole;
    ensure!(outcomes.committed == transactions, "{name}: {outcomes:?} {:?}", result.steps[0].errors);
    Ok(())
}

fn compare(name: &str, theirs: &Counts, ours: &Counts) -> bool {
    let is_equal = theirs == ours;
    println!("  {name:24} {}", if is_equal { "equal" } else { "DIFFERENT" });
    let all: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for statement in all {
        let count = |counts: &Counts| counts.get(statement).copied().unwrap_or(0);
        println!("    {:>7} / {:<7} {}", count(theirs), count(ours), statement);
    }
    is_equal
}

/// sysbench counts rows as events, so the comparison is by rows: statements of the same length hold as many.
fn bulk_insert(log: &Log, target: &Target) -> Result<bool> {
    const STATEMENTS: u64 = 3;
    load("bulk_insert", target)?;
    let ours = log.during(|| native_run("bulk_insert", target, STATEMENTS))?;
    let rows: i64 = Client::connect(target)?
        .query_value("SELECT COUNT(*) FROM sbtest1")?
        .context("a count")?
        .parse()
        .context("a number")?;
    load("bulk_insert", target)?;
    let events = format!("--events={rows}");
    let theirs =
        log.during(|| sysbench::call("bulk_insert", target, &[&events, "--time=0"], "run").map(drop))?;
    let statements = |counts: &Counts| counts.values().sum::<u64>();
    let texts = |counts: &Counts| counts.keys().cloned().collect::<Vec<_>>();
    let difference = statements(&theirs).abs_diff(statements(&ours));
    // Where the limit falls inside a row the two may differ by one statement.
    let is_equal = texts(&theirs) == texts(&ours) && difference <= 1;
    println!(
        "  {:24} {} ({rows} rows in {} / {} statements of {:?})",
        "bulk_insert",
        if is_equal { "equal" } else { "DIFFERENT" },
        statements(&theirs),
        statements(&ours),
        texts(&ours)
    );
    if !is_equal {
        println!("    sysbench: {:?}", texts(&theirs));
    }
    Ok(is_equal)
}

/// The server's log of statements.
struct Log {
    target: Target,
    path: PathBuf,
}

impl Log {
    fn start(server: &Sandbox, target: &Target) -> Result<Log> {
        let path = match target.protocol {
            Protocol::Mysql => server.datadir().join("statements.log"),
            Protocol::Postgres => server.log_path(),
        };
        let mut client = Client::connect(target)?;
        match target.protocol {
            Protocol::Mysql => {
                client.query("SET GLOBAL log_output = 'FILE'")?;
                client.query("SET GLOBAL general_log_file = 'statements.log'")?;
            }
            Protocol::Postgres => {
                client.query("ALTER SYSTEM SET log_min_duration_statement = -1")?;
                client.query("ALTER SYSTEM SET log_duration = off")?;
            }
        }
        Ok(Log { target: target.clone(), path })
    }

    fn switch(&self, is_on: bool) -> Result<()> {
        let mut client = Client::connect(&self.target)?;
        match self.target.protocol {
            Protocol::Mysql => {
                client.query(if is_on {
                    "SET GLOBAL general_log = ON"
                } else {
                    "SET GLOBAL general_log = OFF"
                })?;
            }
            Protocol::Postgres => {
                let level = if is_on { "all" } else { "none" };
                client.query(&format!("ALTER SYSTEM SET log_statement = '{level}'"))?;
                client.query("SELECT pg_reload_conf()")?;
                // Backends take the new value when they are next idle.
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        Ok(())
    }

    /// The statements logged while `work` runs.
    fn during(&self, work: impl FnOnce() -> Result<()>) -> Result<Counts> {
        let start = fs::metadata(&self.path).map_or(0, |file| file.len());
        self.switch(true)?;
        work()?;
        self.switch(false)?;
        let counts = read(&self.path, start, self.target.protocol)?;
        if counts.is_empty() {
            bail!("{} has no statements", self.path.display());
        }
        Ok(counts)
    }
}

fn read(path: &Path, start: u64, protocol: Protocol) -> Result<Counts> {
    use std::io::{Seek, SeekFrom};
    let mut file = fs::File::open(path).with_context(|| path.display().to_string())?;
    file.seek(SeekFrom::Start(start))?;
    let mut counts = Counts::new();
    let mut open: Option<String> = None;
    for line in BufReader::with_capacity(1 << 20, file).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let entry = match protocol {
            Protocol::Mysql => of_general_log(&line),
            Protocol::Postgres => of_postgres_log(&line),
        };
        match (entry, &mut open) {
            (Entry::Continued, Some(sql)) => {
                sql.push(' ');
                sql.push_str(&line);
            }
            (Entry::Continued, None) => {}
            (Entry::Statement(sql), _) => count(open.replace(sql.to_owned()), &mut counts),
            (Entry::Other, _) => count(open.take(), &mut counts),
        }
    }
    count(open, &mut counts);
    Ok(counts)
}

fn count(sql: Option<String>, counts: &mut Counts) {
    // The connection that switches the log, and what a session asks before it begins, are no part of a
    // transaction.
    const NOT_COUNTED: [&str; 4] = ["SET ", "ALTER SYSTEM", "SELECT pg_reload_conf", "SELECT MAX(id)"];
    if let Some(sql) = sql.filter(|sql| !NOT_COUNTED.iter().any(|start| sql.starts_with(start))) {
        *counts.entry(normalised(&sql)).or_default() += 1;
    }
}

/// What a line of a log is.
#[derive(Debug, PartialEq, Eq)]
enum Entry<'a> {
    /// The first line of a statement that was run.
    Statement(&'a str),
    /// The first line of something else.
    Other,
    /// A further line of what began before.
    Continued,
}

/// `\t\t    12 Execute\tSELECT ...`
fn of_general_log(line: &str) -> Entry<'_> {
    const OTHERS: [&str; 7] =
        ["Prepare", "Close stmt", "Reset stmt", "Connect", "Quit", "Init DB", "Statistics"];
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || ": \t-.TZ".contains(c));
    if rest.len() == line.len() {
        return Entry::Continued;
    }
    match rest.split_once('\t') {
        Some(("Query" | "Execute", sql)) => Entry::Statement(sql),
        _ if OTHERS.iter().any(|other| rest.starts_with(other)) => Entry::Other,
        _ => Entry::Continued,
    }
}

/// `... LOG:  statement: BEGIN` or `... LOG:  execute name: SELECT ...`; further lines begin with a tab.
fn of_postgres_log(line: &str) -> Entry<'_> {
    if line.starts_with('\t') {
        return Entry::Continued;
    }
    let Some((_, message)) = line.split_once("LOG:  ") else { return Entry::Other };
    if let Some(sql) = message.strip_prefix("statement: ") {
        return Entry::Statement(sql);
    }
    match message.strip_prefix("execute ").and_then(|rest| rest.split_once(": ")) {
        Some((_, sql)) => Entry::Statement(sql),
        None => Entry::Other,
    }
}

/// The statement with numbers, strings and parameters replaced by `?`, space put into one form, and rows of a
/// multi-row INSERT made one.
fn normalised(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len().min(400));
    let mut chars = sql.chars().peekable();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(c) = chars.next() {
        let in_word = out.chars().next_back().is_some_and(is_word);
        match c {
            '\'' => {
                while chars.next().is_some_and(|c| c != '\'') {}
                out.push('?');
            }
            '0'..='9' if !in_word => {
                while chars.next_if(|c| c.is_ascii_digit()).is_some() {}
                out.push('?');
            }
            '$' => {
                while chars.next_if(|c| c.is_ascii_digit()).is_some() {}
                out.push('?');
            }
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
        // Space is kept where it parts two words and nowhere else.
        if chars.peek().is_some_and(|c| c.is_whitespace()) {
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
            let parts = out.chars().next_back().is_some_and(|c| is_word(c) || c == '?')
                && chars.peek().is_some_and(|&c| is_word(c) || c == '$' || c == '\'');
            if parts {
                out.push(' ');
            }
        }
        // `(?,?),(?,?)` is one row; the text would be as long as the statement otherwise.
        if let Some(head) = out.strip_suffix(",(?,?)").filter(|head| head.ends_with("(?,?)")) {
            out.truncate(head.len());
        }
    }
    out.trim_end_matches(';').to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_spacing_do_not_count() {
        for (left, right) in [
            ("SELECT c FROM sbtest1 WHERE id=5", "SELECT c FROM sbtest1 WHERE id = $1"),
            ("UPDATE t SET c='1-2' WHERE id=7", "UPDATE t SET c=$1 WHERE  id=$2;"),
            ("INSERT INTO t VALUES (1,1),(2,2),(3,3)", "INSERT INTO t VALUES (1, 1)"),
            ("begin", "BEGIN"),
        ] {
            assert_eq!(normalised(left), normalised(right));
        }
        assert_ne!(normalised("SELECT a FROM t1"), normalised("SELECT a FROM t2"));
        assert_ne!(normalised("SELECT a"), normalised("SELECTA"));
    }

    #[test]
    fn log_lines_give_their_statements() {
        assert_eq!(of_general_log("\t\t    12 Execute\tSELECT 1"), Entry::Statement("SELECT 1"));
        assert_eq!(of_general_log("261121 21:00:00\t    12 Query\tBEGIN"), Entry::Statement("BEGIN"));
        assert_eq!(of_general_log("\t\t    12 Prepare\tSELECT ?"), Entry::Other);
        assert_eq!(of_general_log("          FROM sbtest1"), Entry::Continued);
        assert_eq!(of_postgres_log("2026-11-21 LOG:  execute s1: COMMIT"), Entry::Statement("COMMIT"));
        assert_eq!(of_postgres_log("2026-11-21 DETAIL:  parameters: $1 = '5'"), Entry::Other);
        assert_eq!(of_postgres_log("\t FROM sbtest1"), Entry::Continued);
    }
}
