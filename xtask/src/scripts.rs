//! `cargo xtask scripts DIRECTORY`: sysbench scripts that other people wrote, each under Debian's sysbench and under Plimsoll on
//! MariaDB and on PostgreSQL, with one thread and one seed. The scripts are never part of this repository, and run
//! unprivileged where this runs as root.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use sandbox::Sandbox;

use crate::bench::sysbench;
use crate::cram::empty_database;

/// For one command of one script.
const SECONDS_MAX: u32 = 40;
/// What makes tables small, where a script declares such an option.
const SMALL: [(&str, u32); 6] = [
    ("table-size", 200),
    ("table_size", 200),
    ("tables", 1),
    ("scale", 1),
    ("oltp-table-size", 200),
    ("oltp-tables-count", 1),
];

/// How a program came through one script.
enum Outcome {
    /// With what it says of its queries (`read: 14`, `write: 4` and so on), where it says it.
    Ran(Vec<String>),
    Failed(String),
}

/// True where Plimsoll runs every script that sysbench runs, with the same numbers of queries.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let [folder] = arguments else {
        bail!("cargo xtask scripts DIRECTORY: a folder with a folder for each set")
    };
    let programs = [PathBuf::from("sysbench"), crate::plimsoll()?];
    sysbench::check()?;
    let scripts = scripts(Path::new(folder))?;
    let (mut is_good, mut by_any) = (true, BTreeSet::new());
    for selector in ["mariadb", "postgres"] {
        let Some(server) = sandbox::testing::server(selector) else { bail!("{selector} is needed") };
        // Scripts that sysbench runs here, those of them that Plimsoll runs, and those with the same counts.
        let (mut fair, mut run, mut same) = (0, 0, 0);
        for (at, script) in scripts.iter().enumerate() {
            let [theirs, ours] =
                [outcome(script, &server, &programs[0])?, outcome(script, &server, &programs[1])?];
            let expected = match theirs {
                Outcome::Ran(counts) => counts,
                Outcome::Failed(why) => {
                    println!("{selector}: {}: left out, as sysbench ends it: {why}", script.display());
                    continue;
                }
            };
            by_any.insert(at);
            fair += 1;
            let (is_run, told) = match ours {
                // Hooks of forks fail under sysbench, which ends well all the same, without a report.
                Outcome::Ran(counts) if counts == expected || expected.is_empty() => (true, None),
                Outcome::Ran(counts) => {
                    (true, Some(format!("{}, sysbench {}", counts.join(" "), expected.join(" "))))
                }
                Outcome::Failed(why) => (false, Some(why)),
            };
            run += usize::from(is_run);
            same += usize::from(told.is_none());
            if let Some(told) = told {
                println!("{selector}: {}: {told}", script.display());
            }
        }
        println!("{selector}: sysbench runs {fair}, plimsoll {run} of them, {same} with the same counts");
        is_good &= same == fair;
    }
    println!("{} scripts run under sysbench on one server or both", by_any.len());
    Ok(is_good)
}

/// Every Lua file below the folder that has an event; of files that are equal, with equal
/// ones beside them, the first.
fn scripts(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut sets) = (Vec::new(), 0);
    let mut seen = BTreeSet::new();
    for set in folders(folder)? {
        let before = found.len();
        let mut open = vec![set];
        while let Some(place) = open.pop() {
            open.extend(folders(&place)?);
            let files = lua_files(&place)?;
            let beside: Vec<&str> = files.iter().map(|(_, text)| text.as_str()).collect();
            for (path, text) in &files {
                let is_script = text.contains("function event");
                if is_script && seen.insert((text.clone(), beside.join("\n"))) {
                    found.push(path.clone());
                }
            }
        }
        sets += usize::from(found.len() > before);
    }
    ensure!(!found.is_empty(), "{} has no folder with Lua scripts", folder.display());
    println!("{} different scripts of {sets} sets", found.len());
    Ok(found)
}

fn folders(place: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(place).with_context(|| format!("reading {}", place.display()))?.flatten();
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut found: Vec<_> = entries.filter(is_folder).map(|entry| entry.path()).collect();
    found.sort();
    Ok(found)
}

fn lua_files(place: &Path) -> Result<Vec<(PathBuf, String)>> {
    let entries = std::fs::read_dir(place)?.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "lua")).collect();
    paths.sort();
    Ok(paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect())
}

/// Prepares and runs a script on an empty database.
fn outcome(script: &Path, server: &Sandbox, program: &Path) -> Result<Outcome> {
    let connection = sysbench::connection(&empty_database(server)?)?;
    // The user that the server runs as: it has nothing else.
    let user = std::fs::metadata(server.socket())?.uid();
    let call = |options: &[String], command| call(script, program, user, options, command);
    let declared = call(&[], "help")?;
    let declared = String::from_utf8_lossy(&declared.stdout).into_owned();
    // A script that declares nothing takes whatever is given.
    let is_free = !declared.contains("--");
    let wanted = SMALL.iter().filter(|(name, _)| is_free || declared.contains(&format!("--{name}=")));
    let options = connection.into_iter().chain(wanted.map(|(name, value)| format!("--{name}={value}")));
    let options: Vec<String> = options
        .chain(["--threads=1", "--events=20", "--time=10", "--rand-seed=1"].map(str::to_owned))
        .collect();
    let prepared = call(&options, "prepare")?;
    // Some scripts make no tables, and have no such command.
    let is_left_out = said(&prepared).contains("does not implement the 'prepare' command");
    if !prepared.status.success() && !is_left_out {
        return Ok(Outcome::Failed(format!("prepare: {}", reason(&prepared))));
    }
    let ran = call(&options, "run")?;
    Ok(match ran.status.success() {
        true => Outcome::Ran(counts(&said(&ran))),
        false => Outcome::Failed(format!("run: {}", reason(&ran))),
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line that says why a program ended.
fn reason(output: &Output) -> String {
    let said = said(output);
    let worst = said.lines().find(|line| line.contains("FATAL")).or_else(|| said.lines().last());
    worst.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned())
}

fn call(script: &Path, program: &Path, user: u32, options: &[String], command: &str) -> Result<Output> {
    let folder = script.parent().context("a script lies in a folder")?.canonicalize()?;
    let name = script.file_name().context("a script has a name")?;
    let mut timed = Command::new("timeout");
    timed.arg(SECONDS_MAX.to_string()).arg(program);
    if program != Path::new("sysbench") {
        timed.arg("sysbench");
    }
    timed
        .arg(name)
        .args(options)
        .arg(command)
        .current_dir(folder)
        .env("LUA_PATH", "./?.lua;../?.lua;/usr/share/sysbench/?.lua");
    // SAFETY: geteuid only asks.
    if unsafe { libc::geteuid() } == 0 {
        timed.uid(user).gid(user);
    }
    timed.output().with_context(|| format!("starting {}", program.display()))
}

/// What the report says of queries.
fn counts(text: &str) -> Vec<String> {
    let wanted = ["read:", "write:", "other:", "total:", "transactions:", "ignored errors:"];
    let lines = text.lines().map(str::trim).filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines
        .map(|line| line.split('(').next().unwrap_or(line).split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}
