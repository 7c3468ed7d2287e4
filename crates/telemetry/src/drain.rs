//! Letting a server pay its debt before a run, so that one run does not pay for another.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Error, Protocol, Target};

/// What may be done to a server, and for how long.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// It is measured with what is left by then.
    pub limit: Duration,
    /// It is a sandbox: its settings may be changed for a moment, its tables vacuumed. Otherwise it is only waited for.
    pub is_ours: bool,
    /// Its caches shall stay as they are: nothing that reads tables.
    pub is_cold: bool,
    /// The run that follows only reads: of a clean buffer it meets nothing.
    pub only_reads: bool,
    /// Its data directory, where it is on this machine.
    pub datadir: Option<&'a Path>,
    /// Is told what is waited for, once a second.
    pub told: &'a dyn Fn(&str),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Drained {
    pub took: Duration,
    /// How long of that the operating system wrote what it still held.
    pub system_took: Duration,
    /// What there was: `history list 31, dirty pages 1024`; empty where the server does not tell.
    pub found: String,
    pub left: String,
    /// It took longer than permitted, and something is left.
    pub is_unfinished: bool,
}

/// A history list this short is no debt: a few transactions are always there.
const HISTORY_SHORT: f64 = 1000.0;
/// Purge that takes nothing away for so long is not at work, and waiting longer does not help: old versions shorten the
/// list now and then only.
const STALLED: Duration = Duration::from_secs(3);
/// The same before a run that only reads: it brings purge no work, so that what stands still now stays so.
const STALLED_FOR_READERS: Duration = Duration::from_millis(500);
/// A list that is no longer than this and not worked on is left as it is, without a word.
const HISTORY_LAZY: f64 = 5000.0;
/// So few dirty pages are none: 16 MiB at most, and no more than this share of the buffer.
const DIRTY_FEW: f64 = 1024.0;
const DIRTY_FEW_SHARE: f64 = 0.01;
/// So few dead rows are not worth a VACUUM.
const DEAD_FEW: f64 = 1000.0;
/// A checkpoint that would write no more log's worth than this is not worth its time to a run that only reads.
const AGE_FEW_BYTES: f64 = 1_048_576.0;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// What a server came with, what is left of it, and whether that is worth a warning.
struct Outcome {
    found: String,
    left: String,
    is_unfinished: bool,
    /// It had written nothing that the operating system could still hold.
    was_clean: bool,
}

/// PostgreSQL: VACUUM ANALYZE of what has dead rows, then CHECKPOINT. MySQL and MariaDB: waits until purge has caught
/// up and dirty pages are written. Then the operating system writes what it still holds of the data directory. A run
/// that only reads does not wait for what is clean.
///
/// # Errors
/// The server cannot be asked.
pub fn drain(target: &Target, terms: &Terms<'_>) -> Result<Drained, Error> {
    let began = Instant::now();
    let mut client = Client::connect(target)?;
    client.set_statement_timeout(terms.limit.max(Duration::from_secs(1)));
    let deadline = began + terms.limit;
    let outcome = match target.protocol {
        Protocol::Postgres => postgres(&mut client, terms)?,
        Protocol::Mysql => mysql(&mut client, terms, deadline)?,
    };
    // Only a closed connection may be left; a server that went away meanwhile is found out soon enough.
    client.close();
    let system_began = Instant::now();
    let is_needed = !(terms.only_reads && outcome.was_clean);
    if let Some(dir) = terms.datadir.filter(|_| is_needed).and_then(|dir| File::open(dir).ok()) {
        (terms.told)("waiting for the operating system to write what it holds of the file system");
        // SAFETY: the descriptor is open. What cannot be written now is written later, as without us.
        unsafe { libc::syncfs(dir.as_raw_fd()) };
    }
    let system_took = system_began.elapsed();
    let Outcome { found, left, is_unfinished, .. } = outcome;
    Ok(Drained { took: began.elapsed(), system_took, found, left, is_unfinished })
}

fn postgres(client: &mut Client, terms: &Terms<'_>) -> Result<Outcome, Error> {
    let sql = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables";
    let dead: f64 = client.query_value(sql)?.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let age = checkpoint_age(client)?;
    let found = match age {
        Some(age) => format!("dead tuples {dead:.0}, checkpoint age {:.1} MB", 1e-6 * age),
        None => format!("dead tuples {dead:.0}"),
    };
    let vacuum = terms.is_ours && !terms.is_cold && dead > DEAD_FEW;
    let was_clean = !vacuum && age.is_some_and(|age| age <= AGE_FEW_BYTES);
    let mut steps = Vec::new();
    if vacuum {
        steps.push(("VACUUM (ANALYZE)", format!("waiting for VACUUM of {dead:.0} dead tuples")));
    }
    if !(terms.only_reads && was_clean) {
        steps.push(("CHECKPOINT", "waiting for a checkpoint".to_owned()));
    }
    for (sql, told) in steps {
        (terms.told)(&told);
        match client.query(sql) {
            Ok(_) => {}
            Err(error @ (Error::Server(_) | Error::Timeout { .. })) => {
                return Ok(Outcome {
                    found,
                    left: format!("{sql}: {error}"),
                    is_unfinished: true,
                    was_clean,
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome { found, left: String::new(), is_unfinished: false, was_clean })
}

/// Bytes of log since the last checkpoint began; `None` where this user may not ask.
fn checkpoint_age(client: &mut Client) -> Result<Option<f64>, Error> {
    let version = client.query_value("SHOW server_version_num")?.and_then(|text| text.parse().ok());
    let sql = crate::server::checkpoint_age_of_postgres(version.unwrap_or(90_600));
    match client.query_value(&sql) {
        Ok(age) => Ok(age.and_then(|text| text.parse().ok())),
        Err(Error::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn mysql(client: &mut Client, terms: &Terms<'_>, deadline: Instant) -> Result<Outcome, Error> {
    let found = Owed::of(client)?;
    let is_owing = found.is_dirty() || found.history > HISTORY_SHORT;
    if !is_owing {
        let was_clean = true;
        return Ok(Outcome { found: found.text(), left: found.text(), is_unfinished: false, was_clean });
    }
    let haste = if terms.is_ours { Haste::begin(client)? } else { Haste::default() };
    let waited = wait(client, terms, &found, haste.flushes, deadline);
    // Whatever came of it: a server that is somebody's sandbox goes on with its own settings.
    haste.end(client)?;
    let (left, is_stalled) = waited?;
    let is_paid = left.is_paid(haste.flushes);
    let is_lazy = is_stalled && left.history <= HISTORY_LAZY;
    Ok(Outcome {
        found: found.text(),
        left: left.text(),
        is_unfinished: !is_paid && !is_lazy,
        was_clean: !found.is_dirty() && left.history >= found.history,
    })
}

/// Until the debt is paid, the time is over, or nothing is done about it any longer (`true`).
fn wait(
    client: &mut Client,
    terms: &Terms<'_>,
    found: &Owed,
    flushes: bool,
    deadline: Instant,
) -> Result<(Owed, bool), Error> {
    let stalled = if terms.only_reads { STALLED_FOR_READERS } else { STALLED };
    let mut debt = *found;
    let mut progress = Instant::now();
    let mut told: Option<Instant> = None;
    while !debt.is_paid(flushes) {
        if told.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            (terms.told)(&format!("waiting for the server to pay its debt: {}", debt.text()));
            told = Some(Instant::now());
        }
        if Instant::now() >= deadline || progress.elapsed() >= stalled {
            return Ok((debt, progress.elapsed() >= stalled));
        }
        std::thread::sleep(PAUSE);
        let now = Owed::of(client)?;
        if now.history < debt.history || now.dirty < debt.dirty {
            progress = Instant::now();
        }
        debt = now;
    }
    Ok((debt, false))
}

/// What InnoDB has put off.
#[derive(Debug, Clone, Copy)]
struct Owed {
    /// Transactions that purge is behind; 0 where the server does not say, or not to this user.
    history: f64,
    /// Pages to be written.
    dirty: f64,
    /// Pages of the buffer.
    pages: f64,
}

impl Owed {
    fn of(client: &mut Client) -> Result<Owed, Error> {
        let mut history = None;
        let (mut dirty, mut pages) = (0.0, 0.0);
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_history_list_length', \
                   'Innodb_buffer_pool_pages_dirty', 'Innodb_buffer_pool_pages_total')";
        client.query_rows(sql, &mut |row| {
            let Some(Ok(value)) = row.text(1).map(str::parse::<f64>) else { return };
            match row.text(0) {
                Some("Innodb_buffer_pool_pages_dirty") => dirty = value,
                Some("Innodb_buffer_pool_pages_total") => pages = value,
                _ => history = Some(value),
            }
        })?;
        let history = match history {
            Some(history) => history,
            None => monitored_history(client)?.unwrap_or(0.0),
        };
        Ok(Owed { history, dirty, pages })
    }

    fn is_dirty(&self) -> bool {
        self.dirty > DIRTY_FEW.min(DIRTY_FEW_SHARE * self.pages)
    }

    /// `flushes`: dirty pages are made to be written, so that waiting for them has an end.
    fn is_paid(&self, flushes: bool) -> bool {
        self.history <= HISTORY_SHORT && !(flushes && self.is_dirty())
    }

    fn text(&self) -> String {
        format!("history list {:.0}, dirty pages {:.0}", self.history, self.dirty)
    }
}

/// From the InnoDB monitor, where the status lacks it.
fn monitored_history(client: &mut Client) -> Result<Option<f64>, Error> {
    match client.query_sets("SHOW ENGINE INNODB STATUS") {
        Ok(sets) => {
            let monitor = sets.first().and_then(|set| set.text(0, 2)).unwrap_or("");
            let line = monitor.lines().find_map(|line| line.strip_prefix("History list length "));
            Ok(line.and_then(|text| text.trim().parse().ok()))
        }
        Err(Error::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Settings under which InnoDB pays as fast as it can: the page cleaner writes everything as long as no page may be
/// dirty, at a pace above what an idle server keeps to, and each batch of purge shortens the list. In the order in
/// which they can be set; the reverse is that in which they can be set back.
const HASTE: [(&str, f64); 4] = [
    ("innodb_io_capacity_max", 20_000.0),
    ("innodb_io_capacity", 20_000.0),
    ("innodb_purge_rseg_truncate_frequency", 1.0),
    (FLUSHING, 0.0),
];
const FLUSHING: &str = "innodb_max_dirty_pages_pct";
/// Follows when the limit is lowered, and must be set back after it.
const LOW_WATER: &str = "innodb_max_dirty_pages_pct_lwm";

/// A server in haste.
#[derive(Debug, Default)]
struct Haste {
    /// Variables with the values that they had, in the order in which they can be set again.
    before: Vec<(&'static str, String)>,
    /// Dirty pages are being written.
    flushes: bool,
}

impl Haste {
    /// A variable that this version or this user lacks is left as it is.
    fn begin(client: &mut Client) -> Result<Haste, Error> {
        let names = HASTE.map(|(name, _)| name).into_iter().chain([LOW_WATER]);
        let list: Vec<String> = names.clone().map(|name| format!("'{name}'")).collect();
        let mut known: Vec<(&'static str, String)> = Vec::new();
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", list.join(", "));
        client.query_rows(&sql, &mut |row| {
            let name = names.clone().find(|name| row.text(0) == Some(name));
            if let (Some(name), Some(value)) = (name, row.text(1)) {
                known.push((name, value.to_owned()));
            }
        })?;
        let mut haste = Haste::default();
        for (name, value) in HASTE {
            let Some((_, before)) = known.iter().find(|(other, _)| *other == name) else { continue };
            // A server that was given more than we would ask for keeps it.
            if name.starts_with("innodb_io") && before.parse::<f64>().is_ok_and(|before| before >= value) {
                continue;
            }
            match client.query(&format!("SET GLOBAL {name} = {value:.0}")) {
                Ok(_) => haste.before.insert(0, (name, before.clone())),
                Err(Error::Server(_)) => continue,
                Err(error) => return Err(error),
            }
            haste.flushes |= name == FLUSHING;
        }
        if haste.flushes
            && let Some(low_water) = known.into_iter().find(|(name, _)| *name == LOW_WATER)
        {
            haste.before.insert(1, low_water);
        }
        Ok(haste)
    }

    fn end(&self, client: &mut Client) -> Result<(), Error> {
        for (name, value) in &self.before {
            client.query(&format!("SET GLOBAL {name} = {value}"))?;
        }
        Ok(())
    }
}
