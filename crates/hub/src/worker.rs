//! A worker: asks a hub for a claim to be measured again, has a child of the same program measure it, and says what it found.
//! What was submitted is a stranger's: it is looked at by a child without rights first, as the hub does, and the child that
//! measures takes plain data only (`rerun --untrusted`).

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::check::{Bounds, Found, check};
use crate::client::Client;
use crate::error::Error;
use crate::remeasure::{End, Host, Job, Report, Span};

/// What a worker is asked for.
#[derive(Debug, Clone)]
pub struct Work {
    /// The hub.
    pub hub: String,
    pub token: String,
    /// The program whose children look at bundles and measure.
    pub program: PathBuf,
    /// What is measured stays below this directory, in a folder for each claim that was asked for.
    pub results: PathBuf,
    /// For measuring one claim.
    pub budget: Duration,
    /// Ends after one claim, or where there is none.
    pub is_once: bool,
    /// Between two questions for work.
    pub pause: Duration,
    /// This machine.
    pub host: store::Host,
    /// Version of plimsoll.
    pub version: String,
}

/// Beyond the budget: builds are fetched and data are loaded before anything is measured.
const GRACE: Duration = Duration::from_secs(900);
/// A child that was asked to end has so long; then it is asked again, and then it is over.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);
/// What a hub takes of a bundle, at most.
const BUNDLE_BYTES_MAX: u64 = 1 << 30;
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
const CHECK_WITHIN: Duration = Duration::from_secs(120);
/// What a child says at most.
const SAID_BYTES_MAX: u64 = 16 << 20;
/// Posting what was found is tried for so long before it is given up.
const POST_WITHIN: Duration = Duration::from_secs(300);
const REQUEST_WITHIN: Duration = Duration::from_secs(120);

/// Measures what a hub asks for, until `is_stopped` or, with `is_once`, one claim. How many it measured or refused. `tell`
/// hears what goes on.
///
/// # Errors
/// The hub does not take the token, or cannot be reached where only one claim was to be measured; a file cannot be written.
pub fn work(work: &Work, is_stopped: &dyn Fn() -> bool, tell: &dyn Fn(&str)) -> Result<usize, Error> {
    let client = Client::new(&work.hub, &work.token, REQUEST_WITHIN)?;
    let mut ended = 0;
    while !is_stopped() {
        match lease(&client, work.budget) {
            Ok(Some(job)) => {
                let worker = Worker { work, client: &client, is_stopped, tell };
                ended += usize::from(worker.measure(&job)?);
            }
            Ok(None) if work.is_once => tell("there is nothing to be measured again"),
            Ok(None) => {}
            Err(error @ Error::Unreachable(_)) if !work.is_once => tell(&error.to_string()),
            Err(error) => return Err(error),
        }
        if work.is_once {
            break;
        }
        let until = Instant::now() + work.pause;
        while Instant::now() < until && !is_stopped() {
            std::thread::sleep(Duration::from_millis(200).min(work.pause));
        }
    }
    Ok(ended)
}

fn lease(client: &Client, budget: Duration) -> Result<Option<Job>, Error> {
    let asking = json!({"budget_s": u32::try_from(budget.as_secs()).unwrap_or(u32::MAX)}).to_string();
    let said = client.post("/api/v1/remeasurements/lease", "application/json", asking.as_bytes())?;
    match said.status {
        200 if said.body["job"].is_null() => Ok(None),
        200 => {
            let job: Job = serde_json::from_value(said.body["job"].clone())?;
            let is_word = |text: &str| text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            // It names a folder here, and an argument of a program.
            if [&job.id, &job.bundle, &job.claim].into_iter().all(|text| is_word(text) && !text.is_empty()) {
                return Ok(Some(job));
            }
            Err(Error::Wrong(format!("{} names its work strangely", client.root())))
        }
        403 => Err(Error::Forbidden(format!("{}: {}", client.root(), said.why()))),
        503 | 429 => Err(Error::Unreachable(format!("{}: {}", client.root(), said.why()))),
        _ => Err(Error::Wrong(format!("{} gives no work: {}", client.root(), said.why()))),
    }
}

struct Worker<'a> {
    work: &'a Work,
    client: &'a Client,
    is_stopped: &'a dyn Fn() -> bool,
    tell: &'a dyn Fn(&str),
}

/// What became of a piece of work.
struct Ended {
    end: End,
    reason: String,
    here: Option<Span>,
    /// Refused for want of time alone: the budget that would do.
    needs_budget_s: Option<u32>,
}

impl Ended {
    fn of(end: End, reason: impl Into<String>) -> Ended {
        Ended { end, reason: reason.into(), here: None, needs_budget_s: None }
    }
}

impl Worker<'_> {
    /// Measures a claim and says so to the hub. Whether there was something to say.
    fn measure(&self, job: &Job) -> Result<bool, Error> {
        let folder = self.work.results.join(&job.id);
        let fail = |source| Error::File { what: folder.display().to_string(), source };
        std::fs::create_dir_all(&folder).map_err(fail)?;
        (self.tell)(&format!("claim {} of {}/bundle/{}", job.claim, self.client.root(), job.bundle));
        let file = folder.join("bundle.plimsoll");
        let ended = match self.fetched(job, &file)? {
            Some(ended) => ended,
            None => match self.measured(job, &folder, &file)? {
                Some(ended) => ended,
                None => {
                    (self.tell)("the hub gave the work to somebody else; what was measured here is left");
                    return Ok(false);
                }
            },
        };
        let text = match (&ended.end, &ended.here) {
            (End::Done, Some(here)) => {
                format!("measured here: {:.3} ({:.3} to {:.3})", here.ratio, here.low, here.high)
            }
            (End::Done, None) => format!("undecided: {}", ended.reason),
            (End::Waiting, _) => "given back to the hub".to_owned(),
            (End::Refused | End::Failed, _) => format!("could not be measured: {}", ended.reason),
        };
        (self.tell)(&format!("{text}; see {}", folder.display()));
        let is_back = ended.end == End::Waiting;
        Ok(self.post(job, ended)? && !is_back)
    }

    /// Downloads the bundle, and looks at it as the hub does. What is wrong with it, if anything.
    fn fetched(&self, job: &Job, file: &Path) -> Result<Option<Ended>, Error> {
        let bytes = match self.client.bundle(&job.bundle, BUNDLE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Error::Refused(why)) => return Ok(Some(Ended::of(End::Failed, why))),
            Err(error @ Error::Unreachable(_)) => {
                (self.tell)(&error.to_string());
                return Ok(Some(Ended::of(End::Waiting, "")));
            }
            Err(error) => return Err(error),
        };
        let bounds = Bounds { unpacked_bytes_max: UNPACKED_BYTES_MAX, patience: CHECK_WITHIN };
        match check(&self.work.program, &bytes, &bounds) {
            Ok(Found::Verified(_)) => {}
            Ok(Found::Refused(why)) | Err(Error::Refused(why)) => {
                return Ok(Some(Ended::of(End::Refused, why)));
            }
            Err(error) => return Err(error),
        }
        std::fs::write(file, bytes)
            .map_err(|source| Error::File { what: file.display().to_string(), source })?;
        Ok(None)
    }

    /// The child's answer; `None` where the hub has given the work to somebody else meanwhile.
    fn measured(&self, job: &Job, folder: &Path, file: &Path) -> Result<Option<Ended>, Error> {
        let mut child = self.child(job, folder, file)?;
        let said = child.stdout.take();
        let listener = std::thread::spawn(move || {
            let mut text = String::new();
            said.map_or(Ok(0), |said| said.take(SAID_BYTES_MAX).read_to_string(&mut text)).map(|_| text)
        });
        let deadline = Instant::now() + self.work.budget + GRACE;
        // Well before the lease is over.
        let every = Duration::from_millis((job.lease_ms / 5).clamp(50, 60_000) as u64);
        let (mut renewed, mut is_lost) = (Instant::now(), false);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(of_child)? {
                break status;
            }
            if (self.is_stopped)() || is_lost || Instant::now() > deadline {
                break end(&mut child)?;
            }
            if renewed.elapsed() >= every {
                renewed = Instant::now();
                is_lost = self.is_lost(job);
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let said = listener.join().ok().and_then(Result::ok).unwrap_or_default();
        if is_lost {
            return Ok(None);
        }
        if (self.is_stopped)() {
            return Ok(Some(Ended::of(End::Waiting, "")));
        }
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        Ok(Some(meaning(job, status.code(), &said)))
    }

    fn child(&self, job: &Job, folder: &Path, file: &Path) -> Result<Child, Error> {
        let log = folder.join("rerun.log");
        let log =
            File::create(&log).map_err(|source| Error::File { what: log.display().to_string(), source })?;
        let mut command = Command::new(&self.work.program);
        command
            .arg("rerun")
            .arg(file)
            .args(["--untrusted", "--claim", &job.claim, "--json", "-"])
            .args(["--budget", &format!("{}s", self.work.budget.as_secs().max(1))])
            .arg("--results")
            .arg(folder)
            .env_remove(crate::TOKEN_VARIABLE)
            // Signals of a terminal reach it by this process only.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let parent = std::process::id() as libc::pid_t;
        let follow = move || {
            // SAFETY: neither takes memory.
            let is_left = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) < 0 || libc::getppid() != parent
            };
            if is_left { Err(std::io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
        };
        // SAFETY: the closure makes only async-signal-safe calls.
        unsafe { command.pre_exec(follow) };
        command.spawn().map_err(of_child)
    }

    /// Whether the hub has given the work to somebody else. A hub that does not answer has not.
    fn is_lost(&self, job: &Job) -> bool {
        let path = format!("/api/v1/remeasurements/{}/renew", job.id);
        let lease = json!({"lease": job.lease}).to_string();
        match self.client.post(&path, "application/json", lease.as_bytes()) {
            Ok(said) => [404, 409].contains(&said.status),
            Err(error) => {
                (self.tell)(&error.to_string());
                false
            }
        }
    }

    /// Says how it ended, again and again where the hub does not answer. Whether the hub took it.
    fn post(&self, job: &Job, ended: Ended) -> Result<bool, Error> {
        let host = &self.work.host;
        let report = Report {
            lease: job.lease.clone(),
            end: ended.end,
            reason: ended.reason,
            here: ended.here,
            needs_budget_s: ended.needs_budget_s,
            host: Host {
                fingerprint: host.fingerprint.clone(),
                cpu_model: host.cpu_model.clone(),
                cpus: host.cpus,
                memory_bytes: host.memory_bytes,
                kernel: host.kernel.clone(),
                os: host.os.clone(),
                arch: host.arch.clone(),
            },
            plimsoll: self.work.version.clone(),
        };
        let (path, body) =
            (format!("/api/v1/remeasurements/{}/end", job.id), serde_json::to_string(&report)?);
        let until = Instant::now() + POST_WITHIN;
        let mut pause = Duration::from_millis(500);
        loop {
            let why = match self.client.post(&path, "application/json", body.as_bytes()) {
                Ok(said) if said.status == 200 => return Ok(true),
                Ok(said) if said.status == 409 => {
                    (self.tell)(&format!("{}: {}", self.client.root(), said.why()));
                    return Ok(false);
                }
                Ok(said) if said.status == 503 => said.why(),
                Ok(said) => {
                    return Err(Error::Refused(format!(
                        "{} does not take it: {}",
                        self.client.root(),
                        said.why()
                    )));
                }
                Err(error) => error.to_string(),
            };
            if Instant::now() > until || (self.is_stopped)() {
                return Err(Error::Unreachable(why));
            }
            (self.tell)(&format!("{why}; trying again"));
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }
}

fn of_child(source: std::io::Error) -> Error {
    Error::File { what: "the child that measures".to_owned(), source }
}

/// Asks the child to end, twice, and then ends it.
fn end(child: &mut Child) -> Result<std::process::ExitStatus, Error> {
    for _ in 0..2 {
        // SAFETY: a child that has not been waited for: its number is nobody else's.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        let until = Instant::now() + LEAVE_WITHIN;
        while Instant::now() < until {
            if let Some(status) = child.try_wait().map_err(of_child)? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    child.kill().map_err(of_child)?;
    child.wait().map_err(of_child)
}

/// What the child's answer means. Its own words about this machine stay in its log: a reason is shown to everybody.
fn meaning(job: &Job, code: Option<i32>, said: &Value) -> Ended {
    let refused: Vec<&Value> = said["refused"].as_array().into_iter().flatten().collect();
    if !refused.is_empty() {
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let all: Vec<String> =
            refused.iter().map(|one| format!("{}: {}", text(one, "what"), text(one, "why"))).collect();
        let needs: Option<Vec<u64>> = refused.iter().map(|one| one["needs_budget_s"].as_u64()).collect();
        let longest = needs.and_then(|needs| u32::try_from(needs.into_iter().max()?).ok());
        return Ended { needs_budget_s: longest, ..Ended::of(End::Refused, all.join("; ")) };
    }
    let mut claims = said["claims"].as_array().into_iter().flatten();
    let claim = claims.find(|claim| claim["id"] == job.claim.as_str());
    match (claim, code) {
        (Some(claim), Some(0 | 1)) => match serde_json::from_value(claim["here"].clone()) {
            Ok(here) => Ended { here: Some(here), ..Ended::of(End::Done, "") },
            Err(_) if code == Some(0) => {
                Ended::of(End::Done, "too few runs for an interval within the time that there was")
            }
            Err(_) => Ended::of(End::Failed, "its runs failed here"),
        },
        (_, Some(2)) => Ended::of(End::Failed, "this version of plimsoll cannot plan it"),
        (_, Some(3)) => Ended::of(End::Failed, "a server that it needs could not be had or started here"),
        (_, Some(1)) => Ended::of(End::Failed, "its runs failed here"),
        _ => Ended::of(End::Failed, "it did not come to an end within the time that there was"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_time_alone_says_how_much_would_do() {
        let job =
            Job { id: "1".into(), lease: "2".into(), bundle: "3".into(), claim: "4".into(), lease_ms: 1 };
        let short = json!({"what": "the runs", "why": "long", "needs_budget_s": 2400});
        let longer = json!({"what": "think_time", "why": "long", "needs_budget_s": 3600});
        let other = json!({"what": "env e", "why": "foreign", "needs_budget_s": null});
        for (refused, needs) in [
            (json!([short]), Some(2400)),
            (json!([short, longer]), Some(3600)),
            (json!([short, other]), None),
            (json!([{"what": "of an older one", "why": "long"}]), None),
        ] {
            let ended = meaning(&job, Some(2), &json!({"claims": [], "refused": refused}));
            assert_eq!((ended.end, ended.needs_budget_s), (End::Refused, needs), "{refused}");
            assert!(ended.reason.ends_with("long") || ended.reason.ends_with("foreign"), "{}", ended.reason);
        }
    }
}
