//! What Plimsoll reads from others, each kind through the door that it comes in by: answers of servers, archives of
//! builds, study files, workloads of one's own, results files, bundles. Nothing may panic, wait for ever, take memory that was only claimed, or write
//! where it was not told to.
//!
//! `cargo test` replays the seeds and every input that ever failed; `cargo xtask fuzz` looks for new ones.

mod archives;
mod bundles;
mod codecs;
#[path = "../../crates/store/tests/common/mod.rs"]
mod common;
mod protocol;
mod results;
mod scripts;
mod study;

pub use archives::archives;
pub use bundles::bundles;
pub use codecs::{mysql_codecs, mysql_compression};
pub use protocol::{mysql_login, mysql_session, postgres_login, postgres_session};
pub use results::results_files;
pub use scripts::{pgbench_scripts, smack_files, workload_files};
pub use study::study_files;

/// A door, and the name of its program and of its folder under `seeds/`.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 13] = [
    ("archives", archives),
    ("bundles", bundles),
    ("mysql_codecs", mysql_codecs),
    ("mysql_compression", mysql_compression),
    ("mysql_login", mysql_login),
    ("mysql_session", mysql_session),
    ("pgbench_scripts", pgbench_scripts),
    ("postgres_login", postgres_login),
    ("postgres_session", postgres_session),
    ("results_files", results_files),
    ("smack_files", smack_files),
    ("study_files", study_files),
    ("workload_files", workload_files),
];

/// A directory in memory where that is to be had: 10 million archives are not written to a disk.
fn place() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory for files that come and go")
}
