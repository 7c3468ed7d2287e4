//! Letting a server pay its debt before a run, so that one run does not pay for another.

use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Error, Protocol, Target};

/// What draining did.
#[derive(Debug, Clone, PartialEq)]
pub struct Drained {
    /// How long it took.
    pub took: Duration,
    /// What was left: `history list 12`; empty where there is nothing to tell.
    pub left: String,
    /// It took longer than permitted, and something is left.
    pub is_unfinished: bool,
}

/// A history list this short is no debt: a few transactions are always there.
const HISTORY_SHORT: f64 = 1000.0;

/// PostgreSQL: CHECKPOINT (needs its privilege). MySQL and MariaDB: waits until purge has caught up; settings are not
/// touched, for the server may be somebody else's.
///
/// # Errors
/// The server cannot be asked.
pub fn drain(target: &Target, limit: Duration) -> Result<Drained, Error> {
    let began = Instant::now();
    let mut client = Client::connect(target)?;
    client.set_statement_timeout(limit.max(Duration::from_secs(1)));
    let (left, is_unfinished) = match target.protocol {
        Protocol::Postgres => {
            let checkpoint = client.query("CHECKPOINT");
            match checkpoint {
                Ok(_) => (String::new(), false),
                Err(error @ (Error::Server(_) | Error::Timeout { .. })) => (error.to_string(), true),
                Err(error) => return Err(error),
            }
        }
        Protocol::Mysql => loop {
            let Some(length) = history_length(&mut client)? else { break (String::new(), false) };
            let left = format!("history list {length:.0}");
            if length <= HISTORY_SHORT {
                break (left, false);
            }
            if began.elapsed() >= limit {
                break (left, true);
            }
            std::thread::sleep(Duration::from_millis(100));
        },
    };
    // Only a closed connection may be left; a server that went away meanwhile is found out soon enough.
    client.close();
    Ok(Drained { took: began.elapsed(), left, is_unfinished })
}

/// `None` where the server does not say, or not to this user.
fn history_length(client: &mut Client) -> Result<Option<f64>, Error> {
    let mut length = None;
    client.query_rows("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'", &mut |row| {
        length = row.text(1).and_then(|text| text.parse().ok());
    })?;
    if length.is_some() {
        return Ok(length);
    }
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
