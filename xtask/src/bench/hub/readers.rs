//! Readers of a hub: one by one, and at a steady rate by vegeta, an HTTP loader that sends each request when it is due,
//! whether those before have been answered or not.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
const PAGE_BYTES_MAX: u64 = 256 << 20;

/// A page that is wanted.
pub(super) struct Asked {
    /// Of the table of kinds.
    pub(super) kind: usize,
    pub(super) url: String,
}

/// One that was answered, or not.
pub(super) struct Sample {
    pub(super) kind: usize,
    /// From when it was due to the last byte.
    pub(super) response_ms: f64,
    pub(super) failure: Option<String>,
}

pub(super) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    // The hub is on this machine, whatever the environment says.
    config.proxy(None).max_redirects(0).build().into()
}

/// Reads a page to its end. How many bytes it has.
pub(super) fn get(agent: &ureq::Agent, url: &str) -> Result<usize> {
    let mut response = agent.get(url).call()?;
    let status = response.status().as_u16();
    let bytes = response.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_vec()?;
    ensure!(status == 200, "{url}: {status} {}", String::from_utf8_lossy(&bytes));
    Ok(bytes.len())
}

/// The loader; looked for before anything is made.
pub(super) struct Vegeta(PathBuf);

impl Vegeta {
    /// On the path, or where Go installs commands.
    pub(super) fn find() -> Result<Vegeta> {
        let of_go = std::env::home_dir().map(|home| home.join("go/bin/vegeta"));
        let places = std::iter::once(PathBuf::from("vegeta")).chain(of_go);
        let is_there = |place: &PathBuf| Command::new(place).arg("-version").output().is_ok();
        places.into_iter().find(is_there).map(Vegeta).context(
            "vegeta sends the readers' requests and is not here: go install github.com/tsenart/vegeta/v12@v12.12.0",
        )
    }

    /// Sends all requests at a steady rate. One sample for each that was sent, in their order.
    pub(super) fn read(&self, requests: &[Asked], rate: f64, folder: &Path) -> Result<Vec<Sample>> {
        let (targets, results) = (folder.join("targets"), folder.join("results"));
        let mut lines = String::new();
        for asked in requests {
            writeln!(lines, "GET {}\n", asked.url)?;
        }
        std::fs::write(&targets, lines)?;
        // A page's bytes are read and counted, and not kept.
        let mut attack = Command::new(&self.0);
        attack.args(["attack", "-max-body=0", "-redirects=-1", "-timeout=30s"]);
        attack.arg(format!("-rate={:.0}/1000s", rate * 1000.0));
        attack.arg(format!("-duration={:.0}ms", requests.len() as f64 / rate * 1e3));
        attack.arg("-targets").arg(&targets).arg("-output").arg(&results);
        ensure!(attack.status()?.success(), "vegeta attack failed");
        let mut encode = Command::new(&self.0);
        encode.env("TZ", "UTC").args(["encode", "-to=json"]).arg(&results).stderr(Stdio::inherit());
        let output = encode.output()?;
        ensure!(output.status.success(), "vegeta encode failed");
        samples(&String::from_utf8(output.stdout)?, requests, rate)
    }
}

/// From the lines of `vegeta encode`.
fn samples(lines: &str, requests: &[Asked], rate: f64) -> Result<Vec<Sample>> {
    let kinds: HashMap<&str, usize> = requests.iter().map(|asked| (asked.url.as_str(), asked.kind)).collect();
    let mut hits = Vec::new();
    for line in lines.lines() {
        hits.push(Hit::of(line).with_context(|| line.to_owned())?);
    }
    hits.sort_by_key(|hit| hit.seq);
    // The loader's own lateness counts: a request is due at its place in the order, the first of all when it was sent.
    let due_s = |hit: &Hit| hit.seq as f64 / rate;
    let began_s = hits.iter().map(|hit| hit.sent_s - due_s(hit)).fold(f64::MAX, f64::min);
    hits.iter()
        .map(|hit| {
            let late_ms = (hit.sent_s - began_s - due_s(hit)) * 1e3;
            let failure = (hit.code != 200).then(|| format!("{}: {} {}", hit.url, hit.code, hit.error));
            let kind = *kinds.get(hit.url.as_str()).with_context(|| hit.url.clone())?;
            Ok(Sample { kind, response_ms: late_ms + hit.latency_ms, failure })
        })
        .collect()
}

/// A request that was sent.
struct Hit {
    seq: u64,
    code: u64,
    /// Since 1970.
    sent_s: f64,
    latency_ms: f64,
    error: String,
    url: String,
}

impl Hit {
    fn of(line: &str) -> Result<Hit> {
        let line: Value = serde_json::from_str(line)?;
        let number = |name: &str| line[name].as_u64().with_context(|| format!("no {name}"));
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let sent = humantime::parse_rfc3339(&text("timestamp"))?.duration_since(UNIX_EPOCH)?;
        let (seq, code, latency_ns) = (number("seq")?, number("code")?, number("latency")?);
        let (sent_s, latency_ms) = (sent.as_secs_f64(), latency_ns as f64 / 1e6);
        Ok(Hit { seq, code, sent_s, latency_ms, error: text("error"), url: text("url") })
    }
}
