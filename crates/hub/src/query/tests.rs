use super::*;
use crate::accept::{Made, hide_in, list_into, refuse_replayed};
use crate::kept::changes;
use crate::schema;

#[test]
fn a_claim_that_takes_longer_waits_for_a_worker_with_more_time() {
    let mut sql = hub(1);
    let id = made(0).id;
    remeasure::ask(&mut sql, &id, remeasure::By::Policy, 1).unwrap();
    let report = |job: &remeasure::Job, needs_s: u32| -> remeasure::Report {
        let host = json!({"fingerprint": "f", "cpu_model": "c", "cpus": 2, "memory_bytes": 1, "kernel": "k", "os": "o",
                          "arch": "a"});
        let said = json!({"lease": job.lease, "end": "refused", "reason": "short", "needs_budget_s": needs_s,
                          "host": host, "plimsoll": "0"});
        serde_json::from_value(said).unwrap()
    };
    let job = remeasure::lease(&mut sql, "short", 1200, 2).unwrap().unwrap();
    remeasure::end(&mut sql, &job.id, &report(&job, 2400), 3).unwrap();
    let found = &remeasure::of_bundle(&mut sql, &id).unwrap()[0];
    assert_eq!((&found["state"], &found["says"]), (&"waiting".into(), &"waiting".into()), "{found}");
    assert!(found["reason"].as_str().unwrap().contains("2400 s"), "{found}");
    assert_eq!(remeasure::lease(&mut sql, "short", 1200, 4).unwrap(), None);
    // One that has the time and refuses all the same is the last.
    let job = remeasure::lease(&mut sql, "long", 2400, 5).unwrap().unwrap();
    remeasure::end(&mut sql, &job.id, &report(&job, 2400), 6).unwrap();
    assert_eq!(remeasure::of_bundle(&mut sql, &id).unwrap()[0]["state"], "refused");
    assert_eq!(remeasure::lease(&mut sql, "long", 9000, 7).unwrap(), None);
}

/// The `at`-th bundle of one study, each on a machine of its own but for the points, which are one machine's.
fn made(at: usize) -> Made {
    let span = json!({"median": 100.0, "low": 90.0, "high": 110.0, "n": 5, "level": 0.9});
    let key =
        json!({"server": format!("mariadb@10.11.{at}"), "study": "tiny", "workload": "oltp", "sessions": 1});
    let listing = json!({
        "study": "tiny", "title": format!("take {at}"), "question": "q", "answer": ["a 100% answer"], "signer": null,
        "author": {"name": "Ada", "contact": "", "licence": "", "disclaimer": "", "keywords": []},
        "plimsoll": "0", "shape": "s", "measured_at_ms": at, "is_quick": false, "runs": [1, 1], "left_out": [],
        "hosts": [{"fingerprint": format!("f{at}"), "name": "h", "cpu_model": "c", "cpus": 2, "memory_bytes": 1,
                   "kernel": "k", "os": "o", "arch": "a", "facts": {}, "calibrations": []}],
        "cells": [{"key": key, "server": format!("mariadb@10.11.{at}"), "workload": "oltp", "sessions": 1,
                   "host": format!("f{at}"), "durability": "full", "engine": "InnoDB", "tps": span, "p95_ms": null,
                   "p99_ms": null, "settings_asked": {}}],
        "claims": [{"id": "c1", "metric": "tps", "text": "b against a", "base": key, "other": key, "verdict": "faster",
                    "ratio": 2.0, "low": 1.98, "high": 2.02, "margin": 0.05, "is_primary": true,
                    "host": format!("f{at}")}],
        "audits": [],
        "points": [{"key": key, "boundary": "m", "record": [0, 1], "metric": "tps",
                    "point": {"build": format!("mariadb@10.11.{at}"), "identity": "", "at_ms": at, "value": 100.0,
                              "low": 90.0, "high": 110.0, "runs": ["r1"], "file": "", "host": "h"}}],
    });
    let id = format!("{at:064x}");
    let listing = serde_json::from_value(listing).unwrap();
    Made { id, received_ms: at as i64, token: format!("token {at}"), listing }
}

fn hub(bundles: usize) -> Sql {
    hub_of((0..bundles).map(made))
}

fn hub_of(made: impl Iterator<Item = Made>) -> Sql {
    let mut sql = Sql::Sqlite(rusqlite::Connection::open_in_memory().unwrap());
    schema::migrate(&mut sql).unwrap();
    list_into(&mut sql, made).unwrap();
    sql
}

/// How many reproduced, contradicted and left undecided what the first of these measured: submitter, key, machine,
/// verdict, ratio.
fn counted(all: &[(&str, Option<&str>, &str, &str, f64)]) -> [i64; 3] {
    let each = all.iter().enumerate().map(|(at, (token, signer, host, verdict, ratio))| {
        let mut one = made(at);
        one.token = (*token).to_owned();
        one.listing.signer = signer.map(str::to_owned);
        let claim = &mut one.listing.claims[0];
        (claim.host, claim.verdict) = ((*host).to_owned(), (*verdict).to_owned());
        (claim.ratio, claim.low, claim.high) = (Some(*ratio), Some(ratio * 0.99), Some(ratio * 1.01));
        one
    });
    let found = claim(&mut hub_of(each), "c1", Part::Page(1)).unwrap();
    ["reproduced", "contradicted", "undecided"].map(|name| found["standing"][name].as_i64().unwrap())
}

#[test]
fn a_claim_is_proven_by_others_on_machines_of_their_own() {
    let of = |submitters: &[&'static str], hosts: &[&'static str]| {
        let all: Vec<_> =
            submitters.iter().zip(hosts).map(|(by, host)| (*by, None, *host, "faster", 2.0)).collect();
        counted(&all)[0]
    };
    assert_eq!(of(&["ada", "ada", "ada"], &["a", "b", "c"]), 0, "machines of one submitter");
    assert_eq!(of(&["ada", "bob", "bob"], &["a", "b", "c"]), 1, "each submitter once");
    assert_eq!(of(&["ada", "bob", "eve"], &["a", "b", "b"]), 1, "each machine once");
    assert_eq!(of(&["ada", "bob", "eve"], &["a", "a", "a"]), 0, "on the first one's machine");
    assert_eq!(of(&["ada", "bob", "eve", "bob"], &["a", "b", "b", "c"]), 2);
    let signed = [("ada", Some("k"), "a"), ("bob", Some("k"), "b"), ("eve", None, "c"), ("bob", None, "d")];
    let signed = signed.map(|(token, key, host)| (token, key, host, "faster", 2.0));
    assert_eq!(counted(&signed)[0], 1, "one key is one submitter, whatever its tokens");
}

#[test]
fn what_has_no_verdict_proves_nothing() {
    let of = |verdicts: [&'static str; 3]| {
        let by = [("ada", "a"), ("bob", "b"), ("eve", "c")];
        let all: Vec<_> =
            by.iter().zip(verdicts).map(|((by, host), verdict)| (*by, None, *host, verdict, 2.0)).collect();
        counted(&all)
    };
    assert_eq!(of(["faster", "faster", "faster"]), [2, 0, 0]);
    assert_eq!(of(["faster", "undecided", "faster"]), [1, 0, 1]);
    assert_eq!(of(["undecided", "undecided", "undecided"]), [0, 0, 2]);
    // Whoever came first without a verdict is not what others are held against.
    assert_eq!(of(["undecided", "faster", "faster"]), [1, 0, 1]);
}

#[test]
fn runs_that_were_hidden_are_not_taken_again_from_the_same_token() {
    let mut sql = hub_of((0..2).map(|at| {
        let mut one = made(at);
        let mark = |run: usize| json!({"run": format!("run {run}"), "host": format!("f{at}")});
        one.listing.marks = serde_json::from_value(json!([mark(at), mark(at + 10)])).unwrap();
        one
    }));
    let marks = |host: &str| {
        serde_json::from_value::<Vec<_>>(
            json!([{"run": "run 1", "host": host}, {"run": "new", "host": host}]),
        )
        .unwrap()
    };
    assert!(refuse_replayed(&mut sql, "token 1", &marks("f1")).is_ok(), "a study that has grown");
    hide_in(&mut sql, &made(1).id, "wrong").unwrap();
    for host in ["f1", "another"] {
        let found = refuse_replayed(&mut sql, "token 1", &marks(host));
        assert!(matches!(found, Err(Error::Hidden(_))), "{found:?}");
        // Whoever measured them may have been robbed by whom a moderator hid.
        assert!(refuse_replayed(&mut sql, "token 7", &marks(host)).is_ok());
    }
}

#[test]
fn machines_reproduce_a_claim_and_each_counts_once() {
    let standing = |hosts: &[&str], ratios: &[f64]| {
        let each = hosts.iter().zip(ratios).enumerate().map(|(at, (host, ratio))| {
            let mut one = made(at);
            one.token = (*host).to_owned();
            let claim = &mut one.listing.claims[0];
            claim.host = (*host).to_owned();
            (claim.ratio, claim.low, claim.high) = (Some(*ratio), Some(ratio * 0.99), Some(ratio * 1.01));
            one
        });
        let found = claim(&mut hub_of(each), "c1", Part::Page(1)).unwrap();
        ["hosts", "reproduced", "contradicted", "undecided"]
            .map(|name| found["standing"][name].as_i64().unwrap())
    };
    assert_eq!(standing(&["a", "b", "b", "b"], &[2.0; 4]), [2, 1, 0, 0], "three times by one machine");
    assert_eq!(standing(&["a", "a", "b"], &[2.0, 9.0, 2.0]), [2, 1, 0, 0], "its own machine says nothing");
    assert_eq!(standing(&["a", "b", "c"], &[2.0, 9.0, 2.0]), [3, 1, 1, 0]);
    assert_eq!(standing(&["a", "b", "b"], &[2.0, 9.0, 2.0]), [2, 1, 0, 0], "its newest word");
    assert_eq!(standing(&["a", "b"], &[2.0, 2.1]), [2, 0, 0, 1]);
}

/// A server's commits, measured on one machine: from the eighth on a fifth is lost.
fn commit(at: usize) -> Made {
    let mut one = made(at);
    for point in &mut one.listing.points {
        point.point.build = format!("mariadb@11.4.5+c{at:02}");
        point.key.insert("server".to_owned(), point.point.build.clone().into());
        let noise = [0.3, -0.4, 0.1, 0.5, -0.2][at % 5];
        let level = if at < 8 { 100.0 } else { 80.0 };
        (point.point.value, point.point.low, point.point.high) = (level + noise, level - 1.0, level + 1.0);
    }
    one
}

#[test]
fn a_history_over_commits_shows_the_one_that_changed_the_level() {
    let page = |sql: &mut Sql| {
        let found = history(sql, "mariadb", "tps", "", Part::Page(1)).unwrap();
        let json = found.history.json()["series"][0].clone();
        let value = crate::pages::history(&found, "mariadb", "tps", &["mariadb".to_owned()]);
        (
            json,
            crate::pages::Pages::new("", false)
                .unwrap()
                .page(crate::pages::HISTORY, "History", &value)
                .unwrap(),
        )
    };
    let (series, text) = page(&mut hub_of((0..16).map(commit)));
    assert_eq!(series["points"].as_array().unwrap().len(), 16);
    let [change] = series["changes"].as_array().unwrap().as_slice() else { panic!("{series}") };
    assert_eq!(
        (&change["last_before"], &change["first_after"], &change["state"]),
        (&"mariadb@11.4.5+c07".into(), &"mariadb@11.4.5+c08".into(), &"new".into())
    );
    assert!(
        text.contains("<td>mariadb@11.4.5+c08</td>") && text.contains("\"changes\":[[8,true]]"),
        "{text}"
    );
    // Each point of the chart leads to its row.
    let id = series["id"].as_str().unwrap();
    assert!(
        text.contains(&format!("\"id\":\"{id}\"")) && text.contains(&format!("id=\"{id}-15\"")),
        "{text}"
    );

    // What somebody decided of it travels in a bundle.
    let decided = |mut one: Made| {
        let at_ms = if one.id == made(15).id { 8 } else { return one };
        one.listing.decisions.push(ChangeDecision {
            series: series["id"].as_str().unwrap().to_owned(),
            at_ms,
            state: store::ChangeState::Accepted,
            why: "checksums <on>".to_owned(),
            decided_at_ms: 99,
        });
        one
    };
    let (series, text) = page(&mut hub_of((0..16).map(commit).map(decided)));
    assert_eq!(series["changes"][0]["state"], "accepted");
    assert!(text.contains("accepted: checksums &lt;on&gt;"), "{text}");
}

#[test]
fn long_lists_come_in_pages() {
    let mut sql = hub(120);
    let found = search(&mut sql, "TINY 100%", 3).unwrap();
    assert_eq!((found["bundles"].as_array().unwrap().len(), &found["next"]), (20, &Value::Null));
    assert_eq!(found["bundles"][19]["title"], "take 0", "the newest first");
    assert_eq!(search(&mut sql, "take 11_", 1).unwrap()["bundles"], json!([]), "_ is a letter like others");
    let first = claim(&mut sql, "c1", Part::Page(1)).unwrap();
    assert_eq!((first["measured"].as_array().unwrap().len(), &first["next"]), (50, &2.into()));
    assert_eq!(
        (&first["measured"][0]["standing"], &first["standing"]["bundles"]),
        (&"first".into(), &120.into())
    );
    let last = claim(&mut sql, "c1", Part::Page(3)).unwrap();
    assert_eq!((last["measured"].as_array().unwrap().len(), &last["next"]), (20, &Value::Null));
    let one = &last["measured"][0];
    assert_eq!((&one["standing"], &one["bundle"]["title"]), (&"reproduced".into(), &"take 100".into()));
    assert_eq!(claim(&mut sql, "c1", Part::All).unwrap()["measured"].as_array().unwrap().len(), 120);
    assert_eq!(places(&mut sql, Part::Page(1)).unwrap()["servers"].as_array().unwrap().len(), 120);
    assert_eq!(host(&mut sql, "f7", Part::Page(1)).unwrap()["bundles"][0]["title"], "take 7");
    assert_eq!(
        server(&mut sql, "mariadb@10.11.7", Part::Page(1)).unwrap()["studies"][0]["bundle"]["title"],
        "take 7"
    );
}

#[test]
fn histories_begin_with_the_flavour_that_has_most() {
    let of = |at: usize, flavor: &str, metrics: &[&str]| {
        let mut one = made(at);
        let mut point = one.listing.points.remove(0);
        point.key.insert("server".to_owned(), format!("{flavor}@1").into());
        let each = metrics.iter().map(|metric| {
            let mut point = point.clone();
            point.metric = (*metric).to_owned();
            point
        });
        one.listing.points = each.collect();
        one
    };
    // The first by its letters has one point, the second one series, the last two.
    let (few, many) = (["tps"].as_slice(), ["tps", "p95"].as_slice());
    let all = [("drizzle", few), ("mariadb", few), ("mariadb", few), ("postgres", many), ("postgres", many)];
    let mut sql = hub_of(all.iter().enumerate().map(|(at, (flavor, metrics))| of(at, flavor, metrics)));
    assert_eq!(flavors(&mut sql).unwrap(), ["postgres", "mariadb"]);
}

#[test]
fn histories_are_those_of_bundles_that_are_shown() {
    let mut sql = hub(3);
    let before = changes(&mut sql).unwrap();
    let points = |sql: &mut Sql, words: &str| -> Vec<usize> {
        let found = history(sql, "mariadb", "tps", words, Part::Page(1)).unwrap();
        found.history.series.iter().map(|series| series.points.len()).collect()
    };
    assert_eq!(points(&mut sql, ""), [3]);
    assert_eq!(points(&mut sql, "Tiny sessions"), [3]);
    assert_eq!(points(&mut sql, "other"), [0usize; 0]);
    assert_eq!(flavors(&mut sql).unwrap(), ["mariadb"]);
    let unknown = history(&mut sql, "mariadb", "foo", "", Part::Page(1));
    assert!(matches!(unknown, Err(Error::NotFound("history"))));
    hide_in(&mut sql, &made(1).id, "wrong").unwrap();
    assert_eq!(points(&mut sql, ""), [2]);
    assert_eq!(changes(&mut sql).unwrap(), before + 1);
    hide_in(&mut sql, &made(0).id, "wrong").unwrap();
    assert_eq!(points(&mut sql, ""), [0usize; 0], "one point is no series");
    assert_eq!(flavors(&mut sql).unwrap(), [""; 0], "and nothing is shown of it");
    let told = |sql: &mut Sql, flavor: &str| {
        let found = history(sql, flavor, "tps", "", Part::Page(1));
        found.map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(told(&mut sql, "oracle"), "there are no histories of \"oracle\" here: of mariadb");
    assert_eq!(told(&mut hub(0), "oracle"), "there are no histories of \"oracle\" here: of nothing yet");
}
