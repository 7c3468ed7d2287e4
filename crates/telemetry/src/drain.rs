//! Letting a server pay its debt before a run, so that one run does not pay for another.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Error, Protocol, Target};

/// What may be done to a server, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// It is measured with what is left by then.
    pub limit: Duration,
    /// It is a sandbox: its settings may be changed for a moment, its tables vacuumed. Otherwise it is only waited for.
    pub is_ours: bool,
    /// Its caches shall stay as they are: nothing that reads tables.
    pub is_cold: bool,
    /// Its data directory, where it is on this machine.
    pub datadir: Option<&'a Path>,
}

/// What draining did.
#[derive(Debug, Clone, PartialEq)]
pub struct Drained {
    /// How long it took.
    pub took: Duration,
    /// What there was: `history list 31, dirty pages 1024`; empty where the server does not tell.
    pub found: String,
    /// What was left of it.
    pub left: String,
    /// It took longer than permitted, and something is left.
    pub is_unfinished: bool,
}

/// A history list this short is no debt: a few transactions are always there.
const HISTORY_SHORT: f64 = 1000.0;
/// Purge that takes nothing away for so long is not at work, and waiting longer does not help: old versions shorten the
/// list now and then only.
const STALLED: Duration = Duration::from_secs(3);
/// A list that is no longer than this and not worked on is left as it is, without a word.
const HISTORY_LAZY: f64 = 5000.0;
/// So few dirty pages are none: 16 MiB at most.
const DIRTY_FEW: f64 = 1024.0;
/// So few dead rows are not worth a VACUUM.
const DEAD_FEW: f64 = 1000.0;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// PostgreSQL: VACUUM ANALYZE of what has dead rows, then CHECKPOINT. MySQL and MariaDB: waits until purge has caught
/// up and dirty pages are written. Then the operating system writes what it still holds of the data directory.
///
/// # Errors
/// The server cannot be asked.
pub fn drain(target: &Target, terms: &Terms<'_>) -> Result<Drained, Error> {
    let began = Instant::now();
    let mut client = Client::connect(target)?;
    client.set_statement_timeout(terms.limit.max(Duration::from_secs(1)));
    let deadline = began + terms.limit;
    let (found, left, is_unfinished) = match target.protocol {
        Protocol::Postgres => postgres(&mut client, terms)?,
        Protocol::Mysql => mysql(&mut client, terms, deadline)?,
    };
    // Only a closed connection may be left; a server that went away meanwhile is found out soon enough.
    client.close();
    if let Some(dir) = terms.datadir.and_then(|dir| File::open(dir).ok()) {
        // SAFETY: the descriptor is open. What cannot be written now is written later, as without us.
        unsafe { libc::syncfs(dir.as_raw_fd()) };
    }
    Ok(Drained { took: began.elapsed(), found, left, is_unfinished })
}

fn postgres(client: &mut Client, terms: &Terms<'_>) -> Result<(String, String, bool), Error> {
    let sql = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables";
    let dead: f64 = client.query_value(sql)?.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    let found = format!("dead tuples {dead:.0}");
    let may_vacuum = terms.is_ours && !terms.is_cold;
    let vacuum = (may_vacuum && dead > DEAD_FEW).then_some("VACUUM (ANALYZE)");
    for sql in vacuum.into_iter().chain(["CHECKPOINT"]) {
        match client.query(sql) {
            Ok(_) => {}
            Err(error @ (Error::Server(_) | Error::Timeout { .. })) => {
                return Ok((found, format!("{sql}: {error}"), true));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((found, String::new(), false))
}

fn mysql(client: &mut Client, terms: &Terms<'_>, deadline: Instant) -> Result<(String, String, bool), Error> {
    let mut debt = Owed::of(client)?;
    let found = debt.text();
    let flushing = if terms.is_ours && debt.dirty > DIRTY_FEW { Flushing::begin(client)? } else { None };
    let must_flush = flushing.is_some();
    let is_paid = |debt: &Owed| debt.history <= HISTORY_SHORT && (!must_flush || debt.dirty <= DIRTY_FEW);
    let mut progress = Instant::now();
    while !is_paid(&debt) && Instant::now() < deadline && progress.elapsed() < STALLED {
        std::thread::sleep(PAUSE);
        let now = Owed::of(client)?;
        if now.history < debt.history || now.dirty < debt.dirty {
            progress = Instant::now();
        }
        debt = now;
    }
    if let Some(flushing) = flushing {
        flushing.end(client)?;
    }
    let is_lazy = progress.elapsed() >= STALLED && debt.history <= HISTORY_LAZY;
    Ok((found, debt.text(), !is_paid(&debt) && !is_lazy))
}

/// What InnoDB has put off.
struct Owed {
    /// Transactions that purge is behind; 0 where the server does not say, or not to this user.
    history: f64,
    /// Pages to be written.
    dirty: f64,
}

impl Owed {
    fn of(client: &mut Client) -> Result<Owed, Error> {
        let mut history = None;
        let mut dirty = 0.0;
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN \
                   ('Innodb_history_list_length', 'Innodb_buffer_pool_pages_dirty')";
        client.query_rows(sql, &mut |row| {
            let Some(Ok(value)) = row.text(1).map(str::parse::<f64>) else { return };
            match row.text(0) {
                Some("Innodb_buffer_pool_pages_dirty") => dirty = value,
                _ => history = Some(value),
            }
        })?;
        let history = match history {
            Some(history) => history,
            None => monitored_history(client)?.unwrap_or(0.0),
        };
        Ok(Owed { history, dirty })
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

/// The page cleaner writes everything as long as no page may be dirty.
struct Flushing {
    /// Variables with the values that they had, in the order in which they can be set again.
    before: Vec<(String, String)>,
}

impl Flushing {
    /// `None` where the user may not.
    fn begin(client: &mut Client) -> Result<Option<Flushing>, Error> {
        let mut before = Vec::new();
        // The low-water mark follows when the limit is lowered, and must be set back after it.
        let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                   ('innodb_max_dirty_pages_pct', 'innodb_max_dirty_pages_pct_lwm')";
        client.query_rows(sql, &mut |row| {
            if let (Some(name), Some(value)) = (row.text(0), row.text(1)) {
                before.push((name.to_owned(), value.to_owned()));
            }
        })?;
        before.sort();
        match client.query("SET GLOBAL innodb_max_dirty_pages_pct = 0") {
            Ok(_) => Ok(Some(Flushing { before })),
            Err(Error::Server(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn end(self, client: &mut Client) -> Result<(), Error> {
        for (name, value) in self.before {
            client.query(&format!("SET GLOBAL {name} = {value}"))?;
        }
        Ok(())
    }
}
