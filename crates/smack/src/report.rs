//! The report that `collect_threads` prints.
//!
//! Two ways of counting. *Faithful* is the original with its quirks, so that figures compare with published ones:
//! the longest and shortest time of a query type are taken over each instance's *last* query only; the last
//! instance (the controller) enters the mean connect time but not its maximum and minimum; queries per second are
//! divided by the time since `create_threads`, connecting included; times are cut to whole milliseconds. *Fixed*
//! counts every query, and only the time from the first query's start to the last one's end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::session::Instance;

/// Which way to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// As the original does.
    #[default]
    Faithful,
    /// As it should be.
    Fixed,
}

/// Figures of a statistics group over all instances.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupReport {
    pub num_queries: u64,
    /// Longest, in ms.
    pub max_time_ms: f64,
    /// Shortest, in ms.
    pub min_time_ms: f64,
    /// Queries per second.
    pub q_per_s: f64,
}

/// What a client's report says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub client: String,
    pub instances: usize,
    /// Longest connect, in ms.
    pub connect_max_ms: f64,
    /// Shortest connect, in ms.
    pub connect_min_ms: f64,
    /// Mean connect, in ms.
    pub connect_avg_ms: f64,
    /// By group, in alphabetical order.
    pub groups: BTreeMap<String, GroupReport>,
    timing: Timing,
}

impl Report {
    /// Computes the report. `wall` is the time from `create_threads` to `collect_threads`.
    pub fn new(
        client: &str,
        groups: &[String],
        instances: &[Instance],
        wall: Duration,
        timing: Timing,
    ) -> Report {
        let cut = |ns: u64| match timing {
            Timing::Faithful => (ns / 1_000_000) as f64,
            Timing::Fixed => ns as f64 / 1e6,
        };
        let controller = instances.iter().map(|i| i.index).max();
        let counted: Vec<f64> = instances
            .iter()
            .filter(|i| timing == Timing::Fixed || Some(i.index) != controller)
            .map(|i| cut(i.connect_ns))
            .collect();
        let sum: f64 = instances.iter().map(|i| cut(i.connect_ns)).sum();
        let seconds = match timing {
            Timing::Faithful => wall.as_secs_f64(),
            Timing::Fixed => {
                let first = instances.iter().filter_map(|i| i.span).map(|(first, _)| first).min();
                let last = instances.iter().filter_map(|i| i.span).map(|(_, last)| last).max();
                first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64())
            }
        };
        let group = |index: usize| {
            let ran: Vec<_> = instances.iter().map(|i| i.groups[index]).filter(|g| g.count > 0).collect();
            let num_queries: u64 = ran.iter().map(|g| g.count).sum();
            let longest = |g: &crate::session::GroupFigures| match timing {
                Timing::Faithful => g.last_ns,
                Timing::Fixed => g.max_ns,
            };
            let shortest = |g: &crate::session::GroupFigures| match timing {
                Timing::Faithful => g.last_ns,
                Timing::Fixed => g.min_ns,
            };
            GroupReport {
                num_queries,
                max_time_ms: cut(ran.iter().map(longest).max().unwrap_or(0)),
                min_time_ms: cut(ran.iter().map(shortest).min().unwrap_or(0)),
                q_per_s: if seconds > 0.0 { num_queries as f64 / seconds } else { 0.0 },
            }
        };
        Report {
            client: client.to_owned(),
            instances: instances.len(),
            connect_max_ms: counted.iter().copied().fold(0.0, f64::max),
            connect_min_ms: counted.iter().copied().reduce(f64::min).unwrap_or(0.0),
            connect_avg_ms: if instances.is_empty() { 0.0 } else { sum / instances.len() as f64 },
            groups: groups.iter().enumerate().map(|(i, name)| (name.clone(), group(i))).collect(),
            timing,
        }
    }

    /// The text as Super Smack prints it.
    pub fn text(&self) -> String {
        let time = |ms: f64| match self.timing {
            Timing::Faithful => format!("{ms:.0}"),
            Timing::Fixed => format!("{ms:.3}"),
        };
        let mut text = format!(
            "Query Barrel Report for client {}\nconnect: max={}ms  min={}ms avg={:>3}ms from {} clients\n",
            self.client,
            time(self.connect_max_ms),
            time(self.connect_min_ms),
            match self.timing {
                Timing::Faithful => format!("{:.0}", self.connect_avg_ms.floor()),
                Timing::Fixed => format!("{:.3}", self.connect_avg_ms),
            },
            self.instances
        );
        text.push_str("Query_type\tnum_queries\tmax_time\tmin_time\tq_per_s\n");
        for (name, group) in &self.groups {
            text.push_str(&format!(
                "{name}\t{}\t{}\t{}\t{:.2}\n",
                group.num_queries,
                time(group.max_time_ms),
                time(group.min_time_ms),
                group.q_per_s
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::GroupFigures;

    fn instances() -> Vec<Instance> {
        let ms = 1_000_000;
        let figures = |last, max, min| GroupFigures {
            count: 10,
            last_ns: last * ms,
            max_ns: max * ms,
            min_ns: min * ms,
        };
        vec![
            Instance { index: 0, connect_ns: 62 * ms + 900_000, groups: vec![figures(3, 9, 1)], span: None },
            Instance { index: 1, connect_ns: 70 * ms, groups: vec![figures(5, 7, 2)], span: None },
        ]
    }

    #[test]
    fn faithful_has_the_quirks_of_the_original() {
        let wall = Duration::from_secs(2);
        let report = Report::new("smacker1", &["select_index".into()], &instances(), wall, Timing::Faithful);
        let expected = "Query Barrel Report for client smacker1\n\
            connect: max=62ms  min=62ms avg= 66ms from 2 clients\n\
            Query_type\tnum_queries\tmax_time\tmin_time\tq_per_s\n\
            select_index\t20\t5\t3\t10.00\n";
        assert_eq!(report.text(), expected);
    }

    #[test]
    fn fixed_counts_every_query_and_every_instance() {
        let start = load::time::Moment::now();
        let mut instances = instances();
        instances[0].span = Some((start, start + Duration::from_millis(400)));
        instances[1].span = Some((start + Duration::from_millis(100), start + Duration::from_millis(500)));
        let wall = Duration::from_secs(2);
        let report = Report::new("smacker1", &["select_index".into()], &instances, wall, Timing::Fixed);
        let group = report.groups["select_index"];
        assert_eq!((group.max_time_ms, group.min_time_ms, group.q_per_s), (9.0, 1.0, 40.0));
        assert_eq!(report.connect_max_ms, 70.0);
    }
}
