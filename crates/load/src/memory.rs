//! Where the memory of the sessions lies: on huge pages, as far as the kernel has some. With small ones, going from one
//! of hundreds of sessions to the next costs a search for pages at every turn. And having it at hand when it is needed.

use std::fs;
use std::ops::Range;

use crate::tuning::{Trick, is_on};

/// A huge page of x86-64.
const HUGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
/// Pages in use from which on their surroundings are worth a huge page; an eighth, so that the stacks of threads, of
/// which little is in use, are left alone.
const PAGES_MIN: usize = HUGE_BYTES / PAGE_BYTES / 8;

/// As far as [`fetch`] goes: what a running session of a native workload touches ends before. Behind it lies what
/// connecting needs.
const FETCH_BYTES_MAX: usize = 2560;
/// A line of the caches.
const LINE_BYTES: usize = 64;

/// Asks the processor for a session's memory while another one is at work: with many sessions it has left the caches, and
/// waiting for line after line is a good part of what a statement costs the client.
///
/// Measured on 2 cores with oltp_read_write on PostgreSQL, user cycles a statement: 0.83 to 0.89 at 64 sessions, 0.86 at
/// 256. A hint, which changes nothing else; processors other than x86-64 do without.
#[inline]
pub(crate) fn fetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    if is_on(Trick::FetchAhead) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of_val(value).min(FETCH_BYTES_MAX)).step_by(LINE_BYTES) {
            // SAFETY: a hint, which reads nothing; the address lies within the value all the same.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, FETCH_BYTES_MAX, LINE_BYTES);
}

/// Makes the allocator take memory for each thread in spans that a huge page has room in. Before the workers start.
pub(crate) fn grow_in_huge_pages() {
    if !is_on(Trick::HugePages) {
        return;
    }
    // SAFETY: a plain call of the C library, which is what allocates here.
    unsafe { libc::mallopt(libc::M_TOP_PAD, 2 * HUGE_BYTES as libc::c_int) };
}

/// Moves what the process has in use onto huge pages, where enough of it lies together. Nothing else changes; where the
/// kernel refuses (before 6.1 it does not know the request), everything stays where it is.
pub(crate) fn gather() {
    if !is_on(Trick::HugePages) {
        return;
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for span in maps.lines().filter_map(own_memory) {
        let mut at = span.start.next_multiple_of(HUGE_BYTES);
        while at + HUGE_BYTES <= span.end {
            if pages_in_use(at) >= PAGES_MIN {
                // SAFETY: the range is this process's own; its content stays as it is.
                unsafe { libc::madvise(at as *mut libc::c_void, HUGE_BYTES, libc::MADV_COLLAPSE) };
            }
            at += HUGE_BYTES;
        }
    }
}

/// The addresses of a line of /proc/self/maps, if it is memory that the program has allocated for itself
/// (Documentation/filesystems/proc.rst).
fn own_memory(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (addresses, permissions) = (words.next()?, words.next()?);
    let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let is_own = permissions == "rw-p" && inode == "0" && matches!(words.next(), None | Some("[heap]"));
    let (start, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    is_own.then_some(number(start)?..number(end)?)
}

/// How many pages are in use of the huge page that could be at an address.
fn pages_in_use(at: usize) -> usize {
    let mut pages = [0u8; HUGE_BYTES / PAGE_BYTES];
    // SAFETY: the kernel writes one byte for each page of the range, of which there are as many as the array is long.
    let done = unsafe { libc::mincore(at as *mut libc::c_void, HUGE_BYTES, pages.as_mut_ptr()) };
    if done < 0 { 0 } else { pages.iter().filter(|page| **page & 1 != 0).count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_program_s_own_is_told_from_files_and_stacks() {
        assert_eq!(
            own_memory("7f0c20000000-7f0c20400000 rw-p 00000000 00:00 0"),
            Some(0x7f0c_2000_0000..0x7f0c_2040_0000)
        );
        assert_eq!(own_memory("55d0-55e0 rw-p 00000000 00:00 0      [heap]"), Some(0x55d0..0x55e0));
        assert_eq!(own_memory("7ffc-7ffd rw-p 00000000 00:00 0      [stack]"), None);
        assert_eq!(own_memory("7f00-7f10 ---p 00000000 00:00 0"), None);
        assert_eq!(own_memory("7f00-7f10 rw-s 00000000 00:01 77     /dev/zero (deleted)"), None);
        assert_eq!(own_memory("7f00-7f10 rw-p 00001000 fe:00 1234   /usr/lib/libc.so.6"), None);
        assert_eq!(own_memory("nonsense"), None);
    }

    #[test]
    fn gathering_changes_no_content() {
        let words: Vec<u64> = (0..4 * HUGE_BYTES as u64 / 8).collect();
        gather();
        assert!(words.iter().copied().eq(0..words.len() as u64));
    }

    #[test]
    fn what_was_never_touched_is_not_in_use() {
        let mut bytes: Vec<u8> = Vec::with_capacity(4 * HUGE_BYTES);
        let at = (bytes.as_ptr() as usize).next_multiple_of(HUGE_BYTES);
        assert_eq!(pages_in_use(at), 0);
        bytes.resize(bytes.capacity(), 1);
        assert_eq!(pages_in_use(at), HUGE_BYTES / PAGE_BYTES);
    }
}
