use super::*;

enum Put<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
    Hard(&'a str, &'a str),
    /// Of another kind: a device, a pipe.
    Odd(&'a str, tar::EntryType),
    /// A sparse file of so many bytes, of which none is in the archive.
    Sparse(&'a str, u64),
}

fn tar_of(members: &[Put<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for member in members {
        let mut header = tar::Header::new_gnu();
        // The bits of another user's programs, which must not come out.
        header.set_mode(0o6666);
        // Written by hand: the library's own setter refuses the names that the tests are about.
        let name = |header: &mut tar::Header, text: &str| {
            header.as_gnu_mut().unwrap().name[..text.len()].copy_from_slice(text.as_bytes());
        };
        match member {
            Put::File(path, content) => {
                header.set_size(content.len() as u64);
                name(&mut header, path);
                header.set_cksum();
                tar.append(&header, *content).unwrap();
            }
            Put::Odd(path, kind) => {
                header.set_entry_type(*kind);
                header.set_size(0);
                name(&mut header, path);
                header.set_cksum();
                tar.append(&header, io::empty()).unwrap();
            }
            Put::Sparse(path, bytes) => {
                header.set_entry_type(tar::EntryType::GNUSparse);
                header.set_size(0);
                name(&mut header, path);
                let gnu = header.as_gnu_mut().unwrap();
                gnu.set_real_size(*bytes);
                gnu.sparse[0].set_offset(*bytes);
                gnu.sparse[0].set_length(0);
                header.set_cksum();
                tar.append(&header, io::empty()).unwrap();
            }
            Put::Link(path, target) | Put::Hard(path, target) => {
                let is_hard = matches!(member, Put::Hard(..));
                let kind = if is_hard { tar::EntryType::Link } else { tar::EntryType::Symlink };
                header.set_entry_type(kind);
                header.set_size(0);
                header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
                name(&mut header, path);
                header.set_cksum();
                tar.append(&header, io::empty()).unwrap();
            }
        }
    }
    tar.into_inner().unwrap()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Unpacks and says what came out or why not; nothing may appear outside.
fn check(archive: &[u8], take: &[Take]) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("deep/into");
    fs::create_dir_all(&into).unwrap();
    let path = dir.path().join("archive");
    fs::write(&path, archive).unwrap();
    let result = unpack(&path, take, &into, &|_| ());
    let outside =
        fs::read_dir(dir.path()).unwrap().count() + fs::read_dir(dir.path().join("deep")).unwrap().count();
    assert_eq!(outside, 3, "something was written outside");
    result.map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    let mut folders = vec![into.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(&into).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[test]
fn members_that_escape_are_refused() {
    let hostile: [&[Put<'_>]; 8] = [
        &[Put::File("../evil", b"x")],
        &[Put::File("a/../../evil", b"x")],
        &[Put::File("/tmp/plimsoll-evil", b"x")],
        &[Put::Link("out", "/tmp"), Put::File("out/evil", b"x")],
        &[Put::Link("a", ".."), Put::File("a/evil", b"x")],
        &[Put::Link("a/b/up", "../.."), Put::File("a/b/up/evil", b"x")],
        &[Put::Link("a/s", "../a/../.."), Put::File("b", b"x")],
        &[Put::Link("a/s", "../../x")],
    ];
    for members in hostile {
        for archive in [tar_of(members), gz(&tar_of(members))] {
            let why = check(&archive, &[]).unwrap_err();
            assert!(why.contains("outside"), "{why}");
        }
    }
}

#[test]
fn links_to_links_by_another_name_and_strange_kinds_are_refused() {
    let hostile: [(&[Put<'_>], &str); 7] = [
        // The link may climb where it lies, and would leave from where its second name is.
        (&[Put::Link("a/b/c/up", "../../../x"), Put::Hard("bin", "a/b/c/up")], "no plain file"),
        (&[Put::Link("a/b/up", "../../etc"), Put::Hard("e", "a/b/up"), Put::File("e/x", b"x")], "no plain"),
        (&[Put::File("f", b"x"), Put::Hard("g", "../../archive")], "outside"),
        (&[Put::Link("l", "d"), Put::File("d/f", b"x"), Put::Hard("g", "l/f")], "outside"),
        (&[Put::Odd("dev", tar::EntryType::Block)], "kind no build has"),
        (&[Put::Odd("dev", tar::EntryType::Char)], "kind no build has"),
        (&[Put::Odd("pipe", tar::EntryType::Fifo)], "kind no build has"),
    ];
    for (members, expected) in hostile {
        let why = check(&gz(&tar_of(members)), &[]).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    // A second name of a file is what tar makes of one; no bit but those of a program comes out.
    let members = [Put::File("bin/mysqld", b"x"), Put::Hard("bin/mariadbd", "bin/mysqld")];
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    fs::write(&archive, tar_of(&members)).unwrap();
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    unpack(&archive, &[], &into, &|_| ()).unwrap();
    let mode = fs::metadata(into.join("bin/mariadbd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644, "{mode:o}");
}

#[test]
fn archives_made_to_fill_a_disk_are_refused() {
    let zeros = vec![0u8; 128 << 20];
    // As hard as it goes: to a thousandth.
    let gz = |bytes: Vec<u8>| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = gz(tar_of(&[Put::File("bin/postgres", &zeros)]));
    // Left out, but read: it costs time.
    let ballast = gz(tar_of(&[Put::File("include/a.h", &zeros), Put::File("bin/postgres", b"x")]));
    let sparse = gz(tar_of(&[Put::Sparse("bin/postgres", 1 << 40)]));
    let many = gz(tar_of(&[Put::Sparse("a", 60 << 20), Put::Sparse("b", 60 << 20)]));
    for archive in [bomb, ballast, sparse, many] {
        assert!(archive.len() < 1_000_000);
        let why = check(&archive, &[]).unwrap_err();
        assert!(why.contains("made to fill a disk"), "{why}");
    }
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    zip.start_file("bin/postgres", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(&zeros).unwrap();
    let why = check(&zip.finish().unwrap().into_inner(), &[]).unwrap_err();
    assert!(why.contains("made to fill a disk"), "{why}");
}

#[test]
fn the_progress_of_an_archive_within_an_archive_ends_at_its_total() {
    // Does not pack, so that there is something to tell of.
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(40 << 20)
    .collect();
    let inner = gz(&tar_of(&[Put::File("bin/postgres", &noise)]));
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    zip.start_file("a.tgz", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(&inner).unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let take = [Take { from: "*.tgz".into(), to: "".into(), unpack: true }];
    let dir = tempfile::tempdir().unwrap();
    for (archive, take) in [(&zip, &take[..]), (&inner, &[])] {
        let path = dir.path().join("archive");
        fs::write(&path, archive).unwrap();
        let into = dir.path().join(format!("into-{}", take.len()));
        fs::create_dir(&into).unwrap();
        let told = std::sync::Mutex::new(Vec::new());
        unpack(&path, take, &into, &|progress| {
            if let Progress::Bytes { done, total } = progress {
                told.lock().unwrap().push((done, total.expect("the total is known")));
            }
        })
        .unwrap();
        let told = told.into_inner().unwrap();
        assert!(told.len() >= 2 && told.is_sorted_by_key(|(done, _)| *done), "{told:?}");
        for (done, total) in &told {
            assert!(done <= total, "{} %: {told:?}", done * 100 / total);
        }
        let (done, total) = told[told.len() - 1];
        assert!(total - done <= SHOWN_EVERY, "{told:?}");
    }
}

#[test]
fn repair_follows_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["mysqld", "libx.so.1"] {
        fs::write(outside.join(name), "libz.so.1").unwrap();
        fs::set_permissions(outside.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    fs::write(outside.join("libz.so.1"), "x").unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("lib")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("bin")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("lib/private")).unwrap();
    std::os::unix::fs::symlink(outside.join("libx.so.1"), root.join("lib/libx.so.1")).unwrap();
    repair(&root).unwrap();
    for name in ["mysqld", "libx.so.1"] {
        let meta = fs::symlink_metadata(outside.join(name)).unwrap();
        assert!(meta.is_file() && meta.permissions().mode() & 0o777 == 0o600, "{name}");
    }
}

#[test]
fn ordinary_members_links_and_ballast() {
    let members = [
        Put::File("m/bin/mysqld", b"server"),
        Put::File("m/bin/mysqld-debug", b"x"),
        Put::File("m/lib/libx.so.1", b"lib"),
        Put::Link("m/lib/libx.so", "libx.so.1"),
        Put::Link("m/bin/libx.so", "../lib/libx.so.1"),
        Put::File("m/lib/libx.a", b"x"),
        Put::File("m/mysql-test/t/a.test", b"x"),
        Put::File("m/lib/plugin/debug/x.so", b"x"),
    ];
    let expected = ["m/bin/libx.so", "m/bin/mysqld", "m/lib/libx.so", "m/lib/libx.so.1"];
    assert_eq!(check(&gz(&tar_of(&members)), &[]).unwrap(), expected);
    let take = [Take { from: "m/bin/".into(), to: "sbin/".into(), unpack: false }];
    // The link climbs no higher than before.
    assert_eq!(check(&tar_of(&members), &take).unwrap(), ["sbin/libx.so", "sbin/mysqld"]);
}

#[test]
fn archives_within_archives() {
    let inner = gz(&tar_of(&[Put::File("bin/postgres", b"p"), Put::File("lib/libpq.a", b"x")]));
    let outer = tar_of(&[Put::File("META-INF/x", b"x"), Put::File("a.tgz", &inner)]);
    let take = [Take { from: "*.tgz".into(), to: "".into(), unpack: true }];
    assert_eq!(check(&outer, &take).unwrap(), ["bin/postgres"]);
}

#[test]
fn damage_is_noticed() {
    let whole = gz(&tar_of(&[Put::File("bin/postgres", &[7u8; 5000])]));
    for archive in [&whole[..whole.len() / 2], &whole[..whole.len() - 4], b"no archive at all", b""] {
        assert!(check(archive, &[]).is_err());
    }
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    assert!(check(&flipped, &[]).is_err());
}

#[test]
fn lost_execute_bits_and_links_come_back() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("bin")).unwrap();
    fs::create_dir_all(dir.path().join("lib")).unwrap();
    fs::write(dir.path().join("bin/mysqld"), "x").unwrap();
    fs::write(dir.path().join("lib/libz.so.1.2"), vec![0u8; 300]).unwrap();
    fs::write(dir.path().join("lib/libz.so"), "libz.so.1.2").unwrap();
    repair(dir.path()).unwrap();
    assert_eq!(fs::metadata(dir.path().join("bin/mysqld")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_link(dir.path().join("lib/libz.so")).unwrap(), Path::new("libz.so.1.2"));
}
