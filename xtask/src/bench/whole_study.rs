//! A study from its file to its report, as `plimsoll run` makes it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::StopSwitch;
use lab::clients::Hosts;
use lab::study_run::{Request, run_study};
use lab::watch::Watch;
use report::{Report, Selection, StudyReport};
use sandbox::Home;
use store::Store;

use super::duels;

/// Makes it with its results in `results`, and answers how long that took and what was found. `benchmark` is who asks.
pub(super) fn made(
    home: &Home,
    study: &Path,
    results: &Path,
    benchmark: &str,
) -> Result<(Duration, StudyReport)> {
    std::fs::create_dir_all(results)?;
    let request = Request {
        study: lab::study::read(study)?,
        results: results.to_owned(),
        quick: false,
        only: Vec::new(),
        part: None,
        client_hosts: Hosts::This,
        new: false,
        command: format!("cargo xtask bench {benchmark}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let began = Instant::now();
    run_study(home, &request, &Watch::default(), &duels::tell, &StopSwitch::default())?;
    let took = began.elapsed();
    let report = Report::of_stores(&[&Store::open_read_only(results)?], &Selection::Latest)?;
    Ok((took, report.studies.into_iter().next().context("the study left no record")?))
}
