//! The whole street on every build that Plimsoll promises: deploy, load oltp of 10,000 rows, run oltp_read_write for a
//! few seconds, check consistency, stop, destroy. `PLIMSOLL_TEST_BUILDS=eras` does so for one build of each flavour and
//! era, `=all` for every one; they are fetched where they are missing.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Done, plimsoll, run, servers_are_there};
use serde_json::Value;

/// With the client that came with the build, or an installed one, or Plimsoll's own prompt: whichever there is.
#[test]
fn every_build_is_used() {
    for server in sandbox::testing::chosen_builds() {
        let name = format!("use-{}-{}", server.replace('@', "-"), std::process::id());
        run(&["sandbox", "deploy", server, "--name", &name]).expect(0, &[]);
        let flag = if server.starts_with("postgres") { "-c" } else { "-e" };
        let done = run(&["sandbox", "use", &name, "--", flag, "SELECT 40 + 2"]);
        run(&["sandbox", "destroy", &name]).expect(0, &[]);
        assert!(done.code == Some(0) && done.out.contains("42"), "{server}: {done:?}");
    }
}

#[test]
fn every_build_goes_down_the_street() {
    for server in sandbox::testing::chosen_builds() {
        let begin = std::time::Instant::now();
        let done = run(&[
            "bench",
            "oltp_read_write",
            "--server",
            server,
            "--sessions",
            "4",
            "--time",
            "3s",
            "--warmup",
            "500ms",
            "-o",
            "table_size=10000",
            "--fresh",
            "--json",
            "-",
        ]);
        let line: Value =
            serde_json::from_str(done.out.trim()).unwrap_or_else(|e| panic!("{server}: {e}\n{}", done.err));
        // A busy machine makes a run invalid; a wrong count of rows or a server that fails does not hide in that.
        assert_ne!(line["status"], "failed", "{server}: {line}\n{}", done.err);
        assert_eq!(line["gates"]["consistency"]["finding"], "held", "{server}: {line}\n{}", done.err);
        assert!(line["outcomes"]["committed"].as_u64().unwrap() > 0, "{server}: {line}");
        let version = server.split_once('@').unwrap().1;
        assert!(line["server"].as_str().unwrap().contains(version), "{server}: {line}");
        eprintln!(
            "{}: {:.0} transactions a second, {:.1} s in all",
            line["server"],
            line["tps"].as_f64().unwrap(),
            begin.elapsed().as_secs_f64()
        );
    }
}

fn git(dir: &Path, words: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"];
    let done = Command::new("git").arg("-C").arg(dir).args(identity).args(words).output().unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Nobody waits for the machine to hear it.
#[test]
fn sources_and_commits_that_are_not_there_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let clone = dir.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(&clone, &["init", "-q"]);
    let [none, clone] = [dir.path().join("none"), clone].map(|path| path.display().to_string());
    run(&["build", "--from", &none]).expect(2, &["none", "there is no such directory"]);
    run(&["build", "--from", &clone, "--ref", "v1"]).expect(2, &["it has no commit v1", "git fetch"]);
    let plain = dir.path().display().to_string();
    run(&["build", "--from", &plain, "--ref", "v1"]).expect(2, &["it is no git clone", "leave --ref out"]);
}

/// A clone of three commits, of which the second does not build; its sources are an installed server.
#[test]
fn a_study_builds_the_commits_of_a_clone_and_goes_on_where_one_does_not_build() {
    let server = Path::new("/usr/lib/postgresql/15");
    if !servers_are_there() || !server.join("bin/postgres").is_file() {
        testkit::not_tested("a study of commits", "PostgreSQL 15 is not installed in /usr/lib/postgresql");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Whoever runs the servers has to get to its home.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let clone = dir.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(&clone, &["init", "-q"]);
    for (tag, text) in [("v1", "good"), ("v2", "broken"), ("v3", "good again")] {
        std::fs::write(clone.join("source"), text).unwrap();
        git(&clone, &["add", "."]);
        git(&clone, &["commit", "-qm", tag]);
        git(&clone, &["tag", tag]);
    }
    let recipe = dir.path().join("copy.toml");
    let copy = format!("cp -r {}/. \"$PREFIX\"", server.display());
    let build = "grep -q good \"$SOURCE/source\" || { echo the compiler says no; exit 1; }";
    std::fs::write(&recipe, format!("build = '''{build}'''\ninstall = '''{copy}'''\n")).unwrap();
    let of = |key: &str, commits: &str| {
        format!(
            "{{ git = \"{}\", {key} = \"{commits}\", recipe = \"{}\" }}",
            clone.display(),
            recipe.display()
        )
    };
    let study = dir.path().join("commits.toml");
    let text = |range: &str| {
        format!(
            "title = \"commits\"\nquestion = \"q\"\n[axes]\nserver = [{}, {}]\nworkload = \"oltp_point_select\"\n\
             [options]\ntable_size = 1000\n[load]\nwarmup = \"0s\"\nduration = \"500ms\"\nblocks = 1\ngates = \"warn\"\n\
             [compare]\naxis = \"server\"\nbase = \"v1\"\n",
            of("ref", "v1"),
            of("refs", range)
        )
    };
    let results = dir.path().join("results");
    let run_it = |more: &[&str]| {
        let mut command = plimsoll();
        command
            .env("PLIMSOLL_HOME", dir.path().join("home"))
            .arg("run")
            .arg(&study)
            .arg("--results")
            .arg(&results);
        Done::of(command.args(more).output().unwrap())
    };
    std::fs::write(&study, text("v1..v4")).unwrap();
    run_it(&["--dry-run"]).expect(2, &["refs = \"v1..v4\"", "it has no commit v4", "git fetch"]);
    std::fs::write(&study, text("v1..v3")).unwrap();
    let dry = run_it(&["--dry-run"]).expect(0, &[]);
    assert!(dry.out.contains("v1 is v1, to be built, unless it has been, from commit "), "{}", dry.out);
    assert!(dry.out.contains("3 cells, 1 block, 3 runs"), "{}", dry.out);

    let wanted =
        ["does not build: build failed", "the compiler says no", "Its runs fail; the others are made"];
    let done = run_it(&[]).expect(1, &wanted);
    assert!(done.out.contains("1 of 3 runs failed"), "{}\n{}", done.out, done.err);
    // The commits that it began with are the study's, and what does not build is not tried again.
    let again = run_it(&[]).expect(1, &["did not build when this study began: --new builds it again"]);
    assert!(!again.err.contains("does not build: build failed"), "{}", again.err);
}
