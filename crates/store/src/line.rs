//! Searches for load lines, kept probe by probe: an interrupted one goes on after the last that is here.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::open::Store;
use crate::read::json;
use crate::write::to_json;

/// Row of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineId(pub i64);

/// What is known when a search begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineStart {
    /// Two searches with the same one ask for the same: server, build, workload, options, promises, budget.
    pub fingerprint: String,
    /// The command line, without secrets.
    pub command: String,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
    /// Of everything random.
    pub seed: u64,
}

/// Transactions and those that broke a promise, of a second or a whole probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCount {
    pub transactions: u64,
    pub over: u64,
}

/// What one promise saw of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LineSeen {
    pub seconds: Vec<LineCount>,
    pub total: LineCount,
}

/// A rate that was tried, or the climb before all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LineProbe {
    /// `climb`, `bracket`, `refine`, `hold`.
    pub purpose: String,
    /// Arrivals per second; of the climb, its peak.
    pub rate: f64,
    pub sessions: u32,
    /// Committed per second.
    pub tps: f64,
    /// Measured for so long; 0: the server was lost.
    pub seconds: f64,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// 95 % intervals of these three in ms, from the spread of the probe's seconds.
    #[serde(default)]
    pub spreads: [Option<(f64, f64)>; 3],
    /// More arrived than were served.
    pub is_overloaded: bool,
    /// `client` or `sessions`, where these and not the server set the limit.
    pub limited_by: Option<String>,
    /// Place of the promise that it was about, among those that were searched for.
    pub focus: usize,
    /// By promise that was searched for.
    pub seen: Vec<LineSeen>,
    /// Of the budget.
    pub took_s: f64,
    /// Why it came to nothing, if it did.
    pub error: Option<String>,
    /// Of the climb: by promise, why it is not searched for: how it is broken at one session's pace, or that nothing was met that
    /// it is about; `None` where it is.
    pub broken: Vec<Option<String>>,
    /// Of the climb: the places of the promises that nothing was met of; whether they are kept is not known.
    #[serde(default)]
    pub unmet: Vec<usize>,
}

impl LineProbe {
    /// A line was held at its rate, to confirm it.
    pub fn is_hold(&self) -> bool {
        self.purpose == "hold"
    }

    /// Of the climb: the place of a promise among those that were searched for, which `focus` and `seen` of the probes after it go
    /// by; `None` of one that was not, see `broken`.
    pub fn place(&self, promise: usize) -> Option<usize> {
        let is_searched_for = |broken: &&Option<String>| broken.is_none();
        self.broken.get(promise).filter(is_searched_for)?;
        Some(self.broken[..promise].iter().filter(is_searched_for).count())
    }

    /// See [`LineSearch::held`].
    pub fn held(&self, climb: &LineProbe, promise: usize, allowed: f64) -> Option<bool> {
        let total = self.seen.get(climb.place(promise)?)?.total;
        let share = if total.transactions == 0 { 0.0 } else { total.over as f64 / total.transactions as f64 };
        Some(!self.is_overloaded && share <= allowed)
    }
}

/// A line that was held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LineHold {
    /// For so long.
    pub seconds: f64,
    /// The promise was kept over all of it.
    pub held: bool,
    pub p99_ms: Option<f64>,
}

/// The line of one promise. Rates in transactions per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// As it was written.
    pub promise: String,
    /// The share of transactions that may break it.
    pub allowed: f64,
    /// Of a promise on response times.
    pub limit_ms: Option<f64>,
    /// The highest rate that keeps it; `None` where no rate is known that does.
    pub line_tps: Option<f64>,
    /// The middle of what all probes, the holds included, say of where it lies: what lines are compared by. `None` where they say
    /// too little, and in files of earlier versions.
    #[serde(default)]
    pub middle_tps: Option<f64>,
    /// 95 % interval.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// What set the limit: `promise`, `client`, `sessions`, `budget`, `server`.
    pub ended_by: String,
    /// The last hold.
    pub hold: Option<LineHold>,
    pub warnings: Vec<String>,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LineFound {
    /// By promise.
    pub lines: Vec<Line>,
    /// Of the budget.
    pub seconds_total: f64,
}

/// A search as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSearch {
    pub id: LineId,
    pub start: LineStart,
    pub is_over: bool,
    /// What it found; `None` while it goes on, and of files of earlier versions.
    pub found: Option<LineFound>,
    /// In order; the first is the climb.
    pub probes: Vec<LineProbe>,
}

impl LineSearch {
    /// The closed loop before all rates: its `rate` is the peak.
    pub fn climb(&self) -> Option<&LineProbe> {
        self.probes.first()
    }

    /// The rates that were tried, in order.
    pub fn tried(&self) -> &[LineProbe] {
        self.probes.get(1..).unwrap_or_default()
    }

    /// Whether a probe kept the promise at this place, which allows so many to break it; `None` where it came to nothing,
    /// or that promise was not searched for.
    pub fn held(&self, probe: &LineProbe, promise: usize, allowed: f64) -> Option<bool> {
        probe.held(self.climb()?, promise, allowed)
    }
}

impl Store {
    pub fn begin_line(&mut self, start: &LineStart) -> Result<LineId, Error> {
        self.transaction("a search for a line", |sql| {
            sql.execute("INSERT INTO line_search (start, is_over) VALUES (?,0)", params![to_json(start)?])?;
            Ok(LineId(sql.last_insert_rowid()))
        })
    }

    /// Records a probe the moment it is over.
    pub fn add_line_probe(&mut self, line: LineId, number: usize, probe: &LineProbe) -> Result<(), Error> {
        self.transaction("a probe of a line", |sql| {
            let values = params![line.0, number as i64, to_json(probe)?];
            sql.execute("INSERT INTO line_probe (line_id, number, probe) VALUES (?,?,?)", values).map(drop)
        })
    }

    /// Records that a search came to its end, and what it found.
    pub fn finish_line(&mut self, line: LineId, found: &LineFound) -> Result<(), Error> {
        self.transaction("a search for a line", |sql| {
            let values = params![to_json(found)?, line.0];
            sql.execute("UPDATE line_search SET is_over=1, found=? WHERE id=?", values).map(drop)
        })
    }

    /// The newest search with this fingerprint.
    pub fn last_line(&self, fingerprint: &str) -> Result<Option<LineSearch>, Error> {
        // Searches are few, and each is some kilobytes.
        Ok(self.line_searches()?.into_iter().rev().find(|known| known.start.fingerprint == fingerprint))
    }

    /// All searches, oldest first.
    pub fn line_searches(&self) -> Result<Vec<LineSearch>, Error> {
        self.read("the searches for lines", || {
            let mut lines = self.rows("SELECT * FROM line_search ORDER BY id", &[], |row| {
                Ok(LineSearch {
                    id: LineId(row.get("id")?),
                    start: json(row, "start")?,
                    is_over: row.get("is_over")?,
                    found: row.get::<_, Option<String>>("found")?.map(|_| json(row, "found")).transpose()?,
                    probes: vec![],
                })
            })?;
            for line in &mut lines {
                let probes = "SELECT probe FROM line_probe WHERE line_id=? ORDER BY number";
                line.probes = self.rows(probes, &[&line.id.0], |row| json(row, "probe"))?;
            }
            Ok(lines)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_kept_probe_by_probe() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let start = LineStart {
            fingerprint: "x".into(),
            command: "plimsoll line".into(),
            started_at_ms: 7,
            seed: u64::MAX,
        };
        let id = store.begin_line(&start).unwrap();
        let probe = LineProbe {
            purpose: "refine".into(),
            rate: 1234.5,
            sessions: 16,
            tps: 1230.0,
            seconds: 30.0,
            p50_ms: Some(1.0),
            p95_ms: None,
            p99_ms: None,
            spreads: [Some((0.9, 1.1)), None, None],
            is_overloaded: false,
            limited_by: None,
            focus: 0,
            seen: vec![LineSeen {
                seconds: vec![LineCount { transactions: 5, over: 1 }],
                total: LineCount::default(),
            }],
            took_s: 33.0,
            error: None,
            broken: vec![],
            unmet: vec![],
        };
        store.add_line_probe(id, 0, &probe).unwrap();
        store.add_line_probe(id, 1, &probe).unwrap();
        drop(store);
        let mut store = Store::open(directory.path()).unwrap();
        let kept = store.line_searches().unwrap();
        assert_eq!((kept.len(), &kept[0].start, kept[0].is_over), (1, &start, false));
        assert_eq!(kept[0].probes, [probe.clone(), probe]);
        let found = LineFound { seconds_total: 66.0, ..LineFound::default() };
        store.finish_line(id, &found).unwrap();
        let kept = store.last_line("x").unwrap().unwrap();
        assert_eq!((kept.is_over, kept.found), (true, Some(found)));
        assert!(store.last_line("y").unwrap().is_none());
    }
}
