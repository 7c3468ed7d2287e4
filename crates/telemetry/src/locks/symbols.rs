//! Names of addresses in another process: its mappings and the symbol tables of the files mapped.

use std::fs;
use std::path::PathBuf;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Data symbols of all files that a process has mapped.
#[derive(Debug, Default)]
pub struct Symbols {
    modules: Vec<Module>,
}

#[derive(Debug)]
struct Module {
    name: String,
    start: u64,
    end: u64,
    /// Absolute start, size, name; by start.
    symbols: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Reads `/proc/PID/maps` and the files in it. Files that cannot be read leave their addresses without names.
    pub fn of_process(pid: u32) -> Symbols {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let modules = first_mappings(&maps)
            .into_iter()
            .filter_map(|(path, start)| {
                // Through the process's own root: it may live in another mount namespace.
                let seen = PathBuf::from(format!("/proc/{pid}/root{path}"));
                let bytes = fs::read(&seen).or_else(|_| fs::read(&path)).ok()?;
                Module::read(&path, start, &bytes)
            })
            .collect();
        Symbols { modules }
    }

    /// The symbol that holds the address, `name` or `name+0x10`; for addresses within a file but without a symbol the
    /// file's name and the offset; `None` for heap, stack and shared memory.
    pub fn name(&self, address: u64) -> Option<String> {
        let module = self.modules.iter().find(|m| (m.start..m.end).contains(&address))?;
        let after = module.symbols.partition_point(|s| s.0 <= address);
        let symbol = module.symbols[..after].iter().rev().take(8).find(|s| address < s.0 + s.1.max(1));
        Some(match symbol {
            Some((start, _, name)) if *start == address => demangle(name),
            Some((start, _, name)) => format!("{}+{:#x}", demangle(name), address - start),
            None => format!("{}+{:#x}", module.name, address - module.start),
        })
    }
}

/// Each mapped file with the address of its first byte.
fn first_mappings(maps: &str) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), _, Some(offset)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let path = fields.skip(2).collect::<Vec<_>>().join(" ");
        let path = path.trim_end_matches(" (deleted)");
        if !path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/SYSV") {
            continue;
        }
        let start = range.split('-').next().and_then(|s| u64::from_str_radix(s, 16).ok());
        if let (Some(start), Ok(0)) = (start, u64::from_str_radix(offset, 16))
            && !found.iter().any(|(known, _)| known == path)
        {
            found.push((path.to_owned(), start));
        }
    }
    found
}

impl Module {
    fn read(path: &str, mapped_at: u64, bytes: &[u8]) -> Option<Module> {
        let file = object::File::parse(bytes).ok()?;
        let lowest = file.segments().map(|s| s.address()).min()?;
        let highest = file.segments().map(|s| s.address() + s.size()).max()?;
        // A position-independent file is moved as a whole; its first segment begins at the page of its address.
        let bias = match file.kind() {
            object::ObjectKind::Executable => 0,
            _ => mapped_at.wrapping_sub(lowest & !0xfff),
        };
        let mut symbols: Vec<(u64, u64, String)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Data && s.address() != 0)
            .filter_map(|s| Some((s.address().wrapping_add(bias), s.size(), s.name().ok()?.to_owned())))
            .collect();
        symbols.sort();
        symbols.dedup();
        Some(Module {
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            start: bias.wrapping_add(lowest),
            end: bias.wrapping_add(highest),
            symbols,
        })
    }
}

fn demangle(name: &str) -> String {
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    cpp_demangle::Symbol::new(name).ok().and_then(|s| s.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not exported by Rust unless told so, and named as it stands here.
    #[unsafe(no_mangle)]
    static PLIMSOLL_TEST_SYMBOL: [u8; 64] = [7; 64];

    #[test]
    fn a_static_of_this_process_has_its_name() {
        let symbols = Symbols::of_process(std::process::id());
        let address = (&raw const PLIMSOLL_TEST_SYMBOL) as u64;
        assert_eq!(symbols.name(address).as_deref(), Some("PLIMSOLL_TEST_SYMBOL"));
        assert_eq!(symbols.name(address + 16).as_deref(), Some("PLIMSOLL_TEST_SYMBOL+0x10"));
        let heap = Box::new(1u8);
        assert_eq!(symbols.name((&raw const *heap) as u64), None);
    }

    #[test]
    fn mangled_names_are_read() {
        assert_eq!(demangle("_ZN5table4lockE"), "table::lock");
        assert_eq!(demangle("LOCK_open"), "LOCK_open");
    }

    #[test]
    fn mappings_begin_at_offset_zero() {
        let maps = "00400000-00401000 r--p 00000000 fe:00 1 /usr/sbin/my sqld\n\
            00401000-00402000 r-xp 00001000 fe:00 1 /usr/sbin/my sqld\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
            7f0000002000-7f0000003000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n";
        assert_eq!(first_mappings(maps), vec![("/usr/sbin/my sqld".to_owned(), 0x0040_0000)]);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_names() {
        assert_eq!(Symbols::of_process(0x7fff_fff0).name(0x1000), None);
    }
}
