//! `[[intervene]]`: what is changed of a server while it is loaded.

use std::ops::Range;
use std::time::Duration;

use store::NO_INTERVENTION;

use super::model::*;
use super::read::{At, Item, Problems, Table};
use crate::intervene::variable::{Effect, effect};
use crate::stop::SIDES_MAX;

/// Where it stands, for what is checked when the whole study is known.
#[derive(Debug, Default)]
pub(super) struct InterveneSpans {
    /// Of the first one that is switched on and off.
    switched: Option<Range<usize>>,
    /// Of `at`, of each that comes at a moment.
    timed: Vec<(Duration, Range<usize>)>,
    /// Of each, by its name.
    pub(super) named: Vec<(String, Range<usize>)>,
}

/// What the tables `[[intervene]]` say: what is switched on and off, and what comes at a moment.
pub(super) fn read_intervene(
    item: Option<Item<'_>>,
    problems: &mut Problems,
) -> (Vec<Intervention>, Vec<Timed>, InterveneSpans) {
    let (mut switched, mut timed, mut spans) = (Vec::new(), Vec::new(), InterveneSpans::default());
    let Some(item) = item else { return (switched, timed, spans) };
    let mut names: Vec<String> = vec![NO_INTERVENTION.to_owned()];
    for member in item.list(problems) {
        let Some(mut table) = member.table(problems, "[[intervene]]") else { continue };
        let head = table.span();
        let at = table.get("at").and_then(|item| item.duration(problems));
        let read = read_one(&mut table, at.as_ref(), problems);
        table.finish(problems);
        let Some((name, change)) = read else { continue };
        if names.contains(&name.value) {
            let label =
                if name.value == NO_INTERVENTION { "what the study calls no intervention" } else { "twice" };
            problems.add(&name.span, format!("an intervention cannot be called `{}`", name.value), label);
            continue;
        }
        names.push(name.value.clone());
        spans.named.push((name.value.clone(), name.span.clone()));
        match at {
            Some(at) => {
                spans.timed.push((at.value, at.span));
                timed.push(Timed { name: name.value, at: at.value, change });
            }
            None => {
                spans.switched.get_or_insert(head);
                switched.push(Intervention { name: name.value, change });
            }
        }
    }
    (switched, timed, spans)
}

const EXAMPLE: &str = "on = \"SET GLOBAL general_log = ON\"";

fn read_one(
    table: &mut Table<'_>,
    at: Option<&At<Duration>>,
    problems: &mut Problems,
) -> Option<(At<String>, Changes)> {
    let name = table.need("name", problems, "name = \"general_log\"");
    let name = name
        .and_then(|item| super::axes::label_of(item, problems).map(|value| At { value, span: item.span() }));
    let mut changes = Changes::default();
    let mut has_own = false;
    for flavor in ["mysql", "mariadb", "percona", "postgres"] {
        let Some(item) = table.get(flavor) else { continue };
        has_own = true;
        let Some(mut own) = item.table(problems, format!("`{flavor}` of [[intervene]]")) else { continue };
        if let Some(change) = read_change(&mut own, at, problems) {
            changes.by_flavor.insert(flavor.to_owned(), change);
        }
        own.finish(problems);
    }
    if !has_own || ["settings", "on", "off", "sql"].iter().any(|key| table.has(key)) {
        changes.any = Some(read_change(table, at, problems)?);
    }
    Some((name?, changes))
}

/// What is changed, and how that is taken back.
fn read_change(table: &mut Table<'_>, at: Option<&At<Duration>>, problems: &mut Problems) -> Option<Change> {
    let settings = table.get("settings");
    let statements = [table.get("on"), table.get("off"), table.get("sql")];
    let [on, off, sql] = statements;
    if let Some(settings) = settings {
        for (key, _) in ["on", "off", "sql"].iter().zip(statements).filter(|(_, item)| item.is_some()) {
            let help = "leave one of them out: statements for what is no variable, settings for what is one";
            problems.add_help(
                &table.key_span(key),
                format!("`{key}` and `settings` both say what is changed"),
                "second",
                help,
            );
        }
        let set = settings.scalars(problems);
        for (name, value) in &set {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c)) {
                problems.add(
                    &value.span,
                    format!("`{name}` is not the name of a variable"),
                    "letters, digits, `_` and `.`",
                );
            }
        }
        if set.is_empty() {
            problems.add(&settings.span(), "no variable to change", "for example { general_log = \"ON\" }");
        }
        return Some(Change::Settings(set.into_iter().map(|(name, value)| (name, value.value)).collect()));
    }
    Some(match at {
        Some(_) => {
            for (key, item) in [("on", on), ("off", off)] {
                if item.is_some() {
                    let help = "with `at` write sql = \"...\"; without it the server is switched on and off again and again";
                    problems.add_help(
                        &table.key_span(key),
                        format!("`{key}` and `at` exclude each other"),
                        "with `at`",
                        help,
                    );
                }
            }
            let needed = if on.is_some() {
                on
            } else {
                table.need("sql", problems, "sql = \"SET GLOBAL general_log = ON\"")
            };
            Change::Sql { on: statements_of(needed?, problems), off: Vec::new() }
        }
        None => {
            if sql.is_some() {
                let help = "add at = \"30s\" for a change at a moment; for one that is switched on and off, write it as `on`, \
                            and what takes it back as `off`";
                problems.add_help(&table.key_span("sql"), "when does this come?", "no `at`", help);
                return None;
            }
            let (on, off) = (table.need("on", problems, EXAMPLE), off);
            if off.is_none() && on.is_some() {
                let help = "add off = \"SET GLOBAL general_log = OFF\"; a change that nothing takes back has at = \"30s\" and \
                            `sql` instead";
                problems.add_help(&table.key_span("on"), "what switches it off again?", "no `off`", help);
            }
            Change::Sql { on: statements_of(on?, problems), off: statements_of(off?, problems) }
        }
    })
}

/// A statement or a list of them; those that change nothing of the load's sessions are refused.
fn statements_of(item: Item<'_>, problems: &mut Problems) -> Vec<String> {
    let texts: Vec<At<String>> =
        item.list(problems).into_iter().filter_map(|item| item.text(problems)).collect();
    let effects: Vec<Effect> = texts.iter().map(|text| effect(&text.value)).collect();
    for (text, effect) in texts.iter().zip(&effects) {
        if text.value.trim().is_empty() {
            problems.add(&text.span, "a statement is needed here", "empty");
        } else if *effect == Effect::Session {
            let help = "SET GLOBAL changes the server (PostgreSQL: ALTER SYSTEM SET, then SELECT pg_reload_conf(); or settings = \
                        { NAME = VALUE } for either)";
            let message =
                "this changes nothing but the session that sends it, which is not one of the load's";
            problems.add_help(&text.span, message, "of one session", help);
        }
    }
    let last = effects.iter().rposition(|effect| matches!(effect, Effect::Configured(_)));
    if let Some(last) = last.filter(|last| !effects[*last..].contains(&Effect::Reload)) {
        let help = "add \"SELECT pg_reload_conf()\" behind it, or write settings = { NAME = VALUE }";
        problems.add_help(
            &texts[last].span,
            "the server does not read this before it is told to",
            "not in effect",
            help,
        );
    }
    texts.into_iter().map(|text| text.value).collect()
}

/// Phases of each state in a run of one level: one before and one after another state's.
pub(crate) const PHASES_MIN: u32 = 2;

/// Refuses interventions that cannot be.
pub(super) fn check_intervene(
    body: &Body,
    spans: &InterveneSpans,
    load: &Range<usize>,
    when: &str,
    problems: &mut Problems,
) {
    let lengths = || body.axes.workload.iter().map(|workload| workload.length.unwrap_or(body.load.length));
    for (at, span) in &spans.timed {
        let too_late = lengths().find_map(|length| match length {
            Length::Time(length) if length > *at => None,
            Length::Time(length) => Some(format!("a level is measured for {}", super::units::show(length))),
            Length::Transactions(_) => {
                Some("a level that ends with its transactions may be over before".to_owned())
            }
        });
        if let Some(why) = too_late {
            let help = "give a longer `duration`, or an earlier `at`: it counts from the start of the measured phase";
            problems.add_help(span, format!("{when}{why}"), "too late", help);
        }
    }
    let is_any = spans.switched.is_some() || !spans.timed.is_empty();
    let first = spans.switched.as_ref().or(spans.timed.first().map(|(_, span)| span));
    let Some(first) = first.filter(|_| is_any) else {
        if body.load.phase.is_some() {
            let help = "add an [[intervene]] with `on` and `off`, or leave `phase` out";
            problems.add_help(
                load,
                format!("{when}`phase` is of what is switched on and off"),
                "no [[intervene]]",
                help,
            );
        }
        return;
    };
    let mut refuse = |message: &str, label: &str, help: &str| {
        problems.add_help(first, format!("{when}{message}"), label, help);
    };
    if body.line.is_some() {
        let help = "leave [line] out: interventions are between the phases of a load that is given";
        refuse("a search for a load line changes its load all the time", "with [line]", help);
    }
    if matches!(body.axes.ladder, Ladder::Climb(_)) {
        let help = "write sessions = [..] instead of climb: each level is a run of its own";
        refuse("the levels of a climb follow each other without a break", "with `climb`", help);
    }
    if body.load.pairing == Pairing::Duel {
        let help = "leave `pairing` out: states of one server are paired within its life already";
        refuse("a duel and an intervention both cut the load into slices", "with `pairing = \"duel\"`", help);
    }
    if body.load.clients > 1 {
        let help = "leave `clients` out: phases begin and end in the process that has the sessions";
        refuse("the load of several clients is not cut into phases", "with `clients`", help);
    }
    if body.load.hot_locks {
        refuse("the pass for hot locks switches nothing", "with `hot_locks`", "leave `hot_locks` out");
    }
    if spans.switched.is_none() {
        return;
    }
    if !spans.timed.is_empty() {
        let help = "make two studies of it, one with `at`";
        refuse("a change at a moment would fall into the phases of others", "with another one's `at`", help);
    }
    let states = body.axes.interventions().len();
    if states > SIDES_MAX {
        let label = format!("at most {}", SIDES_MAX - 1);
        refuse(
            &format!("{} interventions in one server life", states - 1),
            &label,
            "make several studies of it",
        );
    }
    let phase = crate::intervene::phase_of(body);
    for length in lengths() {
        match length {
            Length::Transactions(_) => {
                let help = "give a `duration`: it is what each state is measured for in a run";
                return refuse("phases go by the clock", "with `transactions`", help);
            }
            Length::Time(length) if length < phase * PHASES_MIN => {
                let message = format!(
                    "a level is measured for {} in each state, which is less than two phases of {}",
                    super::units::show(length),
                    super::units::show(phase)
                );
                return refuse(
                    &message,
                    "too short",
                    "give a longer `duration`, or a shorter `phase` in [load]",
                );
            }
            Length::Time(_) => {}
        }
    }
}
