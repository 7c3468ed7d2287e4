//! The C functions that scripts call through LuaJIT's FFI, by the names that sysbench's binary exports.
//!
//! They act on the session whose Lua is running on this thread: [`enter`] says which one before each resume.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use workload::random::{Distribution, DistributionKind, Rng, fill_template, permute};

/// Which distribution each of sysbench's names stands for, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RandomSettings {
    /// `sysbench.rand.default`
    pub default: DistributionKind,
    /// `sysbench.rand.special`
    pub special: DistributionKind,
    /// `sysbench.rand.pareto`
    pub pareto: DistributionKind,
    /// `sysbench.rand.zipfian`
    pub zipfian: DistributionKind,
}

/// What a run counts beside the load engine: reconnections, and what scripts add by `sb_counter_inc`. Shared by all
/// sessions; nothing on the way of a statement counts here.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 6]);

/// The counters, in the order of sysbench's `sb_counter_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    Other,
    Read,
    Write,
    Event,
    Error,
    Reconnect,
}

impl Counter {
    /// All of them, by their numbers.
    pub(crate) const ALL: [Counter; 6] =
        [Counter::Other, Counter::Read, Counter::Write, Counter::Event, Counter::Error, Counter::Reconnect];
}

/// What the counters stood at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted([u64; 6]);

impl Counters {
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.0[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// How they stand.
    pub(crate) fn now(&self) -> Counted {
        Counted(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

impl Counted {
    /// One of them.
    pub(crate) fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// What was added since.
    pub(crate) fn since(&self, before: &Counted) -> Counted {
        Counted(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }
}

/// What the C functions of one session act on.
#[derive(Debug)]
pub(crate) struct SessionSymbols {
    settings: RandomSettings,
    rng: Rng,
    /// The last zipfian distribution: its constants take a while to compute.
    zipfian: Option<(DistributionKind, u32, u32, Distribution)>,
    counters: Arc<Counters>,
    text: Vec<u8>,
}

impl SessionSymbols {
    /// With a generator of its own.
    pub(crate) fn new(settings: RandomSettings, rng: Rng, counters: Arc<Counters>) -> SessionSymbols {
        SessionSymbols { settings, rng, zipfian: None, counters, text: Vec::new() }
    }

    /// Draws numbers and forgets them: sysbench draws one where it files an event's latency in its histogram and two
    /// for the name of a prepared statement of PostgreSQL. Without that, scripts would not draw what they draw there.
    pub(crate) fn skip(&mut self, numbers: u32) {
        for _ in 0..numbers {
            self.rng.next_u64();
        }
    }

    fn draw(&mut self, kind: DistributionKind, a: u32, b: u32) -> u32 {
        let (low, high) = (a.min(b), a.max(b));
        if let DistributionKind::Zipfian { .. } = kind {
            match &self.zipfian {
                Some((k, l, h, _)) if (*k, *l, *h) == (kind, low, high) => {}
                _ => {
                    let Ok(made) = kind.over(u64::from(low), u64::from(high)) else { return low };
                    self.zipfian = Some((kind, low, high, made));
                }
            }
            return self.zipfian.as_ref().map_or(low, |(_, _, _, d)| d.sample(&mut self.rng) as u32);
        }
        // The parameters were checked with the command line.
        kind.over(u64::from(low), u64::from(high)).map_or(low, |d| d.sample(&mut self.rng) as u32)
    }
}

thread_local! {
    static CURRENT: Cell<*mut SessionSymbols> = const { Cell::new(std::ptr::null_mut()) };
}

/// Makes `session` the one that the C functions act on while `run` runs on this thread.
pub(crate) fn enter<R>(session: &mut SessionSymbols, run: impl FnOnce() -> R) -> R {
    struct Leave(*mut SessionSymbols);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _leave = Leave(CURRENT.replace(session));
    run()
}

fn current<R>(otherwise: R, act: impl FnOnce(&mut SessionSymbols) -> R) -> R {
    let pointer = CURRENT.get();
    // SAFETY: `enter` put it there from an exclusive borrow that lasts until it takes it away again, on this
    // thread; the C functions are leaves and never call back into Lua.
    match unsafe { pointer.as_mut() } {
        Some(session) => act(session),
        None => otherwise,
    }
}

macro_rules! distributions {
    ($($name:ident => $field:expr),* $(,)?) => {$(
        /// A number from `a` to `b`, both included.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(a: u32, b: u32) -> u32 {
            current(a, |session| {
                let choose: fn(&RandomSettings) -> DistributionKind = $field;
                let kind = choose(&session.settings);
                session.draw(kind, a, b)
            })
        }
    )*};
}

distributions! {
    sb_rand_default => |s| s.default,
    sb_rand_uniform => |_| DistributionKind::Uniform,
    sb_rand_gaussian => |_| DistributionKind::Gaussian,
    sb_rand_special => |s| s.special,
    sb_rand_pareto => |s| s.pareto,
    sb_rand_zipfian => |s| s.zipfian,
}

/// A double in [0, 1).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_rand_uniform_double() -> f64 {
    current(0.0, |session| session.rng.unit())
}

/// 64 random bits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_rand_uniform_uint64() -> u64 {
    current(0, |session| session.rng.next_u64())
}

static UNIQUE_INDEX: AtomicU32 = AtomicU32::new(0);
static UNIQUE_OFFSET: AtomicU32 = AtomicU32::new(0);

/// Seeds [`sb_rand_unique`] for the whole process.
pub(crate) fn seed_unique(index_seed: u32, offset_seed: u32) {
    UNIQUE_INDEX.store(permute(permute(index_seed).wrapping_add(0x682f_0161)), Ordering::Relaxed);
    UNIQUE_OFFSET.store(permute(permute(offset_seed).wrapping_add(0x4679_0905)), Ordering::Relaxed);
}

/// A number that no other call in this process has given, until all 2^32 are used.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_rand_unique() -> u32 {
    let index = UNIQUE_INDEX.fetch_add(1, Ordering::Relaxed);
    let offset = UNIQUE_OFFSET.load(Ordering::Relaxed);
    permute(permute(index).wrapping_add(offset) ^ 0x5bf0_3635)
}

/// Fills `out` from a template: `#` a digit, `@` a letter a-z, anything else itself. No terminating zero is counted,
/// one is written.
///
/// # Safety
/// `template` ends with a zero; `out` has room for as many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_rand_str(template: *const c_char, out: *mut c_char) {
    // SAFETY: the caller's promise.
    let template = unsafe { CStr::from_ptr(template) }.to_bytes();
    current((), |session| {
        session.text.clear();
        fill_template(&mut session.rng, template, &mut session.text);
        // SAFETY: the text is as long as the template, for which the caller has room. LuaJIT gives a buffer one
        // byte longer; the zero goes there only where the script asked for it by the template's own length.
        unsafe { std::ptr::copy_nonoverlapping(session.text.as_ptr(), out.cast(), template.len()) };
    });
}

/// Fills `out` with `least` to `most` random characters from `0` to `z` and returns how many.
///
/// # Safety
/// `out` has room for `most` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sb_rand_varstr(out: *mut c_char, least: u32, most: u32) -> u32 {
    current(0, |session| {
        if most == 0 {
            return 0;
        }
        let least = if least > most { 1 } else { least };
        let length = session.rng.uniform(u64::from(least), u64::from(most));
        for at in 0..length as usize {
            let byte = session.rng.uniform(u64::from(b'0'), u64::from(b'z')) as u8;
            // SAFETY: `at` is below `most`.
            unsafe { out.add(at).write(byte as c_char) };
        }
        length as u32
    })
}

/// Adds to a counter of the session that is running.
pub(crate) fn count(counter: Counter, amount: u64) {
    current((), |session| session.counters.add(counter, amount));
}

/// Adds one to a counter of the session that is running.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_counter_inc(thread: c_int, counter: c_int) {
    sb_counter_add(thread, counter, 1);
}

/// Adds to a counter of the session that is running.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_counter_add(_thread: c_int, counter: c_int, amount: u64) {
    if let Some(known) = usize::try_from(counter).ok().and_then(|at| Counter::ALL.get(at)) {
        count(*known, amount);
    }
}

/// An event begins. The load engine knows: nothing is to be done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_event_start(_thread: c_int) {}

/// An event ends. The load engine knows: nothing is to be done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_event_stop(_thread: c_int) {}

/// Whether there is another event. Scripts reach a function of the same name that waits for the load engine; whoever
/// calls this one from C cannot be made to wait.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_more_events(_thread: c_int) -> bool {
    crate::output::tell(
        crate::output::level::FATAL,
        "sb_more_events() works in Lua only (ffi.C.sb_more_events)",
    );
    false
}

/// How a counter of the run stands.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sb_counter_val(_thread: c_int, counter: c_int) -> u64 {
    let known = usize::try_from(counter).ok().and_then(|at| Counter::ALL.get(at));
    known.map_or(0, |known| current(0, |session| session.counters.now().of(*known)))
}

/// Every function with its address and its C prototype as a pointer type.
pub(crate) fn table() -> Vec<(&'static str, *const c_void, &'static str)> {
    const DRAW: &str = "uint32_t (*)(uint32_t, uint32_t)";
    crate::ffi::functions! {
        sb_rand_default: DRAW,
        sb_rand_uniform: DRAW,
        sb_rand_gaussian: DRAW,
        sb_rand_special: DRAW,
        sb_rand_pareto: DRAW,
        sb_rand_zipfian: DRAW,
        sb_rand_unique: "uint32_t (*)(void)",
        sb_rand_uniform_uint64: "uint64_t (*)(void)",
        sb_rand_uniform_double: "double (*)(void)",
        sb_rand_str: "void (*)(const char *, char *)",
        sb_rand_varstr: "uint32_t (*)(char *, uint32_t, uint32_t)",
        sb_counter_inc: "void (*)(int, int)",
        sb_counter_val: "uint64_t (*)(int, int)",
        sb_counter_add: "void (*)(int, int, uint64_t)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionSymbols {
        let settings = RandomSettings {
            default: DistributionKind::SPECIAL,
            special: DistributionKind::SPECIAL,
            pareto: DistributionKind::PARETO,
            zipfian: DistributionKind::ZIPFIAN,
        };
        SessionSymbols::new(settings, Rng::stream(1, 1), Arc::default())
    }

    #[test]
    fn functions_act_on_the_session_that_is_running() {
        let (mut one, mut other) = (session(), session());
        let first = enter(&mut one, || sb_rand_uniform(1, 1_000_000));
        let nested = enter(&mut one, || {
            enter(&mut other, || sb_counter_inc(0, 4));
            sb_rand_uniform(1, 1_000_000)
        });
        assert_ne!(first, nested);
        let errors = |session: &SessionSymbols| session.counters.now().of(Counter::Error);
        assert_eq!((errors(&one), errors(&other)), (0, 1));
        // Outside of any session the functions are harmless.
        assert_eq!(sb_rand_uniform(7, 9), 7);
    }

    #[test]
    fn unique_numbers_are_unique() {
        seed_unique(1, 2);
        let drawn: std::collections::BTreeSet<u32> = (0..100_000).map(|_| sb_rand_unique()).collect();
        assert_eq!(drawn.len(), 100_000);
    }

    #[test]
    fn templates_are_filled() {
        let mut out = [0_u8; 8];
        // SAFETY: eight bytes for eight.
        enter(&mut session(), || unsafe { sb_rand_str(c"###-@@@x".as_ptr(), out.as_mut_ptr().cast()) });
        assert!(out[..3].iter().all(u8::is_ascii_digit) && out[4..7].iter().all(u8::is_ascii_lowercase));
        assert_eq!((out[3], out[7]), (b'-', b'x'));
    }
}
