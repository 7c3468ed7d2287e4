//! Series as they are sampled: raw values over time, from which rates are derived.
//!
//! A run of a week samples 600,000 times. What is shown is handed out while it goes on ([`Tracks::take_shown`]); of the raw
//! values, which gates look at when it is over, long tracks keep every other one, then every fourth, and so on, and all of
//! those around the beginning and end of a level.

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
    /// counters), `replica` (one of the server's), `sampler`.
    pub source: &'static str,
    /// Common name, the same on every server where it means the same.
    pub name: &'static str,
    /// Which one of several: a cpu, a device; empty where there is one.
    pub instance: String,
    /// Unit of the raw values: `s`, `B`, `pages`, `share`, `ms`; empty for plain counts.
    pub unit: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Seconds since the run's epoch, and the raw value, in order of time; of a long run not all of them.
    pub points: Vec<(f64, f64)>,
}

/// Raw values of a track beyond which it is thinned out: more than an hour of them stays as it was sampled.
const POINTS_MAX: usize = 4096;
/// Values that are as near as this to the edge of a level stay: differences between its edges are taken from them.
const EDGE_S: f64 = 5.0;
/// An edge may still come within this time.
const RECENT_S: f64 = 60.0;

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
        let mut before = None;
        self.points.iter().filter_map(|&point| shown(self.kind, &mut before, point)).collect()
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
            (Some((t0, v0)), Some(&(t1, v1))) => {
                // What is between two samples is no more than the later one, to the last digit.
                let between = v0 + (v1 - v0) * (t - t0) / (t1 - t0).max(1e-9);
                Some(between.max(v0.min(v1)).min(v0.max(v1)))
            }
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

    /// What happened in the windows alone, as if they had followed each other from the first one's beginning on: counters
    /// grow by what they grew there. Nothing where an edge of a window was not sampled. Windows are from and to, in order.
    #[must_use]
    pub fn spliced(&self, windows: &[(f64, f64)]) -> Track {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut begins = windows.first().map_or(0.0, |window| window.0);
        let mut grown = 0.0;
        for &(from, to) in windows {
            let edges = self.at(from).zip(self.at(to));
            let inside = self.points.iter().filter(|(t, _)| *t > from && *t < to);
            let at = |t: f64| begins + (t - from);
            match (self.kind, edges) {
                (Kind::Gauge, _) => points.extend(inside.map(|&(t, value)| (at(t), value))),
                (Kind::Counter, None) => return Track { points: Vec::new(), ..self.clone() },
                (Kind::Counter, Some((first, last))) => {
                    if points.is_empty() {
                        points.push((begins, first));
                        grown = first;
                    }
                    points.extend(inside.map(|&(t, value)| (at(t), grown + (value - first))));
                    grown += last - first;
                    points.push((at(to), grown));
                }
            }
            begins += to - from;
        }
        Track { points, ..self.clone() }
    }
}

/// What a chart shows of a raw value. `before`: the value that a counter's next rate is from.
fn shown(kind: Kind, before: &mut Option<(f64, f64)>, (t, value): (f64, f64)) -> Option<(f64, f64)> {
    if kind == Kind::Gauge {
        return Some((t, value));
    }
    let Some((from_t, from)) = *before else {
        *before = Some((t, value));
        return None;
    };
    if value >= from && t - from_t < RATE_MIN_S {
        return None;
    }
    *before = Some((t, value));
    (value >= from).then(|| (t, (value - from) / (t - from_t)))
}

/// What a track shows and nobody has taken yet.
#[derive(Debug, Default)]
struct Fresh {
    points: Vec<(f64, f64)>,
    before: Option<(f64, f64)>,
}

/// All tracks of one sampler.
#[derive(Debug, Default)]
pub struct Tracks {
    tracks: Vec<Track>,
    /// One for each of them.
    fresh: Vec<Fresh>,
    /// Where levels begin and end.
    edges: Vec<f64>,
    /// Seconds between the values that thinned tracks keep; 0 while all are kept.
    stride_s: f64,
    /// Values of a track after which they are thinned out next.
    next_thin: usize,
    /// Samplers write in the same order each time, so the next track is nearly always the one wanted.
    next: usize,
}

impl Tracks {
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
            self.fresh.push(Fresh::default());
            self.tracks.len() - 1
        });
        let fresh = &mut self.fresh[at];
        fresh.points.extend(shown(kind, &mut fresh.before, (t, value)));
        self.tracks[at].points.push((t, value));
        if self.tracks[at].points.len() > self.next_thin.max(POINTS_MAX) {
            self.make_room();
        }
        self.next = (at + 1) % self.tracks.len();
    }

    /// A level begins or ends at `t`: the values around it stay.
    pub fn edge(&mut self, t: f64) {
        self.edges.push(t);
    }

    /// New values come each second, whatever the stride is: it grows only where thinning by it is not enough.
    fn make_room(&mut self) {
        let longest =
            |tracks: &Tracks| tracks.tracks.iter().map(|track| track.points.len()).max().unwrap_or(0);
        self.thin(RECENT_S);
        if longest(self) > POINTS_MAX / 2 {
            self.stride_s = self.stride_s.max(1.0) * 2.0;
            self.thin(RECENT_S);
        }
        // Many levels have many edges, which stay.
        self.next_thin = longest(self) + POINTS_MAX / 2;
    }

    /// One value of each stride, and all at edges and of the last `recent_s`, where an edge may still come.
    fn thin(&mut self, recent_s: f64) {
        let (edges, stride_s) = (&self.edges, self.stride_s);
        if stride_s == 0.0 {
            return;
        }
        for track in &mut self.tracks {
            let Some(&(latest, _)) = track.points.last() else { continue };
            let mut kept = i64::MIN;
            track.points.retain(|&(t, _)| {
                let slot = (t / stride_s).floor() as i64;
                let is_first = slot != kept;
                kept = slot;
                is_first || t > latest - recent_s || edges.iter().any(|edge| (t - edge).abs() <= EDGE_S)
            });
        }
    }

    /// What the tracks have shown since the last call, each under its own name.
    pub fn take_shown(&mut self) -> Vec<Track> {
        let parts = self.tracks.iter().zip(&mut self.fresh).map(|(track, fresh)| Track {
            instance: track.instance.clone(),
            points: std::mem::take(&mut fresh.points),
            ..*track
        });
        parts.filter(|part| !part.points.is_empty()).collect()
    }

    /// The tracks until now.
    pub(crate) fn as_slice(&self) -> &[Track] {
        &self.tracks
    }

    /// The tracks, in the order in which they first appeared.
    pub fn into_vec(mut self) -> Vec<Track> {
        // Since they were last thinned, they have grown by values of each second.
        self.thin(0.0);
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

    /// A counter that stands still for a while seemed to go backwards by the last digit of a sum: two duels of three could
    /// not say what other processes took.
    #[test]
    fn what_never_went_backwards_does_not_when_it_is_spliced() {
        for seed in 0..100 {
            let mut rng = stats::rng::Rng::new(seed);
            let (mut t, mut ticks) = (0.0, 0);
            let points = std::iter::repeat_with(|| {
                t += 0.1 + 0.01 * rng.below(50) as f64;
                ticks += rng.below(3);
                (t, 0.01 * ticks as f64)
            });
            let track = counter(&points.take(200).collect::<Vec<_>>());
            let begins = (0..40).map(|at| 1.0 + 1.17 * f64::from(at));
            let windows: Vec<(f64, f64)> = begins.map(|from| (from, from + 0.5)).collect();
            let spliced = track.spliced(&windows);
            let begins = windows[0].0;
            let grown: f64 = windows.iter().map(|(from, to)| track.increase(*from, *to).unwrap()).sum();
            let all = spliced.increase(begins, begins + 20.0).expect("it only grew");
            assert!((all - grown).abs() < 1e-9, "seed {seed}: {all} instead of {grown}");
        }
    }

    #[test]
    fn a_restarted_counter_leaves_a_gap_and_has_no_increase() {
        let track = counter(&[(1.0, 100.0), (2.0, 300.0), (3.0, 5.0), (4.0, 15.0)]);
        assert_eq!(track.shown(), vec![(2.0, 200.0), (4.0, 10.0)]);
        assert_eq!(track.increase(1.0, 4.0), None);
        assert_eq!(track.increase(0.9, 4.1), None);
    }

    #[test]
    fn a_week_fits_and_keeps_its_edges() {
        let mut tracks = Tracks::default();
        let (from, to) = (10.0, 600_010.0);
        tracks.edge(from);
        let rates = |tracks: &mut Tracks| -> usize {
            let parts = tracks.take_shown();
            parts.iter().filter(|part| part.kind == Kind::Counter).map(|part| part.points.len()).sum()
        };
        let mut shown = 0;
        for t in 0..600_020 {
            let t = f64::from(t);
            tracks.counter(t, "server", "log_bytes", "", "B", 5.0 * t);
            tracks.gauge(t, "server", "dirty_pages", "", "pages", t);
            if t == to {
                tracks.edge(to);
            }
            if t % 60.0 == 0.0 {
                shown += rates(&mut tracks);
            }
            assert!(tracks.tracks.iter().all(|track| track.points.len() <= 2 * POINTS_MAX));
        }
        shown += rates(&mut tracks);
        assert_eq!(shown, 600_019, "every rate is shown once");
        let tracks = tracks.into_vec();
        assert_eq!(tracks[0].increase(from, to), Some(5.0 * (to - from)));
        // Evenly: the mean of a line is its middle.
        let values = tracks[1].shown_between(from, to);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!(values.len() > 1000 && (mean / 300_000.0 - 1.0).abs() < 0.01, "{mean} of {}", values.len());
    }

    #[test]
    fn tracks_find_their_own_whatever_the_order() {
        let mut tracks = Tracks::default();
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

    #[test]
    fn windows_are_spliced_into_one_span() {
        let track = |kind, points: &[(f64, f64)]| Track {
            source: "server",
            name: "x",
            instance: String::new(),
            unit: "",
            kind,
            points: points.to_vec(),
        };
        // Grows by 10 a second within the windows, and by 100 between them.
        let points = [(1.0, 0.0), (2.0, 10.0), (3.0, 110.0), (4.0, 120.0), (5.0, 220.0)];
        let counter = track(Kind::Counter, &points).spliced(&[(1.0, 2.0), (3.0, 4.0)]);
        assert_eq!(counter.points, [(1.0, 0.0), (2.0, 10.0), (3.0, 20.0)]);
        assert_eq!(counter.increase(1.0, 3.0), Some(20.0));
        let gauge = track(Kind::Gauge, &[(1.5, 7.0), (2.5, 8.0), (3.5, 9.0)]);
        assert_eq!(gauge.spliced(&[(1.0, 2.0), (3.0, 4.0)]).points, [(1.5, 7.0), (2.5, 9.0)]);
        let unsampled = track(Kind::Counter, &points).spliced(&[(1.0, 2.0), (13.0, 14.0)]);
        assert!(unsampled.points.is_empty() && unsampled.increase(1.0, 2.0).is_none());
    }
}
