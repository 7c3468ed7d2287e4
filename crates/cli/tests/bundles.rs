//! `bundle`, `verify` and `rerun`.

mod common;
#[path = "../../report/tests/common/mod.rs"]
mod recorded;
#[path = "bundles/workloads.rs"]
mod workloads;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{plimsoll, run, servers_are_there};
use serde_json::Value;

fn bundled(dir: &Path, more: &[&str]) -> String {
    drop(recorded::ladder(dir, 5, 3));
    let (place, file) = (dir.display().to_string(), dir.join("quickstart.plimsoll").display().to_string());
    run(&[&["bundle", "quickstart", "--results", &place, "-o", &file], more].concat()).expect(0, &[]);
    file
}

fn verified(file: &str, code: i32) -> Value {
    serde_json::from_str(&run(&["verify", file, "--json", "-"]).expect(code, &[]).out).unwrap()
}

#[test]
fn a_bundle_verifies_is_reported_and_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = bundled(dir.path(), &[]);
    let found = verified(&file, 0);
    assert_eq!(
        (&found["schema"], &found["verified"], &found["different"], &found["signature"]),
        (&2.into(), &true.into(), &serde_json::json!([]), &"none".into())
    );
    assert!(found["figures"].as_u64().unwrap() > 1000);
    assert!(run(&["verify", &file]).expect(0, &[]).out.contains("cannot prove"));
    let report = run(&["report", &file, "--json", "-"]).expect(0, &[]).out;
    assert!(serde_json::from_str::<Value>(&report).unwrap()["comparisons"].as_array().unwrap().len() > 5);

    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let found = verified(&file, 1);
    assert_eq!((&found["verified"], &found["figures"]), (&false.into(), &0.into()));
    assert!(run(&["verify", &file]).expect(1, &[]).out.contains("NOT VERIFIED: it was changed"));
    run(&["report", &file]).expect(1, &["it was changed after it was sealed"]);
    run(&["rerun", &file]).expect(2, &["it does not verify", "`plimsoll verify` says why"]);
}

/// Real studies, sealed by earlier versions.
#[test]
fn the_examples_of_the_documents_are_verified() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    let files: Vec<_> = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let found = verified(file.to_str().unwrap(), 0);
        // Searches have one level each.
        let least = if found["study"] == "lines" { 8_000 } else { 10_000 };
        assert!(found["figures"].as_u64().unwrap() > least, "{}: {found}", file.display());
    }
}

#[test]
fn what_cannot_be_bundled_or_verified_is_said() {
    let dir = tempfile::tempdir().unwrap();
    bundled(dir.path(), &[]);
    let place = dir.path().display().to_string();
    run(&["bundle", "quickest", "--results", &place])
        .expect(2, &["no study quickest", "recorded: quickstart"]);
    run(&["bundle", "quickstart", "--results", &place, "--sign", "/no/key"]).expect(2, &["--sign /no/key"]);
    run(&["verify", "/no/file"]).expect(2, &["there is no such file"]);
    let other = dir.path().join("other.plimsoll");
    for content in [&b""[..], b"text", &[0; 4096]] {
        std::fs::write(&other, content).unwrap();
        assert_eq!(verified(other.to_str().unwrap(), 1)["verified"], false);
    }
}

/// Names in a stranger's results and bundles become no paths: nothing is written beside the place that was named, and no file
/// from beside it gets into a bundle.
#[test]
fn a_strangers_names_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a/b");
    std::fs::create_dir_all(&place).unwrap();
    drop(recorded::ladder(&place, 2, 2));
    std::fs::create_dir(place.join("logs")).unwrap();
    std::fs::write(place.join("logs/run.log"), "said by the server").unwrap();
    let secret = dir.path().join("secret.txt");
    std::fs::write(&secret, "a secret of mine").unwrap();
    std::os::unix::fs::symlink(&secret, place.join("logs/link.log")).unwrap();
    let at = |path: &Path| path.display().to_string();
    let database = rusqlite::Connection::open(place.join("results.db")).unwrap();
    let logs = "UPDATE run SET log_file = CASE id % 4 WHEN 0 THEN 'logs/run.log' WHEN 1 THEN '../../secret.txt' \
                WHEN 2 THEN 'logs/link.log' ELSE ?1 END";
    database.execute(logs, [at(&secret)]).unwrap();
    database.execute("UPDATE study SET name = '../../x'", []).unwrap();

    let file = at(&dir.path().join("b.plimsoll"));
    run(&["bundle", "../../x", "--results", &at(&place), "-o", &file]).expect(0, &[]);
    let members = store::bundle::unpack(&std::fs::read(&file).unwrap(), &Default::default()).unwrap();
    let has = |text: &str| members.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text));
    assert!(has("said by the server") && !has("a secret of mine"));

    run(&["report", &file]).expect(2, &["called \"../../x\"", "--html FILE"]);
    run(&["report", "--results", &at(&place)]).expect(2, &["called \"../../x\"", "--html FILE"]);
    let again = place.join("r");
    run(&["rerun", &file, "--results", &at(&again)]).expect(2, &["called \"../../x\"", "names no file"]);
    assert!(!again.exists());
    let mut beside: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["a", "b.plimsoll", "secret.txt"]);
}

/// The signature is one of OpenSSH's own, by keys of all kinds that can sign, and its own program agrees.
#[test]
fn openssh_checks_the_signature() {
    if Command::new("ssh-keygen").arg("-?").stderr(Stdio::null()).output().is_err() {
        return testkit::not_tested("signatures of bundles", "ssh-keygen is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    bundled(dir.path(), &[]);
    for kind in [&["ed25519"][..], &["ecdsa", "-b", "256"], &["rsa", "-b", "2048"]] {
        signed_by(dir.path(), kind);
    }

    // A passphrase comes from the environment.
    let key = dir.path().join("ed25519");
    let change = ["-q", "-p", "-P", "", "-N", "geheim", "-f"];
    let changed = Command::new("ssh-keygen").args(change).arg(&key).stdout(Stdio::null()).status().unwrap();
    assert!(changed.success());
    let (place, file) = (dir.path().display().to_string(), dir.path().join("p.plimsoll"));
    let again = ["bundle", "quickstart", "--results", &place, "-o", file.to_str().unwrap(), "--sign"];
    let again = [&again[..], &[key.to_str().unwrap()]].concat();
    run(&again).expect(2, &["PLIMSOLL_KEY_PASSPHRASE"]);
    let mut opened = plimsoll();
    assert!(opened.args(again).env("PLIMSOLL_KEY_PASSPHRASE", "geheim").output().unwrap().status.success());
}

/// Makes a key, seals by it, and asks OpenSSH about the signature.
fn signed_by(dir: &Path, kind: &[&str]) {
    let key = dir.join(kind[0]);
    let mut make = Command::new("ssh-keygen");
    assert!(make.args(["-q", "-N", "", "-t"]).args(kind).arg("-f").arg(&key).status().unwrap().success());
    let (place, file) = (dir.display().to_string(), dir.join("signed.plimsoll").display().to_string());
    let seal = ["bundle", "quickstart", "--results", &place, "-o", &file, "--sign", key.to_str().unwrap()];
    run(&seal).expect(0, &[]);
    let found = verified(&file, 0);
    assert_eq!(found["signature"], "good", "{kind:?}");
    let listed = Command::new("ssh-keygen").arg("-lf").arg(&key).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(found["signer"].as_str().unwrap()), "{listed} {found}");

    let members = store::bundle::unpack(&std::fs::read(&file).unwrap(), &Default::default()).unwrap();
    let signature = dir.join("manifest.json.sig");
    std::fs::write(&signature, &members[1].1).unwrap();
    let manifest = dir.join("manifest.json");
    std::fs::write(&manifest, &members[0].1).unwrap();
    let checks = |manifest: &Path| {
        let mut check = Command::new("ssh-keygen");
        check.args(["-Y", "check-novalidate", "-n", "plimsoll-bundle", "-s"]).arg(&signature);
        check.stdin(std::fs::File::open(manifest).unwrap()).output().unwrap().status.success()
    };
    assert!(checks(&manifest), "{kind:?}");
    std::fs::write(&manifest, b"another").unwrap();
    assert!(!checks(&manifest), "{kind:?}");

    // Of another manifest it is bad, and says so.
    let mut forged = members;
    let mut manifest: store::bundle::Manifest = serde_json::from_slice(&forged[0].1).unwrap();
    manifest.plimsoll.push('0');
    forged[0].1 = manifest.bytes();
    std::fs::write(&file, store::bundle::pack(&forged).unwrap()).unwrap();
    assert_eq!(verified(&file, 1)["signature"], "bad", "{kind:?}");
    run(&["rerun", &file]).expect(2, &["it does not verify"]);
}

/// Passwords in the study, in its workloads, in results and in logs: none is in the bundle, and what was replaced is told.
#[test]
fn no_password_travels() {
    let dir = tempfile::tempdir().unwrap();
    let text = "title = \"t\" # postgres://ada:geheim@db/x\n[axes]\nenv = { name = \"e\", set = { PGPASSWORD = \"geheim\" } }\n";
    drop(recorded::ladder_of(dir.path(), 2, 2, text));
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(
        at("w.sql"),
        "\\setup\nCREATE USER a IDENTIFIED BY 'geheim';\n\\transaction t\nSELECT 1;\n",
    )
    .unwrap();
    std::fs::create_dir(at("logs")).unwrap();
    let log = "statement: ALTER ROLE a PASSWORD 'geheim'\nconnected to mysql://b:geheim@db:1/x\n";
    std::fs::write(at("logs/run.log"), log).unwrap();
    workloads::of_workloads(dir.path(), &[at("w.sql")]);
    let database = rusqlite::Connection::open(at("results.db")).unwrap();
    let error = "the server did not start: mariadbd --password=geheim (MYSQL_PWD=geheim)";
    assert!(database.execute("UPDATE run SET error = ?1 WHERE id = 1", [error]).unwrap() == 1);
    let (place, file) = (dir.path().display().to_string(), at("b.plimsoll"));
    let told = run(&["bundle", "quickstart", "--results", &place, "-o", &file]).expect(0, &[]).out;
    assert!(
        told.contains("password: now ***, ") && told.contains("w.sql\" is as it was run but for"),
        "{told}"
    );
    verified(&file, 0);
    let members = store::bundle::unpack(&std::fs::read(&file).unwrap(), &Default::default()).unwrap();
    assert!(members.iter().any(|(name, _)| name.starts_with("logs/")));
    for (name, bytes) in members {
        assert!(!bytes.windows(6).any(|window| window == b"geheim"), "{name}");
    }
}

/// Runs a command as somebody on a machine of a name that is found again. Where the system does not let us name one, only
/// the person's names are looked for.
fn on_her_machine(home: &str, args: &[&str]) {
    let named = ["--uts", "sh", "-c", "hostname ada-box-7 && exec \"$@\"", "sh"];
    let may_name =
        Command::new("unshare").args(named).arg("true").output().is_ok_and(|it| it.status.success());
    let program = plimsoll();
    let mut command = match may_name {
        true => {
            let mut command = Command::new("unshare");
            command.args(named).arg(program.get_program());
            command
        }
        false => {
            testkit::not_tested("that a machine's name stays out of its bundles", "unshare --uts is refused");
            program
        }
    };
    let done = command.args(args).env("HOME", home).env("USER", "ada-l").output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// No byte of any member, and no byte of the results' tables unpacked, has one of her names.
fn nothing_tells_who_and_where(file: &str, home: &Path) {
    let bytes = std::fs::read(file).unwrap();
    let members = store::bundle::unpack(&bytes, &Default::default()).unwrap();
    let home = home.join("home-of-ada").display().to_string();
    for (member, bytes) in &members {
        for name in ["ada-box-7", "ada-l", "home-of-ada", &home] {
            let is_there = bytes.windows(name.len()).any(|window| window == name.as_bytes());
            assert!(!is_there, "{name} in {member}");
        }
    }
    let manifest = store::bundle::Manifest::check(&members).unwrap();
    let told: Vec<&str> = manifest.left_out.iter().map(|left| &*left.what).collect();
    assert!(["home directory", "user name"].iter().all(|what| told.contains(what)), "{told:?}");
}

#[test]
fn a_real_study_is_sealed_and_measured_again() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("home-of-ada").join(name).display().to_string();
    std::fs::create_dir(at("")).unwrap();
    let study = at("tiny.toml");
    let text = "title = \"tiny\" # by ada-l, on ada-box-7\nquestion = \"Does it run?\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\n\
                workload = \"oltp_point_select\"\n[options]\ntable_size = 1000\n[load]\nwarmup = \"100ms\"\n\
                duration = \"1s\"\nblocks = 3\ngates = \"warn\"\n[compare]\naxis = \"server\"\nbase = \"mariadb\"\n\
                metrics = [\"tps\"]\n";
    std::fs::write(&study, text).unwrap();
    on_her_machine(&at(""), &["run", &study, "--results", &at("r")]);
    on_her_machine(&at(""), &["bundle", &study, "--results", &at("r"), "-o", &at("t.plimsoll")]);
    nothing_tells_who_and_where(&at("t.plimsoll"), dir.path());
    let found = verified(&at("t.plimsoll"), 0);
    assert_eq!(found["different"], serde_json::json!([]));
    let rerun = ["rerun", &at("t.plimsoll"), "--results", &at("again"), "--json", "-"];
    let claims_of = |more: &[&str], words: &[&str]| -> Vec<Value> {
        let done = run(&[&rerun[..], more].concat()).expect(0, words);
        serde_json::from_str::<Value>(&done.out).unwrap()["claims"].as_array().unwrap().clone()
    };
    // A part of it, and no time: neither decides anything, and the same command goes on.
    for (more, words) in [
        (["--only", "block=1"], &[][..]),
        (["--budget", "1ms"], &["the time that --budget gave is over; the same command goes on"][..]),
    ] {
        let claims = claims_of(&more, words);
        let is_open = |claim: &Value| claim["verdict"] == "undecided" && claim["between"].is_null();
        assert!(!claims.is_empty() && claims.iter().all(is_open), "{more:?}: {claims:?}");
    }
    let store = store::Store::open_read_only(Path::new(&at("again"))).unwrap();
    let runs = |store: &store::Store| store.run_heads(store.studies().unwrap()[0].id).unwrap();
    let blocks: Vec<u32> = runs(&store).iter().map(|head| head.start.block).collect();
    assert_eq!(blocks, [1, 1]);
    let claims = claims_of(&[], &["2 of them recorded before"]);
    for claim in &claims {
        assert!(claim["here"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{claim}");
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(["reproduced", "not reproduced", "undecided"].contains(&verdict), "{claim}");
    }
    // Nothing is left to be made: the same command says the same, also to people.
    assert_eq!(claims_of(&[], &[]), claims);
    let told = run(&rerun[..4]).expect(0, &[]).out;
    assert!(told.contains(", here \u{d7}") && told.contains(", here / published \u{d7}"), "{told}");
    let html = std::fs::read_to_string(at("again/tiny.html")).unwrap();
    assert!(html.contains(">Measured again</h2>") && html.contains("<th>Verdict</th>"));
}
