//! A neighbour that loads the machine in random bursts, for tests and benchmarks of what a shared machine does to figures.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::compiled::compiled;

/// How it works. [`Bursts::new`] has the neighbour of the published figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// The same seed plans the same bursts.
    pub seed: u64,
    /// It ends by itself after so long.
    pub longest: Duration,
    /// Cpus that a burst takes at most, from 1; each takes 1 to so many.
    pub cpus: usize,
    /// Mean length of a burst; lengths are exponential, between a fifth and four times of it.
    pub on: Duration,
    /// Mean length of a pause, with the same bounds.
    pub off: Duration,
}

impl Bursts {
    /// All cpus of this machine, bursts of 1 s and pauses of 2 s on average: with two cpus a quarter of the machine.
    pub fn new(seed: u64, longest: Duration) -> Bursts {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Bursts { seed, longest, cpus, on: Duration::from_secs(1), off: Duration::from_secs(2) }
    }
}

/// One burst as it was planned, from the neighbour's start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    pub start_ms: u64,
    pub length_ms: u64,
    pub cpus: usize,
}

/// A neighbour at work; dropping it ends it, and so does the end of this process, however it comes.
#[derive(Debug)]
pub struct Neighbour {
    child: Child,
    said: PathBuf,
}

impl Neighbour {
    /// Compiles the program into `folder` and starts it; what it writes goes there, too.
    ///
    /// # Errors
    /// There is no `cc`, or the program cannot be started.
    pub fn start(folder: &Path, bursts: &Bursts) -> io::Result<Neighbour> {
        let program = compiled(folder, "neighbour", include_str!("neighbour.c"), &["-pthread", "-lm"])?;
        let figures = [
            bursts.seed.to_string(),
            bursts.longest.as_secs_f64().to_string(),
            bursts.cpus.to_string(),
            (bursts.on.as_secs_f64() * 1e3).to_string(),
            (bursts.off.as_secs_f64() * 1e3).to_string(),
        ];
        let said = folder.join("bursts.txt");
        // It ends with its standard input, whose other end is closed when this process ends.
        let child = Command::new(program)
            .args(figures)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(File::create(&said)?)
            .spawn()?;
        Ok(Neighbour { child, said })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and tells the bursts that it began.
    ///
    /// # Errors
    /// It ended by itself with an error, or what it said cannot be read.
    pub fn stop(mut self) -> io::Result<Vec<Burst>> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("the neighbour ended with {status}")));
        }
        std::fs::read_to_string(&self.said)?
            .lines()
            .map(|line| burst_of(line).ok_or_else(|| io::Error::other(format!("no burst: {line}"))))
            .collect()
    }
}

fn burst_of(line: &str) -> Option<Burst> {
    let mut words = line.split(' ');
    let start_ms = words.next()?.parse().ok()?;
    let length_ms = words.next()?.parse().ok()?;
    Some(Burst { start_ms, length_ms, cpus: words.next()?.parse().ok()? })
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Gone already after `stop`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
