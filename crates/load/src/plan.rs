//! What the load is to be: plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Highest rate of an open loop, in transactions per second: one for each nanosecond of the clock. Arrivals closer to
/// each other than that could not be told apart.
pub const RATE_MAX_TPS: f64 = 1e9;

/// When transactions arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pacing {
    /// Each session starts the next transaction when the last one has ended (and think time has passed).
    Closed,
    /// Transactions arrive by a schedule, whether or not the server keeps up.
    Open {
        /// Arrivals per second over all sessions; above 0 and at most [`RATE_MAX_TPS`].
        rate_tps: f64,
        /// How they are spread.
        arrivals: Arrivals,
    },
}

/// How the arrivals of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// Exponential distances (a Poisson process).
    Poisson,
}

/// How long the measured phase of a step lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// By the clock.
    Time(Duration),
    /// Until so many transactions have been started, over all sessions; bounded by `at_most` where given.
    Transactions {
        /// Transactions over all sessions.
        count: u64,
        /// Gives up after this long.
        at_most: Option<Duration>,
    },
}

/// One load level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Sessions that run at once.
    pub sessions: u32,
    /// Run and told by second, and not part of the level's figures.
    pub warmup: Duration,
    /// The measured phase.
    pub length: Length,
    /// Closed or open.
    pub pacing: Pacing,
}

/// What to do after a deadlock, a serialization failure or a lock timeout (or what the workload calls retryable).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts after the first one; 0 for none.
    pub retries_max: u32,
    /// Wait before the first retry; doubles with each, with jitter. Zero for none.
    pub backoff: Duration,
    /// The wait never exceeds this.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    /// Ten retries, the first one at once within a millisecond, never more than 100 ms apart.
    fn default() -> RetryPolicy {
        RetryPolicy {
            retries_max: 10,
            backoff: Duration::from_millis(1),
            backoff_max: Duration::from_millis(100),
        }
    }
}

/// Everything that the engine needs to know. Fill in `steps` and take the rest from [`LoadPlan::default`].
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Load levels, in order, in one life of the sessions (a ladder climbed has many, a plain run one).
    pub steps: Vec<Step>,
    /// Worker threads; `None`: one for each of `cpus`, or, where these are not given, one for two of the cpus that this
    /// process may use. Where the sessions live in client processes: threads of each of them; `None`: as many as make up
    /// that number together, and at least one.
    pub workers: Option<usize>,
    /// Cpus to pin workers to, in turn; empty: those that this process may use.
    pub cpus: Vec<usize>,
    /// Pause of a session between two transactions. With an open loop it takes sessions out of those that arrivals find idle:
    /// studies refuse the two together.
    pub think_time: Duration,
    /// The connections of a step are opened evenly over this time; zero: as fast as they come.
    pub ramp: Duration,
    /// Retries.
    pub retry: RetryPolicy,
    /// After the measured phase: how long in-flight transactions and, in open loop, the backlog may take to
    /// finish before they are counted as in flight and censored.
    pub drain: Duration,
    /// How long the sessions of a step may take to connect, from the first refusal on. A server that refuses
    /// for longer ends the run with [`crate::LoadError::Connect`].
    pub connect_limit: Duration,
    /// How long a step goes on after every session has lost its connection and none could be reopened. Then
    /// the step ends with the reason.
    pub silence_limit: Duration,
    /// How long a client process may tell nothing at all before it is given up; it says each second that it is alive.
    pub client_silence: Duration,
    /// Seed of arrivals and back-off jitter; the workload seeds its own sessions.
    pub seed: u64,
    /// In open loop: let the workers run before all other threads where the system permits it, so that arrivals
    /// start on time. Without effect in a closed loop, whose workers do not even preempt as any thread may (SCHED_BATCH):
    /// a client that preempts a server on the same cpus takes answers one at a time instead of many at once, which
    /// costs more than it gains.
    pub raise_priority: bool,
    /// Requested while a step is announced ([`crate::Event::StepStarted`]), the load ends before it, as after its last one.
    pub enough: crate::Stop,
}

impl LoadPlan {
    /// How its workers are scheduled beside others that want the same cpu; what was permitted, a warning of the run tells.
    pub fn scheduling(&self) -> &'static str {
        match self.steps.first().map(|step| step.pacing) {
            Some(Pacing::Open { .. }) if self.raise_priority => "SCHED_RR where permitted",
            Some(Pacing::Open { .. }) => "SCHED_OTHER",
            Some(Pacing::Closed) | None => "SCHED_BATCH",
        }
    }
}

impl Default for LoadPlan {
    /// No steps, as many workers as [`LoadPlan::workers`] says where nobody has, no think time, no ramp, a drain of 10 s.
    fn default() -> LoadPlan {
        LoadPlan {
            steps: Vec::new(),
            workers: None,
            cpus: Vec::new(),
            think_time: Duration::ZERO,
            ramp: Duration::ZERO,
            retry: RetryPolicy::default(),
            drain: Duration::from_secs(10),
            connect_limit: Duration::from_secs(30),
            silence_limit: Duration::from_secs(10),
            client_silence: Duration::from_secs(20),
            seed: 1,
            raise_priority: false,
            enough: crate::Stop::new(),
        }
    }
}
