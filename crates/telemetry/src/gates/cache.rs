//! `cache_state`: whether caches were as the study declares them.

use super::{Gate, percent};
use crate::residency::Residency;

const NAME: &str = "cache_state";

/// Of the data files, in the page cache or in the server's own buffer, when a cold load begins.
const COLD_SHARE_MAX: f64 = 0.05;

/// What a start reads of the server's own tables, on any data.
const START_READS_BYTES: f64 = 32e6;

/// What caches held when a cold load began.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdStart {
    /// The data files in the page cache; an error says why that could not be seen.
    pub files: Result<Residency, String>,
    /// Bytes in the server's own buffer, where it tells them.
    pub buffer_bytes: Option<f64>,
}

/// Declared cold: server restarted, page cache dropped.
pub fn cache_cold(start: &ColdStart) -> Gate {
    let files = match &start.files {
        Err(why) => return Gate::not_checked(NAME, format!("declared cold; {why}")),
        Ok(files) if files.bytes == 0 => {
            return Gate::not_checked(NAME, "declared cold; there is no data file of a MiB or more");
        }
        Ok(files) => files,
    };
    let bytes = files.bytes as f64;
    let mut detail = format!(
        "declared cold; when the load began, the page cache held {} of {:.0} MB of data files",
        percent(files.share()),
        1e-6 * bytes
    );
    let mut is_tripped = files.share() > COLD_SHARE_MAX;
    if let Some(buffer) = start.buffer_bytes {
        // With O_DIRECT the page cache is empty whatever happens, and the server's buffer is the cache that counts.
        is_tripped |= buffer > COLD_SHARE_MAX * bytes + START_READS_BYTES;
        detail.push_str(&format!(", the server's own buffer {:.0} MB", 1e-6 * buffer));
    }
    let remedy = "run as root, so that the page cache can be dropped, keep other programs (backup, antivirus) from \
                  reading the data directory, and let the server not load its buffer at start";
    Gate::new(NAME, is_tripped, detail, remedy)
}

/// Reads a second below this cost nothing that could be measured.
const FILLING_READS_MIN: f64 = 100.0;
/// Neither do reads below this share of all requests for pages: one that goes to the operating system costs as much as
/// ten or twenty that the buffer answers, so below 1 % they take less time than figures vary by.
const FILLING_SHARE_MIN: f64 = 0.01;
/// Of what the buffer holds: filled to this part during the measured phase, it was not warm, however many requests there
/// were.
const FILLED_SHARE_MIN: f64 = 0.05;
/// InnoDB's; other servers do not tell what their buffers hold.
const PAGE_BYTES: f64 = 16_384.0;

/// Declared warm: the measured phase must not read what a longer warm-up would have read before. `reads` are the
/// server's reads of pages from outside its buffer, `requests` all its requests for pages, `held_bytes` what its buffer
/// holds (empty where it does not tell), by second of the measured phase.
///
/// Reads that are next to nothing among the requests are excused, unless they filled a good part of the buffer: MariaDB
/// 11.4 counts hundreds of requests for some look-ups, and any filling is little beside those.
pub fn cache_warm(reads: &[f64], requests: &[f64], held_bytes: &[f64]) -> Gate {
    let third = reads.len() / 3;
    if third == 0 {
        let sampled = match reads.len() {
            0 => "were not sampled".to_owned(),
            1 => "were sampled once, 3 times are needed".to_owned(),
            n => format!("were sampled {n} times, 3 are needed"),
        };
        return Gate::not_checked(NAME, format!("declared warm; the server's reads {sampled}"));
    }
    let first = stats::mean(&reads[..third]).unwrap_or(0.0);
    let last = stats::mean(&reads[reads.len() - third..]).unwrap_or(0.0);
    let asked = stats::mean(&requests[..third.min(requests.len())]).filter(|asked| *asked > 0.0);
    let share = asked.map(|asked| first / asked);
    // A data set larger than the buffer reads steadily: that is warm too.
    let is_filling = first > FILLING_READS_MIN && last < 0.5 * first;
    let filled = filled_share(reads, held_bytes);
    let is_much = share.is_none_or(|share| share > FILLING_SHARE_MIN) || filled > FILLED_SHARE_MIN;
    let is_tripped = is_filling && is_much;
    let of_all = share.map_or_else(String::new, |share| format!(" ({} of its requests)", percent(share)));
    let grown =
        if filled > 0.0 { format!("; they filled {} of the buffer", percent(filled)) } else { String::new() };
    let detail = format!(
        "declared warm; {first:.0} page reads/s in the first third{of_all}, {last:.0} in the last{grown}"
    );
    let remedy = "prime longer or lengthen the warm-up: the caches were still filling";
    Gate::new(NAME, is_tripped, detail, remedy)
}

/// The part of what the buffer holds at the end that was read during the phase; pages that writes made are none of it.
fn filled_share(reads: &[f64], held_bytes: &[f64]) -> f64 {
    let (Some(first), Some(last)) = (held_bytes.first(), held_bytes.last()) else { return 0.0 };
    let read_bytes = reads.iter().sum::<f64>() * PAGE_BYTES;
    ((last - first).min(read_bytes) / last.max(1.0)).max(0.0)
}
