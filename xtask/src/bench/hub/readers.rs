//! Readers of a hub: requests that are due at a time, sent by as many threads as there may be readers waiting at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Readers who wait at once. Where all of them do, the next one is late, and its response time counts from when it was due.
const THREADS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);
const PAGE_BYTES_MAX: u64 = 256 << 20;
/// So that every thread is there when the first request is due.
const HEAD_START: Duration = Duration::from_millis(200);

/// A request that is due.
pub(super) struct Asked {
    pub(super) due_s: f64,
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

/// Sends each request when it is due. One sample for each, in any order.
pub(super) fn read(requests: &[Asked]) -> Vec<Sample> {
    let (next, begin) = (AtomicUsize::new(0), Instant::now() + HEAD_START);
    let reader = || {
        let agent = agent();
        let mut samples = Vec::new();
        while let Some(asked) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let due = begin + Duration::from_secs_f64(asked.due_s);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let failure = get(&agent, &asked.url).err().map(|error| format!("{error:#}"));
            samples.push(Sample {
                kind: asked.kind,
                response_ms: due.elapsed().as_secs_f64() * 1e3,
                failure,
            });
        }
        samples
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(reader)).collect();
        // A reader that broke off has no samples; the count of requests shows it.
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
