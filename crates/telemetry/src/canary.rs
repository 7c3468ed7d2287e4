//! The canary: fixed loops of CPU and disk before and after every block. They show the drift of the machine itself,
//! which neither steal nor CPU time of the server reveals on virtual machines.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to run each loop. A second of CPU varies by some 15 % on a virtual machine, five seconds by half of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanaryLength {
    pub cpu: Duration,
    pub disk: Duration,
}

impl Default for CanaryLength {
    fn default() -> Self {
        Self { cpu: Duration::from_millis(1000), disk: Duration::from_millis(300) }
    }
}

/// What the loops reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryResult {
    /// Loops of CPU work a second, one thread.
    pub cpu_loops_per_s: f64,
    /// 4 KiB appends with fdatasync a second; `None` where the directory could not be written.
    pub disk_syncs_per_s: Option<f64>,
}

/// Runs both loops; the disk one in each of `dirs`, whose files are removed. A result for each of them, in order.
pub fn canary(dirs: &[&Path], length: CanaryLength) -> Vec<CanaryResult> {
    let cpu_loops_per_s = cpu_loop(length.cpu);
    let of =
        |dir: &&Path| CanaryResult { cpu_loops_per_s, disk_syncs_per_s: disk_loop(dir, length.disk).ok() };
    dirs.iter().map(of).collect()
}

/// Integer work in registers and a table of 64 KiB: what a server's inner loops are like, without its memory.
fn cpu_loop(length: Duration) -> f64 {
    let mut table = vec![0u64; 8192];
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let began = Instant::now();
    let mut loops = 0u64;
    while began.elapsed() < length {
        for _ in 0..4096 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let slot = (x >> 51) as usize;
            table[slot] = table[slot].wrapping_add(x);
        }
        loops += 1;
    }
    std::hint::black_box(&table);
    loops as f64 / began.elapsed().as_secs_f64()
}

fn disk_loop(dir: &Path, length: Duration) -> io::Result<f64> {
    let path = dir.join(format!(".plimsoll-canary-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    // Unlinked at once: nothing is left behind whatever happens.
    std::fs::remove_file(&path)?;
    let block = [0x5au8; 4096];
    let began = Instant::now();
    let mut syncs = 0u64;
    while began.elapsed() < length {
        file.write_all(&block)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(syncs as f64 / began.elapsed().as_secs_f64())
}

/// This result against the study's others: the slower of both loops' ratios to the median; `None` without others.
pub fn ratio_to_others(this: &CanaryResult, others: &[CanaryResult]) -> Option<f64> {
    let cpu: Vec<f64> = others.iter().map(|c| c.cpu_loops_per_s).collect();
    let disk: Vec<f64> = others.iter().filter_map(|c| c.disk_syncs_per_s).collect();
    let cpu = this.cpu_loops_per_s / stats::median(&cpu)?;
    let disk = this.disk_syncs_per_s.zip(stats::median(&disk)).map(|(now, usual)| now / usual);
    Some(disk.map_or(cpu, |disk| disk.min(cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_run_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let length = CanaryLength { cpu: Duration::from_millis(5), disk: Duration::from_millis(5) };
        let [result, nowhere] = canary(&[dir.path(), Path::new("/nowhere")], length)[..] else { panic!() };
        assert!(result.cpu_loops_per_s > 0.0 && result.disk_syncs_per_s.unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(nowhere, CanaryResult { disk_syncs_per_s: None, ..result });
    }

    #[test]
    fn the_slower_loop_decides() {
        let usual = CanaryResult { cpu_loops_per_s: 100.0, disk_syncs_per_s: Some(1000.0) };
        let now = CanaryResult { cpu_loops_per_s: 95.0, disk_syncs_per_s: Some(400.0) };
        assert!((ratio_to_others(&now, &[usual; 3]).unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(ratio_to_others(&now, &[]), None);
    }
}
