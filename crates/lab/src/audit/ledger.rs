//! Numbered transactions, what was acknowledged of them, and what is left.
//!
//! Each transaction books an amount on an account, a teller and a branch, as TPC-B does, between two rows of the
//! ledger that carry its number: half a transaction shows as one row, a lost update as sums that differ.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandbox::Sandbox;
use wire::blocking::Client;
use wire::{Protocol, Target};

use crate::error::Error;
use crate::stop::StopSwitch;

const ACCOUNTS: u64 = 1000;
const TELLERS: u64 = 100;
const BRANCHES: u64 = 10;

/// What one session has been told by the server.
#[derive(Debug, Default)]
struct SessionNotes {
    /// Acknowledged numbers and when, in order; shared with the session's thread.
    acknowledged: Mutex<Vec<(u64, Instant)>>,
    /// Highest number ever sent.
    sent: AtomicU64,
}

/// Notes of all sessions, outside of the server.
#[derive(Debug)]
pub(super) struct Ledger {
    notes: Vec<Arc<SessionNotes>>,
    random: stats::rng::Rng,
    database: Option<String>,
    /// Numbers that were lost and told about in an earlier round: lost only once.
    forgotten: Vec<(usize, u64)>,
}

/// What was acknowledged at one moment: by session, so many of its notes.
#[derive(Debug)]
pub(super) struct Noted {
    counts: Vec<usize>,
    /// Of them all, those from before this round.
    before: usize,
    at: Instant,
}

impl Noted {
    /// Acknowledged in this round.
    pub(super) fn in_round(&self) -> u64 {
        (self.counts.iter().sum::<usize>() - self.before) as u64
    }
}

/// What is left of the ledger.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) lost: u64,
    pub(super) lost_window_s: f64,
    pub(super) partial: u64,
    pub(super) invented: u64,
    pub(super) broken: Vec<String>,
}

/// Sessions at work.
pub(super) struct Work {
    notes: Vec<Arc<SessionNotes>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    length: Duration,
    acknowledged_before: usize,
}

fn counts(notes: &[Arc<SessionNotes>]) -> Vec<usize> {
    let count = |notes: &Arc<SessionNotes>| {
        notes.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    };
    notes.iter().map(count).collect()
}

fn failed(what: &str, error: &wire::Error) -> Error {
    Error::Run(format!("{what}: {error}"))
}

impl Ledger {
    pub(super) fn create(server: &Sandbox, sessions: u32, seed: u64) -> Result<Ledger, Error> {
        let admin = server.target(None);
        let is_mysql = admin.protocol == Protocol::Mysql;
        let database = is_mysql.then(|| "audit".to_owned());
        let connect = |target: &Target| Client::connect(target).map_err(|e| failed("connecting failed", &e));
        if is_mysql {
            connect(&admin)?
                .query("CREATE DATABASE audit")
                .map_err(|e| failed("making the ledger failed", &e))?;
        }
        let mut client = connect(&server.target(database.as_deref()))?;
        let engine = if is_mysql { " ENGINE=InnoDB" } else { "" };
        let mut statements = vec![format!(
            "CREATE TABLE ledger (session_id int, number bigint, part int, amount int, \
             PRIMARY KEY (session_id, number, part)){engine}"
        )];
        for (table, rows) in [("account", ACCOUNTS), ("teller", TELLERS), ("branch", BRANCHES)] {
            statements
                .push(format!("CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL){engine}"));
            let values: Vec<String> = (1..=rows).map(|id| format!("({id},0)")).collect();
            statements.push(format!("INSERT INTO {table} VALUES {}", values.join(",")));
        }
        for sql in &statements {
            client.query(sql).map_err(|e| failed("making the ledger failed", &e))?;
        }
        client.close();
        let notes = (0..sessions).map(|_| Arc::new(SessionNotes::default())).collect();
        Ok(Ledger { notes, random: stats::rng::Rng::new(seed), database, forgotten: Vec::new() })
    }

    /// Lets all sessions commit.
    pub(super) fn start(&mut self, server: &Sandbox) -> Work {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged_before = counts(&self.notes).iter().sum();
        let target = server.target(self.database.as_deref());
        let threads = self
            .notes
            .iter()
            .enumerate()
            .map(|(session, notes)| {
                let (target, notes, stop) = (target.clone(), Arc::clone(notes), Arc::clone(&stop));
                let random = stats::rng::Rng::new(self.random.next_u64());
                std::thread::spawn(move || commit(&target, session, &notes, random, &stop))
            })
            .collect();
        // Long enough for a relaxed server to have written something, and not always the same.
        let length = Duration::from_millis(400 + self.random.below(1600) as u64);
        Work { notes: self.notes.clone(), threads, stop, length, acknowledged_before }
    }

    /// Compares what is there with what was noted.
    pub(super) fn verify(&mut self, server: &Sandbox, noted: &Noted) -> Result<Findings, wire::Error> {
        let mut client = Client::connect(&server.target(self.database.as_deref()))?;
        client.set_statement_timeout(Duration::from_secs(120));
        let mut parts: HashMap<(usize, u64), u32> = HashMap::new();
        client.query_rows(
            "SELECT session_id, number, count(*) FROM ledger GROUP BY session_id, number",
            &mut |row| {
                let number = |i: usize| row.text(i).and_then(|text| text.parse::<u64>().ok());
                if let (Some(session), Some(number), Some(count)) = (number(0), number(1), number(2)) {
                    parts.insert((session as usize, number), count as u32);
                }
            },
        )?;
        let mut found = self.compare(&parts, noted);
        let mut sums = Vec::new();
        for (name, sql) in [
            ("ledger", "SELECT coalesce(sum(amount), 0) FROM ledger WHERE part = 1"),
            ("accounts", "SELECT sum(balance) FROM account"),
            ("tellers", "SELECT sum(balance) FROM teller"),
            ("branches", "SELECT sum(balance) FROM branch"),
        ] {
            sums.push((name, client.query_value(sql)?.unwrap_or_default()));
        }
        for (name, sum) in &sums[1..] {
            if *sum != sums[0].1 {
                found.broken.push(format!("the {name} add up to {sum}, the ledger to {}", sums[0].1));
            }
        }
        client.close();
        Ok(found)
    }

    fn compare(&mut self, parts: &HashMap<(usize, u64), u32>, noted: &Noted) -> Findings {
        let mut found = Findings {
            partial: parts.values().filter(|count| **count != 2).count() as u64,
            ..Findings::default()
        };
        for (session, notes) in self.notes.iter().enumerate() {
            let acknowledged = notes.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for (index, (number, at)) in acknowledged.iter().enumerate() {
                if parts.contains_key(&(session, *number)) || self.forgotten.contains(&(session, *number)) {
                    continue;
                }
                self.forgotten.push((session, *number));
                // Acknowledged while the server went down: it may be there or not.
                if index < noted.counts[session] {
                    found.lost += 1;
                    let age = noted.at.saturating_duration_since(*at).as_secs_f64();
                    found.lost_window_s = found.lost_window_s.max(age);
                }
            }
        }
        let is_invented = |(session, number): &&(usize, u64)| {
            self.notes.get(*session).is_none_or(|notes| *number > notes.sent.load(Ordering::SeqCst))
        };
        found.invented = parts.keys().filter(is_invented).count() as u64;
        found
    }
}

impl Work {
    /// Sleeps until a moment that the seed decided; how long.
    pub(super) fn wait_for_a_random_moment(&self, stop: &StopSwitch) -> Duration {
        let began = Instant::now();
        while began.elapsed() < self.length && !stop.is_requested() {
            std::thread::sleep(Duration::from_millis(1));
        }
        began.elapsed()
    }

    /// What is acknowledged until now.
    pub(super) fn noted(&self) -> Noted {
        let at = Instant::now();
        Noted { counts: counts(&self.notes), before: self.acknowledged_before, at }
    }

    /// Waits until all sessions have noticed that the server is gone; all that they were told until then.
    pub(super) fn end(self) -> Noted {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            // A session that panicked has noted what it had noted.
            let _ = thread.join();
        }
        let last = |notes: &Arc<SessionNotes>| {
            let acknowledged = notes.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            acknowledged.last().map(|(_, at)| *at)
        };
        // The server's last word is the moment that ages are counted from.
        let at = self.notes.iter().filter_map(last).max().unwrap_or_else(Instant::now);
        Noted { counts: counts(&self.notes), before: self.acknowledged_before, at }
    }
}

/// One session until the server is gone.
fn commit(
    target: &Target,
    session: usize,
    notes: &SessionNotes,
    mut random: stats::rng::Rng,
    stop: &AtomicBool,
) {
    let Ok(mut client) = Client::connect(target) else { return };
    // A server whose disk stands still answers when it goes on, or dies.
    client.set_statement_timeout(Duration::from_secs(60));
    while !stop.load(Ordering::SeqCst) {
        let number = notes.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let amount = 1 + random.below(100_000) as i64 - 50_000;
        let mut draw = |of: u64| 1 + random.below(of as usize);
        let statements = [
            "BEGIN".to_owned(),
            format!("INSERT INTO ledger VALUES ({session}, {number}, 1, {amount})"),
            format!("UPDATE account SET balance = balance + {amount} WHERE id = {}", draw(ACCOUNTS)),
            format!("UPDATE teller SET balance = balance + {amount} WHERE id = {}", draw(TELLERS)),
            format!("UPDATE branch SET balance = balance + {amount} WHERE id = {}", draw(BRANCHES)),
            format!("INSERT INTO ledger VALUES ({session}, {number}, 2, {amount})"),
            "COMMIT".to_owned(),
        ];
        match statements.iter().try_for_each(|sql| client.query(sql).map(|_| ())) {
            Ok(()) => {
                let mut acknowledged =
                    notes.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                acknowledged.push((number, Instant::now()));
            }
            // A conflict: not acknowledged, and on to the next.
            Err(wire::Error::Server(_)) => {
                if client.query("ROLLBACK").is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(acknowledged: &[u64], sent: u64) -> Ledger {
        let notes = SessionNotes::default();
        notes.sent.store(sent, Ordering::SeqCst);
        let now = Instant::now();
        *notes.acknowledged.lock().unwrap() = acknowledged.iter().map(|n| (*n, now)).collect();
        Ledger {
            notes: vec![Arc::new(notes)],
            random: stats::rng::Rng::new(1),
            database: None,
            forgotten: Vec::new(),
        }
    }

    #[test]
    fn lost_partial_and_invented_are_told_apart() {
        let mut ledger = ledger(&[1, 2, 3, 4], 5);
        let noted = Noted { counts: vec![3], before: 1, at: Instant::now() };
        assert_eq!(noted.in_round(), 2);
        // 2 is lost; 4 was acknowledged while the server went down; 5 was in flight; 9 was never sent; 3 is half.
        let parts = HashMap::from([((0, 1), 2), ((0, 3), 1), ((0, 5), 2), ((0, 9), 2)]);
        let found = ledger.compare(&parts, &noted);
        assert_eq!((found.lost, found.partial, found.invented), (1, 1, 1));
        // The next round does not count the same loss again.
        let again = ledger.compare(&parts, &noted);
        assert_eq!(again.lost, 0);
    }
}
