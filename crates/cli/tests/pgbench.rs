//! `plimsoll pgbench` beside pgbench itself, on one server: expressions, mistakes, statements, reports.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Done, Running, plimsoll, run, signal, wait_until};
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
        [false, true].map(|is_ours| self.run(self.command(is_ours), arguments))
    }

    fn command(&self, is_ours: bool) -> Command {
        if !is_ours {
            return Command::new(&self.theirs);
        }
        let mut ours = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        ours.arg("pgbench");
        ours
    }

    /// The server logs every statement from here on.
    fn log_statements(&self) {
        self.query("ALTER SYSTEM SET log_statement = 'all'");
        self.query("SELECT pg_reload_conf()");
    }

    fn script(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn query(&self, sql: &str) {
        let target = self.server.target(Some("postgres"));
        wire::blocking::Client::connect(&target).unwrap().query(sql).unwrap();
    }

    /// Both programs have the server do the same things, at least so many.
    #[track_caller]
    fn same_statements(&self, line: &[&str], least: usize) {
        let logs = [false, true].map(|is_ours| {
            self.logged(|| {
                let done = self.run(self.command(is_ours), line);
                assert!(done.status.success(), "{line:?}: {}", stderr(&done));
            })
        });
        assert!(logs[0].len() >= least, "{line:?}: {:?}", logs[0]);
        for (theirs, ours) in logs[0].iter().zip(&logs[1]) {
            assert_eq!(theirs, ours, "{line:?}");
        }
        assert_eq!(logs[0].len(), logs[1].len(), "{line:?}");
    }

    /// The statements that the server logs while `work` goes on, without what both ask about the tables before.
    fn logged(&self, work: impl FnOnce()) -> Vec<String> {
        let path: PathBuf = self.server.log_path();
        let before = length(&path);
        work();
        // The server's log is written by its processes when they end a statement, hence before their clients go on.
        let text = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&text[before..]).into_owned();
        // Lines of a statement behind its first begin with a tab.
        let text = text.replace("\n\t", " NEWLINE ");
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
    let mut different = Vec::new();
    for script in scripts {
        both.script("m.sql", script);
        let [theirs, ours] = both.both(&["-n", "-t", "1", "-f", "m.sql"]);
        let errors = |output: &Output| {
            let text = stderr(output).replace("fatal: ", "error: ");
            text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let [theirs, ours] = [theirs, ours].map(|output| (output.status.code(), errors(&output)));
        if ours != theirs {
            different.push(format!("{script}\npgbench: {theirs:?}\nplimsoll: {ours:?}\n"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
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
    both.log_statements();
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
        both.same_statements(&line, 20);
    }
}

#[test]
fn tables_are_made_by_the_same_statements() {
    let Some(both) = Both::new() else { return };
    both.log_statements();
    let lines: [&[&str]; 6] = [
        &["-q"],
        &["-I", "dtGvp", "-s", "2", "-F", "90"],
        &["-I", "dtgvpf", "--partitions=3"],
        &["-I", "dtgp", "--partitions=3", "--partition-method=hash", "--unlogged-tables", "-F", "80"],
        &["--foreign-keys", "--unlogged-tables", "--tablespace=pg_default", "--index-tablespace=pg_default"],
        &["-n", "-I", "dt"],
    ];
    for line in lines {
        let line: Vec<&str> = ["-i"].into_iter().chain(line.iter().copied()).collect();
        both.same_statements(&line, 4);
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
    let made = both.run(both.command(true), &["-i", "-I", "dtGvpf", "-s", "2", "--partitions=3", "-F", "90"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(stderr(&made).contains("done in "), "{}", stderr(&made));
    let lines: [&[&str]; 6] = [
        &["-t", "10"],
        &["-t", "10", "-c", "2", "-r", "--max-tries=3", "--failures-detailed"],
        &["-T", "1", "-S", "-P", "5"],
        // Enough for both scripts to be drawn: one that is not has no latencies.
        &["-t", "60", "-b", "select-only@3", "-b", "simple-update", "-r"],
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

/// Two of three tries are refused by the server: a sequence counts them, whatever is rolled back.
const AGAIN: &str = "\
\\set before random(1, 1000000)
BEGIN;
SELECT nextval('tries') % 3 AS n, :before AS before \\gset
\\if :n != 0
DO $$ BEGIN RAISE EXCEPTION 'again' USING errcode = '40001'; END $$;
\\endif
COMMIT;
";

#[test]
fn transactions_are_tried_again_as_often_as_by_pgbench() {
    let Some(both) = Both::new() else { return };
    both.script("again.sql", AGAIN);
    let lines: [&[&str]; 5] = [
        &["--max-tries=5"],
        &["--max-tries=2", "--failures-detailed", "-r"],
        &["--max-tries=0", "-T", "1000", "-t", "4", "--verbose-errors"],
        &["--verbose-errors", "--max-tries=2"],
        &["--max-tries=5", "-M", "prepared", "-l", "--failures-detailed"],
    ];
    for line in lines {
        let line: Vec<&str> = if line.contains(&"-T") {
            // No limit but time and a number of transactions do not go together.
            ["-n", "-f", "again.sql", "-T", "1", "--max-tries=0", "-R", "4", "--random-seed=1"].to_vec()
        } else {
            ["-n", "-t", "10", "-f", "again.sql", "--random-seed=7"]
                .into_iter()
                .chain(line.iter().copied())
                .collect()
        };
        let told = [false, true].map(|is_ours| {
            both.query("DROP SEQUENCE IF EXISTS tries");
            both.query("CREATE SEQUENCE tries");
            let output = both.run(both.command(is_ours), &line);
            let figures = ["number of", "total number", "maximum number"];
            let report = stdout(&output);
            let report: Vec<String> = report
                .lines()
                .filter(|line| figures.iter().any(|words| line.starts_with(words)))
                .map(str::to_owned)
                .collect();
            // Where a server's program was is what Plimsoll does not tell.
            let errors = stderr(&output);
            let errors: Vec<String> =
                errors.lines().filter(|line| !line.starts_with("CONTEXT:")).map(str::to_owned).collect();
            (output.status.code(), report, errors)
        });
        if line.contains(&"-R") {
            // Rates and the clock: no two runs are alike.
            assert!(told.iter().all(|(code, report, _)| *code == Some(0) && !report.is_empty()), "{told:?}");
            continue;
        }
        assert_eq!(told[0], told[1], "{line:?}");
    }
}

#[test]
fn programs_run_only_where_that_is_allowed() {
    let Some(both) = Both::new() else { return };
    both.log_statements();
    both.script("shell.sql", "\\set n 4\n\\setshell x expr :n + 1\n\\shell true :x\nSELECT :x AS five;\n");
    let line = ["-n", "-t", "1", "-f", "shell.sql"];
    let mut logs = [false, true].map(|is_ours| {
        let allowed = if is_ours { vec!["--allow-shell"] } else { vec![] };
        let line: Vec<&str> = line.iter().copied().chain(allowed).collect();
        both.logged(|| {
            let done = both.run(both.command(is_ours), &line);
            assert!(done.status.success(), "{}", stderr(&done));
        })
    });
    assert_eq!(logs[0], logs[1]);
    assert_eq!(logs[0].pop().unwrap(), "statement: SELECT 5 AS five;");
    let refused = both.run(both.command(true), &line);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("which --allow-shell must permit"), "{}", stderr(&refused));
}

#[test]
fn schedules_and_logs_keep_what_they_promise() {
    let Some(both) = Both::new() else { return };
    let made = both.run(both.command(true), &["-i", "-q"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let common = ["-n", "-S", "-T", "4", "-R", "200", "-l", "--aggregate-interval=1", "-c", "2", "-j", "2"];
    for is_ours in [false, true] {
        let prefix = format!("agg{is_ours}");
        let line: Vec<&str> = common.into_iter().chain(["--log-prefix", &prefix]).collect();
        let done = both.run(both.command(is_ours), &line);
        assert!(done.status.success(), "{}", stderr(&done));
        let report = stdout(&done);
        let tps = report.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps: f64 = tps.unwrap().split(' ').next().unwrap().parse().unwrap();
        // 800 arrivals of a Poisson process: five standard deviations are 141 of them.
        assert!((150.0..250.0).contains(&tps), "{report}");
        assert!(report.contains("rate limit schedule lag: avg "), "{report}");
        let (mut lines, mut transactions) = (0, 0);
        for entry in std::fs::read_dir(both.dir.path()).unwrap().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&prefix) {
                continue;
            }
            for line in std::fs::read_to_string(entry.path()).unwrap().lines() {
                let columns: Vec<f64> = line.split(' ').map(|column| column.parse().unwrap()).collect();
                // As many as pgbench 15 has with a rate: four of the lag, and those skipped.
                assert_eq!(columns.len(), 15, "{line}");
                // Count, sum and squares, least and greatest of the latency in microseconds.
                let (count, mean) = (columns[1], columns[2] / columns[1]);
                // On a busy machine a second may go by without one.
                assert!(count == 0.0 || columns[4] <= mean && mean <= columns[5], "{line}");
                lines += 1;
                transactions += columns[1] as u64;
            }
        }
        assert!((6..=12).contains(&lines), "{lines}");
        assert!((500..=1100).contains(&transactions), "{transactions}");
    }
}

/// Tells a program to end, which it does soon and with an error.
#[track_caller]
fn ends_when_told(mut child: Running) {
    signal(child.id(), "TERM");
    let told = Instant::now();
    wait_until(Duration::from_secs(10), "the end", || child.try_wait().unwrap().is_some());
    assert!(told.elapsed() < Duration::from_secs(5), "it took {:?}", told.elapsed());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut text).unwrap();
    assert!(text.contains("pgbench: error: interrupted"), "{text}");
}

#[test]
fn a_script_is_not_read_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.sql");
    File::create(&path).unwrap().set_len((16 << 20) + 1).unwrap();
    let words = ["could not read file", "larger than 16 MiB"];
    run(&["pgbench", "-n", "-f", path.to_str().unwrap()]).expect(1, &words);
    let mut of_stdin = plimsoll();
    let of_stdin = of_stdin.args(["pgbench", "-n", "-f", "-"]);
    Done::of(of_stdin.stdin(File::open(&path).unwrap()).output().unwrap()).expect(1, &words);
    run(&["pgbench", "-n", "-f", "/nowhere.sql"])
        .expect(1, &["could not open file \"/nowhere.sql\": No such file"]);
    // A pipe in which nothing comes.
    let silent = of_stdin.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    ends_when_told(Running(silent));
}

#[test]
fn passwords_of_connection_strings_are_not_shown() {
    let mut silent = plimsoll();
    silent.args(["pgbench", "-n", "-f", "-", "dbname=x password=geheim"]);
    let silent = Running(silent.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let path = format!("/proc/{}/cmdline", silent.id());
    let line = || String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
    wait_until(Duration::from_secs(10), "the mask", || line().contains("dbname=x password=******"));
    assert!(!line().contains("geheim"), "{}", line());
}

#[test]
fn an_initialisation_ends_when_it_is_told_to_and_begins_where_there_is_room() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let pgbench = |steps: &str, scale: &str| {
        let mut command = plimsoll();
        command.envs(server.env_vars()).env("PGDATABASE", "postgres").stderr(Stdio::piped());
        command.args(["pgbench", "-i", "-q", "-I", steps, "-s", scale]);
        command
    };
    let query = |sql: &str| {
        let target = server.target(Some("postgres"));
        wire::blocking::Client::connect(&target).unwrap().query_value(sql).unwrap()
    };
    for steps in ["dtg", "dtG"] {
        let child = Running(pgbench(steps, "300").spawn().unwrap());
        let is_filling = "select 1 from pg_stat_activity where pid <> pg_backend_pid() \
                          and query ~ '^(copy|insert into) pgbench_accounts' and state = 'active'";
        wait_until(Duration::from_secs(20), "rows", || query(is_filling).is_some());
        std::thread::sleep(Duration::from_millis(500));
        ends_when_told(child);
        wait_until(Duration::from_secs(5), "the server's end of it", || query(is_filling).is_none());
        let rows = query("select count(*) from pgbench_accounts");
        assert_eq!(rows.as_deref(), Some("0"), "{steps}");
    }
    let words = ["free, the tables need about", "hint: Scale 1 takes about 16 MB"];
    Done::of(pgbench("dtg", "1000000").output().unwrap()).expect(1, &words);
    // Those of before have not been dropped.
    assert_eq!(query("select count(*) from pgbench_accounts").as_deref(), Some("0"));
    // What its command line connects to may be said in one text.
    let place = server.target(Some("postgres"));
    let wire::Endpoint::Unix(socket) = &place.endpoint else { panic!("{:?}", place.endpoint) };
    let port = socket.extension().unwrap().to_str().unwrap();
    let text = format!(
        "dbname=postgres host={} port={port} user={}",
        socket.parent().unwrap().display(),
        place.user
    );
    run(&["pgbench", "-i", "-q", &text]).expect(0, &[]);
}
