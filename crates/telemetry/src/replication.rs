//! How far replicas are behind their primary: in bytes of its log, and in time.
//!
//! The time is not what servers say of it (`Seconds_Behind_Master` counts whole seconds of when statements began, and
//! PostgreSQL's clock goes on while nothing is written). It is how long ago the primary's log ended where a replica has come
//! to, by the ends that were seen before: the same on every server, and nothing is written for it.

mod mysql;
mod postgres;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wire::blocking::Client;
use wire::{Error, Protocol, Target};

/// A replica that is watched.
#[derive(Debug, Clone)]
pub struct Replica {
    /// What it is called in series.
    pub name: String,
    /// Its process, where it is seen.
    pub pid: Option<u32>,
    pub target: Target,
}

/// A place in a primary's log. PostgreSQL's is one file without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    file: String,
    offset: u64,
}

/// What a replica says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    received: Place,
    applied: Place,
    is_following: bool,
    /// It stopped, and goes on only by somebody's hand.
    has_stopped: bool,
    /// What is wrong with it.
    trouble: Option<String>,
}

/// How a replica stands, in bytes of the primary's log since the first one that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    pub received_bytes: u64,
    pub applied_bytes: u64,
    /// How long ago the primary's log ended where the replica has come to.
    pub lag_s: f64,
    /// The primary's log that it has not applied.
    pub lag_bytes: u64,
    /// It is connected to the primary and applies what comes.
    pub is_following: bool,
    /// It stopped, and goes on only by somebody's hand.
    pub has_stopped: bool,
    /// What is wrong with it, in the server's words.
    pub trouble: Option<String>,
}

/// Connections to a primary and its replicas.
#[derive(Debug)]
pub struct Replication {
    protocol: Protocol,
    primary: Client,
    replicas: Vec<Client>,
    statements: Statements,
    log: Log,
    ends: Ends,
}

/// In the words of these servers.
#[derive(Debug)]
struct Statements {
    of_primary: String,
    /// Of each replica: they may be of other versions.
    of_replicas: Vec<String>,
}

/// A server that does not answer within this is told as one that does not.
const PATIENCE: Duration = Duration::from_secs(3);

impl Replication {
    /// # Errors
    /// A server cannot be reached, or does not say how its replication stands.
    pub fn open(primary: &Target, replicas: &[Replica]) -> Result<Replication, Error> {
        let connect = |target: &Target| {
            let mut target = target.clone();
            (target.connect_timeout, target.statement_timeout) = (PATIENCE, PATIENCE);
            Client::connect(&target)
        };
        let protocol = primary.protocol;
        let mut primary = connect(primary)?;
        let mut replicas =
            replicas.iter().map(|replica| connect(&replica.target)).collect::<Result<Vec<_>, _>>()?;
        let statements = match protocol {
            Protocol::Mysql => Statements {
                of_primary: first_known(&mut primary, &mysql::OF_PRIMARY)?,
                of_replicas: replicas
                    .iter_mut()
                    .map(|replica| first_known(replica, &mysql::OF_REPLICA))
                    .collect::<Result<_, _>>()?,
            },
            Protocol::Postgres => {
                let version = postgres::version(&mut primary)?;
                Statements {
                    of_primary: postgres::of_primary(version),
                    of_replicas: vec![postgres::of_replica(version); replicas.len()],
                }
            }
        };
        let (log, ends) = (Log::default(), Ends::default());
        Ok(Replication { protocol, primary, replicas, statements, log, ends })
    }

    /// How the replicas stand at `t` seconds, in their order.
    ///
    /// # Errors
    /// One of the servers does not answer.
    pub fn look(&mut self, t: f64) -> Result<Vec<Standing>, Error> {
        let end = self.end()?;
        self.ends.note(t, end);
        let mut all = Vec::new();
        for (replica, sql) in self.replicas.iter_mut().zip(&self.statements.of_replicas) {
            let told = match self.protocol {
                Protocol::Mysql => mysql::told(&replica.query_sets(sql)?),
                Protocol::Postgres => postgres::told(&replica.query_sets(sql)?),
            };
            let applied = self.log.bytes(&told.applied);
            let is_all = match self.protocol {
                Protocol::Mysql => applied >= end,
                Protocol::Postgres => postgres::is_all(applied, end),
            };
            all.push(Standing {
                received_bytes: self.log.bytes(&told.received),
                applied_bytes: applied,
                lag_s: if is_all { 0.0 } else { self.ends.since(t, applied) },
                lag_bytes: if is_all { 0 } else { end.saturating_sub(applied) },
                is_following: told.is_following,
                has_stopped: told.has_stopped,
                trouble: told.trouble,
            });
        }
        self.ends.forget_before(all.iter().map(|standing| standing.applied_bytes).min().unwrap_or(end));
        Ok(all)
    }

    /// Where the primary's log ends now.
    fn end(&mut self) -> Result<u64, Error> {
        let sets = self.primary.query_sets(&self.statements.of_primary)?;
        let place = match self.protocol {
            Protocol::Mysql => mysql::end(&sets),
            Protocol::Postgres => postgres::end(&sets),
        };
        if !self.log.knows(&place) {
            self.log.files = mysql::files(&mut self.primary)?;
        }
        Ok(self.log.bytes(&place))
    }

    /// A place in the primary's log, such that whoever has applied it has applied all that was committed until now.
    ///
    /// # Errors
    /// The primary does not answer.
    pub fn mark(&mut self) -> Result<u64, Error> {
        match self.protocol {
            Protocol::Mysql => self.end(),
            Protocol::Postgres => postgres::mark(&mut self.primary),
        }
    }

    pub fn close(self) {
        self.primary.close();
        self.replicas.into_iter().for_each(Client::close);
    }
}

/// The first of these statements that a server knows: versions call the same thing by other names.
fn first_known(client: &mut Client, statements: &[&str]) -> Result<String, Error> {
    let mut refused = None;
    for sql in statements {
        match client.query(sql) {
            Ok(_) => return Ok((*sql).to_owned()),
            Err(error @ Error::Server(_)) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Io(std::io::Error::other("there is nothing to ask"))))
}

/// The files of a log, so that places in several of them can be compared.
#[derive(Debug, Default)]
struct Log {
    /// Where each begins, in bytes since the first one.
    files: BTreeMap<String, u64>,
}

impl Log {
    fn knows(&self, place: &Place) -> bool {
        place.file.is_empty() || self.files.contains_key(&place.file)
    }

    /// A file that is not known is one of before.
    fn bytes(&self, place: &Place) -> u64 {
        if place.file.is_empty() {
            return place.offset;
        }
        self.files.get(&place.file).map_or(0, |begin| begin + place.offset)
    }
}

/// When the primary's log ended where.
#[derive(Debug, Default)]
struct Ends(VecDeque<(f64, u64)>);

impl Ends {
    fn note(&mut self, t: f64, end: u64) {
        self.0.push_back((t, end));
    }

    /// How long before `t` the log ended at `applied`, between two ends in proportion; since the first one that is known
    /// where it was further then already.
    fn since(&self, t: f64, applied: u64) -> f64 {
        let later = self.0.partition_point(|(_, end)| *end <= applied);
        let Some(&(after_t, after)) = self.0.get(later) else { return 0.0 };
        let Some(&(before_t, before)) = later.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return (t - after_t).max(0.0);
        };
        let share = (applied - before) as f64 / (after - before) as f64;
        (t - (before_t + share * (after_t - before_t))).max(0.0)
    }

    /// Nobody will ask for a place before this one. Of a log that stood still the last moment counts.
    fn forget_before(&mut self, applied: u64) {
        while self.0.len() > 1 && self.0[1].1 <= applied {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_how_long_ago_the_log_ended_there() {
        let mut ends = Ends::default();
        for (t, end) in [(1.0, 100), (2.0, 300), (3.0, 300), (4.0, 700)] {
            ends.note(t, end);
        }
        let check = |applied: u64, lag_s: f64| {
            let found = ends.since(4.0, applied);
            assert!((found - lag_s).abs() < 1e-9, "{applied}: {found}");
        };
        check(700, 0.0);
        check(900, 0.0);
        check(500, 0.5);
        // The log stood still from 2 to 3: what follows was written after that.
        check(300, 1.0);
        check(200, 2.5);
        check(100, 3.0);
        // Before all that is known, at least so much.
        check(50, 3.0);
    }

    #[test]
    fn what_everybody_has_applied_is_forgotten() {
        let mut ends = Ends::default();
        (0..100).for_each(|i| ends.note(f64::from(i), 10 * u64::try_from(i).unwrap()));
        ends.forget_before(905);
        assert_eq!(ends.0.front(), Some(&(90.0, 900)));
        assert!((ends.since(99.0, 905) - 8.5).abs() < 1e-9);
        ends.forget_before(u64::MAX);
        assert_eq!(ends.0.len(), 1);
    }

    #[test]
    fn places_in_several_files_are_compared_by_the_files_before() {
        let log = Log { files: [("b.1".to_owned(), 0), ("b.2".to_owned(), 500)].into() };
        let place = |file: &str, offset| Place { file: file.to_owned(), offset };
        assert_eq!((log.bytes(&place("b.1", 120)), log.bytes(&place("b.2", 4))), (120, 504));
        assert!(!log.knows(&place("b.3", 4)) && log.knows(&place("", 4)));
        assert_eq!((log.bytes(&place("", 77)), log.bytes(&place("b.0", 77))), (77, 0));
    }
}
