//! Change points of anybody's series: a column of numbers, or a table with columns of metrics as Otava (Hunter) reads
//! them (`time,commit,metric1,metric2`).

use std::path::Path;

use stats::{ChangePoint, ChangeRules};

use crate::error::Error;

/// One column of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The column's name; empty where the file names none.
    pub name: String,
    /// One for each point, `None` where the file has none.
    pub values: Vec<Option<f64>>,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesFile {
    /// What tells a point from others (commit, else build, else time), where there is a column for it.
    pub labels: Option<Vec<String>>,
    /// Its metrics, in their order.
    pub metrics: Vec<Metric>,
    /// Points of each.
    pub points: usize,
}

/// A change of one metric. Its index counts the file's points from 0, also those that have no value.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricChange {
    /// The metric's name; empty where the file names none.
    pub metric: String,
    pub change: ChangePoint,
}

/// Columns that say when a point was made; never a metric, although they may hold numbers.
const TIMES: [&str; 6] = ["time", "timestamp", "date", "datetime", "ts", "at"];
/// Columns that say what was measured, in the order in which they are preferred as a point's label.
const ATTRIBUTES: [&str; 9] =
    ["commit", "revision", "sha", "hash", "build", "version", "branch", "run", "test"];
/// Columns that count points.
const COUNTERS: [&str; 5] = ["index", "id", "n", "#", ""];

/// Reads a series file. `name` is what messages call it.
pub fn read(name: &Path, text: &str) -> Result<SeriesFile, Error> {
    let wrong = |what: String| Error::Usage(format!("{}: {what}", name.display()));
    let text = text.trim_start_matches('\u{feff}');
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .map(|(at, line)| (at + 1, line))
        .collect();
    let Some((_, first)) = lines.first() else {
        return Err(wrong(
            "it holds no points: write one number a line, or columns with a line of names".into(),
        ));
    };
    let separator = separator(first);
    let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
    for (line, text) in &lines {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(separator)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let fields =
            reader.records().next().transpose().map_err(|error| wrong(format!("line {line}: {error}")))?;
        rows.push((*line, fields.map(|f| f.iter().map(str::to_owned).collect()).unwrap_or_default()));
    }
    let has_names = rows[0].1.iter().any(|field| !is_missing(field) && number(field).is_none());
    let names: Vec<String> = match has_names {
        true => rows.remove(0).1,
        false => vec![String::new(); rows[0].1.len()],
    };
    for (line, fields) in &rows {
        if fields.len() != names.len() {
            let (has, others) = (fields.len(), names.len());
            return Err(wrong(format!("line {line} has {has} columns where the first line has {others}")));
        }
    }
    table(&names, &rows, has_names).map_err(wrong)
}

/// Comma, semicolon or tabulator, whichever there is most of.
fn separator(line: &str) -> u8 {
    let count = |separator: u8| line.bytes().filter(|byte| *byte == separator).count();
    [b',', b';', b'\t']
        .into_iter()
        .max_by_key(|separator| (count(*separator), *separator == b','))
        .unwrap_or(b',')
}

fn number(field: &str) -> Option<f64> {
    field.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn is_missing(field: &str) -> bool {
    ["", "-", "nan", "null", "none", "na"].contains(&field.to_ascii_lowercase().as_str())
}

fn table(names: &[String], rows: &[(usize, Vec<String>)], has_names: bool) -> Result<SeriesFile, String> {
    let lower: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_known = |at: usize, known: &[&str]| has_names && known.contains(&lower[at].as_str());
    if let Some(branch) = (0..names.len()).find(|at| is_known(*at, &["branch"])) {
        let mut branches: Vec<&str> = rows.iter().map(|(_, fields)| fields[branch].as_str()).collect();
        branches.sort_unstable();
        branches.dedup();
        if branches.len() > 1 {
            return Err(format!(
                "it holds points of {} branches ({}), which make no one series: keep the lines of one",
                branches.len(),
                branches.join(", ")
            ));
        }
    }
    let column = |at: usize| rows.iter().map(move |(_, fields)| fields[at].as_str());
    let is_numeric = |at: usize| {
        column(at).all(|field| is_missing(field) || number(field).is_some())
            && column(at).any(|field| number(field).is_some())
    };
    let counts = |at: usize| {
        let values: Vec<Option<f64>> = column(at).map(number).collect();
        values.len() > 1 && values.windows(2).all(|two| two[0].zip(two[1]).is_some_and(|(a, b)| b - a == 1.0))
    };
    let is_metric = |at: &usize| !is_known(*at, &TIMES) && !is_known(*at, &ATTRIBUTES);
    let mut metrics: Vec<usize> = (0..names.len()).filter(|at| is_metric(at) && is_numeric(*at)).collect();
    // A column of a table that only counts its lines is no metric; alone, it is what there is.
    let others: Vec<usize> =
        metrics.iter().copied().filter(|at| !counts(*at) && !is_known(*at, &COUNTERS)).collect();
    if !others.is_empty() {
        metrics = others;
    }
    if metrics.is_empty() {
        let mistaken = (0..names.len()).filter(is_metric).find_map(|at| {
            let of_column = rows.iter().map(|(line, fields)| (*line, fields[at].as_str()));
            let (numbers, words): (Vec<_>, Vec<_>) = of_column
                .filter(|(_, field)| !is_missing(field))
                .partition(|(_, field)| number(field).is_some());
            words.first().filter(|_| numbers.len() > words.len()).copied()
        });
        return Err(match mistaken {
            Some((line, word)) => {
                format!("line {line}: `{word}` is not a number; leave the field empty if there is none")
            }
            None => {
                "it has no column of numbers: write one number a line, or columns with a line of names".into()
            }
        });
    }
    let label = ATTRIBUTES.iter().chain(&TIMES).find_map(|known| lower.iter().position(|name| name == known));
    Ok(SeriesFile {
        labels: label.filter(|_| has_names).map(|at| column(at).map(str::to_owned).collect()),
        metrics: metrics
            .iter()
            .map(|at| Metric { name: names[*at].clone(), values: column(*at).map(number).collect() })
            .collect(),
        points: rows.len(),
    })
}

/// Change points of all metrics, searched together, by metric and place.
pub fn find(file: &SeriesFile, rules: &ChangeRules) -> Result<Vec<MetricChange>, Error> {
    let present: Vec<(Vec<usize>, Vec<f64>)> = file
        .metrics
        .iter()
        .map(|metric| {
            metric.values.iter().enumerate().filter_map(|(at, value)| value.map(|v| (at, v))).unzip()
        })
        .collect();
    let most = present.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let needed = 2 * rules.segment_min;
    if most < needed {
        return Err(Error::Usage(format!(
            "a series of {most} points shows no change: it takes {} before and {} after it, so give {needed} or more",
            rules.segment_min, rules.segment_min
        )));
    }
    let series: Vec<&[f64]> = present.iter().map(|(_, values)| values.as_slice()).collect();
    let found = stats::change_points_of_many(&series, rules);
    let of_metric = file.metrics.iter().zip(&present).zip(found);
    Ok(of_metric
        .flat_map(|((metric, (places, _)), changes)| {
            changes.into_iter().map(|change| MetricChange {
                metric: metric.name.clone(),
                change: ChangePoint { index: places[change.index], ..change },
            })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<SeriesFile, String> {
        read(Path::new("f.csv"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_column_of_numbers_needs_no_name() {
        for text in
            ["1\n2.5\n\n3e2\n", "tps\n1\n2.5\n3e2\n", "# mine\n0,1\n1,2.5\n2,3e2\n", "i;v\n0;1\n1;2.5\n2;3e2"]
        {
            let file = of(text).unwrap();
            assert_eq!(file.metrics.len(), 1, "{text}");
            assert_eq!(file.metrics[0].values, [Some(1.0), Some(2.5), Some(300.0)], "{text}");
        }
    }

    #[test]
    fn tables_of_otava_have_metrics_beside_times_and_commits() {
        let file = of("time,commit,metric1,metric2\n2026.01.01 3:00:00 +0100,aaa0,154023,10.43\n\
                       2026.01.02 3:00:00 +0100,aaa1,138455,\n")
        .unwrap();
        let names: Vec<&str> = file.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!((names, file.points), (vec!["metric1", "metric2"], 2));
        assert_eq!(file.metrics[1].values, [Some(10.43), None]);
        assert_eq!(file.labels.unwrap(), ["aaa0", "aaa1"]);
        let unix = of("time,metric1\n1609466400,154023\n1609552800,138455\n").unwrap();
        assert_eq!(unix.metrics.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_said_with_the_line() {
        for (text, wanted) in [
            ("", "no points"),
            ("a,b\nx,y\n", "no column of numbers"),
            ("1\n2\nx\n4\n", "line 3: `x` is not a number"),
            ("tps\n1\n2\n4,5\n", "line 4 has 2 columns where the first line has 1"),
            ("branch,tps\nmain,1\nother,2\n", "2 branches (main, other)"),
        ] {
            let told = of(text).unwrap_err();
            assert!(told.contains("f.csv") && told.contains(wanted), "{text:?}: {told}");
        }
        let told = find(&of("1\n2\n").unwrap(), &ChangeRules::default()).unwrap_err().to_string();
        assert!(told.contains("a series of 2 points") && told.contains("8 or more"), "{told}");
    }

    #[test]
    fn places_count_points_without_a_value() {
        let mut text = String::from("v\n");
        for at in 0..40 {
            let value = if at < 20 { 100 + at % 3 } else { 120 + at % 3 };
            text.push_str(&if at == 5 { "nan\n".into() } else { format!("{value}\n") });
        }
        let found = find(&of(&text).unwrap(), &ChangeRules::default()).unwrap();
        assert_eq!(found.iter().map(|change| change.change.index).collect::<Vec<_>>(), [20]);
    }
}
