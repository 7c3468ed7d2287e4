//! `cargo xtask cram [DIRECTORY]`: sysbench's own test suite under Debian's sysbench and under Plimsoll. The tests are
//! never part of this repository: they come from the directory (`tests` of the source of 1.0.20), from the one that
//! `PLIMSOLL_CRAM` names, or from Debian's source package where apt knows one.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sandbox::Sandbox;
use wire::Target;
use wire::blocking::Client;

/// Tests that a replacement of sysbench is to pass wherever Debian's binary does.
const FAIR: [&str; 12] = [
    "api_",
    "cmdline",
    "cmd_",
    "commands",
    "drivers",
    "drv_",
    "opt_rate",
    "opt_report_interval",
    "opt_report_checkpoints",
    "opt_histogram",
    "script_",
    "1st",
];

/// Fair tests that Plimsoll does not pass, and why; docs/sysbench.md says the same.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("opt_rate", "runs the built-in test cpu, and wants a full event queue to end the run"),
    ("opt_report_checkpoints", "its second half runs the built-in test cpu; the first passes"),
    ("opt_report_interval", "its second half runs the built-in test cpu; the first passes"),
];

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Skipped,
    /// With so many places where the output differs.
    Failed(usize),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Passed => f.pad("passes"),
            Outcome::Skipped => f.pad("skipped"),
            Outcome::Failed(places) => f.pad(&format!("fails ({places})")),
        }
    }
}

/// True where Plimsoll passes every fair test that Debian's sysbench passes, but for the known exceptions.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let unpacked = tempfile::tempdir()?;
    let given =
        arguments.first().map(PathBuf::from).or_else(|| std::env::var_os("PLIMSOLL_CRAM").map(PathBuf::from));
    let Some(tests) = given.or_else(|| source_package(unpacked.path())) else {
        testkit::not_tested(
            "sysbench's own tests",
            "apt knows no source package of sysbench (add a deb-src line for this release); or name the folder `tests` \
             of the source of 1.0.20: cargo xtask cram DIRECTORY",
        );
        return Ok(true);
    };
    let tests = tests.canonicalize().with_context(|| format!("no such folder: {}", tests.display()))?;
    ensure!(
        tests.join("t").is_dir() && tests.join("include").is_dir(),
        "{} has no t and include",
        tests.display()
    );
    // Debian's package calls it cram3.
    let cram = which("cram").or_else(|| which("cram3"));
    let cram = cram.context("cram is not installed: pip install cram, or apt-get install python3-cram")?;
    let theirs = which("sysbench").context("sysbench is not installed: apt-get install sysbench")?;
    let suite = Suite::new(&tests, cram)?;
    let ours = crate::plimsoll()?;
    println!("{:28} {:>12} {:>12}  {:4}", "test", "sysbench", "plimsoll", "fair");
    let (mut passed, mut is_good) = ([0, 0], true);
    let names = suite.names()?;
    for name in &names {
        let outcomes = [suite.run(name, &theirs)?, suite.run(name, &ours)?];
        for (count, outcome) in passed.iter_mut().zip(outcomes) {
            *count += usize::from(outcome == Outcome::Passed);
        }
        let is_fair = FAIR.iter().any(|family| name.starts_with(family));
        let why = EXCEPTIONS.iter().find(|(known, _)| known == name).map_or("", |(_, why)| why);
        let falls_short = outcomes[0] == Outcome::Passed && outcomes[1] != Outcome::Passed;
        let verdict = match (is_fair && falls_short, why.is_empty()) {
            (true, true) => "FALLS SHORT",
            // An exception that passes is none any more.
            (false, false) if outcomes[1] == Outcome::Passed => "passes now: no exception any more",
            _ => why,
        };
        is_good &= verdict == why;
        let fair = if is_fair { "fair" } else { "" };
        println!("{name:28} {:>12} {:>12}  {fair:4}  {verdict}", outcomes[0], outcomes[1]);
    }
    println!("{} tests; sysbench passes {}, plimsoll {}", names.len(), passed[0], passed[1]);
    Ok(is_good)
}

/// Debian's source package, unpacked; `None` where apt has none.
fn source_package(folder: &Path) -> Option<PathBuf> {
    let status = Command::new("apt-get")
        .args(["source", "-q", "sysbench"])
        .current_dir(folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.ok().filter(std::process::ExitStatus::success)?;
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.map(|entry| entry.path().join("tests")).find(|tests| tests.is_dir())
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Makes sysbench's database anew.
pub(crate) fn empty_database(server: &Sandbox) -> Result<Target> {
    let mut client = Client::connect(&server.target(None))?;
    client.query("DROP DATABASE IF EXISTS sbtest")?;
    client.close();
    let target = server.target(Some("sbtest"));
    workload::create_database(&target)?;
    Ok(target)
}

/// The tests with their servers.
struct Suite {
    tests: PathBuf,
    cram: PathBuf,
    servers: Vec<Sandbox>,
    environment: BTreeMap<String, String>,
    /// Configuration file, and a folder for each binary.
    scratch: tempfile::TempDir,
}

impl Suite {
    fn new(tests: &Path, cram: PathBuf) -> Result<Suite> {
        let scratch = tempfile::tempdir()?;
        let config = scratch.path().join("config.sh");
        std::fs::write(
            &config,
            "export SBTEST_VERSION_STRING='sysbench 1.0.20'\nexport SBTEST_VERSION=1.0.20\nexport SBTEST_HAS_MYSQL=yes\n\
             export SBTEST_HAS_PGSQL=yes\n",
        )?;
        let mut servers = Vec::new();
        let mut environment = BTreeMap::new();
        for selector in ["mariadb", "postgres"] {
            let Some(server) = sandbox::testing::server(selector) else { bail!("{selector} is needed") };
            environment.extend(server.env_vars());
            servers.push(server);
        }
        let [mysql, postgres] = [servers[0].target(None), servers[1].target(None)];
        environment.remove("MYSQL_HOST");
        let socket = servers[0].socket();
        let place = environment.get("PGHOST").cloned().unwrap_or_default();
        let port = environment.get("PGPORT").cloned().unwrap_or_default();
        let include = tests.join("include");
        let (lua, include) = ("/usr/share/sysbench", include.display());
        for (name, value) in [
            ("SBTEST_MYSQL_ARGS", format!("--mysql-socket={} --mysql-user={}", socket.display(), mysql.user)),
            (
                "SBTEST_PGSQL_ARGS",
                format!("--pgsql-host={place} --pgsql-port={port} --pgsql-user={}", postgres.user),
            ),
            ("SBTEST_ROOTDIR", tests.display().to_string()),
            ("SBTEST_SCRIPTDIR", lua.to_owned()),
            ("SBTEST_SUITEDIR", tests.join("t").display().to_string()),
            ("SBTEST_INCDIR", include.to_string()),
            ("SBTEST_CONFIG", config.display().to_string()),
            ("SBTEST_VERSION_STRING", "sysbench 1.0.20".to_owned()),
            ("SBTEST_VERSION", "1.0.20".to_owned()),
            ("SBTEST_HAS_MYSQL", "yes".to_owned()),
            ("SBTEST_HAS_PGSQL", "yes".to_owned()),
            ("LUA_PATH", format!("{lua}/?;{lua}/?.lua;{include}/?;{include}/?.lua")),
        ] {
            environment.insert(name.to_owned(), value);
        }
        Ok(Suite { tests: tests.to_owned(), cram, servers, environment, scratch })
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = std::fs::read_dir(self.tests.join("t"))?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".t").map(str::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Runs a test with `binary` as `sysbench`, on empty databases.
    fn run(&self, name: &str, binary: &Path) -> Result<Outcome> {
        for server in &self.servers {
            empty_database(server)?;
        }
        let folder = tempfile::tempdir_in(self.scratch.path())?;
        symlink(binary, folder.path().join("sysbench"))?;
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
        // cram leaves what a test gave beside it; the tests' own folder is not ours.
        let test = folder.path().join(format!("{name}.t"));
        std::fs::copy(self.tests.join("t").join(format!("{name}.t")), &test)?;
        let output = Command::new("timeout")
            .arg("120")
            .arg(&self.cram)
            .arg("--shell=/bin/bash")
            .arg(&test)
            .envs(&self.environment)
            .env("PATH", path)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(match output.status.code() {
            Some(0) if text.contains("1 skipped") => Outcome::Skipped,
            Some(0) => Outcome::Passed,
            _ => Outcome::Failed(text.lines().filter(|line| line.starts_with("@@")).count().max(1)),
        })
    }
}
