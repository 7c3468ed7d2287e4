//! The browser that reports are opened in.

use std::path::PathBuf;

use crate::not_tested;

/// Chromium to test `what` with: what `PLIMSOLL_TEST_CHROMIUM` names, else `chromium` on the path. `None` where it says
/// `none` or there is no browser, and then it has been said that `what` is not tested.
pub fn chromium(what: &str) -> Option<PathBuf> {
    match std::env::var_os("PLIMSOLL_TEST_CHROMIUM") {
        Some(word) if word == "none" => {
            not_tested(what, "PLIMSOLL_TEST_CHROMIUM=none");
            None
        }
        Some(path) => Some(path.into()),
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found =
                std::env::split_paths(&path).map(|dir| dir.join("chromium")).find(|file| file.is_file());
            if found.is_none() {
                let why = "no Chromium is installed (the Debian package chromium, or its path in PLIMSOLL_TEST_CHROMIUM)";
                not_tested(what, why);
            }
            found
        }
    }
}
