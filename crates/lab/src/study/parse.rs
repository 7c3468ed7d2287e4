//! From the text of a study file to a [`Study`], or to all that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use toml::de::DeTable;

use super::mask_passwords;
use super::model::*;
use super::problem::{Problem, StudyError, nearest, one_of};
use super::read::{At, Item, Problems, Table, word};

/// Axes that are named in `[axes]`, `[[exclude]]` and `[compare]`; options of workloads come to them.
const AXES: [&str; 11] = [
    "server",
    "workload",
    "settings",
    "engine",
    "storage",
    "cpus",
    "isolation",
    "charset",
    "env",
    "sessions",
    "climb",
];
const ISOLATIONS: [&str; 4] = ["read-uncommitted", "read-committed", "repeatable-read", "serializable"];
const PROFILES: [&str; 3] = ["safest", "fast", "unsafe"];
const LOGGING: [&str; 4] = ["none", "general-file", "general-table", "binlog"];
const METRICS: [&str; 7] = ["tps", "qps", "mean", "p50", "p95", "p99", "max"];
/// More sessions than a process can have sockets for.
const SESSIONS_MAX: u32 = 100_000;

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
    let quick = match table.get("quick").and_then(|item| item.table(problems, "[quick]")) {
        Some(inner) => read_quick(inner, problems, &mut quick_places, &mut option_spans),
        None => Quick::default(),
    };
    check_options(&axes, &quick, &option_spans, &places, problems);
    let compare = table
        .get("compare")
        .and_then(|item| item.table(problems, "[compare]"))
        .and_then(|inner| read_compare(inner, &axes, problems));
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
    }
    (title, question, body, quick)
}

/// Where names stand that are checked after everything has been read.
#[derive(Default)]
struct Places {
    options: Vec<At<String>>,
}

fn read_axes(table: &mut Table<'_>, problems: &mut Problems, places: &mut Places) -> Axes {
    let mut axes = Axes::default();
    read_plain_axes(table, problems, &mut axes, places);
    if let Some(item) = table.get("options")
        && let Some(inner) = item.table(problems, "[axes.options]")
    {
        for (key, item) in inner.entries() {
            let key = key.with(key.value.replace('-', "_"));
            let values =
                distinct(item, problems, "value", |i, p| i.scalar(p).map(|at| at.value), String::clone);
            if AXES.contains(&key.value.as_str()) {
                problems.add(&key.span, format!("`{}` is the name of an axis already", key.value), "twice");
            }
            axes.options.push((key.value.clone(), values));
            places.options.push(key);
        }
    }
    axes.ladder = read_ladder(table, problems).unwrap_or_default();
    axes
}

/// The axes that `[axes]` and `[quick]` share.
fn read_plain_axes(table: &mut Table<'_>, problems: &mut Problems, axes: &mut Axes, places: &mut Places) {
    if let Some(item) = table.get("server") {
        axes.server = distinct(item, problems, "server", read_server, |choice| {
            choice.label.clone().map_or(choice.server.clone(), |label| format!("{}+{label}", choice.server))
        });
    }
    if let Some(item) = table.get("workload") {
        let mut inner = Vec::new();
        axes.workload = distinct(
            item,
            problems,
            "workload",
            |item, problems| read_workload(item, problems, &mut inner),
            |choice| choice.label.clone(),
        );
        places.options.extend(inner);
    }
    if let Some(item) = table.get("settings") {
        axes.settings = distinct(item, problems, "set of settings", read_settings, |s| s.label.clone());
    }
    if let Some(item) = table.get("engine") {
        axes.engine = names(item, problems, "engine");
    }
    if let Some(item) = table.get("storage") {
        axes.storage = distinct(item, problems, "place", read_storage, |s| s.label.clone());
    }
    if let Some(item) = table.get("cpus") {
        axes.cpus = distinct(item, problems, "cpus", read_cpus, CpusChoice::label);
    }
    if let Some(item) = table.get("isolation") {
        axes.isolation = distinct(
            item,
            problems,
            "isolation level",
            |item, problems| {
                let text = item.text(problems)?;
                let text = text.with(text.value.to_lowercase().replace([' ', '_'], "-"));
                word(problems, &text, "an isolation level", ISOLATIONS).then_some(text.value)
            },
            String::clone,
        );
    }
    if let Some(item) = table.get("charset") {
        axes.charset = names(item, problems, "character set");
    }
    if let Some(item) = table.get("env") {
        axes.env = distinct(item, problems, "environment", read_env, |env| env.label.clone());
    }
}

/// A list on an axis, each value once.
fn distinct<T>(
    item: Item<'_>,
    problems: &mut Problems,
    what: &str,
    mut read: impl FnMut(Item<'_>, &mut Problems) -> Option<T>,
    name: impl Fn(&T) -> String,
) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for member in item.list(problems) {
        let Some(value) = read(member, problems) else { continue };
        if seen.insert(name(&value)) {
            all.push(value);
        } else {
            let message = format!("the {what} `{}` stands twice on its axis", mask_passwords(&name(&value)));
            let help = "to measure the same thing twice (an A/A control), give one of them a label: \
                        { server = \"mariadb\", label = \"again\" }";
            if what == "server" {
                problems.add_help(&member.span(), message, "the second time", help);
            } else {
                problems.add(&member.span(), message, "the second time");
            }
        }
    }
    all
}

fn names(item: Item<'_>, problems: &mut Problems, what: &str) -> Vec<String> {
    let read = |item: Item<'_>, problems: &mut Problems| {
        let text = item.text(problems)?;
        let fits = !text.value.is_empty()
            && text.value.chars().all(|c| c.is_ascii_alphanumeric() || "_-/.".contains(c));
        if !fits {
            problems.add(
                &text.span,
                format!("`{}` is not the name of a {what}", text.value),
                "letters, digits, _",
            );
        }
        fits.then_some(text.value)
    };
    distinct(item, problems, what, read, String::clone)
}

fn read_server(item: Item<'_>, problems: &mut Problems) -> Option<ServerChoice> {
    let (server, label) = if item.is_table() {
        let mut table = item.table(problems, "a server")?;
        let server = table.need("server", problems, "{ server = \"mariadb\", label = \"again\" }");
        let server = server.and_then(|item| item.text(problems));
        let label = table.get("label").and_then(|item| label_of(item, problems));
        table.finish(problems);
        (server?, label)
    } else {
        (item.text(problems)?, None)
    };
    if server.value.trim().is_empty() {
        problems.add(&server.span, "a server needs a name", "empty");
        return None;
    }
    if let Err(why) = crate::servers::check_name(&server.value) {
        problems.add_help(&server.span, why.message, "not a server", why.help);
        return None;
    }
    Some(ServerChoice { server: server.value, label })
}

fn label_of(item: Item<'_>, problems: &mut Problems) -> Option<String> {
    let text = item.text(problems)?;
    let fits =
        !text.value.is_empty() && text.value.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !fits {
        problems.add(
            &text.span,
            format!("`{}` cannot be a name", text.value),
            "letters, digits, `-`, `_` and `.`",
        );
    }
    fits.then_some(text.value)
}

fn read_workload(
    item: Item<'_>,
    problems: &mut Problems,
    places: &mut Vec<At<String>>,
) -> Option<WorkloadChoice> {
    if !item.is_table() {
        let name = item.text(problems)?;
        return known_workload(&name, problems).then(|| WorkloadChoice {
            label: name.value.clone(),
            name: name.value,
            options: BTreeMap::new(),
            length: None,
        });
    }
    let mut table = item.table(problems, "a workload")?;
    let name =
        table.need("workload", problems, "{ workload = \"oltp_read_write\", options = { tables = 4 } }");
    let name = name.and_then(|item| item.text(problems));
    let label = table.get("label").and_then(|item| label_of(item, problems));
    let options = read_options(table.get("options"), problems, places);
    let length = read_length(&mut table, problems);
    table.finish(problems);
    let name = name?;
    known_workload(&name, problems).then(|| WorkloadChoice {
        label: label.unwrap_or_else(|| name.value.clone()),
        name: name.value,
        options,
        length,
    })
}

fn known_workload(name: &At<String>, problems: &mut Problems) -> bool {
    let Err(why) = crate::workloads::find(&name.value) else { return true };
    if name.value.ends_with(".sql") || name.value.ends_with(".smack") {
        problems.add(&name.span, why.to_string(), "this file");
        return false;
    }
    let known = crate::workloads::names();
    let help = match nearest(&name.value, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? (`plimsoll workloads` lists them)"),
        None => {
            format!("there are {}, or a path to a file of SQL transactions", one_of(known.iter().copied()))
        }
    };
    problems.add_help(&name.span, format!("there is no workload `{}`", name.value), "unknown", help);
    false
}

fn read_options(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    places: &mut Vec<At<String>>,
) -> BTreeMap<String, String> {
    let Some(table) = item.and_then(|item| item.table(problems, "options")) else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for (key, item) in table.entries() {
        if let Some(value) = item.scalar(problems) {
            all.insert(key.value.replace('-', "_"), value.value);
            places.push(key.with(key.value.replace('-', "_")));
        }
    }
    all
}

/// Every option must be one that at least one workload of the study knows.
fn check_options(axes: &Axes, quick: &Quick, spans: &[At<String>], places: &Places, problems: &mut Problems) {
    let workloads = || axes.workload.iter().chain(&quick.axes.workload);
    let known: BTreeSet<String> =
        workloads().flat_map(|choice| crate::workloads::option_names(&choice.name)).collect();
    if known.is_empty() {
        return;
    }
    for at in spans.iter().chain(&places.options) {
        if known.contains(&at.value) {
            continue;
        }
        let help = match nearest(&at.value, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known options: {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("unknown option `{}`", at.value);
        problems.add_help(&at.span, message, "no workload of this study has it", help);
    }
}

fn read_settings(item: Item<'_>, problems: &mut Problems) -> Option<SettingsChoice> {
    if !item.is_table() {
        let text = item.text(problems)?;
        if text.value == "default" {
            return Some(SettingsChoice { label: text.value, ..Default::default() });
        }
        let allowed = PROFILES.iter().copied().chain(["default"]);
        return word(
            problems,
            &text,
            "a set of settings (a table { name = .., set = {..} } makes one)",
            allowed,
        )
        .then(|| SettingsChoice {
            label: text.value.clone(),
            profile: Some(text.value.clone()),
            ..Default::default()
        });
    }
    let mut table = item.table(problems, "settings")?;
    let label =
        table.need("name", problems, "{ name = \"big-pool\", set = { innodb_buffer_pool_size = \"4G\" } }");
    let label = label.and_then(|item| label_of(item, problems));
    let profile = choice(table.get("profile"), problems, "a profile", PROFILES);
    let logging = choice(table.get("logging"), problems, "a logging variant", LOGGING);
    let plain = |map: BTreeMap<String, At<String>>| map.into_iter().map(|(k, at)| (k, at.value)).collect();
    let set = table.get("set").map(|item| plain(item.scalars(problems))).unwrap_or_default();
    let mut by_flavor = BTreeMap::new();
    for flavor in ["mysql", "mariadb", "percona", "postgres"] {
        if let Some(item) = table.get(flavor) {
            by_flavor.insert(flavor.to_owned(), plain(item.scalars(problems)));
        }
    }
    table.finish(problems);
    Some(SettingsChoice { label: label?, profile, logging, set, by_flavor })
}

fn choice<const N: usize>(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    what: &str,
    allowed: [&'static str; N],
) -> Option<String> {
    let text = item?.text(problems)?;
    word(problems, &text, what, allowed).then_some(text.value)
}

fn read_storage(item: Item<'_>, problems: &mut Problems) -> Option<StorageChoice> {
    if !item.is_table() {
        let text = item.text(problems)?;
        if text.value != "default" {
            let help = "name a place: { name = \"nvme\", datadir = \"/mnt/nvme\" }";
            problems.add_help(
                &text.span,
                format!("`{}` is not a place", text.value),
                "only `default` is",
                help,
            );
            return None;
        }
        return Some(StorageChoice { label: text.value, ..Default::default() });
    }
    let mut table = item.table(problems, "a place")?;
    let label = table.need("name", problems, "{ name = \"nvme\", datadir = \"/mnt/nvme\" }");
    let label = label.and_then(|item| label_of(item, problems));
    let datadir = table.get("datadir").and_then(|item| item.text(problems));
    // `tmpfs` is mounted for each sandbox.
    if let Some(at) = &datadir
        && at.value != "tmpfs"
        && !Path::new(&at.value).is_absolute()
    {
        problems.add(&at.span, "a place is an absolute path, or tmpfs", "relative");
    }
    let mut limit = |key| table.get(key).and_then(|item| bytes(item, problems));
    let (read_iops, write_iops) = (limit("read_iops"), limit("write_iops"));
    let (read_bytes_s, write_bytes_s) = (limit("read_bytes_per_s"), limit("write_bytes_per_s"));
    let memory_bytes = limit("memory");
    table.finish(problems);
    let datadir = datadir.map(|at| at.value.into());
    Some(StorageChoice {
        label: label?,
        datadir,
        read_iops,
        write_iops,
        read_bytes_s,
        write_bytes_s,
        memory_bytes,
    })
}

/// A whole number, or text with a unit: `"64M"`.
fn bytes(item: Item<'_>, problems: &mut Problems) -> Option<u64> {
    if item.value.get_ref().is_integer() {
        return item.count::<u64>(problems, 1).map(|at| at.value);
    }
    let text = item.text(problems)?;
    let split = text.value.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.value.len());
    let unit: Option<u64> = match text.value[split..].trim() {
        "" => Some(1),
        "k" | "K" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        "G" | "GiB" => Some(1 << 30),
        _ => None,
    };
    let value = text.value[..split].parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    if value.is_none() {
        problems.add(
            &text.span,
            format!("`{}` is not a size", text.value),
            "for example 500, \"64M\" or \"2G\"",
        );
    }
    value
}

fn read_cpus(item: Item<'_>, problems: &mut Problems) -> Option<CpusChoice> {
    if item.value.get_ref().is_integer() {
        return item.count::<u32>(problems, 1).map(|at| CpusChoice::Count(at.value));
    }
    let text = item.text(problems)?;
    match text.value.as_str() {
        "half" => return Some(CpusChoice::Half),
        "all" => return Some(CpusChoice::All),
        _ => {}
    }
    cpu_list(&text, problems).then_some(CpusChoice::List(text.value))
}

fn cpu_list(text: &At<String>, problems: &mut Problems) -> bool {
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => {
            from.trim().parse::<u32>().ok().zip(to.trim().parse::<u32>().ok()).is_some_and(|(a, b)| a <= b)
        }
        None => part.trim().parse::<u32>().is_ok(),
    };
    let fits = text.value.split(',').all(range);
    if !fits {
        let help =
            "an integer is a count of cpus (2), a string is a list of them (\"0-3,8\"), \"half\" or \"all\"";
        problems.add_help(&text.span, format!("`{}` is not a list of cpus", text.value), "not a list", help);
    }
    fits
}

fn read_env(item: Item<'_>, problems: &mut Problems) -> Option<EnvChoice> {
    if !item.is_table() {
        let text = item.text(problems)?;
        return word(problems, &text, "an environment ({ name = .., set = {..} } makes one)", ["none"])
            .then_some(EnvChoice { label: text.value, ..Default::default() });
    }
    let mut table = item.table(problems, "an environment")?;
    let label =
        table.need("name", problems, "{ name = \"jemalloc\", set = { LD_PRELOAD = \"/usr/lib/...\" } }");
    let label = label.and_then(|item| label_of(item, problems));
    let set = table.get("set").map(|item| item.scalars(problems)).unwrap_or_default();
    table.finish(problems);
    Some(EnvChoice { label: label?, set: set.into_iter().map(|(key, at)| (key, at.value)).collect() })
}

fn read_ladder(table: &mut Table<'_>, problems: &mut Problems) -> Option<Ladder> {
    let sessions = table.get("sessions");
    let climb = table.get("climb");
    if sessions.is_some() && climb.is_some() {
        let help = "`sessions` makes each level a run of its own, `climb` makes them steps of one run";
        problems.add_help(
            &table.key_span("climb"),
            "a study has `sessions` or `climb`, not both",
            "second",
            help,
        );
    }
    let levels = |item: Item<'_>, problems: &mut Problems| {
        let read = |item: Item<'_>, problems: &mut Problems| {
            let at = item.count::<u32>(problems, 1)?;
            if at.value > SESSIONS_MAX {
                let message = format!("{} sessions are more than a machine has ports", at.value);
                problems.add(&at.span, message, format!("at most {SESSIONS_MAX}"));
            }
            Some(at.value)
        };
        distinct(item, problems, "level", read, u32::to_string)
    };
    if let Some(item) = sessions {
        return Some(Ladder::Sessions(levels(item, problems)));
    }
    climb.map(|item| Ladder::Climb(levels(item, problems)))
}

fn read_length(table: &mut Table<'_>, problems: &mut Problems) -> Option<Length> {
    let duration = table.get("duration").and_then(|item| item.duration(problems));
    let transactions = table.get("transactions").and_then(|item| item.count::<u64>(problems, 1));
    if let (Some(_), Some(at)) = (&duration, &transactions) {
        problems.add(
            &at.span,
            "a level lasts for a `duration` or for a number of `transactions`, not both",
            "second",
        );
    }
    if let Some(at) = &duration
        && at.value < Duration::from_millis(100)
    {
        problems.add(
            &at.span,
            "a measured phase this short says nothing",
            "at least 100ms; 10s and more is usual",
        );
    }
    transactions.map(|at| Length::Transactions(at.value)).or(duration.map(|at| Length::Time(at.value)))
}

fn read_load(mut table: Table<'_>, problems: &mut Problems) -> Load {
    let mut load = Load::default();
    let duration = |table: &mut Table<'_>, problems: &mut Problems, key, into: &mut Duration| {
        if let Some(at) = table.get(key).and_then(|item| item.duration(problems)) {
            *into = at.value;
        }
    };
    duration(&mut table, problems, "warmup", &mut load.warmup);
    if let Some(length) = read_length(&mut table, problems) {
        load.length = length;
    }
    if let Some(at) = table.get("blocks").and_then(|item| item.count::<u32>(problems, 1)) {
        load.blocks = at.value;
    }
    duration(&mut table, problems, "think_time", &mut load.think_time);
    duration(&mut table, problems, "backoff", &mut load.backoff);
    duration(&mut table, problems, "ramp", &mut load.ramp);
    duration(&mut table, problems, "drain", &mut load.drain);
    load.rate_tps = table.get("rate").and_then(|item| {
        let at = item.number(problems)?;
        if at.value <= 0.0 {
            problems.add(&at.span, "a rate is more than 0 transactions per second", "not positive");
        }
        Some(at.value)
    });
    if let Some(item) = table.get("arrivals")
        && let Some(text) = choice(Some(item), problems, "a way to arrive", ["constant", "poisson"])
    {
        load.arrivals = if text == "constant" { Arrivals::Constant } else { Arrivals::Poisson };
        if load.rate_tps.is_none() {
            let message = "`arrivals` spreads the transactions of an open loop, which needs a `rate`";
            problems.add_help(&item.span(), message, "no rate given", "for example: rate = 500");
        }
    }
    if load.rate_tps.is_some() && !load.think_time.is_zero() {
        let span = table.key_span("think_time");
        problems.add(
            &span,
            "sessions of an open loop (`rate`) do not think: arrivals are scheduled",
            "with `rate`",
        );
    }
    if let Some(at) = table.get("retries").and_then(|item| item.count::<u32>(problems, 0)) {
        load.retries_max = at.value;
    }
    load.prime = read_prime(&mut table, problems);
    load.is_lenient = read_gates(&mut table, problems);
    if let Some(word) = choice(table.get("cache"), problems, "a state of the caches", ["warm", "cold"]) {
        load.is_cold = word == "cold";
    }
    load.workers = table.get("workers").and_then(|item| item.count::<usize>(problems, 1)).map(|at| at.value);
    load.seed =
        table.get("seed").and_then(|item| item.count::<i64>(problems, 0)).map(|at| at.value.unsigned_abs());
    if let Some(at) = table.get("hot_locks").and_then(|item| item.truth(problems)) {
        load.hot_locks = at.value;
    }
    load.client_cpus = table.get("client_cpus").and_then(|item| {
        let text = item.text(problems)?;
        cpu_list(&text, problems).then_some(text.value)
    });
    table.finish(problems);
    load
}

/// `gates = "warn"`: a run on a noisy machine, or one too short to be steady, is shown with warnings instead of being
/// called invalid. What says that the answers are wrong still does.
fn read_gates(table: &mut Table<'_>, problems: &mut Problems) -> bool {
    choice(table.get("gates"), problems, "what a gate does", ["invalid", "warn"])
        .is_some_and(|word| word == "warn")
}

/// `prime = "10s"`, or a number of transactions.
fn read_prime(table: &mut Table<'_>, problems: &mut Problems) -> Option<Length> {
    let item = table.get("prime")?;
    if item.integer().is_some() {
        return item.count::<u64>(problems, 1).map(|at| Length::Transactions(at.value));
    }
    item.duration(problems).map(|at| Length::Time(at.value))
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
    table.finish(problems);
    let ladder = ladder_given.then(|| axes.ladder.clone());
    Quick { warmup, length, blocks, prime, is_lenient, ladder, axes, options }
}

fn read_compare(mut table: Table<'_>, axes: &Axes, problems: &mut Problems) -> Option<Compare> {
    let axis = table.need("axis", problems, "axis = \"server\"").and_then(|item| item.text(problems));
    let base = table.need("base", problems, "base = \"mariadb\"").and_then(|item| item.scalar(problems));
    let mut metrics = Vec::new();
    match table.get("metrics") {
        Some(item) => {
            for member in item.list(problems) {
                if let Some(text) = member.text(problems)
                    && word(problems, &text, "a metric", METRICS)
                {
                    metrics.push(text.value);
                }
            }
        }
        None => metrics.push("tps".into()),
    }
    let margin = match table.get("margin") {
        Some(item) => {
            let at = item.number(problems)?;
            if !(0.0..1.0).contains(&at.value) || at.value == 0.0 {
                let help = "0.05 means: differences below 5 % count as none";
                problems.add_help(
                    &at.span,
                    format!("a margin of {} is not possible", at.value),
                    "between 0 and 1",
                    help,
                );
            }
            at.value
        }
        None => 0.05,
    };
    table.finish(problems);
    let (axis, base) = (axis?, base?);
    let names: Vec<&str> =
        axis_names(axes).into_iter().filter(|&name| name != "sessions" && name != "climb").collect();
    if !names.contains(&axis.value.as_str()) {
        let help = match nearest(&axis.value, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the axes of this study are {}", one_of(names.iter().copied())),
        };
        problems.add_help(
            &axis.span,
            format!("`{}` is not an axis of this study", axis.value),
            "unknown",
            help,
        );
        return None;
    }
    let values = axis_values(axes, &axis.value);
    if !values.iter().any(|names| names.contains(&base.value)) {
        let shown: Vec<&str> = values.iter().filter_map(|names| names.first()).map(String::as_str).collect();
        let message =
            format!("`{}` is not a value of the axis `{}`", mask_passwords(&base.value), axis.value);
        problems.add_help(&base.span, message, "unknown", format!("it has {}", one_of(shown)));
    } else if values.len() < 2 {
        let message = format!("the axis `{}` has one value: there is nothing to compare", axis.value);
        problems.add(&axis.span, message, "add a second value, or leave [compare] out");
    }
    Some(Compare { axis: axis.value, base: base.value, metrics, margin })
}

fn read_excludes(item: Item<'_>, axes: &Axes, quick: &Quick, problems: &mut Problems) -> Vec<Exclude> {
    let mut all = Vec::new();
    for member in item.list(problems) {
        let Some(table) = member.table(problems, "[[exclude]]") else { continue };
        if table.entries().is_empty() {
            problems.add(
                &table.span(),
                "an [[exclude]] without a key would leave nothing to measure",
                "empty",
            );
        }
        let mut keys = BTreeMap::new();
        for (key, item) in table.entries() {
            let name = if key.value == "climb" { "sessions" } else { key.value.as_str() };
            let known: Vec<&str> = axis_names(axes);
            if !known.contains(&key.value.as_str()) && !known.contains(&name) {
                let help = match nearest(&key.value, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the axes of this study are {}", one_of(known.iter().copied())),
                };
                let message = format!("`{}` is not an axis of this study", key.value);
                problems.add_help(&key.span, message, "unknown", help);
                continue;
            }
            let values = axis_values(axes, name);
            let quick_values = axis_values(&quick.axes, name);
            let ladder = quick.ladder.iter().flat_map(|ladder| ladder.levels()).map(|n| vec![n.to_string()]);
            let known: Vec<Vec<String>> = values.into_iter().chain(quick_values).chain(ladder).collect();
            let mut given = Vec::new();
            for value in item.list(problems) {
                let Some(text) = value.scalar(problems) else { continue };
                if !known.iter().any(|names| names.contains(&text.value)) {
                    let shown: Vec<&str> =
                        known.iter().filter_map(|names| names.first()).map(String::as_str).collect();
                    let message = format!("`{}` is not a value of the axis `{name}`", text.value);
                    problems.add_help(
                        &text.span,
                        message,
                        "matches nothing",
                        format!("it has {}", one_of(shown)),
                    );
                }
                given.push(text.value);
            }
            keys.insert(name.to_owned(), given);
        }
        all.push(Exclude(keys));
    }
    all
}

/// The axes that a study has, those with an implied single value included.
fn axis_names(axes: &Axes) -> Vec<&str> {
    let given = |name: &&str| match *name {
        "sessions" => matches!(axes.ladder, Ladder::Sessions(_)),
        "climb" => matches!(axes.ladder, Ladder::Climb(_)),
        name => !axis_values(axes, name).is_empty(),
    };
    AXES.into_iter().filter(given).chain(axes.options.iter().map(|(name, _)| name.as_str())).collect()
}

/// The values of an axis, each with all names that it may be called by; the first is the shown one.
pub(crate) fn axis_values(axes: &Axes, axis: &str) -> Vec<Vec<String>> {
    let single = |names: &[String]| names.iter().map(|name| vec![name.clone()]).collect();
    match axis {
        "server" => axes
            .server
            .iter()
            .map(|choice| match &choice.label {
                Some(label) => vec![format!("{}+{label}", choice.server), label.clone()],
                None => vec![choice.server.clone()],
            })
            .collect(),
        "workload" => axes.workload.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "settings" => axes.settings.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "engine" => single(&axes.engine),
        "storage" => axes.storage.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "cpus" => axes.cpus.iter().map(|choice| vec![choice.label()]).collect(),
        "isolation" => single(&axes.isolation),
        "charset" => single(&axes.charset),
        "env" => axes.env.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "sessions" | "climb" => axes.ladder.levels().iter().map(|level| vec![level.to_string()]).collect(),
        option => axes
            .options
            .iter()
            .find(|(name, _)| name == option)
            .map(|(_, values)| single(values))
            .unwrap_or_default(),
    }
}

/// Which value of its axis the base of a comparison is.
pub(crate) fn position_on_axis(axes: &Axes, compare: &Compare) -> Option<usize> {
    axis_values(axes, &compare.axis).iter().position(|names| names.contains(&compare.base))
}
