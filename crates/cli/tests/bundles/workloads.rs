//! Workload files: sealed under names of their own, held against the plan, and measured again from the bundle alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use store::bundle::{Limits, Manifest, Member, content_sha256, index_of, pack, unpack};

use super::common::{Done, SMACK, plimsoll, run, servers_are_there};
use super::{recorded, verified};

fn write(path: &Path, text: &str) -> String {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

fn members_of(file: &str) -> Vec<Member> {
    unpack(&std::fs::read(file).unwrap(), &Limits::default()).unwrap()
}

/// Makes the recorded study one of these workloads, as they are now.
pub(super) fn of_workloads(results: &Path, workloads: &[String]) {
    let hash = |name: &String| {
        let files = lab::workloads::files(name, &BTreeMap::new()).unwrap();
        let each: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes)).collect();
        assert_eq!(
            lab::workloads::resolve(name).unwrap().content_sha256(),
            Some(&*content_sha256(name, &each)),
            "{name}: bundles hash files as plans do"
        );
        (name.clone(), content_sha256(name, &each))
    };
    let hashes: BTreeMap<String, String> = workloads.iter().map(hash).collect();
    let database = rusqlite::Connection::open(results.join("results.db")).unwrap();
    let sql = "UPDATE study SET plan = json_set(plan, '$.workloads', json(?1))";
    assert_eq!(database.execute(sql, [json!(hashes).to_string()]).unwrap(), 1);
}

#[test]
fn files_of_all_kinds_are_sealed_and_held_against_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    drop(recorded::ladder(dir.path(), 2, 2));
    let at = |name: &str, text: &str| write(&dir.path().join(name), text);
    let (one, two) = (at("a/x.sql", "SELECT 1;\n"), at("b/x.sql", "SELECT 2;\n"));
    let odd = at("c/Größe und Farbe.sql", "SELECT 3;\n");
    let script = at("s.sql", "\\set n random(1, 9)\nSELECT :n;\n");
    let init = at("t.sql", "CREATE TABLE t (n int);\n");
    let smack = at("colours.smack", SMACK);
    at("colours.dat", "red,1\ngreen,2\nblue,3\n");
    let latin = at("latin/colours.smack", SMACK);
    std::fs::write(dir.path().join("latin/colours.dat"), b"r\xe9d,1\ngr\xfcn,2\nblue,3\n").unwrap();
    let hers = at("ada-l.sql", "SELECT 'ada-l';\n");
    let scripts = format!("pgbench:{script}@3,select-only;init={init}");
    let gone = at("gone.sql", "SELECT 4;\n");
    let all =
        [one.clone(), two.clone(), odd, scripts.clone(), smack.clone(), latin.clone(), hers, gone.clone()];
    of_workloads(dir.path(), &all);
    std::fs::write(&gone, "SELECT 5;\n").unwrap();

    let file = dir.path().join("b.plimsoll").display().to_string();
    let results = dir.path().display().to_string();
    let bundle = ["bundle", "quickstart", "--results", &results, "-o", &file];
    let done = Done::of(plimsoll().args(bundle).env("USER", "ada-l").output().unwrap()).expect(0, &[]);
    assert!(done.out.contains(&format!("files of workload {gone}: they are no longer what was run")));
    let unsearched =
        "colours.dat is no text in UTF-8: what is private was not looked for in it: now as it is";
    assert!(done.out.contains(unsearched), "{}", done.out);
    assert!(done.out.contains("somebody.sql\" is as it was run but for what is private"), "{}", done.out);

    let found = verified(&file, 0);
    let unproved = found["unproved"].as_array().unwrap();
    assert!(unproved.len() == 1 && unproved[0].as_str().unwrap().contains("somebody.sql"), "{found}");
    assert!(run(&["verify", &file]).expect(0, &[]).out.contains("not proved: workload"));

    let members = members_of(&file);
    let index = index_of(&members).unwrap().unwrap();
    assert_eq!(index.len(), all.len() - 1);
    let texts = |workload: &str| -> Vec<String> {
        let found = index.iter().find(|found| found.workload == workload).unwrap();
        let each = found.content(&members).unwrap();
        each.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    };
    assert_eq!((texts(&one), texts(&two)), (vec!["SELECT 1;\n".into()], vec!["SELECT 2;\n".into()]));
    assert_eq!(texts(&scripts)[2], "CREATE TABLE t (n int);\n");
    assert_eq!(texts(&smack)[1..], vec!["red,1\ngreen,2\nblue,3\n".to_owned(); 2]);
    let bytes = index.iter().find(|found| found.workload == latin).unwrap().content(&members).unwrap();
    assert_eq!(bytes[1].1, b"r\xe9d,1\ngr\xfcn,2\nblue,3\n");
    assert!(members.iter().all(|(name, _)| !name.contains("ada-l")));

    // Sealed anew with another file, or with one that no workload is made of.
    for (name, text) in [("1-x.sql", "SELECT 9;\n"), ("index.json", "[]")] {
        let mut forged = members.clone();
        let of_name = |(known, _): &&mut Member| known.ends_with(&format!("workloads/{name}"));
        forged.iter_mut().find(of_name).unwrap().1 = text.as_bytes().to_vec();
        let old = Manifest::check(&members).unwrap();
        forged[0].1 = Manifest::new(&old.study, old.author, &forged[1..], old.left_out).bytes();
        std::fs::write(&file, pack(&forged).unwrap()).unwrap();
        let found = verified(&file, 1);
        assert!(found["different"][0]["where"].as_str().unwrap().starts_with("workloads/"), "{found}");
    }
}

#[test]
fn what_would_not_verify_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    drop(recorded::ladder(dir.path(), 2, 2));
    let database = rusqlite::Connection::open(dir.path().join("results.db")).unwrap();
    database.execute("UPDATE step SET committed = committed * 2 WHERE run_id = 1", []).unwrap();
    let file = dir.path().join("b.plimsoll").display().to_string();
    let results = dir.path().display().to_string();
    run(&["bundle", "quickstart", "--results", &results, "-o", &file])
        .expect(1, &["b.plimsoll is not written", "run r1, "]);
    assert!(!Path::new(&file).exists());
}

/// The files are gone from this machine, as on another one; of a stranger's bundle none is written.
#[test]
fn a_study_of_workload_files_is_measured_again_from_its_bundle_alone() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let sql = |sum: &str| {
        format!(
            "\\setup\nDROP TABLE IF EXISTS t;\nCREATE TABLE t (n BIGINT);\n\\fill t (n) 100: :row\n\\transaction only\n\
             SELECT {sum} FROM t;\n"
        )
    };
    let one = write(&dir.path().join("src/a/own.sql"), &sql("SUM(n)"));
    let two = write(&dir.path().join("src/b/own.sql"), &sql("MAX(n)"));
    let script = write(&dir.path().join("src/s.sql"), "\\set n random(1, 9)\nSELECT :n FROM u;\n");
    let init = write(&dir.path().join("src/t.sql"), "CREATE TABLE u (n int);\n");
    let study = format!(
        "title = \"own\"\nquestion = \"q\"\n[axes]\nserver = \"postgres\"\nworkload = [{{ workload = \"{one}\", label = \
         \"one\" }}, {{ workload = \"{two}\", label = \"two\" }}, {{ pgbench = [\"{script}@2\"], init = \"{init}\", label = \
         \"scripts\" }}]\n[load]\nwarmup = \"100ms\"\nduration = \"1s\"\nblocks = 3\ngates = \"warn\"\n[compare]\naxis = \
         \"workload\"\nbase = \"one\"\nmetrics = [\"tps\"]\n"
    );
    let study = write(&dir.path().join("own.toml"), &study);
    let file = at("own.plimsoll");
    run(&["run", &study, "--results", &at("r")]).expect(0, &[]);
    run(&["bundle", "own", "--results", &at("r"), "-o", &file]).expect(0, &[]);
    assert_eq!(verified(&file, 0)["unproved"], json!([]));
    std::fs::remove_dir_all(at("src")).unwrap();

    run(&["rerun", &file, "--results", &at("stranger"), "--untrusted"])
        .expect(2, &["not measured for a stranger", "own.sql: a workload file"]);
    assert!(!Path::new(&at("stranger")).exists());

    let rerun = ["rerun", &file, "--results", &at("again"), "--json", "-"];
    let done = run(&rerun).expect(0, &["is run from its author's files as they were sealed"]);
    let claims: Value = serde_json::from_str(&done.out).unwrap();
    let claims = claims["claims"].as_array().unwrap();
    assert!(claims.len() >= 2, "{claims:?}");
    for claim in claims {
        assert!(claim["here"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{claim}");
    }
    let again = run(&rerun).expect(0, &[]).out;
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["claims"].as_array().unwrap(), claims);
    let written: Vec<_> = std::fs::read_dir(at("again/workloads")).unwrap().collect();
    assert_eq!(written.len(), 5, "four files and what leads to them: {written:?}");
    let own = at("own-again.plimsoll");
    run(&["bundle", "own", "--results", &at("again"), "-o", &own]).expect(0, &[]);
    let index = index_of(&members_of(&own)).unwrap().unwrap();
    assert_eq!((index.len(), verified(&own, 0)["unproved"].clone()), (3, json!([])));

    // Files that are here under the same path and are others do not stand for those that a bundle lacks.
    let mut members = members_of(&file);
    members.retain(|(name, _)| !name.starts_with("workloads/"));
    let old = Manifest::check(&members_of(&file)).unwrap();
    members[0].1 = Manifest::new(&old.study, old.author, &members[1..], old.left_out).bytes();
    std::fs::write(&file, pack(&members).unwrap()).unwrap();
    run(&["rerun", &file, "--results", &at("other")]).expect(2, &["own.sql"]);
    for (path, text) in [(&one, sql("MIN(n)")), (&two, sql("MAX(n)"))] {
        write(Path::new(path), &text);
    }
    write(Path::new(&script), "SELECT 1;\n");
    write(Path::new(&init), "CREATE TABLE u (n int);\n");
    run(&["rerun", &file, "--results", &at("other")]).expect(2, &["own.sql` is not what was measured"]);
}
