//! `plimsoll report`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::report::{Report, Selection, StudyReport, VerdictView, metric_name, p_value, ratio};
use stats::Gate;

use crate::args::ReportArgs;
use crate::commands::out::Out;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{Align, Table, number};

pub(crate) fn report(args: &ReportArgs) -> Result<End, Failure> {
    let (files, names) = sort(&args.what);
    let files = if files.is_empty() { vec![args.results.clone()] } else { files };
    let selection = if names.is_empty() { Selection::Latest } else { Selection::Studies(names) };
    let report = load(&files, &selection)?;
    let mut written = Vec::new();
    if let Some(path) = &args.json {
        write(path, &format!("{}\n", ::report::json(&report)))?;
        written.push(path.clone());
    }
    if let Some(path) = &args.md {
        write(path, &::report::markdown(&report))?;
        written.push(path.clone());
    }
    if let Some(dir) = &args.csv {
        ::report::write_csv(&report, dir).map_err(failed)?;
        written.push(dir.clone());
    }
    if let Some(path) = &args.html {
        write_html(&report, path)?;
        written.push(path.clone());
    }
    if !written.is_empty() {
        for path in written.iter().filter(|path| path.as_os_str() != "-") {
            tell!("wrote {}", path.display());
        }
        return judged(&report, &args.gate);
    }
    let name = match report.studies.as_slice() {
        [study] => study.name.clone(),
        _ => "report".to_owned(),
    };
    let folder =
        if files[0].is_dir() { files[0].as_path() } else { files[0].parent().unwrap_or(Path::new(".")) };
    let path = folder.join(format!("{name}.html"));
    write_html(&report, &path)?;
    print(&format!("{}\nreport: {}\n", summary(&report), path.display()))?;
    judged(&report, &args.gate)
}

/// The gates of the command line over all studies, or else those of each study over itself.
fn judged(report: &Report, flags: &[Gate]) -> Result<End, Failure> {
    if !flags.is_empty() {
        return gated(&report.studies, flags);
    }
    let mut end = End::Done;
    for study in &report.studies {
        if let End::GateUnmet = gated_by_itself(study, &study.gates())? {
            end = End::GateUnmet;
        }
    }
    Ok(end)
}

/// Holds the gates of a study's own file against it. A first look (`--quick`) that can have no verdict is not held to
/// them, and that is said.
pub(crate) fn gated_by_itself(study: &StudyReport, gates: &[Gate]) -> Result<End, Failure> {
    let (least, planned) = (stats::Rules::default().blocks_min, study.blocks_planned());
    if (planned as usize) < least {
        for gate in gates {
            tell!("gate {gate}: not asked: a verdict needs at least {least} blocks, and this has {planned}");
        }
        return Ok(End::Done);
    }
    gated(std::slice::from_ref(study), gates)
}

/// Holds the gates against studies whose report has been written, and says how they stand.
pub(crate) fn gated(studies: &[StudyReport], gates: &[Gate]) -> Result<End, Failure> {
    let mut end = End::Done;
    for gate in gates {
        let state = report::check(gate, studies);
        if state.asked == 0 {
            return Err(Failure::Usage(format!(
                "gate {gate}: there is no such comparison: a study asks for comparisons with [compare] axis, base \
                 and metrics"
            )));
        }
        if state.is_met() {
            let doubted = match state.doubted {
                0 => String::new(),
                some => format!(", {some} of which rest on runs in doubt"),
            };
            tell!("gate {gate}: met by all {} comparisons{doubted}", state.asked);
            continue;
        }
        tell!("gate {gate}: not met by {} of {} comparisons", state.unmet.len(), state.asked);
        for line in &state.unmet {
            tell!("  {line}");
        }
        end = End::GateUnmet;
    }
    Ok(end)
}

/// Results files on the left, names of studies on the right.
fn sort(what: &[String]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, mut names) = (Vec::new(), Vec::new());
    for word in what {
        let path = Path::new(word);
        if path.extension().is_some_and(|extension| extension == "toml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        } else if path.exists() || path.extension().is_some_and(|extension| extension == "db") {
            files.push(path.to_owned());
        } else {
            names.push(word.clone());
        }
    }
    (files, names)
}

fn load(files: &[PathBuf], selection: &Selection) -> Result<Report, Failure> {
    Report::load(files, selection).map_err(failed)
}

fn failed(error: ::report::Error) -> Failure {
    match error {
        ::report::Error::Store(error) => Failure::from(error),
        error @ ::report::Error::NoStudy { .. } => Failure::Usage(error.to_string()),
        error => Failure::Other(anyhow::Error::new(error)),
    }
}

/// The report as one HTML file.
pub(crate) fn write_html(report: &Report, path: &Path) -> Result<(), Failure> {
    write(path, &::report::html(report).map_err(failed)?)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut out = Out::create(path)?;
    out.write(text)?;
    out.finish()
}

/// A study with more sentences than this shows only the first of them on a terminal.
const ANSWERS_MAX: usize = 8;
/// So many then.
const ANSWERS_SHOWN: usize = 6;

/// Figures and verdicts as short tables.
pub(crate) fn summary(report: &Report) -> String {
    let mut text = String::new();
    for study in &report.studies {
        text.push_str(&format!("{}\n{}\n\n", study.title, study.question.trim()));
        let is_open = study.points.iter().any(|point| study.pacing(point).is_some());
        let mut columns = vec![("cell", Align::Left), ("sessions", Align::Right)];
        if is_open {
            columns.push(("offered", Align::Right));
        }
        columns.extend([
            ("TPS", Align::Right),
            ("interval", Align::Left),
            ("p95 ms", Align::Right),
            ("p99 ms", Align::Right),
            ("runs", Align::Right),
        ]);
        let has_marks = study.points.iter().any(|point| !study.marks_text(point).is_empty());
        if has_marks {
            columns.push(("marks", Align::Left));
        }
        let mut table = Table::new(&columns);
        for point in &study.points {
            let median = |estimate: &Option<::report::Estimate>| {
                estimate.as_ref().map_or_else(|| "-".to_owned(), |estimate| number(estimate.median))
            };
            // One run has no interval.
            let interval = point
                .tps
                .as_ref()
                .filter(|tps| tps.n > 1)
                .map(|tps| format!("{} .. {}", number(tps.low), number(tps.high)));
            let mut cells = vec![point.label.clone(), point.sessions.to_string()];
            if is_open {
                cells.push(study.pacing(point).unwrap_or_default());
            }
            cells.extend([
                median(&point.tps),
                interval.unwrap_or_default(),
                median(&point.p95_ms),
                median(&point.p99_ms),
                study.counted(point).count().to_string(),
            ]);
            if has_marks {
                cells.push(study.marks_text(point));
            }
            table.row(cells);
        }
        text.push_str(&table.text());
        text.extend(study.absent_percentiles().iter().map(|line| format!("-: {line}\n")));
        text.push_str(&uncounted(study));
        text.push('\n');
        let shown = if study.answer.len() > ANSWERS_MAX { ANSWERS_SHOWN } else { study.answer.len() };
        for sentence in &study.answer[..shown] {
            text.push_str(sentence);
            text.push('\n');
        }
        if study.answer.len() > shown {
            text.push_str(&format!("... and {} more answers in the report\n", study.answer.len() - shown));
        }
        if study.has_verdicts() {
            text.push_str(&format!("\n{}", verdicts(study)));
        }
    }
    text
}

/// Cells that have runs and no figures, and why.
fn uncounted(study: &StudyReport) -> String {
    let line = |point: &::report::Point| {
        let why = study.why_none_counts(point)?;
        let sessions = if point.sessions == 1 { "session" } else { "sessions" };
        Some(format!("no run counts of {}, {} {sessions}: {why}\n", point.label, point.sessions))
    };
    study.points.iter().filter_map(line).collect()
}

/// More verdicts than this are left to the report.
const VERDICTS_MAX: usize = 40;

/// What the sentences rest on: each comparison with its interval, and what weakens it.
fn verdicts(study: &StudyReport) -> String {
    let has_at = study.verdicts.iter().any(|verdict| !verdict.at.is_empty());
    // A base that all rows share is said once, above them.
    let bases: BTreeSet<&str> = study.verdicts.iter().map(|verdict| verdict.base_label.as_str()).collect();
    let has_bases = bases.len() > 1;
    let mut columns = vec![("metric", Align::Left), ("compared", Align::Left)];
    if has_bases {
        columns.push(("base", Align::Left));
    }
    if has_at {
        columns.push(("on", Align::Left));
    }
    columns.extend([
        ("sessions", Align::Right),
        ("verdict", Align::Left),
        ("ratio", Align::Right),
        ("interval", Align::Left),
        ("p", Align::Right),
        ("blocks", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    for verdict in study.verdicts.iter().take(VERDICTS_MAX) {
        table.row(verdict_cells(study, verdict, has_bases, has_at));
    }
    let mut text = match bases.first() {
        Some(base) if !has_bases => format!("against {base}:\n"),
        _ => String::new(),
    };
    text.push_str(&table.text());
    if study.verdicts.len() > VERDICTS_MAX {
        text.push_str(&format!("... and {} more in the report\n", study.verdicts.len() - VERDICTS_MAX));
    }
    for (word, notes) in [
        ("not equal", study.verdicts.iter().flat_map(|v| &v.flags).collect::<BTreeSet<_>>()),
        ("in doubt", study.verdicts.iter().flat_map(|v| &v.doubts).collect()),
        ("marked", study.verdicts.iter().flat_map(|v| &v.marks).collect()),
        ("absent", study.verdicts.iter().flat_map(|v| &v.absent).collect()),
    ] {
        text.extend(notes.iter().map(|note| format!("{word}: {note}\n")));
    }
    let lost: BTreeSet<String> = study.verdicts.iter().filter_map(VerdictView::lost_text).collect();
    text.extend(lost.iter().map(|lost| format!("{lost}\n")));
    text
}

fn verdict_cells(study: &StudyReport, verdict: &VerdictView, has_bases: bool, has_at: bool) -> Vec<String> {
    let result = &verdict.result;
    let none = || "-".to_owned();
    let mut cells = vec![metric_name(&verdict.metric), verdict.other_label.clone()];
    if has_bases {
        cells.push(verdict.base_label.clone());
    }
    if has_at {
        cells.push(verdict.at.clone());
    }
    let interval = result.low.zip(result.high);
    cells.extend([
        match &verdict.climb {
            Some(_) => "climb".to_owned(),
            None => study.points[verdict.other].sessions.to_string(),
        },
        verdict.word(),
        result.ratio.map_or_else(none, ratio),
        interval.map_or_else(none, |(low, high)| format!("{} .. {}", ratio(low), ratio(high))),
        result.p_adjusted.map_or_else(none, p_value),
        result.n.to_string(),
    ]);
    cells
}
