//! What is said about study files, good and bad.

use std::path::Path;
use std::time::Duration;

use sandbox::Flavor;

use super::model::*;
use super::parse::parse;

const GOOD: &str = r#"
title = "MariaDB and PostgreSQL side by side"
question = "Which one carries more?"

[axes]
server = ["mariadb", { server = "mariadb@10.11", label = "again" }, "postgres@16"]
workload = ["oltp_read_only", { workload = "oltp_read_write", label = "rw-big", options = { table_size = 1_000_000 } }]
settings = ["default", "fast", { name = "pool", set = { x = 1 }, mysql = { innodb_buffer_pool_size = "1G" }, postgres = { shared_buffers = "1GB" } }]
engine = ["InnoDB"]
storage = ["default", { name = "nvme", datadir = "/mnt/nvme", write_bytes_per_s = "64M" }]
cpus = [1, "0-1"]
isolation = "repeatable read"
charset = ["utf8mb4", "latin1/latin1_swedish_ci"]
env = ["none", { name = "jemalloc", set = { LD_PRELOAD = "/usr/lib/libjemalloc.so.2" } }]
sessions = [1, 8, 64]

[options]
tables = 4
table-size = 100_000

[load]
warmup = "1s"
duration = "1m30s"
blocks = 7
think_time = "10ms"
retries = 3
seed = 42
client_cpus = "1"

[compare]
axis = "server"
base = "mariadb"
metrics = ["tps", "p95"]
margin = 0.03
gate = ["tps:faster", "not-slower"]

[quick]
blocks = 2
duration = "2s"
sessions = [1, 8]
options = { table_size = 1000 }
settings = "default"

[[exclude]]
server = "postgres@16"
engine = "InnoDB"
"#;

fn read(text: &str) -> Study {
    parse(Path::new("studies/s.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

/// The file with the first line that starts so replaced.
fn with(line_start: &str, replacement: &str) -> String {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    let at = lines.iter().position(|line| line.starts_with(line_start));
    lines[at.unwrap_or_else(|| panic!("no line starts with {line_start}"))] = replacement;
    lines.join("\n")
}

fn refused(text: &str) -> String {
    match parse(Path::new("studies/s.toml"), text) {
        Ok(_) => panic!("this should have been refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn everything_that_a_study_can_say_is_read() {
    let study = read(GOOD);
    assert_eq!(study.name, "s");
    let axes = &study.body.axes;
    assert_eq!(axes.server[1].label.as_deref(), Some("again"));
    assert_eq!(axes.workload[1].options["table_size"], "1000000");
    assert_eq!(axes.settings[1].profile.as_deref(), Some("fast"));
    assert_eq!(axes.settings[2].by_flavor["mysql"]["innodb_buffer_pool_size"], "1G");
    assert_eq!(axes.storage[1].write_bytes_s, Some(64 << 20));
    assert_eq!(axes.cpus, [CpusChoice::Count(1), CpusChoice::List("0-1".into())]);
    assert_eq!(axes.isolation, ["repeatable-read"]);
    assert_eq!(axes.env[1].set["LD_PRELOAD"], "/usr/lib/libjemalloc.so.2");
    assert_eq!(axes.ladder, Ladder::Sessions(vec![1, 8, 64]));
    assert_eq!(study.body.options["table_size"], "100000");
    assert_eq!(study.body.load.length, Length::Time(Duration::from_secs(90)));
    assert_eq!(study.body.load.seed, Some(42));
    assert_eq!(study.body.compare.as_ref().unwrap().metrics, ["tps", "p95"]);
    let gates = &study.body.compare.as_ref().unwrap().gates;
    assert_eq!(gates.iter().map(ToString::to_string).collect::<Vec<_>>(), ["tps:faster", "not-slower"]);
    assert_eq!(study.body.excludes.len(), 1);
}

#[test]
fn clients_share_every_level_or_are_refused() {
    let text = |clients: u32| {
        let text = GOOD.replace("[load]\n", &format!("[load]\nclients = {clients}\n"));
        text.replace("[1, 8, 64]", "[4, 64]").replace("sessions = [1, 8]", "sessions = [3]")
    };
    assert_eq!(read(&text(3)).body.load.clients, 3);
    let error = refused(&text(9));
    assert!(
        error.contains("4 sessions cannot be shared out") && error.contains("at least 9 sessions"),
        "{error}"
    );
    assert!(refused(&text(4)).contains("with --quick, 3 sessions cannot be shared out"));
    let duel = refused(&text(2).replace("[load]\n", "[load]\npairing = \"duel\"\n"));
    assert!(duel.contains("loaded by one process") && duel.contains("leave `clients` out"), "{duel}");
    // Of a search they share the most sessions.
    let search = |sessions_max: u32| {
        format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"tpcb\"\n[load]\nclients = 4\n\
             [line]\npromises = [\"p99 < 20ms\"]\nsessions_max = {sessions_max}\n"
        )
    };
    assert_eq!(read(&search(4)).body.load.clients, 4);
    let few = refused(&search(3));
    assert!(
        few.contains("3 sessions cannot be shared out") && few.contains("`sessions_max` in [line]"),
        "{few}"
    );
    // A study that says nothing of them is the one that it was.
    let one = GOOD.replace("[load]\n", "[load]\nclients = 1\n");
    let print = |text: &str| crate::plan::fingerprint(&read(text).body, false);
    assert_eq!(print(&one), print(GOOD));
}

#[test]
fn a_gate_judges_what_is_measured_and_is_no_part_of_it() {
    let other = read(&with("gate =", "gate = \"p95:equivalent\"")).body;
    assert_ne!(read(GOOD).body, other);
    assert_eq!(
        crate::plan::fingerprint(&read(GOOD).body, false),
        crate::plan::fingerprint(&other, false),
        "the same runs stand for both"
    );
}

#[test]
fn quick_changes_only_what_it_names() {
    let study = read(GOOD);
    let (full, quick) = (study.body(false), study.body(true));
    assert_eq!(quick.load.blocks, 2);
    assert_eq!(quick.axes.ladder, Ladder::Sessions(vec![1, 8]));
    assert_eq!(quick.axes.settings.len(), 1);
    assert_eq!(quick.options["table_size"], "1000");
    assert!(quick.axes.workload.iter().all(|workload| workload.options.is_empty()));
    assert_eq!((&quick.axes.server, quick.load.warmup), (&full.axes.server, full.load.warmup));
    assert_eq!(quick.excludes, full.excludes);
}

#[test]
fn quick_leaves_out_other_cells_than_the_full_study() {
    let study = read(&format!("{GOOD}\n[[quick.exclude]]\nworkload = \"rw-big\"\nsessions = 8\n"));
    assert_eq!((study.body(false).excludes.len(), study.body(true).excludes.len()), (1, 1));
    assert_eq!(study.body(true).excludes[0].0["workload"], ["rw-big"]);

    let typo = refused(&format!("{GOOD}\n[[quick.exclude]]\nworkload = \"rw-bgi\"\n"));
    assert!(typo.contains("`rw-bgi` is not a value of the axis `workload`"), "{typo}");
    let nothing = format!("{GOOD}\n[[quick.exclude]]\nsessions = [1, 8]\n");
    assert!(refused(&nothing).contains("with --quick, [[exclude]] leaves nothing to measure"));
}

#[test]
fn passwords_are_not_kept() {
    for url in [
        "\"mysql://root:geheim@db1/sbtest\"",
        "\"mysql://root@db1/sbtest?password=geheim\"",
        "\"mysql://root@db1/sbtest?p%61ssword=geheim&tls=disabled\"",
        "\"mysql://root:it's geheim@db1/sbtest\"",
        "'mysql://root:\"geheim@db1/sbtest'",
        "\"mysql:\\u002f/root:\\u0067eheim@db1/sbtest\"",
    ] {
        let text = with("server =", &format!("server = [\"mariadb\", \"postgres@16\", {url}]"));
        let study = read(&format!("# mysql://root:geheim@db2/?password=geheim\n{text}"));
        assert!(!study.text.contains("eheim"), "{}", study.text);
        assert!(study.text.contains("***"), "{}", study.text);
        assert!(!format!("{:?}", crate::plan::fingerprint(&study.body, false)).contains("geheim"));
        assert!(!serde_json::to_string(&study.body).unwrap().contains("geheim"));
        let refused =
            refused(&with("server =", &format!("server = [{url}, \"mysql://u:geheim@h/?tls=no\"]")));
        assert!(!refused.contains("eheim"), "{refused}");
    }
}

#[test]
fn a_problem_names_file_line_column_text_and_remedy() {
    insta::assert_snapshot!(refused(&with("duration = \"1m30s\"", "duratoin = \"1m30s\"")));
}

#[test]
fn wrong_types_are_shown() {
    insta::assert_snapshot!(refused(&with("blocks = 7", "blocks = \"seven\"")));
}

#[test]
fn several_problems_are_shown_at_once_in_the_order_of_the_file() {
    let text =
        with("blocks = 7", "blocks = 0").replace("margin = 0.03", "margin = 3").replace("\"p95\"", "\"p59\"");
    insta::assert_snapshot!(refused(&text));
}

#[test]
fn broken_toml_is_shown_where_it_breaks() {
    insta::assert_snapshot!(refused(&with("cpus =", "cpus = [1, ")));
}

/// (line that is replaced, replacement, what the message must hold)
const BAD: &[(&str, &str, &[&str])] = &[
    ("title =", "", &["`title` is missing"]),
    ("question =", "question = 3", &["a string is needed", "an integer"]),
    ("[axes]", "[axis]", &["unknown key `axis`", "did you mean `axes`?", "`axes` is missing"]),
    ("server =", "", &["`server` is missing in [axes]"]),
    ("server =", "server = []", &["an empty list leaves nothing to measure"]),
    ("server =", "server = [\"mariadb\", \"mariadb\"]", &["stands twice", "label"]),
    ("server =", "server = [\"mariabd@10.11\"]", &["did you mean `mariadb@10.11`?"]),
    ("server =", "server = [\"mariadb@ten\"]", &["mariadb@ten"]),
    ("server =", "server = [\"mysql://[\"]", &["not a server's URL"]),
    ("workload =", "workload = \"oltp_read_onyl\"", &["did you mean `oltp_read_only`?"]),
    (
        "workload =",
        "workload = { name = \"oltp_read_only\" }",
        &["unknown key `name`", "`workload` is missing"],
    ),
    ("tables = 4", "tabels = 4", &["unknown option `tabels`", "did you mean `tables`?"]),
    (
        "tables = 4",
        "tables = \"abc\"",
        &["`abc` is not a value of the option `tables`", "wants a whole number"],
    ),
    ("tables = 4", "tables = -5", &["`-5` is not a value", "s.toml:18:10", "from 1"]),
    (
        "workload =",
        "workload = [\"oltp_read_only\", { workload = \"tpcb\", options = { tables = 2 } }]",
        &["unknown option `tables`", "tpcb has no such option"],
    ),
    (
        "workload =",
        "workload = { workload = \"oltp_read_only\", options = { table_size = \"x\" } }",
        &["`x` is not a value of the option `table_size`"],
    ),
    (
        "sessions = [1, 8, 64]",
        "sessions = 1\noptions = { table_size = [1000, \"many\"] }",
        &["`many` is not a value", "table_size"],
    ),
    ("options = { table_size = 1000 }", "options = { table_size = \"small\" }", &["`small` is not a value"]),
    ("sessions = [1, 8, 64]", "sessions = 100000", &["more than a machine has ports", "at most 65000"]),
    (
        "duration = \"1m30s\"",
        "duration = \"9000000000000000000s\"",
        &["not a duration", "longer than a year"],
    ),
    ("warmup =", "warmup = \"99999h\"", &["longer than a year (at most 8760h)"]),
    ("blocks = 7", "blocks = 4294967295", &["4294967295 is not possible", "at most 10000"]),
    ("retries = 3", "retries = 4294967295", &["at most 1000000"]),
    ("retries = 3", "workers = 100000", &["at most 4096"]),
    ("retries = 3", "backoff = \"5ms\"", &["`backoff` is the wait before a retry", "retries = 3"]),
    ("retries = 3", "retries = 99999999999999999999", &["99999999999999999999 is not possible", "too large"]),
    (
        "retries = 3",
        "prime = 9223372036854775807",
        &["9223372036854775807 is not possible", "at most 1000000000000"],
    ),
    ("settings = [\"default\", \"fast\"", "settings = [\"fsat\"]", &["did you mean `fast`?"]),
    ("isolation =", "isolation = \"snapshot\"", &["read-committed"]),
    ("cpus =", "cpus = [0]", &["0 is not possible", "less than 1"]),
    ("cpus =", "cpus = [\"3-1\"]", &["not a list of cpus"]),
    ("storage =", "storage = { name = \"a\", datadir = \"here\" }", &["absolute path"]),
    (
        "storage =",
        "storage = { name = \"a\", filesystem = \"zfs\", size = \"4G\" }",
        &["`zfs` is not a file system that can be made", "did you mean `xfs`?"],
    ),
    ("storage =", "storage = { name = \"a\", filesystem = \"xfs\" }", &["needs its size"]),
    ("storage =", "storage = { name = \"a\", filesystem = \"xfs\", size = \"1M\" }", &["at least 2G"]),
    ("storage =", "storage = { name = \"a\", mount = \"noatime\" }", &["of a file system that is made"]),
    (
        "storage =",
        "storage = { name = \"a\", filesystem = \"xfs\", size = \"4G\", mount = [\"ro\"] }",
        &["`ro` is not an option"],
    ),
    (
        "storage =",
        "storage = { name = \"a\", filesystem = \"xfs\", size = \"4G\", datadir = \"/mnt\" }",
        &["not both"],
    ),
    (
        "storage =",
        "storage = { name = \"a\", datadir = \"tmpfs\", scheduler = \"none\" }",
        &["memory has no I/O"],
    ),
    ("env =", "env = [\"jemalloc\"]", &["jemalloc"]),
    ("env =", "replicas = \"assync\"", &["did you mean `async`?"]),
    ("env =", "replicas = { mode = \"async\" }", &["`name` is missing"]),
    ("env =", "replicas = { name = \"a\", server = \"maria\" }", &["a replica of `maria` is not possible"]),
    (
        "env =",
        "replicas = { name = \"a\", server = [\"mysql\", \"mariadb\"], count = 2 }",
        &["leave `count` out"],
    ),
    ("env =", "replicas = { name = \"a\", count = 9 }", &["at most 8"]),
    ("env =", "replicas = [1, \"1\"]", &["is not a set of replicas"]),
    ("sessions = [1, 8, 64]", "sessions = [1, 8, 0]", &["0 is not possible"]),
    ("sessions = [1, 8, 64]", "sessions = [8, 8]", &["twice"]),
    ("sessions = [1, 8, 64]", "sessions = [1]\nclimb = [1]", &["`sessions` or `climb`, not both"]),
    ("sessions = [1, 8, 64]", "sessions = [1000000]", &["more than a machine has ports"]),
    ("duration = \"1m30s\"", "duration = 90", &["a duration needs its unit"]),
    ("duration = \"1m30s\"", "duration = \"90 parsecs\"", &["not a unit"]),
    ("duration = \"1m30s\"", "duration = \"1ms\"", &["this short says nothing"]),
    ("duration = \"1m30s\"", "duration = \"9s\"\ntransactions = 10", &["not both"]),
    ("think_time =", "think_time = \"1s\"\nrate = 10", &["do not think"]),
    ("think_time =", "arrivals = \"poisson\"", &["needs a `rate`"]),
    ("think_time =", "rate = -1", &["more than 0"]),
    ("think_time =", "rate = 1e12", &["at most 1000000000 transactions per second"]),
    ("think_time =", "rate = inf", &["a number is needed"]),
    ("seed = 42", "seed = -1", &["-1 is not possible"]),
    ("axis =", "axis = \"sever\"", &["did you mean `server`?"]),
    ("axis =", "axis = \"isolation\"", &["not a value of the axis"]),
    ("base =", "base = \"mysql\"", &["not a value of the axis `server`", "mariadb"]),
    ("gate =", "gate = \"p99:not-slower\"", &["does not compare `p99`", "tps or p95"]),
    ("gate =", "gate = \"not-slowr\"", &["did you mean `not-slower`?"]),
    (
        "gate =",
        "gate = [\"tps:undecided\"]",
        &["not a verdict to ask for", "not-slower, faster or equivalent"],
    ),
    ("gate =", "gate = \":faster\"", &["not a verdict to ask for", "one of them for one metric"]),
    ("gate =", "gate = 5", &["a string is needed"]),
    ("gate =", "gate = []", &["an empty list"]),
    ("gate =", "gates = \"faster\"", &["unknown key `gates`", "did you mean `gate`?"]),
    ("blocks = 7", "blocks = 4", &["at least 5 blocks, and [load] has 4", "raise `blocks`"]),
    ("blocks = 7", "blocks = { min = 5, max = 9 }", &["what decides between", "until = \"decided\""]),
    ("blocks = 7", "budget = \"20m\"", &["no `until`", "until = \"decided\""]),
    ("blocks = 7", "until = \"decided\"", &["would never end", "budget = \"20m\""]),
    ("blocks = 7", "until = \"tired\"\nblocks = 7", &["`tired` is not a reason to end", "decided"]),
    (
        "blocks = 7",
        "until = \"decided\"\nblocks = { min = 3, max = 4 }",
        &["at least 5 blocks, and this has at most 4", "raise `max`"],
    ),
    (
        "blocks = 7",
        "until = \"decided\"\nblocks = { min = 9, max = 7 }",
        &["at least 9 blocks and at most 7"],
    ),
    ("blocks = 7", "until = \"decided\"\nblocks = { least = 9, max = 20 }", &["unknown key `least`"]),
    (
        "blocks = 7",
        "blocks = 7\npairing = \"duels\"",
        &["`duels` is not a way to pair runs", "did you mean `duel`?"],
    ),
    ("blocks = 7", "transactions = 5\nblocks = 7\npairing = \"duel\"", &["not both"]),
    ("gate =", "primary = \"p99\"", &["does not compare `p99`", "tps or p95"]),
    ("gate =", "primary = { sesions = 8 }", &["`sesions` is not an axis", "did you mean `sessions`?"]),
    (
        "gate =",
        "primary = { metric = \"tps\", sessions = 9 }",
        &["`9` is not a value of the axis `sessions`"],
    ),
    ("engine = \"InnoDB\"", "engine = \"MyISAM\"", &["not a value of the axis `engine`"]),
    ("engine = \"InnoDB\"", "enigne = \"InnoDB\"", &["did you mean `engine`?"]),
];

#[test]
fn a_study_may_end_when_it_is_decided() {
    let of = |lines: &str| {
        let body = parse(Path::new("s.toml"), &with("blocks = 7", lines)).unwrap().body;
        (body.load.blocks, body.load.until)
    };
    let until = |blocks_min, budget| Some(Until { blocks_min, budget });
    assert_eq!(of("blocks = 7"), (7, None));
    assert_eq!(of("until = \"decided\"\nblocks = { min = 6, max = 40 }"), (40, until(6, None)));
    assert_eq!(of("until = \"decided\"\nblocks = 12"), (12, until(5, None)));
    let budget = Some(Duration::from_secs(1200));
    assert_eq!(of("until = \"decided\"\nbudget = \"20m\""), (100, until(5, budget)));
    let study =
        parse(Path::new("s.toml"), &with("blocks = 7", "until = \"decided\"\nblocks = { max = 9 }")).unwrap();
    let quick = study.body(true).load;
    assert_eq!((quick.blocks, quick.until), (2, None), "--quick has its own number");
    let primary = parse(Path::new("s.toml"), &with("gate =", "primary = { sessions = [8, 64] }")).unwrap();
    let primary = primary.body.compare.unwrap().primary.unwrap();
    assert_eq!(
        (primary.metric.as_str(), &primary.cells["sessions"][..]),
        ("tps", &["8".into(), "64".into()][..])
    );
}

#[test]
fn duels_that_cannot_be_are_refused_where_pairing_stands() {
    let study = |axes: &str, load: &str, rest: &str| {
        format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nworkload = \"tpcb\"\n{axes}\n[load]\npairing = \"duel\"\n{load}\n{rest}"
        )
    };
    let two = "server = [\"mariadb\", \"postgres\"]";
    let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = [\"tps\"]";
    let parsed = |text: &str| parse(Path::new("s.toml"), text);
    let load = parsed(&study(&format!("{two}\nsessions = [1, 8]"), "", compare)).unwrap().body.load;
    assert_eq!(load.pairing, Pairing::Duel);
    let one = "server = [\"mariadb\"]";
    let nine = format!(
        "server = [{}]",
        (0..9)
            .map(|at| format!("{{ server = \"mariadb\", label = \"l{at}\" }}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let nine_compare = compare.replace("base = \"mariadb\"", "base = \"l0\"");
    for (axes, load, rest, wanted) in [
        (
            format!("{two}\nsessions = 8"),
            "",
            "",
            &["a duel is between values that are compared", "add [compare]"][..],
        ),
        (format!("{one}\nsessions = 8"), "", compare, &["has one value", "nothing to compare"]),
        (format!("{two}\nclimb = [1, 8]"), "", compare, &["with `climb`", "sessions = [..]"]),
        (
            format!("{two}\nsessions = 8"),
            "transactions = 100",
            compare,
            &["with `transactions`", "`duration`"],
        ),
        (format!("{nine}\nsessions = 8"), "", &nine_compare, &["9 servers", "at most 8"]),
    ] {
        let text = parsed(&study(&axes, load, rest)).unwrap_err().to_string();
        let found =
            text.contains("s.toml:7:1") || text.contains("s.toml:8:1") || text.contains("has one value");
        assert!(found && wanted.iter().all(|part| text.contains(part)), "{wanted:?} in:\n{text}");
    }
}

#[test]
fn every_kind_of_mistake_is_refused_with_a_remedy() {
    for (line, replacement, wanted) in BAD {
        let text = refused(&with(line, replacement));
        assert!(text.contains("studies/s.toml:"), "no place in:\n{text}");
        let found = wanted.iter().all(|part| text.contains(part));
        assert!(found, "{replacement}: wanted {wanted:?} in:\n{text}");
    }
}

#[test]
fn a_plan_that_nobody_could_run_is_refused_before_it_is_made() {
    let list =
        |from: u32, many: u32| (from..from + many).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let sized = |sizes: u32, tables: u32, levels: u32, blocks: u32| {
        format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\nsessions = [{}]\n\
             options = {{ table_size = [{}], tables = [{}] }}\n[load]\nblocks = {blocks}\n",
            list(1, levels),
            list(1000, sizes),
            list(1, tables)
        )
    };
    let text = refused(&sized(20, 10, 50, 400));
    assert!(text.contains("this study has 4000000 runs") && text.contains("at most 100000"), "{text}");
    assert!(text.contains("studies/s.toml:3:2"), "{text}");
    // A product that would not fit into memory, by arithmetic alone.
    let text = refused(&sized(1000, 1000, 1, 1));
    assert!(text.contains("this study has 1000000 cells"), "{text}");
    read(&sized(20, 10, 5, 100));
    let text = refused(&format!("{}[quick]\nsessions = [{}]\n", sized(20, 10, 5, 100), list(1, 50)));
    assert!(text.contains("with --quick, this study has 1000000 runs"), "{text}");
}

#[test]
fn a_message_shows_no_password_and_points_at_the_right_place() {
    let text = with("server =", "server = [\"mysql://root:geheim@h/db\", \"mariabd@10.11\"]");
    let text = refused(&text);
    assert!(!text.contains("geheim") && text.contains("root:***@h"), "{text}");
    // As an editor counts: the file has the password.
    let before = "server = [\"mysql://root:geheim@h/db\", ";
    assert!(text.contains(&format!("studies/s.toml:6:{}", before.len() + 1)), "{text}");
}

#[test]
fn excluding_everything_is_refused() {
    let text = with("server = \"postgres@16\"", "workload = [\"oltp_read_only\", \"rw-big\"]");
    let text = refused(&text.replace("\nengine = \"InnoDB\"", ""));
    assert!(text.contains("[[exclude]] leaves nothing to measure"), "{text}");
}

proptest::proptest! {
    #[test]
    fn no_file_makes_the_parser_panic(cut in 0usize..GOOD.len(), insert in "[ -~\\n]{0,12}") {
        let cut = GOOD.floor_char_boundary(cut);
        let text = format!("{}{insert}{}", &GOOD[..cut], &GOOD[cut..]);
        if let Err(error) = parse(Path::new("s.toml"), &text) {
            proptest::prop_assert!(!error.problems.is_empty());
            proptest::prop_assert!(!error.render(true).is_empty());
        }
    }
}

#[test]
fn priming_caches_and_lengths_by_workload_are_read() {
    let text = GOOD.replace("blocks = 7", "blocks = 7\nprime = 5000\ncache = \"cold\"").replace(
        "[compare]",
        "[report]\nsections = [\"levels\"]\npublished = \"israel-2015\"\nmean_from = 5\n\n[compare]",
    );
    let study = read(&text);
    assert_eq!(study.body.load.prime, Some(Length::Transactions(5000)));
    assert!(study.body.load.is_cold);
    // A shorter level of --quick holds for every workload.
    let text = text.replace("cpus = [1, \"0-1\"]", "cpus = [\"half\", \"all\"]");
    let quick = read(&text.replace("[quick]", "[quick]\nprime = \"1s\"")).body(true);
    assert_eq!(quick.load.prime, Some(Length::Time(Duration::from_secs(1))));
    assert_eq!(quick.axes.cpus, [CpusChoice::Half, CpusChoice::All]);
    assert!(refused(&text.replace("\"levels\"", "\"level\"")).contains("did you mean `levels`"));
}

#[test]
fn the_studies_of_this_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("the studies' folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable study");
        let study = parse(&path, &text).unwrap_or_else(|error| panic!("{error}"));
        for quick in [false, true] {
            let body = study.body(quick);
            assert!(!crate::plan::cells(&body).is_empty(), "{}", study.name);
            let has_verdicts = !quick && body.compare.is_some();
            assert!(!has_verdicts || body.load.blocks >= 5, "{}: too few blocks for verdicts", study.name);
        }
        found += 1;
    }
    assert!(found >= 6, "{found}");
}

#[test]
fn the_machine_is_kept_awake_unless_the_study_says_otherwise() {
    let head = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"tpcb\"\n";
    let machine = |text: &str| parse(Path::new("s.toml"), &format!("{head}[machine]\n{text}\n"));
    assert_eq!(machine("").unwrap().body.machine, MachineWishes { idle: Idle::Awake, turbo: Turbo::AsIs });
    let other = machine("idle = \"as-is\"\nturbo = \"off\"").unwrap().body.machine;
    assert_eq!(other, MachineWishes { idle: Idle::AsIs, turbo: Turbo::Off });
    let error = machine("idle = \"awke\"").unwrap_err().to_string();
    assert!(error.contains("s.toml:7:8") && error.contains("awake"), "{error}");
}

#[test]
fn a_price_is_an_amount_and_no_part_of_the_meaning() {
    let head = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"tpcb\"\n";
    let of = |price: &str| parse(Path::new("s.toml"), &format!("{head}[machine]\nprice = \"{price}\"\n"));
    let free = parse(Path::new("s.toml"), head).unwrap();
    for price in ["0.40 USD/h", "1200 EUR/month"] {
        let study = of(price).unwrap();
        assert_eq!((study.price.as_deref(), &study.body), (Some(price), &free.body));
    }
    for price in
        ["", "much", "0.40", "0.40 USD", "0.40 usd/h", "-1 USD/h", "1 USD/h <b>", "1e9 USD/h", "1 USD/year"]
    {
        let error = of(price).unwrap_err().to_string();
        assert!(error.contains("s.toml:7:9") && error.contains("0.40 USD/h"), "{price}: {error}");
    }
}

/// A study with an `[[intervene]]`, and more of it.
fn intervening(intervene: &str, load: &str, more: &str) -> String {
    format!(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n{more}\n[load]\n{load}\n\
         [[intervene]]\n{intervene}\n"
    )
}

#[test]
fn a_quick_run_has_phases_of_its_own() {
    let quick = format!("{ON_AND_OFF}\n[quick]\nduration = \"1s\"\nphase = \"500ms\"");
    let study = read(&intervening(&quick, "duration = \"12s\"\nphase = \"3s\"", ""));
    let phase = |quick: bool| study.body(quick).load.phase.unwrap().as_millis();
    assert_eq!((phase(false), phase(true)), (3000, 500));
    let refusal = refused(&intervening(&quick.replace("500ms", "800ms"), "duration = \"12s\"", ""));
    assert!(refusal.contains("less than two phases of 800ms"), "{refusal}");
}

const ON_AND_OFF: &str =
    "name = \"log\"\non = \"SET GLOBAL general_log = ON\"\noff = [\"SET GLOBAL general_log = OFF\"]";

#[test]
fn what_is_switched_is_an_axis_that_is_compared_with_nothing_switched() {
    let two = format!("{ON_AND_OFF}\n[[intervene]]\nname = \"sync\"\nsettings = {{ sync_binlog = 0 }}");
    let body = read(&intervening(&two, "blocks = 6", "sessions = [1, 8]")).body(false);
    assert_eq!(body.axes.interventions(), ["none", "log", "sync"]);
    let asked = body.comparisons();
    let [own] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((own.axis.as_str(), own.base.as_str(), own.margin), ("intervene", "none", 0.05));
    // Those of one life stand together, whatever their order.
    let plan = crate::plan::Plan::new(&body, false, 7, vec![pinned()]);
    assert_eq!(plan.runs.len(), 6 * 2 * 3);
    for life in plan.runs.chunks(3) {
        let states: Vec<Option<&str>> =
            life.iter().map(|run| plan.cells[run.cell].intervene.as_deref()).collect();
        assert_eq!(states, [Some("none"), Some("log"), Some("sync")]);
        assert!(life.iter().all(|run| run.levels == life[0].levels && run.block == life[0].block));
    }
    // Beside another comparison it is one more, which that one's gates are not about.
    let more = "settings = [\"default\", \"fast\"]";
    let compare = "[compare]\naxis = \"settings\"\nbase = \"default\"\nmetrics = [\"p95\"]\nmargin = 0.1\ngate = \"faster\"";
    let body = read(&format!("{}{compare}", intervening(ON_AND_OFF, "", more))).body(false);
    let axes: Vec<(String, usize)> =
        body.comparisons().into_iter().map(|compare| (compare.axis, compare.gates.len())).collect();
    assert_eq!(axes, [("settings".to_owned(), 1), ("intervene".to_owned(), 0)]);
    assert_eq!(body.comparisons()[1].metrics, ["p95"]);
}

#[test]
fn an_intervention_is_said_in_the_words_of_each_server() {
    let own = "name = \"log\"\nmysql = { on = \"SET GLOBAL general_log = ON\", off = \"SET GLOBAL general_log = OFF\" }\n\
               postgres = { settings = { log_statement = \"all\" } }";
    let of = |text: &str| read(&intervening(text, "", "")).body(false).axes.intervene.remove(0).change;
    let change = of(own);
    assert!(matches!(change.of(Flavor::Mariadb), Some(Change::Sql { .. })));
    assert!(matches!(change.of(Flavor::Postgres), Some(Change::Settings(_))));
    assert_eq!(of(&own.replace("mysql =", "mariadb =")).of(Flavor::Mysql), None);
    // What stands beside them is for the others; a flavour's own words win over those of its family.
    let change = of(&format!("{own}\nmariadb = {{ settings = {{ x = 1 }} }}\nsettings = {{ y = 1 }}"));
    assert!(matches!(change.of(Flavor::Mariadb), Some(Change::Settings(set)) if set.contains_key("x")));
    assert!(matches!(change.of(Flavor::Percona), Some(Change::Sql { .. })) && change.any.is_some());
    let half = refused(&intervening("name = \"log\"\npostgres = { on = \"VACUUM\" }", "", ""));
    assert!(half.contains("what switches it off again?"), "{half}");
    let late = refused(&intervening("name = \"log\"\nat = \"1s\"\nmysql = { off = \"VACUUM\" }", "", ""));
    assert!(late.contains("`off` and `at` exclude each other"), "{late}");
}

fn pinned() -> crate::plan::Pinned {
    let name = || "mariadb@10.11".to_owned();
    crate::plan::Pinned { selector: name(), name: name(), build_name: name(), build: "x".to_owned() }
}

#[test]
fn interventions_that_cannot_be_are_refused_where_they_stand() {
    let on = "name = \"log\"\non = \"SET GLOBAL general_log = ON\"";
    let at = "name = \"log\"\nsql = \"SET GLOBAL general_log = ON\"";
    let climb = "climb = [1, 2]";
    let duel = "pairing = \"duel\"\n";
    let session = "name = \"x\"\non = \"SET general_log = ON\"\noff = \"SET GLOBAL general_log = OFF\"";
    let silent =
        "name = \"x\"\non = \"ALTER SYSTEM SET synchronous_commit = off\"\noff = \"SELECT pg_reload_conf()\"";
    let cases = [
        (intervening(on, "", ""), "what switches it off again?", ":11:1"),
        (intervening(session, "", ""), "nothing but the session that sends it", ":11:6"),
        (intervening(silent, "", ""), "\"SELECT pg_reload_conf()\" behind it", ":11:6"),
        (intervening(at, "", ""), "when does this come?", ":11:1"),
        (intervening(&format!("{at}\nat = \"10s\""), "", ""), "too late", ":12:6"),
        (intervening(&format!("{at}\nat = \"1s\""), "transactions = 9", ""), "too late", ":12:6"),
        (
            intervening(&format!("{ON_AND_OFF}\nat = \"1s\""), "", ""),
            "`on` and `at` exclude each other",
            ":11:1",
        ),
        (
            intervening(&format!("{on}\nsettings = {{ x = 1 }}"), "", ""),
            "`on` and `settings` both say",
            ":11:1",
        ),
        (intervening(&ON_AND_OFF.replace("log\"", "none\""), "", ""), "cannot be called `none`", ":10:8"),
        (intervening(ON_AND_OFF, "", climb), "with `climb`", ":9:1"),
        (intervening(ON_AND_OFF, duel, ""), "with `pairing = \"duel\"`", ":10:1"),
        (intervening(ON_AND_OFF, "transactions = 9", ""), "phases go by the clock", ":9:1"),
        (intervening(ON_AND_OFF, "phase = \"6s\"", ""), "less than two phases of 6s", ":9:1"),
        (intervening(ON_AND_OFF, "hot_locks = true", ""), "the pass for hot locks switches nothing", ":9:1"),
        (
            intervening(ON_AND_OFF, "clients = 2", ""),
            "the load of several clients is not cut into phases",
            ":9:1",
        ),
        (
            intervening("name = \"x\"\nsettings = { \"a b\" = 1 }", "", ""),
            "not the name of a variable",
            ":11:22",
        ),
    ];
    for (text, why, place) in cases {
        let told = refused(&text);
        assert!(told.contains(why), "{why}:\n{told}");
        assert!(told.contains(&format!("studies/s.toml{place}")), "{place}:\n{told}");
    }
    let line = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n[line]\npromises = \
                \"p99 < 20ms\"\n[[intervene]]\n";
    assert!(refused(&format!("{line}{ON_AND_OFF}")).contains("with [line]"));
    let phase = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n[load]\nphase = \"2s\"";
    assert!(refused(phase).contains("no [[intervene]]"));
}

#[test]
fn a_server_is_a_commit_of_a_clone_or_many_of_them() {
    let with = |server: &str| {
        format!("title = \"t\"\nquestion = \"q\"\n[axes]\nserver = {server}\nworkload = \"oltp_read_only\"\n")
    };
    let study = read(&with(
        "[{ git = \"..\", ref = \"v1~2\" }, { git = \"..\", refs = \"v1..v2\", recipe = \"mine.toml\" }]",
    ));
    let servers = &study.body.axes.server;
    assert_eq!((servers[0].server.as_str(), servers[1].server.as_str()), ("v1~2", "v1..v2"));
    let source = servers[1].source.as_ref().unwrap();
    assert_eq!((source.recipe.as_deref(), source.is_range), (Some("mine.toml"), true));
    for (server, wanted) in [
        ("{ git = \"..\" }", "a server that is built needs its commit"),
        ("{ git = \"..\", ref = \"--upload-pack=x\" }", "`--upload-pack=x` is not the name of a commit"),
        ("{ git = \"..\", ref = \"v1..v2\" }", "`v1..v2` is not the name of a commit"),
        ("{ git = \"..\", refs = \"v1\" }", "`v1` is not the name of a range of commits"),
        ("{ git = \"..\", ref = \"v1\", refs = \"v1..v2\" }", "`ref` and `refs` exclude each other"),
        ("{ git = \"..\", refs = \"v1..v2\", label = \"x\" }", "has no label"),
    ] {
        let error = refused(&with(server));
        assert!(error.contains(wanted) && error.contains("studies/s.toml:4:"), "{error}");
    }
}
