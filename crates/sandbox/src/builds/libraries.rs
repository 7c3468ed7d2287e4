//! Shared libraries: which ones a build needs and the machine lacks, and which Debian package has them.

use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

use super::{MissingLibrary, library_path};
use crate::Error;
use crate::build::Files;

/// Where Debian has the libraries that server builds of other distributions need.
const PACKAGES: [(&str, &str); 15] = [
    ("libaio.so.1", "libaio1 (libaio1t64 from Debian 13 on, where the file is libaio.so.1t64)"),
    ("libnuma.so.1", "libnuma1"),
    ("liburing.so.2", "liburing2"),
    ("libncurses.so.5", "libncurses5"),
    ("libtinfo.so.5", "libtinfo5"),
    ("libtinfo.so.6", "libtinfo6"),
    ("libssl.so.3", "libssl3"),
    ("libcrypto.so.3", "libssl3"),
    ("libssl.so.1.1", "libssl1.1"),
    ("libcrypto.so.1.1", "libssl1.1"),
    ("libcrypt.so.1", "libcrypt1"),
    ("libpam.so.0", "libpam0g"),
    ("libsystemd.so.0", "libsystemd0"),
    ("libstdc++.so.6", "libstdc++6"),
    ("libjemalloc.so.2", "libjemalloc2"),
];

/// Libraries that would not be found when the server (or initdb) starts. The dynamic loader is asked itself, the way
/// `ldd` does: it lists what it would load and runs nothing. Of both programs at once, for a deploy waits for it.
pub(crate) fn missing(files: &Files) -> Result<Vec<MissingLibrary>, Error> {
    let (server, initdb) = std::thread::scope(|scope| {
        let initdb = files.initdb.as_ref().map(|program| scope.spawn(move || missing_for(program, files)));
        let server = missing_for(&files.server, files);
        let initdb = initdb.map_or(Ok(Vec::new()), |asked| {
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (server, initdb)
    });
    let mut missing: Vec<MissingLibrary> = Vec::new();
    for library in server?.into_iter().chain(initdb?) {
        if !missing.iter().any(|m| m.library == library) {
            let package = PACKAGES.iter().find(|(name, _)| *name == library).map(|(_, p)| (*p).to_owned());
            missing.push(MissingLibrary { library, package });
        }
    }
    Ok(missing)
}

/// The same of one program of a build.
pub(crate) fn missing_for(program: &Path, files: &Files) -> Result<Vec<String>, Error> {
    if !is_dynamic(program) {
        return Ok(Vec::new());
    }
    let env = [
        ("LD_TRACE_LOADED_OBJECTS".into(), "1".into()),
        ("LD_LIBRARY_PATH".into(), library_path(&files.libraries)),
    ];
    // A program names its loader itself, which may be any program: it is not trusted more than the server.
    let said = super::ask::ask(program, &["--version".into()], &env)
        .map_err(|e| Error::io("look at the libraries of", program, e))?;
    Ok(not_found(&said.out))
}

fn not_found(listing: &str) -> Vec<String> {
    let lines = listing.lines().filter_map(|line| line.split_once("=> not found"));
    let names = lines.map(|(name, _)| name.trim());
    // They become names of files. One with a path in it is not looked for in the directories of libraries anyway.
    let is_name = |name: &&str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+');
        !name.is_empty() && !name.starts_with('.') && name.len() < 128 && name.bytes().all(plain)
    };
    names.filter(is_name).map(str::to_owned).collect()
}

/// Whether the loader has a part in starting it: a static program would really run.
fn is_dynamic(program: &Path) -> bool {
    with_elf(program, |elf| {
        let endian = elf.endian();
        elf.elf_program_headers().iter().any(|header| header.p_type(endian) == object::elf::PT_INTERP)
    })
    .unwrap_or(false)
}

/// The name under which programs ask for a library.
pub(crate) fn soname_of(library: std::fs::File) -> Option<String> {
    with_elf_file(library, |elf| dynamic_texts(elf, object::elf::DT_SONAME)?.into_iter().next())?
}

type Elf<'a> = ElfFile64<'a, object::Endianness, &'a object::ReadCache<std::fs::File>>;

/// What the dynamic section says under a tag whose values are texts.
fn dynamic_texts(elf: &Elf<'_>, tag: u32) -> Option<Vec<String>> {
    let (endian, data) = (elf.endian(), elf.data());
    let sections = elf.elf_header().sections(endian, data).ok()?;
    let (dynamic, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let entries = dynamic.iter().filter(|entry| entry.tag32(endian) == Some(tag));
    let texts = entries.filter_map(|entry| strings.get(u32::try_from(entry.d_val(endian)).ok()?).ok());
    Some(texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

fn with_elf<R>(path: &Path, look: impl FnOnce(&Elf<'_>) -> R) -> Option<R> {
    with_elf_file(std::fs::File::open(path).ok()?, look)
}

fn with_elf_file<R>(file: std::fs::File, look: impl FnOnce(&Elf<'_>) -> R) -> Option<R> {
    // Reads only the parts that are looked at: some of these files have a hundred megabytes.
    let cache = object::ReadCache::new(file);
    let elf = ElfFile64::<object::Endianness, _>::parse(&cache).ok()?;
    Some(look(&elf))
}

/// The memory allocator that a program brings with it: linked into it, or as a library that it loads first.
pub(crate) fn allocator_of(program: &Path) -> &'static str {
    // A function that each has and nothing else: in the program, or wanted from a library.
    let marks = [
        ("mallctl", "jemalloc"),
        ("je_mallctl", "jemalloc"),
        ("tc_malloc", "tcmalloc"),
        ("mi_malloc", "mimalloc"),
    ];
    let files = [("libjemalloc", "jemalloc"), ("libtcmalloc", "tcmalloc"), ("libmimalloc", "mimalloc")];
    let found = with_elf(program, |elf| {
        let needed = dynamic_texts(elf, object::elf::DT_NEEDED).unwrap_or_default();
        let loaded = needed.iter().find_map(|name| files.iter().find(|(file, _)| name.starts_with(file)));
        let linked = || {
            let mut symbols =
                elf.symbols().chain(elf.dynamic_symbols()).filter(|symbol| !symbol.is_undefined());
            symbols.find_map(|symbol| {
                let name = symbol.name().ok()?;
                marks.iter().find(|(mark, _)| *mark == name)
            })
        };
        loaded.or_else(linked).map(|(_, allocator)| *allocator)
    });
    match found {
        Some(found) => found.unwrap_or("the C library's"),
        None => "unknown",
    }
}

/// A file of that name among the libraries of some builds.
pub(crate) fn supplier<'a>(library: &str, builds: impl Iterator<Item = &'a Files>) -> Option<PathBuf> {
    builds.flat_map(|files| &files.libraries).map(|dir| dir.join(library)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_misses_is_read_from_its_list() {
        let listing = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibaio.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\
                       \tlibnuma.so.1 => not found\n";
        assert_eq!(not_found(listing), ["libaio.so.1", "libnuma.so.1"]);
        // A hostile loader's list: each would be a file to copy.
        let hostile = "\t/etc/shadow => not found\n\t../x => not found\n\t.. => not found\n\t => not found\n";
        assert!(not_found(hostile).is_empty());
    }

    #[test]
    fn an_elf_file_is_looked_into() {
        let libc =
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"];
        let libc = libc.iter().map(Path::new).find(|p| p.is_file()).expect("a C library");
        assert_eq!(soname_of(std::fs::File::open(libc).unwrap()).as_deref(), Some("libc.so.6"));
        assert!(is_dynamic(&std::env::current_exe().unwrap()));
        assert!(!is_dynamic(Path::new("/etc/passwd")));
    }
}
