//! `cargo xtask studies [NAME...] [--full]`: runs the studies of published work quickly and looks at their reports in a
//! browser: the charts and tables that each study asks for must be there and drawn.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// A study and what its report must have: sections, and the fewest charts drawn.
struct Expected {
    name: &'static str,
    sections: &'static [&'static str],
    charts_min: usize,
}

const ALL: &[Expected] = &[
    Expected { name: "quickstart", sections: &["throughput", "latency", "verdicts"], charts_min: 6 },
    Expected { name: "bourke-2005", sections: &["throughput", "scaling"], charts_min: 7 },
    Expected { name: "maxia-2009", sections: &["throughput", "versions", "cost"], charts_min: 6 },
    Expected { name: "israel-2015", sections: &["throughput", "storage", "cost"], charts_min: 6 },
    Expected {
        name: "anandtech-2006",
        sections: &["throughput", "levels", "scaling", "stability"],
        charts_min: 6,
    },
    Expected {
        name: "dbstress-2009",
        sections: &["throughput", "seconds", "stability", "time"],
        charts_min: 8,
    },
];

/// Runs the named studies, or all; true where every one ran and its report has its charts.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let is_full = arguments.contains(&"--full");
    let names: Vec<&str> = arguments.iter().copied().filter(|word| !word.starts_with("--")).collect();
    for name in &names {
        ensure!(ALL.iter().any(|study| study.name == *name), "no study {name:?}; there are {}", list());
    }
    let plimsoll = build()?;
    let mut is_good = true;
    for study in ALL.iter().filter(|study| names.is_empty() || names.contains(&study.name)) {
        let began = Instant::now();
        let outcome = one(&plimsoll, study, is_full);
        let took = began.elapsed().as_secs();
        match outcome {
            Ok(charts) => println!("{:16} ok, {charts} charts, {took} s", study.name),
            Err(error) => {
                println!("{:16} FAILED after {took} s: {error:#}", study.name);
                is_good = false;
            }
        }
    }
    Ok(is_good)
}

/// The names, for help.
pub(crate) fn list() -> String {
    ALL.iter().map(|study| study.name).collect::<Vec<_>>().join(", ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A study with a debug build would measure the client.
fn build() -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--package", "cli"])
        .current_dir(root())
        .status()
        .context("building plimsoll")?;
    ensure!(status.success(), "plimsoll could not be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("release/plimsoll"))
}

fn one(plimsoll: &Path, study: &Expected, is_full: bool) -> Result<usize> {
    let place = tempfile::tempdir()?;
    let file = root().join("studies").join(format!("{}.toml", study.name));
    let mut run = Command::new(plimsoll);
    run.arg("run").arg(&file).arg("--results").arg(place.path()).arg("--new");
    if !is_full {
        run.arg("--quick");
    }
    let status = run.status().context("starting plimsoll")?;
    // 1 says that a run was invalid or failed: the report says which, and what it has is looked at below.
    ensure!(matches!(status.code(), Some(0 | 1)), "plimsoll run ended with {status}");
    let page = place.path().join("page.html");
    let report = Command::new(plimsoll)
        .args(["report", study.name, "--results"])
        .arg(place.path())
        .arg("--html")
        .arg(&page)
        .status()?;
    ensure!(report.success(), "plimsoll report ended with {report}");
    look_at(&page, study)
}

/// Opens the page in headless Chromium, prints what it has become, and looks for sections and drawn charts.
fn look_at(page: &Path, study: &Expected) -> Result<usize> {
    let chromium = std::env::var("PLIMSOLL_TEST_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let profile = tempfile::tempdir()?;
    let output = Command::new(&chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .with_context(|| format!("starting {chromium}: install it, or name it in PLIMSOLL_TEST_CHROMIUM"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let missing: Vec<&str> =
        study.sections.iter().copied().filter(|name| !text.contains(&format!("id=\"s1-{name}\""))).collect();
    if !missing.is_empty() {
        bail!("its report lacks {}", missing.join(", "));
    }
    let charts = drawn(&text);
    ensure!(charts >= study.charts_min, "{charts} charts were drawn, at least {} expected", study.charts_min);
    Ok(charts)
}

/// Charts with something in them: each chart's place holds a drawing with paths.
fn drawn(text: &str) -> usize {
    text.split("class=\"chart")
        .skip(1)
        .filter(|piece| piece.starts_with(['"', ' ']) && piece.contains("<path"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_drawn_charts_count() {
        let text = r#"<div class="charts"></div><div class="chart"><svg><path d="M0"></path></svg></div>
                      <div class="chart low"><svg></svg></div><div class="chart tall"><svg><path d="M1"></path></svg></div>"#;
        assert_eq!(drawn(text), 2);
    }

    #[test]
    fn every_expected_study_is_there() {
        for study in ALL {
            assert!(root().join("studies").join(format!("{}.toml", study.name)).is_file(), "{}", study.name);
        }
    }
}
