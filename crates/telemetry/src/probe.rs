//! What the device under a data directory can do by itself: fio where it is installed, else a small built-in probe.
//! Kept by device, refreshed on request.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::device::Device;

/// Figures of a device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Name of the device, `vda`.
    pub device: String,
    /// File system, mount options, scheduler.
    pub facts: Vec<(String, String)>,
    /// `fio-3.33`, or `built-in`.
    pub tool: String,
    /// Seconds since 1970.
    pub measured_at_s: u64,
    /// Sequential write of 1 MiB blocks with one sync at the end, in MB/s (10^6), as `dd conv=fdatasync` counts.
    pub sequential_write_mb_s: Option<f64>,
    /// Sequential read of 1 MiB blocks past the page cache, in MB/s.
    pub sequential_read_mb_s: Option<f64>,
    /// Random reads of 4 KiB a second, 32 at a time (built-in: one at a time).
    pub random_read_iops: Option<f64>,
    /// Random writes of 4 KiB a second, 32 at a time (built-in: one at a time).
    pub random_write_iops: Option<f64>,
    /// Append of 512 bytes and fdatasync, one at a time: median, in us. What a commit of its own costs.
    pub append_sync_us_p50: Option<f64>,
    /// The same, 99th percentile.
    pub append_sync_us_p99: Option<f64>,
    /// Why figures are missing.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Where results are kept, one file a device; `None`: not kept.
    pub cache: Option<PathBuf>,
    /// Measure again even where a result is kept.
    pub refresh: bool,
    /// Length of each measurement but the sequential write, which takes what the file takes.
    pub each: Duration,
    /// Size of the test file.
    pub file_bytes: u64,
    /// Use the built-in probe even where fio is installed.
    pub built_in: bool,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            cache: None,
            refresh: false,
            each: Duration::from_secs(2),
            file_bytes: 256 << 20,
            built_in: false,
        }
    }
}

/// Probes the device under `dir` (which must exist and be writable), or returns what is kept about it.
pub fn probe(dir: &Path, options: &ProbeOptions) -> io::Result<ProbeResult> {
    let device = Device::of(dir)?;
    let kept = options
        .cache
        .as_ref()
        .filter(|_| device.has_device())
        .map(|cache| cache.join(format!("{}.json", device.identity().replace('/', "_"))));
    if !options.refresh
        && let Some(result) = kept.as_deref().and_then(read_kept)
    {
        return Ok(result);
    }
    let scratch = dir.join(format!(".plimsoll-probe-{}", std::process::id()));
    fs::create_dir(&scratch)?;
    let mut result = empty(&device);
    result.notes.extend(device.caveat());
    // As dd does it, and by ourselves: fio leaves the time of the last sync out of its rate.
    match sequential_write(&scratch, options) {
        Ok(mb_s) => result.sequential_write_mb_s = Some(mb_s),
        Err(error) => result.notes.push(format!("sequential write: {error}")),
    }
    let fio = if options.built_in { None } else { fio_version() };
    match fio {
        Some(version) => {
            result.tool = version;
            with_fio(&scratch, options, &mut result);
        }
        None => {
            result.notes.push("fio is not installed: built-in probe, one request at a time".to_owned());
            built_in(&scratch, options, &mut result);
        }
    }
    let removed = fs::remove_dir_all(&scratch);
    if let Some(path) = kept {
        let saved = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, serde_json::to_vec_pretty(&result).map_err(io::Error::other)?));
        if let Err(error) = saved {
            result.notes.push(format!("{}: not kept: {error}", path.display()));
        }
    }
    removed.map(|()| result)
}

/// A file that cannot be read or is of another version counts as none.
fn read_kept(path: &Path) -> Option<ProbeResult> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn empty(device: &Device) -> ProbeResult {
    let mut facts = vec![
        ("filesystem".to_owned(), device.filesystem.clone()),
        ("mount options".to_owned(), device.options.clone()),
    ];
    let optional = [
        ("scheduler", device.scheduler.clone()),
        ("rotational", device.is_rotational.map(|r| r.to_string())),
        ("model", device.model.clone()),
    ];
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    ProbeResult {
        device: device.name.clone(),
        facts,
        tool: "built-in".to_owned(),
        measured_at_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        ..ProbeResult::default()
    }
}

fn fio_version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn with_fio(dir: &Path, options: &ProbeOptions, result: &mut ProbeResult) {
    let is_direct = can_direct(dir);
    if !is_direct {
        result.notes.push("the file system refuses O_DIRECT: figures include the page cache".to_owned());
    }
    let mut run = |name: &str, extra: &[&str]| match fio(dir, options, name, extra) {
        Ok(job) => Some(job),
        Err(error) => {
            result.notes.push(format!("fio {name}: {error}"));
            None
        }
    };
    let number = |job: &serde_json::Value, path: &str| job.pointer(path).and_then(serde_json::Value::as_f64);
    let direct_flag = format!("--direct={}", u8::from(is_direct));
    let read = run(
        "sequential_read",
        &["--rw=read", "--bs=1M", "--iodepth=8", &direct_flag, "--filename=sequential"],
    );
    let mut random =
        |name, rw| run(name, &[rw, "--bs=4k", "--iodepth=32", "--filename=sequential", direct_flag.as_str()]);
    let random_read = random("random_read", "--rw=randread");
    let random_write = random("random_write", "--rw=randwrite");
    let append = run(
        "append_sync",
        &["--rw=write", "--bs=512", "--fdatasync=1", "--ioengine=sync", "--filename=append", "--size=64M"],
    );
    let mb = 1e-6;
    result.sequential_read_mb_s = read.as_ref().and_then(|j| number(j, "/read/bw_bytes")).map(|b| b * mb);
    result.random_read_iops = random_read.as_ref().and_then(|j| number(j, "/read/iops"));
    result.random_write_iops = random_write.as_ref().and_then(|j| number(j, "/write/iops"));
    let sync = |p: &str| {
        append.as_ref().and_then(|j| {
            let sync = number(j, &format!("/sync/lat_ns/percentile/{p}"))?;
            let write = number(j, &format!("/write/clat_ns/percentile/{p}")).unwrap_or(0.0);
            Some((sync + write) / 1e3)
        })
    };
    result.append_sync_us_p50 = sync("50.000000");
    result.append_sync_us_p99 = sync("99.000000");
}

fn fio(dir: &Path, options: &ProbeOptions, name: &str, extra: &[&str]) -> io::Result<serde_json::Value> {
    let output = Command::new("fio")
        .current_dir(dir)
        .args(["--output-format=json", "--ioengine=libaio", "--time_based", "--randrepeat=1", "--randseed=1"])
        .arg(format!("--name={name}"))
        .arg(format!("--size={}", options.file_bytes))
        .arg(format!("--runtime={}ms", options.each.as_millis()))
        .args(extra)
        .output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(text.lines().next().unwrap_or("failed without a word").to_owned()));
    }
    // Warnings may stand before the JSON.
    let text = String::from_utf8_lossy(&output.stdout);
    let begin = text.find('{').ok_or_else(|| io::Error::other("no JSON in its output"))?;
    let json: serde_json::Value = serde_json::from_str(&text[begin..]).map_err(io::Error::other)?;
    json.pointer("/jobs/0").cloned().ok_or_else(|| io::Error::other("no job in its output"))
}

fn can_direct(dir: &Path) -> bool {
    let path = dir.join("direct");
    let can = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .is_ok();
    // Nothing was written; a leftover goes with the scratch directory.
    let _ = fs::remove_file(path);
    can
}

/// One request at a time, with O_DIRECT where the file system takes it.
fn built_in(dir: &Path, options: &ProbeOptions, result: &mut ProbeResult) {
    let mut note = |name: &str, outcome: io::Result<f64>| match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            result.notes.push(format!("{name}: {error}"));
            None
        }
    };
    let flags = if can_direct(dir) { libc::O_DIRECT } else { 0 };
    let read = note("sequential read", sequential_read(dir, options, flags));
    let random_read = note("random read", random(dir, options, flags, false));
    let random_write = note("random write", random(dir, options, flags, true));
    let append = append_sync(dir, options);
    result.sequential_read_mb_s = read;
    result.random_read_iops = random_read;
    result.random_write_iops = random_write;
    match append {
        Ok(mut us) => {
            us.sort_by(f64::total_cmp);
            result.append_sync_us_p50 = stats::describe::quantile_of_sorted(&us, 0.5);
            result.append_sync_us_p99 = stats::describe::quantile_of_sorted(&us, 0.99);
        }
        Err(error) => result.notes.push(format!("append and sync: {error}")),
    }
}

fn sequential_write(dir: &Path, options: &ProbeOptions) -> io::Result<f64> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join("sequential"))?;
    let block = vec![0xa5u8; 1 << 20];
    let blocks = (options.file_bytes >> 20).max(1);
    let began = Instant::now();
    // Each block once: what is written again before the sync never reaches the device.
    for block_index in 0..blocks {
        file.write_all_at(&block, block_index << 20)?;
    }
    file.sync_data()?;
    Ok(blocks as f64 * 1.048_576 / began.elapsed().as_secs_f64())
}

fn sequential_read(dir: &Path, options: &ProbeOptions, flags: i32) -> io::Result<f64> {
    let file = OpenOptions::new().read(true).custom_flags(flags).open(dir.join("sequential"))?;
    let mut memory = Aligned::new(1 << 20);
    let blocks = (file.metadata()?.len() >> 20).max(1);
    let began = Instant::now();
    let mut read = 0u64;
    while began.elapsed() < options.each {
        file.read_exact_at(memory.bytes(1 << 20), (read % blocks) << 20)?;
        read += 1;
    }
    Ok(read as f64 * 1.048_576 / began.elapsed().as_secs_f64())
}

fn random(dir: &Path, options: &ProbeOptions, flags: i32, is_write: bool) -> io::Result<f64> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir.join("sequential"))?;
    let mut memory = Aligned::new(4096);
    let pages = (file.metadata()?.len() / 4096).max(1) as usize;
    let mut rng = stats::rng::Rng::new(1);
    let began = Instant::now();
    let mut done = 0u64;
    while began.elapsed() < options.each {
        let at = 4096 * rng.below(pages) as u64;
        if is_write {
            file.write_all_at(memory.bytes(4096), at)?;
        } else {
            file.read_exact_at(memory.bytes(4096), at)?;
        }
        done += 1;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn append_sync(dir: &Path, options: &ProbeOptions) -> io::Result<Vec<f64>> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join("append"))?;
    let record = [0x5au8; 512];
    let mut us = Vec::new();
    let began = Instant::now();
    while began.elapsed() < options.each {
        let start = Instant::now();
        file.write_all_at(&record, 512 * us.len() as u64)?;
        file.sync_data()?;
        us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(us)
}

/// O_DIRECT wants memory aligned to the device's blocks; 4096 does for all.
struct Aligned {
    bytes: Vec<u8>,
    offset: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let bytes = vec![0x3cu8; length + 4096];
        let offset = bytes.as_ptr().align_offset(4096);
        Self { bytes, offset }
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.offset..self.offset + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(cache: &Path) -> ProbeOptions {
        ProbeOptions {
            cache: Some(cache.to_owned()),
            refresh: false,
            each: Duration::from_millis(20),
            file_bytes: 4 << 20,
            built_in: true,
        }
    }

    #[test]
    fn built_in_probe_gives_all_figures_keeps_them_and_cleans_up() {
        let dir = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let options = short(cache.path());
        let first = probe(dir.path(), &options).unwrap();
        assert!(first.sequential_write_mb_s.unwrap() > 0.0, "{first:?}");
        assert!(first.sequential_read_mb_s.unwrap() > 0.0);
        assert!(first.random_read_iops.unwrap() > 0.0 && first.random_write_iops.unwrap() > 0.0);
        assert!(first.append_sync_us_p50.unwrap() <= first.append_sync_us_p99.unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        if !Device::of(dir.path()).unwrap().has_device() {
            testkit::not_tested("keeping a probe by device", "temporary files have none here");
            return;
        }
        let kept = probe(dir.path(), &options).unwrap();
        // JSON may round the last bit.
        let p99 = |r: &ProbeResult| r.append_sync_us_p99.map(f64::round);
        assert_eq!((p99(&kept), kept.measured_at_s), (p99(&first), first.measured_at_s));
        let again = probe(dir.path(), &ProbeOptions { refresh: true, ..options }).unwrap();
        assert_ne!(again.append_sync_us_p99, first.append_sync_us_p99);
    }

    #[test]
    fn a_damaged_kept_result_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let options = short(cache.path());
        probe(dir.path(), &options).unwrap();
        for entry in fs::read_dir(cache.path()).unwrap() {
            fs::write(entry.unwrap().path(), "{").unwrap();
        }
        assert!(probe(dir.path(), &options).unwrap().random_read_iops.is_some());
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(probe(Path::new("/nowhere"), &ProbeOptions::default()).is_err());
    }

    #[test]
    fn fio_gives_the_same_figures_where_it_is_installed() {
        if fio_version().is_none() {
            testkit::not_tested("the storage probe through fio", "the Debian package fio is not installed");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let options =
            ProbeOptions { each: Duration::from_millis(200), file_bytes: 8 << 20, ..ProbeOptions::default() };
        let result = probe(dir.path(), &options).unwrap();
        assert!(result.tool.starts_with("fio"), "{result:?}");
        assert!(result.append_sync_us_p50.is_some() && result.random_write_iops.is_some(), "{result:?}");
        assert!(
            result.sequential_read_mb_s.is_some() && result.sequential_write_mb_s.is_some(),
            "{result:?}"
        );
    }
}
