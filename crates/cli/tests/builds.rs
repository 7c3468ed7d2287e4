//! The whole street on every build that Plimsoll promises: deploy, load oltp of 10,000 rows, run oltp_read_write for a
//! few seconds, check consistency, stop, destroy. `PLIMSOLL_TEST_BUILDS=eras` does so for one build of each flavour and
//! era, `=all` for every one; they are fetched where they are missing.

mod common;

use common::run;
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
