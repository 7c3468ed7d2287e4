//! `--hdr`: response times as an HdrHistogram interval log, which other tools read.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use load::IntervalResult;
use report::NewFile;

use crate::commands::out::not_written;
use crate::exit::Failure;

/// Values of the histograms are units of 100 ns; the log shows its maxima in ms.
const UNITS_PER_MS: f64 = 10_000.0;

/// An interval log that is being written.
pub(crate) struct HdrLog {
    path: PathBuf,
    out: NewFile,
    serializer: V2DeflateSerializer,
    /// Measured seconds of the levels before.
    elapsed: Duration,
    has_header: bool,
    /// Why it cannot be written, told at its end.
    problem: Option<Failure>,
}

impl HdrLog {
    pub(crate) fn create(path: &Path) -> Result<HdrLog, Failure> {
        let out = NewFile::create(path)
            .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))?;
        Ok(HdrLog {
            path: path.to_owned(),
            out,
            serializer: V2DeflateSerializer::new(),
            elapsed: Duration::ZERO,
            has_header: false,
            problem: None,
        })
    }

    /// Adds a second of a level, unless it belongs to its warm-up; the tag of its line is the level's session count.
    pub(crate) fn add(&mut self, sessions: u32, interval: &IntervalResult) {
        if interval.second >= 1
            && self.problem.is_none()
            && let Err(failure) = self.write(sessions, interval)
        {
            self.problem = Some(failure);
        }
    }

    fn write(&mut self, sessions: u32, interval: &IntervalResult) -> Result<(), Failure> {
        let mut builder = IntervalLogWriterBuilder::new();
        builder.with_max_value_divisor(UNITS_PER_MS);
        if !self.has_header {
            builder
                .add_comment("response times of transactions in units of 100 ns; tags are session counts")
                .with_start_time(SystemTime::now())
                .with_base_time(SystemTime::now());
            self.has_header = true;
        }
        let failed = |error| not_written(&self.path, error);
        let mut log = builder.begin_log_with(&mut self.out, &mut self.serializer).map_err(failed)?;
        let duration = Duration::from_secs_f64(interval.duration_s.max(0.0));
        let histogram = interval.latency.response.to_hdr();
        let name = sessions.to_string();
        log.write_histogram(&histogram, self.elapsed, duration, Tag::new(&name)).map_err(
            |error| match error {
                IntervalLogWriterError::IoError(error) => failed(error),
                error => failed(std::io::Error::other(error)),
            },
        )?;
        self.elapsed += duration;
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        if let Some(failure) = self.problem {
            return Err(failure);
        }
        self.out.finish().map_err(|error| not_written(&self.path, error))
    }
}
