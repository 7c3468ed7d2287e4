//! `plimsoll new` and the reference of study files.

mod common;

use common::{plimsoll, run, servers_are_there};

#[test]
fn a_new_study_runs() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml").display().to_string();
    let done = run(&["new", &path]).expect(0, &[]);
    assert!(done.out.contains(&format!("plimsoll run {path} --quick")), "{}", done.out);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("SERVER") && !text.contains("THIS_FILE"), "{text}");
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    assert!(done.out.contains("2 cells, 5 blocks, 20 runs"), "{}", done.out);
    assert!(!done.out.contains("warning"), "{}", done.out);
    let results = dir.path().join("results");
    let quick = plimsoll().args(["run", &path, "--quick", "--results"]).arg(&results).output().unwrap();
    assert_eq!(quick.status.code(), Some(0), "{}", String::from_utf8_lossy(&quick.stderr));
    assert!(results.join("mine.html").is_file());

    run(&["new", &path]).expect(2, &["is there already"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "left as it is");
    run(&["new", &dir.path().join("mine").display().to_string()]).expect(2, &["end in .toml"]);
    run(&["new", &dir.path().join("none/mine.toml").display().to_string()]).expect(2, &["cannot write"]);
}

#[test]
fn the_reference_of_study_files_is_help() {
    for arguments in [&["help", "study"][..], &["study"]] {
        let done = run(arguments).expect(0, &[]);
        for wanted in
            ["think_time", "backoff", "ramp", "charset", "client_cpus", "a set of settings", "[[exclude]]"]
        {
            assert!(done.out.contains(wanted), "{wanted} is not in\n{}", done.out);
        }
    }
}
