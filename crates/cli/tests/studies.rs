//! Studies end to end: recorded, resumed after every kind of interruption, reported.

mod common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Done, plimsoll, run, servers_are_there, stop_under_load, tiny_study, wait_until};
use store::{Status, Store};

const LIMIT: Duration = Duration::from_secs(300);

fn start(study: &str, results: &Path) -> Child {
    plimsoll()
        .args(["run", study, "--results"])
        .arg(results)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Statuses of all attempts, in the order in which they began.
fn statuses(results: &Path) -> Vec<Status> {
    let Ok(store) = Store::open_read_only(results) else { return Vec::new() };
    let studies = store.studies().unwrap_or_default();
    let heads = studies.last().map(|study| store.run_heads(study.id).unwrap_or_default());
    heads.unwrap_or_default().iter().map(|head| head.status).collect()
}

fn ended(status: &Status) -> bool {
    matches!(status, Status::Done | Status::Invalid)
}

/// Sandboxes of runs, by name.
fn sandboxes_of(pid: u32) -> usize {
    let done = run(&["sandbox", "list", "--json"]).expect(0, &[]);
    let all: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let head = format!("run-{pid}-");
    all.as_array().unwrap().iter().filter(|one| one["name"].as_str().unwrap().starts_with(&head)).count()
}

fn signal(child: &Child, signal: &str) {
    let done = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_killed_plimsoll_loses_the_run_in_progress_and_nothing_else() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let study = tiny_study(dir.path(), "killed", "\"mariadb\"", "1, 2", 2);
    let mut child = start(&study, &results);
    // Stopped while it is looked at: the third run is under way, and stays so until the end.
    wait_until(LIMIT, "the third run", || {
        signal(&child, "-STOP");
        let found = statuses(&results);
        let is_under_way = found.len() >= 3 && found.last() == Some(&Status::Running);
        if !is_under_way {
            signal(&child, "-CONT");
        }
        is_under_way
    });
    signal(&child, "-9");
    child.wait().unwrap();
    let before = statuses(&results);
    assert_eq!(before.iter().filter(|status| ended(status)).count(), before.len() - 1, "{before:?}");

    let again = plimsoll().args(["run", &study, "--results"]).arg(&results).output().unwrap();
    let again = Done::of(again).expect(0, &["of them recorded before"]);
    assert!(again.out.contains("report: "), "{}", again.out);
    let after = statuses(&results);
    assert_eq!(after.iter().filter(|status| **status == Status::Interrupted).count(), 1, "{after:?}");
    assert_eq!(sandboxes_of(child.id()), 0, "the next start cleans up");
    let store = Store::open_read_only(&results).unwrap();
    let studies = store.studies().unwrap();
    assert_eq!(studies.len(), 1, "it is the same study");
    let heads = store.run_heads(studies[0].id).unwrap();
    for index in 0..studies[0].study.runs {
        assert!(
            heads.iter().any(|head| head.start.index == index && ended(&head.status)),
            "run {index} is missing"
        );
    }
}

#[test]
fn ctrl_c_ends_gracefully_and_a_changed_file_is_noticed() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let study = tiny_study(dir.path(), "stopped", "\"mariadb\"", "1, 2", 2);
    let child = start(&study, &results);
    wait_until(LIMIT, "the second run", || statuses(&results).len() >= 2);
    signal(&child, "-INT");
    let pid = child.id();
    let done =
        Done::of(child.wait_with_output().unwrap()).expect(4, &["the same command goes on from there"]);
    assert!(done.err.contains("results.db"), "{}", done.err);
    assert_eq!(sandboxes_of(pid), 0);
    assert!(statuses(&results).iter().all(|status| *status != Status::Running));

    let text = std::fs::read_to_string(&study).unwrap();
    let run_it = || Done::of(plimsoll().args(["run", &study, "--results"]).arg(&results).output().unwrap());
    std::fs::write(&study, text.replace("duration = \"1s\"", "duration = \"900ms\"")).unwrap();
    run_it().expect(2, &["has changed since the unfinished study", "--new"]);
    // A remark changes nothing that is measured.
    std::fs::write(&study, format!("# a remark\n{text}")).unwrap();
    run_it().expect(0, &["of them recorded before"]);
}

#[test]
fn a_cell_that_fails_is_recorded_and_the_rest_goes_on() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let path = dir.path().join("failing.toml");
    let text = "title = \"failing\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_point_select\"\n\
        settings = [\"default\", { name = \"broken\", set = { innodb_temp_data_file_path = \"nonsense\" } }]\n[options]\ntable_size = 1000\n\
        [load]\nwarmup = \"0s\"\nduration = \"500ms\"\nblocks = 1\ngates = \"warn\"\n[compare]\naxis = \"settings\"\nbase = \"default\"\n";
    std::fs::write(&path, text).unwrap();
    let run_it = |more: &[&str]| {
        let run = plimsoll().arg("run").arg(&path).arg("--results").arg(&results).args(more).output();
        Done::of(run.unwrap()).expect(1, &["failed"])
    };
    let done = run_it(&[]);
    assert!(!done.err.contains("an earlier record"), "{}", done.err);
    assert!(done.out.contains("1 of 2 runs failed"), "{}", done.out);
    let found = statuses(&results);
    assert_eq!(found.len(), 2);
    assert!(found.contains(&Status::Failed) && found.iter().any(ended), "{found:?}");
    let store = Store::open_read_only(&results).unwrap();
    let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
    let failed = heads.iter().find(|head| head.status == Status::Failed).unwrap();
    let end = store.run(failed.id).unwrap().end.unwrap();
    assert!(end.error.is_some_and(|error| !error.is_empty()));

    // Whoever asks again says what the first answer was.
    let again = run_it(&["--new"]);
    let said = "0 of 1 comparisons have a verdict; whoever shows one of the two shows both";
    assert!(
        again.err.contains("an earlier record of this study, begun ") && again.err.contains(said),
        "{}",
        again.err
    );
    let store = Store::open_read_only(&results).unwrap();
    assert!(store.studies().unwrap()[1].notes.iter().any(|(_, note)| note.contains(said)));
}

#[test]
fn a_killed_server_fails_its_run_and_the_same_command_makes_it_again() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let study = tiny_study(dir.path(), "server-killed", "\"mariadb\"", "11", 1);
    let child = start(&study, &results);
    let server = stop_under_load(&child, 11);
    common::signal(server.pid, "KILL");
    common::signal(child.id(), "CONT");
    let pid = child.id();
    let done =
        Done::of(child.wait_with_output().unwrap()).expect(1, &["failed", "the server ended during the run"]);
    assert!(done.err.contains("the server's log ends with"), "{}", done.err);
    assert_eq!(sandboxes_of(pid), 0);
    let found = statuses(&results);
    assert_eq!(found.iter().filter(|status| **status == Status::Failed).count(), 1, "{found:?}");
    assert_eq!(found.iter().filter(|status| ended(status)).count(), 1, "the other run went on: {found:?}");

    let again = plimsoll().args(["run", &study, "--results"]).arg(&results).output().unwrap();
    Done::of(again).expect(0, &["of them recorded before"]);
    let found = statuses(&results);
    assert_eq!((found.len(), found.iter().filter(|status| ended(status)).count()), (3, 2), "{found:?}");
    // The failed attempt stays in the report, beside the one that counts.
    let json = plimsoll().args(["report", "--json", "-", "--results"]).arg(&results).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&Done::of(json).expect(0, &[]).out).unwrap();
    common::contract::check_report(&report);
    let runs: usize =
        report["cells"].as_array().unwrap().iter().map(|cell| cell["runs"].as_array().unwrap().len()).sum();
    assert_eq!(runs, 3);
}

#[test]
fn the_quickstart_in_small_gives_a_report_that_opens() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/quickstart.toml"))
        .unwrap();
    let small = text
        .replace("sessions = [8]", "sessions = [1, 4]")
        .replace("table_size = 100_000", "table_size = 1_000")
        .replace("duration = \"5s\"", "duration = \"1s\"")
        .replace("warmup = \"1s\"", "warmup = \"100ms\"")
        .replace("until = \"decided\"\n", "")
        .replace("budget = \"8m\"\n", "")
        .replace("blocks = { min = 5, max = 20 }", "blocks = 1");
    let study = dir.path().join("small.toml");
    std::fs::write(&study, small).unwrap();
    let done = plimsoll().arg("run").arg(&study).arg("--results").arg(&results).output().unwrap();
    let done = Done::of(done).expect(0, &["8 runs"]);
    assert!(done.out.contains("mariadb@") && done.out.contains("postgres@"), "{}", done.out);
    let html = results.join("small.html");
    assert!(done.out.contains(&html.display().to_string()));

    let json = plimsoll().args(["report", "--json", "-", "--results"]).arg(&results).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&Done::of(json).expect(0, &[]).out).unwrap();
    common::contract::check_report(&report);
    assert_eq!(report["cells"].as_array().unwrap().len(), 8);
    for cell in report["cells"].as_array().unwrap() {
        let run = &cell["runs"][0];
        assert!(run["tps"].as_f64().unwrap() > 0.0, "{cell}");
        assert_eq!(run["gates"]["consistency"]["finding"], "held", "{cell}");
    }
    seconds_add_up_to_the_statements(&results);
    open_in_browser(&html);
}

/// Response times are kept by second and class of statement, and merging them gives back those of the whole level.
fn seconds_add_up_to_the_statements(results: &Path) {
    let store = Store::open_read_only(results).unwrap();
    let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
    let mut steps = 0;
    let of_run = |head: &store::RunHead| {
        let steps = store.run(head.id).unwrap().end.unwrap().steps;
        let with_seconds = |(at, step)| (step, store.intervals(head.id, at).unwrap());
        steps.into_iter().enumerate().map(with_seconds).collect::<Vec<_>>()
    };
    for (step, intervals) in heads.iter().flat_map(of_run) {
        steps += 1;
        for (ordinal, statement) in step.by_statement.iter().enumerate() {
            let mut sum = statement.latency.clone();
            sum.reset();
            for second in intervals.iter().filter(|interval| interval.second >= 1) {
                if let Some(packed) = second.by_statement.get(&(ordinal as u32)) {
                    sum.add(packed.unpacked().unwrap()).unwrap();
                }
            }
            assert_eq!(sum, statement.latency, "{}", statement.name);
        }
    }
    // A run that a busy machine cost was made again.
    assert_eq!(steps, heads.len());
    let runs: std::collections::BTreeSet<u32> = heads.iter().map(|head| head.start.index).collect();
    assert_eq!(runs.len(), 8);
}

/// Charts are drawn, and nothing is reported on the console.
fn open_in_browser(html: &Path) {
    let Some(binary) = testkit::chromium("the quickstart's report in a browser") else { return };
    let profile = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(&binary)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", html.display()))
        .output()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", binary.display()));
    let dom = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(dom.contains("<canvas") || dom.contains("<svg"), "no chart was drawn\n{told}");
    assert!(dom.contains("MariaDB and PostgreSQL side by side"));
    // Pages of the browser's own talk too, for example about a slow machine.
    let from_page =
        told.lines().filter(|line| line.contains(":CONSOLE") && !line.contains("source: chrome://"));
    assert_eq!(from_page.collect::<Vec<_>>(), [""; 0], "{told}");
}

/// Runs a script of the shell, whose `$0` is plimsoll, with mounts of its own; `None`, and a word, where that is not
/// allowed (the script then ends with 77).
fn with_own_mounts<A: AsRef<std::ffi::OsStr>>(
    script: &str,
    arguments: [A; 3],
    home: Option<&Path>,
) -> Option<Done> {
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_plimsoll")]).args(arguments);
    if let Some(home) = home {
        command.env("PLIMSOLL_HOME", home);
    }
    let done = Done::of(command.stdin(Stdio::null()).output().unwrap());
    if done.code == Some(77) || done.err.contains("unshare failed") {
        let why = format!("it needs a mount of its own, which only root may make: {}", done.err);
        testkit::not_tested("a full disk below a study", why);
        return None;
    }
    Some(done)
}

#[test]
fn a_full_disk_loses_the_run_in_progress_and_the_same_command_resumes() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    std::fs::create_dir(&results).unwrap();
    let study = tiny_study(dir.path(), "full", "\"mariadb\"", "1", 3);
    // A disk of its own that holds the schema and about two runs; later it grows.
    let script = "mount -t tmpfs -o size=\"$2\" none \"$1\" || exit 77
        \"$0\" run \"$3\" --results \"$1\"; first=$?
        mount -o remount,size=64m \"$1\"
        \"$0\" run \"$3\" --results \"$1\"; echo \"codes $first $?\"";
    let (place, study) = (results.display().to_string(), study);
    let Some(done) = with_own_mounts(script, [&place, "320k", &study], None) else { return };
    assert!(done.out.contains("codes 1 0"), "{}\n{}", done.out, done.err);
    assert!(
        done.err.contains("no space left") && done.err.contains("run the same command again"),
        "{}",
        done.err
    );
    assert!(done.err.contains("of them recorded before"), "what was recorded is still there: {}", done.err);
}

#[test]
fn a_full_home_fails_the_runs_and_the_same_command_makes_them_again() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The server's own user must be able to enter.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (home, results) = (dir.path().join("home"), dir.path().join("results"));
    std::fs::create_dir(&home).unwrap();
    let study = tiny_study(dir.path(), "full-home", "\"mariadb\"", "1", 1);
    // Too little for a data directory, which is said at once; then it grows, is nearly full after the first run, and grows
    // again. The builds are those of other tests.
    let builds = sandbox::Home::find().unwrap().builds();
    let bind = match builds.is_dir() {
        true => {
            format!("mkdir \"$1/builds\" && mount --bind '{}' \"$1/builds\" || exit 77", builds.display())
        }
        false => String::new(),
    };
    let script = "mount -t tmpfs -o size=40m,mode=755 none \"$1\" || exit 77
        BIND
        \"$0\" run \"$2\" --results \"$3\"; none=$?
        mount -o remount,size=4g \"$1\"
        \"$0\" run \"$2\" --results \"$3\" --only workload=oltp_point_select; half=$?
        used=$(df --output=used -k \"$1\" | tail -1)
        mount -o remount,size=$((used + 100000))k \"$1\"
        \"$0\" run \"$2\" --results \"$3\"; full=$?
        mount -o remount,size=4g \"$1\"
        \"$0\" run \"$2\" --results \"$3\"; echo \"codes $none $half $full $?\"";
    let script = script.replace("BIND", &bind);
    let arguments = [&home, Path::new(&study), &results];
    let Some(done) = with_own_mounts(&script, arguments, Some(&home)) else { return };
    assert!(done.out.contains("codes 2 0 1 0"), "{}\n{}", done.out, done.err);
    assert!(done.err.contains("the tables need about"), "{}", done.err);
    assert!(done.out.contains("1 of 2 runs failed"), "{}", done.out);
    assert!(!done.err.contains("panicked"), "{}", done.err);
    let found = statuses(&results);
    assert_eq!((found.len(), found.iter().filter(|status| ended(status)).count()), (3, 2), "{found:?}");
}

#[test]
fn environments_of_servers_vary_and_are_recorded() {
    if !servers_are_there() {
        return;
    }
    let libraries = ["/lib/x86_64-linux-gnu/libutil.so.1", "/lib64/libutil.so.1"];
    // Any library will do that the server does not load by itself.
    let Some(library) = libraries.into_iter().find(|path| Path::new(path).is_file()) else {
        testkit::not_tested("a study of preloaded libraries", "none that is known is here");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let study = dir.path().join("env.toml");
    let text = |preload: &str| {
        format!(
            "title = \"env\"\nquestion = \"Does it matter?\"\n[axes]\nserver = \"mariadb\"\nworkload = \
             \"oltp_point_select\"\nsessions = [1]\nenv = [\"none\", {{ name = \"other\", preload = \"{preload}\", \
             set = {{ MALLOC_ARENA_MAX = 2 }} }}]\n[options]\ntable_size = 1000\n[load]\nwarmup = \"100ms\"\n\
             duration = \"1s\"\nblocks = 1\nseed = 1\ngates = \"warn\"\n"
        )
    };
    let run_it = || {
        let done = plimsoll().arg("run").arg(&study).arg("--results").arg(&results).output().unwrap();
        Done::of(done)
    };
    std::fs::write(&study, text("hoard")).unwrap();
    run_it().expect(2, &["jemalloc, tcmalloc, mimalloc, or the path of a library"]);
    std::fs::write(&study, text(library)).unwrap();
    run_it().expect(0, &[]);

    let store = Store::open_read_only(&results).unwrap();
    let heads = store.run_heads(store.studies().unwrap().last().unwrap().id).unwrap();
    let mut seen = Vec::new();
    for head in heads {
        let facts = store.run(head.id).unwrap().end.unwrap().facts;
        let of_env = |(name, value): (&String, &String)| {
            (name.starts_with("server env") || name.starts_with("preloaded"))
                .then(|| format!("{name}={value}"))
        };
        seen.push((head.start.key["env"].to_string(), facts.iter().filter_map(of_env).collect::<Vec<_>>()));
    }
    seen.sort();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].1.is_empty(), "{seen:?}");
    let facts = &seen[1].1;
    assert_eq!(
        facts[1..].iter().map(String::as_str).collect::<Vec<_>>(),
        [format!("server env LD_PRELOAD={library}").as_str(), "server env MALLOC_ARENA_MAX=2"]
    );
    assert!(
        facts[0].starts_with(&format!("preloaded {library}=")) && facts[0].contains("sha256"),
        "{facts:?}"
    );
}
