//! A fake MySQL server that answers late on purpose and writes down when.
//!
//! It is a process of its own (`plimsoll-fakeserver`) with one thread, its own epoll and its own clock work (or several
//! processes of that kind, for many connections): what a load generator reports is compared with this log, so it must not
//! share a runtime, or a mistake, with it.

mod answer;
mod latency;
mod log;
mod serve;
pub mod truth;

pub use latency::{Latency, LatencyError, Shape, Stall};
pub use log::{Exchange, read_log};
pub use serve::{Options, log_of, serve};
