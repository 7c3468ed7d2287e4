//! Archives: jar, zip, and tar plain or packed.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

const BLOCK: usize = 512;

thread_local! {
    static PLACE: RefCell<TempDir> = RefCell::new(crate::place());
}

/// The first byte says what the rest is: an archive as it is, or a tar whose checksums are put right first, plain or
/// packed, because no mutation finds those by itself. Whatever is in it, nothing is written or changed outside of the
/// folder that it is unpacked into, and what is written is files, folders and links.
pub fn archives(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    match first & 3 {
        0 => unpack(rest),
        1 => unpack(&with_checksums(rest)),
        2 => unpack(&gzipped(&with_checksums(rest))),
        _ => unpack(&gzipped(rest)),
    }
}

fn unpack(archive: &[u8]) {
    PLACE.with_borrow(|place| {
        let root = place.path();
        let (path, deep, bystander) = (root.join("archive"), root.join("deep"), root.join("bystander"));
        let into = deep.join("into");
        fs::create_dir_all(&into).expect("a folder to unpack into");
        fs::write(&path, archive).expect("the archive");
        fs::write(&bystander, "bystander").expect("a file outside");
        fs::set_permissions(&bystander, fs::Permissions::from_mode(0o600)).expect("a file outside");

        let _ = sandbox::testing::unpack(&path, &into);

        assert_eq!(fs::read(&bystander).expect("it is still there"), b"bystander");
        let facts = fs::metadata(&bystander).expect("it is still there");
        assert_eq!((facts.mode() & 0o7777, facts.nlink()), (0o600, 1), "a file outside was touched");
        let count = |dir: &Path| fs::read_dir(dir).expect("a folder").count();
        assert_eq!((count(root), count(&deep)), (3, 1), "something was written outside");
        check_kinds(&into);
        fs::remove_dir_all(&deep).expect("what was unpacked goes");
    });
}

fn check_kinds(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder of our own").flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            check_kinds(&entry.path());
        } else {
            assert!(kind.is_file() || kind.is_symlink(), "{} is {kind:?}", entry.path().display());
            let mode = entry.metadata().expect("facts").mode();
            assert!(kind.is_symlink() || mode & 0o7000 == 0, "{} has mode {mode:o}", entry.path().display());
        }
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// Walks a tar as its readers do, header by header, and puts each checksum right.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut tar = bytes.to_vec();
    let mut at = 0;
    while at + BLOCK <= tar.len() {
        let header = &mut tar[at..at + BLOCK];
        if header.iter().all(|&byte| byte == 0) {
            break;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size: String = header[124..136]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .map(|&byte| byte as char)
            .collect();
        let size = usize::from_str_radix(&size, 8).unwrap_or(0).min(tar.len());
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    tar
}
