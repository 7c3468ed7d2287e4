//! Passwords of URLs in the process title: `ps` shows every user the arguments of every process.

use std::ffi::{CStr, c_char, c_int};
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
            if let Some((start, end)) = password(text) {
                std::ptr::write_bytes(argument.add(start), b'*', end - start);
            }
        }
    }
}

/// An argument without the password of a URL or of sysbench's options.
pub(crate) fn without_password(text: &str) -> String {
    match password(text) {
        Some((start, end)) => format!("{}***{}", &text[..start], &text[end..]),
        None => text.to_owned(),
    }
}

/// Bytes of the password in a URL, or in sysbench's options.
fn password(text: &str) -> Option<(usize, usize)> {
    for option in ["--mysql-password=", "--pgsql-password=", "--mysql_password=", "--pgsql_password="] {
        if text.starts_with(option) {
            return Some((option.len(), text.len()));
        }
    }
    let authority = text.find("://")? + 3;
    let rest = &text[authority..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@')?;
    let colon = rest[..host].find(':')?;
    Some((authority + colon + 1, authority + host))
}

#[cfg(test)]
mod tests {
    use super::password;

    #[test]
    fn passwords_are_found_where_urls_have_them() {
        let of = |text: &'static str| password(text).map(|(start, end)| &text[start..end]);
        assert_eq!(of("mysql://root:geheim@h:3306/db"), Some("geheim"));
        assert_eq!(of("--server=postgres://u:p@ss@h/db?x=a:b@c"), Some("p@ss"));
        assert_eq!(of("--mysql-password=geheim"), Some("geheim"));
        assert_eq!(of("mysql://root@h:3306/db"), None);
        assert_eq!(of("mariadb@10.11"), None);
        assert_eq!(of("mysql://h:3306/a@b"), None);
    }
}
