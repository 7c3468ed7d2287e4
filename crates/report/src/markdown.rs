//! The report as Markdown: what fits into a pull request, a wiki or a terminal.

use std::fmt::Write;

use crate::estimate::Estimate;
use crate::model::{Report, StudyReport, VerdictView};
use crate::order::{distinct, grouped};
use crate::text::{listed, metric_name, number, p_value, percent, ratio, ratio_ends, time_text};

/// All studies, one after the other.
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    for study in &report.studies {
        head(&mut text, report, study);
        alarms(&mut text, study);
        verdicts(&mut text, study);
        sections(&mut text, study);
        locks(&mut text, study);
        durability(&mut text, study);
        cells(&mut text, study);
        repeat(&mut text, study);
    }
    let _ = writeln!(text, "---\nplimsoll {}", report.plimsoll_version);
    text
}

/// What the text of others may not do: begin HTML, a table cell or emphasis.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_unicode()),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace(|c: char| matches!(c, '`' | '|') || c.is_control(), " "))
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The first lines of a table; `heads` are parted by ` | `. Numbers to the right: `right` says from which column on.
fn table(text: &mut String, heads: &str, right: usize) {
    let columns = heads.split(" | ").count();
    let marks: Vec<&str> = (0..columns).map(|at| if at < right { "---" } else { "---:" }).collect();
    let _ = writeln!(text, "| {heads} |\n| {} |", marks.join(" | "));
}

fn head(text: &mut String, report: &Report, study: &StudyReport) {
    let question = if study.question.is_empty() { &study.title } else { &study.question };
    let _ = writeln!(text, "# {}\n\n{}\n", plain(question.trim()), plain(study.title.trim()));
    for sentence in &study.answer {
        let _ = writeln!(text, "- {}", plain(&sentence.text));
    }
    for sentence in &study.inequalities {
        let _ = writeln!(text, "- **Not equal:** {}", plain(sentence));
    }
    let hosts: Vec<String> = crate::nodes::hosts(report, study).into_iter().map(plain).collect();
    let quick =
        if study.records.iter().any(|view| view.record.study.is_quick) { " A quick run." } else { "" };
    let _ = writeln!(text, "\n{}{quick} Host: {}.\n", crate::tally::told(study), listed(&hosts));
}

fn alarms(text: &mut String, study: &StudyReport) {
    let mut lines: Vec<String> = crate::alarms::alarms(study)
        .into_iter()
        .map(|alarm| {
            let remedy =
                if alarm.remedy.is_empty() { String::new() } else { format!(". {}", plain(&alarm.remedy)) };
            let count =
                if alarm.runs.len() > 1 { format!(", {} runs", alarm.runs.len()) } else { String::new() };
            let (text, runs) = (plain(&alarm.text), some_of(&alarm.runs));
            format!("- **{}{count}:** {text}{remedy} ({runs})", plain(&alarm.word))
        })
        .collect();
    for (_, note) in study.records.iter().flat_map(|view| &view.record.notes) {
        lines.push(format!("- {}", plain(note)));
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "## Warnings\n\n{}\n", lines.join("\n"));
    }
}

/// More runs than this are counted: a line of three hundred hides the next warning.
const RUNS_MAX: usize = 12;

fn some_of(runs: &[String]) -> String {
    match runs.split_at_checked(RUNS_MAX) {
        Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(" "), rest.len()),
        _ => runs.join(" "),
    }
}

fn verdicts(text: &mut String, study: &StudyReport) {
    if study.verdicts.is_empty() {
        return;
    }
    let _ = writeln!(text, "## Verdicts\n");
    if !study.has_verdicts() {
        let _ = writeln!(text, "Fewer than 5 blocks: no verdicts.\n");
    }
    let heads = "Metric | Compared | Base | On | Verdict | Sessions | Ratio | Interval | p adjusted | Blocks | Blocks needed";
    table(text, heads, 5);
    for verdict in &study.verdicts {
        row(text, &verdict_row(study, verdict));
    }
    text.push('\n');
    let mut flags: Vec<&String> = study.verdicts.iter().flat_map(|verdict| &verdict.flags).collect();
    flags.sort();
    flags.dedup();
    for flag in flags {
        let _ = writeln!(text, "Not equal: {}\n", plain(flag));
    }
    verdict_notes(text, study);
}

/// What weakens verdicts: what is true of several is said once.
fn verdict_notes<'a>(text: &mut String, study: &'a StudyReport) {
    let of_verdict = |verdict: &'a VerdictView| {
        let doubts = verdict.doubts.iter().map(|doubt| ("In doubt", doubt.clone()));
        let marks = verdict.marks.iter().map(|mark| ("Marked", mark.clone()));
        let absent = verdict.absent.iter().map(|why| ("Absent", why.clone()));
        let lost = verdict.lost_text().map(|lost| ("Runs lost", lost));
        doubts.chain(marks).chain(absent).chain(lost).map(move |note| (note, verdict))
    };
    for ((word, said), verdicts) in grouped(study.verdicts.iter().flat_map(of_verdict)) {
        let of = match verdicts.as_slice() {
            [verdict] => plain(&study.verdict_name(verdict)),
            several => format!("{} comparisons", several.len()),
        };
        let _ = writeln!(text, "{word}: {of}: {}\n", plain(&said));
    }
}

fn verdict_row(study: &StudyReport, verdict: &VerdictView) -> Vec<String> {
    let result = &verdict.result;
    let none = || "–".to_owned();
    let sessions = match &verdict.climb {
        Some(_) => "whole climb".to_owned(),
        None => study.points[verdict.other].sessions.to_string(),
    };
    let interval = result.low.zip(result.high).map(ratio_ends);
    vec![
        metric_name(&verdict.metric),
        plain(&verdict.other_label),
        plain(&verdict.base_label),
        plain(&verdict.at),
        verdict.word(),
        sessions,
        result.ratio.map_or_else(none, ratio),
        interval.unwrap_or_else(none),
        result.p_adjusted.map_or_else(none, p_value),
        result.n.to_string(),
        result.blocks_needed.map_or_else(none, blocks_text),
    ]
}

/// `27 (12 to 86)`.
fn blocks_text([few, likely, many]: [usize; 3]) -> String {
    if few == many { likely.to_string() } else { format!("{likely} ({few} to {many})") }
}

/// The tables of the study's own sections.
fn sections(text: &mut String, study: &StudyReport) {
    for section in crate::sections::sections(study) {
        if section.tables.is_empty() {
            continue;
        }
        let _ = writeln!(text, "## {}\n\n{}\n", section.title, plain(&section.hint));
        for of in &section.tables {
            if !of.caption.is_empty() {
                let _ = writeln!(text, "### {}\n", plain(&of.caption));
            }
            if !of.rows.is_empty() {
                let heads: Vec<String> = of.heads.iter().map(|head| plain(head)).collect();
                table(text, &heads.join(" | "), of.words);
                for cells in &of.rows {
                    row(text, &cells.iter().map(|cell| plain(&cell.text)).collect::<Vec<_>>());
                }
                text.push('\n');
            }
            for note in &of.notes {
                let _ = writeln!(text, "{}\n", plain(note));
            }
        }
    }
}

/// The hottest locks, by cell and sessions.
fn locks(text: &mut String, study: &StudyReport) {
    for of in crate::hot_locks::tables(study) {
        let _ = writeln!(text, "## Hot locks ({})\n", of.source);
        let _ = writeln!(
            text,
            "Seconds waited in each second by all threads together, in passes of their own.\n"
        );
        let columns = of
            .columns
            .iter()
            .map(|(label, sessions)| plain(&format!("{label}, {}", store::counted(*sessions, "session"))));
        let heads: Vec<String> = std::iter::once("Lock".to_owned()).chain(columns).collect();
        table(text, &heads.join(" | "), 1);
        for (lock, values) in of.rows {
            let values = values.iter().map(|value| value.map_or_else(|| "–".to_owned(), number));
            let cells: Vec<String> = std::iter::once(code(&lock)).chain(values).collect();
            row(text, &cells);
        }
        text.push('\n');
    }
}

/// What a commit survives, by the settings and by what audits found.
fn durability(text: &mut String, study: &StudyReport) {
    let rows: Vec<_> =
        crate::durability::rows(study).into_iter().filter(|found| !found.class.is_empty()).collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "## Durability\n");
    table(text, "Server | Class | What it means | Audit", 4);
    for found in rows {
        row(text, &[&found.label, &found.class, &found.why, &found.text].map(|cell| plain(cell)));
    }
    text.push('\n');
}

fn cells(text: &mut String, study: &StudyReport) {
    let _ = writeln!(
        text,
        "## Cells\n\nMedians of the counted runs with the interval of the repeats; times in ms.\n"
    );
    let heads = "Cell | Sessions | TPS | Best second | Worst second | QPS | mean | p95 | p99 | Failed | Longest freeze s | \
                 Runs | Marks";
    table(text, heads, 1);
    let with_interval = |estimate: Option<Estimate>| match estimate {
        None => "–".to_owned(),
        Some(e) if e.n < 2 => number(e.median),
        Some(e) => format!("{} ({} – {})", number(e.median), number(e.low), number(e.high)),
    };
    let alone = |estimate: Option<Estimate>| estimate.map_or_else(|| "–".to_owned(), |e| number(e.median));
    for point in &study.points {
        let failed: Vec<f64> = study.counted(point).map(|(_, step)| step.failed_share()).collect();
        let runs = format!("{} of {}", study.counted(point).count(), point.runs.len());
        let pacing = study.pacing(point).map(|pacing| format!(", {pacing}")).unwrap_or_default();
        let cells = [
            plain(&point.label),
            format!("{}{pacing}", point.sessions),
            with_interval(point.tps),
            alone(point.tps_max),
            alone(point.tps_min),
            alone(point.qps),
            alone(point.mean_ms),
            with_interval(point.p95_ms),
            with_interval(point.p99_ms),
            stats::mean(&failed).map_or_else(|| "–".to_owned(), percent),
            point.freeze_s.map_or_else(|| "–".to_owned(), number),
            runs,
            plain(&study.marks_text(point)),
        ];
        row(text, &cells);
    }
    text.push('\n');
    for line in study.absent_percentiles() {
        let _ = writeln!(text, "–: {line}.\n");
    }
    for point in &study.points {
        if let Some(why) = study.why_none_counts(point) {
            let _ = writeln!(
                text,
                "No run counts of {}, {}: {}\n",
                plain(&point.label),
                store::counted(point.sessions, "session"),
                plain(&why)
            );
        }
    }
}

fn repeat(text: &mut String, study: &StudyReport) {
    let _ = writeln!(text, "## Repeat it\n");
    for view in &study.records {
        let stored = &view.record.study;
        let _ = writeln!(text, "- Results: {}", code(&view.file));
        let _ = writeln!(text, "- Command: {} ({})", code(&stored.command), time_text(stored.created_at_ms));
        let _ = writeln!(
            text,
            "- Study file: {}, SHA-256 {}",
            code(&stored.file_path),
            code(&stored.file_sha256)
        );
        let _ = writeln!(text, "- Seed: {}; plimsoll {}", stored.seed, plain(&stored.plimsoll_version));
    }
    let builds = study.runs.iter().filter_map(|run| run.build.as_ref()).map(|build| {
        format!("- {}: {}, {}", plain(&build.name()), plain(&build.origin), code(&build.identity))
    });
    let builds = distinct(builds);
    let _ = writeln!(text, "{}\n", builds.join("\n"));
    if let Some(view) = study.newest() {
        // A fence longer than any in the file.
        let longest = view.record.study.file_text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let _ = writeln!(text, "{fence}toml\n{}\n{fence}\n", view.record.study.file_text.trim_end());
    }
}
