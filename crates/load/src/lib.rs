//! Drives sessions against a clock: workers, the epoll executor, pacing, phases, outcomes and the recording of
//! latency by interval.
//!
//! Never here: protocol bytes, SQL, files, a terminal.

pub mod plan;
pub mod recorder;
pub mod result;
pub mod session;

pub use plan::{Arrivals, Length, LoadPlan, Pacing, RetryPolicy, Step};
pub use result::{ErrorTally, IntervalResult, LatencyPair, LoadResult, Outcomes, StatementResult, StepResult};
pub use session::{Completion, Failure, FailureClass, Session};
