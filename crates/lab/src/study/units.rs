//! Durations as people write them: `10s`, `1m30s`, `500ms`.

use std::time::Duration;

/// More than anybody measures; sums of durations stay far from where they overflow.
const HOURS_MAX: f64 = 8760.0;

/// Reads a duration of at most a year. A bare number is refused: its unit would be a guess. The error says what is wrong.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("empty".into());
    }
    let mut total_s = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| format!("no number before `{rest}`"))?;
        let tail = rest[digits..].trim_start();
        let letters = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let unit_s = match &tail[..letters] {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "" => return Err("no unit".into()),
            other => return Err(format!("`{other}` is not a unit (ms, s, m, h)")),
        };
        total_s += number * unit_s;
        rest = tail[letters..].trim_start();
    }
    if total_s > HOURS_MAX * 3600.0 {
        return Err(format!("longer than a year (at most {HOURS_MAX}h)"));
    }
    Duration::try_from_secs_f64(total_s).map_err(|_| "too long".into())
}

/// A duration as [`duration`] reads it, shortest form.
pub fn show(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    if duration.subsec_millis() != 0 || duration.is_zero() && s > 0.0 {
        if s < 1.0 { format!("{}ms", duration.as_millis()) } else { format!("{s}s") }
    } else if s >= 60.0 && duration.as_secs().is_multiple_of(60) {
        format!("{}m", duration.as_secs() / 60)
    } else {
        format!("{}s", duration.as_secs())
    }
}

/// A time in milliseconds since 1970 as `2026-11-21 20:15 UTC`.
pub fn utc(at_ms: i64) -> String {
    let minutes = at_ms.div_euclid(60_000);
    let (days, minute) = (minutes.div_euclid(1440), minutes.rem_euclid(1440));
    // Days since 1970 to a date, by Howard Hinnant's civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("500 ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("8760h"), Ok(Duration::from_secs(365 * 86_400)));
        let digits = format!("{}s", "9".repeat(400));
        for bad in ["", "10", "s", "10 parsecs", "-1s", "1s2", "8761h", "9000000000000000000s", &digits] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_292_103_000), "2026-11-21 20:15 UTC");
    }

    #[test]
    fn shown_durations_read_back() {
        for ms in [0u64, 1, 500, 1000, 1500, 60_000, 90_000, 3_600_000] {
            let duration_ = Duration::from_millis(ms);
            assert_eq!(duration(&show(duration_)), Ok(duration_), "{}", show(duration_));
        }
    }
}
