//! Little's law as a check of the measurement itself.

/// Whether throughput, latency and sessions of a closed loop fit together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LittleCheck {
    /// Mean number of sessions inside a transaction or thinking that throughput and latency imply.
    pub implied_sessions: f64,
    /// Implied divided by real sessions; 1 where everything was measured.
    pub ratio: f64,
    /// The ratio is within the tolerance.
    pub holds: bool,
}

/// L = lambda x W (Little 1961) over a closed loop: `tps` must count every transaction that ended, failed ones
/// included, and `mean_latency_s` must cover the same ones. A ratio well below 1 means that sessions spend time
/// outside the timer (the client is the bottleneck, or connections were being opened); above 1 that latencies are
/// counted that do not belong to these transactions. `None` where a figure is not positive.
pub fn little(
    sessions: f64,
    tps: f64,
    mean_latency_s: f64,
    think_time_s: f64,
    tolerance: f64,
) -> Option<LittleCheck> {
    let is_usable = [sessions, tps, mean_latency_s].iter().all(|x| x.is_finite() && *x > 0.0);
    if !is_usable || think_time_s.is_nan() || think_time_s < 0.0 {
        return None;
    }
    let implied_sessions = tps * (mean_latency_s + think_time_s);
    let ratio = implied_sessions / sessions;
    Some(LittleCheck { implied_sessions, ratio, holds: (ratio - 1.0).abs() <= tolerance })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_sessions_at_ten_milliseconds_make_6400() {
        assert!(little(64.0, 6400.0, 0.010, 0.0, 0.05).unwrap().holds);
        assert!(little(64.0, 3200.0, 0.010, 0.010, 0.05).unwrap().holds);
    }

    #[test]
    fn time_outside_the_timer_is_found() {
        let check = little(64.0, 4000.0, 0.010, 0.0, 0.05).unwrap();
        assert!(!check.holds && (check.ratio - 0.625).abs() < 1e-12);
        assert_eq!(little(64.0, 0.0, 0.01, 0.0, 0.05), None);
    }
}
