//! Every key of a study file, for `plimsoll help study` and docs/study-file.md. Tests hold it against the parser: each
//! key that the parser asks for stands here and nothing else does, each example is accepted, each default is the one
//! that holds without the key.

mod values;

use std::fmt::Write as _;

/// A table of a study file.
pub struct Section {
    /// As it stands in the file, or as a value of an axis.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of a study file.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What stands there.
    pub kind: &'static str,
    /// Its value where the key is left out, as it would be written; empty where there is none.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The key with a value.
    pub example: &'static str,
}

/// A key without a default, by an example, which begins with its name.
const fn key(example: &'static str, kind: &'static str, about: &'static str) -> Key {
    let mut length = 0;
    while example.as_bytes()[length] != b' ' {
        length += 1;
    }
    Key { name: example.split_at(length).0, kind, default: "", about, example }
}

impl Key {
    const fn default(self, default: &'static str) -> Key {
        Key { default, ..self }
    }
}

const TOP: &[Key] = &[
    key("title = \"Upgrade to 11.4\"", "text, needed", "one line"),
    key("question = \"Is 11.4 slower than 10.11?\"", "text, needed", "what the study asks"),
    key("axes = { server = \"mariadb\", workload = \"oltp_read_only\" }", "table, needed", "what varies"),
    key("options = { table_size = 100_000 }", "table", "options of every workload of the study"),
    key("load = { duration = \"30s\" }", "table", "how the load is applied, and for how long"),
    key("line = { promises = \"p99 < 20ms\" }", "table", "each run is a search for load lines"),
    key(
        "intervene = [{ name = \"log\", settings = { general_log = \"ON\" } }]",
        "tables",
        "what is changed of the server while it is loaded",
    ),
    key("machine = { idle = \"as-is\" }", "table", "how the machine is to be meanwhile"),
    key("fleet = { on = \"slurm\", nodes = 8 }", "table", "where its blocks are made"),
    key("compare = { axis = \"server\", base = \"mariadb\" }", "table", "what is compared with what"),
    key("report = { sections = [\"levels\"] }", "table", "what the report shows beside its common parts"),
    key("author = { name = \"Ada Lovelace\" }", "table", "who stands for the study"),
    key("exclude = [{ sessions = 1 }]", "tables", "cells that are left out"),
    key("quick = { blocks = 1, duration = \"2s\" }", "table", "what `--quick` changes"),
];

const SERVER: &str = "server, or a list";
const AXES: &[Key] = &[
    key(
        "server = [\"mariadb\", \"postgres@16\"]",
        SERVER,
        "builds (flavor[@version]), sandboxes by name, or URLs; needed",
    ),
    key(
        "workload = [\"oltp_read_only\", \"tpcb\"]",
        "workload, or a list",
        "by name, the path of a .sql or .smack file, or scripts of pgbench's (`pgbench:tpcb-like`); needed",
    ),
    key(
        "settings = [\"default\", \"fast\"]",
        "set, or a list",
        "server variables: default, safest, fast, unsafe, or a set of your own",
    )
    .default("\"default\""),
    key(
        "engine = [\"InnoDB\", \"MyISAM\"]",
        "text, or a list",
        "storage engine; PostgreSQL has heap and unlogged",
    ),
    key(
        "storage = [\"default\", { name = \"memory\", datadir = \"tmpfs\" }]",
        "place, or a list",
        "where data directories are made",
    )
    .default("\"default\""),
    key(
        "cpus = [1, \"half\", \"all\"]",
        "count, list, half or all",
        "cpus of the server: 2 is a count, \"0-1\" a list",
    ),
    key(
        "isolation = [\"read-committed\", \"serializable\"]",
        "text, or a list",
        "read-uncommitted, read-committed, repeatable-read or serializable",
    ),
    key(
        "charset = [\"utf8mb4\", \"latin1/latin1_swedish_ci\"]",
        "text, or a list",
        "character set, with or without collation",
    ),
    key(
        "env = [\"none\", { name = \"arenas\", set = { MALLOC_ARENA_MAX = 2 } }]",
        "environment, or a list",
        "environment of the server's process",
    )
    .default("\"none\""),
    key(
        "options = { table_size = [1000, 100_000] }",
        "table of lists",
        "options of the workloads that vary, each an axis",
    ),
    key("sessions = [1, 8, 64]", "whole numbers", "load levels, each a run of its own, at most 65000")
        .default("1"),
    key(
        "climb = [1, 2, 4, 8]",
        "whole numbers",
        "load levels as ordered steps of one run, instead of `sessions`",
    ),
];

const LOAD: &[Key] = &[
    key("warmup = \"5s\"", "duration", "run before each level and not recorded").default("\"2s\""),
    key("duration = \"1m30s\"", "duration", "how long a level is measured, from 100ms to a year (ms, s, m, h)").default("\"10s\""),
    key("transactions = 10_000", "whole number", "measure so many transactions instead of a time"),
    key("blocks = 7", "whole number, or { min, max }", "repeats of everything, each in random order, at most 10000; verdicts need 5; a range goes with `until`").default("5"),
    key("pairing = \"duel\"", "adjacent or duel", "runs that are compared: one after the other (so without this key), or at the same time, loaded in slices of half a \
         second by turns, so that what disturbs the machine disturbs all of them"),
    key("until = \"decided\"", "decided", "end as soon as every primary comparison has a verdict, by tests that allow for a look after each block"),
    key("budget = \"20m\"", "duration", "with `until`: no block is begun that is not likely to end within this time of runs"),
    key("think_time = \"10ms\"", "duration", "pause of a session between two transactions (closed loop)").default("\"0s\""),
    key("backoff = \"5ms\"", "duration", "with `retries`: wait before the first retry; it doubles with each").default("\"0s\""),
    key("ramp = \"5s\"", "duration", "connections of a level are opened evenly over this time").default("\"0s\""),
    key("drain = \"10s\"", "duration", "how long transactions in flight may take to end after the measured phase").default("\"5s\""),
    key("rate = 500", "number", "open loop: so many transactions arrive in a second, whether or not the server keeps up"),
    key("arrivals = \"constant\"", "constant or poisson", "how the arrivals of an open loop are spread").default("\"poisson\""),
    key("retries = 3", "whole number", "attempts after the first one, for deadlocks and the like").default("0"),
    key("prime = \"10s\"", "duration or transactions", "run before the first level with the sessions of the largest one, not recorded"),
    key("gates = \"warn\"", "invalid or warn", "warn: faults of client and machine (client_bound, noisy_host, swapping, cpu_frequency, cache_state) do not make a run invalid").default("\"invalid\""),
    key("cache = \"cold\"", "warm or cold", "cold: each run begins with a restarted server and an empty page cache").default("\"warm\""),
    key("workers = 2", "whole number", "threads of the client, at most 4096; one for two cpus without"),
    key("clients = 4", "whole number", "processes that the sessions are shared out to, where one has too few files or cpus; `workers` is then of each").default("1"),
    key("seed = 42", "whole number", "of the order of runs and of all that is random in them; drawn, and recorded, without"),
    key("hot_locks = true", "true or false", "after the blocks, a pass of its own for each cell that finds the hot locks").default("false"),
    key("client_cpus = \"0-1\"", "list of cpus", "cpus of the client; those that no server gets where `cpus` varies"),
    key("phase = \"5s\"", "duration", "with [[intervene]]: how long a state lasts before the next one is switched (a second without this key); a level's `duration` is that of all phases \
         of a state"),
];

const INTERVENE: &[Key] = &[
    key("name = \"general-log\"", "text, needed", "what the study calls it"),
    key("on = \"SET GLOBAL general_log = ON\"", "SQL, or a list", "what switches it on"),
    key("off = \"SET GLOBAL general_log = OFF\"", "SQL, or a list", "what switches it off; needed with `on`"),
    key(
        "settings = { general_log = \"ON\" }",
        "table",
        "in place of statements: variables that take effect without a restart; they get their values back",
    ),
    key(
        "at = \"5s\"",
        "duration",
        "it comes once, so long after the measured phase began, and is not switched on and off: before and after are told, without a verdict",
    ),
    key("sql = \"ANALYZE TABLE sbtest1\"", "SQL, or a list", "with `at`: what comes then"),
];

const LINE: &[Key] = &[
    key(
        "promises = [\"p99 < 20ms\", \"errors < 0.1%\"]",
        "text, or a list; needed",
        "a percentile of the response time below a limit, of all transactions or `of` one class; a share that may fail; `tpcc`",
    ),
    key("budget = \"5m\"", "duration", "for one search, its holds included").default("\"10m\""),
    key("hold = \"2m\"", "duration", "how long a line is held to confirm it").default("\"60s\""),
    key("sessions_max = 500", "whole number", "no more sessions than these are opened").default("256"),
];

const COMPARE: &[Key] = &[
    key("axis = \"server\"", "text, needed", "the axis whose values are compared"),
    key("base = \"mariadb\"", "value, needed", "the value that the others are compared with"),
    key("metrics = [\"tps\", \"p95\"]", "text, or a list", "tps, qps, mean, p50, p95, p99, max or cpu_us_per_transaction; with [line] its promises, by default all").default("[\"tps\"]"),
    key("primary = \"tps\"", "metric, or { metric, AXIS }", "the metric and cells that the study is about: they alone share the error, the rest is secondary"),
    key("margin = 0.03", "number", "differences below this share count as none").default("0.05"),
    key("gate = \"tps:not-slower\"", "verdict, or a list", "not-slower, faster or equivalent, alone or as METRIC:VERDICT: without it `run` ends with 1"),
];

const QUICK: &[Key] = &[
    key(
        "options = { table_size = 1000 }",
        "table",
        "options of every workload; an axis of that name goes away",
    ),
    key("line = { budget = \"1m\" }", "{ budget, hold }", "as in [line]"),
    key("sessions = 1", "whole numbers", "as in [axes]"),
    key("climb = [1, 2]", "whole numbers", "as in [axes]"),
    key("warmup = \"500ms\"", "duration", "as in [load]"),
    key("duration = \"2s\"", "duration", "as in [load], for workloads with a length of their own too"),
    key("transactions = 1000", "whole number", "as in [load]"),
    key("blocks = 1", "whole number", "as in [load]"),
    key("prime = 1000", "duration or transactions", "as in [load]"),
    key("gates = \"warn\"", "invalid or warn", "as in [load]"),
    key("server = \"mariadb\"", SERVER, "as in [axes]"),
    key("workload = \"oltp_read_only\"", "workload, or a list", "as in [axes]"),
    key("settings = \"default\"", "set, or a list", "as in [axes]"),
    key("engine = \"InnoDB\"", "text, or a list", "as in [axes]"),
    key("storage = \"default\"", "place, or a list", "as in [axes]"),
    key("cpus = 1", "count, list, half or all", "as in [axes]"),
    key("isolation = \"read-committed\"", "text, or a list", "as in [axes]"),
    key("charset = \"utf8mb4\"", "text, or a list", "as in [axes]"),
    key("env = \"none\"", "environment, or a list", "as in [axes]"),
    key("exclude = [{ sessions = 9 }]", "tables", "instead of the study's own list"),
];

/// All tables of a study file.
pub const SECTIONS: &[Section] = &[
    Section { name: "the file", about: "What stands at the top.", keys: TOP },
    Section {
        name: "[axes]",
        about: "What varies. Every combination of the values is a cell. A single value need not be a list.",
        keys: AXES,
    },
    values::SERVER,
    values::SOURCE,
    values::WORKLOAD,
    values::SETTINGS,
    values::PLACE,
    values::ENVIRONMENT,
    Section { name: "[load]", about: "How the load is applied, and for how long.", keys: LOAD },
    Section {
        name: "[machine]",
        about: "How the machine is to be while the study measures; afterwards it is as it was.",
        keys: &[
            key("idle = \"as-is\"", "awake or as-is", "whether its cpus are kept from sleeping, and the performance governor is set where there is one").default("\"awake\""),
            key("turbo = \"off\"", "off or as-is", "whether frequencies above the nominal one are switched off").default("\"as-is\""),
            key("price = \"0.40 USD/h\"", "amount, currency/h or /month", "what it costs, for reports and bundles to tell; measured again elsewhere, a study has none"),
        ],
    },
    Section {
        name: "[fleet]",
        about: "Where blocks are made: on nodes that a scheduler gives. `plimsoll run --on` and its flags stand in for these.",
        keys: &[
            key("on = \"slurm\"", "slurm", "what gives nodes; without it blocks are made where `run` runs"),
            key("nodes = 8", "count", "nodes at the same time; else as many as there are"),
            key("partition = \"bench\"", "text", "the scheduler's partition"),
            key("constraint = \"zen4\"", "text", "features that nodes must have"),
            key("time_limit = \"2h\"", "duration", "a block that takes longer is ended, and made again"),
        ],
    },
    Section {
        name: "[[intervene]]",
        about: "What is switched on and off while a server is loaded, by a connection of its own: the values of the axis \
                `intervene`, whose first one is `none`. All are measured in phases of one server life, in random order, and compared \
                with `none`; what the server says of its variables is read back at both ends of each phase.",
        keys: INTERVENE,
    },
    Section {
        name: "[line]",
        about: "Instead of a load: each run searches for the highest rate of arrivals that keeps a promise (docs/lines.md).",
        keys: LINE,
    },
    Section { name: "[compare]", about: "What is compared with what.", keys: COMPARE },
    Section {
        name: "[report]",
        about: "What the report shows beside its common parts.",
        keys: &[
            key("sections = [\"levels\"]", "text, or a list", "sections of their own, as the published studies have them"),
            key("published = \"israel-2015\"", "text, or a list", "published figures to show beside"),
            key("mean_from = 5", "whole number", "sessions from which on a mean over levels is taken"),
        ],
    },
    Section {
        name: "[author]",
        about: "Who stands for the study; a bundle takes it along.",
        keys: &[
            key("name = \"Ada Lovelace\"", "text", "who measured"),
            key("contact = \"ada@example.org\"", "text", "where to ask"),
            key("licence = \"CC-BY-4.0\"", "text", "what may be done with the results"),
            key("disclaimer = \"On one laptop.\"", "text", "what the author wants to have said"),
            key("keywords = [\"oltp\", \"upgrade\"]", "a list of texts", "what it is found by"),
        ],
    },
    Section { name: "[quick]", about: "What `--quick` changes; the rest stays.", keys: QUICK },
];

const HEAD: &str = "A study is a TOML file: what is measured, how, and what is compared. `plimsoll new FILE.toml` writes one to \
                    start from, `plimsoll run FILE.toml --dry-run` checks it and shows what would be run.";
const EXCLUDES: &str = "[[exclude]] has the names of axes as keys, with a value or a list of them: cells where each of \
                        them has one of these values are left out. [options] has the options of the workloads as keys; \
                        `plimsoll workloads NAME` lists them with their defaults and what they allow.";

/// For a terminal.
pub fn text() -> String {
    let mut text = format!("{HEAD}\n");
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}: {}\n", section.name, section.about);
        for key in section.keys {
            let default =
                if key.default.is_empty() { String::new() } else { format!("; default {}", key.default) };
            let _ = writeln!(
                text,
                "  {:<18} {} ({}{default})\n{:21}{}",
                key.name, key.about, key.kind, "", key.example
            );
        }
    }
    let _ = write!(text, "\n{EXCLUDES}\n");
    text
}

/// For docs/study-file.md.
pub fn markdown() -> String {
    let mut text = format!(
        "# The study file\n\n<!-- Made from crates/lab/src/study/reference.rs by its tests: UPDATE_DOCS=1 cargo test -p lab@0.1.0 -->\n\n{HEAD}\n"
    );
    for section in SECTIONS {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| key | what stands there | default | what for | example |\n|---|---|---|---|---|\n",
            section.name, section.about
        );
        for key in section.keys {
            let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} | `{}` |",
                key.name, key.kind, key.about, key.example
            );
        }
    }
    let _ = write!(text, "\n## [[exclude]] and [options]\n\n{EXCLUDES}\n");
    text
}

#[cfg(test)]
mod tests;
