//! Finds scripts that block inside C (`usleep` by FFI, `os.execute`, a C module): such a call stops all sessions of its
//! load thread, and nobody would know why the figures are bad.
//!
//! Each load thread says when it enters and leaves a script; a thread of this room looks at those that have not left
//! for a while and asks the system whether they sleep.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::output::{level, tell};

/// How often the lookout looks.
const LOOK: Duration = Duration::from_millis(25);
/// A thread that sleeps in one and the same resume for so long is blocked; threads that compute do not sleep.
const BLOCKED: Duration = Duration::from_millis(50);
/// Who has not come back after this is told of without the name of what it called.
const STUCK: Duration = Duration::from_secs(2);

/// One load thread, as the lookout sees it.
#[derive(Debug)]
pub(crate) struct Post {
    thread: i32,
    /// Goes up when a script is entered and when it is left: odd within.
    steps: AtomicU64,
    /// Milliseconds that the script has been seen to sleep in this resume.
    slept_ms: AtomicU64,
}

impl Post {
    /// A script of this thread begins to run.
    #[inline]
    pub(crate) fn enter(&self) {
        // Only this thread writes: no locked instruction is needed.
        self.steps.store(self.steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// It has come back. Some: it was blocked, in milliseconds.
    #[inline]
    pub(crate) fn leave(&self) -> Option<u64> {
        self.enter();
        let slept = self.slept_ms.load(Ordering::Relaxed);
        if slept == 0 {
            return None;
        }
        self.slept_ms.store(0, Ordering::Relaxed);
        Some(slept)
    }
}

/// Watches the load threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    posts: Mutex<Vec<Arc<Post>>>,
    has_told: AtomicBool,
    is_over: AtomicBool,
    /// Where sessions are no more than threads nobody waits for a blocked one.
    sessions: u32,
}

/// The posts of all threads that have ever run a script in this process.
static POSTS: Mutex<Vec<Arc<Post>>> = Mutex::new(Vec::new());

/// The post of this thread.
pub(crate) fn post() -> Arc<Post> {
    POST.with_borrow_mut(|own| {
        own.get_or_insert_with(|| {
            // SAFETY: a plain system call.
            let thread = unsafe { libc::gettid() };
            let post = Arc::new(Post { thread, steps: AtomicU64::new(0), slept_ms: AtomicU64::new(0) });
            POSTS.lock().unwrap_or_else(PoisonError::into_inner).push(post.clone());
            post
        })
        .clone()
    })
}

/// Watches for a script that computes, or sleeps inside C, and does not come back: nothing but the end of the process
/// stops machine code of LuaJIT's, which looks at no hook.
#[derive(Debug, Default)]
pub struct Stuck {
    seen: Vec<(u64, Option<Instant>)>,
}

impl Stuck {
    /// How long the longest stay of a script has been watched by now. To be asked several times a second.
    pub fn look(&mut self) -> Duration {
        let now = Instant::now();
        let posts = POSTS.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen.resize(posts.len(), (0, None));
        let mut longest = Duration::ZERO;
        for (post, (steps, since)) in posts.iter().zip(&mut self.seen) {
            let present = post.steps.load(Ordering::Relaxed);
            let is_same_stay = present % 2 == 1 && present == *steps;
            *steps = present;
            *since = if is_same_stay { since.or(Some(now)) } else { None };
            longest = longest.max(since.map_or(Duration::ZERO, |since| now - since));
        }
        longest
    }
}

thread_local! {
    static POST: RefCell<Option<Arc<Post>>> = const { RefCell::new(None) };
}

impl Lookout {
    /// For a run with so many sessions.
    pub(crate) fn new(sessions: u32) -> Lookout {
        Lookout { sessions, ..Lookout::default() }
    }

    /// The post of this thread, looked at from now on.
    pub(crate) fn post(&self) -> Arc<Post> {
        let own = post();
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if !posts.iter().any(|post| Arc::ptr_eq(post, &own)) {
            posts.push(own.clone());
        }
        own
    }

    /// Looks until [`Lookout::end`].
    pub(crate) fn watch(&self) {
        let mut seen: Vec<(u64, Instant)> = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let now = Instant::now();
            seen.resize(posts.len(), (0, now));
            for (post, seen) in posts.iter().zip(&mut seen) {
                let steps = post.steps.load(Ordering::Relaxed);
                if steps % 2 == 0 || seen.0 != steps || !is_asleep(post.thread) {
                    *seen = (steps, now);
                    continue;
                }
                let asleep = now - seen.1;
                if asleep >= BLOCKED {
                    post.slept_ms.store(asleep.as_millis() as u64, Ordering::Relaxed);
                }
                if asleep >= STUCK {
                    self.tell(asleep.as_millis() as u64, None);
                }
            }
        }
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Says, once, that a script blocks.
    pub(crate) fn tell(&self, slept_ms: u64, function: Option<&str>) {
        let threads = self.posts.lock().unwrap_or_else(PoisonError::into_inner).len();
        if self.sessions as usize <= threads || self.has_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let function = function.map(|name| format!(", last called: ffi.C.{name}")).unwrap_or_default();
        tell(
            level::WARNING,
            &format!(
                "the script blocked inside C for {slept_ms} ms or longer{function}; the other sessions of its load \
                 thread ({} sessions on {threads} threads) waited with it. --thread-per-session gives each session a \
                 thread of its own, as sysbench does",
                self.sessions
            ),
        );
    }
}

/// Whether the system says that a thread of this process sleeps.
fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('S' | 'D'))
}
