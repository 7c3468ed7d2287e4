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
use wire::blocking::Client;

use crate::bench::sysbench;

const DATABASE: &str = "sbtest";
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

/// One script, and the folder of the set that it belongs to.
struct Script {
    set: String,
    path: PathBuf,
}

/// How a program came through one script.
enum Outcome {
    /// With what it says of its queries (`read: 14`, `write: 4` and so on), where it says it.
    Ran(Vec<String>),
    Failed(String),
}

/// How often something was so.
#[derive(Default)]
struct Tally {
    /// Scripts that sysbench ran on a server.
    fair: usize,
    ran: usize,
    same: usize,
}

/// True where Plimsoll runs every script that sysbench runs, with the same numbers of queries.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let [folder] = arguments else {
        bail!("cargo xtask scripts DIRECTORY: a folder with a folder for each set")
    };
    let programs = [PathBuf::from("sysbench"), crate::plimsoll()?];
    sysbench::check()?;
    let scripts = scripts(Path::new(folder))?;
    let sets: BTreeSet<&str> = scripts.iter().map(|script| script.set.as_str()).collect();
    println!("{} different scripts of {} sets", scripts.len(), sets.len());
    let (mut all, mut by_any) = (Tally::default(), BTreeSet::new());
    for selector in ["mariadb", "postgres"] {
        let Some(server) = sandbox::testing::server(selector) else { bail!("{selector} is needed") };
        let mut here = Tally::default();
        for (at, script) in scripts.iter().enumerate() {
            let [theirs, ours] =
                [outcome(script, &server, &programs[0])?, outcome(script, &server, &programs[1])?];
            let expected = match theirs {
                Outcome::Ran(counts) => counts,
                Outcome::Failed(why) => {
                    println!("{selector}: {}: left out, as sysbench ends it: {why}", script.path.display());
                    continue;
                }
            };
            by_any.insert(at);
            here.fair += 1;
            let (is_run, told) = match ours {
                // Hooks of forks fail under sysbench, which ends well all the same, without a report.
                Outcome::Ran(counts) if counts == expected || expected.is_empty() => (true, None),
                Outcome::Ran(counts) => {
                    (true, Some(format!("{}, sysbench {}", counts.join(" "), expected.join(" "))))
                }
                Outcome::Failed(why) => (false, Some(why)),
            };
            here.ran += usize::from(is_run);
            here.same += usize::from(told.is_none());
            if let Some(told) = told {
                println!("{selector}: {}: {told}", script.path.display());
            }
        }
        println!(
            "{selector}: sysbench runs {}, plimsoll {} of them, {} with the same counts",
            here.fair, here.ran, here.same
        );
        all = Tally { fair: all.fair + here.fair, ran: all.ran + here.ran, same: all.same + here.same };
    }
    println!("{} scripts run under sysbench on one server or both", by_any.len());
    Ok(all.same == all.fair)
}

/// Every Lua file below the folder that has an event; of files that are equal, with equal
/// ones beside them, the first.
fn scripts(folder: &Path) -> Result<Vec<Script>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for set in folders(folder)? {
        let mut open = vec![set.clone()];
        while let Some(place) = open.pop() {
            open.extend(folders(&place)?);
            let files = lua_files(&place)?;
            let beside: Vec<&str> = files.iter().map(|(_, text)| text.as_str()).collect();
            for (path, text) in &files {
                let is_script = text.contains("function event");
                if is_script && seen.insert((text.clone(), beside.join("\n"))) {
                    let name = set.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    found.push(Script { set: name, path: path.clone() });
                }
            }
        }
    }
    ensure!(!found.is_empty(), "{} has no folder with Lua scripts", folder.display());
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
fn outcome(script: &Script, server: &Sandbox, program: &Path) -> Result<Outcome> {
    let mut client = Client::connect(&server.target(None))?;
    client.query(&format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
    client.close();
    let target = server.target(Some(DATABASE));
    workload::create_database(&target)?;
    let connection = sysbench::connection(&target)?;
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

fn call(script: &Script, program: &Path, user: u32, options: &[String], command: &str) -> Result<Output> {
    let folder = script.path.parent().context("a script lies in a folder")?.canonicalize()?;
    let name = script.path.file_name().context("a script has a name")?;
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
