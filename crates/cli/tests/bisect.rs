//! A search over real builds: labelled copies of a server, slower from one of them on.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Done, plimsoll, tiny_study};
use serde_json::Value;
use testkit::slow::{self, Slow};

fn at_home(home: &Path, words: &[&str]) -> Done {
    Done::of(plimsoll().env("PLIMSOLL_HOME", home).args(words).output().unwrap())
}

#[test]
fn the_guilty_build_and_why_it_is_slower_are_named() {
    let Some(original) = sandbox::testing::server("postgres") else { return };
    let build = original.build();
    let dir = tempfile::tempdir().unwrap();
    // Whoever runs the servers has to get to its home.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let home = dir.path().join("home");
    let name = |at: u32| format!("{}@{}+b{at}", build.flavor, build.version);
    // The good one sleeps too: at its full speed it and the client would want more cpu than two cores have, and its runs would
    // be client_bound now and then.
    for (at, sleep_us) in [(0, 500), (1, 4000), (2, 4000)] {
        let into = dir.path().join(format!("b{at}"));
        let slow = Slow { sleep_us, ..Slow::default() };
        slow::build(&build.files.base, &build.files.server, &into, &slow).unwrap();
        at_home(&home, &["fetch", "--archive", into.to_str().unwrap(), "--as", &name(at)]).expect(0, &[]);
    }
    let study = tiny_study(dir.path(), "labelled", &format!("\"{}\"", name(0)), "2", 5);
    let results = dir.path().join("results").display().to_string();
    let ends = ["--good", &name(0), "--bad", &name(2)];
    let words = [&["bisect", &study], &ends[..], &["--results", &results, "--json", "-"]].concat();
    let done = at_home(&home, &words).expect(0, &["pairs of lives"]);
    let found: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&found["status"], &found["guilty"]), (&"found".into(), &name(1).into()), "{found}");
    let why = &found["why"][0];
    assert_eq!(why["what"], "session_asleep_us_per_transaction", "{found}");
    assert!(
        why["more_us"].as_f64().unwrap() > 1500.0 && why["more_us_low"].as_f64().unwrap() > 0.0,
        "{found}"
    );
}
