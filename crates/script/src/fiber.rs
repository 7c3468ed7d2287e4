//! A script runs on a stack of its own and may wait for a server wherever it is: what it asks for suspends the stack,
//! and whoever resumed it sees to the request.
//!
//! To Lua a request is a C function that takes its time. So events stay whole in LuaJIT's traces, as they do in
//! sysbench, and scripts may wait inside `pcall`, iterators and coroutines of their own.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::error::Error;
use crate::host::{Answer as Done, Problem, Results, closed};

/// Room for a script's C stack: LuaJIT's compiler and nested calls of Lua's library take some tens of KiB. Only what is
/// used takes memory.
const STACK_BYTES: usize = 256 << 10;

/// What a script wants while it waits.
#[derive(Debug)]
pub(crate) enum Wants {
    /// It has ended.
    Nothing,
    /// To know whether there is another event.
    Event,
    /// A prepared statement executed: connection and statement.
    Execute(usize, usize),
    /// A connection of a driver.
    Connect(String),
    /// A connection closed.
    Disconnect(usize),
    /// A connection opened again.
    Reconnect(usize),
    /// Statements run as text.
    Query(usize, Text),
    /// A statement prepared.
    Prepare(usize, String),
    /// Parameters of a statement: connection, statement and addresses.
    Bind(usize, usize, Vec<usize>),
    /// A statement closed: connection and statement.
    Close(usize, usize),
    /// The next result of several statements.
    NextResult(usize),
    /// The event run again: the error's code and words.
    Restart(String, String),
}

/// A text in the script's memory, which stays there while the script waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(*const [u8]);

impl Text {
    /// A text that stays where it is while the script waits.
    pub(crate) fn of(bytes: &[u8]) -> Text {
        Text(bytes)
    }

    /// The text, with what is no UTF-8 replaced.
    ///
    /// # Safety
    /// The script that asked is still waiting.
    pub(crate) unsafe fn get<'a>(self) -> std::borrow::Cow<'a, str> {
        // SAFETY: the caller's promise; the string is an argument of the function that waits.
        String::from_utf8_lossy(unsafe { &*self.0 })
    }
}

/// What a script gets for its request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing, which for requests of a result means that there is none.
    Nothing,
    /// Whether there is another event.
    Flag(bool),
    /// The number of a connection or a statement.
    Id(usize),
    /// A statement's rows, fields and the number of its kept result.
    Done(Done),
    /// What went wrong.
    Problem(Box<Problem>),
}

impl From<Problem> for Answer {
    #[cold]
    fn from(problem: Problem) -> Answer {
        Answer::Problem(Box::new(problem))
    }
}

/// Numbers of the requests, by which the glue calls [`ask`].
mod request {
    use std::ffi::c_int;
    pub(super) const CONNECT: c_int = 1;
    pub(super) const DISCONNECT: c_int = 2;
    pub(super) const RECONNECT: c_int = 3;
    pub(super) const QUERY: c_int = 4;
    pub(super) const PREPARE: c_int = 5;
    pub(super) const BIND: c_int = 6;
    pub(super) const EXECUTE: c_int = 7;
    pub(super) const CLOSE: c_int = 8;
    pub(super) const NEXT_RESULT: c_int = 9;
    pub(super) const MORE: c_int = 20;
    pub(super) const RESTART: c_int = 21;
}

/// The same by their names, for the glue.
pub(crate) const REQUESTS: [(&str, c_int); 11] = [
    ("CONNECT", request::CONNECT),
    ("DISCONNECT", request::DISCONNECT),
    ("RECONNECT", request::RECONNECT),
    ("QUERY", request::QUERY),
    ("PREPARE", request::PREPARE),
    ("BIND", request::BIND),
    ("EXECUTE", request::EXECUTE),
    ("CLOSE", request::CLOSE),
    ("NEXT_RESULT", request::NEXT_RESULT),
    ("MORE", request::MORE),
    ("RESTART", request::RESTART),
];

/// What [`ask`] returns where something went wrong.
const FAILED: f64 = -1.0;
/// What [`ask`] returns where there is nothing.
const NOTHING: f64 = -2.0;

/// The part of an answer that does not fit into a number: `plimsoll_answer` of `lua/sysbench.lua`.
#[repr(C)]
pub(crate) struct Rest {
    fields: f64,
    handle: f64,
}

/// What C functions of a script act on without waiting.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// Rows that it may fetch.
    pub results: Rc<RefCell<Results>>,
    /// `--db-driver`
    pub driver: String,
}

/// What the functions that a script calls know of its fiber.
#[derive(Default)]
struct Link {
    yielder: Cell<*const Yielder<Answer, Wants>>,
    problem: Cell<Option<Box<Problem>>>,
    last_c: RefCell<String>,
    surroundings: Surroundings,
}

thread_local! {
    /// Of the fiber that runs on this thread.
    static RUNNING: Cell<*const Link> = const { Cell::new(std::ptr::null()) };
}

fn running<'a>() -> Option<&'a Link> {
    // SAFETY: `resume` put it there from a link that it holds until it takes it away again, on this thread.
    unsafe { RUNNING.get().as_ref() }
}

/// A stack that begins somewhere else in its first page than others do: the parts in use of hundreds of stacks would
/// otherwise meet in the same few places of the processor's caches.
struct Shifted {
    stack: DefaultStack,
    base: StackPointer,
}

impl Shifted {
    fn new() -> std::io::Result<Shifted> {
        static STACKS: AtomicUsize = AtomicUsize::new(0);
        let stack = DefaultStack::new(STACK_BYTES)?;
        // Seventeen lines of 64 bytes further each time.
        let shift = STACKS.fetch_add(1, Ordering::Relaxed).wrapping_mul(17 * 64) % 4096;
        let base = StackPointer::new(stack.base().get() - shift).unwrap_or(stack.base());
        Ok(Shifted { stack, base })
    }
}

// SAFETY: the stack's own limits, a little less of it.
unsafe impl Stack for Shifted {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

/// A script on its way.
pub(crate) struct Fiber {
    coroutine: Coroutine<Answer, Wants, Result<(), Error>, Shifted>,
    link: Rc<Link>,
}

impl Fiber {
    /// A script that will run at the first [`Fiber::resume`].
    ///
    /// # Errors
    /// The system has no memory, or allows no more mappings, for its stack.
    pub(crate) fn new(
        surroundings: Surroundings,
        run: impl FnOnce() -> Result<(), Error> + 'static,
    ) -> Result<Fiber, Error> {
        let stack = Shifted::new().map_err(|source| {
            Error::Script(format!(
                "no stack for another script: {source} (each takes {STACK_BYTES} bytes of address space and two \
                 mappings, of which the sysctl vm.max_map_count allows so many)"
            ))
        })?;
        let link = Rc::new(Link { surroundings, ..Link::default() });
        let inner = link.clone();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<Answer, Wants>, _| {
            inner.yielder.set(yielder);
            run()
        });
        Ok(Fiber { coroutine, link })
    }

    /// Runs the script until it wants something. Nothing else may touch its Lua state before it has ended.
    ///
    /// # Errors
    /// The script's own.
    pub(crate) fn resume(&mut self, answer: Answer) -> Result<Wants, Error> {
        struct Leave(*const Link);
        impl Drop for Leave {
            fn drop(&mut self) {
                RUNNING.set(self.0);
            }
        }
        let _leave = Leave(RUNNING.replace(Rc::as_ptr(&self.link)));
        match self.coroutine.resume(answer) {
            CoroutineResult::Yield(wants) => Ok(wants),
            CoroutineResult::Return(ended) => ended.map(|()| Wants::Nothing),
        }
    }

    /// Whether the script is somewhere on its way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.coroutine.started() && !self.coroutine.done()
    }

    /// The last function of C's that the script looked up, if any.
    pub(crate) fn last_c_function(&self) -> Option<String> {
        Some(self.link.last_c.borrow().clone()).filter(|name| !name.is_empty())
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        if self.is_waiting() {
            // SAFETY: what lies on the stack is LuaJIT's frames, through which nothing could unwind, and below them
            // references to the Lua state, which is therefore not freed: a leak at the end of an aborted run.
            unsafe { self.coroutine.force_reset() };
        }
    }
}

/// Hands a request to whoever drives the fiber and waits for the answer: a number, [`FAILED`] or [`NOTHING`].
///
/// # Safety
/// `text` points to `length` bytes, `rest` to a place for the rest of an answer.
unsafe extern "C" fn ask(
    operation: c_int,
    a: f64,
    b: f64,
    text: *const c_char,
    length: usize,
    rest: *mut Rest,
) -> f64 {
    // SAFETY: the caller's promise.
    let Some(wants) = (unsafe { wanted(operation, a, b, text.cast(), length) }) else { return FAILED };
    match wait(wants) {
        Answer::Nothing => NOTHING,
        Answer::Flag(flag) => f64::from(u8::from(flag)),
        Answer::Id(id) => id as f64,
        Answer::Done(done) => {
            // SAFETY: the caller's promise.
            unsafe { rest.write(Rest { fields: done.fields as f64, handle: done.handle as f64 }) };
            done.rows as f64
        }
        Answer::Problem(problem) => {
            if let Some(link) = running() {
                link.problem.set(Some(problem));
            }
            FAILED
        }
    }
}

/// Suspends the script that runs on this thread until its request is answered. Where none runs everything is closed.
pub(crate) fn wait(wants: Wants) -> Answer {
    match running() {
        // SAFETY: the fiber that runs has set it, and stays where it is while it runs.
        Some(link) => unsafe { &*link.yielder.get() }.suspend(wants),
        None => closed().into(),
    }
}

/// Lends what C functions act on; none where no script runs.
pub(crate) fn surroundings<R>(act: impl FnOnce(&Surroundings) -> R) -> Option<R> {
    running().map(|link| act(&link.surroundings))
}

/// # Safety
/// `text` points to `length` bytes.
#[inline]
unsafe fn wanted(operation: c_int, a: f64, b: f64, text: *const u8, length: usize) -> Option<Wants> {
    let (first, second) = (a as usize, b as usize);
    match operation {
        request::EXECUTE => return Some(Wants::Execute(first, second)),
        request::MORE => return Some(Wants::Event),
        _ => {}
    }
    // SAFETY: the caller's promise.
    let bytes = if text.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(text, length) } };
    let words = || String::from_utf8_lossy(bytes).into_owned();
    Some(match operation {
        request::CONNECT => Wants::Connect(words()),
        request::DISCONNECT => Wants::Disconnect(first),
        request::RECONNECT => Wants::Reconnect(first),
        request::QUERY => Wants::Query(first, Text::of(bytes)),
        request::PREPARE => Wants::Prepare(first, words()),
        request::BIND => {
            let (addresses, _) = bytes.as_chunks();
            let addresses = addresses.iter().map(|bytes| usize::from_ne_bytes(*bytes));
            Wants::Bind(first, second, addresses.collect())
        }
        request::CLOSE => Wants::Close(first, second),
        request::NEXT_RESULT => Wants::NextResult(first),
        request::RESTART => {
            let words = words();
            let (code, words) = words.split_once('\n').unwrap_or((&words, ""));
            Wants::Restart(code.to_owned(), words.to_owned())
        }
        _ => return None,
    })
}

/// Keeps the name of a function of C's that the script looks up.
///
/// # Safety
/// `name` ends with a zero.
unsafe extern "C" fn note_c(name: *const c_char) {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Some(link) = running() {
        name.as_ref().clone_into(&mut link.last_c.borrow_mut());
    }
}

/// What went wrong with the last request of the script that runs.
pub(crate) fn problem() -> Option<Box<Problem>> {
    running().and_then(|link| link.problem.take())
}

/// The functions of this file, for the glue.
pub(crate) fn table() -> [(&'static str, *const c_void); 2] {
    [("plimsoll_ask", ask as *const c_void), ("plimsoll_note_c", note_c as *const c_void)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(operation: c_int, a: f64, b: f64, text: &str) -> (f64, f64) {
        let mut rest = Rest { fields: 0.0, handle: 0.0 };
        // SAFETY: as `ask` wants it.
        let answer = unsafe { ask(operation, a, b, text.as_ptr().cast(), text.len(), &mut rest) };
        (answer, rest.fields)
    }

    #[test]
    fn requests_go_out_and_answers_come_back() {
        let mut fiber = Fiber::new(Surroundings::default(), || {
            assert_eq!(asks(request::EXECUTE, 3.0, 4.0, ""), (7.0, 2.0));
            assert_eq!(asks(request::QUERY, 1.0, 0.0, "select 1").0, NOTHING);
            assert_eq!(asks(request::RESTART, 0.0, 0.0, "1213\nDeadlock").0, 1.0);
            Ok(())
        })
        .unwrap();
        assert!(matches!(fiber.resume(Answer::Nothing), Ok(Wants::Execute(3, 4))));
        let Ok(Wants::Query(1, text)) = fiber.resume(Answer::Done(Done { rows: 7, fields: 2, handle: 0 }))
        else {
            panic!("no query")
        };
        // SAFETY: the fiber waits.
        assert_eq!(unsafe { text.get() }, "select 1");
        let Ok(Wants::Restart(code, words)) = fiber.resume(Answer::Nothing) else { panic!("no restart") };
        assert_eq!((code.as_str(), words.as_str()), ("1213", "Deadlock"));
        assert!(fiber.is_waiting());
        assert!(matches!(fiber.resume(Answer::Flag(true)), Ok(Wants::Nothing)));
        assert!(!fiber.is_waiting());
    }

    #[test]
    fn each_fiber_has_its_own_answers() {
        let waiting = |id: f64| {
            move || {
                assert_eq!(asks(request::MORE, 0.0, 0.0, "").0, id);
                assert_eq!(asks(request::CONNECT, 0.0, 0.0, "mysql").0, FAILED);
                assert_eq!(problem().unwrap().text, id.to_string());
                Ok(())
            }
        };
        let mut fibers: Vec<Fiber> =
            (0..100).map(|id| Fiber::new(Surroundings::default(), waiting(f64::from(id))).unwrap()).collect();
        for fiber in &mut fibers {
            assert!(matches!(fiber.resume(Answer::Nothing), Ok(Wants::Event)));
        }
        for (id, fiber) in fibers.iter_mut().enumerate().rev() {
            assert!(matches!(fiber.resume(Answer::Id(id)), Ok(Wants::Connect(driver)) if driver == "mysql"));
        }
        for (id, fiber) in fibers.iter_mut().enumerate() {
            let problem = Problem {
                number: 0,
                state: String::new(),
                text: id.to_string(),
                is_ignorable: false,
                wants_reconnect: false,
            };
            assert!(matches!(fiber.resume(Answer::Problem(Box::new(problem))), Ok(Wants::Nothing)));
        }
    }

    #[test]
    fn a_fiber_may_be_left_waiting() {
        let mut fiber = Fiber::new(Surroundings::default(), || {
            asks(request::MORE, 0.0, 0.0, "");
            panic!("never resumed");
        })
        .unwrap();
        assert!(matches!(fiber.resume(Answer::Nothing), Ok(Wants::Event)));
        drop(fiber);
        assert_eq!(asks(request::MORE, 0.0, 0.0, "").0, FAILED);
    }
}
