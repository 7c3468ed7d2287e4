//! `cargo xtask studies [NAME...] [--full] [--keep DIR]`: runs the studies of published work quickly, one after
//! another, and looks at their reports in a browser: the charts and tables that each study asks for must be there, drawn
//! and filled, and nothing may complain. Ends in a summary and fails where one of them did.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// A study and what its report must have.
struct Expected {
    name: &'static str,
    /// Charts: `data-metric` or `data-kind` of their place, or `timeline`, and the fewest drawn.
    charts: &'static [(&'static str, usize)],
    /// Sections with a table: words that stand in it.
    tables: &'static [(&'static str, &'static [&'static str])],
}

const ALL: &[Expected] = &[
    Expected {
        name: "quickstart",
        charts: &[("tps", 2), ("p95", 2), ("timeline", 1)],
        tables: &[("verdicts", &["Ratio", "Verdict"])],
    },
    Expected {
        name: "bourke-2005",
        // Bars by workload and server; percent from 1 to 2 cpus.
        charts: &[("tps", 4), ("scaling", 1)],
        tables: &[
            ("scaling", &["1 to 2", "Server cpu per transaction before"]),
            ("cost", &["TPS with buffered", "direct"]),
            ("published", &["Solaris 10, forcedirectio", "NetBSD 2.0"]),
        ],
    },
    Expected {
        name: "maxia-2009",
        // Read-only at 8 sessions, read-write at 8 and at 32.
        charts: &[("versions", 3)],
        tables: &[
            ("cost", &["TPS with no-log", "binlog", "TPS without", "general-table", "published 2007"]),
            ("interventions", &["SET GLOBAL general_log = ON", "log_output = TABLE"]),
        ],
    },
    Expected {
        name: "israel-2015",
        charts: &[("tps", 1), ("p95", 1)],
        tables: &[
            (
                "storage",
                &["Durability", "Little", "TPS per fsync", "seq. write MB/s", "fsync/s", "EBS safest"],
            ),
            ("cost", &["TPS with safest", "unsafe"]),
        ],
    },
    Expected {
        name: "anandtech-2006",
        charts: &[("tps", 1), ("scaling", 1)],
        tables: &[("levels", &["mean from 5 up", "speed-up", "Sun T1"])],
    },
    Expected {
        name: "dbstress-2009",
        // Histograms of average, best and worst second, and the running graph of a climb.
        charts: &[("seconds", 2), ("timeline", 1), ("tps", 2)],
        tables: &[
            ("stability", &["AVG", "MAX", "worst second", "CV of seconds", "Universal Scalability Law"]),
            ("published", &["PostgreSQL 8.3.7"]),
        ],
    },
];

/// What a study's report was found to hold.
struct Found {
    charts: usize,
    /// `41 of 42 planned runs counted`, in the page's own words.
    counted: String,
}

#[derive(clap::Parser)]
struct Asked {
    /// All without a name.
    names: Vec<String>,
    #[arg(long, overrides_with = "quick")]
    full: bool,
    /// As without a word.
    #[arg(long, overrides_with = "full")]
    quick: bool,
    /// Where results and pages stay.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Runs the named studies, or all; true where every one ran and its report has what it should.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { names, full: is_full, keep, .. } = crate::asked("studies", arguments);
    for name in &names {
        ensure!(ALL.iter().any(|study| study.name == *name), "no study {name:?}; there are {}", list());
    }
    let plimsoll = crate::plimsoll()?;
    let mut lines = Vec::new();
    let mut is_good = true;
    for study in ALL.iter().filter(|study| names.is_empty() || names.iter().any(|name| name == study.name)) {
        let began = Instant::now();
        let outcome = one(&plimsoll, study, is_full, keep.as_deref());
        let took = began.elapsed().as_secs();
        lines.push(match outcome {
            Ok(found) => {
                format!("{:16} ok      {took:5} s  {} charts, {}", study.name, found.charts, found.counted)
            }
            Err(error) => {
                is_good = false;
                format!("{:16} FAILED  {took:5} s  {error:#}", study.name)
            }
        });
        println!("{}", lines[lines.len() - 1]);
    }
    println!("\nstudies, {}:", if is_full { "full" } else { "quick" });
    lines.iter().for_each(|line| println!("{line}"));
    Ok(is_good)
}

/// The names, for help.
pub(crate) fn list() -> String {
    ALL.iter().map(|study| study.name).collect::<Vec<_>>().join(", ")
}

fn one(plimsoll: &Path, study: &Expected, is_full: bool, keep: Option<&Path>) -> Result<Found> {
    let scratch = tempfile::tempdir()?;
    let place = keep.map_or_else(|| scratch.path().to_owned(), |keep| keep.join(study.name));
    std::fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let mut run = Command::new(plimsoll);
    run.arg("run").arg(crate::root().join("studies").join(format!("{}.toml", study.name)));
    run.arg("--results").arg(&place).arg("--new");
    if !is_full {
        run.arg("--quick");
    }
    let status = run.status().context("starting plimsoll")?;
    let page = place.join("page.html");
    let report = Command::new(plimsoll)
        .args(["report", study.name, "--results"])
        .arg(&place)
        .arg("--html")
        .arg(&page)
        .status()?;
    ensure!(report.success(), "plimsoll run ended with {status}, plimsoll report with {report}");
    let found = look_at(&page, study)?;
    // Last, so that a report of failed runs has been looked at as well.
    ensure!(status.success(), "plimsoll run ended with {status}: {}", found.counted);
    Ok(found)
}

/// Opens the page in headless Chromium, prints what it has become, and looks for what the study asks for.
fn look_at(page: &Path, study: &Expected) -> Result<Found> {
    let chromium = std::env::var("PLIMSOLL_TEST_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let profile = tempfile::tempdir()?;
    let output = Command::new(&chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000"])
        .arg("--enable-logging=stderr")
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .with_context(|| format!("starting {chromium}: install it, or name it in PLIMSOLL_TEST_CHROMIUM"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The browser's own pages write to the console too, on a slow machine.
    let is_ours = |line: &&str| line.contains(":CONSOLE") && !line.contains("source: chrome://");
    let complaints: Vec<&str> = said.lines().filter(is_ours).collect();
    ensure!(complaints.is_empty(), "its report complains: {}", complaints.join("; "));
    holds(&String::from_utf8_lossy(&output.stdout), study)
}

/// Whether the opened page holds what the study asks for.
fn holds(text: &str, study: &Expected) -> Result<Found> {
    let mut missing = Vec::new();
    for (place, least) in study.charts {
        let charts = drawn(text, place);
        if charts < *least {
            missing.push(format!("{charts} of {least} charts of {place}"));
        }
    }
    for (id, words) in study.tables {
        let Some(section) = section(text, id) else {
            missing.push(format!("the section {id}"));
            continue;
        };
        let absent = words
            .iter()
            .filter(|word| !section.contains(&word.replace('/', "&#x2f;")) && !section.contains(**word));
        missing.extend(absent.map(|word| format!("{word:?} in the section {id}")));
    }
    ensure!(missing.is_empty(), "its report lacks {}", missing.join(", "));
    let counted = text.split("class=\"meta\">").nth(1).and_then(|rest| rest.split(". ").next());
    Ok(Found { charts: drawn(text, ""), counted: counted.unwrap_or("no word about its runs").to_owned() })
}

/// A section of the report's first study.
fn section<'a>(text: &'a str, id: &str) -> Option<&'a str> {
    let from = text.find(&format!("<section id=\"s1-{id}\""))?;
    text[from..].split("</section>").next()
}

/// Charts with something in them at a place (anywhere where it is empty): a chart holds a drawing with paths.
fn drawn(text: &str, place: &str) -> usize {
    let places = text.split("<div class=\"").filter(|piece| !piece.is_empty());
    let (mut is_there, mut charts) = (place.is_empty(), 0);
    for piece in places {
        let tag = piece.split('>').next().unwrap_or_default();
        let is_class = |name: &str| tag.strip_prefix(name).is_some_and(|rest| rest.starts_with(['"', ' ']));
        if is_class("charts") || is_class("timeline") {
            is_there = place.is_empty()
                || (place == "timeline" && is_class("timeline"))
                || tag.contains(&format!("data-metric=\"{place}\""))
                || tag.contains(&format!("data-kind=\"{place}\""));
        } else if is_class("chart") && is_there && piece.contains("<path") {
            charts += 1;
        }
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<p class="meta">3 of 4 planned runs counted; 1 invalid. 2 blocks.</p>
        <section id="s1-throughput"><div class="charts" data-kind="ladder" data-metric="tps">
        <figure><div class="chart"><svg><path d="M0"></path></svg></div></figure>
        <figure><div class="chart low"><svg></svg></div></figure></div></section>
        <section id="s1-cost"><div class="scroll"><table><th>TPS with no-log</th></table></div></section>
        <div class="timeline" data-study="0"><div class="chart tall"><svg><path d="M1"></path></svg></div></div>"#;

    #[test]
    fn only_drawn_charts_count_where_they_belong() {
        assert_eq!((drawn(PAGE, ""), drawn(PAGE, "tps"), drawn(PAGE, "timeline")), (2, 1, 1));
        assert_eq!((drawn(PAGE, "ladder"), drawn(PAGE, "scaling")), (1, 0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let study = |charts, tables| Expected { name: "a", charts, tables };
        let found = holds(PAGE, &study(&[("tps", 1)], &[("cost", &["no-log"])])).expect("all is there");
        assert_eq!((found.charts, found.counted.as_str()), (2, "3 of 4 planned runs counted; 1 invalid"));
        let lacks = |of: Expected| format!("{:#}", holds(PAGE, &of).err().expect("something is missing"));
        let text = lacks(study(&[("tps", 2)], &[("cost", &["binlog"]), ("scaling", &["x"])]));
        assert_eq!(
            text,
            "its report lacks 1 of 2 charts of tps, \"binlog\" in the section cost, the section scaling"
        );
    }

    #[test]
    fn every_expected_study_is_there() {
        for study in ALL {
            assert!(
                crate::root().join("studies").join(format!("{}.toml", study.name)).is_file(),
                "{}",
                study.name
            );
        }
    }
}
