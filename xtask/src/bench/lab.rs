//! A private server for a benchmark, and children whose CPU is read from the kernel.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use load::{Length, Pacing, Step};
use sandbox::{Flavor, Home, Sandbox, Spec};
use serde_json::Value;
use wire::Target;
use wire::blocking::Client;
use workload::{Configured, Dialect, LoadAt};

use super::{duels, sysbench, told};

/// The database that sysbench, the floors and Plimsoll use.
pub(super) const DATABASE: &str = "sbtest";
/// Server variables of every benchmark: enough of what many sessions with prepared statements need.
const MARIADB_SETTINGS: &[(&str, &str)] =
    &[("max_connections", "1100"), ("max_prepared_stmt_count", "200000")];
const POSTGRES_SETTINGS: &[(&str, &str)] = &[("max_connections", "1100")];

/// What a server needs to clean up after a client that was ended.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// A sandbox that is destroyed when dropped.
pub(super) struct Server {
    plimsoll: PathBuf,
    sandbox: Sandbox,
}

impl Server {
    /// Deploys `selector` (`mariadb`, `postgres@16`).
    pub(super) fn deploy(plimsoll: &Path, selector: &str) -> Result<Server> {
        let home = Home::find()?;
        let name = format!("bench-{}-{}", selector.replace(['@', '.'], "-"), std::process::id());
        let mut spec = Spec::new(name, duels::build(&home, selector)?);
        let is_postgres = spec.build.flavor == Flavor::Postgres;
        let settings = if is_postgres { POSTGRES_SETTINGS } else { MARIADB_SETTINGS };
        spec.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Ok(Server { plimsoll: plimsoll.to_owned(), sandbox: Sandbox::deploy(&home, &spec, &|_| ())? })
    }

    /// The administrator over the unix socket, with the database.
    pub(super) fn target(&self) -> Target {
        self.sandbox.target(Some(DATABASE))
    }

    /// Its unix socket.
    pub(super) fn socket(&self) -> String {
        self.sandbox.socket().display().to_string()
    }

    /// What Plimsoll takes as SERVER, with the database.
    pub(super) fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// The same with another database of it.
    pub(super) fn url_of(&self, database: &str) -> String {
        let Target { protocol, user, .. } = self.target();
        format!("{}://{user}@localhost/{database}?socket={}", family(protocol), self.socket())
    }

    /// sysbench's connection options.
    pub(super) fn sysbench_options(&self) -> Result<Vec<String>> {
        sysbench::connection(&self.target())
    }

    /// Loads the tables of a workload by running it for a moment.
    pub(super) fn load(&self, workload: &str, rows: u64) -> Result<()> {
        let mut command = self.bench_command(workload, rows, 1, 1);
        command.retain(|argument| argument != "--keep");
        output(Command::new(&self.plimsoll).args(command)).map(drop)
    }

    /// Plimsoll's words for one slice.
    pub(super) fn bench_command(
        &self,
        workload: &str,
        rows: u64,
        sessions: u32,
        seconds: u64,
    ) -> Vec<String> {
        let rows = format!("table_size={rows}");
        let (url, sessions, time) = (self.url(), sessions.to_string(), format!("{seconds}s"));
        let options =
            ["--server", &url, "-o", &rows, "--sessions", &sessions, "--time", &time, "--warmup", "1s"];
        let rest = ["--workers", "1", "--keep", "--json", "-"];
        ["bench", workload].iter().chain(&options).chain(&rest).map(|word| (*word).to_owned()).collect()
    }

    /// One slice by this plimsoll.
    pub(super) fn slice(
        &self,
        plimsoll: &Path,
        workload: &str,
        rows: u64,
        sessions: u32,
        seconds: u64,
    ) -> Result<Slice> {
        Slice::from_json(&output(
            Command::new(plimsoll).args(self.bench_command(workload, rows, sessions, seconds)),
        )?)
    }
}

/// `mysql` or `postgres`.
pub(super) fn family(protocol: wire::Protocol) -> &'static str {
    match protocol {
        wire::Protocol::Mysql => "mysql",
        wire::Protocol::Postgres => "postgres",
    }
}

/// A built-in workload as this server takes it.
pub(super) fn configured(
    target: &Target,
    workload: &str,
    options: &[(&str, &str)],
) -> Result<Box<dyn Configured>> {
    let client = Client::connect(target)?;
    let dialect = Dialect::of_server(target.protocol, &client.server().version);
    client.close();
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(workload::find(workload).context("a built-in workload")?.configure(&options, dialect)?)
}

/// Loading a server of one's own over so many connections.
pub(super) fn load_at(target: &Target, connections: usize) -> LoadAt {
    LoadAt { target: target.clone(), connections, is_own_server: true, stop: load::Stop::new() }
}

/// A level of closed loop.
pub(super) fn closed(sessions: u32, warmup_s: u64, length: Length) -> Step {
    Step { sessions, warmup: Duration::from_secs(warmup_s), length, pacing: Pacing::Closed }
}

/// Memory of a process that is resident (proc(5), status).
pub(super) fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")
}

/// Runs a command to its end; its standard output.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("running {command:?}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("{command:?} ended with {}\n{text}{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(text)
}

/// What a slice of load cost the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    /// Statements per second.
    pub(super) qps: f64,
    /// CPU per statement, in us.
    pub(super) user_us: f64,
    /// CPU per statement, user and system, in us.
    pub(super) total_us: f64,
}

impl Slice {
    pub(super) fn new(statements: f64, seconds: f64, user_s: f64, sys_s: f64) -> Slice {
        Slice {
            qps: statements / seconds,
            user_us: user_s * 1e6 / statements,
            total_us: (user_s + sys_s) * 1e6 / statements,
        }
    }

    /// From the last JSON object that a program printed.
    pub(super) fn from_json(text: &str) -> Result<Slice> {
        let line = text.lines().rev().find(|line| line.starts_with('{')).context("no JSON was printed")?;
        let json: Value = serde_json::from_str(line)?;
        let number = |pointer: &str| {
            json.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no {pointer} in {line}"))
        };
        Ok(Slice::new(
            number("/statements")?,
            number("/duration_s")?,
            number("/client/cpu_user_s")?,
            number("/client/cpu_sys_s")?,
        ))
    }
}

/// One slice of the steady phase of sysbench, or of what is called like it: the kernel's CPU time once `settle` s have
/// passed and again `seconds` later, and the statements that its reports of each second tell. It is ended then.
pub(super) fn steady_slice(command: &mut Command, settle: u64, seconds: u64) -> Result<Slice> {
    let text = format!("{command:?}");
    let mut child = command
        .args([format!("--time={}", settle + seconds + 60), "--report-interval=1".to_owned()])
        .arg("run")
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {text}"))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let (mut began, mut ended, mut queries, mut printed) = (None, None, 0.0, String::new());
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some((second, qps)) = report_line(&line) {
            if second == settle {
                began = Some((cpu_of(child.id())?, Instant::now()));
            } else if began.is_some() {
                queries += qps;
            }
            if second == settle + seconds {
                ended = Some((cpu_of(child.id())?, Instant::now()));
                break;
            }
        }
        printed += &line;
        printed.push('\n');
    }
    // It has nothing more to tell; its connections end with it.
    child.kill()?;
    let status = child.wait()?;
    std::thread::sleep(AFTER_KILL);
    let (Some((before, began)), Some((after, ended))) = (began, ended) else {
        bail!("{text} ended with {status}\n{printed}");
    };
    Ok(Slice::new(queries, (ended - began).as_secs_f64(), after.0 - before.0, after.1 - before.1))
}

/// `[ 10s ] thds: 24 tps: 375.19 qps: 8059.91 (r/w/o: ...`
fn report_line(line: &str) -> Option<(u64, f64)> {
    let second = line.strip_prefix("[ ")?.split_once("s ]")?.0.parse().ok()?;
    let qps = line.split_once(" qps: ")?.1.split_whitespace().next()?.parse().ok()?;
    Some((second, qps))
}

/// User and system CPU of a process and its threads, in s (proc(5), stat).
pub(super) fn cpu_of(pid: u32) -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat")))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // SAFETY: a plain question to the C library.
    let tick = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, sys) = ticks(11).zip(ticks(12)).context("/proc/PID/stat has too few fields")?;
    Ok((user / tick, sys / tick))
}

/// Prints the medians of some slices.
pub(super) fn print_slices(who: &str, slices: &[Slice]) {
    let middle = |what: fn(&Slice) -> f64| median(slices.iter().map(what).collect());
    println!(
        "  {who:9} {:8.0} statements/s  user {:5.2} us  total {:5.2} us a statement",
        middle(|slice| slice.qps),
        middle(|slice| slice.user_us),
        middle(|slice| slice.total_us)
    );
}

/// The ratios of slices that were measured one after the other.
pub(super) fn paired(ours: &[Slice], theirs: &[Slice], what: fn(&Slice) -> f64) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| what(ours) / what(theirs)).collect()
}

/// The middle one of some values.
pub(super) fn median(values: Vec<f64>) -> f64 {
    stats::median(&values).unwrap_or(f64::NAN)
}

/// A slice of each of `sides` in each of so many rounds. Each begins one round in as many: what follows whom evens out.
pub(super) fn in_turns<const SIDES: usize>(
    sides: usize,
    rounds: usize,
    mut slice: impl FnMut(usize) -> Result<Slice>,
) -> Result<[Vec<Slice>; SIDES]> {
    let mut slices = std::array::from_fn(|_| Vec::new());
    for turn in 0..rounds * sides {
        let at = (turn / sides + turn % sides) % sides;
        slices[at].push(slice(at)?);
    }
    Ok(slices)
}

/// Mean of paired ratios with its 95 % interval, from their logarithms (Student's t).
pub(super) fn ratio_interval(ratios: &[f64]) -> (f64, f64, f64) {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let half = stats::student::quantile(0.975, n - 1.0) * (variance / n).sqrt();
    (mean.exp(), (mean - half).exp(), (mean + half).exp())
}

/// One server of each family.
pub(super) const FAMILIES: [&str; 2] = ["mariadb", "postgres"];

/// Asks for a figure on each of these servers, and says whether all reached it.
pub(super) fn each_server(
    servers: &[impl AsRef<str>],
    one_server: impl Fn(&Home, &str) -> Result<bool>,
) -> Result<bool> {
    let home = Home::find()?;
    let mut is_reached = true;
    for selector in servers.iter().map(AsRef::as_ref) {
        is_reached &= one_server(&home, selector).with_context(|| selector.to_owned())?;
    }
    told(is_reached)
}

/// Asks for a figure on each server named, by default one of each family, and says whether all reached it.
pub(super) fn on_both_families(
    arguments: &[&str],
    one_server: impl Fn(&Home, &str) -> Result<bool>,
) -> Result<bool> {
    each_server(if arguments.is_empty() { &FAMILIES[..] } else { arguments }, one_server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_equal_ratios_is_a_point() {
        let (mean, low, high) = ratio_interval(&[1.1, 1.1, 1.1]);
        assert!((mean - 1.1).abs() < 1e-9 && (low - 1.1).abs() < 1e-6 && (high - 1.1).abs() < 1e-6);
        let (_, low, high) = ratio_interval(&[0.9, 1.1, 1.0, 1.05, 0.95]);
        assert!(low < 1.0 && high > 1.0);
    }

    #[test]
    fn reports_of_sysbench_are_read() {
        let line =
            "[ 10s ] thds: 24 tps: 375.19 qps: 8059.91 (r/w/o: 1/2/3) lat (ms,95%): 106.75 err/s: 44.76";
        assert_eq!(report_line(line), Some((10, 8059.91)));
        assert_eq!(report_line("Threads started!"), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_slice_is_read_from_the_last_object() {
        let text = "noise\n{\"statements\": 1000, \"duration_s\": 2.0, \
                    \"client\": {\"cpu_user_s\": 0.001, \"cpu_sys_s\": 0.003}}\n";
        let slice = Slice::from_json(text).unwrap();
        assert_eq!((slice.qps, slice.user_us, slice.total_us), (500.0, 1.0, 4.0));
    }
}
