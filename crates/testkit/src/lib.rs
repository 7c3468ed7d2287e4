//! Fake servers, slow-downs and neighbours of known size, and what tests say where they could not look. Never here:
//! anything a release binary needs.

mod browser;
mod compiled;
mod elf;
pub mod fake;

pub mod latency_server;
pub mod neighbour;
pub mod no_flush;
mod not_tested;
pub mod slow;
pub mod slurm;

pub use browser::chromium;
pub use not_tested::{COLLECTED_IN, not_tested, of_this_run};
