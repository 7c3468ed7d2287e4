//! Values and figures as people read them.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

/// An axis' value: strings bare, anything else as JSON.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// RFC 3339 in UTC.
pub fn time_text(at_ms: i64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at_ms.max(0) as u64);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Three significant digits below 1000, whole numbers with separated thousands from there on.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    if size >= 999.5 {
        return thousands(value);
    }
    let digits = match size {
        _ if size == 0.0 => 0,
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A whole number with thin spaces between thousands.
pub(crate) fn thousands(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

/// A ratio: `×1.23`.
pub fn ratio(value: f64) -> String {
    if value < 0.005 {
        return "×<0.01".to_owned();
    }
    // An interval that reaches so far says nothing but that.
    if value >= 999.5 {
        "×>1000".to_owned()
    } else if value >= 99.5 {
        format!("×{value:.0}")
    } else if value >= 9.95 {
        format!("×{value:.1}")
    } else {
        format!("×{value:.2}")
    }
}

/// An end of a ratio's interval. One that is rounded to 1 is shown with a digit more: on which side of 1 it lies is what
/// the verdict says.
pub fn ratio_end(value: f64) -> String {
    let text = ratio(value);
    if text == "×1.00" && value != 1.0 { format!("×{value:.3}") } else { text }
}

/// The interval of a ratio: `×0.92 to ×0.996`.
pub(crate) fn ratio_ends((low, high): (f64, f64)) -> String {
    format!("{} to {}", ratio_end(low), ratio_end(high))
}

/// Ratios from the lowest to the highest: `×0.92 to ×0.95`.
pub fn ratio_span(values: &[f64]) -> String {
    let low = ratio(values.iter().copied().fold(f64::MAX, f64::min));
    let high = ratio(values.iter().copied().fold(f64::MIN, f64::max));
    if low == high { low } else { format!("{low} to {high}") }
}

/// How many blocks a comparison of `n` blocks needs, from few to likely to many. One block says nothing of the spread:
/// then it is the least number that a verdict wants.
pub(crate) fn would_decide([few, likely, many]: [usize; 3], n: usize) -> String {
    if n < 2 {
        format!("at least {likely} blocks are needed")
    } else if few == many {
        format!("about {likely} blocks would decide")
    } else if many >= stats::BLOCKS_MAX {
        format!("about {likely} blocks would decide, or many more; {few} if lucky")
    } else {
        format!("about {likely} blocks would decide, {few} to {many}")
    }
}

/// `p < 0.001` rather than a row of zeros.
pub fn p_value(value: f64) -> String {
    if value < 0.001 { "< 0.001".to_owned() } else { format!("{value:.3}") }
}

/// `0.05` is `5 %`.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = usize::from(value.abs() < 10.0 && (value - value.round()).abs() > 0.05);
    format!("{value:.digits$}\u{202f}%")
}

/// Bytes in binary units.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", number(value), units[unit])
}

/// A metric as a heading: its name with its unit.
pub fn metric_name(metric: &str) -> String {
    match metric {
        "tps" => "TPS".to_owned(),
        "qps" => "QPS".to_owned(),
        "tps_max" => "TPS of the best second".to_owned(),
        "tps_min" => "TPS of the worst second".to_owned(),
        crate::model::CPU_PER_TRANSACTION => "server CPU per transaction".to_owned(),
        "mean" | "avg" | "mean_ms" => "mean response time".to_owned(),
        "max" | "max_ms" => "longest response time".to_owned(),
        "p999" | "p999_ms" => "p99.9 of response time".to_owned(),
        line if crate::lines::is_line(line) => format!("line under {line}"),
        other => match other.trim_end_matches("_ms").strip_prefix('p') {
            Some(rank) if rank.parse::<u32>().is_ok() => format!("p{rank} of response time"),
            _ => other.replace('_', " "),
        },
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_says_only_what_is_the_least() {
        assert_eq!(would_decide([5; 3], 1), "at least 5 blocks are needed");
        assert_eq!(would_decide([12, 27, 90], 4), "about 27 blocks would decide, 12 to 90");
        assert_eq!(would_decide([6, 6, 6], 4), "about 6 blocks would decide");
        assert!(would_decide([9, 40, stats::BLOCKS_MAX], 4).contains("many more"));
    }

    #[test]
    fn numbers_keep_three_digits() {
        let check = |value: f64, expect: &str| assert_eq!(number(value), expect);
        check(0.0, "0");
        check(0.01234, "0.0123");
        check(0.5, "0.500");
        check(1.234, "1.23");
        check(12.34, "12.3");
        check(123.4, "123");
        check(999.6, "1\u{202f}000");
        check(1_234_567.0, "1\u{202f}234\u{202f}567");
        check(-4321.0, "\u{2212}4\u{202f}321");
        check(f64::NAN, "–");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time_text(1_795_000_000_000), "2026-11-18T11:06:40Z");
    }

    #[test]
    fn small_words() {
        assert_eq!(percent(0.05), "5\u{202f}%");
        assert_eq!(percent(0.025), "2.5\u{202f}%");
        assert_eq!(p_value(0.0001), "< 0.001");
        assert_eq!(ratio(1.2345), "×1.23");
        assert_eq!([0.9964, 1.0, 1.0042, 1.2345].map(ratio_end), ["×0.996", "×1.00", "×1.004", "×1.23"]);
        assert_eq!([0.001, 1.5e13, 640.0].map(ratio), ["×<0.01", "×>1000", "×640"]);
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(listed(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
        assert_eq!(value_text(&serde_json::json!(2)), "2");
    }
}
