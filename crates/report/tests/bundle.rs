//! Bundles: sealed, verified, changed and found out.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{Noise, full};
use hdrhistogram::Histogram;
use report::bundle::{Bundle, Bundling, Claim, Opened, Proof, Signature, bundle, claims, listing, verify};
use report::history::{History, HistoryQuery};
use report::{Report, Selection};
use stats::Replication;
use store::bundle::{
    BundleError, CALIBRATIONS, FIGURES, Limits, MANIFEST, Manifest, Member, NamedWorkloads, Private, RESULTS,
    SIGNATURE, content_sha256, pack, unpack,
};
use store::testing::{connection, in_memory};
use store::{Calibrations, ChangeDecision, ChangeState, LineStart, PackedHistogram, Store};

fn measured() -> Store {
    let directory = tempfile::tempdir().unwrap();
    in_memory(&common::ladder(directory.path(), 5, 3)).unwrap()
}

fn sealed(store: &Store, bundling: Bundling<'_>) -> Bundle {
    let study = store.studies().unwrap()[0].id;
    bundle(store, study, bundling).unwrap()
}

fn proof(bytes: &[u8]) -> Proof {
    verify(bytes, &Limits::default())
}

/// The members with one changed, sealed again with a manifest that fits: what somebody does who knows the format.
fn forged(members: &[Member], name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut members = members.to_vec();
    change(&mut members.iter_mut().find(|(known, _)| known == name).unwrap().1);
    let old = Manifest::check(&unpack(&pack(&members).unwrap(), &Limits::default()).unwrap());
    assert!(old.is_err(), "the old manifest must not fit any more");
    let mut manifest: Manifest = serde_json::from_slice(&members[0].1).unwrap();
    manifest = Manifest::new(&manifest.study, manifest.author, &members[1..], manifest.left_out);
    members[0].1 = manifest.bytes();
    pack(&members).unwrap()
}

#[test]
fn a_bundle_verifies_and_the_same_store_gives_the_same_bytes() {
    let store = measured();
    let one = sealed(&store, Bundling::default());
    assert_eq!(one.bytes, sealed(&store, Bundling::default()).bytes);
    let proof = proof(&one.bytes);
    assert_eq!((proof.refused.as_deref(), &proof.different[..]), (None, &[][..]));
    assert!(proof.is_verified() && proof.figures > 1000, "{} figures", proof.figures);
    assert_eq!(proof.signature, Signature::None);
}

#[test]
fn a_thousand_edits_of_single_bytes_are_found() {
    let bytes = sealed(&measured(), Bundling::default()).bytes;
    let mut noise = Noise::new(7);
    let mut draw = |below: usize| ((noise.around(1.0).abs() * 1e9) as usize) % below;
    for edit in 0..1000 {
        let (at, by) = (draw(bytes.len()), 1 + draw(255) as u8);
        let mut edited = bytes.clone();
        edited[at] = edited[at].wrapping_add(by);
        assert!(!proof(&edited).is_verified(), "edit {edit}: byte {at} by {by}");
    }
}

/// As a forger does it who seals anew: each figure by itself.
#[test]
fn every_figure_that_is_changed_and_sealed_anew_is_found() {
    let bytes = sealed(&measured(), Bundling::default()).bytes;
    let members = unpack(&bytes, &Limits::default()).unwrap();
    let text =
        String::from_utf8(members.iter().find(|(name, _)| name == FIGURES).unwrap().1.clone()).unwrap();
    let digits: Vec<usize> =
        text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(at, _)| at).collect();
    let mut noise = Noise::new(11);
    for _ in 0..10 {
        let at = digits[(noise.around(1.0).abs() * 1e9) as usize % digits.len()];
        let forged =
            forged(&members, FIGURES, |bytes| bytes[at] = if bytes[at] == b'9' { b'8' } else { b'9' });
        let proof = proof(&forged);
        assert!(!proof.is_verified(), "byte {at} of the figures");
    }
}

/// What proves nothing is not proved.
#[test]
fn figures_that_are_none_or_too_many_are_refused() {
    let bytes = sealed(&measured(), Bundling::default()).bytes;
    let members = unpack(&bytes, &Limits::default()).unwrap();
    let zeros = format!("[{}0]", "0,".repeat(10_000_000));
    let long = format!("{{\"cells\":\"{}\",\"studies\":[],\"comparisons\":[]}}", "x".repeat(5000));
    for figures in [
        "{}",
        "[]",
        r#"{"forged":"nothing of this name","studies":[],"cells":[],"comparisons":[null,null]}"#,
        &long,
        &zeros,
    ] {
        let begin = std::time::Instant::now();
        let proof = proof(&forged(&members, FIGURES, |bytes| *bytes = figures.as_bytes().to_vec()));
        assert!(!proof.is_verified(), "{:.80}", figures);
        assert!(proof.json().to_string().len() < 20_000, "{:.80}", figures);
        assert!(begin.elapsed().as_secs() < 20, "{:.80}", figures);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn totals_that_are_not_those_of_their_seconds_are_found() {
    let store = measured();
    let mut fast = Histogram::<u64>::new_with_bounds(1, 36_000_000_000, 3).unwrap();
    fast.record_n(5, 100_000).unwrap();
    let fast = PackedHistogram::of(&fast);
    for (what, sql) in [
        ("committed", "UPDATE step SET committed = committed * 2 WHERE run_id = 1"),
        ("length", "UPDATE step SET duration_s = duration_s / 2 WHERE run_id = 1"),
        ("response times", "UPDATE step SET response = ?1 WHERE run_id = 1"),
        // With their seconds: then what was timed tells.
        (
            "response times of second 1",
            "UPDATE step SET committed = committed * 2 WHERE run_id = 1;
             UPDATE interval SET committed = committed * 2 WHERE step_id IN (SELECT id FROM step WHERE run_id = 1)",
        ),
        (
            "length",
            "UPDATE step SET duration_s = duration_s / 2; UPDATE interval SET duration_s = duration_s / 2",
        ),
        // Of a longer level the throughput is lower.
        (
            "length of second 1",
            "UPDATE step SET duration_s = duration_s * 2; UPDATE interval SET duration_s = duration_s * 2",
        ),
        (
            "length of second",
            "UPDATE step SET duration_s = duration_s + 5 WHERE run_id = 1;
             UPDATE interval SET duration_s = duration_s + 5
             WHERE second = 2 AND step_id IN (SELECT id FROM step WHERE run_id = 1)",
        ),
        (
            "number of a second",
            "UPDATE interval SET second = second + 5 WHERE second > 1",
        ),
        ("length", "UPDATE step SET duration_s = 9e999; UPDATE interval SET duration_s = 9e999"),
        ("statements of its classes", "DELETE FROM statement WHERE step_id IN (SELECT id FROM step WHERE run_id = 1)"),
    ] {
        let forged = in_memory(&store).unwrap();
        let sql = sql.replace("?1", &format!("x'{}'", hex(fast.bytes())));
        connection(&forged).execute_batch(&sql).unwrap();
        // Figures and manifest are made of the forged results: only the seconds tell.
        let proof = proof(&sealed(&forged, Bundling::default()).bytes);
        assert!(!proof.is_verified(), "{what}");
        assert!(proof.different[0].where_.starts_with("run r1, "), "{what}: {:?}", proof.different[0]);
        assert!(proof.different.iter().any(|d| d.where_.contains(what)), "{what}: {:?}", proof.different);
    }
}

/// Slices that others disturbed are recorded and no part of the figures.
#[test]
fn slices_that_were_left_out_are_not_missed() {
    let store = measured();
    let sql = connection(&store);
    let committed: i64 =
        sql.query_row("SELECT committed FROM step WHERE run_id = 1", [], |row| row.get(0)).unwrap();
    let committed = committed.unsigned_abs();
    let slice = |at_s: f64, committed: u64, is_counted: bool| store::Slice {
        at_s,
        duration_s: 1.0,
        committed,
        taken_share: None,
        is_counted,
    };
    for (is_counted, is_sound) in [(false, true), (true, false)] {
        let slices = vec![slice(1.0, committed, true), slice(2.0, 7, is_counted)];
        let duel = serde_json::to_string(&store::Duel { sides: 2, side: 0, slices }).unwrap();
        sql.execute("UPDATE run SET duel = ?1 WHERE id = 1", [duel]).unwrap();
        let proof = proof(&sealed(&store, Bundling::default()).bytes);
        assert_eq!(proof.is_verified(), is_sound, "{:?}", proof.different);
    }
}

#[test]
fn results_with_anything_else_in_them_are_refused() {
    let store = measured();
    let members = unpack(&sealed(&store, Bundling::default()).bytes, &Limits::default()).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let forged = forged(&members, RESULTS, change);
        proof(&forged).refused.expect("a refusal")
    };
    assert!(refused(&|bytes| *bytes = b"no database".to_vec()).contains("no SQLite file"));
    assert!(refused(&|bytes| bytes.truncate(8192)).starts_with("its results"));
    // The schema's number, in the head of the file.
    assert!(refused(&|bytes| bytes[60..64].copy_from_slice(&99_u32.to_be_bytes())).contains("knows up to"));
    for sql in ["CREATE VIEW v AS SELECT 1", "CREATE TRIGGER t AFTER INSERT ON run BEGIN SELECT 1; END"] {
        let with = in_memory(&store).unwrap();
        connection(&with).execute_batch(sql).unwrap();
        let bytes = connection(&with).serialize("main").unwrap().to_vec();
        assert!(refused(&|member| member.clone_from(&bytes)).contains("other tables"), "{sql}");
    }
}

#[test]
fn a_manifest_that_is_not_as_it_is_written_is_refused() {
    let members = unpack(&sealed(&measured(), Bundling::default()).bytes, &Limits::default()).unwrap();
    let with = |text: &str| {
        let mut members = members.clone();
        members[0].1 = text.as_bytes().to_vec();
        Opened::new(&pack(&members).unwrap(), Path::new("b"), &Limits::default()).unwrap_err()
    };
    assert!(matches!(with("{\"format\": 2}"), BundleError::Newer { found: 2 }));
    let deep = format!("{{\"format\": 1, \"x\": {}", "[".repeat(100_000));
    assert!(with(&deep).to_string().contains("cannot be read"));
    let spaced = String::from_utf8(members[0].1.clone()).unwrap().replacen('\n', "\n ", 1);
    assert!(with(&spaced).to_string().contains("not written as plimsoll writes it"));
    assert_eq!(members[0].0, MANIFEST);
}

#[test]
fn what_is_private_does_not_travel_and_the_figures_stay() {
    let store = measured();
    let private = Private {
        homes: vec!["/data".to_owned()],
        users: vec![],
        hosts: [("bench1".to_owned(), "host-1".to_owned())].into(),
    };
    let logs = vec![("r1.txt".to_owned(), "bench1 says: ready for connections".to_owned())];
    let bundle = sealed(&store, Bundling { private, logs, ..Bundling::default() });
    assert!(proof(&bundle.bytes).is_verified());
    for (name, bytes) in unpack(&bundle.bytes, &Limits::default()).unwrap() {
        for needle in [&b"bench1"[..], b"--datadir=/data"] {
            assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{name}");
        }
    }
    let told: Vec<&str> = bundle.manifest.left_out.iter().map(|left| &*left.what).collect();
    assert_eq!(told, ["home directory", "host name"]);
}

#[test]
fn a_slim_bundle_lacks_only_what_no_figure_comes_from() {
    let store = measured();
    let sql = "INSERT INTO interval_statement SELECT step_id, second, 0, response FROM interval";
    let seconds = connection(&store).execute(sql, []).unwrap();
    let [whole, slim] =
        [false, true].map(|is_slim| sealed(&store, Bundling { is_slim, ..Bundling::default() }));
    assert!(slim.bytes.len() < whole.bytes.len());
    let figures = |bundle: &Bundle| {
        assert!(proof(&bundle.bytes).is_verified());
        Opened::new(&bundle.bytes, Path::new("b"), &Limits::default())
            .unwrap()
            .member(FIGURES)
            .unwrap()
            .to_vec()
    };
    assert_eq!(figures(&slim), figures(&whole));
    let told =
        |bundle: &Bundle| bundle.manifest.left_out.iter().map(|it| (it.what.clone(), it.times)).collect();
    let (told_whole, told_slim): (Vec<_>, Vec<_>) = (told(&whole), told(&slim));
    assert_eq!(told_whole, []);
    assert_eq!(
        told_slim,
        [("response times of a class of statement in a second".to_owned(), seconds as u64)]
    );
}

/// What no study leads to goes with it all the same, and nothing that belongs to another study does.
#[test]
fn files_that_are_no_text_travel_as_they_are() {
    let store = measured();
    let name = "latin.smack";
    let files = [("latin.smack", b"words".to_vec()), ("words.dat", b"r\xe9d,1 password=secret".to_vec())];
    let hash = content_sha256(name, &files);
    let sql = "UPDATE study SET plan = json_set(plan, '$.workloads', json(?1))";
    connection(&store).execute(sql, [serde_json::json!({ name: hash }).to_string()]).unwrap();
    let mut workloads = NamedWorkloads::default();
    workloads.add(name, files.clone().map(|(path, bytes)| (path.to_owned(), bytes)).to_vec());
    let sealed = sealed(&store, Bundling { workloads, ..Bundling::default() });
    let proof = proof(&sealed.bytes);
    assert!(proof.is_verified() && proof.unproved.is_empty(), "{:?} {:?}", proof.different, proof.unproved);
    let opened = Opened::new(&sealed.bytes, Path::new("b"), &Limits::default()).unwrap();
    assert_eq!(opened.member("workloads/2-words.dat"), Some(&files[1].1[..]));
    let told = opened.manifest.left_out.iter().filter(|left| left.what.contains("was not looked for in it"));
    let told: Vec<&str> = told.map(|left| left.what.as_str()).collect();
    assert!(told.len() == 1 && told[0].starts_with("workloads/2-words.dat"), "{told:?}");
}

#[test]
fn decisions_searches_and_calibrations_travel() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = common::nights(directory.path());
    let query = HistoryQuery { metrics: vec!["tps".to_owned()], ..HistoryQuery::default() };
    let history = History::load(&[directory.path().to_owned()], &query).unwrap();
    let series = &history.series[0];
    let decided = |series: &str| ChangeDecision {
        series: series.to_owned(),
        at_ms: 5,
        state: ChangeState::Accepted,
        why: "bench1 has a new disk".to_owned(),
        decided_at_ms: 9,
    };
    store.add_change_decision(&decided(&series.id)).unwrap();
    store.add_change_decision(&decided("of another study")).unwrap();
    let command = "plimsoll line oltp_read_write".to_owned();
    let line = LineStart { fingerprint: "x".to_owned(), command, started_at_ms: 7, seed: 3 };
    store.begin_line(&line).unwrap();
    let made = Calibrations::new("mariadb@11.4.5", "identity", "oltp_read_write", 8, 2.2);
    let calibrations = BTreeMap::from([("fingerprint".to_owned(), vec![made])]);
    let hosts = [("bench1".to_owned(), "host-1".to_owned())].into();
    let private = Private { hosts, ..Private::default() };
    let bundling = Bundling { private, calibrations: calibrations.clone(), ..Bundling::default() };
    let bytes = sealed(&store, bundling).bytes;
    assert!(proof(&bytes).is_verified());
    let opened = Opened::new(&bytes, Path::new("b"), &Limits::default()).unwrap();
    let why = "host-1 has a new disk".to_owned();
    assert_eq!(opened.results.change_decisions().unwrap(), [ChangeDecision { why, ..decided(&series.id) }]);
    assert_eq!(opened.results.line_searches().unwrap()[0].start, line);
    assert_eq!(opened.calibrations().unwrap(), calibrations);
    let path = directory.path().join("nights.plimsoll");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(History::load(&[path], &query).unwrap().series[0].points.len(), 1, "histories take bundles");
    let forged =
        forged(&unpack(&bytes, &Limits::default()).unwrap(), CALIBRATIONS, |bytes| bytes.truncate(9));
    assert!(proof(&forged).refused.unwrap().contains("calibrations.json cannot be read"));
}

#[test]
fn reports_take_bundles_where_they_take_results_files() {
    let store = measured();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ladder.plimsoll");
    std::fs::write(&path, sealed(&store, Bundling::default()).bytes).unwrap();
    let of_bundle = Report::load(&[path], &Selection::Latest).unwrap();
    let of_store = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let comparisons = |report: &Report| report::json(report)["comparisons"].clone();
    assert_eq!(comparisons(&of_bundle), comparisons(&of_store));
}

/// The same study elsewhere: alike, with another outcome, with one that swings from block to block, and with a block alone.
#[test]
fn claims_are_reproduced_or_not_or_left_open() {
    let report = |store: &Store| Report::of_stores(&[store], &Selection::Latest).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = in_memory(&common::ladder(directory.path(), 12, 3)).unwrap();
    let published = report(&store);
    let again = |sql: &str| {
        let here = in_memory(&store).unwrap();
        connection(&here).execute_batch(sql).unwrap();
        report(&here)
    };
    let of_postgres = "WHERE run_id IN (SELECT run.id FROM run JOIN cell ON cell.id = run.cell_id WHERE cell.key LIKE \
                       '%postgres%')";
    let alike = again("");
    let other = again(&format!("UPDATE step SET committed = committed * 3 {of_postgres}"));
    let swings = format!(
        "UPDATE step SET committed = CAST(committed * (SELECT CASE block % 2 WHEN 0 THEN 0.8 ELSE 1.25 END FROM run WHERE \
         run.id = step.run_id) AS INTEGER) {of_postgres}"
    );
    let directory = tempfile::tempdir().unwrap();
    let few = report(&common::ladder(directory.path(), 1, 3));
    for (here, verdict, has_interval) in [
        (&alike, Replication::Reproduced, true),
        (&other, Replication::NotReproduced, true),
        (&again(&swings), Replication::Undecided, true),
        (&few, Replication::Undecided, false),
    ] {
        let claims = claims(&published, here);
        let of_tps = claims.iter().find(|claim| claim.metric == "tps" && claim.verdict == verdict);
        let claim = of_tps.unwrap_or_else(|| panic!("no claim is {}: {claims:?}", verdict.word()));
        assert_eq!((claim.here.is_some(), claim.between.is_some()), (has_interval, has_interval));
        let mut both = alike.clone();
        both.studies[0].claims = vec![claim.clone()];
        let html = report::html(&both).unwrap();
        // All formats share the sections that were made for the first of them.
        both.studies[0].claims.clear();
        assert!(report::markdown(&both).contains("## Measured again"));
        assert!(
            html.contains(">Measured again</h2>") && html.contains(&format!("<td>{}</td>", verdict.word()))
        );
        if let Some(between) = &claim.between {
            assert!(html.contains(&Claim::span_text(between)), "{between:?}");
            assert!(report::markdown(&both).contains(&Claim::span_text(&claim.published)));
        }
    }
}

/// Bundles that earlier versions have sealed, as they were, and one of this version. A file of this folder is never changed or
/// taken away: from a release on, what it has must verify for ever.
fn stored() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

#[test]
fn bundles_of_all_versions_verify() {
    assert!(stored().len() > 1);
    for (path, bytes) in stored() {
        let proof = proof(&bytes);
        assert_eq!((proof.refused.as_deref(), &proof.different[..]), (None, &[][..]), "{}", path.display());
        assert!(proof.figures > 100, "{}", path.display());
    }
}

/// The first bundle of a schema is kept when the schema is made: `STORE_BUNDLE=1` does it.
#[test]
fn the_schema_of_today_has_a_stored_bundle_with_everything_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = full::results(directory.path());
    let schema: u32 = connection(&store).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let name = format!("{}-schema-{schema}.plimsoll", env!("CARGO_PKG_VERSION"));
    if std::env::var_os("STORE_BUNDLE").is_some() {
        let key = full::key(directory.path());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles").join(&name);
        std::fs::File::create_new(path)
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, &sealed(&store, full::bundling(Some(&key))).bytes)
            })
            .unwrap();
    }
    let known = stored().into_iter().find(|(path, _)| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(&format!("-schema-{schema}.plimsoll")))
    });
    let (_, bytes) = known
        .unwrap_or_else(|| panic!("tests/bundles has no {name}: STORE_BUNDLE=1 makes it, and git adds it"));
    let proof = proof(&bytes);
    assert!(proof.is_verified(), "{:?} {:?}", proof.refused, proof.different);
    // Its search for a line is made up, and has no probe in which it was held.
    let of_lines = ["what the probes of one search for lines saw", "that the lines of search 1 were held"];
    assert_eq!(proof.unproved.len(), of_lines.len(), "{:?}", proof.unproved);
    assert!(of_lines.iter().zip(&proof.unproved).all(|(text, told)| told.starts_with(text)));
    assert!(matches!(&proof.signature, Signature::Good(_)));

    let opened = Opened::new(&bytes, Path::new("b"), &Limits::default()).unwrap();
    let record = &opened.results.studies().unwrap()[0];
    assert_eq!(record.ended_at_ms, Some(1_700_000_000_000));
    let study = record.id;
    let ends: Vec<_> = opened
        .results
        .run_heads(study)
        .unwrap()
        .iter()
        .filter_map(|head| opened.results.run(head.id).unwrap().end)
        .collect();
    assert!(
        ends.iter().any(|end| end.duel.is_some()) && ends.iter().any(|end| !end.interventions.is_empty())
    );
    assert!(!opened.results.line_searches().unwrap().is_empty());
    assert!(opened.member("logs/r1.txt").is_some() && opened.workloads().unwrap()[0].files.len() == 3);
    let (listing, _) = listing(&opened).unwrap();
    assert!(!listing.audits.is_empty() && !listing.hosts[0].calibrations.is_empty());
    assert_eq!(listing.author.keywords, ["oltp", "upgrade"]);
    assert_eq!(listing.hosts[0].facts[store::INSTANCE_TYPE], "m7i.large");
}

/// What a listing says of a machine is what `plimsoll calibrate` says, and where the data lay.
#[test]
fn a_listing_has_calibrations_storage_settings_and_audits() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = sealed(&full::results(directory.path()), full::bundling(None)).bytes;
    let opened = Opened::new(&bytes, Path::new("b"), &Limits::default()).unwrap();
    let (listing, report) = listing(&opened).unwrap();
    let host = &listing.hosts[0];
    let html = report::html(&report).unwrap();
    assert!(html.contains("<dt>instance type</dt><dd>m7i.large</dd>") && html.contains("<dt>price</dt>"));
    let found = report::calibration::summary(&full::calibrations());
    let shown = &host.calibrations[0];
    assert_eq!(shown.resolvable["10m"], found.resolvable[1]);
    assert!(shown.resolvable["5m"] > shown.resolvable["30m"] && shown.resolvable["30m"].is_some());
    assert_eq!((shown.studies, shown.false_verdicts, shown.lives), (2, 0, 20));
    assert_eq!(shown.spread_life, found.ratios.map(|ratios| ratios.between.sqrt()));
    assert_eq!((shown.wakeup_p50_us, &*shown.calibrated_at), (Some(30.0), "2026-11-18T11:06:40Z"));
    let disk = host.storage.iter().find(|found| found.place == "disk").unwrap();
    assert_eq!((&*disk.facts["filesystem"], &*disk.facts["mount options"]), ("ext4", "rw,relatime"));
    let cell = listing.cells.iter().find(|cell| cell.server == "mariadb@11.4.5").unwrap();
    assert_eq!(cell.settings["innodb_flush_log_at_trx_commit"], "1");
    assert!(!cell.settings.contains_key("max_connections"), "nobody asked for it");
    assert!(cell.durability_found.starts_with("process crash: consistent"), "{}", cell.durability_found);
    assert_eq!(listing.audits[0]["settings"], cell.deciding.as_str());
    assert_eq!(listing.audits[0]["build"], cell.build.as_str());
}

/// A signature of another manifest, or by nobody.
#[test]
fn a_bad_signature_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (measured(), full::key(directory.path()));
    let members =
        |bundling: Bundling<'_>| unpack(&sealed(&store, bundling).bytes, &Limits::default()).unwrap();
    let signed = members(Bundling { key: Some(&key), ..Bundling::default() });
    let logs = vec![("r1.txt".to_owned(), "another".to_owned())];
    let other = members(Bundling { key: Some(&key), logs, ..Bundling::default() });
    assert_eq!((&*signed[1].0, &*other[1].0), (SIGNATURE, SIGNATURE));
    for signature in [other[1].1.clone(), b"no signature".to_vec(), Vec::new()] {
        let mut with = signed.clone();
        with[1].1 = signature;
        let proof = proof(&pack(&with).unwrap());
        assert_eq!(proof.signature, Signature::Bad);
        assert!(!proof.is_verified() && proof.refused.unwrap().contains("signature is not of this manifest"));
    }
}
