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

const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    about: &'static str,
    example: &'static str,
) -> Key {
    Key { name, kind, default, about, example }
}

const TOP: &[Key] = &[
    key("title", "text, needed", "", "one line", "title = \"Upgrade to 11.4\""),
    key("question", "text, needed", "", "what the study asks", "question = \"Is 11.4 slower than 10.11?\""),
    key(
        "axes",
        "table, needed",
        "",
        "what varies",
        "axes = { server = \"mariadb\", workload = \"oltp_read_only\" }",
    ),
    key(
        "options",
        "table",
        "",
        "options of every workload of the study",
        "options = { table_size = 100_000 }",
    ),
    key("load", "table", "", "how the load is applied, and for how long", "load = { duration = \"30s\" }"),
    key("line", "table", "", "each run is a search for load lines", "line = { promises = \"p99 < 20ms\" }"),
    key(
        "intervene",
        "tables",
        "",
        "what is changed of the server while it is loaded",
        "intervene = [{ name = \"log\", settings = { general_log = \"ON\" } }]",
    ),
    key("machine", "table", "", "how the machine is to be meanwhile", "machine = { idle = \"as-is\" }"),
    key("fleet", "table", "", "where its blocks are made", "fleet = { on = \"slurm\", nodes = 8 }"),
    key(
        "compare",
        "table",
        "",
        "what is compared with what",
        "compare = { axis = \"server\", base = \"mariadb\" }",
    ),
    key(
        "report",
        "table",
        "",
        "what the report shows beside its common parts",
        "report = { sections = [\"levels\"] }",
    ),
    key("author", "table", "", "who stands for the study", "author = { name = \"Ada Lovelace\" }"),
    key("exclude", "tables", "", "cells that are left out", "exclude = [{ sessions = 1 }]"),
    key("quick", "table", "", "what `--quick` changes", "quick = { blocks = 1, duration = \"2s\" }"),
];

const SERVER: &str = "server, or a list";
const AXES: &[Key] = &[
    key(
        "server",
        SERVER,
        "",
        "builds (flavor[@version]), sandboxes by name, or URLs; needed",
        "server = [\"mariadb\", \"postgres@16\"]",
    ),
    key(
        "workload",
        "workload, or a list",
        "",
        "by name, the path of a .sql or .smack file, or scripts of pgbench's (`pgbench:tpcb-like`); needed",
        "workload = [\"oltp_read_only\", \"tpcb\"]",
    ),
    key(
        "settings",
        "set, or a list",
        "\"default\"",
        "server variables: default, safest, fast, unsafe, or a set of your own",
        "settings = [\"default\", \"fast\"]",
    ),
    key(
        "engine",
        "text, or a list",
        "",
        "storage engine; PostgreSQL has heap and unlogged",
        "engine = [\"InnoDB\", \"MyISAM\"]",
    ),
    key(
        "storage",
        "place, or a list",
        "\"default\"",
        "where data directories are made",
        "storage = [\"default\", { name = \"memory\", datadir = \"tmpfs\" }]",
    ),
    key(
        "cpus",
        "count, list, half or all",
        "",
        "cpus of the server: 2 is a count, \"0-1\" a list",
        "cpus = [1, \"half\", \"all\"]",
    ),
    key(
        "isolation",
        "text, or a list",
        "",
        "read-uncommitted, read-committed, repeatable-read or serializable",
        "isolation = [\"read-committed\", \"serializable\"]",
    ),
    key(
        "charset",
        "text, or a list",
        "",
        "character set, with or without collation",
        "charset = [\"utf8mb4\", \"latin1/latin1_swedish_ci\"]",
    ),
    key(
        "env",
        "environment, or a list",
        "\"none\"",
        "environment of the server's process",
        "env = [\"none\", { name = \"arenas\", set = { MALLOC_ARENA_MAX = 2 } }]",
    ),
    key(
        "options",
        "table of lists",
        "",
        "options of the workloads that vary, each an axis",
        "options = { table_size = [1000, 100_000] }",
    ),
    key(
        "sessions",
        "whole numbers",
        "1",
        "load levels, each a run of its own, at most 65000",
        "sessions = [1, 8, 64]",
    ),
    key(
        "climb",
        "whole numbers",
        "",
        "load levels as ordered steps of one run, instead of `sessions`",
        "climb = [1, 2, 4, 8]",
    ),
];

const LOAD: &[Key] = &[
    key("warmup", "duration", "\"2s\"", "run before each level and not recorded", "warmup = \"5s\""),
    key(
        "duration",
        "duration",
        "\"10s\"",
        "how long a level is measured, from 100ms to a year (ms, s, m, h)",
        "duration = \"1m30s\"",
    ),
    key(
        "transactions",
        "whole number",
        "",
        "measure so many transactions instead of a time",
        "transactions = 10_000",
    ),
    key(
        "blocks",
        "whole number, or { min, max }",
        "5",
        "repeats of everything, each in random order, at most 10000; verdicts need 5; a range goes with `until`",
        "blocks = 7",
    ),
    key(
        "pairing",
        "adjacent or duel",
        "",
        "runs that are compared: one after the other (so without this key), or at the same time, loaded in slices of a \
         second by turns, so that what disturbs the machine disturbs all of them",
        "pairing = \"duel\"",
    ),
    key(
        "until",
        "decided",
        "",
        "end as soon as every primary comparison has a verdict, by tests that allow for a look after each block",
        "until = \"decided\"",
    ),
    key(
        "budget",
        "duration",
        "",
        "with `until`: no block is begun that is not likely to end within this time of runs",
        "budget = \"20m\"",
    ),
    key(
        "think_time",
        "duration",
        "\"0s\"",
        "pause of a session between two transactions (closed loop)",
        "think_time = \"10ms\"",
    ),
    key(
        "backoff",
        "duration",
        "\"0s\"",
        "with `retries`: wait before the first retry; it doubles with each",
        "backoff = \"5ms\"",
    ),
    key(
        "ramp",
        "duration",
        "\"0s\"",
        "connections of a level are opened evenly over this time",
        "ramp = \"5s\"",
    ),
    key(
        "drain",
        "duration",
        "\"5s\"",
        "how long transactions in flight may take to end after the measured phase",
        "drain = \"10s\"",
    ),
    key(
        "rate",
        "number",
        "",
        "open loop: so many transactions arrive in a second, whether or not the server keeps up",
        "rate = 500",
    ),
    key(
        "arrivals",
        "constant or poisson",
        "\"poisson\"",
        "how the arrivals of an open loop are spread",
        "arrivals = \"constant\"",
    ),
    key(
        "retries",
        "whole number",
        "0",
        "attempts after the first one, for deadlocks and the like",
        "retries = 3",
    ),
    key(
        "prime",
        "duration or transactions",
        "",
        "run before the first level with the sessions of the largest one, not recorded",
        "prime = \"10s\"",
    ),
    key(
        "gates",
        "invalid or warn",
        "\"invalid\"",
        "warn: faults of client and machine (client_bound, noisy_host, swapping, cpu_frequency, cache_state) do not make a run invalid",
        "gates = \"warn\"",
    ),
    key(
        "cache",
        "warm or cold",
        "\"warm\"",
        "cold: each run begins with a restarted server and an empty page cache",
        "cache = \"cold\"",
    ),
    key(
        "workers",
        "whole number",
        "",
        "threads of the client, at most 4096; one for two cpus without",
        "workers = 2",
    ),
    key(
        "clients",
        "whole number",
        "1",
        "processes that the sessions are shared out to, where one has too few files or cpus; `workers` is then of each",
        "clients = 4",
    ),
    key(
        "seed",
        "whole number",
        "",
        "of the order of runs and of all that is random in them; drawn, and recorded, without",
        "seed = 42",
    ),
    key(
        "hot_locks",
        "true or false",
        "false",
        "after the blocks, a pass of its own for each cell that finds the hot locks",
        "hot_locks = true",
    ),
    key(
        "client_cpus",
        "list of cpus",
        "",
        "cpus of the client; those that no server gets where `cpus` varies",
        "client_cpus = \"0-1\"",
    ),
    key(
        "phase",
        "duration",
        "",
        "with [[intervene]]: how long a state lasts before the next one is switched (a second without this key); a level's `duration` is that of all phases \
         of a state",
        "phase = \"5s\"",
    ),
];

const INTERVENE: &[Key] = &[
    key("name", "text, needed", "", "what the study calls it", "name = \"general-log\""),
    key("on", "SQL, or a list", "", "what switches it on", "on = \"SET GLOBAL general_log = ON\""),
    key(
        "off",
        "SQL, or a list",
        "",
        "what switches it off; needed with `on`",
        "off = \"SET GLOBAL general_log = OFF\"",
    ),
    key(
        "settings",
        "table",
        "",
        "in place of statements: variables that take effect without a restart; they get their values back",
        "settings = { general_log = \"ON\" }",
    ),
    key(
        "at",
        "duration",
        "",
        "it comes once, so long after the measured phase began, and is not switched on and off: before and after are told, without a verdict",
        "at = \"5s\"",
    ),
    key("sql", "SQL, or a list", "", "with `at`: what comes then", "sql = \"ANALYZE TABLE sbtest1\""),
];

const LINE: &[Key] = &[
    key(
        "promises",
        "text, or a list; needed",
        "",
        "a percentile of the response time below a limit, of all transactions or `of` one class; a share that may fail; `tpcc`",
        "promises = [\"p99 < 20ms\", \"errors < 0.1%\"]",
    ),
    key("budget", "duration", "\"10m\"", "for one search, its holds included", "budget = \"5m\""),
    key("hold", "duration", "\"60s\"", "how long a line is held to confirm it", "hold = \"2m\""),
    key(
        "sessions_max",
        "whole number",
        "256",
        "no more sessions than these are opened",
        "sessions_max = 500",
    ),
];

const COMPARE: &[Key] = &[
    key("axis", "text, needed", "", "the axis whose values are compared", "axis = \"server\""),
    key("base", "value, needed", "", "the value that the others are compared with", "base = \"mariadb\""),
    key(
        "metrics",
        "text, or a list",
        "[\"tps\"]",
        "tps, qps, mean, p50, p95, p99, max or cpu_us_per_transaction; with [line] its promises, by default all",
        "metrics = [\"tps\", \"p95\"]",
    ),
    key(
        "primary",
        "metric, or { metric, AXIS }",
        "",
        "the metric and cells that the study is about: they alone share the error, the rest is secondary",
        "primary = \"tps\"",
    ),
    key("margin", "number", "0.05", "differences below this share count as none", "margin = 0.03"),
    key(
        "gate",
        "verdict, or a list",
        "",
        "not-slower, faster or equivalent, alone or as METRIC:VERDICT: without it `run` ends with 1",
        "gate = \"tps:not-slower\"",
    ),
];

const QUICK: &[Key] = &[
    key(
        "options",
        "table",
        "",
        "options of every workload; an axis of that name goes away",
        "options = { table_size = 1000 }",
    ),
    key("line", "{ budget, hold }", "", "as in [line]", "line = { budget = \"1m\" }"),
    key("sessions", "whole numbers", "", "as in [axes]", "sessions = 1"),
    key("climb", "whole numbers", "", "as in [axes]", "climb = [1, 2]"),
    key("warmup", "duration", "", "as in [load]", "warmup = \"500ms\""),
    key(
        "duration",
        "duration",
        "",
        "as in [load], for workloads with a length of their own too",
        "duration = \"2s\"",
    ),
    key("transactions", "whole number", "", "as in [load]", "transactions = 1000"),
    key("blocks", "whole number", "", "as in [load]", "blocks = 1"),
    key("prime", "duration or transactions", "", "as in [load]", "prime = 1000"),
    key("gates", "invalid or warn", "", "as in [load]", "gates = \"warn\""),
    key("server", SERVER, "", "as in [axes]", "server = \"mariadb\""),
    key("workload", "workload, or a list", "", "as in [axes]", "workload = \"oltp_read_only\""),
    key("settings", "set, or a list", "", "as in [axes]", "settings = \"default\""),
    key("engine", "text, or a list", "", "as in [axes]", "engine = \"InnoDB\""),
    key("storage", "place, or a list", "", "as in [axes]", "storage = \"default\""),
    key("cpus", "count, list, half or all", "", "as in [axes]", "cpus = 1"),
    key("isolation", "text, or a list", "", "as in [axes]", "isolation = \"read-committed\""),
    key("charset", "text, or a list", "", "as in [axes]", "charset = \"utf8mb4\""),
    key("env", "environment, or a list", "", "as in [axes]", "env = \"none\""),
    key("exclude", "tables", "", "instead of the study's own list", "exclude = [{ sessions = 9 }]"),
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
            key(
                "idle",
                "awake or as-is",
                "\"awake\"",
                "whether its cpus are kept from sleeping, and the performance governor is set where there is one",
                "idle = \"as-is\"",
            ),
            key(
                "turbo",
                "off or as-is",
                "\"as-is\"",
                "whether frequencies above the nominal one are switched off",
                "turbo = \"off\"",
            ),
            key(
                "price",
                "amount, currency/h or /month",
                "",
                "what it costs, for reports and bundles to tell; measured again elsewhere, a study has none",
                "price = \"0.40 USD/h\"",
            ),
        ],
    },
    Section {
        name: "[fleet]",
        about: "Where blocks are made: on nodes that a scheduler gives. `plimsoll run --on` and its flags stand in for these.",
        keys: &[
            key(
                "on",
                "slurm",
                "",
                "what gives nodes; without it blocks are made where `run` runs",
                "on = \"slurm\"",
            ),
            key("nodes", "count", "", "nodes at the same time; else as many as there are", "nodes = 8"),
            key("partition", "text", "", "the scheduler's partition", "partition = \"bench\""),
            key("constraint", "text", "", "features that nodes must have", "constraint = \"zen4\""),
            key(
                "time_limit",
                "duration",
                "",
                "a block that takes longer is ended, and made again",
                "time_limit = \"2h\"",
            ),
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
            key(
                "sections",
                "text, or a list",
                "",
                "sections of their own, as the published studies have them",
                "sections = [\"levels\"]",
            ),
            key(
                "published",
                "text, or a list",
                "",
                "published figures to show beside",
                "published = \"israel-2015\"",
            ),
            key(
                "mean_from",
                "whole number",
                "",
                "sessions from which on a mean over levels is taken",
                "mean_from = 5",
            ),
        ],
    },
    Section {
        name: "[author]",
        about: "Who stands for the study; a bundle takes it along.",
        keys: &[
            key("name", "text", "", "who measured", "name = \"Ada Lovelace\""),
            key("contact", "text", "", "where to ask", "contact = \"ada@example.org\""),
            key("licence", "text", "", "what may be done with the results", "licence = \"CC-BY-4.0\""),
            key(
                "disclaimer",
                "text",
                "",
                "what the author wants to have said",
                "disclaimer = \"On one laptop.\"",
            ),
            key(
                "keywords",
                "a list of texts",
                "",
                "what it is found by",
                "keywords = [\"oltp\", \"upgrade\"]",
            ),
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
