//! The command line, read as pgbench reads it: short options bundled, long ones abbreviated, operands anywhere.

#[cfg(test)]
mod tests;

use pgscript::builtin;
use wire::Target;
use workload::scripted::QueryMode;

use crate::Refusal;
use crate::target::Place;

/// What `--help` says.
pub const HELP: &str = "\
plimsoll pgbench runs pgbench's command line on Plimsoll's load engine.

Usage:
  plimsoll pgbench [OPTION]... [DBNAME]

Initialization options:
  -i, --initialize         make the tables
  -I, --init-steps=STEPS   of d(rop) t(ables) g(enerate here) G(enerate on the server) v(acuum) p(rimary keys)
                           f(oreign keys); default dtgvp
  -F, --fillfactor=NUM     fill factor of the tables
  -n, --no-vacuum          no step v
  -q, --quiet              tell progress each 5 seconds
  -s, --scale=NUM          scaling factor: 100,000 accounts each
  --foreign-keys           step f beside the others
  --index-tablespace=NAME, --tablespace=NAME, --unlogged-tables
  --partitions=NUM, --partition-method=range|hash

What to run:
  -b, --builtin=NAME[@W]   a built-in script, with weight W (-b list lists them)
  -f, --file=FILENAME[@W]  a script of one's own
  -N, --skip-some-updates  -b simple-update
  -S, --select-only        -b select-only
  --show-script=NAME       print a built-in script

Benchmarking options:
  -c, --client=NUM         clients (1)
  -C, --connect            a new connection for each transaction
  -D, --define=NAME=VALUE  set a variable
  -j, --jobs=NUM           threads (1)
  -l, --log                write each transaction to a file
  -L, --latency-limit=MS   count transactions that take longer; with -R skip those that are too late
  -M, --protocol=simple|extended|prepared
  -n, --no-vacuum          do not vacuum before
  -P, --progress=SECONDS   tell progress
  -r, --report-per-command figures of each command
  -R, --rate=TPS           transactions arrive at this rate
  -s, --scale=NUM          the scale, where no built-in script tells
  -t, --transactions=NUM   of each client (10)
  -T, --time=SECONDS       how long to run
  -v, --vacuum-all         vacuum all tables before
  --aggregate-interval=SECONDS, --log-prefix=PREFIX, --sampling-rate=SHARE
  --exit-on-abort, --failures-detailed, --max-tries=NUM, --verbose-errors
  --progress-timestamp, --random-seed=time|rand|NUM
  --allow-shell            let scripts run \\shell and \\setshell (Plimsoll's own option)

Common options:
  -d, --dbname=DBNAME      database, or where it is: a URL, or 'host=/run/pg dbname=test user=me'
  --debug                  tell what is done
  -h, --host=HOST          server or the directory of its socket
  -p, --port=PORT          its port
  -U, --username=NAME      user
  -V, --version            print the version
  -?, --help               print this

Examples:
  eval \"$(plimsoll sandbox env pg1)\" && plimsoll pgbench -i -s 2
  eval \"$(plimsoll sandbox env pg1)\" && plimsoll pgbench -c 8 -j 2 -T 3 -P 1
";

/// What the command line asks for.
pub(crate) enum Asked {
    /// A text on standard output.
    Text(String),
    /// A text on standard error.
    List(String),
    Initialise(Target, Box<Initialise>),
    Run(Target, Box<Run>),
}

/// Making the tables.
#[derive(Debug, Default)]
pub(crate) struct Initialise {
    pub(crate) steps: String,
    pub(crate) scale: u64,
    pub(crate) fillfactor: u32,
    pub(crate) is_quiet: bool,
    pub(crate) is_unlogged: bool,
    pub(crate) tablespace: Option<String>,
    pub(crate) index_tablespace: Option<String>,
    pub(crate) partitions: u32,
    pub(crate) is_by_hash: bool,
}

/// A script to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) source: Source,
    pub(crate) weight: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    Builtin(&'static builtin::Builtin),
    File(String),
}

/// A benchmark.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) scripts: Vec<Chosen>,
    pub(crate) clients: u32,
    pub(crate) threads: usize,
    pub(crate) is_reconnecting: bool,
    pub(crate) defined: Vec<(String, String)>,
    pub(crate) has_log: bool,
    pub(crate) log_prefix: String,
    pub(crate) aggregate_s: Option<u64>,
    pub(crate) sampling_rate: f64,
    pub(crate) latency_limit_ms: Option<f64>,
    pub(crate) mode: QueryMode,
    pub(crate) vacuums: bool,
    pub(crate) vacuums_all: bool,
    pub(crate) progress_s: Option<u64>,
    pub(crate) has_timestamps: bool,
    pub(crate) reports_commands: bool,
    pub(crate) rate_tps: Option<f64>,
    pub(crate) scale: Option<u64>,
    pub(crate) transactions: u64,
    pub(crate) duration_s: Option<u64>,
    pub(crate) seed: Option<String>,
    pub(crate) tries_max: u32,
    pub(crate) details_failures: bool,
    pub(crate) tells_errors: bool,
    pub(crate) exits_on_abort: bool,
    pub(crate) allows_shell: bool,
}

/// Long name, short name, whether it takes a value.
const OPTIONS: [(&str, char, bool); 46] = [
    ("builtin", 'b', true),
    ("client", 'c', true),
    ("connect", 'C', false),
    ("dbname", 'd', true),
    ("define", 'D', true),
    ("file", 'f', true),
    ("fillfactor", 'F', true),
    ("host", 'h', true),
    ("initialize", 'i', false),
    ("init-steps", 'I', true),
    ("jobs", 'j', true),
    ("log", 'l', false),
    ("latency-limit", 'L', true),
    ("no-vacuum", 'n', false),
    ("port", 'p', true),
    ("progress", 'P', true),
    ("protocol", 'M', true),
    ("quiet", 'q', false),
    ("report-per-command", 'r', false),
    ("report-latencies", 'r', false),
    ("rate", 'R', true),
    ("scale", 's', true),
    ("select-only", 'S', false),
    ("skip-some-updates", 'N', false),
    ("time", 'T', true),
    ("transactions", 't', true),
    ("username", 'U', true),
    ("vacuum-all", 'v', false),
    ("version", 'V', false),
    ("help", '?', false),
    ("unlogged-tables", '\0', false),
    ("tablespace", '\0', true),
    ("index-tablespace", '\0', true),
    ("sampling-rate", '\0', true),
    ("aggregate-interval", '\0', true),
    ("progress-timestamp", '\0', false),
    ("log-prefix", '\0', true),
    ("foreign-keys", '\0', false),
    ("random-seed", '\0', true),
    ("show-script", '\0', true),
    ("partitions", '\0', true),
    ("partition-method", '\0', true),
    ("failures-detailed", '\0', false),
    ("max-tries", '\0', true),
    ("verbose-errors", '\0', false),
    ("exit-on-abort", '\0', false),
];
/// Those that pgbench has not, or has without a word of its own in a benchmark.
const MORE: [(&str, char, bool); 2] = [("debug", '\0', false), ("allow-shell", '\0', false)];

/// Options by their long names, and the operand.
#[derive(Default)]
struct Given {
    options: Vec<(&'static str, String)>,
    operands: Vec<String>,
}

fn hinted(text: String) -> Refusal {
    Refusal { text, more: Some("hint: Try \"pgbench --help\" for more information.".to_owned()) }
}

fn read(arguments: &[String]) -> Result<Given, Refusal> {
    let mut given = Given::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            given.operands.extend(words.cloned());
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let (known, takes_value) = long_option(name)?;
            let value = match (takes_value, value) {
                (true, Some(value)) => value,
                (true, None) => words
                    .next()
                    .cloned()
                    .ok_or_else(|| hinted(format!("option '--{known}' requires an argument")))?,
                (false, None) => String::new(),
                (false, Some(_)) => {
                    return Err(hinted(format!("option '--{known}' doesn't allow an argument")));
                }
            };
            given.options.push((known, value));
        } else if word.len() > 1 && word.starts_with('-') {
            short_options(&word[1..], &mut words, &mut given)?;
        } else {
            given.operands.push(word.clone());
        }
    }
    Ok(given)
}

fn all_options() -> impl Iterator<Item = &'static (&'static str, char, bool)> {
    OPTIONS.iter().chain(&MORE)
}

fn long_option(name: &str) -> Result<(&'static str, bool), Refusal> {
    if let Some((known, _, takes)) = all_options().find(|(known, ..)| *known == name) {
        return Ok((*known, *takes));
    }
    let fitting: Vec<_> = all_options().filter(|(known, ..)| known.starts_with(name)).collect();
    match fitting.as_slice() {
        [(known, _, takes)] => Ok((*known, *takes)),
        [] => Err(hinted(format!("unrecognized option '--{name}'"))),
        _ => {
            let names: Vec<String> = fitting.iter().map(|(known, ..)| format!("'--{known}'")).collect();
            Err(hinted(format!("option '--{name}' is ambiguous; possibilities: {}", names.join(" "))))
        }
    }
}

fn short_options<'a>(
    word: &str,
    words: &mut impl Iterator<Item = &'a String>,
    given: &mut Given,
) -> Result<(), Refusal> {
    for (at, letter) in word.char_indices() {
        let found = OPTIONS.iter().find(|(_, short, _)| *short == letter && letter != '\0');
        let Some((name, _, takes_value)) = found else {
            return Err(hinted(format!("invalid option -- '{letter}'")));
        };
        if !takes_value {
            given.options.push((*name, String::new()));
            continue;
        }
        let rest = &word[at + letter.len_utf8()..];
        let value = match rest.is_empty() {
            false => rest.to_owned(),
            true => words
                .next()
                .cloned()
                .ok_or_else(|| hinted(format!("option requires an argument -- '{letter}'")))?,
        };
        given.options.push((*name, value));
        break;
    }
    Ok(())
}

/// A number in a range, with pgbench's words for what is none.
fn number(value: &str, option: &str, least: i64) -> Result<i64, Refusal> {
    let most = i64::from(i32::MAX);
    match value.trim().parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) => Err(Refusal::new(format!("{option} must be in range {least}..{most}"))),
        Err(_) => Err(Refusal::new(format!("invalid value \"{value}\" for option {option}"))),
    }
}

pub(crate) fn parse(arguments: &[String]) -> Result<Asked, Refusal> {
    let given = read(arguments)?;
    if given.options.iter().any(|(name, _)| *name == "help") {
        return Ok(Asked::Text(HELP.to_owned()));
    }
    if given.options.iter().any(|(name, _)| *name == "version") {
        let version = env!("CARGO_PKG_VERSION");
        return Ok(Asked::Text(format!("pgbench (PostgreSQL) 17.0 (Plimsoll {version})\n")));
    }
    let mut reader = Reader::new();
    for (name, value) in &given.options {
        if let Some(asked) = reader.take(name, value)? {
            return Ok(asked);
        }
    }
    reader.finish(&given.operands)
}

/// What was read so far.
struct Reader {
    is_initialising: bool,
    of_run: Vec<&'static str>,
    of_initialisation: Vec<&'static str>,
    tables: Initialise,
    run: Run,
    place: Place,
}

const OF_INITIALISATION: [&str; 9] = [
    "init-steps",
    "fillfactor",
    "quiet",
    "foreign-keys",
    "unlogged-tables",
    "tablespace",
    "index-tablespace",
    "partitions",
    "partition-method",
];
const OF_BOTH: [&str; 9] =
    ["dbname", "host", "port", "username", "no-vacuum", "scale", "initialize", "debug", "show-script"];

impl Reader {
    /// With pgbench's defaults.
    fn new() -> Reader {
        Reader {
            is_initialising: false,
            of_run: Vec::new(),
            of_initialisation: Vec::new(),
            tables: Initialise { steps: "dtgvp".to_owned(), fillfactor: 100, ..Initialise::default() },
            run: Run {
                clients: 1,
                threads: 1,
                log_prefix: "pgbench_log".to_owned(),
                vacuums: true,
                transactions: 10,
                tries_max: 1,
                ..Run::default()
            },
            place: Place::default(),
        }
    }

    fn take(&mut self, name: &'static str, value: &str) -> Result<Option<Asked>, Refusal> {
        if OF_INITIALISATION.contains(&name) {
            self.of_initialisation.push(name);
        } else if !OF_BOTH.contains(&name) {
            self.of_run.push(name);
        }
        let text = || Some(value.to_owned());
        match name {
            "initialize" => self.is_initialising = true,
            "init-steps" => self.tables.steps = steps(value)?,
            "fillfactor" => self.tables.fillfactor = percent(value)?,
            "scale" => self.run.scale = Some(number(value, "-s/--scale", 1)? as u64),
            "quiet" => self.tables.is_quiet = true,
            "no-vacuum" => self.run.vacuums = false,
            "unlogged-tables" => self.tables.is_unlogged = true,
            "tablespace" => self.tables.tablespace = text(),
            "index-tablespace" => self.tables.index_tablespace = text(),
            "partitions" => self.tables.partitions = number(value, "--partitions", 0)? as u32,
            "partition-method" => self.tables.is_by_hash = is_hash(value)?,
            "host" => self.place.host = text(),
            "port" => self.place.port = text(),
            "username" => self.place.user = text(),
            "dbname" => self.place.database = text(),
            "show-script" => return show(value).map(Some),
            "builtin" if value == "list" => return Ok(Some(Asked::List(list()))),
            _ => self.of_run(name, value)?,
        }
        Ok(None)
    }

    fn of_run(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let run = &mut self.run;
        match name {
            "builtin" => {
                let (name, weight) = weighted(value)?;
                run.scripts.push(Chosen { source: Source::Builtin(find(name)?), weight });
            }
            "select-only" | "skip-some-updates" => {
                let name = if name == "select-only" { "select-only" } else { "simple-update" };
                run.scripts.push(Chosen { source: Source::Builtin(find(name)?), weight: 1 });
            }
            "file" => {
                let (name, weight) = weighted(value)?;
                run.scripts.push(Chosen { source: Source::File(name.to_owned()), weight });
            }
            "client" => run.clients = number(value, "-c/--clients", 1)? as u32,
            "jobs" => run.threads = number(value, "-j/--jobs", 1)? as usize,
            "connect" => run.is_reconnecting = true,
            "define" => match value.split_once('=') {
                Some((name, value)) if !name.is_empty() => {
                    run.defined.push((name.to_owned(), value.to_owned()))
                }
                _ => return Err(Refusal::new(format!("invalid variable definition: \"{value}\""))),
            },
            "log" => run.has_log = true,
            "log-prefix" => run.log_prefix = value.to_owned(),
            "aggregate-interval" => {
                run.aggregate_s = Some(number(value, "--aggregate-interval", 1)? as u64);
            }
            "sampling-rate" => {
                run.sampling_rate = value.parse::<f64>().unwrap_or(0.0);
                if !(run.sampling_rate > 0.0 && run.sampling_rate <= 1.0) {
                    return Err(Refusal::new(format!("invalid sampling rate: \"{value}\"")));
                }
            }
            "latency-limit" => run.latency_limit_ms = Some(positive(value, "invalid latency limit")?),
            "rate" => run.rate_tps = Some(positive(value, "invalid rate limit")?),
            "protocol" => run.mode = mode(value)?,
            "vacuum-all" => run.vacuums_all = true,
            "progress" => run.progress_s = Some(number(value, "-P/--progress", 1)? as u64),
            "progress-timestamp" => run.has_timestamps = true,
            "report-per-command" | "report-latencies" => run.reports_commands = true,
            "transactions" => run.transactions = number(value, "-t/--transactions", 1)? as u64,
            "time" => run.duration_s = Some(number(value, "-T/--time", 1)? as u64),
            "random-seed" => run.seed = Some(value.to_owned()),
            "max-tries" => {
                let tries = value.parse::<u32>();
                let tries =
                    tries.map_err(|_| Refusal::new(format!("invalid number of maximum tries: \"{value}\"")));
                run.tries_max = tries?;
            }
            "failures-detailed" => run.details_failures = true,
            "verbose-errors" => run.tells_errors = true,
            "exit-on-abort" => run.exits_on_abort = true,
            "allow-shell" => run.allows_shell = true,
            // `foreign-keys` is asked for by its name, and `debug` tells nothing that is not told elsewhere.
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self, operands: &[String]) -> Result<Asked, Refusal> {
        if let Some(extra) = operands.get(1) {
            return Err(hinted(format!("too many command-line arguments (first is \"{extra}\")")));
        }
        let mut place = std::mem::take(&mut self.place);
        place.database = operands.first().cloned().or(place.database);
        let target = place.target()?;
        if self.is_initialising {
            if !self.of_run.is_empty() {
                return Err(Refusal::new(
                    "some of the specified options cannot be used in initialization (-i) mode",
                ));
            }
            return self.initialise().map(|asked| Asked::Initialise(target, Box::new(asked)));
        }
        if !self.of_initialisation.is_empty() {
            return Err(Refusal::new("some of the specified options cannot be used in benchmarking mode"));
        }
        self.run().map(|asked| Asked::Run(target, Box::new(asked)))
    }

    fn initialise(self) -> Result<Initialise, Refusal> {
        let is_given = |name| self.of_initialisation.contains(&name);
        let mut asked = self.tables;
        if asked.partitions == 0 && is_given("partition-method") {
            return Err(Refusal::new("--partition-method requires greater than zero --partitions"));
        }
        if !self.run.vacuums {
            asked.steps.retain(|step| step != 'v');
        }
        if is_given("foreign-keys") && !asked.steps.contains('f') {
            asked.steps.push('f');
        }
        asked.scale = self.run.scale.unwrap_or(1);
        Ok(asked)
    }

    fn run(self) -> Result<Run, Refusal> {
        let refuse = |text: &str| Err(Refusal::new(text));
        let is_given = |name| self.of_run.contains(&name);
        let mut run = self.run;
        if is_given("transactions") && run.duration_s.is_some() {
            return refuse("specify either a number of transactions (-t) or a duration (-T), not both");
        }
        if run.sampling_rate > 0.0 && !run.has_log {
            return refuse("log sampling (--sampling-rate) is allowed only when logging transactions (-l)");
        }
        if run.sampling_rate > 0.0 && run.aggregate_s.is_some() {
            return refuse(
                "log sampling (--sampling-rate) and aggregation (--aggregate-interval) cannot be used at the same time",
            );
        }
        if run.aggregate_s.is_some() && !run.has_log {
            return refuse("log aggregation is allowed only when actually logging transactions");
        }
        if is_given("log-prefix") && !run.has_log {
            return refuse("log file prefix (--log-prefix) is allowed only when logging transactions (-l)");
        }
        if let (Some(aggregate), Some(duration)) = (run.aggregate_s, run.duration_s) {
            if aggregate > duration {
                return Err(Refusal::new(format!(
                    "number of seconds for aggregation ({aggregate}) must not be higher than test duration ({duration})"
                )));
            }
            if duration % aggregate > 0 {
                return Err(Refusal::new(format!(
                    "duration ({duration}) must be a multiple of aggregation interval ({aggregate})"
                )));
            }
        }
        if run.has_timestamps && run.progress_s.is_none() {
            return refuse("--progress-timestamp is allowed only under --progress");
        }
        if run.tries_max == 0 && run.latency_limit_ms.is_none() && run.duration_s.is_none() {
            return refuse(
                "an unlimited number of transaction tries can only be used with --latency-limit or a duration (-T)",
            );
        }
        if run.scripts.is_empty() {
            run.scripts.push(Chosen { source: Source::Builtin(&builtin::ALL[0]), weight: 1 });
        }
        if run.scripts.iter().all(|script| script.weight == 0) {
            return refuse("total script weight must not be zero");
        }
        run.threads = run.threads.min(run.clients as usize);
        run.seed = run.seed.or_else(|| std::env::var("PGBENCH_RANDOM_SEED").ok());
        Ok(run)
    }
}

fn steps(value: &str) -> Result<String, Refusal> {
    let wrong = value.chars().find(|step| !"dtgGvpf ".contains(*step));
    if value.is_empty() {
        return Err(Refusal::new("no initialization steps specified"));
    }
    match wrong {
        None => Ok(value.to_owned()),
        Some(step) => Err(Refusal {
            text: format!("unrecognized initialization step \"{step}\""),
            more: Some("detail: Allowed step characters are: \"dtgGvpf\".".to_owned()),
        }),
    }
}

fn percent(value: &str) -> Result<u32, Refusal> {
    match value.parse::<u32>() {
        Ok(number @ 10..=100) => Ok(number),
        Ok(_) => Err(Refusal::new("-F/--fillfactor must be in range 10..100")),
        Err(_) => Err(Refusal::new(format!("invalid value \"{value}\" for option -F/--fillfactor"))),
    }
}

/// A method of partitioning.
fn is_hash(value: &str) -> Result<bool, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        method @ ("range" | "hash") => Ok(method == "hash"),
        _ => Err(Refusal::new(format!(
            "invalid partition method, expecting \"range\" or \"hash\", got: \"{value}\""
        ))),
    }
}

fn mode(value: &str) -> Result<QueryMode, Refusal> {
    match value {
        "simple" => Ok(QueryMode::Simple),
        "extended" => Ok(QueryMode::Extended),
        "prepared" => Ok(QueryMode::Prepared),
        other => Err(Refusal::new(format!("invalid query mode (-M): \"{other}\""))),
    }
}

fn positive(value: &str, problem: &str) -> Result<f64, Refusal> {
    match value.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(Refusal::new(format!("{problem}: \"{value}\""))),
    }
}

fn weighted(value: &str) -> Result<(&str, u64), Refusal> {
    match value.rsplit_once('@') {
        Some((name, weight)) => match weight.parse::<i64>() {
            Ok(number) if (0..=i64::from(i32::MAX)).contains(&number) => Ok((name, number as u64)),
            Ok(number) => {
                Err(Refusal::new(format!("weight specification out of range (0 .. 2147483647): {number}")))
            }
            Err(_) => Err(Refusal::new(format!("invalid weight specification: @{weight}"))),
        },
        None => Ok((value, 1)),
    }
}

fn list() -> String {
    let mut text = "Available builtin scripts:\n".to_owned();
    for script in &builtin::ALL {
        text.push_str(&format!("  {:>13}: {}\n", script.name, script.description));
    }
    text
}

fn find(name: &str) -> Result<&'static builtin::Builtin, Refusal> {
    match builtin::matching(name).as_slice() {
        [only] => Ok(only),
        [] => Err(Refusal::new(format!("no builtin script found for name \"{name}\"\n{}", list()))),
        several => Err(Refusal::new(format!(
            "ambiguous builtin name: {} builtin scripts found for prefix \"{name}\"\n{}",
            several.len(),
            list()
        ))),
    }
}

fn show(name: &str) -> Result<Asked, Refusal> {
    let script = find(name)?;
    Ok(Asked::List(format!("-- {}: {}\n{}", script.name, script.description, script.text)))
}
