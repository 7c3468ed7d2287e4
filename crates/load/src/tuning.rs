//! What the engine does for speed alone, and would be simpler without. One that earns less than 3 % of the client's cpu at 64
//! sessions is to go; none has been measured by itself yet.

/// One such thing, which `cargo xtask bench tricks` leaves out to measure what it earns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trick {
    FetchAhead,
    HugePages,
    Notes,
    WaitInPlace,
    OwnDescriptors,
    Patience,
    Wakers,
    LoneEvent,
    PlainTurn,
    Drained,
    ClockReuse,
    CoarseClock,
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
    ("wait-in-place", Trick::WaitInPlace),
    ("own-descriptors", Trick::OwnDescriptors),
    ("patience", Trick::Patience),
    ("wakers", Trick::Wakers),
    ("lone-event", Trick::LoneEvent),
    ("plain-turn", Trick::PlainTurn),
    ("drained", Trick::Drained),
    ("clock-reuse", Trick::ClockReuse),
    ("coarse-clock", Trick::CoarseClock),
];
