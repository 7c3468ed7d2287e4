//! Archives by Maven coordinate, through the client `mvn`: it knows the user's settings, mirrors and credentials.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Whether the client is here.
pub(crate) fn is_here() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("mvn").is_file()))
}

/// Has `mvn` copy an artifact into `dir`, which is empty; it checks the transfer by itself.
pub(crate) fn copy(coordinate: &str, dir: &Path) -> Result<PathBuf, Error> {
    let fail = |why: String| Error::Fetch { what: format!("maven {coordinate}"), why };
    let output = Command::new("mvn")
        .args(["-q", "-B", "-Dstyle.color=never", "dependency:copy"])
        .arg(format!("-Dartifact={coordinate}"))
        .arg(format!("-DoutputDirectory={}", dir.display()))
        // Not where a project of the user's may have a pom.xml.
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| fail(format!("mvn does not run ({e}): apt-get install maven")))?;
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io("read", dir, e))?;
    let archive = entries.flatten().map(|e| e.path()).find(|p| {
        p.extension()
            .is_some_and(|e| matches!(e.to_str(), Some("jar" | "zip" | "gz" | "xz" | "zst" | "tar" | "tgz")))
    });
    match archive {
        Some(path) if output.status.success() => Ok(path),
        _ => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            if said.contains("Could not find artifact") {
                return Err(fail(
                    "there is no such artifact; `plimsoll servers` lists versions that are there".into(),
                ));
            }
            let line = said
                .lines()
                .find(|l| l.contains("ERROR"))
                .unwrap_or("it said nothing")
                .replace("[ERROR]", "");
            Err(fail(format!("mvn: {} (is the network there?)", line.trim())))
        }
    }
}
