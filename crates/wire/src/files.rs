//! Files that users name, read whole: never more of one than a stated size, and nothing that is waited for.

use std::fs::{File, FileType};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// How much of a kind of file is read, and what to do where there is more.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Mebibytes.
    pub mib_max: u64,
    /// What helps.
    pub remedy: &'static str,
}

/// Of a study file.
pub const STUDY: Limit = Limit { mib_max: 1, remedy: "make several studies of it" };
/// Of a workload: `.sql`, `.smack`, `.lua`.
pub const WORKLOAD: Limit =
    Limit { mib_max: 16, remedy: "let statements generate the rows, or keep them in a data file" };
/// Of rows or words that a workload names.
pub const DATA: Limit = Limit { mib_max: 1024, remedy: "take fewer rows" };
pub const OPTIONS: Limit = Limit { mib_max: 1, remedy: "is it a file of options?" };
/// Of a token, or a key.
pub const SECRET: Limit = Limit { mib_max: 1, remedy: "is it the right file?" };
/// Of what servers are built by, or fetched from.
pub const RECIPE: Limit = Limit { mib_max: 1, remedy: "is it a file of TOML?" };

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read(path: &Path, limit: &Limit) -> Result<Vec<u8>> {
    // A pipe that nobody writes into would be waited for, in the opening already.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_file(metadata.file_type()));
    }
    // One that says its size is not read first.
    if metadata.len() > limit.mib_max << 20 {
        return Err(limit.exceeded());
    }
    read_from(file, limit)
}

fn no_file(what: FileType) -> Error {
    let name = match () {
        () if what.is_dir() => return Error::new(ErrorKind::IsADirectory, "it is a directory, not a file"),
        () if what.is_fifo() => "pipe",
        () if what.is_socket() => "socket",
        () => "device",
    };
    let text = format!("it is a {name}, not a file: write what comes out of it to a file, and name that");
    Error::new(ErrorKind::InvalidInput, text)
}

/// The text of a file.
///
/// # Errors
/// It cannot be read, is larger, or is not UTF-8.
pub fn read_text(path: &Path, limit: &Limit) -> Result<String> {
    text(read(path, limit)?)
}

/// The bytes of a stream, to its end.
///
/// # Errors
/// It cannot be read, or has more.
pub fn read_from(stream: impl Read, limit: &Limit) -> Result<Vec<u8>> {
    let most = limit.mib_max << 20;
    let mut bytes = Vec::new();
    stream.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(limit.exceeded()) } else { Ok(bytes) }
}

/// The text of a stream, to its end.
///
/// # Errors
/// It cannot be read, has more, or is not UTF-8.
pub fn read_text_from(stream: impl Read, limit: &Limit) -> Result<String> {
    text(read_from(stream, limit)?)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 text (byte {at})"))
    })
}

impl Limit {
    fn exceeded(&self) -> Error {
        let text = format!(
            "it is larger than {} MiB, and no more is read of such a file: {}",
            self.mib_max, self.remedy
        );
        Error::new(ErrorKind::FileTooLarge, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limit = Limit { mib_max: 1, remedy: "take less" };

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let most = 1 << 20;
        assert_eq!(read_from(std::io::repeat(b'a').take(most), &SMALL).unwrap().len() as u64, most);
        let error = read_from(std::io::repeat(b'a').take(most + 1), &SMALL).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(
            error.to_string().contains("larger than 1 MiB") && error.to_string().ends_with(": take less"),
            "{error}"
        );
    }

    #[test]
    fn what_has_no_end_or_never_begins_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, says) in
            [(Path::new("/dev/zero"), "a device, not a file"), (&pipe, "a pipe"), (dir.path(), "a directory")]
        {
            let error = read(path, &SMALL).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // A link to a file is one.
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, &SMALL).unwrap(), b"x");
    }

    #[test]
    fn a_text_is_utf_8() {
        assert_eq!(read_text_from(&b"SELECT '\xc3\xa4'"[..], &SMALL).unwrap(), "SELECT '\u{e4}'");
        let error = read_text_from(&b"SELECT '\xe4'"[..], &SMALL).unwrap_err();
        assert_eq!(error.to_string(), "it is not UTF-8 text (byte 8)");
    }
}
