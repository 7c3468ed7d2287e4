//! The answer to a study's question in a few plain sentences: what is looked at first, on the terminal and on the page.

use std::collections::{BTreeMap, BTreeSet};

use stats::{Better, Rules, Verdict};
use store::INTERVENE;

use crate::lines::is_line;
use crate::load::label_or;
use crate::model::{Point, RunView, Sentence, StudyReport, VerdictView};
use crate::order::grouped;
use crate::text::{listed, metric_name, number, percent, ratio_end, ratio_span, value_text, would_decide};
use crate::verdict::{better, doubts};

/// Nobody reads a wall of answers: the rest is counted, and stands in the tables.
const SENTENCES_MAX: usize = 5;

/// The comparisons in the order of their weight.
pub(crate) struct Order<'a> {
    /// What the study is about.
    primary: Vec<&'a VerdictView>,
    rest: Vec<&'a VerdictView>,
}

impl<'a> Order<'a> {
    /// Of a study that does not say what it is about, the first metric that it asks for.
    pub(crate) fn of(study: &'a StudyReport) -> Order<'a> {
        let asked = || study.verdicts.iter().filter(|verdict| verdict.is_asked);
        let first = asked().next().map(|verdict| (&verdict.metric, &verdict.axis));
        let is_said = asked().any(|verdict| !verdict.is_primary);
        let (primary, rest) = asked().partition(|verdict| match is_said {
            true => verdict.is_primary,
            false => first == Some((&verdict.metric, &verdict.axis)),
        });
        Order { primary, rest }
    }
}

/// At most [`SENTENCES_MAX`] sentences, the primary comparisons first.
pub(crate) fn answer(study: &StudyReport, order: &Order<'_>) -> Vec<Sentence> {
    let mut sentences: Vec<Sentence> = inconsistent(study).into_iter().collect();
    let all: Vec<&VerdictView> = order.primary.iter().chain(&order.rest).copied().collect();
    if all.iter().all(|verdict| verdict.result.ratio.is_none() && verdict.absent.is_empty()) {
        if !all.is_empty() {
            sentences.push(Sentence::plain("No answer yet: no comparison has valid runs on both sides."));
        }
        // What the study is about, if not about a comparison: its load lines, its changes, or what carried most.
        let (mut told, mut what) = (crate::lines::sentences(study), "cells");
        if told.is_empty() {
            (told, what) = (crate::interventions::sentences(study), "changes");
        }
        if told.is_empty() {
            (told, what) = (peaks(study), "workloads");
        }
        let left = SENTENCES_MAX - sentences.len();
        sentences.extend(within(told, left, what));
        return sentences;
    }
    let left = SENTENCES_MAX - sentences.len();
    let groups = groups(&all);
    if groups.len() <= left {
        sentences.extend(groups.iter().map(|group| sentence(study, group)));
    } else {
        // One place is kept for what is only counted.
        let (primary, told) = primary_sentences(study, &order.primary, left - 1);
        sentences.extend(primary);
        let is_untold = |verdict: &&VerdictView| !told.iter().any(|one| std::ptr::eq(*one, *verdict));
        let untold: Vec<&VerdictView> = all.iter().copied().filter(is_untold).collect();
        sentences.extend(counted(&untold));
    }
    let what = if sentences.len() > 1 { "all this" } else { "it" };
    if let Some(doubt) = doubts(study, what, all.iter().flat_map(|view| [view.base, view.other])) {
        add_doubt(&mut sentences, &doubt);
    }
    sentences
}

/// Behind several sentences one of its own; where there is one only, or no room, the end of the last.
fn add_doubt(sentences: &mut Vec<Sentence>, doubt: &str) {
    if (2..SENTENCES_MAX).contains(&sentences.len()) {
        sentences.push(Sentence::plain(&format!("{doubt}.")));
    } else if let Some(last) = sentences.last_mut() {
        last.text = format!("{}; {doubt}.", last.text.trim_end_matches('.'));
    }
}

/// As many as there is room for, the last of them that there are more.
fn within(mut sentences: Vec<Sentence>, room: usize, what: &str) -> Vec<Sentence> {
    if sentences.len() > room {
        let more = sentences.split_off(room.saturating_sub(1)).len();
        sentences.push(Sentence::plain(&format!("{more} more {what}: see below.")));
    }
    sentences
}

/// Comparisons that differ in the load level alone.
fn groups<'a>(verdicts: &[&'a VerdictView]) -> Vec<Vec<&'a VerdictView>> {
    by(verdicts, |one| (&one.metric, &one.axis, &one.base_label, &one.other_label, &one.at))
}

/// In the order of the first of each group.
fn by<'a, K: PartialEq>(
    verdicts: &[&'a VerdictView],
    key: impl Fn(&'a VerdictView) -> K,
) -> Vec<Vec<&'a VerdictView>> {
    let groups = grouped(verdicts.iter().map(|verdict| (key(verdict), *verdict)));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Sentences on the primary comparisons, and which of these they tell: one for each pair of sides; or, where they are
/// too many, what leads and how all stand against the base, for each place.
fn primary_sentences<'a>(
    study: &StudyReport,
    primary: &[&'a VerdictView],
    room: usize,
) -> (Vec<Sentence>, Vec<&'a VerdictView>) {
    let pairs = groups(primary);
    if pairs.len() <= room {
        return (pairs.iter().map(|group| sentence(study, group)).collect(), primary.to_vec());
    }
    let places = by(primary, |one| (&one.metric, &one.axis, &one.base_label, &one.at));
    let (mut sentences, mut told) = (Vec::new(), Vec::new());
    if places.len() > room {
        let sides = by(primary, |one| (&one.metric, &one.axis, &one.base_label, &one.other_label));
        for side in sides.into_iter().take(room) {
            sentences.push(across_cells(&side));
            told.extend(side);
        }
        return (sentences, told);
    }
    for place in places {
        let leaders = leaders(study, place[0]);
        if sentences.len() + 1 + usize::from(leaders.is_some()) > room {
            break;
        }
        sentences.extend(leaders);
        sentences.push(against_base(study, &place));
        told.extend(place);
    }
    (sentences, told)
}

/// What carries most at each load level of a ranking, and what cannot be told apart from it.
fn leaders(study: &StudyReport, of: &VerdictView) -> Option<Sentence> {
    let ranking = study.rankings.iter().find(|ranking| ranking.is_of(of) && ranking.has_groups())?;
    let ladder: Vec<u32> = ranking.levels.iter().map(|level| level.sessions).collect();
    // Without groups, or with all in one, nothing leads.
    let (first, undecided): (Vec<_>, Vec<_>) = ranking
        .levels
        .iter()
        .map(|level| (level.leading(), level))
        .partition(|(leading, level)| !leading.is_empty() && leading.len() < level.places.len());
    let first = grouped(first.into_iter().map(|(leading, level)| (leading, level.sessions)));
    let undecided: Vec<u32> = undecided.into_iter().map(|(_, level)| level.sessions).collect();
    let mut parts: Vec<String> = first
        .iter()
        .map(|(leading, levels)| {
            let alike = if leading.len() > 1 { " (not told apart)" } else { "" };
            if is_line(&of.metric) {
                return format!("{}{alike}", listed(leading));
            }
            format!("{}{alike} at {}", listed(leading), sessions_text(&ladder, levels))
        })
        .collect();
    let tone = if parts.is_empty() { "undecided" } else { "faster" };
    if !undecided.is_empty() && is_line(&of.metric) {
        parts.push("none stands out".to_owned());
    } else if !undecided.is_empty() {
        parts.push(format!("none stands out at {}", sessions_text(&ladder, &undecided)));
    }
    let best = match better(&of.metric) {
        _ if is_line(&of.metric) => "Highest",
        Better::Higher => "Most",
        Better::Lower => "Least",
    };
    let text = format!("{best} {}{}: {}.", metric_name(&of.metric), on(of), parts.join("; "));
    Some(Sentence { text, tone })
}

/// How a side stands against its base over all load levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Faster,
    Slower,
    Equivalent,
    Mixed,
    Undecided,
    TooFewBlocks,
    NothingToCompare,
}

impl Class {
    /// The class, and the comparisons that it rests on.
    fn of<'a>(views: &[&'a VerdictView]) -> (Class, Vec<&'a VerdictView>) {
        let with = |is_shown: &dyn Fn(&VerdictView) -> bool| -> Vec<&'a VerdictView> {
            views.iter().copied().filter(|one| is_shown(one)).collect()
        };
        let decided = with(&|one| one.result.verdict != Verdict::Undecided);
        let Some(first) = decided.first().map(|one| one.result.verdict) else {
            let judged = with(&is_judged);
            let compared = with(&|one| one.result.ratio.is_some());
            return match (judged.is_empty(), compared.is_empty()) {
                (false, _) => (Class::Undecided, judged),
                (true, false) => (Class::TooFewBlocks, compared),
                (true, true) => (Class::NothingToCompare, compared),
            };
        };
        let class = match first {
            _ if decided.iter().any(|one| one.result.verdict != first) => Class::Mixed,
            Verdict::Faster => Class::Faster,
            Verdict::Slower => Class::Slower,
            Verdict::Equivalent | Verdict::Undecided => Class::Equivalent,
        };
        (class, decided)
    }

    fn text(self, margin: f64) -> String {
        match self {
            Class::Faster => "faster".to_owned(),
            Class::Slower => "slower".to_owned(),
            Class::Equivalent => format!("equivalent within {}", percent(margin)),
            Class::Mixed => "different by load level".to_owned(),
            Class::Undecided => "undecided".to_owned(),
            Class::TooFewBlocks => {
                format!("no verdict below {} blocks", Rules::default().blocks_min)
            }
            Class::NothingToCompare => "nothing to compare".to_owned(),
        }
    }
}

/// How several sides stand against their base: each of them once.
fn against_base(study: &StudyReport, place: &[&VerdictView]) -> Sentence {
    let first = place[0];
    let mut classes: BTreeMap<Class, Vec<(&str, Vec<&VerdictView>)>> = BTreeMap::new();
    for side in by(place, |one| &one.other_label) {
        // The whole climb speaks for its levels.
        let whole: Vec<&VerdictView> = side.iter().copied().filter(|one| one.climb.is_some()).collect();
        let (class, shown) = Class::of(if whole.is_empty() { &side } else { &whole });
        classes.entry(class).or_default().push((&side[0].other_label, shown));
    }
    let clauses: Vec<String> = classes
        .iter()
        .map(|(class, sides)| format!("{}{}", class.text(first.margin), sides_text(study, *class, sides)))
        .collect();
    let (metric, blocks) = (metric_name(&first.metric), blocks_text(place));
    let text =
        format!("{metric} against {}{} ({blocks}): {}.", first.base_label, on(first), clauses.join("; "));
    Sentence { text, tone: tone(place) }
}

/// More sides without a verdict than this share one span of ratios.
const SPANS_MAX: usize = 2;

/// ` at 1 to 16 sessions: a (×1.21 [1.14, 1.29]) and b (×1.31 [1.20, 1.42])`.
fn sides_text(study: &StudyReport, class: Class, sides: &[(&str, Vec<&VerdictView>)]) -> String {
    let places: BTreeSet<String> = sides.iter().map(|(_, shown)| where_text(study, shown)).collect();
    let shared = if places.len() == 1 { places.first().cloned().unwrap_or_default() } else { String::new() };
    let labels: Vec<String> = sides.iter().map(|(label, _)| (*label).to_owned()).collect();
    if class == Class::NothingToCompare {
        return format!(": {}", listed(&labels));
    }
    if matches!(class, Class::Undecided | Class::TooFewBlocks) && sides.len() > SPANS_MAX {
        let all: Vec<&VerdictView> = sides.iter().flat_map(|(_, shown)| shown).copied().collect();
        return format!("{shared}: {} ({})", listed(&labels), span(&all));
    }
    let texts: Vec<String> = sides
        .iter()
        .map(|(label, shown)| {
            let own = if shared.is_empty() { where_text(study, shown) } else { String::new() };
            format!("{label} ({}{own})", span(shown))
        })
        .collect();
    format!("{shared}: {}", listed(&texts))
}

/// More cells than this are counted instead of named.
const NAMES_MAX: usize = 2;

/// How one side stands against its base in many cells: how often, and by how much.
fn across_cells(side: &[&VerdictView]) -> Sentence {
    let first = side[0];
    let mut classes: BTreeMap<Class, (Vec<String>, Vec<&VerdictView>)> = BTreeMap::new();
    let cells = by(side, |one| &one.at);
    for cell in &cells {
        let (class, shown) = Class::of(cell);
        let (names, all) = classes.entry(class).or_default();
        names.push(cell[0].at.clone());
        all.extend(shown);
    }
    let clauses: Vec<String> = classes
        .iter()
        .map(|(class, (names, shown))| {
            let span = if shown.is_empty() { String::new() } else { format!(" ({})", span(shown)) };
            let names = match names.len() {
                count if count > NAMES_MAX || count == cells.len() => count.to_string(),
                _ => listed(names),
            };
            format!("{} in {names}{span}", class.text(first.margin))
        })
        .collect();
    let text = format!(
        "{} against {}, {} in {} ({}): {}.",
        first.other_label,
        first.base_label,
        metric_name(&first.metric),
        store::counted(cells.len(), "cell"),
        blocks_text(side),
        clauses.join("; ")
    );
    Sentence { text, tone: tone(side) }
}

/// What no sentence tells: how many comparisons came out how.
fn counted(untold: &[&VerdictView]) -> Option<Sentence> {
    if untold.is_empty() {
        return None;
    }
    let metrics: Vec<String> =
        by(untold, |one| &one.metric).iter().map(|group| metric_name(&group[0].metric)).collect();
    let mut parts: Vec<String> = VERDICTS[..3]
        .iter()
        .filter_map(|verdict| {
            let count = untold.iter().filter(|one| one.result.verdict == *verdict).count();
            (count > 0).then(|| format!("{count} {}", verdict.word()))
        })
        .collect();
    let open = untold.iter().filter(|one| one.result.verdict == Verdict::Undecided).count();
    if open > 0 {
        parts.push(format!("{open} open"));
    }
    let outcome = match parts.as_slice() {
        [only] => format!("all {}", only.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')),
        several => listed(several),
    };
    let more = store::counted(untold.len(), "more comparison");
    let text = format!("{more} ({}): {outcome}; see below.", listed(&metrics));
    Some(Sentence { text, tone: tone(untold) })
}

const VERDICTS: [Verdict; 4] = [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Undecided];

/// The verdict that colours a sentence.
fn tone(views: &[&VerdictView]) -> &'static str {
    let has = |verdict: Verdict| views.iter().any(|one| one.result.verdict == verdict);
    match VERDICTS.map(has) {
        [true, true, _, _] => "mixed",
        [true, false, _, _] => "faster",
        [false, true, _, _] => "slower",
        [_, _, true, false] => "equivalent",
        _ => "undecided",
    }
}

/// Runs whose tables are not what their counted outcomes imply: told on top of everything.
fn inconsistent(study: &StudyReport) -> Option<Sentence> {
    let is_bad = |run: &&RunView| {
        let mut gates = run.end.iter().flat_map(|end| &end.gates);
        gates.any(|gate| gate.is_tripped() && gate.name == crate::alarms::CONSISTENCY)
    };
    let runs: Vec<&str> = study.runs.iter().filter(is_bad).map(|run| run.id.as_str()).collect();
    (!runs.is_empty()).then(|| {
        Sentence::plain(&format!(
            "Tables are not what the counted outcomes imply in {} of {} ({}): either the server lost or invented \
             data, or Plimsoll miscounted.",
            runs.len(),
            store::counted(study.runs.len(), "run"),
            runs.join(", ")
        ))
    })
}

/// One sentence on all load levels of one pair of sides.
fn sentence(study: &StudyReport, group: &[&VerdictView]) -> Sentence {
    let first = group[0];
    let metric = metric_name(&first.metric);
    let head = format!("{} against {}{}", first.other_label, first.base_label, on(first));
    if group.iter().all(|view| view.result.ratio.is_none()) {
        let why = match group[0].absent.is_empty() {
            true => format!("{metric} has no valid run on both sides"),
            false => group[0].absent.join("; "),
        };
        return Sentence::plain(&format!("{head}: nothing to compare: {why}."));
    }
    let mut clauses = Vec::new();
    for part in parts(group) {
        let text = if clauses.is_empty() { capitalised(opening(study, &part)) } else { clause(study, &part) };
        clauses.push(text);
    }
    let missing: Vec<&VerdictView> =
        group.iter().copied().filter(|view| view.result.ratio.is_none()).collect();
    if !missing.is_empty() {
        let levels: Vec<&VerdictView> = missing.iter().copied().filter(|view| view.climb.is_none()).collect();
        let place = where_text(study, if levels.is_empty() { &missing } else { &levels });
        clauses.push(format!("nothing to compare{place}"));
    }
    let lost: Vec<&VerdictView> = group.iter().copied().filter(|view| view.lost.is_some()).collect();
    if !lost.is_empty() {
        let place = where_text(study, &lost);
        let text = "the sides lost different numbers of runs to faults of the measurement";
        clauses.push(format!(
            "{}{text}",
            if place.is_empty() { String::new() } else { format!("{} ", place.trim_start()) }
        ));
    }
    Sentence { text: format!("{}.", clauses.join("; ")), tone: tone(group) }
}

/// Comparisons of one sentence that say alike: what the study is about, the whole climb, then the levels by verdict, then those without one.
fn parts<'a>(group: &[&'a VerdictView]) -> Vec<Vec<&'a VerdictView>> {
    let mut compared: Vec<&VerdictView> =
        group.iter().copied().filter(|view| view.result.ratio.is_some()).collect();
    let place = |view: &&VerdictView| {
        let verdict = VERDICTS.iter().position(|known| *known == view.result.verdict);
        (!view.is_primary, view.climb.is_none(), !is_judged(view), verdict)
    };
    compared.sort_by_key(place);
    by(&compared, |view| place(&view))
}

/// Comparisons of one pair of sides that say alike, for one row of a table.
#[derive(Debug, Clone)]
pub struct Alike<'a> {
    /// At least one.
    pub verdicts: Vec<&'a VerdictView>,
    /// Their load levels: `8`, `1 to 16`, `climb`.
    pub levels: String,
}

impl StudyReport {
    /// The verdicts with those of like words at several load levels together, in the order in which they were asked for.
    pub fn alike(&self) -> Vec<Alike<'_>> {
        let ladder = self.ladder();
        let all: Vec<&VerdictView> = self.verdicts.iter().collect();
        let rows = groups(&all).into_iter().flat_map(|group| {
            let mut rows = parts(&group);
            let missing =
                group.iter().copied().filter(|view| view.result.ratio.is_none()).collect::<Vec<_>>();
            rows.extend(by(&missing, |view| view.climb.is_some()));
            rows
        });
        rows.map(|verdicts| {
            let levels = match verdicts[0].climb {
                Some(_) => "climb".to_owned(),
                None => levels_text(&ladder, &levels_of(self, &verdicts)),
            };
            Alike { verdicts, levels }
        })
        .collect()
    }

    /// What a verdict is about: `TPS, postgres@18 on oltp_read_write, 8 sessions`.
    pub fn verdict_name(&self, verdict: &VerdictView) -> String {
        format!("{}, {}", metric_name(&verdict.metric), self.verdict_place(verdict))
    }

    /// The same for all metrics: `postgres@18 on oltp_read_write, 8 sessions`.
    pub fn verdict_place(&self, verdict: &VerdictView) -> String {
        let place = match verdict.climb {
            Some(_) => "whole climb".to_owned(),
            None if is_line(&verdict.metric) => "load line".to_owned(),
            None => sessions_text(&self.ladder(), &levels_of(self, &[verdict])),
        };
        format!("{}{}, {place}", verdict.other_label, on(verdict))
    }
}

/// With a capital letter, unless it begins with a name.
fn capitalised(text: String) -> String {
    match text.strip_prefix("with") {
        Some(rest) => format!("With{rest}"),
        None => text,
    }
}

/// `postgres carries ×1.21 [1.14, 1.29] of mariadb's TPS on oltp_read_write at 8 sessions (faster, 5 blocks)`; what is no
/// server carries nothing: `with cpus 2, TPS on select-key is ×1.61 [1.58, 1.64] of that with cpus 1 (faster, 5 blocks)`.
fn opening(study: &StudyReport, part: &[&VerdictView]) -> String {
    let first = part[0];
    let (other, base, metric) = (&first.other_label, &first.base_label, metric_name(&first.metric));
    let (on, span, rest) = (on(first), span(part), clause_end(study, part));
    let is_server = first.axis == "server";
    match better(&first.metric) {
        _ if is_line(&first.metric) && is_server => {
            format!("{other} carries {span} of what {base} carries under {}{on}{rest}", first.metric)
        }
        _ if is_line(&first.metric) => {
            format!("with {other}, the line{on} under {} is {span} of that with {base}{rest}", first.metric)
        }
        // Both are states of one server.
        Better::Higher if first.axis == INTERVENE => {
            format!("{other} the server has {span} of its {metric} {base}{on}{rest}")
        }
        Better::Lower if first.axis == INTERVENE => {
            format!("{other} {metric}{on} is {span} of that {base}{rest}")
        }
        _ if !is_server => format!("with {other}, {metric}{on} is {span} of that with {base}{rest}"),
        Better::Higher => format!("{other} carries {span} of {base}'s {metric}{on}{rest}"),
        Better::Lower => format!("{other}'s {metric}{on} is {span} of {base}'s{rest}"),
    }
}

/// `×0.98 [0.95, 1.02] at 64 sessions (equivalent within 5 %, 5 blocks)`.
fn clause(study: &StudyReport, part: &[&VerdictView]) -> String {
    format!("{}{}", span(part), clause_end(study, part))
}

/// Where it is so, and what is said of it.
fn clause_end(study: &StudyReport, part: &[&VerdictView]) -> String {
    format!("{} ({})", where_text(study, part), standing(part))
}

/// The verdict, and what it rests on.
fn standing(part: &[&VerdictView]) -> String {
    let blocks = blocks_text(part);
    if !part.iter().any(|view| is_judged(view)) {
        return format!("no verdict: {blocks} of at least {}", Rules::default().blocks_min);
    }
    match part[0].result.verdict {
        Verdict::Equivalent => format!("equivalent within {}, {blocks}", percent(part[0].margin)),
        Verdict::Undecided => {
            let needed = part.iter().filter_map(|view| Some((view.result.blocks_needed?, view.result.n)));
            let needed = needed.max_by_key(|(blocks, _)| blocks[1]);
            let needed = needed.map_or_else(String::new, |(more, n)| format!(", {}", would_decide(more, n)));
            format!("undecided, {blocks}{needed}")
        }
        verdict => format!("{}, {blocks}", verdict.word()),
    }
}

/// `on oltp_read_write`, with a space before it.
fn on(view: &VerdictView) -> String {
    if view.at.is_empty() { String::new() } else { format!(" on {}", view.at) }
}

/// `×1.21 [1.14, 1.29]`; of several `×0.92 to ×0.95 [all within 0.89 to 0.97]`. Below the blocks of a verdict there is an
/// interval from three on: how wide it is tells why there is no verdict. That of two spans a thousandfold.
fn span(views: &[&VerdictView]) -> String {
    let ratios: Vec<f64> = views.iter().filter_map(|view| view.result.ratio).collect();
    let intervals: Option<Vec<(f64, f64)>> = views
        .iter()
        .map(|view| view.result.low.zip(view.result.high).filter(|_| view.result.n >= 3))
        .collect();
    let bare = |value: f64| ratio_end(value).trim_start_matches('×').to_owned();
    let interval = intervals.map_or_else(String::new, |all| {
        let low = all.iter().map(|one| one.0).fold(f64::MAX, f64::min);
        let high = all.iter().map(|one| one.1).fold(f64::MIN, f64::max);
        match all.len() {
            1 => format!(" [{}, {}]", bare(low), bare(high)),
            _ => format!(" [all within {} to {}]", bare(low), bare(high)),
        }
    });
    format!("{}{interval}", ratio_span(&ratios))
}

fn is_judged(view: &VerdictView) -> bool {
    view.result.p_adjusted.is_some()
}

/// The blocks that comparisons rest on: from the fewest to the most.
fn blocks_text(views: &[&VerdictView]) -> String {
    let blocks = || views.iter().filter(|view| view.result.ratio.is_some()).map(|view| view.result.n);
    let (fewest, most) = (blocks().min().unwrap_or(0), blocks().max().unwrap_or(0));
    let range = if fewest == most { String::new() } else { format!("{fewest} to ") };
    format!("{range}{}", store::counted(most, "block"))
}

/// The load levels of comparisons, with a space before them; nothing where the levels themselves are compared.
fn where_text(study: &StudyReport, views: &[&VerdictView]) -> String {
    if views.iter().any(|view| view.climb.is_some()) {
        return " over the whole climb".to_owned();
    }
    // A search takes the sessions that it needs.
    if views.first().is_none_or(|view| view.axis == "sessions" || is_line(&view.metric)) {
        return String::new();
    }
    format!(" at {}", sessions_text(&study.ladder(), &levels_of(study, views)))
}

fn levels_of(study: &StudyReport, views: &[&VerdictView]) -> Vec<u32> {
    views.iter().map(|view| study.points[view.other].sessions).collect()
}

/// `8 sessions`, `1 and 64 sessions`; three neighbours of a ladder and more are `1 to 16 sessions`.
fn sessions_text(ladder: &[u32], levels: &[u32]) -> String {
    let text = levels_text(ladder, levels);
    let word = if text == "1" { "session" } else { "sessions" };
    format!("{text} {word}")
}

fn levels_text(ladder: &[u32], levels: &[u32]) -> String {
    let place = |level: &u32| ladder.iter().position(|known| known == level);
    let mut places: Vec<usize> = levels.iter().filter_map(place).collect();
    places.sort_unstable();
    places.dedup();
    let mut texts = Vec::new();
    for run in places.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [first, _, .., last] => texts.push(format!("{} to {}", ladder[*first], ladder[*last])),
            few => texts.extend(few.iter().map(|at| ladder[*at].to_string())),
        }
    }
    listed(&texts)
}

/// Without a comparison: what carried most, for each workload.
fn peaks(study: &StudyReport) -> Vec<Sentence> {
    let mut best: BTreeMap<String, &Point> = BTreeMap::new();
    for point in &study.points {
        let workload = point.key.get("workload").map(value_text).unwrap_or_default();
        let Some(tps) = point.tps else { continue };
        let known = best.entry(workload).or_insert(point);
        if known.tps.is_none_or(|known| known.median < tps.median) {
            *known = point;
        }
    }
    best.into_iter()
        .filter_map(|(workload, point)| {
            let server = label_or(&point.identity, &study.varying, &["sessions", "workload"], &point.label);
            let tps = number(point.tps?.median);
            let at = sessions_text(&[point.sessions], &[point.sessions]);
            let text = format!("Highest throughput on {workload}: {server} with {tps} TPS at {at}.");
            Some(Sentence::plain(&text))
        })
        .collect()
}
