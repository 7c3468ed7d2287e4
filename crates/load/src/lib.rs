//! Drives sessions against a clock: workers, the epoll executor, pacing, phases, outcomes and the recording of
//! latency by interval.
//!
//! Never here: protocol bytes, SQL, files, a terminal.

pub mod driver;
pub mod histogram;
pub mod net;
pub mod plan;
pub mod recorder;
pub mod result;
pub mod run;
pub mod session;
pub mod time;

pub use driver::Driver;
pub use histogram::Histogram;
pub use plan::{Arrivals, Length, LoadPlan, Pacing, RetryPolicy, Step};
pub use recorder::Recorder;
pub use result::{
    ClientUsage, ErrorTally, IntervalResult, LatencyPair, LoadResult, Outcomes, StatementResult, StepResult,
};
pub use run::{Event, LoadError, Stop, run};
pub use session::{AnySession, Completion, Failure, FailureClass, Session, SessionFactory};
