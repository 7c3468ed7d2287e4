//! A file that is whole or not there: written beside its place, synchronised, and renamed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that is being written. What stood in its place stays until [`NewFile::finish`]; without that, nothing of this
/// one is left. Pipes and devices have no place to be renamed into and are written to as they are.
#[derive(Debug)]
pub struct NewFile {
    out: BufWriter<File>,
    /// Where the bytes stand until the end, and where they go.
    places: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Begins a file. A link stays a link, and the file that it leads to is replaced; its owner and mode stay.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let before = fs::metadata(path).ok();
        if before.as_ref().is_some_and(|before| !before.is_file() && !before.is_dir()) {
            return Ok(NewFile {
                out: BufWriter::new(File::options().write(true).open(path)?),
                places: None,
            });
        }
        let target = if before.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
        let name = target.file_name().filter(|_| !target.is_dir());
        let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}-{number}.part", std::process::id()));
        let beside = target.with_file_name(beside);
        let file = File::create_new(&beside)?;
        let new = NewFile { out: BufWriter::new(file), places: Some((beside, target)) };
        if let Some(before) = before {
            new.out.get_ref().set_permissions(before.permissions())?;
            // Only root can give a file away; anybody else keeps one of their own.
            let _ = fchown(new.out.get_ref(), Some(before.uid()), Some(before.gid()));
        }
        Ok(new)
    }

    /// Puts it in its place, on the disk.
    ///
    /// # Errors
    /// Not all of it could be written; then what stood in its place still does.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        let Some((beside, target)) = &self.places else { return Ok(()) };
        self.out.get_ref().sync_all()?;
        fs::rename(beside, target)?;
        let folder =
            target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The name is on the disk with its directory. File systems that cannot do that say so here, and have the file.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        self.places = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.places {
            // It is about to be forgotten in any case.
            let _ = fs::remove_file(beside);
        }
    }
}

/// Writes a whole file.
///
/// # Errors
/// Not all of it could be written; then what stood in its place still does.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_there_stays_until_the_new_file_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half of the ne").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(file);
        assert_eq!(
            (fs::read(&path).unwrap(), names(dir.path())),
            (b"old".to_vec(), vec!["report.html".into()])
        );
        write_file(&path, b"new").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), names(dir.path())),
            (b"new".to_vec(), vec!["report.html".into()])
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn links_stay_links_and_devices_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&path, "old").unwrap();
        symlink(&path, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write_file(Path::new("/dev/null"), b"new").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_file(dir.path(), b"new").is_err());
        assert!(write_file(&dir.path().join("no/such/folder"), b"new").is_err());
    }
}
