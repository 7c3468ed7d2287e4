//! Passwords of URLs in the process title: `ps` shows every user the arguments of every process.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

static COUNT: AtomicI32 = AtomicI32::new(0);
static VECTOR: AtomicPtr<*mut c_char> = AtomicPtr::new(std::ptr::null_mut());

/// glibc hands the arguments to constructors; the standard library keeps its own copy of the same pointers and
/// gives nobody write access to them.
extern "C" fn remember(count: c_int, vector: *mut *mut c_char, _environment: *mut *mut c_char) {
    COUNT.store(count, Ordering::Relaxed);
    VECTOR.store(vector, Ordering::Relaxed);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = remember;

/// Overwrites the passwords of URLs in the arguments' memory. Call it once, after the arguments have been copied and
/// before there is a second thread.
pub(crate) fn mask_passwords() {
    let vector = VECTOR.load(Ordering::Relaxed);
    if vector.is_null() {
        return;
    }
    for index in 0..COUNT.load(Ordering::Relaxed).max(0) as usize {
        // SAFETY: the loader gave `COUNT` pointers to terminated strings that live, writable, as long as the process;
        // nothing else reads or writes them now.
        unsafe {
            let argument = *vector.add(index);
            let Ok(text) = CStr::from_ptr(argument).to_str() else { continue };
            for span in password_spans(text) {
                std::ptr::write_bytes(argument.add(span.start), b'*', span.len());
            }
        }
    }
}

/// An argument without the passwords of a URL, or of an option that is one.
pub(crate) fn without_password(text: &str) -> String {
    let mut shown = text.to_owned();
    for span in password_spans(text).into_iter().rev() {
        shown.replace_range(span, "***");
    }
    shown
}

/// Where passwords stand in an argument: in a URL, or behind the name of an option, a variable or a word that is one
/// (`--mysql-password=x`, `--env MYSQL_ROOT_PASSWORD=x`, `dbname=x password=y`).
fn password_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = wire::mask::value_spans(text);
    if let Some(named) = named_password(text) {
        spans.retain(|span| span.start < named.start);
        match spans.last_mut() {
            Some(last) if last.end >= named.start => last.end = named.end,
            _ => spans.push(named),
        }
    }
    spans
}

/// What stands behind the first name that is a password's, up to the end: a password may have blanks. Those of URLs are
/// found otherwise.
fn named_password(text: &str) -> Option<Range<usize>> {
    let behind_name = text.match_indices('=').find_map(|(at, _)| {
        let name = text[..at].trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
        (wire::mask::is_password(name) && !name.contains("://")).then_some(at + 1)
    })?;
    (behind_name < text.len()).then_some(behind_name..text.len())
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_are_found_where_arguments_have_them() {
        for (given, shown) in [
            ("mysql://root:geheim@h:3306/db", "mysql://root:***@h:3306/db"),
            ("--server=postgres://u:p@ss@h/db", "--server=postgres://u:***@h/db"),
            ("mysql://h/db?password=geheim&tls=required", "mysql://h/db?password=***&tls=required"),
            ("--mysql-password=geheim", "--mysql-password=***"),
            ("--pgsql_password=ge=heim", "--pgsql_password=***"),
            ("MYSQL_ROOT_PASSWORD=geheim", "MYSQL_ROOT_PASSWORD=***"),
            ("--env=MYSQL_ROOT_PASSWORD=geheim", "--env=MYSQL_ROOT_PASSWORD=***"),
            ("dbname=x password=geheim", "dbname=x password=***"),
            ("host=h password = 'ge heim' dbname=x", "host=h password =***"),
            ("--dbname=dbname=x password=a://geheim", "--dbname=dbname=x password=***"),
            ("-dpassword=geheim dbname=x", "-dpassword=***"),
            ("postgres://u:one@h/db password=two", "postgres://u:***@h/db password=***"),
            ("postgres://u:one password=two@h/db", "postgres://u:***"),
            ("dbname=x password=", "dbname=x password="),
            ("--password-file=/run/secret", "--password-file=/run/secret"),
            ("mysql://root@h:3306/db", "mysql://root@h:3306/db"),
            ("mariadb@10.11", "mariadb@10.11"),
        ] {
            assert_eq!(without_password(given), shown);
        }
    }
}
