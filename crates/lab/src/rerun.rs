//! A published study measured here: the same plan with the same seeds, on the same builds.

mod sealed;
mod untrusted;
mod variables;

use std::path::Path;

use store::bundle::{Member, WorkloadFiles};
use store::{Key, Store};

use crate::clients::Hosts;
use crate::error::Error;
use crate::observe::shown;
use crate::plan::{Plan, StoredPlan, fingerprint};
use crate::study_run::Request;
use crate::workloads::Unpacked;

pub use self::sealed::{FOLDER as WORKLOADS, unpacked_before};
pub use self::untrusted::{Bounds, Refusal};

/// What of a published study is measured here, and by whose word.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Only runs whose cells have these values.
    pub only: &'a [(String, String)],
    /// Only the two cells of one comparison, as it names them.
    pub compared: Option<[&'a Key; 2]>,
    /// A stranger's: measured only where it is plain data within these bounds.
    pub untrusted: Option<Bounds>,
    /// Workloads whose files came with it, and the members of its bundle. They are code of its author's: of a stranger's
    /// none is written.
    pub workloads: &'a [WorkloadFiles],
    pub members: &'a [Member],
    /// The command line, without secrets.
    pub command: &'a str,
    pub version: &'a str,
}

/// What came of a published study before its first run.
#[derive(Debug)]
pub enum Begun {
    Ready(Box<Request>),
    /// It is a stranger's and asks for what strangers do not get. Nothing was opened, fetched or written.
    Refused(Vec<Refusal>),
}

/// Records a published study as one that is begun here and not yet measured, so that [`crate::study_run::run_study`] goes
/// on with it: order, seeds and builds are those of its stored plan. A rerun that was begun before goes on.
///
/// # Errors
/// The study's name names no file, its text cannot be read by this version, or nothing can be written to `results`.
pub fn begin(published: &store::Study, results: &Path, asked: &Asked<'_>) -> Result<Begun, Error> {
    let name = &published.name;
    if !store::is_file_name(name) {
        return Err(Error::Usage(format!(
            "the study is called {name:?}; its report and logs are named after it, and this names no file within the results \
             directory: ask its author for a bundle under another name"
        )));
    }
    if asked.untrusted.is_some() {
        let refused = untrusted::files_named(&published.file_text)?;
        if !refused.is_empty() {
            return Ok(Begun::Refused(refused));
        }
    }
    let path = format!("{name}.toml");
    let unpacked = match asked.untrusted {
        Some(_) => Unpacked::new(),
        None => sealed::unpack(asked.workloads, asked.members, results, name)?,
    };
    let mut study = crate::study::parse_with(Path::new(&path), &published.file_text, &unpacked)
        .map_err(|problems| Error::Study(Box::new(problems)))?;
    // It is that of the published machine.
    study.price = None;
    if asked.untrusted.is_none() {
        crate::study::expand(&mut study)?;
    }
    let mut body = study.body(published.is_quick);
    body.load.blocks = published.blocks.min(body.load.blocks);
    if let Some(bounds) = &asked.untrusted {
        let refused = untrusted::refusals(&study, &body, bounds);
        if !refused.is_empty() {
            return Ok(Begun::Refused(refused));
        }
    }
    let mut stored: StoredPlan = serde_json::from_value(published.plan.clone())
        .map_err(|error| Error::Usage(format!("the plan in the bundle cannot be read ({error})")))?;
    if stored.servers.len() != body.axes.pinned_servers().len() {
        return Err(Error::Usage("the plan in the bundle has other servers than its study".to_owned()));
    }
    // A version that orders runs in another way makes them in its own order.
    let own = Plan::new(&body, published.is_quick, stored.seed, stored.servers.clone());
    let only = [asked.only, &only_compared(&own, asked.compared)].concat();
    sealed::agree(&own, &mut stored, asked.workloads)?;
    let own = own.stored();
    let is_same_order = own.begins_with(&stored);
    let plan = if is_same_order { stored } else { own };
    let row = store::Study {
        plan: serde_json::to_value(&plan).map_err(|error| Error::Run(error.to_string()))?,
        file_path: path,
        // What was left out of the text on its way may be part of what the study means.
        fingerprint: fingerprint(&body, published.is_quick),
        plimsoll_version: asked.version.to_owned(),
        command: asked.command.to_owned(),
        created_at_ms: load::time::unix_ms(),
        ..published.clone()
    };
    let mut store = Store::open(results)?;
    let newest = store.studies()?.into_iter().rev().find(|record| record.study.name == row.name);
    let goes_on = newest.is_some_and(|record| {
        let known = &record.study;
        (known.seed, &known.fingerprint, known.is_quick) == (row.seed, &row.fingerprint, row.is_quick)
    });
    if !goes_on {
        let id = store.add_study(&row)?;
        let note = format!(
            "this measures again what was planned on {} by plimsoll {}{}",
            crate::study::units::utc(published.created_at_ms),
            published.plimsoll_version,
            if is_same_order { "" } else { ", whose order of runs this version does not make" }
        );
        store.add_note(id, load::time::unix_ms(), &note)?;
    }
    Ok(Begun::Ready(Box::new(Request {
        study,
        results: results.to_owned(),
        quick: published.is_quick,
        only,
        part: None,
        client_hosts: Hosts::This,
        new: false,
        command: asked.command.to_owned(),
        version: asked.version.to_owned(),
    })))
}

/// The values of the plan's axes that two cells have: what `--only` takes.
fn only_compared(plan: &Plan, cells: Option<[&Key; 2]>) -> Vec<(String, String)> {
    let (Some(cells), Some(run)) = (cells, plan.runs.first()) else { return Vec::new() };
    // What tells cells apart beside the axes came out of the measurement, and is none of the plan's.
    let axes = plan.key(run).into_keys().chain((run.levels.len() == 1).then(|| "sessions".to_owned()));
    let each = axes.flat_map(|axis| {
        let values = cells.into_iter().filter_map(|cell| Some((axis.clone(), shown(cell.get(&axis)?))));
        values.collect::<Vec<_>>()
    });
    let mut only: Vec<_> = each.collect();
    only.dedup();
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str =
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n";

    fn published(name: &str, text: &str) -> store::Study {
        planned(TINY, &["mariadb@10.11.1"], name, text)
    }

    /// A study of that text, on these builds, published as `text` says it.
    fn planned(of: &str, builds: &[&str], name: &str, text: &str) -> store::Study {
        let study = crate::study::parse(Path::new("s.toml"), of).unwrap();
        let body = study.body(false);
        let pinned = |build: &&str| crate::plan::Pinned {
            selector: build.split('@').next().unwrap().to_owned(),
            name: (*build).to_owned(),
            build_name: (*build).to_owned(),
            build: "x".to_owned(),
        };
        let plan = Plan::new(&body, false, 7, builds.iter().map(pinned).collect());
        store::Study {
            name: name.to_owned(),
            title: study.title.clone(),
            question: study.question.clone(),
            file_path: "s.toml".to_owned(),
            file_text: text.to_owned(),
            file_sha256: study.file_sha256.clone(),
            fingerprint: fingerprint(&body, false),
            plan: serde_json::to_value(plan.stored()).unwrap(),
            axes: Vec::new(),
            comparisons: Vec::new(),
            blocks: plan.blocks(),
            runs: plan.runs.len() as u32,
            is_quick: false,
            seed: 7,
            plimsoll_version: "0".to_owned(),
            command: String::new(),
            created_at_ms: 0,
        }
    }

    fn asked(untrusted: Option<Bounds>) -> Asked<'static> {
        Asked {
            only: &[],
            compared: None,
            untrusted,
            workloads: &[],
            members: &[],
            command: "plimsoll rerun",
            version: "0",
        }
    }

    #[test]
    fn a_strangers_name_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r");
        let begun = |name: &str| begin(&published(name, TINY), &results, &asked(None));
        for name in ["../../x", "/tmp/x", "a/b", "a/", "..", ".", "", "a\0b"] {
            let Err(Error::Usage(why)) = begun(name) else { panic!("{name:?} is taken") };
            assert!(why.contains(&format!("{name:?}")) && why.contains("names no file"), "{why}");
            assert!(!results.exists(), "{name:?} has begun");
        }
        let Begun::Ready(request) = begun("tiny..x").unwrap() else { panic!("it is refused") };
        assert_eq!(request.study.name, "tiny..x");
        assert!(results.join(store::FILE_NAME).is_file());
    }

    #[test]
    fn a_plan_of_other_servers_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let two = TINY.replace("\"mariadb\"", "[\"mariadb\", \"postgres\"]");
        let begun = begin(&published("tiny", &two), dir.path(), &asked(None));
        assert!(begun.unwrap_err().to_string().contains("other servers than its study"));
    }

    /// Each is a line of the study or an axis of it, and what is said of it.
    #[test]
    fn a_stranger_gets_plain_data_only() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r");
        let mine = dir.path().join("mine.sql");
        std::fs::write(&mine, "a secret of mine;\n").unwrap();
        let bounds = Bounds { budget: std::time::Duration::from_secs(600), bytes_max: 8 << 30 };
        let mine = mine.display().to_string();
        let table = |inner: &str| format!("workload = {{ {inner} }}");
        for (line, says) in [
            (format!("workload = \"{mine}\""), "mine.sql: a workload file"),
            (table(&format!("workload = \"{mine}\", label = \"x\"")), "mine.sql: a workload file"),
            (table("pgbench = [\"/etc/passwd\"], label = \"x\""), "workload /etc/passwd"),
            (table("pgbench = [\"tpcb-like\"], init = \"/etc/passwd\""), "workload /etc/passwd"),
            ("workload = \"pgbench:/etc/passwd\"".to_owned(), "workload pgbench:/etc/passwd"),
            ("workload = \"w.smack\"".to_owned(), "workload w.smack"),
            ("server = \"mysql://root:geheim@db/x\"".to_owned(), "runs elsewhere"),
            ("server = \"my-sandbox\"".to_owned(), "sandbox of its author's"),
            ("server = { git = \"/root\", refs = \"v1..v2\" }".to_owned(), "its recipe is code"),
            ("env = { name = \"e\", set = { A = \"b\" } }".to_owned(), "env e"),
            ("env = { name = \"e\", preload = \"/tmp/x.so\" }".to_owned(), "env e"),
            ("storage = { name = \"s\", datadir = \"/root\" }".to_owned(), "storage s"),
            ("settings = { name = \"s\", set = { init_file = \"x\" } }".to_owned(), "setting init_file"),
            (
                "settings = { name = \"s\", mysql = { innodb_buffer_pool_size = \"9G\" } }".to_owned(),
                "8192 MiB",
            ),
            ("engine = \"../x\"".to_owned(), "engine ../x: not a plain name"),
            ("sessions = [1, 2000]".to_owned(), "2000 sessions: at most 1000"),
            ("[options]\ntable_size = 100000000".to_owned(), "data of oltp_read_only"),
            (
                "[options]\ntables = 2k\ntable_size = 1".replace("2k", "\"2k\""),
                "tables 2000 of oltp_read_only: at most 1000",
            ),
            ("[options]\npoint_selects = 5000".to_owned(), "point_selects 5000"),
            (
                "[options]\ncreate_table_options = \"x\"".to_owned(),
                "option create_table_options of oltp_read_only: a text",
            ),
            ("[load]\nduration = \"100s\"".to_owned(), "two sides in 5 blocks take at least"),
            ("[load]\nthink_time = \"20m\"".to_owned(), "think_time of 20m"),
            ("[quick]\nworkload = \"x.sql\"".to_owned(), "workload x.sql"),
        ] {
            let key = line.split(" = ").next().unwrap_or_default();
            let kept = TINY.lines().filter(|known| !known.starts_with(&format!("{key} = ")));
            let text = format!("{}\n{line}\n", kept.collect::<Vec<_>>().join("\n"));
            let begun = begin(&published("tiny", &text), &results, &asked(Some(bounds)));
            let Ok(Begun::Refused(all)) = begun else { panic!("{line}: {begun:?}") };
            // A machine that has more time would take these, and none the others.
            let needs: Vec<_> = all.iter().filter_map(|one| one.needs).collect();
            let is_of_time = says.contains("think_time") || says.contains("take at least");
            assert_eq!(!needs.is_empty(), is_of_time, "{line}: {all:?}");
            assert!(needs.iter().all(|needs| *needs > bounds.budget), "{line}: {needs:?}");
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            let all = all.join("\n");
            assert!(
                all.contains(says) && !all.contains("geheim") && !all.contains("secret"),
                "{line}: {all}"
            );
            assert!(!results.exists(), "{line} has begun");
        }
        let begun = begin(&published("tiny", TINY), &results, &asked(Some(bounds)));
        assert!(matches!(begun, Ok(Begun::Ready(_))), "{begun:?}");
    }

    /// A build that is here, as far as looking it up goes.
    fn put_build(home: &sandbox::Home, name: &str) {
        let (flavor, version) = name.split_once('@').unwrap();
        let place = home.builds().join(name);
        let server = place.join("mariadbd");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(&server, "").unwrap();
        let build: sandbox::Build = serde_json::from_value(serde_json::json!({
            "flavor": flavor, "version": version, "label": null, "identity": "x", "archive_sha256": null,
            "origin": {"kind": "source", "from": "a test"},
            "files": {"server": server, "base": place, "share": null, "messages": null, "plugins": null, "initdb": null,
                      "client": null, "libraries": []},
        }))
        .unwrap();
        std::fs::write(place.join("plimsoll-build.json"), serde_json::to_string(&build).unwrap()).unwrap();
    }

    /// Of three servers one is here. A claim about it needs no other, one about another does; a duel is never made in part.
    #[test]
    fn a_claim_needs_the_builds_of_its_two_sides() {
        let names = ["mariadb@99.0.1", "mariadb@99.0.2+gone", "postgres@99.1+gone"];
        let ladder =
            TINY.replace("\"mariadb\"", "[\"mariadb\", \"mariadb@99\", \"postgres\"]\nsessions = [1, 8]");
        let duel = "[load]\npairing = \"duel\"\n[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = [\"tps\"]\n";
        let cell = |server: &str, sessions: u32| -> Key {
            let key = serde_json::json!({"server": server, "workload": "oltp_read_only", "settings": "default",
                                         "sessions": sessions});
            serde_json::from_value(key).unwrap()
        };
        let (one, eight, gone) = (cell(names[0], 1), cell(names[0], 8), cell(names[2], 8));
        for (text, compared, missing) in [
            (ladder.clone(), Some([&one, &eight]), None),
            (ladder.clone(), Some([&eight, &gone]), Some(names[2])),
            (ladder.clone(), None, Some(names[1])),
            (format!("{ladder}{duel}"), Some([&one, &eight]), Some(names[1])),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let home = sandbox::Home::at(dir.path().join("home")).unwrap();
            put_build(&home, names[0]);
            let results = dir.path().join("r");
            let asked = Asked { compared, ..asked(None) };
            let begun = begin(&planned(&text, &names, "three", &text), &results, &asked);
            let Ok(Begun::Ready(request)) = begun else { panic!("{begun:?}") };
            let (mut store, body) = (Store::open(&results).unwrap(), request.study.body(false));
            let before = crate::recorded::unfinished(&store, &request, &body).unwrap();
            assert!(before.is_some());
            let begun = crate::study_run::begin(
                &home,
                &request,
                &body,
                &mut store,
                before,
                &|_| (),
                &crate::StopSwitch::default(),
            );
            match (begun, missing) {
                (Ok(begun), None) => {
                    let found: Vec<_> = begun.subjects.iter().map(|one| one.own_build().is_some()).collect();
                    assert_eq!(found, [true, false, false]);
                    let all: Vec<_> = begun.subjects.iter().map(crate::subject::Subject::name).collect();
                    assert_eq!(all, names);
                }
                (Err(error), Some(missing)) => assert!(error.to_string().contains(missing), "{error}"),
                (begun, _) => panic!("{:?} of {text}", begun.map(|_| ()).map_err(|error| error.to_string())),
            }
        }
    }

    #[test]
    fn the_runs_of_a_claim_are_those_of_its_two_cells() {
        let plan: StoredPlan = serde_json::from_value(published("tiny", TINY).plan).unwrap();
        let study = crate::study::parse(Path::new("s.toml"), TINY).unwrap();
        let plan = Plan::new(&study.body, false, 7, plan.servers);
        let cell = |sessions: u32| -> Key {
            let key = serde_json::json!({"server": "mariadb@10.11.1", "workload": "oltp_read_only",
                                         "settings": "default", "sessions": sessions, "options": "not an axis"});
            serde_json::from_value(key).unwrap()
        };
        let only = only_compared(&plan, Some([&cell(1), &cell(8)]));
        let pair = |axis: &str, value: &str| (axis.to_owned(), value.to_owned());
        let expected = [
            pair("server", "mariadb@10.11.1"),
            pair("settings", "default"),
            pair("workload", "oltp_read_only"),
            pair("sessions", "1"),
            pair("sessions", "8"),
        ];
        assert_eq!(only, expected);
        assert_eq!(only_compared(&plan, None), []);
    }
}
