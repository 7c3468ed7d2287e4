//! Parts of one plan that several machines made: one report, no run lost or doubled, pairs within a node.

mod common;

use report::{Report, Selection, StudyReport};
use store::{Host, Status, Store};

/// A results file of each of these machines, with `blocks` blocks of the same plan.
fn files(dir: &std::path::Path, hosts: &[Host], blocks: u32) -> Vec<Store> {
    let file = |(at, host): (usize, &Host)| {
        let mut store = Store::open(&dir.join(&host.name)).unwrap();
        common::add_ladder(&mut store, host, blocks, 3, 100 + at as u64);
        store
    };
    hosts.iter().enumerate().map(file).collect()
}

fn nodes(names: &[&str]) -> Vec<Host> {
    names.iter().map(|name| common::host(name, "Linux 6.12")).collect()
}

fn report_of(stores: &[&Store]) -> Report {
    Report::of_stores(stores, &Selection::Latest).unwrap()
}

fn counted(study: &StudyReport) -> usize {
    study.points.iter().map(|point| study.counted(point).count()).sum()
}

#[test]
fn nodes_of_one_class_are_one_host_and_their_ratios_are_combined() {
    let dir = tempfile::tempdir().unwrap();
    let stores = files(dir.path(), &nodes(&["n1", "n2", "n3", "n4"]), 3);
    let report = report_of(&stores.iter().collect::<Vec<_>>());
    let study = &report.studies[0];
    assert_eq!((report.hosts.len(), study.points.len()), (4, 12));
    assert_eq!(study.points[0].identity["host"], "4 nodes (Example CPU @ 3.00GHz, 2 cpus, 8 GiB)");
    assert!(study.points.iter().all(|point| point.runs.len() == 12));
    let verdict = study.verdicts.iter().find(|verdict| verdict.result.n == 12).unwrap();
    assert_eq!(verdict.result.method.word(), "random effect of the node");
    let told = study.inequalities.join("\n");
    assert!(told.contains("Blocks ran on n1, n2, n3 and n4."), "{told}");
    let json = report::json(&report);
    let of_nodes = &json["comparisons"][0]["nodes"]["each"];
    assert_eq!((&of_nodes[3]["host"], &of_nodes[3]["blocks"]), (&"n4".into(), &3.into()), "{of_nodes}");
    // Each figure names its node.
    let runs = json["cells"][0]["runs"].as_array().unwrap();
    let names: std::collections::BTreeSet<&str> =
        runs.iter().map(|run| run["host"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["n1", "n2", "n3", "n4"]);
}

/// A file read twice, and a file beside the one that its runs were taken over into, give what one gives.
#[test]
fn a_run_that_two_files_have_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let stores = files(dir.path(), &nodes(&["n1", "n2", "n3"]), 2);
    let mut all = Store::open(&dir.path().join("all")).unwrap();
    let mut study = stores[0].studies().unwrap().remove(0).study;
    study.command = "the controller's".to_owned();
    let into = all.add_study(&study).unwrap();
    for store in &stores {
        let its = store.studies().unwrap()[0].id;
        all.import(into, store, its, &str::to_owned).unwrap();
    }
    let once = report_of(&stores.iter().collect::<Vec<_>>());
    let (one, two) = (&stores[0], &stores[1]);
    for doubled in [vec![one, two, one, &stores[2], two], vec![&all, one, two], vec![one, &all, two]] {
        let doubled = report_of(&doubled);
        assert_eq!(doubled.studies[0].runs.len(), once.studies[0].runs.len());
        assert_eq!(doubled.hosts.len(), 3);
    }
    // Attempts that failed on another node are superseded in the common file: it has no more that counts.
    let merged = report_of(&[&all]);
    assert_eq!(merged.studies[0].runs.len(), once.studies[0].runs.len());
    assert!(counted(&merged.studies[0]) <= counted(&once.studies[0]));
}

/// The same block on three nodes: what the common file calls a repeated block is one block, of the last node.
#[test]
fn a_repeated_block_counts_for_its_last_node_only() {
    let dir = tempfile::tempdir().unwrap();
    let stores = files(dir.path(), &nodes(&["n1", "n2"]), 5);
    let mut all = Store::open(&dir.path().join("all")).unwrap();
    let into = all.add_study(&stores[0].studies().unwrap()[0].study).unwrap();
    for store in &stores {
        all.import(into, store, store.studies().unwrap()[0].id, &str::to_owned).unwrap();
    }
    let report = report_of(&[&all]);
    let study = &report.studies[0];
    let n2 = report.hosts.iter().position(|host| host.label == "n2").unwrap();
    assert!(study.points.iter().flat_map(|point| study.counted(point)).all(|(run, _)| run.host == n2));
    let alone = report_of(&[&stores[1]]);
    assert_eq!(counted(study), counted(&alone.studies[0]));
    let ratios = |study: &StudyReport| -> Vec<Option<f64>> {
        study.verdicts.iter().map(|verdict| verdict.result.ratio).collect()
    };
    assert_eq!(ratios(study), ratios(&alone.studies[0]));
    assert!(study.runs.iter().any(|run| run.head.status == Status::Done));
}

#[test]
fn nodes_of_other_classes_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = nodes(&["n1", "n2", "big", "old"]);
    hosts[2].memory_bytes = 64 << 30;
    hosts[3].kernel = "Linux 5.10".to_owned();
    let stores = files(dir.path(), &hosts, 2);
    let report = report_of(&stores.iter().collect::<Vec<_>>());
    let study = &report.studies[0];
    assert_eq!(study.points.len(), 36);
    let names: std::collections::BTreeSet<&str> =
        study.points.iter().filter_map(|point| point.identity["host"].as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    assert_eq!(names, ["2 nodes (Example CPU @ 3.00GHz, 2 cpus, 8 GiB)", "big", "old"]);
    let one_host = |v: &report::VerdictView| {
        study.points[v.base].identity["host"] == study.points[v.other].identity["host"]
    };
    assert!(study.verdicts.iter().all(one_host));
}
