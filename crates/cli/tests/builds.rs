//! The whole street on every build that Plimsoll promises: deploy, load oltp of 10,000 rows, run oltp_read_write for a
//! few seconds, check consistency, stop, destroy. `PLIMSOLL_TEST_BUILDS=eras` does so for one build of each flavour and
//! era, `=all` for every one; they are fetched where they are missing.

mod common;

use common::run;
use serde_json::Value;

/// One of each flavour and era.
const ERAS: [&str; 8] = [
    "mysql@5.5.34",
    "mysql@5.6.14",
    "mysql@8.0.33",
    "mariadb@10.1.23",
    "mariadb@11.4.5",
    "postgres@9.6.24",
    "postgres@15",
    "postgres@18.6",
];

/// The others.
const OTHERS: [&str; 6] = [
    "mysql@5.5.9",
    "mariadb@10.2.11",
    "mariadb@10.11.5",
    "mariadb@10.11",
    "postgres@12.22",
    "postgres@17.11",
];

#[test]
fn every_build_goes_down_the_street() {
    let chosen: Vec<&str> = match std::env::var("PLIMSOLL_TEST_BUILDS").as_deref() {
        Ok("all") => ERAS.into_iter().chain(OTHERS).collect(),
        Ok("eras") => ERAS.to_vec(),
        _ => {
            eprintln!(
                "NOT TESTED: the street on fetched builds; PLIMSOLL_TEST_BUILDS=eras or =all fetches and runs them"
            );
            return;
        }
    };
    for server in chosen {
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
        assert_ne!(line["status"], "failed", "{server}: {line}");
        assert_ne!(
            line["gates"]["consistency"], true,
            "{server}: the tables are not what the outcomes imply: {line}"
        );
        assert!(line["outcomes"]["committed"].as_u64().unwrap() > 0, "{server}: {line}");
        let version = server.split_once('@').unwrap().1;
        assert!(line["server"].as_str().unwrap().contains(version), "{server}: {line}");
        eprintln!("{}: {:.0} transactions a second", line["server"], line["tps"].as_f64().unwrap());
    }
}
