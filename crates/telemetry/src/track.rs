//! Series as they are sampled: raw values over time, from which rates are derived when the run is over.

/// What the raw values of a [`Track`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counts up from the start of whatever is counted; shown as a rate, summed up by difference.
    Counter,
    /// A level at a moment.
    Gauge,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Who it speaks about: `host`, `device`, `process` (the server's process tree), `client`, `server` (its own
    /// counters), `sampler`.
    pub source: &'static str,
    /// Common name, the same on every server where it means the same.
    pub name: &'static str,
    /// Which one of several: a cpu, a device; empty where there is one.
    pub instance: String,
    /// Unit of the raw values: `s`, `B`, `pages`, `share`, `ms`; empty for plain counts.
    pub unit: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Seconds since the run's epoch, and the raw value, in order of time.
    pub points: Vec<(f64, f64)>,
}

/// Between two samples whose difference makes a rate. A load's last second and the end of its run follow each other
/// within milliseconds, and a server that reports now and then would seem to do a second's work in them.
const RATE_MIN_S: f64 = 0.2;

impl Track {
    /// Unit of [`Track::shown`]: that of the rate for a counter (cpu seconds per second are `cpus`, stalled ones a share).
    pub fn shown_unit(&self) -> String {
        match (self.kind, self.unit) {
            (Kind::Gauge, unit) => unit.to_owned(),
            (Kind::Counter, "s") => "cpus".to_owned(),
            (Kind::Counter, "stalled_s") => "share".to_owned(),
            (Kind::Counter, "") => "1/s".to_owned(),
            (Kind::Counter, unit) => format!("{unit}/s"),
        }
    }

    /// What a chart shows: the gauge itself, or the counter's rate between two samples at the time of the second.
    /// A counter that went backwards (its owner restarted) leaves a gap.
    pub fn shown(&self) -> Vec<(f64, f64)> {
        match self.kind {
            Kind::Gauge => self.points.clone(),
            Kind::Counter => self.rates(),
        }
    }

    fn rates(&self) -> Vec<(f64, f64)> {
        let Some((mut before, rest)) = self.points.split_first().map(|(first, rest)| (*first, rest)) else {
            return Vec::new();
        };
        let mut rates = Vec::new();
        for &(t, value) in rest {
            let length_s = t - before.0;
            if value >= before.1 && length_s < RATE_MIN_S {
                continue;
            }
            if value >= before.1 {
                rates.push((t, (value - before.1) / length_s));
            }
            before = (t, value);
        }
        rates
    }

    /// Values shown at times in (from, to], where `from` and `to` are seconds since the epoch.
    pub fn shown_between(&self, from: f64, to: f64) -> Vec<f64> {
        // Half a tick of tolerance: a sample belongs to the second that it was triggered by.
        self.shown().into_iter().filter(|(t, _)| *t > from + 0.5 && *t <= to + 0.5).map(|(_, v)| v).collect()
    }

    /// The raw value at a time, between two samples by linear interpolation; `None` outside of what was sampled by
    /// more than 1.5 s.
    pub fn at(&self, t: f64) -> Option<f64> {
        let after = self.points.partition_point(|p| p.0 < t);
        match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (Some((t0, v0)), Some(&(t1, v1))) => Some(v0 + (v1 - v0) * (t - t0) / (t1 - t0).max(1e-9)),
            (Some((t0, v)), None) => (t - t0 <= 1.5).then_some(v),
            (None, Some(&(t1, v))) => (t1 - t <= 1.5).then_some(v),
            (None, None) => None,
        }
    }

    /// How much a counter grew between two times; `None` where it was not sampled or went backwards.
    pub fn increase(&self, from: f64, to: f64) -> Option<f64> {
        let inside = self.points.iter().filter(|p| p.0 > from && p.0 < to);
        if self.kind != Kind::Counter || inside.clone().zip(inside.skip(1)).any(|(a, b)| b.1 < a.1) {
            return None;
        }
        let grown = self.at(to)? - self.at(from)?;
        (grown >= 0.0).then_some(grown)
    }
}

/// All tracks of one sampler.
#[derive(Debug, Default)]
pub struct Tracks {
    tracks: Vec<Track>,
    /// Samplers write in the same order each time, so the next track is nearly always the one wanted.
    next: usize,
}

impl Tracks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a counter's raw value.
    pub fn counter(
        &mut self,
        t: f64,
        source: &'static str,
        name: &'static str,
        instance: &str,
        unit: &'static str,
        value: f64,
    ) {
        self.note(t, (source, name, instance, unit), Kind::Counter, value);
    }

    /// Notes a level.
    pub fn gauge(
        &mut self,
        t: f64,
        source: &'static str,
        name: &'static str,
        instance: &str,
        unit: &'static str,
        value: f64,
    ) {
        self.note(t, (source, name, instance, unit), Kind::Gauge, value);
    }

    fn note(
        &mut self,
        t: f64,
        what: (&'static str, &'static str, &str, &'static str),
        kind: Kind,
        value: f64,
    ) {
        if !value.is_finite() {
            return;
        }
        let (source, name, instance, unit) = what;
        let is_it =
            |track: &Track| track.name == name && track.source == source && track.instance == instance;
        let found = match self.tracks.get(self.next) {
            Some(track) if is_it(track) => Some(self.next),
            _ => self.tracks.iter().position(is_it),
        };
        let at = found.unwrap_or_else(|| {
            let instance = instance.to_owned();
            self.tracks.push(Track { source, name, instance, unit, kind, points: Vec::new() });
            self.tracks.len() - 1
        });
        self.tracks[at].points.push((t, value));
        self.next = (at + 1) % self.tracks.len();
    }

    /// The tracks until now.
    pub(crate) fn as_slice(&self) -> &[Track] {
        &self.tracks
    }

    /// The tracks, in the order in which they first appeared.
    pub fn into_vec(self) -> Vec<Track> {
        self.tracks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(points: &[(f64, f64)]) -> Track {
        Track {
            source: "server",
            name: "log_bytes",
            instance: String::new(),
            unit: "B",
            kind: Kind::Counter,
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_counter_is_shown_as_its_rate() {
        let track = counter(&[(1.0, 100.0), (2.0, 300.0), (4.0, 300.0)]);
        assert_eq!(track.shown(), vec![(2.0, 200.0), (4.0, 0.0)]);
        assert_eq!(track.shown_unit(), "B/s");
    }

    #[test]
    fn samples_in_quick_succession_make_no_rate_of_their_own() {
        let track =
            counter(&[(1.0, 0.0), (1.01, 90.0), (2.0, 100.0), (2.002, 700.0), (3.0, 900.0), (3.1, 999.0)]);
        assert_eq!(track.shown(), vec![(2.0, 100.0), (3.0, 800.0)]);
    }

    #[test]
    fn increase_interpolates_and_refuses_what_was_not_sampled() {
        let track = counter(&[(1.0, 100.0), (2.0, 300.0), (3.0, 500.0)]);
        assert_eq!(track.increase(1.5, 2.5), Some(200.0));
        assert_eq!(track.increase(1.5, 9.0), None);
    }

    #[test]
    fn a_restarted_counter_leaves_a_gap_and_has_no_increase() {
        let track = counter(&[(1.0, 100.0), (2.0, 300.0), (3.0, 5.0), (4.0, 15.0)]);
        assert_eq!(track.shown(), vec![(2.0, 200.0), (4.0, 10.0)]);
        assert_eq!(track.increase(1.0, 4.0), None);
        assert_eq!(track.increase(0.9, 4.1), None);
    }

    #[test]
    fn tracks_find_their_own_whatever_the_order() {
        let mut tracks = Tracks::new();
        for t in 0..3 {
            let t = f64::from(t);
            tracks.gauge(t, "host", "run_queue", "", "", 1.0 + t);
            tracks.counter(t, "host", "context_switches", "", "", 10.0 * t);
            if t > 0.0 {
                tracks.gauge(t, "host", "late", "", "", f64::NAN);
                tracks.gauge(t, "host", "late", "b", "", 7.0);
            }
        }
        let tracks = tracks.into_vec();
        assert_eq!(tracks.len(), 3);
        assert_eq!(tracks[0].points.len(), 3);
        assert_eq!(tracks[2].instance, "b");
    }
}
