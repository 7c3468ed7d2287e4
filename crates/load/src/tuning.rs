//! What the engine does for speed alone, and would be simpler without. One that earns less than 3 % of the client's cpu at 64
//! sessions is to go. `cargo xtask bench tricks` measures each, with and without it in turns (MariaDB 10.11,
//! oltp_point_select, 64 sessions, 2 cpus; 95 % intervals of nine rounds are about 10 % wide either way).

/// One such thing, with the client's cpu for a statement without it (user and system together, then user alone) as a ratio to
/// that with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trick {
    /// The memory of the session that comes next is asked for meanwhile: 1.034, 1.138.
    FetchAhead,
    /// What sessions touch lies on huge pages: 1.056, 1.093.
    HugePages,
    /// Figures are noted, and counted many at a time: 1.053, 1.065.
    Notes,
    /// Each worker has a table of descriptors of its own: 1.082, 1.098.
    OwnDescriptors,
    /// Without a rate to keep, the scheduler lets workers wait for the server (SCHED_BATCH): 1.577, 1.608.
    Patience,
    /// After less than was asked for, nothing is left to be read: 1.076, 1.082.
    Drained,
}

/// Whether the engine makes use of it: always, but in the build of that benchmark.
#[cfg(not(feature = "trials"))]
#[inline(always)]
pub(crate) const fn is_on(_: Trick) -> bool {
    true
}

/// Unless the environment's `PLIMSOLL_WITHOUT` names it.
#[cfg(feature = "trials")]
#[inline]
pub(crate) fn is_on(trick: Trick) -> bool {
    use std::sync::LazyLock;
    static LEFT_OUT: LazyLock<u32> = LazyLock::new(|| {
        let names = std::env::var("PLIMSOLL_WITHOUT").unwrap_or_default();
        let bit =
            |name: &str| ALL.iter().find(|(known, _)| *known == name).map(|(_, trick)| 1u32 << *trick as u32);
        names.split_terminator(',').map(|name| bit(name).expect("a trick of load/src/tuning.rs")).sum()
    });
    *LEFT_OUT >> trick as u32 & 1 == 0
}

#[cfg(feature = "trials")]
const ALL: &[(&str, Trick)] = &[
    ("fetch-ahead", Trick::FetchAhead),
    ("huge-pages", Trick::HugePages),
    ("notes", Trick::Notes),
    ("own-descriptors", Trick::OwnDescriptors),
    ("patience", Trick::Patience),
    ("drained", Trick::Drained),
];
