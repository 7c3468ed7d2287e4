//! The axes of a study file, and the options of its workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use wire::spelling::nearest;

use super::compare::AXES;
use super::load::read_length;
use super::model::*;
use super::problem::one_of;
use super::read::{At, Item, Problems, Table, word};
use super::replicas::read_replicas;
use super::source::read_source;
use crate::checks::SESSIONS_MAX;
use crate::workloads::{Elsewhere, Resolved, Unpacked, resolve_from};

const ISOLATIONS: [&str; 4] = ["read-uncommitted", "read-committed", "repeatable-read", "serializable"];
const PROFILES: [&str; 3] = ["safest", "fast", "unsafe"];
const LOGGING: [&str; 4] = ["none", "general-file", "general-table", "binlog"];

/// An option of workloads, with a value that it is given.
pub(super) struct OptionAt {
    name: At<String>,
    value: At<String>,
}

impl OptionAt {
    /// What its value's place is called.
    fn place(&self) -> String {
        format!("option/{}/{}", self.name.value, self.value.value)
    }
}

/// Where things stand that are checked after everything has been read, and where files do.
pub(super) struct Places<'a> {
    pub(super) unpacked: &'a Unpacked,
    /// Options of every workload of the study.
    pub(super) options: Vec<OptionAt>,
    /// For what is checked when the servers are known, by name; see [`Study::places`].
    pub(super) spans: BTreeMap<String, Range<usize>>,
}

impl<'a> Places<'a> {
    pub(super) fn new(unpacked: &'a Unpacked) -> Places<'a> {
        Places { unpacked, options: Vec::new(), spans: BTreeMap::new() }
    }
}

pub(super) fn read_axes(table: &mut Table<'_>, problems: &mut Problems, places: &mut Places<'_>) -> Axes {
    let mut axes = Axes::default();
    read_plain_axes(table, problems, &mut axes, places);
    if let Some(item) = table.get("options")
        && let Some(inner) = item.table(problems, "[axes.options]")
    {
        for (key, item) in inner.entries() {
            let key = key.with(key.value.replace('-', "_"));
            let read = |item: Item<'_>, problems: &mut Problems, places: &mut Places<'_>| {
                let at = item.scalar(problems)?;
                places.options.push(OptionAt { name: key.clone(), value: at.clone() });
                Some(at.value)
            };
            let axis = format!("option/{}", key.value);
            let values = distinct(Some(item), problems, places, (&axis, "value"), read, String::clone);
            if AXES.contains(&key.value.as_str()) {
                problems.add(&key.span, format!("`{}` is the name of an axis already", key.value), "twice");
            }
            axes.options.push((key.value, values));
        }
    }
    axes.ladder = read_ladder(table, problems, places).unwrap_or_default();
    axes
}

/// The axes that `[axes]` and `[quick]` share.
pub(super) fn read_plain_axes(
    table: &mut Table<'_>,
    problems: &mut Problems,
    axes: &mut Axes,
    places: &mut Places<'_>,
) {
    let read = |item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>| read_server(item, problems);
    let server = table.get("server");
    axes.server = distinct(server, problems, places, ("server", "server"), read, ServerChoice::key);
    let (workload, what) = (table.get("workload"), ("workload", "workload"));
    axes.workload = distinct(workload, problems, places, what, read_workload, |it| it.label.clone());
    let (settings, what) = (table.get("settings"), ("settings", "set of settings"));
    axes.settings = distinct(settings, problems, places, what, read_settings, |it| it.label.clone());
    axes.engine = names(table.get("engine"), problems, places, ("engine", "engine"));
    let (storage, what) = (table.get("storage"), ("storage", "place"));
    axes.storage = distinct(storage, problems, places, what, read_storage, |it| it.label.clone());
    let cpus = table.get("cpus");
    axes.cpus = distinct(cpus, problems, places, ("cpus", "cpus"), read_cpus, CpusChoice::label);
    let (isolation, what) = (table.get("isolation"), ("isolation", "isolation level"));
    axes.isolation = distinct(isolation, problems, places, what, read_isolation, String::clone);
    axes.charset = names(table.get("charset"), problems, places, ("charset", "character set"));
    let (env, what) = (table.get("env"), ("env", "environment"));
    axes.env = distinct(env, problems, places, what, read_env, |it| it.label.clone());
    let (replicas, what) = (table.get("replicas"), ("replicas", "set of replicas"));
    axes.replicas = distinct(replicas, problems, places, what, read_replicas, |it| it.label.clone());
}

fn read_isolation(item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>) -> Option<String> {
    let text = item.text(problems)?;
    let text = text.with(text.value.to_lowercase().replace([' ', '_'], "-"));
    word(problems, &text, "an isolation level", ISOLATIONS).then_some(text.value)
}

/// A list on an axis, each value once, and none where it is not given; where each stands is kept as `AXIS/NAME`.
fn distinct<T>(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    places: &mut Places<'_>,
    (axis, what): (&str, &str),
    mut read: impl FnMut(Item<'_>, &mut Problems, &mut Places<'_>) -> Option<T>,
    name: impl Fn(&T) -> String,
) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for member in item.map(|item| item.list(problems)).unwrap_or_default() {
        let Some(value) = read(member, problems, places) else { continue };
        if seen.insert(name(&value)) {
            places.spans.insert(format!("{axis}/{}", name(&value)), member.span());
            all.push(value);
        } else {
            let message =
                format!("the {what} `{}` stands twice on its axis", wire::mask::value(&name(&value)));
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

fn names(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    places: &mut Places<'_>,
    (axis, what): (&str, &str),
) -> Vec<String> {
    let read = |item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>| {
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
    distinct(item, problems, places, (axis, what), read, String::clone)
}

fn read_server(item: Item<'_>, problems: &mut Problems) -> Option<ServerChoice> {
    let (server, label) = if item.is_table() {
        let mut table = item.table(problems, "a server")?;
        if table.has("git") {
            return read_source(table, problems);
        }
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
    Some(ServerChoice { server: server.value, label, source: None })
}

/// What a table calls itself; `example` is of the whole table.
pub(super) fn label_in(table: &mut Table<'_>, problems: &mut Problems, example: &str) -> Option<String> {
    table.need("name", problems, example).and_then(|item| label_of(item, problems))
}

pub(super) fn label_of(item: Item<'_>, problems: &mut Problems) -> Option<String> {
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

fn read_workload(item: Item<'_>, problems: &mut Problems, places: &mut Places<'_>) -> Option<WorkloadChoice> {
    let unpacked = places.unpacked;
    if !item.is_table() {
        let name = item.text(problems)?;
        return resolve_workload(&name, problems, unpacked).map(|workload| WorkloadChoice {
            label: name.value.clone(),
            name: name.value,
            workload,
            options: BTreeMap::new(),
            length: None,
        });
    }
    let mut table = item.table(problems, "a workload")?;
    let (scripts, init) = (table.get("pgbench"), table.get("init"));
    let name = match (scripts, init) {
        (Some(scripts), init) => {
            if let Some(also) = table.get("workload").and_then(|item| item.text(problems)) {
                problems.add(&also.span, "`workload` and `pgbench` both name a workload", "leave one out");
            }
            pgbench_name(&scripts, init, problems)
        }
        (None, init) => {
            if let Some(init) = init.and_then(|item| item.text(problems)) {
                let remedy = "`{ pgbench = [\"a.sql\"], init = \"tables.sql\" }`";
                problems.add(&init.span, "`init` goes with scripts of pgbench's", remedy);
            }
            let example = "{ workload = \"oltp_read_write\", options = { tables = 4 } }";
            table.need("workload", problems, example).and_then(|item| item.text(problems))
        }
    };
    let label = table.get("label").and_then(|item| label_of(item, problems));
    let mut given = Vec::new();
    let options = read_options(table.get("options"), problems, &mut given);
    let length = read_length(&mut table, problems);
    table.finish(problems);
    let name = name?;
    let workload = resolve_workload(&name, problems, unpacked)?;
    // The options of an entry are of its workload alone.
    for option in &given {
        check_option(option, &[&workload], problems);
        places.spans.insert(option.place(), option.value.span.clone());
    }
    let label = label.unwrap_or_else(|| name.value.clone());
    Some(WorkloadChoice { label, name: name.value, workload, options, length })
}

/// Scripts of pgbench's language, as one name.
fn pgbench_name(scripts: &Item<'_>, init: Option<Item<'_>>, problems: &mut Problems) -> Option<At<String>> {
    let texts: Vec<At<String>> =
        scripts.list(problems).iter().filter_map(|script| script.text(problems)).collect();
    let init = init.and_then(|item| item.text(problems)).map(|text| text.value);
    let first = texts.first()?;
    let names: Vec<String> = texts.iter().map(|text| text.value.clone()).collect();
    Some(first.with(crate::workloads::pgbench_name(&names, init.as_deref())))
}

fn resolve_workload(name: &At<String>, problems: &mut Problems, unpacked: &Unpacked) -> Option<Resolved> {
    let here = Elsewhere::new();
    let why = match resolve_from(&name.value, unpacked.get(&name.value).unwrap_or(&here)) {
        Ok(workload) => return Some(workload),
        Err(why) => why,
    };
    if crate::workloads::is_path(&name.value) {
        problems.add(&name.span, why.to_string(), "this file");
        return None;
    }
    let known = crate::workloads::names();
    let help = match nearest(&name.value, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? (`plimsoll workloads` lists them)"),
        None => {
            format!("there are {}, or a path to a file of SQL transactions", one_of(known.iter().copied()))
        }
    };
    problems.add_help(&name.span, format!("there is no workload `{}`", name.value), "unknown", help);
    None
}

pub(super) fn read_options(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    given: &mut Vec<OptionAt>,
) -> BTreeMap<String, String> {
    let pairs = item.map(|item| item.pairs(problems, "options")).unwrap_or_default();
    let named = pairs.into_iter().map(|(key, value)| {
        let name = key.with(key.value.replace('-', "_"));
        let option = (name.value.clone(), value.value.clone());
        given.push(OptionAt { name, value });
        option
    });
    named.collect()
}

/// Every option must be one that at least one workload of the study knows, with a value that each of those takes.
pub(super) fn check_options(
    axes: &Axes,
    quick: &Quick,
    given: &[OptionAt],
    places: &mut [&mut Places<'_>],
    problems: &mut Problems,
) {
    if let Some(places) = places.first_mut() {
        places.spans.extend(given.iter().map(|option| (option.place(), option.value.span.clone())));
    }
    let workloads: Vec<&Resolved> =
        axes.workload.iter().chain(&quick.axes.workload).map(|choice| &choice.workload).collect();
    if workloads.is_empty() {
        return;
    }
    for option in given.iter().chain(places.iter().flat_map(|places| &places.options)) {
        check_option(option, &workloads, problems);
    }
}

fn check_option(option: &OptionAt, workloads: &[&Resolved], problems: &mut Problems) {
    let OptionAt { name, value } = option;
    let mut is_known = false;
    for workload in workloads {
        let Some(spec) = workload.options().iter().find(|spec| spec.name == name.value) else { continue };
        is_known = true;
        if let Err(allowed) = spec.canonical(&value.value) {
            let message = format!("`{}` is not a value of the option `{}`", value.value, name.value);
            let help = format!("{} of {} {allowed}", name.value, workload.name());
            problems.add_help(&value.span, message, "not possible", help);
            return;
        }
    }
    if is_known {
        return;
    }
    let known: BTreeSet<String> = workloads.iter().flat_map(|workload| workload.option_names()).collect();
    let help = match nearest(&name.value, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known options: {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
    };
    let label = match workloads {
        [workload] => format!("{} has no such option", workload.name()),
        _ => "no workload of this study has it".to_owned(),
    };
    problems.add_help(&name.span, format!("unknown option `{}`", name.value), label, help);
}

fn read_settings(item: Item<'_>, problems: &mut Problems, places: &mut Places<'_>) -> Option<SettingsChoice> {
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
    let example = "{ name = \"big-pool\", set = { innodb_buffer_pool_size = \"4G\" } }";
    let label = label_in(&mut table, problems, example);
    let profile = choice(table.get("profile"), problems, "a profile", PROFILES);
    let logging_item = table.get("logging");
    let logging = choice(logging_item, problems, "a logging variant", LOGGING);
    let mut spans: Vec<(String, Range<usize>)> = vec![(String::new(), item.span())];
    spans.extend(logging_item.map(|item| ("/logging".to_owned(), item.span())));
    let mut plain = |item: Item<'_>, problems: &mut Problems| -> BTreeMap<String, String> {
        let mut read = BTreeMap::new();
        for (name, value) in item.pairs(problems, "") {
            spans.push((format!("/{}/name", name.value), name.span));
            spans.push((format!("/{}/value", name.value), value.span));
            read.insert(name.value, value.value);
        }
        read
    };
    let set = table.get("set").map(|item| plain(item, problems)).unwrap_or_default();
    let mut by_flavor = BTreeMap::new();
    for flavor in ["mysql", "mariadb", "percona", "postgres"] {
        if let Some(item) = table.get(flavor) {
            by_flavor.insert(flavor.to_owned(), plain(item, problems));
        }
    }
    table.finish(problems);
    if let Some(label) = &label {
        let named = spans.into_iter().map(|(what, span)| (format!("settings/{label}{what}"), span));
        places.spans.extend(named);
    }
    Some(SettingsChoice { label: label?, profile, logging, set, by_flavor })
}

pub(super) fn choice<const N: usize>(
    item: Option<Item<'_>>,
    problems: &mut Problems,
    what: &str,
    allowed: [&'static str; N],
) -> Option<String> {
    let text = item?.text(problems)?;
    word(problems, &text, what, allowed).then_some(text.value)
}

fn read_storage(item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>) -> Option<StorageChoice> {
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
    let label = label_in(&mut table, problems, "{ name = \"nvme\", datadir = \"/mnt/nvme\" }");
    let datadir = table.get("datadir").and_then(|item| item.text(problems));
    // `tmpfs` is mounted for each sandbox.
    if let Some(at) = &datadir
        && at.value != "tmpfs"
        && !Path::new(&at.value).is_absolute()
    {
        problems.add(&at.span, "a place is an absolute path, or tmpfs", "relative");
    }
    let made = read_made(&mut table, datadir.as_ref().map(|at| at.span.clone()), problems);
    let scheduler = table.get("scheduler").and_then(|item| item.text(problems));
    if let Some(at) = scheduler.as_ref().filter(|at| !is_word(&at.value)) {
        problems.add(
            &at.span,
            "not the name of an I/O scheduler",
            "for example mq-deadline, kyber, bfq or none",
        );
    }
    if let (Some(at), Some(place)) = (&scheduler, &datadir)
        && place.value == "tmpfs"
    {
        problems.add(&at.span, "memory has no I/O scheduler", "leave it out");
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
        made,
        scheduler: scheduler.map(|at| at.value),
        read_iops,
        write_iops,
        read_bytes_s,
        write_bytes_s,
        memory_bytes,
    })
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// The keys of a place that is made: `filesystem`, `mount`, `size`, `on`.
fn read_made(
    table: &mut Table<'_>,
    datadir: Option<Range<usize>>,
    problems: &mut Problems,
) -> Option<sandbox::FilesystemWish> {
    const NAMES: [&str; 3] = sandbox::filesystem::NAMES;
    let filesystem = table.get("filesystem").and_then(|item| item.text(problems));
    let size = table.get("size");
    let others = [table.get("mount"), size, table.get("on")];
    let Some(filesystem) = filesystem else {
        if let Some(item) = others.into_iter().flatten().next() {
            let help = "add filesystem = \"ext4\" (or xfs, btrfs)";
            problems.add_help(&item.span(), "this is of a file system that is made", "none is named", help);
        }
        return None;
    };
    if let Some(span) = datadir {
        let message = "`datadir` or `filesystem`, not both";
        problems.add_help(&span, message, "a place that is there", "name the disk of a made one with `on`");
    }
    let is_known = word(problems, &filesystem, "a file system that can be made", NAMES);
    let [mount, _, on] = others;
    let mut options = Vec::new();
    for item in mount.map(|item| item.list(problems)).unwrap_or_default() {
        let Some(option) = item.text(problems) else { continue };
        if sandbox::filesystem::is_allowed_option(&option.value) {
            options.push(option.value);
        } else {
            let label = "one option of the file system itself, such as noatime";
            problems.add(&option.span, format!("`{}` is not an option for a study", option.value), label);
        }
    }
    let on = on.and_then(|item| item.text(problems));
    if let Some(at) = on.as_ref().filter(|at| !Path::new(&at.value).is_absolute()) {
        problems.add(&at.span, "a place is an absolute path", "relative");
    }
    let Some(size) = size else {
        let help = "add size = \"8G\": that much of the disk is written before the study";
        problems.add_help(&filesystem.span, "a made file system needs its size", "how large?", help);
        return None;
    };
    let size_bytes = bytes(size, problems)?;
    if size_bytes < sandbox::filesystem::IMAGE_BYTES_MIN {
        problems.add(&size.span(), "too small for a server", "at least 2G");
    }
    let filesystem = is_known.then(|| filesystem.value.parse().ok()).flatten()?;
    Some(sandbox::FilesystemWish { filesystem, options, size_bytes, on: on.map(|at| at.value.into()) })
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

fn read_cpus(item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>) -> Option<CpusChoice> {
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

pub(super) fn cpu_list(text: &At<String>, problems: &mut Problems) -> bool {
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

fn read_env(item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>) -> Option<EnvChoice> {
    if !item.is_table() {
        let text = item.text(problems)?;
        return word(problems, &text, "an environment ({ name = .., set = {..} } makes one)", ["none"])
            .then_some(EnvChoice { label: text.value, ..Default::default() });
    }
    let mut table = item.table(problems, "an environment")?;
    let label = label_in(&mut table, problems, "{ name = \"jemalloc\", preload = \"jemalloc\" }");
    let set = table.get("set").map(|item| item.scalars(problems)).unwrap_or_default();
    let preload = table.get("preload").map(|item| item.list(problems)).unwrap_or_default();
    let preload: Vec<At<String>> = preload.iter().filter_map(|item| item.text(problems)).collect();
    table.finish(problems);
    if let (Some(also), false) = (set.get(sandbox::preload::VARIABLE), preload.is_empty()) {
        problems.add(&also.span, "`preload` sets LD_PRELOAD, too", "leave one of them out");
    }
    let set = set.into_iter().map(|(key, at)| (key, at.value)).collect();
    Some(EnvChoice { label: label?, set, preload: preload.into_iter().map(|at| at.value).collect() })
}

pub(super) fn read_ladder(
    table: &mut Table<'_>,
    problems: &mut Problems,
    places: &mut Places<'_>,
) -> Option<Ladder> {
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
    let levels = |item: Item<'_>, problems: &mut Problems, places: &mut Places<'_>| {
        let read = |item: Item<'_>, problems: &mut Problems, _: &mut Places<'_>| {
            let at = item.count::<u32>(problems, 1)?;
            if at.value > SESSIONS_MAX {
                let message = format!("{} sessions are more than a machine has ports", at.value);
                problems.add(&at.span, message, format!("at most {SESSIONS_MAX}"));
            }
            Some(at.value)
        };
        distinct(Some(item), problems, places, ("level", "level"), read, u32::to_string)
    };
    if let Some(item) = sessions {
        return Some(Ladder::Sessions(levels(item, problems, places)));
    }
    climb.map(|item| Ladder::Climb(levels(item, problems, places)))
}
