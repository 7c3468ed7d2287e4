//! From the text of a study file to a [`Study`], or to all that is wrong with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use store::bundle::sha256;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::axes::{
    OptionAt, Places, check_options, choice, read_axes, read_ladder, read_options, read_plain_axes,
};
use super::compare::{read_compare, read_excludes};
use super::intervene::{check_intervene, read_intervene};
use super::line::{Beside, check_line, read_line, read_quick_line};
use super::load::{
    LoadSpans, check_clients, check_duel, read_blocks, read_gates, read_length, read_load, read_phase,
    read_prime,
};
use super::model::*;
use super::problem::{Problem, StudyError};
use super::read::{Item, Problems, Table, word};
use crate::fleet::Wishes;
use crate::plan::RUNS_MAX;
use crate::workloads::Unpacked;

/// Reads the text of a study file; `path` only names it.
pub fn parse(path: &Path, text: &str) -> Result<Study, StudyError> {
    parse_with(path, text, &Unpacked::new())
}

/// The same, with files of workloads that came with the text.
pub(crate) fn parse_with(path: &Path, text: &str, unpacked: &Unpacked) -> Result<Study, StudyError> {
    let refused = |mut problems: Vec<Problem>, shown: String| {
        problems.sort_by_key(|problem| problem.span.start);
        for problem in &mut problems {
            problem.message = wire::mask::prose(&wire::shown(&problem.message));
            problem.help = problem.help.take().map(|help| wire::mask::prose(&wire::shown(&help)));
        }
        StudyError { path: path.to_owned(), text: shown, problems }
    };
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let message = format!("this is not valid TOML: {}", error.message().replace('\n', ", "));
            let problem = Problem { message, span, label: "here".into(), help: None };
            return Err(refused(vec![problem], wire::mask::prose_stars(text)));
        }
    };
    let mask = Mask::new(text, root.get_ref());
    let mut problems = Problems::default();
    let table = Table::new(root.get_ref(), root.span(), "");
    let Parts { title, question, body, quick, fleet, price, spans } = study(table, &mut problems, unpacked);
    if !problems.0.is_empty() {
        return Err(refused(problems.0, mask.stars(text)));
    }
    Ok(Study {
        name: path.file_stem().map_or_else(|| "study".into(), |stem| stem.to_string_lossy().into_owned()),
        path: path.to_owned(),
        text: mask.text(text),
        file_sha256: sha256(text.as_bytes()),
        title,
        question,
        body,
        quick,
        fleet,
        price,
        places: spans.into_iter().map(|(name, span)| (name, mask.span(&span))).collect(),
    })
}

/// What hides the passwords of a study file: pieces of its text, in order, and what is shown in their place.
struct Mask {
    edits: Vec<(Range<usize>, String)>,
}

impl Mask {
    /// URLs in its strings, which go on to their ends, and those in its comments.
    fn new(text: &str, root: &DeTable<'_>) -> Mask {
        let mut strings = Vec::new();
        root.values().for_each(|value| collect_strings(value, &mut strings));
        let masked = strings.into_iter().map(|(span, value)| (span, value, wire::mask::value(value)));
        // Only what is masked is written anew, for a string can be written in many ways.
        let mut edits: Vec<_> = masked
            .filter(|(_, value, masked)| masked != value)
            .map(|(span, _, masked)| (span, toml::Value::String(masked).to_string()))
            .collect();
        for span in wire::mask::prose_spans(text) {
            let is_apart =
                |(edit, _): &(Range<usize>, String)| edit.end <= span.start || span.end <= edit.start;
            if edits.iter().all(is_apart) {
                edits.push((span, "***".to_owned()));
            }
        }
        edits.sort_by_key(|(span, _)| span.start);
        Mask { edits }
    }

    fn text(&self, text: &str) -> String {
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for (span, shown) in &self.edits {
            out.push_str(&text[at..span.start]);
            out.push_str(shown);
            at = span.end;
        }
        out.push_str(&text[at..]);
        out
    }

    /// The text with an asterisk for each byte that is hidden, so that everything stays in its place.
    fn stars(&self, text: &str) -> String {
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for (span, _) in &self.edits {
            out.push_str(&text[at..span.start]);
            let hidden = &text[span.clone()];
            match hidden.starts_with(['"', '\'']) && !hidden.contains('\\') {
                true => out.push_str(&wire::mask::value_stars(hidden)),
                // A password, or a string whose escapes hide where it is.
                false => out.push_str(&"*".repeat(hidden.len())),
            }
            at = span.end;
        }
        out.push_str(&text[at..]);
        out
    }

    /// Where a piece of the text stands in what is shown.
    fn span(&self, span: &Range<usize>) -> Range<usize> {
        let at = |byte: usize, is_end: bool| {
            let mut moved = byte;
            for (edit, shown) in self.edits.iter().take_while(|(edit, _)| edit.start < byte) {
                // Within what is replaced: its beginning, or its end.
                let reached = byte.min(edit.end);
                let kept = if reached == edit.end || is_end { shown.len() } else { 0 };
                moved = moved + kept - (reached - edit.start);
            }
            moved
        };
        at(span.start, false)..at(span.end, true)
    }
}

fn collect_strings<'a>(value: &'a Spanned<DeValue<'_>>, out: &mut Vec<(Range<usize>, &'a str)>) {
    match value.get_ref() {
        DeValue::String(text) => out.push((value.span(), text)),
        DeValue::Array(items) => items.iter().for_each(|item| collect_strings(item, out)),
        DeValue::Table(table) => table.values().for_each(|item| collect_strings(item, out)),
        _ => {}
    }
}

/// What a study's text says.
struct Parts {
    title: String,
    question: String,
    body: Body,
    quick: Quick,
    fleet: Wishes,
    price: Option<String>,
    /// Places of what is checked later, when the servers are known, by name.
    spans: BTreeMap<String, Range<usize>>,
}

fn study(mut table: Table<'_>, problems: &mut Problems, unpacked: &Unpacked) -> Parts {
    let title = table.need("title", problems, "title = \"MariaDB and PostgreSQL side by side\"");
    let title = title.and_then(|item| item.text(problems)).map_or_else(String::new, |at| at.value);
    let question = table.need("question", problems, "question = \"Which one carries more read-only load?\"");
    let question = question.and_then(|item| item.text(problems)).map_or_else(String::new, |at| at.value);

    let mut places = Places::new(unpacked);
    let mut axes = Axes::default();
    let mut beside = Beside::default();
    if let Some(item) = table.need("axes", problems, "[axes]\nserver = [\"mariadb\", \"postgres\"]")
        && let Some(mut inner) = item.table(problems, "[axes]")
    {
        let span = inner.key_span("server");
        beside.look("axes", &inner);
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
    let (switched, timed, intervene_spans) = read_intervene(table.get("intervene"), problems);
    axes.intervene = switched;
    let axes_span = table.key_span("axes");
    let mut option_spans = Vec::new();
    let options = read_options(table.get("options"), problems, &mut option_spans);
    let (load, load_spans) = match table.get("load").and_then(|item| item.table(problems, "[load]")) {
        Some(inner) => {
            beside.look("load", &inner);
            read_load(inner, problems)
        }
        None => (Load::default(), LoadSpans::default()),
    };
    let (line, line_spans) = match table.get("line").and_then(|item| item.table(problems, "[line]")) {
        Some(inner) => read_line(inner, problems),
        None => Default::default(),
    };
    let (machine, price) = match table.get("machine").and_then(|item| item.table(problems, "[machine]")) {
        Some(inner) => read_machine(inner, problems),
        None => Default::default(),
    };
    let load_span = table.key_span("load");
    let has_compare = table.has("compare") || !axes.intervene.is_empty();
    if load.until.is_some() && !has_compare {
        let help = "add [compare] with axis and base, or leave `until` out";
        problems.add_help(
            &load_span,
            "`until` waits for verdicts, and nothing is compared",
            "no [compare]",
            help,
        );
    }
    let mut quick_places = Places::new(unpacked);
    let quick_span = table.key_span("quick");
    let quick = match table.get("quick").and_then(|item| item.table(problems, "[quick]")) {
        Some(inner) => {
            beside.look("quick", &inner);
            read_quick(inner, &axes, problems, &mut quick_places, &mut option_spans)
        }
        None => Quick::default(),
    };
    if let Some(asked) = &line {
        beside.refuse(problems);
        // The server is made for so many, and the run's level is called so.
        axes.ladder = Ladder::Sessions(vec![asked.sessions_max]);
    }
    check_options(&axes, &quick, &option_spans, &mut [&mut places, &mut quick_places], problems);
    let compare = table.get("compare").and_then(|item| item.table(problems, "[compare]")).and_then(|inner| {
        places.spans.insert("margin".to_owned(), inner.key_span("margin"));
        read_compare(inner, &axes, (&load, line.as_ref()), problems)
    });
    if let Some(inner) = table.get("report").and_then(|item| item.table(problems, "[report]")) {
        read_report(inner, problems);
    }
    if let Some(inner) = table.get("author").and_then(|item| item.table(problems, "[author]")) {
        read_author(inner, problems);
    }
    let fleet = table.get("fleet").and_then(|item| item.table(problems, "[fleet]"));
    let fleet = fleet.map_or_else(Wishes::default, |inner| read_fleet(inner, problems));
    let exclude_span = table.key_span("exclude");
    let excludes = match table.get("exclude") {
        Some(item) => read_excludes(item, &axes, &quick, problems),
        None => Vec::new(),
    };
    table.finish(problems);
    let body = Body { axes, options, load, line, machine, compare, excludes, timed };
    if problems.0.is_empty() {
        let both = [(&body, &axes_span, ""), (&quick.apply_to(&body), &quick_span, "with --quick, ")];
        for (body, span, when) in both {
            check_duel(body, &load_spans.pairing, when, problems);
            check_clients(body, &load_spans.clients, when, problems);
            check_intervene(body, &intervene_spans, &load_span, when, problems);
            check_line(body, &line_spans, ((!when.is_empty()).then_some(span), when), problems);
            if !check_size(body, span, when, problems) {
                break;
            }
            if crate::plan::cells(body).is_empty() && when.is_empty() {
                problems.add(
                    &exclude_span,
                    "[[exclude]] leaves nothing to measure",
                    "every cell is excluded",
                );
            } else if crate::plan::cells(body).is_empty() {
                let message = "with --quick, [[exclude]] leaves nothing to measure";
                let help = "[[quick.exclude]] replaces the study's own list, for --quick alone";
                problems.add_help(span, message, "of these cells every one is excluded", help);
            }
            if !problems.0.is_empty() {
                break;
            }
        }
    }
    let mut spans = quick_places.spans;
    spans.extend(places.spans);
    for (key, span) in [("pairing", load_spans.pairing), ("client_cpus", load_spans.client_cpus)] {
        spans.insert(key.to_owned(), span);
    }
    spans.extend(intervene_spans.named.into_iter().map(|(name, span)| (format!("intervene/{name}"), span)));
    if let Some(asked) = &body.line {
        spans.insert(format!("level/{}", asked.sessions_max), line_spans.sessions_max);
    }
    Parts { title, question, body, quick, fleet, price, spans }
}

/// Refuses a study whose plan nobody could run, before the plan takes the memory of the machine.
fn check_size(body: &Body, span: &Range<usize>, when: &str, problems: &mut Problems) -> bool {
    let cells = crate::plan::cells_at_most(body);
    let (count, what) = match cells <= RUNS_MAX {
        true => (crate::plan::run_count(body), "runs"),
        false => (cells, "cells"),
    };
    if count > RUNS_MAX {
        let message = format!("{when}this study has {count} {what}");
        let help = "take values from its axes, lower `blocks`, or make several studies of it";
        problems.add_help(span, message, format!("at most {RUNS_MAX}"), help);
    }
    count <= RUNS_MAX
}

fn read_machine(mut table: Table<'_>, problems: &mut Problems) -> (MachineWishes, Option<String>) {
    let mut wishes = MachineWishes::default();
    if let Some(word) = choice(table.get("idle"), problems, "what idle cpus do", ["awake", "as-is"]) {
        wishes.idle = if word == "awake" { Idle::Awake } else { Idle::AsIs };
    }
    if let Some(word) = choice(table.get("turbo"), problems, "what turbo does", ["off", "as-is"]) {
        wishes.turbo = if word == "off" { Turbo::Off } else { Turbo::AsIs };
    }
    let price = table.get("price").and_then(|item| item.text(problems));
    let price = price.filter(|price| {
        let is_good = is_price(&price.value);
        if !is_good {
            let message = format!("`{}` is no price", price.value);
            problems.add_help(&price.span, message, "unknown", "for example: price = \"0.40 USD/h\"");
        }
        is_good
    });
    table.finish(problems);
    (wishes, price.map(|price| price.value))
}

/// An amount, a currency of three letters, and for how long.
fn is_price(text: &str) -> bool {
    let Some((amount, rest)) = text.split_once(' ') else { return false };
    let Some((currency, time)) = rest.split_once('/') else { return false };
    amount.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && amount.len() <= 12
        && amount.parse::<f64>().is_ok()
        && currency.len() == 3
        && currency.bytes().all(|byte| byte.is_ascii_uppercase())
        && ["h", "month"].contains(&time)
}

/// Where blocks are made. Without `on` it says how, for whoever says `--on`.
fn read_fleet(mut table: Table<'_>, problems: &mut Problems) -> Wishes {
    let text = |item: Option<Item<'_>>, problems: &mut Problems| {
        item.and_then(|item| item.text(problems)).map(|text| text.value)
    };
    let on = choice(table.get("on"), problems, "what gives nodes", ["slurm"]);
    let nodes = table.get("nodes").and_then(|item| item.count::<u32>(problems, 1));
    let nodes = nodes.map(|nodes| nodes.value);
    let partition = text(table.get("partition"), problems);
    let constraint = text(table.get("constraint"), problems);
    let time_limit =
        table.get("time_limit").and_then(|item| item.duration(problems)).map(|limit| limit.value);
    let calibrate =
        table.get("calibrate").and_then(|item| item.duration(problems)).map(|budget| budget.value);
    let client_nodes = table.get("client_nodes").and_then(|item| item.count::<u32>(problems, 1));
    let client_nodes = client_nodes.map(|nodes| nodes.value);
    let noise_max = table.get("noise_max").and_then(|item| item.number(problems));
    if let Some(at) = noise_max.as_ref().filter(|at| !(at.value > 0.0 && at.value < 1.0)) {
        let message = format!("a noise of {} is not possible", at.value);
        problems.add_help(&at.span, message, "above 0 and below 1", "0.05 is 5 %");
    }
    let noise_max = noise_max.map(|at| at.value);
    table.finish(problems);
    Wishes {
        is_on: on.is_some(),
        nodes,
        partition,
        constraint,
        time_limit,
        calibrate,
        client_nodes,
        noise_max,
    }
}

/// What the report shall show. It decides nothing of what is measured, and so is no part of the study's meaning.
fn read_report(mut table: Table<'_>, problems: &mut Problems) {
    for (key, what, allowed) in [
        ("sections", "a section of reports", store::SECTIONS),
        ("published", "a set of published figures", store::PUBLISHED),
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

/// Whoever reads the stored file takes it from there.
fn read_author(mut table: Table<'_>, problems: &mut Problems) {
    for key in ["name", "contact", "licence", "disclaimer"] {
        table.get(key).and_then(|item| item.text(problems));
    }
    if let Some(item) = table.get("keywords") {
        item.list(problems).into_iter().for_each(|member| drop(member.text(problems)));
    }
    table.finish(problems);
}

fn read_quick(
    mut table: Table<'_>,
    full: &Axes,
    problems: &mut Problems,
    places: &mut Places<'_>,
    spans: &mut Vec<OptionAt>,
) -> Quick {
    let ladder_given = table.has("sessions") || table.has("climb");
    let mut axes = Axes::default();
    let mut options = BTreeMap::new();
    if let Some(item) = table.get("options") {
        options = read_options(Some(item), problems, spans);
    }
    axes.ladder = read_ladder(&mut table, problems, places).unwrap_or_default();
    let warmup = table.get("warmup").and_then(|item| item.duration(problems)).map(|at| at.value);
    let length = read_length(&mut table, problems);
    let blocks = read_blocks(&mut table, problems);
    let prime = read_prime(&mut table, problems);
    let phase = read_phase(&mut table, problems);
    let is_lenient = read_gates(&mut table, problems);
    read_plain_axes(&mut table, problems, &mut axes, places);
    let line = table.get("line").and_then(|item| item.table(problems, "`line`"));
    let line = line.map(|inner| read_quick_line(inner, problems));
    let exclude = table.get("exclude");
    table.finish(problems);
    let ladder = ladder_given.then(|| axes.ladder.clone());
    let mut quick = Quick {
        warmup,
        length,
        blocks,
        prime,
        phase,
        is_lenient,
        ladder,
        line,
        axes,
        options,
        excludes: None,
    };
    quick.excludes = exclude.map(|item| read_excludes(item, full, &quick, problems));
    quick
}
