//! How late answers are: a distribution drawn from a seed, and stalls during which nothing is answered.

use std::time::Duration;

/// The distribution of the time between a request's arrival and its answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// At once.
    None,
    /// Always the same.
    Fixed(Duration),
    /// exp(ln(median) + sigma * N(0, 1)): the usual look of a database's latencies.
    LogNormal {
        /// Half of the answers are faster.
        median: Duration,
        /// Spread; 0.5 puts p99 at 3.2 medians.
        sigma: f64,
    },
}

/// Regular stalls: an answer that is due while one lasts leaves when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// From the first delayed request to the first stall, and from one stall to the next.
    pub every: Duration,
    /// How long each lasts.
    pub lasts: Duration,
    /// How many; `None`: as long as the server runs.
    pub count: Option<u32>,
}

/// Draws latencies.
#[derive(Debug, Clone)]
pub struct Latency {
    shape: Shape,
    state: u64,
}

/// A latency or a stall that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{text:?}: expected {expected}")]
pub struct LatencyError {
    text: String,
    expected: &'static str,
}

impl Shape {
    /// `none`, `fixed:MICROSECONDS` or `lognormal:MEDIAN_MICROSECONDS:SIGMA`.
    pub fn parse(text: &str) -> Result<Shape, LatencyError> {
        const EXPECTED: &str = "none, fixed:MICROSECONDS or lognormal:MEDIAN_MICROSECONDS:SIGMA";
        let parts: Vec<&str> = text.split(':').collect();
        let micros = |text: &str| text.parse().map(Duration::from_micros).ok();
        let shape = match parts[..] {
            ["none"] => Some(Shape::None),
            ["fixed", latency] => micros(latency).map(Shape::Fixed),
            ["lognormal", median, sigma] => {
                let sigma = sigma.parse().ok().filter(|sigma: &f64| sigma.is_finite() && *sigma >= 0.0);
                micros(median).zip(sigma).map(|(median, sigma)| Shape::LogNormal { median, sigma })
            }
            _ => None,
        };
        shape.ok_or_else(|| LatencyError { text: text.to_owned(), expected: EXPECTED })
    }
}

impl Stall {
    /// `EVERY_MS:LASTS_MS` or `EVERY_MS:LASTS_MS:COUNT`.
    pub fn parse(text: &str) -> Result<Stall, LatencyError> {
        const EXPECTED: &str = "EVERY_MS:LASTS_MS or EVERY_MS:LASTS_MS:COUNT, EVERY_MS longer than LASTS_MS";
        let numbers: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        let stall = match numbers.as_deref() {
            Some([every, lasts]) => Some((*every, *lasts, None)),
            Some([every, lasts, count]) => Some((*every, *lasts, Some(*count))),
            _ => None,
        };
        stall
            .filter(|(every, lasts, _)| every > lasts)
            .map(|(every, lasts, count)| Stall {
                every: Duration::from_millis(every.into()),
                lasts: Duration::from_millis(lasts.into()),
                count,
            })
            .ok_or_else(|| LatencyError { text: text.to_owned(), expected: EXPECTED })
    }

    /// When an answer that is due `due_ns` after the first request may leave, in ns after the first request.
    pub fn postpone(&self, due_ns: u64) -> u64 {
        let (every, lasts) = (self.every.as_nanos() as u64, self.lasts.as_nanos() as u64);
        let number = due_ns / every;
        let is_one = number > 0 && self.count.is_none_or(|count| number <= u64::from(count));
        if is_one && due_ns % every < lasts { number * every + lasts } else { due_ns }
    }
}

impl Latency {
    /// The stream of latencies of one seed.
    pub fn new(shape: Shape, seed: u64) -> Latency {
        Latency { shape, state: seed }
    }

    /// The next one.
    pub fn draw(&mut self) -> Duration {
        match self.shape {
            Shape::None => Duration::ZERO,
            Shape::Fixed(latency) => latency,
            Shape::LogNormal { median, sigma } => median.mul_f64((sigma * self.normal()).exp()),
        }
    }

    /// Box and Muller 1958; one of the pair is enough here.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// SplitMix64 (Steele, Lea, Flood 2014), as a double in [0, 1).
    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood() {
        assert_eq!(Shape::parse("none").unwrap(), Shape::None);
        assert_eq!(Shape::parse("fixed:250").unwrap(), Shape::Fixed(Duration::from_micros(250)));
        let median = Duration::from_millis(2);
        assert_eq!(Shape::parse("lognormal:2000:0.5").unwrap(), Shape::LogNormal { median, sigma: 0.5 });
        for bad in ["", "fixed", "fixed:x", "lognormal:1", "lognormal:1:-1", "lognormal:1:nan"] {
            assert!(Shape::parse(bad).is_err(), "{bad}");
        }
        assert!(Stall::parse("1000:50").is_ok() && Stall::parse("1000:50:3").is_ok());
        for bad in ["", "1000", "50:1000", "a:b", "1:0:1:1"] {
            assert!(Stall::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stalls_hold_answers_back() {
        let stall = Stall::parse("1000:50:2").unwrap();
        let ms = 1_000_000;
        for (due, leaves) in [
            (10, 10),
            (999, 999),
            (1_000, 1_050),
            (1_049, 1_050),
            (1_050, 1_050),
            (2_020, 2_050),
            (3_020, 3_020),
        ] {
            assert_eq!(stall.postpone(due * ms), leaves * ms);
        }
    }

    #[test]
    fn the_distribution_is_the_one_stated() {
        let median = Duration::from_millis(10);
        let mut latency = Latency::new(Shape::LogNormal { median, sigma: 0.5 }, 1);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| latency.draw().as_secs_f64() * 1e3).collect();
        drawn.sort_by(f64::total_cmp);
        assert!((drawn[50_000] / 10.0 - 1.0).abs() < 0.01, "median {}", drawn[50_000]);
        // z(0.99) = 2.3263
        let p99 = 10.0 * (0.5f64 * 2.3263).exp();
        assert!((drawn[99_000] / p99 - 1.0).abs() < 0.03, "p99 {} {p99}", drawn[99_000]);
    }
}
