//! What a build's log says of why it ended.

use std::path::Path;

use crate::process;

/// Its last lines.
const LAST_LINES: usize = 20;
/// Lines about an error that stand before them.
const ERROR_LINES: usize = 10;
/// How much of its end is looked through.
const END_BYTES: u64 = 4 << 20;

/// The last lines of a log. Where several compilers ran at once, the error may stand far above the end: then its lines come
/// first.
pub(super) fn why(log: &Path) -> String {
    let text = process::end_of(log, END_BYTES);
    let lines: Vec<&str> = text.lines().collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
    // make's and ninja's own last words tell that something failed, and not what.
    if last.iter().any(|line| says_error(line)) {
        return last.join("\n");
    }
    let Some(first) = before.iter().position(|line| says_error(line)) else { return last.join("\n") };
    let errors = before[first..].iter().take(ERROR_LINES).copied();
    errors.chain(["..."]).chain(last.iter().copied()).collect::<Vec<_>>().join("\n")
}

/// What compilers, linkers, cmake, meson and configure begin the reason with.
fn says_error(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let is_last_word = line.starts_with("make") || line.starts_with("gmake") || line.starts_with("ninja:");
    !is_last_word
        && ["error:", "cmake error", "undefined reference", "fatal:"].iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_far_above_the_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("build.log");
        let compiled =
            |from: u32, to: u32| (from..to).map(|n| format!("[{n}/900] Compiling\n")).collect::<String>();
        let error = "guc.c:7:9: error: 'not_declared' undeclared\n    7 |  return not_declared;\n";
        let end = "make: *** [Makefile:9: all] Error 2\n";
        std::fs::write(&log, format!("{}{error}{}{end}", compiled(0, 50), compiled(50, 100))).unwrap();
        let told = why(&log);
        assert!(told.starts_with("guc.c:7:9: error: 'not_declared'"), "{told}");
        assert!(told.contains("\n...\n") && told.ends_with("Error 2"), "{told}");
        // Near the end, it stands where it stood.
        std::fs::write(&log, format!("{}{error}{end}", compiled(0, 50))).unwrap();
        assert_eq!(why(&log).lines().count(), 20);
        assert!(!why(&log).contains("..."), "{}", why(&log));
        assert_eq!(why(&dir.path().join("none")), "");
    }
}
