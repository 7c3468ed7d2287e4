//! Drives sessions against a clock: workers, the epoll executor, pacing, phases, outcomes and the recording of
//! latency by interval.
//!
//! Never here: protocol bytes, SQL, files, a terminal.

pub mod clients;
mod coordinator;
mod driver;
mod executor;
mod hands;
mod histogram;
mod memory;
pub mod net;
mod plan;
mod poisson;
mod recorder;
mod recording;
mod result;
mod retry;
mod rng;
pub mod run;
mod schedule;
mod session;
mod state;
pub mod time;
mod tuning;
mod usage;
mod worker;

pub use driver::Driver;
pub use histogram::Histogram;
pub use plan::{Arrivals, Length, LoadPlan, Pacing, RATE_MAX_TPS, RetryPolicy, Step};
pub use recorder::Recorder;
pub use result::{
    ClientUsage, ErrorTally, IntervalResult, LatencyPair, LoadResult, Outcomes, Stalls, StatementResult,
    StepResult,
};
pub use run::{Event, LoadError, Stop, run, run_with_clock};
pub use session::{AnySession, Completion, Failure, FailureClass, Session, SessionFactory};
pub use time::Clock;
