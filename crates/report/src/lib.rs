//! Stored results to HTML, Markdown, CSV and JSON: a view model that is built once, and four ways to write it.
//!
//! Never here: servers, measuring, writing into a results file.

mod bench;
mod figures;

pub use bench::{Ran, bench_lines};
pub use figures::{IntervalFigures, Latency, StatementFigures, StepFigures};
