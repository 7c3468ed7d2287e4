//! Archives: jar, zip, and tar plain or packed.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

const BLOCK: usize = 512;

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place::new());
}

/// Folders that are there before an archive is unpacked: `deep/into` for it, and a file that is none of its business.
struct Place {
    root: TempDir,
    archive: PathBuf,
    bystander: PathBuf,
    deep: PathBuf,
    into: PathBuf,
}

impl Place {
    fn new() -> Place {
        let root = crate::place();
        let below = |name: &str| root.path().join(name);
        let (archive, bystander, deep) = (below("archive"), below("bystander"), below("deep"));
        let into = deep.join("into");
        fs::create_dir_all(&into).expect("a folder to unpack into");
        fs::write(&bystander, "bystander").expect("a file outside");
        fs::set_permissions(&bystander, fs::Permissions::from_mode(0o600)).expect("a file outside");
        Place { root, archive, bystander, deep, into }
    }

    /// Nothing but `archive` and what is in `into` has changed, and of that nothing is left.
    fn check_and_clear(&self) {
        assert_eq!(fs::read(&self.bystander).expect("it is still there"), b"bystander");
        let facts = fs::symlink_metadata(&self.bystander).expect("it is still there");
        assert_eq!((facts.mode(), facts.nlink()), (libc::S_IFREG | 0o600, 1), "a file outside was touched");
        let count = |dir: &Path| fs::read_dir(dir).expect("a folder").count();
        assert_eq!((count(self.root.path()), count(&self.deep)), (3, 1), "something was written outside");
        let facts = fs::symlink_metadata(&self.into).expect("it is still there");
        assert!(facts.is_dir(), "the folder itself was replaced");
        check_and_clear(&self.into);
    }
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
        fs::write(&place.archive, archive).expect("the archive");
        let _ = sandbox::testing::unpack(&place.archive, &place.into);
        place.check_and_clear();
    });
}

fn check_and_clear(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder of our own").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        if kind.is_dir() {
            check_and_clear(&path);
            fs::remove_dir(&path).expect("it is empty");
            continue;
        }
        assert!(kind.is_file() || kind.is_symlink(), "{} is {kind:?}", path.display());
        let mode = entry.metadata().expect("facts").mode();
        assert!(kind.is_symlink() || mode & 0o7000 == 0, "{} has mode {mode:o}", path.display());
        fs::remove_file(&path).expect("it was unpacked");
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
