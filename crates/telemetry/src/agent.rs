//! The samplers of host and server process on another machine: `plimsoll agent`, which a server's measurer starts there by
//! ssh. It looks when it is told a time and answers with what it saw, one line of JSON each, and ends with its input. It
//! only reads.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::{Endpoint, Target};

use crate::foreign::ForeignProcess;
use crate::local::local_server;
use crate::sampler::{Cost, Missing, System, Telemetry};
use crate::track::{Kind, Tracks};

/// The command of an agent.
pub const COMMAND: &str = "agent";

/// An agent that says nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How an agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Program and arguments, by which people call it, too.
    words: Vec<String>,
}

/// What an agent says first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
    /// The server's process there.
    server_pid: Option<u32>,
}

/// What it saw at one time.
#[derive(Debug, Serialize, Deserialize)]
struct Sample {
    source: String,
    name: String,
    instance: String,
    unit: String,
    is_counter: bool,
    value: f64,
}

/// What it says last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Farewell {
    /// What could not be measured, and why.
    missing: Vec<(String, String)>,
    /// By sampler: passes, cpu seconds, longest and mean pass in ms.
    costs: Vec<(String, u32, f64, f64, f64)>,
    /// Name, process and cpu seconds.
    busiest_foreign: Option<(String, u32, f64)>,
}

impl Agent {
    /// One on `[user@]host[:program]`, by ssh, for the server that `target` is an address of. Without a program it is
    /// `plimsoll` in the path there.
    pub fn by_ssh(place: &str, target: &Target) -> Agent {
        let (host, program) = place.split_once(':').unwrap_or((place, "plimsoll"));
        let endpoint = match &target.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            Endpoint::Tcp { port, .. } => port.to_string(),
        };
        // Nobody is there to type a password or to say yes to an unknown host.
        let words = ["ssh", "-T", "-o", "BatchMode=yes", "--", host, program, COMMAND, &endpoint];
        Agent { words: words.map(str::to_owned).into() }
    }

    /// Whether it can be started, and sees the server.
    ///
    /// # Errors
    /// Why not, with its last words.
    pub fn check(&self) -> Result<(), String> {
        Open::start(self).map(drop)
    }
}

/// Serves until its input ends. `endpoint`: port or socket of the server on this machine; `version` is this program's.
///
/// # Errors
/// Input or output is broken.
pub fn serve(
    endpoint: &str,
    version: &str,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<()> {
    let url = match endpoint.parse::<u16>() {
        Ok(port) => format!("mysql://root@127.0.0.1:{port}/"),
        Err(_) => format!("mysql://root@localhost/?socket={endpoint}"),
    };
    let target = Target::parse(&url).map_err(io::Error::other)?;
    let local = local_server(&target);
    let (server_pid, datadir) = local.map_or((None, None), |local| (Some(local.pid), local.datadir));
    say(&Hello { version: version.to_owned(), server_pid }, output)?;
    let mut system = System::new(server_pid, datadir.as_deref(), &[]);
    while let Some(t) = hear::<f64>(input)? {
        let mut tracks = Tracks::default();
        system.sample(t, &mut tracks);
        let samples: Vec<Sample> = tracks
            .into_vec()
            .into_iter()
            .filter_map(|track| {
                Some(Sample {
                    source: track.source.to_owned(),
                    name: track.name.to_owned(),
                    instance: track.instance,
                    unit: track.unit.to_owned(),
                    is_counter: track.kind == Kind::Counter,
                    value: track.points.last()?.1,
                })
            })
            .collect();
        say(&samples, output)?;
    }
    let seen = system.end();
    say(
        &Farewell {
            missing: seen.missing.into_iter().map(|missing| (missing.what, missing.why)).collect(),
            costs: seen
                .costs
                .iter()
                .map(|cost| {
                    (cost.sampler.to_owned(), cost.passes, cost.cpu_s, cost.pass_ms_max, cost.pass_ms_mean)
                })
                .collect(),
            busiest_foreign: seen.busiest_foreign.map(|process| (process.name, process.pid, process.cpu_s)),
        },
        output,
    )
}

fn say(message: &impl Serialize, output: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// The next message; `None`: the input is over.
fn hear<M: for<'de> Deserialize<'de>>(input: &mut dyn BufRead) -> io::Result<Option<M>> {
    let mut line = String::new();
    match input.take(LINE_BYTES_MAX).read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// Of what an agent says; thousands of samples have less.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// An agent at work.
pub(crate) struct Open {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Open {
    pub(crate) fn start(agent: &Agent) -> Result<Open, String> {
        let called = agent.words.join(" ");
        let mut child = Command::new(&agent.words[0])
            .args(&agent.words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`{called}` cannot be started: {error}"))?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut stdout = BufReader::new(stdout);
                let mut line = String::new();
                while let Ok(1..) = (&mut stdout).take(LINE_BYTES_MAX).read_line(&mut line) {
                    if sender.send(std::mem::take(&mut line)).is_err() {
                        return;
                    }
                }
            });
        }
        let orders = child.stdin.take();
        let mut open = Open { child, orders, lines };
        let hello: Hello = open.next().map_err(|why| format!("`{called}` {why}"))?;
        let own = env!("CARGO_PKG_VERSION");
        if hello.version != own {
            return Err(format!(
                "`{called}` is plimsoll {}, and this is {own}: use one version",
                hello.version
            ));
        }
        if hello.server_pid.is_none() {
            return Err(format!(
                "`{called}` sees no server there: its process shows itself to root and to its own user"
            ));
        }
        Ok(open)
    }

    fn next<M: for<'de> Deserialize<'de>>(&mut self) -> Result<M, String> {
        let line = self.lines.recv_timeout(SILENCE_MAX).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("said nothing for {} s", SILENCE_MAX.as_secs()),
            RecvTimeoutError::Disconnected => self.last_words(),
        })?;
        serde_json::from_str(&line).map_err(|_| "said what no agent says".to_owned())
    }

    fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(2_000).read_to_string(&mut words);
        }
        let words = wire::shown(words.trim()).into_owned();
        if words.is_empty() { "ended".to_owned() } else { format!("ended: {words}") }
    }

    /// What it sees now, noted at `t`.
    pub(crate) fn sample(&mut self, t: f64, tracks: &Mutex<Tracks>) -> Result<(), String> {
        let told = self.orders.as_mut().is_some_and(|orders| say(&t, orders).is_ok());
        let samples: Vec<Sample> = if told { self.next()? } else { return Err(self.last_words()) };
        let mut tracks = tracks.lock().unwrap_or_else(PoisonError::into_inner);
        for Sample { source, name, instance, unit, is_counter, value } in samples {
            let (source, name, unit) = (known(source), known(name), known(unit));
            match is_counter {
                true => tracks.counter(t, source, name, &instance, unit, value),
                false => tracks.gauge(t, source, name, &instance, unit, value),
            }
        }
        Ok(())
    }

    /// Ends it: what it has to say at last.
    pub(crate) fn end(mut self) -> Result<Telemetry, String> {
        self.orders = None;
        let farewell: Farewell = self.next()?;
        let costs = farewell.costs.into_iter().map(|(sampler, passes, cpu_s, pass_ms_max, pass_ms_mean)| {
            Cost { sampler: known(sampler), passes, cpu_s, pass_ms_max, pass_ms_mean }
        });
        Ok(Telemetry {
            costs: costs.collect(),
            missing: farewell.missing.into_iter().map(|(what, why)| Missing::new(what, why)).collect(),
            busiest_foreign: farewell.busiest_foreign.map(|(name, pid, cpu_s)| ForeignProcess {
                name: wire::shown(&name).into_owned(),
                pid,
                cpu_s,
            }),
            is_elsewhere: true,
            ..Telemetry::default()
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names of series live as long as the program: each is kept once.
fn known(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    // An agent of one's own has a hundred.
    if names.len() > 10_000 {
        return "other";
    }
    let kept: &'static str = Box::leak(name.into_boxed_str());
    names.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_answers_each_time_it_is_told_and_says_what_it_lacks() {
        let mut said = Vec::new();
        // Nobody listens on port 1.
        serve("1", "0.1.0", &mut io::Cursor::new("0.5\n1.5\n"), &mut said).unwrap();
        let lines: Vec<&str> = std::str::from_utf8(&said).unwrap().lines().collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        let hello: Hello = serde_json::from_str(lines[0]).unwrap();
        assert_eq!((hello.version.as_str(), hello.server_pid), ("0.1.0", None));
        let samples: Vec<Sample> = serde_json::from_str(lines[2]).unwrap();
        assert!(samples.iter().any(|sample| sample.source == "host" && sample.name == "cpu_busy"));
        assert!(samples.iter().all(|sample| sample.source != "client"), "nobody loads anything from there");
        let farewell: Farewell = serde_json::from_str(lines[3]).unwrap();
        assert!(farewell.missing.iter().any(|(what, _)| what.starts_with("cpu, memory")));
        assert!(farewell.costs.iter().any(|cost| cost.0 == "host" && cost.1 == 2));
    }

    #[test]
    fn what_ends_or_is_no_agent_is_told_with_its_last_words() {
        let of = |script: &str| {
            Agent { words: ["sh", "-c", script].map(str::to_owned).into() }.check().unwrap_err()
        };
        assert!(of("echo 'no route to host' >&2; exit 255").ends_with("ended: no route to host"));
        assert!(of("echo 42").ends_with("said what no agent says"));
        assert!(of("echo '{\"version\":\"0.0.1\",\"server_pid\":7}'; cat").contains("use one version"));
    }

    #[test]
    fn ssh_gets_host_and_program_apart() {
        let target = Target::parse("postgres://app@db1:5433/x").unwrap();
        let words = |place: &str| Agent::by_ssh(place, &target).words[5..].join(" ");
        assert_eq!(words("db1"), "db1 plimsoll agent 5433");
        assert_eq!(words("me@db1:/opt/plimsoll"), "me@db1 /opt/plimsoll agent 5433");
    }
}
