//! A study's results on the terminal: the answer, then what it rests on as short tables.

use std::collections::BTreeSet;
use std::io::IsTerminal;

use report::{
    Alike, Point, RankingView, Report, StudyReport, VerdictView, metric_name, p_value, ratio_end, ratio_span,
};

use super::{Align, Table, number};

/// More rows than this of one table are left to the report.
const ROWS_MAX: usize = 40;
/// More rankings than this are left to the report.
const RANKINGS_MAX: usize = 3;
/// More notes than this of one kind are left to the report.
const NOTES_MAX: usize = 3;

/// Answers, figures and verdicts of all studies.
pub(crate) fn summary(report: &Report) -> String {
    let width = width();
    let mut text = String::new();
    for study in &report.studies {
        text.push_str(&format!("{}\n{}\n\n", study.title, wrapped(study.question.trim(), "", width)));
        for sentence in &study.answer {
            text.push_str(&format!("- {}\n", wrapped(&sentence.text, "  ", width)));
        }
        text.push_str(&format!("\n{}", figures(study, width)));
        text.push_str(&rankings(study, width));
        if study.has_verdicts() {
            text.push_str(&format!("\n{}", verdicts(study, width)));
        }
    }
    text
}

/// Columns of the terminal on standard output.
pub(crate) fn width() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size);
    size?.ok().map(|(columns, _)| usize::from(columns)).filter(|width| *width >= 40)
}

/// In lines of the terminal's width, those after the first behind `indent`; for a pipe as it is.
pub(crate) fn wrapped(text: &str, indent: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map(|line| line.chars().count()).unwrap_or_default();
        if line > 0 && indent.len() + line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{indent}"))
}

fn figures(study: &StudyReport, width: Option<usize>) -> String {
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
    let marks: BTreeSet<String> = study.points.iter().map(|point| study.marks_text(point)).collect();
    // What marks all cells alike is said once, below.
    let has_marks = marks.len() > 1;
    if has_marks {
        columns.push(("marks", Align::Left));
    }
    let mut table = Table::new(&columns);
    for point in study.points.iter().take(ROWS_MAX) {
        let mut cells = cells(study, point, is_open);
        if has_marks {
            cells.push(study.marks_text(point));
        }
        table.row(cells);
    }
    let mut text = table.text_within(width);
    text.push_str(&more(study.points.len()));
    if let (false, Some(mark)) = (has_marks, marks.first().filter(|mark| !mark.is_empty())) {
        text.push_str(&format!("all cells: {mark}\n"));
    }
    let absent = study.absent_percentiles();
    text.extend(absent.iter().map(|line| format!("{}\n", wrapped(&format!("-: {line}"), "   ", width))));
    text.push_str(&uncounted(study));
    text
}

fn cells(study: &StudyReport, point: &Point, is_open: bool) -> Vec<String> {
    let median = |estimate: &Option<report::Estimate>| {
        estimate.as_ref().map_or_else(|| "-".to_owned(), |estimate| number(estimate.median))
    };
    // One run has no interval.
    let interval = point.tps.as_ref().filter(|tps| tps.n > 1);
    let interval = interval.map(|tps| format!("{} .. {}", number(tps.low), number(tps.high)));
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
    cells
}

fn more(rows: usize) -> String {
    match rows.checked_sub(ROWS_MAX) {
        None | Some(0) => String::new(),
        Some(more) => format!("... and {more} more in the report\n"),
    }
}

/// Cells that have runs and no figures, and why.
fn uncounted(study: &StudyReport) -> String {
    let line = |point: &Point| {
        let why = study.why_none_counts(point)?;
        let sessions = store::counted(point.sessions, "session");
        Some(format!("no run counts of {}, {sessions}: {why}\n", point.label))
    };
    study.points.iter().filter_map(line).collect()
}

/// The rankings by the first metric.
fn rankings(study: &StudyReport, width: Option<usize>) -> String {
    let Some(first) = study.rankings.first() else { return String::new() };
    let all: Vec<&RankingView> =
        study.rankings.iter().filter(|ranking| ranking.metric == first.metric).collect();
    let mut text: String =
        all.iter().take(RANKINGS_MAX).map(|one| format!("\n{}", ranked(one, width))).collect();
    if all.len() > RANKINGS_MAX {
        text.push_str(&format!(
            "... and {} in the report\n",
            store::counted(all.len() - RANKINGS_MAX, "more ranking")
        ));
    }
    if all.iter().take(RANKINGS_MAX).any(|ranking| ranking.has_groups()) {
        text.push_str(&format!("{}\n", wrapped(report::RANKING_HINT, "", width)));
    }
    text
}

/// Values against load levels.
fn ranked(ranking: &RankingView, width: Option<usize>) -> String {
    let levels: Vec<String> = ranking.levels.iter().map(|level| level.sessions.to_string()).collect();
    let mut columns = vec![(ranking.axis.as_str(), Align::Left)];
    columns.extend(levels.iter().map(|level| (level.as_str(), Align::Left)));
    let mut table = Table::new(&columns);
    for (label, cells) in ranking.rows(number) {
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        table.row(std::iter::once(label).chain(cells));
    }
    let on = if ranking.at.is_empty() { String::new() } else { format!(" on {}", ranking.at) };
    format!("ranking by {}{on}, by sessions:\n{}", metric_name(&ranking.metric), table.text_within(width))
}

/// What the sentences rest on: comparisons with their intervals, and what weakens them.
fn verdicts(study: &StudyReport, width: Option<usize>) -> String {
    let rows = study.alike();
    let are_all_in_doubt = study.verdicts.iter().all(|verdict| !verdict.doubts.is_empty());
    let mut text = String::new();
    let shown = &rows[..rows.len().min(ROWS_MAX)];
    // What a table's rows share stands above them.
    let heading = |row: &Alike<'_>| {
        let first = row.verdicts[0];
        (metric_name(&first.metric), first.base_label.clone())
    };
    for group in shown.chunk_by(|a, b| heading(a) == heading(b)) {
        let (metric, base) = heading(&group[0]);
        text.push_str(&format!(
            "{metric} against {base}:\n{}",
            verdict_table(group, are_all_in_doubt, width)
        ));
    }
    text.push_str(&more(rows.len()));
    for note in notes(study) {
        text.push_str(&format!("{}\n", wrapped(&note, "  ", width)));
    }
    text
}

fn verdict_table(rows: &[Alike<'_>], are_all_in_doubt: bool, width: Option<usize>) -> String {
    let columns = [
        ("compared", Align::Left),
        ("sessions", Align::Right),
        ("verdict", Align::Left),
        ("ratio", Align::Right),
        ("interval", Align::Left),
        ("p", Align::Right),
        ("blocks", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(verdict_cells(row, are_all_in_doubt));
    }
    table.text_within(width)
}

/// From the lowest to the highest of a row's verdicts.
fn verdict_cells(row: &Alike<'_>, are_all_in_doubt: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let first = row.verdicts[0];
    let on = if first.at.is_empty() { String::new() } else { format!(" on {}", first.at) };
    let mut cells = vec![format!("{}{on}", first.other_label)];
    let of = |value: fn(&VerdictView) -> Option<f64>| -> Vec<f64> {
        row.verdicts.iter().filter_map(|verdict| value(verdict)).collect()
    };
    let (ratios, p) = (of(|one| one.result.ratio), of(|one| one.result.p_adjusted));
    let (low, high) = (of(|one| one.result.low), of(|one| one.result.high));
    let bare = |value: f64| ratio_end(value).trim_start_matches('×').to_owned();
    let interval = match (low.iter().copied().reduce(f64::min), high.iter().copied().reduce(f64::max)) {
        (Some(lowest), Some(highest)) if low.len() == ratios.len() && high.len() == ratios.len() => {
            format!("{} .. {}", bare(lowest), bare(highest))
        }
        _ => none(),
    };
    let blocks: BTreeSet<usize> = row.verdicts.iter().map(|one| one.result.n).collect();
    let blocks = match (blocks.first(), blocks.last()) {
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most}"),
        (Some(most), _) => most.to_string(),
        _ => none(),
    };
    let is_doubted = !are_all_in_doubt && row.verdicts.iter().any(|one| !one.doubts.is_empty());
    let word = match first.result.p_adjusted {
        Some(_) => first.result.verdict.word(),
        None => "no verdict",
    };
    cells.extend([
        row.levels.clone(),
        format!("{word}{}", if is_doubted { ", in doubt" } else { "" }),
        if ratios.is_empty() { none() } else { ratio_span(&ratios) },
        interval,
        p.into_iter().reduce(f64::max).map_or_else(none, p_value),
        blocks,
    ]);
    cells
}

/// What weakens verdicts, each kind cut to [`NOTES_MAX`]. That runs are in doubt stands with the answer.
fn notes(study: &StudyReport) -> Vec<String> {
    let all = || study.verdicts.iter();
    let place = |one: &VerdictView| study.verdict_place(one);
    let name = |one: &VerdictView| study.verdict_name(one);
    let kinds: [(&str, Vec<(String, String)>); 4] = [
        (
            "not equal: ",
            all().flat_map(|one| one.flags.iter().map(move |note| (place(one), note.clone()))).collect(),
        ),
        (
            "marked: ",
            all().flat_map(|one| one.marks.iter().map(move |note| (place(one), note.clone()))).collect(),
        ),
        (
            "absent: ",
            all().flat_map(|one| one.absent.iter().map(move |note| (name(one), note.clone()))).collect(),
        ),
        ("", all().filter_map(|one| Some((name(one), one.lost_text()?))).collect()),
    ];
    let mut notes = Vec::new();
    for (word, of_kind) in kinds {
        let of_kind = by_text(of_kind);
        notes.extend(of_kind.iter().take(NOTES_MAX).map(|note| format!("{word}{note}")));
        if of_kind.len() > NOTES_MAX {
            notes.push(format!("{word}... and {} more in the report", of_kind.len() - NOTES_MAX));
        }
    }
    notes
}

/// Each text once: with the place that it is about, or the number of places.
fn by_text(notes: Vec<(String, String)>) -> Vec<String> {
    let mut texts: Vec<(String, BTreeSet<String>)> = Vec::new();
    for (place, text) in notes {
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, places)) => _ = places.insert(place),
            None => texts.push((text, BTreeSet::from([place]))),
        }
    }
    texts
        .into_iter()
        .map(|(text, places)| match places.first() {
            Some(place) if places.len() == 1 => format!("{place}: {text}"),
            _ => format!("{} comparisons: {text}", places.len()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn a_terminal_gets_lines_and_a_pipe_the_sentence() {
        let text = "one two three four";
        assert_eq!(wrapped(text, "  ", Some(10)), "one two\n  three\n  four");
        assert_eq!(wrapped(text, "  ", None), text);
    }
}
