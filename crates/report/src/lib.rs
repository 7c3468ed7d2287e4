//! Stored results to HTML, Markdown, CSV and JSON: a view model that is built once, and four ways to write it.
//!
//! Never here: servers, measuring, writing into a results file.

mod alarms;
mod answer;
mod bench;
pub mod bundle;
pub mod calibration;
mod charts;
pub mod ci;
mod csv_files;
mod derived;
mod drawing;
mod durability;
mod error;
mod estimate;
mod figures;
mod file;
mod gate;
pub mod history;
mod hot_locks;
mod html;
mod interventions;
mod json;
mod layout;
mod lines;
mod load;
mod load_line;
mod markdown;
mod marks;
mod model;
mod nodes;
mod order;
mod page;
mod published;
mod ranking;
mod scale;
mod sections;
mod settings;
mod tally;
mod text;
mod unlike;
mod verdict;
mod wishes;

pub use answer::Alike;
pub use bench::{Ran, bench_lines};
pub use csv_files::write_csv;
pub use error::Error;
pub use estimate::Estimate;
pub use figures::{IntervalFigures, Latency, StatementFigures, StepFigures};
pub use file::{NewFile, write_file};
pub use gate::{GateState, check};
pub use html::{CSS, chart_script, html};
pub use json::json;
pub use load::Selection;
pub use markdown::markdown;
pub use marks::Mark;
pub use model::{
    AuditView, HostView, LevelRanking, Lost, Place, Point, RankingView, RecordView, Report, RunView,
    Sentence, Standing, StudyReport, VerdictView,
};
pub use ranking::HINT as RANKING_HINT;
pub use text::{metric_name, p_value, ratio, ratio_end, ratio_span, value_text};
