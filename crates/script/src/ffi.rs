//! The `db_*` functions that scripts call through FFI, by the names and with the structures that sysbench's binary
//! exports. A script that calls one waits on its own stack, as everywhere ([`crate::fiber`]).
//!
//! Every pointer that a script passes is looked up among those that were given to it: one that is none, or that was
//! freed, is told and refused.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};

use crate::fiber::{Answer, Text, Wants, surroundings, wait};
use crate::host::{Answer as Done, Param, Problem};
use crate::output::{level, tell};
use crate::symbols::{Counter, count};

#[repr(C)]
pub(crate) struct SqlDriver {
    sname: *const c_char,
    lname: *const c_char,
}

// SAFETY: it points to constants.
unsafe impl Sync for SqlDriver {}

static MYSQL: SqlDriver = SqlDriver { sname: c"mysql".as_ptr(), lname: c"MySQL driver".as_ptr() };
static PGSQL: SqlDriver = SqlDriver { sname: c"pgsql".as_ptr(), lname: c"PostgreSQL driver".as_ptr() };

/// `sql_connection`: what scripts may read, then what is ours.
#[repr(C)]
pub(crate) struct SqlConnection {
    error: c_int,
    sql_errno: c_int,
    sql_state: *const c_char,
    sql_errmsg: *const c_char,
    driver: *const SqlDriver,
    /// Number of the connection at the host; Lua reads it.
    id: u64,
    /// Made for a connection of the Lua API, which closes it.
    is_borrowed: bool,
    is_closed: bool,
    state: CString,
    text: CString,
    bulk: Option<Bulk>,
}

/// Rows of a bulk insert that wait to be sent.
struct Bulk {
    head: Vec<u8>,
    statement: Vec<u8>,
    rows: usize,
}

/// Statements of bulk inserts are no longer than this.
const BULK_BYTES: usize = 512 * 1024;

#[repr(C)]
pub(crate) struct SqlStatement {
    connection: *mut SqlConnection,
    id: usize,
    slots: Vec<Slot>,
}

/// A parameter of a statement.
struct Slot {
    bind: SqlBind,
    /// What the host reads; boxed, because it keeps the address.
    param: Box<Param>,
    /// A date or time as text.
    text: String,
}

#[repr(C)]
pub(crate) struct SqlValue {
    len: u32,
    ptr: *const c_char,
}

#[repr(C)]
pub(crate) struct SqlRow {
    ptr: *mut c_void,
    values: *mut SqlValue,
}

/// `sql_result`: what scripts may read, then what is ours.
#[repr(C)]
pub(crate) struct SqlResult {
    counter: c_int,
    nrows: u32,
    nfields: u32,
    statement: *mut SqlStatement,
    ptr: *mut c_void,
    row: SqlRow,
    connection: usize,
    handle: usize,
    at: usize,
    cells: Vec<Option<Vec<u8>>>,
    values: Vec<SqlValue>,
}

/// `sql_bind`: the script's own memory for a parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SqlBind {
    kind: c_int,
    buffer: *mut c_void,
    data_len: *mut c_ulong,
    max_len: c_ulong,
    is_null: *mut c_char,
}

/// A date or time as scripts bind it.
#[repr(C)]
struct SqlTime {
    year: c_uint,
    month: c_uint,
    day: c_uint,
    hour: c_uint,
    minute: c_uint,
    second: c_uint,
}

/// `drv_caps_t`.
#[repr(C)]
pub(crate) struct SqlCapabilities {
    multi_rows_insert: c_char,
    prepared_statements: c_char,
    auto_increment: c_char,
    needs_commit: c_char,
    serial: c_char,
    unsigned_int: c_char,
}

thread_local! {
    /// What scripts of this thread hold: connections, statements, results.
    static HELD: RefCell<HashSet<usize>> = RefCell::default();
}

/// Hands an object to the script.
fn give<T>(object: T) -> *mut T {
    let pointer = Box::into_raw(Box::new(object));
    HELD.with_borrow_mut(|held| held.insert(pointer as usize));
    pointer
}

/// An object that was given to the script and not taken back.
fn held<'a, T>(pointer: *mut T) -> Option<&'a mut T> {
    let is_held = HELD.with_borrow(|held| held.contains(&(pointer as usize)));
    // SAFETY: `give` made it and nothing has freed it; scripts call one function at a time.
    if is_held { unsafe { pointer.as_mut() } } else { None }
}

/// Takes an object back.
fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    let was_held = HELD.with_borrow_mut(|held| held.remove(&(pointer as usize)));
    // SAFETY: as above; it is forgotten from here on.
    was_held.then(|| unsafe { Box::from_raw(pointer) })
}

/// An open connection of the script.
fn open<'a>(connection: *mut SqlConnection) -> Option<&'a mut SqlConnection> {
    let found = held(connection).filter(|connection| !connection.is_closed);
    if found.is_none() {
        tell(level::ALERT, "attempt to use an already closed connection");
    }
    found
}

/// # Safety
/// `text` points to `length` bytes.
unsafe fn bytes<'a>(text: *const c_char, length: usize) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(text.cast(), length) }
}

impl SqlConnection {
    fn new(id: usize, driver: *const SqlDriver, is_borrowed: bool) -> SqlConnection {
        let (state, text) = (CString::default(), CString::default());
        SqlConnection {
            error: 0,
            sql_errno: 0,
            sql_state: state.as_ptr(),
            sql_errmsg: text.as_ptr(),
            driver,
            id: id as u64,
            is_borrowed,
            is_closed: false,
            state,
            text,
            bulk: None,
        }
    }

    fn id(&self) -> usize {
        self.id as usize
    }

    /// Keeps an error for the script to read, and mends what can be mended.
    fn fail(&mut self, problem: &Problem) {
        self.error = if problem.is_ignorable { 1 } else { 2 };
        self.sql_errno = problem.number.into();
        let c_text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        (self.state, self.text) = (c_text(&problem.state), c_text(&problem.text));
        (self.sql_state, self.sql_errmsg) = (self.state.as_ptr(), self.text.as_ptr());
        if problem.is_ignorable {
            count(Counter::Error, 1);
            if problem.wants_reconnect && is_problem(&wait(Wants::Reconnect(self.id()))) {
                self.error = 2;
            }
        }
    }

    /// Sends a statement; a result is for the script only if there are rows.
    fn query(&mut self, sql: &[u8]) -> Option<Done> {
        let answer = wait(Wants::Query(self.id(), Text::of(sql)));
        self.done(answer)
    }

    /// What a statement gave; none, and the error kept, where it failed.
    fn done(&mut self, answer: Answer) -> Option<Done> {
        match answer {
            Answer::Done(done) => {
                self.error = 0;
                Some(done)
            }
            Answer::Problem(problem) => {
                self.fail(&problem);
                None
            }
            Answer::Nothing | Answer::Flag(_) | Answer::Id(_) => None,
        }
    }

    fn flush(&mut self) -> bool {
        let Some(bulk) = &mut self.bulk else { return true };
        if bulk.rows == 0 {
            return true;
        }
        let statement = std::mem::replace(&mut bulk.statement, bulk.head.clone());
        bulk.rows = 0;
        self.query(&statement).is_some()
    }
}

fn is_problem(answer: &Answer) -> bool {
    matches!(answer, Answer::Problem(_))
}

fn result_of(connection: &SqlConnection, statement: *mut SqlStatement, done: Option<Done>) -> *mut SqlResult {
    let Some(done) = done.filter(|done| done.fields > 0) else { return std::ptr::null_mut() };
    give(SqlResult {
        counter: Counter::Read as c_int,
        nrows: u32::try_from(done.rows).unwrap_or(u32::MAX),
        nfields: done.fields as u32,
        statement,
        ptr: std::ptr::null_mut(),
        row: SqlRow { ptr: std::ptr::null_mut(), values: std::ptr::null_mut() },
        connection: connection.id(),
        handle: done.handle,
        at: 0,
        cells: Vec::new(),
        values: Vec::new(),
    })
}

/// A driver by name; NULL stands for `--db-driver`.
///
/// # Safety
/// `name` is NULL or ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_create(name: *const c_char) -> *const SqlDriver {
    let name = if name.is_null() {
        surroundings(|around| around.driver.clone()).unwrap_or_default()
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    };
    match name.as_str() {
        "mysql" => &MYSQL,
        "pgsql" => &PGSQL,
        other => {
            tell(level::FATAL, &format!("invalid database driver name: '{other}'"));
            std::ptr::null()
        }
    }
}

/// Drivers are constants: nothing is to be done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_destroy(_driver: *const SqlDriver) -> c_int {
    0
}

/// What a driver can do.
///
/// # Safety
/// `capabilities` points to such a structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_describe(
    driver: *const SqlDriver,
    capabilities: *mut SqlCapabilities,
) -> c_int {
    let is_mysql = std::ptr::eq(driver, &MYSQL);
    // SAFETY: the caller's promise.
    let Some(capabilities) = (unsafe { capabilities.as_mut() }) else { return 1 };
    *capabilities = SqlCapabilities {
        multi_rows_insert: 1,
        prepared_statements: 1,
        auto_increment: is_mysql.into(),
        needs_commit: 0,
        serial: (!is_mysql).into(),
        unsigned_int: is_mysql.into(),
    };
    0
}

/// Opens a connection; NULL where there is none to be had, which is told.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_connection_create(driver: *const SqlDriver) -> *mut SqlConnection {
    let name = if std::ptr::eq(driver, &PGSQL) { "pgsql" } else { "mysql" };
    match wait(Wants::Connect(name.to_owned())) {
        Answer::Id(id) => give(SqlConnection::new(id, driver, false)),
        _ => std::ptr::null_mut(),
    }
}

/// The structure of a connection that the Lua API has opened; not sysbench's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn plimsoll_connection(id: u32, is_mysql: bool) -> *mut SqlConnection {
    give(SqlConnection::new(id as usize, if is_mysql { &MYSQL } else { &PGSQL }, true))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_connection_close(connection: *mut SqlConnection) -> c_int {
    let Some(connection) = held(connection).filter(|connection| !connection.is_closed) else {
        tell(level::ALERT, "attempt to close an already closed connection");
        return 0;
    };
    connection.is_closed = true;
    wait(Wants::Disconnect(connection.id()));
    0
}

/// Closes a connection and opens it again. sysbench answers 1, for "ignorable", where it worked.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_connection_reconnect(connection: *mut SqlConnection) -> c_int {
    let Some(connection) = open(connection) else { return 2 };
    if is_problem(&wait(Wants::Reconnect(connection.id()))) { 2 } else { 1 }
}

/// Frees the structure of a connection, and closes it if that has not been done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_connection_free(connection: *mut SqlConnection) {
    let Some(connection) = take(connection) else { return };
    // Where the garbage collector comes when the session is gone, its connections are gone, too: nobody waits then.
    if !connection.is_closed && !connection.is_borrowed {
        wait(Wants::Disconnect(connection.id()));
    }
}

/// Sends a statement. NULL without rows or with an error, which the connection's `error` tells apart.
///
/// # Safety
/// `query` points to `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_query(
    connection: *mut SqlConnection,
    query: *const c_char,
    length: usize,
) -> *mut SqlResult {
    let Some(connection) = open(connection) else { return std::ptr::null_mut() };
    // SAFETY: the caller's promise.
    let done = connection.query(unsafe { bytes(query, length) });
    result_of(connection, std::ptr::null_mut(), done)
}

/// Whether a query of several statements has more results.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_more_results(connection: *mut SqlConnection) -> bool {
    let Some(connection) = open(connection) else { return false };
    surroundings(|around| around.results.borrow().more.get(connection.id()).copied())
        .flatten()
        .unwrap_or(false)
}

/// The next result of a query of several statements.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_next_result(connection: *mut SqlConnection) -> *mut SqlResult {
    let Some(connection) = open(connection) else { return std::ptr::null_mut() };
    let answer = wait(Wants::NextResult(connection.id()));
    let done = connection.done(answer);
    result_of(connection, std::ptr::null_mut(), done)
}

/// The next row of a result, or NULL after the last one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_fetch_row(result: *mut SqlResult) -> *mut SqlRow {
    let Some(result) = held(result) else { return std::ptr::null_mut() };
    result.at += 1;
    let cells = surroundings(|around| {
        around.results.borrow().row(result.connection, result.handle, result.at).map(<[_]>::to_vec)
    });
    let Some(cells) = cells.flatten() else { return std::ptr::null_mut() };
    result.cells = cells;
    result.values.clear();
    result.values.extend(result.cells.iter().map(|cell| match cell {
        Some(bytes) => SqlValue { len: bytes.len() as u32, ptr: bytes.as_ptr().cast() },
        None => SqlValue { len: 0, ptr: std::ptr::null() },
    }));
    result.row.values = result.values.as_mut_ptr();
    &mut result.row
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_free_results(result: *mut SqlResult) -> c_int {
    let Some(result) = take(result) else {
        tell(level::ALERT, "attempt to free an invalid result set");
        return 1;
    };
    surroundings(|around| around.results.borrow_mut().free(result.connection, result.handle));
    0
}

/// Results are always read whole.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_store_results(_result: *mut SqlResult) -> c_int {
    0
}

/// Prepares a statement; NULL with an error.
///
/// # Safety
/// `query` points to `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_prepare(
    connection: *mut SqlConnection,
    query: *const c_char,
    length: usize,
) -> *mut SqlStatement {
    let pointer = connection;
    let Some(connection) = open(connection) else { return std::ptr::null_mut() };
    // SAFETY: the caller's promise.
    let sql = String::from_utf8_lossy(unsafe { bytes(query, length) }).into_owned();
    match wait(Wants::Prepare(connection.id(), sql)) {
        Answer::Id(id) => give(SqlStatement { connection: pointer, id, slots: Vec::new() }),
        other => {
            connection.done(other);
            std::ptr::null_mut()
        }
    }
}

/// Binds the script's memory to the parameters; it is read at each execution. 0 where that worked.
///
/// # Safety
/// `params` points to `count` structures, whose memory lives as long as the statement can be executed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_bind_param(
    statement: *mut SqlStatement,
    params: *const SqlBind,
    count: usize,
) -> c_int {
    let Some(statement) = held(statement) else { return 1 };
    let Some(connection) = open(statement.connection) else { return 1 };
    let binds = match params.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(params, count) },
    };
    let slot =
        |bind: &SqlBind| Slot { bind: *bind, param: Box::new(empty_param(bind.kind)), text: String::new() };
    statement.slots = binds.iter().map(slot).collect();
    let addresses: Vec<usize> =
        statement.slots.iter().map(|slot| std::ptr::from_ref::<Param>(&slot.param) as usize).collect();
    // The statement keeps the parameters in boxes until it is closed.
    match wait(Wants::Bind(connection.id(), statement.id, addresses)) {
        Answer::Problem(problem) => {
            connection.fail(&problem);
            1
        }
        _ => 0,
    }
}

/// Accepted: rows of prepared statements cannot be fetched, as in sysbench.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_bind_result(
    _statement: *mut SqlStatement,
    _binds: *const SqlBind,
    _count: usize,
) -> c_int {
    0
}

/// Executes a prepared statement, as [`db_query`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_execute(statement: *mut SqlStatement) -> *mut SqlResult {
    let pointer = statement;
    let Some(statement) = held(statement) else {
        tell(level::ALERT, "attempt to execute an invalid prepared statement");
        return std::ptr::null_mut();
    };
    let Some(connection) = open(statement.connection) else { return std::ptr::null_mut() };
    for slot in &mut statement.slots {
        // SAFETY: `db_bind_param` was promised that the memory lives.
        unsafe { fill(slot) };
    }
    let answer = wait(Wants::Execute(connection.id(), statement.id));
    let done = connection.done(answer);
    result_of(connection, pointer, done)
}

/// Closes a prepared statement.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_close(statement: *mut SqlStatement) -> c_int {
    let Some(statement) = take(statement) else { return 1 };
    if let Some(connection) = held(statement.connection) {
        wait(Wants::Close(connection.id(), statement.id));
    }
    0
}

/// Begins a bulk insert.
///
/// # Safety
/// `head` points to `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_bulk_insert_init(
    connection: *mut SqlConnection,
    head: *const c_char,
    length: usize,
) -> c_int {
    let Some(connection) = open(connection) else { return 1 };
    // SAFETY: the caller's promise.
    let head = unsafe { bytes(head, length) }.to_vec();
    connection.bulk = Some(Bulk { statement: head.clone(), head, rows: 0 });
    0
}

/// Adds a row, and sends what has been gathered where it would become too long.
///
/// # Safety
/// `row` points to `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn db_bulk_insert_next(
    connection: *mut SqlConnection,
    row: *const c_char,
    length: usize,
) -> c_int {
    let Some(connection) = open(connection) else { return 1 };
    let Some(bulk) = &connection.bulk else {
        tell(level::ALERT, "attempt to call bulk_insert_next() before bulk_insert_init()");
        return 1;
    };
    if bulk.statement.len() + length + 1 + usize::from(bulk.rows > 0) > BULK_BYTES
        && bulk.rows > 0
        && !connection.flush()
    {
        return 1;
    }
    let Some(bulk) = &mut connection.bulk else { return 1 };
    if bulk.rows > 0 {
        bulk.statement.push(b',');
    }
    // SAFETY: the caller's promise.
    bulk.statement.extend_from_slice(unsafe { bytes(row, length) });
    bulk.rows += 1;
    0
}

/// Sends the rest of a bulk insert.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn db_bulk_insert_done(connection: *mut SqlConnection) -> c_int {
    let Some(connection) = open(connection) else { return 1 };
    let is_sent = connection.flush();
    connection.bulk = None;
    c_int::from(!is_sent)
}

/// Numbers of `sql_bind_type_t`.
mod kind {
    pub(super) const TINYINT: i32 = 1;
    pub(super) const SMALLINT: i32 = 2;
    pub(super) const INT: i32 = 3;
    pub(super) const BIGINT: i32 = 4;
    pub(super) const FLOAT: i32 = 5;
    pub(super) const DOUBLE: i32 = 6;
    pub(super) const TIME: i32 = 7;
    pub(super) const DATE: i32 = 8;
    pub(super) const TIMESTAMP: i32 = 10;
}

fn empty_param(kind: c_int) -> Param {
    let kind = match kind {
        kind::TINYINT..=kind::BIGINT => 2,
        kind::FLOAT | kind::DOUBLE => 3,
        _ => 4,
    };
    Param { whole: 0, real: 0.0, text: std::ptr::null(), length: 0, kind, is_null: 1 }
}

/// Reads the script's memory.
///
/// # Safety
/// The structure's pointers are NULL or point to what its kind says.
unsafe fn fill(slot: &mut Slot) {
    let (bind, param) = (&slot.bind, &mut slot.param);
    // SAFETY: the caller's promise.
    let is_null = bind.buffer.is_null() || unsafe { bind.is_null.as_ref() }.is_some_and(|flag| *flag != 0);
    param.is_null = is_null.into();
    if is_null {
        return;
    }
    // SAFETY: the caller's promise; scripts' buffers need not be aligned.
    unsafe {
        match bind.kind {
            kind::TINYINT => param.whole = bind.buffer.cast::<i8>().read_unaligned().into(),
            kind::SMALLINT => param.whole = bind.buffer.cast::<i16>().read_unaligned().into(),
            kind::INT => param.whole = bind.buffer.cast::<i32>().read_unaligned().into(),
            kind::BIGINT => param.whole = bind.buffer.cast::<i64>().read_unaligned(),
            kind::FLOAT => param.real = bind.buffer.cast::<f32>().read_unaligned().into(),
            kind::DOUBLE => param.real = bind.buffer.cast::<f64>().read_unaligned(),
            kind::TIME..=kind::TIMESTAMP => {
                slot.text = time_text(bind.kind, &bind.buffer.cast::<SqlTime>().read_unaligned());
                param.text = slot.text.as_ptr();
                param.length = slot.text.len() as u32;
            }
            _ => {
                param.text = bind.buffer.cast();
                param.length = bind.data_len.as_ref().copied().unwrap_or(bind.max_len) as u32;
            }
        }
    }
}

fn time_text(kind: c_int, at: &SqlTime) -> String {
    let date = || format!("{:04}-{:02}-{:02}", at.year, at.month, at.day);
    let time = || format!("{:02}:{:02}:{:02}", at.hour, at.minute, at.second);
    match kind {
        kind::TIME => time(),
        kind::DATE => date(),
        _ => format!("{} {}", date(), time()),
    }
}

/// Functions with their names, their addresses and their C prototypes as pointer types.
macro_rules! functions {
    ($($name:ident: $prototype:expr,)*) => {
        vec![$((stringify!($name), $name as *const c_void, $prototype)),*]
    };
}
pub(crate) use functions;

/// All of this file.
pub(crate) fn table() -> Vec<(&'static str, *const c_void, &'static str)> {
    functions! {
        db_create: "sql_driver *(*)(const char *)",
        db_destroy: "int (*)(sql_driver *)",
        db_describe: "int (*)(sql_driver *, void *)",
        db_connection_create: "sql_connection *(*)(sql_driver *)",
        plimsoll_connection: "sql_connection *(*)(uint32_t, bool)",
        db_connection_close: "int (*)(sql_connection *)",
        db_connection_reconnect: "int (*)(sql_connection *)",
        db_connection_free: "void (*)(sql_connection *)",
        db_query: "sql_result *(*)(sql_connection *, const char *, size_t)",
        db_more_results: "bool (*)(sql_connection *)",
        db_next_result: "sql_result *(*)(sql_connection *)",
        db_fetch_row: "sql_row *(*)(sql_result *)",
        db_free_results: "int (*)(sql_result *)",
        db_store_results: "int (*)(sql_result *)",
        db_prepare: "sql_statement *(*)(sql_connection *, const char *, size_t)",
        db_bind_param: "int (*)(sql_statement *, sql_bind *, size_t)",
        db_bind_result: "int (*)(sql_statement *, sql_bind *, size_t)",
        db_execute: "sql_result *(*)(sql_statement *)",
        db_close: "int (*)(sql_statement *)",
        db_bulk_insert_init: "int (*)(sql_connection *, const char *, size_t)",
        db_bulk_insert_next: "int (*)(sql_connection *, const char *, size_t)",
        db_bulk_insert_done: "int (*)(sql_connection *)",
    }
}
