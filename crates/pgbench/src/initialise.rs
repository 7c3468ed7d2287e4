//! Makes pgbench's tables, step by step.

use std::time::{Duration, Instant};

use load::Stop;
use wire::blocking::Client;

use crate::options::Initialise;
use crate::{Refusal, Room, tell};

/// Rows at scale 1.
const BRANCHES: u64 = 1;
const TELLERS: u64 = 10;
const ACCOUNTS: u64 = 100_000;
/// From this scale on account numbers do not fit 32 bits.
const BIG_SCALE: u64 = 20_000;
/// Of scale 1, with its indices.
const BYTES: u64 = 16_000_000;
/// Bytes that are sent at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// Connects, with pgbench's words for what goes wrong. Soon after `stop` is requested the server is told to give up the
/// statement that is under way, which then fails.
pub(crate) fn connect(target: &wire::Target, stop: &Stop) -> Result<Client, Refusal> {
    Client::connect_until(target, stop.flag()).map_err(|error| {
        let place = match &target.endpoint {
            wire::Endpoint::Unix(path) => format!("on socket \"{}\"", path.display()),
            wire::Endpoint::Tcp { host, port } => format!("at \"{host}\", port {port}"),
        };
        let why = match &error {
            wire::Error::Server(server) => format!("FATAL:  {}", server.text),
            other => other.to_string(),
        };
        tell(&format!("pgbench: error: connection to server {place} failed: {why}"));
        Refusal::new("could not create connection for setup")
    })
}

fn execute(client: &mut Client, sql: &str) -> Result<(), Refusal> {
    client.query(sql).map(drop).map_err(|error| Refusal {
        text: match &error {
            wire::Error::Server(server) => format!("query failed: ERROR:  {}", server.text),
            other => format!("query failed: {other}"),
        },
        more: Some(format!("detail: Query was: {sql}")),
    })
}

/// Carries out the steps in order.
pub(crate) fn initialise(
    target: &wire::Target,
    asked: &Initialise,
    room: Room,
    stop: &Stop,
) -> Result<(), Refusal> {
    let done = connect(target, stop).and_then(|mut client| {
        check_room(asked, &mut client, &|bytes| room(target, bytes))?;
        all_steps(asked, &mut client, stop)
    });
    done.map_err(|refusal| refusal.or_interrupted(stop))
}

/// Whether the rows find room on the server's disk, also where that of the tables to be dropped is not free yet.
fn check_room(
    asked: &Initialise,
    client: &mut Client,
    room: &dyn Fn(u64) -> Result<(), String>,
) -> Result<(), Refusal> {
    // Another tablespace may be on another disk.
    if !asked.steps.contains(['g', 'G']) || asked.tablespace.is_some() {
        return Ok(());
    }
    let bytes = asked.scale * BYTES * 100 / u64::from(asked.fillfactor);
    if room(bytes).is_ok() {
        return Ok(());
    }
    const DROPPED: &str = "select sum(pg_total_relation_size(oid)) from pg_class \
                           where relname ~ '^pgbench_(accounts|branches|history|tellers)' and relkind = 'r'";
    let dropped = if asked.steps.contains('d') { client.query_value(DROPPED).ok().flatten() } else { None };
    let dropped = dropped.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    room(bytes.saturating_sub(dropped)).map_err(|text| Refusal {
        text,
        more: Some(format!("hint: Scale 1 takes about {} MB: take a smaller one (-s).", BYTES / 1_000_000)),
    })
}

fn all_steps(asked: &Initialise, client: &mut Client, stop: &Stop) -> Result<(), Refusal> {
    let began = Instant::now();
    let mut told = Vec::new();
    for letter in asked.steps.chars().filter(|letter| *letter != ' ') {
        if stop.is_requested() {
            return Err(Refusal::interrupted());
        }
        let start = Instant::now();
        let name = step(letter, asked, client, stop)?;
        told.push(format!("{name} {:.2} s", start.elapsed().as_secs_f64()));
    }
    tell(&format!("done in {:.2} s ({}).", began.elapsed().as_secs_f64(), told.join(", ")));
    Ok(())
}

/// Carries out the step that has this letter; answers its name.
fn step(letter: char, asked: &Initialise, client: &mut Client, stop: &Stop) -> Result<&'static str, Refusal> {
    Ok(match letter {
        'd' => {
            tell("dropping old tables...");
            let tables = "pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";
            execute(client, &format!("drop table if exists {tables}"))?;
            "drop tables"
        }
        't' => {
            create_tables(asked, client)?;
            "create tables"
        }
        'g' => {
            tell("generating data (client-side)...");
            generate_here(asked, client, stop)?;
            "client-side generate"
        }
        'G' => {
            tell("generating data (server-side)...");
            generate_there(asked, client)?;
            "server-side generate"
        }
        'v' => {
            tell("vacuuming...");
            for table in ["branches", "tellers", "accounts", "history"] {
                execute(client, &format!("vacuum analyze pgbench_{table}"))?;
            }
            "vacuum"
        }
        'p' => {
            primary_keys(asked, client)?;
            "primary keys"
        }
        _ => {
            foreign_keys(client)?;
            "foreign keys"
        }
    })
}

fn create_tables(asked: &Initialise, client: &mut Client) -> Result<(), Refusal> {
    tell("creating tables...");
    let aid = if asked.scale >= BIG_SCALE { "bigint" } else { "   int" };
    let tables = [
        (
            "pgbench_history",
            format!("tid int,bid int,aid {aid},delta int,mtime timestamp,filler char(22)"),
            false,
        ),
        ("pgbench_tellers", "tid int not null,bid int,tbalance int,filler char(84)".to_owned(), true),
        ("pgbench_accounts", format!("aid {aid} not null,bid int,abalance int,filler char(84)"), true),
        ("pgbench_branches", "bid int not null,bbalance int,filler char(88)".to_owned(), true),
    ];
    let unlogged = if asked.is_unlogged { " unlogged" } else { "" };
    let fillfactor = format!(" with (fillfactor={})", asked.fillfactor);
    let tablespace = asked
        .tablespace
        .as_ref()
        .map_or_else(String::new, |name| format!(" tablespace {}", identifier(name)));
    for (name, columns, has_fillfactor) in tables {
        let is_partitioned = name == "pgbench_accounts" && asked.partitions > 0;
        // A partitioned table has no rows of its own, hence no storage to speak of.
        let rest = match (is_partitioned, has_fillfactor) {
            (true, _) => format!(" partition by {} (aid)", if asked.is_by_hash { "hash" } else { "range" }),
            (false, true) => fillfactor.clone(),
            (false, false) => String::new(),
        };
        // PostgreSQL 18 refuses what servers before took without it meaning anything.
        let unlogged = if is_partitioned && version(client) >= 18 { "" } else { unlogged };
        execute(client, &format!("create{unlogged} table {name}({columns}){rest}{tablespace}"))?;
    }
    if asked.partitions == 0 {
        return Ok(());
    }
    tell(&format!("creating {} partitions...", asked.partitions));
    let count = u64::from(asked.partitions);
    let size = (ACCOUNTS * asked.scale).div_ceil(count);
    for number in 1..=count {
        let values = if asked.is_by_hash {
            format!("with (modulus {count}, remainder {})", number - 1)
        } else {
            let low = if number == 1 { "minvalue".to_owned() } else { ((number - 1) * size + 1).to_string() };
            let high = if number == count { "maxvalue".to_owned() } else { (number * size + 1).to_string() };
            format!("from ({low}) to ({high})")
        };
        execute(
            client,
            &format!(
                "create{unlogged} table pgbench_accounts_{number}\n  partition of pgbench_accounts\n  for values {values}{fillfactor}{tablespace}"
            ),
        )?;
    }
    Ok(())
}

const TRUNCATE: &str = "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";

fn generate_here(asked: &Initialise, client: &mut Client, stop: &Stop) -> Result<(), Refusal> {
    execute(client, "begin")?;
    execute(client, TRUNCATE)?;
    for bid in 1..=BRANCHES * asked.scale {
        execute(client, &format!("insert into pgbench_branches(bid,bbalance) values({bid},0)"))?;
    }
    for tid in 1..=TELLERS * asked.scale {
        let bid = (tid - 1) / TELLERS + 1;
        execute(client, &format!("insert into pgbench_tellers(tid,bid,tbalance) values ({tid},{bid},0)"))?;
    }
    // Rows of a table that this transaction has emptied may be frozen at once; partitions cannot be.
    let can_freeze = asked.partitions == 0 && version(client) >= 14;
    let freeze = if can_freeze { " with (freeze on)" } else { "" };
    let total = ACCOUNTS * asked.scale;
    let began = Instant::now();
    let mut last_told = began;
    let mut aid = 0;
    let sql = format!("copy pgbench_accounts from stdin{freeze}");
    let loaded = client.load_rows(&sql, &mut |out: &mut Vec<u8>| {
        let start = out.len();
        while aid < total && out.len() - start < CHUNK_BYTES {
            aid += 1;
            push_account(aid, out);
            let is_due = match asked.is_quiet {
                true => last_told.elapsed() >= Duration::from_secs(5) || aid == total,
                false => aid.is_multiple_of(100_000),
            };
            if is_due {
                last_told = Instant::now();
                tell_progress(aid, total, began.elapsed().as_secs_f64());
            }
        }
        aid < total && !stop.is_requested()
    });
    loaded.map_err(|error| Refusal::new(format!("copying accounts failed: {error}")))?;
    // Without a commit the server takes back what it has.
    if stop.is_requested() {
        return Err(Refusal::interrupted());
    }
    execute(client, "commit")
}

/// The server's major version; 0 where it does not say.
fn version(client: &Client) -> u32 {
    let text = &client.server().version;
    text.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

/// One row of accounts: `aid`, `bid`, 0 and an empty filler.
fn push_account(aid: u64, out: &mut Vec<u8>) {
    let bid = (aid - 1) / ACCOUNTS + 1;
    workload::random::digits(aid, out);
    out.push(b'\t');
    workload::random::digits(bid, out);
    out.extend_from_slice(b"\t0\t\n");
}

fn tell_progress(done: u64, total: u64, elapsed_s: f64) {
    let remaining_s = (total - done) as f64 * elapsed_s / done as f64;
    let percent = done * 100 / total;
    tell(&format!(
        "{done} of {total} tuples ({percent}%) done (elapsed {elapsed_s:.2} s, remaining {remaining_s:.2} s)"
    ));
}

fn generate_there(asked: &Initialise, client: &mut Client) -> Result<(), Refusal> {
    let scale = asked.scale;
    execute(client, "begin")?;
    execute(client, TRUNCATE)?;
    for sql in [
        format!(
            "insert into pgbench_branches(bid,bbalance) select bid, 0 from generate_series(1, {}) as bid",
            BRANCHES * scale
        ),
        format!(
            "insert into pgbench_tellers(tid,bid,tbalance) select tid, (tid - 1) / {TELLERS} + 1, 0 from generate_series(1, {}) as tid",
            TELLERS * scale
        ),
        format!(
            "insert into pgbench_accounts(aid,bid,abalance,filler) select aid, (aid - 1) / {ACCOUNTS} + 1, 0, '' from generate_series(1, {}) as aid",
            ACCOUNTS * scale
        ),
    ] {
        execute(client, &sql)?;
    }
    execute(client, "commit")
}

fn primary_keys(asked: &Initialise, client: &mut Client) -> Result<(), Refusal> {
    tell("creating primary keys...");
    let space = asked
        .index_tablespace
        .as_ref()
        .map_or_else(String::new, |name| format!(" using index tablespace {}", identifier(name)));
    for (table, column) in [("branches", "bid"), ("tellers", "tid"), ("accounts", "aid")] {
        execute(client, &format!("alter table pgbench_{table} add primary key ({column}){space}"))?;
    }
    Ok(())
}

fn foreign_keys(client: &mut Client) -> Result<(), Refusal> {
    tell("creating foreign keys...");
    for (table, column, other) in [
        ("tellers", "bid", "branches"),
        ("accounts", "bid", "branches"),
        ("history", "bid", "branches"),
        ("history", "tid", "tellers"),
        ("history", "aid", "accounts"),
    ] {
        execute(
            client,
            &format!(
                "alter table pgbench_{table} add constraint pgbench_{table}_{column}_fkey foreign key ({column}) references pgbench_{other}"
            ),
        )?;
    }
    Ok(())
}

/// A name as SQL takes any.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
