//! How much of a server's data files the page cache holds, file by file and without reading any of them: cachestat(2)
//! where the kernel has it (6.5), else mincore(2) over a mapping.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Data files in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Residency {
    pub files: usize,
    pub bytes: u64,
    /// Of it in the page cache.
    pub resident_bytes: u64,
}

impl Residency {
    /// From 0 to 1; 0 without files.
    pub fn share(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { self.resident_bytes as f64 / self.bytes as f64 }
    }

    /// Looks at the files that hold tables and indexes below a data directory.
    ///
    /// # Errors
    /// The directory or one of the files cannot be read.
    pub fn of_data(datadir: &Path) -> io::Result<Residency> {
        let mut all = Residency::default();
        for (path, bytes) in data_files(datadir)? {
            let file = match File::open(&path) {
                // A temporary table or an old segment may go at any moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            all.files += 1;
            all.bytes += bytes;
            all.resident_bytes += resident(&file, bytes)?.min(bytes);
        }
        Ok(all)
    }
}

/// Smaller ones are catalogues and the like, which every start reads.
const DATA_FILE_MIN_BYTES: u64 = 1 << 20;

/// Folders of a data directory without tables of users: logs, catalogues, temporary files.
fn holds_no_tables(folder: &str) -> bool {
    let is_system = ["mysql", "performance_schema", "sys", "global"].contains(&folder);
    is_system || folder.starts_with("pg_") || (folder.starts_with('#') && folder != "#rocksdb")
}

/// Files of tables with their sizes. Every server here keeps them in folders: MySQL one for each database, PostgreSQL
/// `base/` with one for each.
fn data_files(datadir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for entry in fs::read_dir(datadir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !holds_no_tables(&entry.file_name().to_string_lossy()) {
            folders.push(entry.path());
        }
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            } else if about.is_file() && about.len() >= DATA_FILE_MIN_BYTES {
                files.push((entry.path(), about.len()));
            }
        }
    }
    Ok(files)
}

fn resident(file: &File, bytes: u64) -> io::Result<u64> {
    match by_cachestat(file) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => by_mincore(file, bytes),
        found => found,
    }
}

/// The size of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: no pointers involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The same number on every architecture (include/uapi/asm-generic/unistd.h).
const SYS_CACHESTAT: libc::c_long = 451;

fn by_cachestat(file: &File) -> io::Result<u64> {
    // struct cachestat_range { off, len }, a length of 0 meaning to the end; struct cachestat { cache, dirty,
    // writeback, evicted, recently evicted }, all in pages (include/uapi/linux/mman.h).
    let range = [0u64; 2];
    let mut pages = [0u64; 5];
    // SAFETY: both structures are live and of the sizes that the kernel expects.
    let code =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0u32) };
    if code == 0 { Ok(pages[0] * page_bytes()) } else { Err(io::Error::last_os_error()) }
}

/// Mapped in pieces, so that a large file needs no large vector.
const PIECE_BYTES: u64 = 1 << 30;

fn by_mincore(file: &File, bytes: u64) -> io::Result<u64> {
    let page = page_bytes();
    let mut resident = 0;
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(PIECE_BYTES) as usize;
        let mut pages = vec![0u8; (length as u64).div_ceil(page) as usize];
        // SAFETY: a fresh mapping that nothing refers to, `pages` has a byte for each of its pages, and it is unmapped
        // with the same length. Nothing is read through it, so a file that shrinks meanwhile does no harm.
        let code = unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                at as libc::off_t,
            );
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let code = libc::mincore(map, length, pages.as_mut_ptr());
            libc::munmap(map, length);
            code
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        // Only the lowest bit says anything.
        resident += pages.iter().filter(|state| **state & 1 == 1).count() as u64 * page;
        at += length as u64;
    }
    Ok(resident)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const BYTES: u64 = 4 << 20;

    fn write(path: &Path) -> File {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create_new(path).unwrap();
        file.write_all(&vec![7; BYTES as usize]).unwrap();
        file.sync_all().unwrap();
        File::open(path).unwrap()
    }

    #[test]
    fn what_was_read_is_resident_and_what_was_dropped_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = write(&dir.path().join("base/5/16384"));
        fs::read(dir.path().join("base/5/16384")).unwrap();
        assert_eq!(by_mincore(&file, BYTES).unwrap(), BYTES);
        let all = Residency::of_data(dir.path()).unwrap();
        assert_eq!(all, Residency { files: 1, bytes: BYTES, resident_bytes: BYTES });
        if crate::device::Device::of(dir.path()).unwrap().filesystem == "tmpfs" {
            testkit::not_tested("dropping pages from the page cache", "temporary files are in memory here");
            return;
        }
        // SAFETY: the descriptor is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(by_mincore(&file, BYTES).unwrap(), 0);
        assert!(Residency::of_data(dir.path()).unwrap().share() < 1e-9);
    }

    #[test]
    fn both_ways_of_asking_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = write(&dir.path().join("t.ibd"));
        fs::read(dir.path().join("t.ibd")).unwrap();
        match by_cachestat(&file) {
            Ok(found) => assert_eq!(found, by_mincore(&file, BYTES).unwrap()),
            Err(error) => testkit::not_tested("cachestat(2)", error),
        }
    }

    #[test]
    fn only_tables_of_users_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["sbtest/t.ibd", "mysql/user.ibd", "#innodb_redo/r0", "pg_wal/0001", "#rocksdb/1.sst", "base/5/1"]
        {
            write(&dir.path().join(name));
        }
        write(&dir.path().join("ibdata1"));
        fs::write(dir.path().join("base/5/small"), "x").unwrap();
        let mut names: Vec<String> = data_files(dir.path())
            .unwrap()
            .into_iter()
            .map(|(path, _)| path.strip_prefix(dir.path()).unwrap().display().to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["#rocksdb/1.sst", "base/5/1", "sbtest/t.ibd"]);
    }
}
