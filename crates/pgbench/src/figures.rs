//! What a run counts.

/// Sums of one figure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) count: u64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) sum: f64,
    pub(crate) squares: f64,
}

impl Sums {
    pub(crate) fn add(&mut self, value: f64) {
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = if self.count == 0 { value } else { self.most.max(value) };
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    pub(crate) fn merge(&mut self, other: &Sums) {
        if other.count > 0 {
            self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
            self.most = if self.count == 0 { other.most } else { self.most.max(other.most) };
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// What has been added since `before`; least and most are those of the whole.
    pub(crate) fn since(&self, before: &Sums) -> Sums {
        Sums {
            count: self.count - before.count,
            sum: self.sum - before.sum,
            squares: self.squares - before.squares,
            ..*self
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    pub(crate) fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt()
    }
}

/// Counts of transactions, of a script or of all. Times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Of those that succeeded: response times, from the schedule where there is one.
    pub(crate) latency: Sums,
    /// How late they began.
    pub(crate) lag: Sums,
    /// Never begun, because it was too late for them.
    pub(crate) skipped: u64,
    /// Above the latency limit, skipped ones included.
    pub(crate) late: u64,
    /// Tried again at least once.
    pub(crate) retried: u64,
    /// Tries after the first.
    pub(crate) retries: u64,
    pub(crate) serialization: u64,
    pub(crate) deadlock: u64,
}

impl Counts {
    pub(crate) fn done(&self) -> u64 {
        self.latency.count
    }

    pub(crate) fn failed(&self) -> u64 {
        self.serialization + self.deadlock
    }

    /// Done, skipped and failed.
    pub(crate) fn total(&self) -> u64 {
        self.done() + self.skipped + self.failed()
    }

    pub(crate) fn merge(&mut self, other: &Counts) {
        self.latency.merge(&other.latency);
        self.lag.merge(&other.lag);
        self.skipped += other.skipped;
        self.late += other.late;
        self.retried += other.retried;
        self.retries += other.retries;
        self.serialization += other.serialization;
        self.deadlock += other.deadlock;
    }

    pub(crate) fn since(&self, before: &Counts) -> Counts {
        Counts {
            latency: self.latency.since(&before.latency),
            lag: self.lag.since(&before.lag),
            skipped: self.skipped - before.skipped,
            late: self.late - before.late,
            retried: self.retried - before.retried,
            retries: self.retries - before.retries,
            serialization: self.serialization - before.serialization,
            deadlock: self.deadlock - before.deadlock,
        }
    }
}

/// Of one command of a script.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CommandFigures {
    /// In seconds.
    pub(crate) took_s: Sums,
    pub(crate) failures: u64,
    pub(crate) retries: u64,
}

/// What one thread has counted, by script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) scripts: Vec<Counts>,
    pub(crate) commands: Vec<Vec<CommandFigures>>,
    /// Seconds that connections took.
    pub(crate) connecting: Sums,
    /// Clients that were aborted.
    pub(crate) aborted: u64,
}

impl Figures {
    pub(crate) fn new(scripts: &[pgscript::Script]) -> Figures {
        Figures {
            scripts: vec![Counts::default(); scripts.len()],
            commands: scripts.iter().map(|s| vec![CommandFigures::default(); s.commands.len()]).collect(),
            ..Figures::default()
        }
    }

    pub(crate) fn merge(&mut self, other: &Figures) {
        for (mine, theirs) in self.scripts.iter_mut().zip(&other.scripts) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.commands.iter_mut().flatten().zip(other.commands.iter().flatten()) {
            mine.took_s.merge(&theirs.took_s);
            mine.failures += theirs.failures;
            mine.retries += theirs.retries;
        }
        self.connecting.merge(&other.connecting);
        self.aborted += other.aborted;
    }

    pub(crate) fn all(&self) -> Counts {
        let mut all = Counts::default();
        self.scripts.iter().for_each(|script| all.merge(script));
        all
    }
}
