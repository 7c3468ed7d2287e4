//! From the text of a study file to a [`Study`], or to all that is wrong with it.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};
use toml::de::DeTable;

use super::axes::{Places, check_options, read_axes, read_ladder, read_options, read_plain_axes};
use super::compare::{read_compare, read_excludes};
use super::load::{read_gates, read_length, read_load, read_prime};
use super::mask_passwords;
use super::model::*;
use super::problem::{Problem, StudyError};
use super::read::{At, Problems, Table, word};

/// Reads the text of a study file; `path` only names it.
pub fn parse(path: &Path, text: &str) -> Result<Study, StudyError> {
    let refused = |mut problems: Vec<Problem>| {
        problems.sort_by_key(|problem| problem.span.start);
        StudyError { path: path.to_owned(), text: text.to_owned(), problems }
    };
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let message = format!("this is not valid TOML: {}", error.message().replace('\n', ", "));
            let problem = Problem { message, span, label: "here".into(), help: None };
            return Err(refused(vec![problem]));
        }
    };
    let mut problems = Problems::default();
    let table = Table::new(root.get_ref(), root.span(), "");
    let (title, question, body, quick) = study(table, &mut problems);
    if !problems.0.is_empty() {
        return Err(refused(problems.0));
    }
    Ok(Study {
        name: path.file_stem().map_or_else(|| "study".into(), |stem| stem.to_string_lossy().into_owned()),
        path: path.to_owned(),
        text: mask_passwords(text),
        file_sha256: Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
        title,
        question,
        body,
        quick,
    })
}

fn study(mut table: Table<'_>, problems: &mut Problems) -> (String, String, Body, Quick) {
    let title = table.need("title", problems, "title = \"MariaDB and PostgreSQL side by side\"");
    let title = title.and_then(|item| item.text(problems)).map_or_else(String::new, |at| at.value);
    let question = table.need("question", problems, "question = \"Which one carries more read-only load?\"");
    let question = question.and_then(|item| item.text(problems)).map_or_else(String::new, |at| at.value);

    let mut places = Places::default();
    let mut axes = Axes::default();
    if let Some(item) = table.need("axes", problems, "[axes]\nserver = [\"mariadb\", \"postgres\"]")
        && let Some(mut inner) = item.table(problems, "[axes]")
    {
        let span = inner.key_span("server");
        axes = read_axes(&mut inner, problems, &mut places);
        for (missing, example) in
            [("server", "server = \"mariadb\""), ("workload", "workload = \"oltp_read_only\"")]
        {
            if !inner.has(missing) {
                let head = span.start..(span.start + 1).min(span.end);
                let message = format!("`{missing}` is missing in [axes]");
                problems.add_help(
                    &head,
                    message,
                    "an axis that every study has",
                    format!("for example: {example}"),
                );
            }
        }
        inner.finish(problems);
    }
    let mut option_spans = Vec::new();
    let options = read_options(table.get("options"), problems, &mut option_spans);
    let load = match table.get("load").and_then(|item| item.table(problems, "[load]")) {
        Some(inner) => read_load(inner, problems),
        None => Load::default(),
    };
    let mut quick_places = Places::default();
    let quick_span = table.key_span("quick");
    let quick = match table.get("quick").and_then(|item| item.table(problems, "[quick]")) {
        Some(inner) => read_quick(inner, &axes, problems, &mut quick_places, &mut option_spans),
        None => Quick::default(),
    };
    check_options(&axes, &quick, &option_spans, &places, problems);
    let compare = table
        .get("compare")
        .and_then(|item| item.table(problems, "[compare]"))
        .and_then(|inner| read_compare(inner, &axes, &load, problems));
    if let Some(inner) = table.get("report").and_then(|item| item.table(problems, "[report]")) {
        read_report(inner, problems);
    }
    let exclude_span = table.key_span("exclude");
    let excludes = match table.get("exclude") {
        Some(item) => read_excludes(item, &axes, &quick, problems),
        None => Vec::new(),
    };
    table.finish(problems);
    let body = Body { axes, options, load, compare, excludes };
    if problems.0.is_empty() && crate::plan::cells(&body).is_empty() {
        problems.add(&exclude_span, "[[exclude]] leaves nothing to measure", "every cell is excluded");
    } else if problems.0.is_empty() && crate::plan::cells(&quick.apply_to(&body)).is_empty() {
        let message = "with --quick, [[exclude]] leaves nothing to measure";
        let help = "[[quick.exclude]] replaces the study's own list, for --quick alone";
        problems.add_help(&quick_span, message, "of these cells every one is excluded", help);
    }
    (title, question, body, quick)
}

/// What the report shall show. It decides nothing of what is measured, and so is no part of the study's meaning.
fn read_report(mut table: Table<'_>, problems: &mut Problems) {
    for (key, what, allowed) in [
        ("sections", "a section of reports", report::SECTIONS),
        ("published", "a set of published figures", report::PUBLISHED),
    ] {
        let Some(item) = table.get(key) else { continue };
        for member in item.list(problems) {
            if let Some(text) = member.text(problems) {
                word(problems, &text, what, allowed.iter().copied());
            }
        }
    }
    if let Some(item) = table.get("mean_from") {
        item.count::<u32>(problems, 1);
    }
    table.finish(problems);
}

fn read_quick(
    mut table: Table<'_>,
    full: &Axes,
    problems: &mut Problems,
    places: &mut Places,
    spans: &mut Vec<At<String>>,
) -> Quick {
    let ladder_given = table.has("sessions") || table.has("climb");
    let mut axes = Axes::default();
    let mut options = BTreeMap::new();
    if let Some(item) = table.get("options") {
        options = read_options(Some(item), problems, spans);
    }
    axes.ladder = read_ladder(&mut table, problems).unwrap_or_default();
    let warmup = table.get("warmup").and_then(|item| item.duration(problems)).map(|at| at.value);
    let length = read_length(&mut table, problems);
    let blocks = table.get("blocks").and_then(|item| item.count::<u32>(problems, 1)).map(|at| at.value);
    let prime = read_prime(&mut table, problems);
    let is_lenient = read_gates(&mut table, problems);
    read_plain_axes(&mut table, problems, &mut axes, places);
    let exclude = table.get("exclude");
    table.finish(problems);
    let ladder = ladder_given.then(|| axes.ladder.clone());
    let mut quick =
        Quick { warmup, length, blocks, prime, is_lenient, ladder, axes, options, excludes: None };
    quick.excludes = exclude.map(|item| read_excludes(item, full, &quick, problems));
    quick
}
