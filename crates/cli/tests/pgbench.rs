//! `plimsoll pgbench` beside pgbench itself, on one server: expressions, mistakes, statements, reports.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sandbox::Sandbox;

/// The newest pgbench that is installed, from version 15 on, whose random numbers ours are.
fn pgbench() -> Option<PathBuf> {
    let found =
        (15..30).rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/pgbench")));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        testkit::not_tested(
            "plimsoll pgbench beside pgbench",
            "no pgbench of version 15 or newer is installed",
        );
    }
    found
}

/// A server, the real pgbench, and a folder for scripts.
struct Both {
    server: Sandbox,
    theirs: PathBuf,
    dir: tempfile::TempDir,
}

impl Both {
    fn new() -> Option<Both> {
        let theirs = pgbench()?;
        let server = sandbox::testing::server("postgres")?;
        Some(Both { server, theirs, dir: tempfile::tempdir().unwrap() })
    }

    fn run(&self, mut command: Command, arguments: &[&str]) -> Output {
        command.args(arguments).current_dir(self.dir.path());
        command.envs(self.server.env_vars()).env("PGDATABASE", "postgres");
        command.output().unwrap()
    }

    /// What pgbench and what Plimsoll make of the same command line.
    fn both(&self, arguments: &[&str]) -> [Output; 2] {
        let mut ours = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        ours.arg("pgbench");
        [self.run(Command::new(&self.theirs), arguments), self.run(ours, arguments)]
    }

    fn script(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn query(&self, sql: &str) {
        let target = self.server.target(Some("postgres"));
        wire::blocking::Client::connect(&target).unwrap().query(sql).unwrap();
    }

    /// The statements that the server logs while `work` goes on, without what both ask about the tables before.
    fn logged(&self, work: impl FnOnce()) -> Vec<String> {
        let path: PathBuf = self.server.log_path();
        let before = length(&path);
        work();
        // The server's log is written by its processes when they end a statement, hence before their clients go on.
        let text = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&text[before..]).into_owned();
        let statements = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once("LOG:  ").or_else(|| line.split_once("DETAIL:  "))?;
            let is_ours = ["statement:", "execute", "parameters:"].iter().any(|word| rest.starts_with(word));
            let is_about_tables =
                rest.contains("pg_catalog") || rest.contains("count(*)") || rest.contains("pg_class");
            (is_ours && !is_about_tables).then(|| nameless(rest))
        });
        statements.collect()
    }
}

fn length(path: &Path) -> usize {
    std::fs::metadata(path).map_or(0, |meta| meta.len() as usize)
}

/// Prepared statements have names of each program's own.
fn nameless(line: &str) -> String {
    match line.strip_prefix("execute ").and_then(|rest| rest.split_once(": ")) {
        Some((name, sql)) if name != "<unnamed>" => format!("execute NAME: {sql}"),
        _ => line.to_owned(),
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines_with(text: &str, part: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

const EXPRESSIONS: &str = include_str!("pgbench/expressions.txt");

#[test]
fn expressions_are_worth_what_pgbench_says() {
    let Some(both) = Both::new() else { return };
    let mut script = String::from("\\set n null\n\\set i 7\n\\set d 2.5\n\\set b true\n");
    for expression in EXPRESSIONS.lines().filter(|line| !line.trim().is_empty()) {
        script.push_str(&format!("\\set x debug({expression})\n"));
    }
    script.push_str("SELECT 1;\n");
    both.script("e.sql", &script);
    let [theirs, ours] =
        both.both(&["-n", "-t", "3", "-c", "2", "--random-seed=42", "-D", "text=12", "-f", "e.sql"]);
    let [mut theirs, mut ours] = [theirs, ours].map(|output| lines_with(&stderr(&output), "debug("));
    assert!(theirs.len() > 300, "{theirs:?}");
    // Two clients take turns as it comes.
    theirs.sort();
    ours.sort();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    assert_eq!(theirs.len(), ours.len());
}

#[test]
fn mistakes_are_told_as_pgbench_tells_them() {
    let Some(both) = Both::new() else { return };
    let scripts = [
        "\\set x 1 +\n",
        "select 1;\n\\set x 1 2\n",
        "\\set\n",
        "\\set x\n",
        "\\set x nofunc(1)\n",
        "\\set x random(1)\n",
        "\\set x 1 ? 2\n",
        "\\set x (1\n",
        "\\set x case 1 end\n",
        "\\set x least()\n",
        "\\set x 1 < 2 < 3\n",
        "\\foo x\n",
        "\\if 1\nselect 1;\n",
        "\\endif\n",
        "\\if true\n\\else\n\\else\n\\endif\n",
        "\\sleep\n",
        "\\sleep 1 x\n",
        "\\sleep 1 s s\n",
        "\\gset\n",
        "select 1 \\gset a b\n",
        "select 1 \\gset\n\\gset\n",
        "",
        "\\else x\n",
        "\\setshell x\n",
        "\\shell\n",
        "\\set x 99999999999999999999\n",
        // Those below are met while it runs.
        "\\sleep :v us\nselect 1;\n",
        "\\set x 5/0\n",
        "\\set x :nope\n",
        "\\set x 9223372036854775807 + 1\n",
        "\\set x -9223372036854775808 - 1\n",
        "\\set x 9223372036854775807 * 2\n",
        "\\set x random(5, 1)\n",
        "\\set x random_gaussian(1, 5, 1.0)\n",
        "\\set x random_exponential(1, 5, 0.0)\n",
        "\\set x random_zipfian(1, 5, 1.0)\n",
        "\\set x permute(1, 0)\n",
        "\\set x int(1e30)\n",
        "\\set x 1 and true\n",
        "\\set x not 5\n",
        "\\set x true + 1\n",
        "\\set 1x 1\n",
        "begin;\nselect 1;\n",
        "select 1 as a union select 2 \\gset\nselect 1;\n",
        "\\startpipeline\nselect 1;\n\\endpipeline\n",
        "\\endpipeline\n",
    ];
    for script in scripts {
        both.script("m.sql", script);
        let [theirs, ours] = both.both(&["-n", "-t", "1", "-f", "m.sql"]);
        let errors = |output: &Output| {
            let text = stderr(output).replace("fatal: ", "error: ");
            text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(errors(&ours), errors(&theirs), "{script}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{script}");
    }
}

const CONTROL_FLOW: &str = "\
-- a comment; with a semicolon
\\set a random(1, 1000)
\\set b \\
  :a % 3
\\if :b = 0
  SELECT :a AS zero \\gset got_
  \\if :got_zero > 500
    SELECT 'large', :got_zero;
  \\else
    SELECT 'small', :got_zero;
  \\endif
\\elif :b = 1
  SELECT :a, ':a', $$;:a$$, '12:30'::text /* ; */ ;
\\else
  SELECT 1 AS one \\; SELECT :a AS two \\aset all_
  SELECT :all_one, :all_two;
\\endif
\\sleep 1 us
SELECT :client_id, :scale, :random_seed - :default_seed, :nope_is_null;
";

/// `:nope_is_null` above is left as it stands in simple mode, which the server refuses.
fn without_unset(script: &str) -> String {
    script.replace(", :nope_is_null", "")
}

const EXTENDED: &str = "\
\\set a random(1, 1000)
\\set b random_zipfian(1, 10, 1.5)
BEGIN;
SELECT :a::int + 1 AS more \\gset
SELECT :more::int, :b::int;
\\startpipeline
SELECT :a::int;
SELECT :b::int, 2;
\\endpipeline
COMMIT;
";

#[test]
fn the_server_gets_the_same_statements() {
    let Some(both) = Both::new() else { return };
    let made = both.run(Command::new(&both.theirs), &["-i", "-q", "-s", "1"]);
    assert!(made.status.success(), "{}", stderr(&made));
    both.query("ALTER SYSTEM SET log_statement = 'all'");
    both.query("SELECT pg_reload_conf()");
    both.script("flow.sql", &without_unset(CONTROL_FLOW));
    both.script("extended.sql", EXTENDED);
    let lines: [&[&str]; 7] = [
        &["-t", "20"],
        &["-t", "20", "-M", "extended"],
        &["-t", "20", "-M", "prepared", "-b", "simple-update@3", "-b", "select-only"],
        &["-t", "50", "-f", "flow.sql", "-D", "scale=3"],
        &["-t", "20", "-f", "extended.sql", "-M", "extended"],
        &["-t", "20", "-f", "extended.sql@2", "-S", "-M", "prepared"],
        &["-t", "20", "-C", "-N"],
    ];
    for line in lines {
        let line: Vec<&str> = ["-n", "--random-seed=4711"].into_iter().chain(line.iter().copied()).collect();
        let mut logs = Vec::new();
        for ours in [false, true] {
            let mut command = Command::new(if ours {
                env!("CARGO_BIN_EXE_plimsoll").as_ref()
            } else {
                both.theirs.as_path()
            });
            if ours {
                command.arg("pgbench");
            }
            logs.push(both.logged(|| {
                let done = both.run(command, &line);
                assert!(done.status.success(), "{line:?}: {}", stderr(&done));
            }));
        }
        assert!(logs[0].len() >= 20, "{line:?}: {:?}", logs[0]);
        for (theirs, ours) in logs[0].iter().zip(&logs[1]) {
            assert_eq!(theirs, ours, "{line:?}");
        }
        assert_eq!(logs[0].len(), logs[1].len(), "{line:?}");
    }
}

/// A report without its figures.
fn form(report: &str) -> Vec<String> {
    let is_first = |line: &&str| !line.starts_with("pgbench (");
    let blank = |line: &str| {
        let mut out = String::new();
        for c in line.chars() {
            match c {
                '0'..='9' if out.ends_with('#') => {}
                '0'..='9' => out.push('#'),
                c => out.push(c),
            }
        }
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    report.lines().filter(is_first).map(blank).collect()
}

#[test]
fn reports_and_logs_have_pgbenchs_form() {
    let Some(both) = Both::new() else { return };
    let made = both.run(
        {
            let mut ours = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            ours.arg("pgbench");
            ours
        },
        &["-i", "-I", "dtGvpf", "-s", "2", "--partitions=3", "-F", "90", "--unlogged-tables"],
    );
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(stderr(&made).contains("done in "), "{}", stderr(&made));
    let lines: [&[&str]; 6] = [
        &["-t", "10"],
        &["-t", "10", "-c", "2", "-r", "--max-tries=3", "--failures-detailed"],
        &["-T", "1", "-S", "-P", "5"],
        &["-t", "10", "-b", "select-only@3", "-b", "simple-update", "-r"],
        &["-t", "10", "-R", "1000", "-L", "1000", "-M", "prepared"],
        &["-t", "3", "-C", "-S"],
    ];
    for line in lines {
        let line: Vec<&str> = ["-n"].into_iter().chain(line.iter().copied()).collect();
        let [theirs, ours] = both.both(&line);
        assert!(ours.status.success(), "{}", stderr(&ours));
        assert_eq!(form(&stdout(&ours)), form(&stdout(&theirs)), "{line:?}");
    }
    for (line, columns) in [(&["-t", "5", "-c", "2", "-S"][..], 6), (&["-t", "5", "-S", "-R", "1000"][..], 7)]
    {
        let prefix = format!("log{columns}");
        let line: Vec<&str> =
            ["-n", "-l", "--log-prefix", &prefix].into_iter().chain(line.iter().copied()).collect();
        for output in both.both(&line) {
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let mut files = 0;
        for entry in std::fs::read_dir(both.dir.path()).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                assert!(text.lines().count() >= 5, "{text}");
                assert!(text.lines().all(|line| line.split(' ').count() == columns), "{text}");
                files += 1;
            }
        }
        assert_eq!(files, 2);
    }
}
