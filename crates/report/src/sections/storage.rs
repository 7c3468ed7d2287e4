//! Average, 95th percentile and TPS by storage, with what the device does by itself, what a commit survives, and
//! whether each row can be true (Little's law).

use serde_json::Value;

use super::{Cell, Section, Table, dash, groups, heads, name};
use crate::derived;
use crate::model::{Point, StudyReport};
use crate::order::{distinct, place};
use crate::text::{number, value_text};
use crate::wishes::Wishes;

/// Rows within this of the sessions are believed.
const LITTLE_TOLERANCE: f64 = 0.05;
/// What a device can do, in the probe's names, with the column's head.
const DEVICE: [(&str, &str); 4] = [
    ("sequential_write", "seq. write MB/s"),
    ("random_read_4k", "4 KiB reads/s"),
    ("random_write_4k", "4 KiB writes/s"),
    ("append_sync_p50", "fsync/s"),
];

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let mut tables: Vec<Table> = groups(study, &["storage", "settings", "sessions"])
        .into_iter()
        .map(|(key, points)| table(study, name(study, &key, &[]), &points))
        .collect();
    tables.retain(|table| !table.rows.is_empty());
    tables.extend(devices(study));
    tables.extend(published(study));
    Some(Section {
        id: "storage",
        title: "By storage",
        hint: "Response times in ms. Little: sessions that the transactions started per second (rolled back and failed ones \
               among them) and the mean response time imply, over the real ones; a row that is marked cannot be true as it stands. TPS per fsync: transactions that one log flush of the device \
               carries at the rate that the device alone can do; above 1 commits are grouped or not flushed each."
            .to_owned(),
        tables,
        ..Section::default()
    })
}

fn table(study: &StudyReport, caption: String, points: &[&Point]) -> Table {
    let mut notes = Vec::new();
    let rows = points
        .iter()
        .map(|point| {
            let text = |axis: &str| point.identity.get(axis).map_or_else(|| "default".to_owned(), value_text);
            let place = text("storage");
            let (class, why) = durability(study, point);
            if let Some(why) = why.filter(|_| !class.is_empty()) {
                let note = format!("{class}: {why}");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            let tps = point.tps.map(|tps| tps.median);
            let fsync =
                place_of(study, point).and_then(|(host, at)| device(study, (host, &at), "append_sync_p50"));
            vec![
                place.into(),
                text("settings").into(),
                class.into(),
                Cell::count("sessions", point.sessions as usize),
                Cell::number("mean_ms", point.mean_ms.map(|e| e.median)),
                Cell::number("p95_ms", point.p95_ms.map(|e| e.median)),
                Cell::number("tps", tps),
                Cell::written("little_started", derived::little(study, point), little_text)
                    .instead_of("little", little_of_committed(study, point)),
                Cell::number("tps_per_fsync", tps.zip(fsync).map(|(tps, fsync)| tps / fsync)),
            ]
        })
        .collect();
    Table {
        id: "places",
        caption,
        heads: heads("Storage | Profile | Durability | Sessions | avg | p95 | TPS | Little | TPS per fsync"),
        words: 3,
        rows,
        notes,
    }
}

fn durability(study: &StudyReport, point: &Point) -> (String, Option<String>) {
    let server = study.counted(point).find_map(|(run, _)| Some(&run.end.as_ref()?.server));
    server.map_or((String::new(), None), |s| (s.durability_class.clone(), Some(s.durability_why.clone())))
}

/// As bundles were sealed with it: of committed transactions alone, which is less where others were rolled back or failed.
fn little_of_committed(study: &StudyReport, point: &Point) -> Option<f64> {
    let checks: Vec<stats::LittleCheck> = study
        .counted(point)
        .filter_map(|(_, step)| {
            let mean_s = step.response?.mean / 1000.0;
            stats::little(f64::from(point.sessions), step.tps, mean_s, 0.0, LITTLE_TOLERANCE)
        })
        .collect();
    stats::median(&checks.iter().map(|check| check.ratio).collect::<Vec<_>>())
}

fn little_text(ratio: f64) -> String {
    let mark = if (ratio - 1.0).abs() <= LITTLE_TOLERANCE { "" } else { " (does not add up)" };
    format!("{ratio:.2}{mark}")
}

/// The published table with the same check.
fn published(study: &StudyReport) -> Option<Table> {
    let mut rows: Vec<(&str, u32, [Option<f64>; 3])> = Vec::new();
    for figure in &study.references {
        let Some(column) = ["mean_ms", "p95_ms", "tps"].iter().position(|name| *name == figure.metric) else {
            continue;
        };
        let sessions = figure.key.get("sessions").and_then(Value::as_u64);
        let Some(sessions) = sessions.and_then(|n| u32::try_from(n).ok()) else { continue };
        let is_known = |(series, n, _): &(&str, u32, _)| *series == figure.series && *n == sessions;
        let row = place(&mut rows, is_known, || (&figure.series, sessions, [None; 3]));
        rows[row].2[column] = Some(figure.value);
    }
    rows.retain(|(_, _, values)| values.iter().all(Option::is_some));
    let first = study.references.iter().find(|figure| figure.metric == "mean_ms")?;
    let rows: Vec<Vec<Cell>> = rows
        .into_iter()
        .map(|(series, sessions, values)| {
            let [mean, p95, tps] = values.map(Option::unwrap_or_default);
            let check = stats::little(f64::from(sessions), tps, mean / 1000.0, 0.0, LITTLE_TOLERANCE);
            let mut row = vec![series.to_owned(), sessions.to_string()];
            row.extend([mean, p95, tps].map(number));
            row.push(dash(check.map(|check| little_text(check.ratio))));
            row.into_iter().map(Cell::from).collect()
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        id: "published",
        caption: format!("Published {}: {}", first.year, first.machine),
        heads: heads("Storage and profile | Sessions | avg | p95 | TPS | Little"),
        words: 1,
        rows,
        notes: vec![format!("{}. Beside ours, and in no verdict.", first.source)],
    })
}

/// A figure of the place's probe on that host; the time of a flush as its rate.
fn device(study: &StudyReport, (host, place): (usize, &str), figure: &str) -> Option<f64> {
    let (_, probe) = study.probes.iter().find(|(on, probe)| *on == host && probe.place == place)?;
    let found = probe.figures.iter().find(|known| known.name == figure)?.value;
    Some(if figure == "append_sync_p50" { 1e6 / found } else { found })
}

/// Where a point's data directories were: its host and its place.
fn place_of(study: &StudyReport, point: &Point) -> Option<(usize, String)> {
    let (run, _) = point.runs.first()?;
    let place = point.identity.get("storage").map_or_else(|| "default".to_owned(), value_text);
    Some((study.runs[*run].host, place))
}

fn devices(study: &StudyReport) -> Option<Table> {
    let of_points = study.points.iter().filter_map(|point| place_of(study, point));
    let of_probes = study.probes.iter().map(|(host, probe)| (*host, probe.place.clone()));
    let places = distinct(of_points.chain(of_probes));
    let has_hosts = places.iter().any(|(host, _)| *host != places[0].0);
    let rows: Vec<Vec<Cell>> = places
        .iter()
        .map(|(host, place)| {
            let shown =
                if has_hosts { format!("{place} on {}", host_name(study, *host)) } else { place.clone() };
            let of = |figure| Cell::number(figure, device(study, (*host, place), figure));
            std::iter::once(shown.into()).chain(DEVICE.iter().map(|(figure, _)| of(figure))).collect()
        })
        .collect();
    let mut heads = vec!["Device".to_owned()];
    heads.extend(DEVICE.map(|(_, head)| head.to_owned()));
    (!rows.is_empty()).then(|| Table {
        id: "devices",
        caption: "What the devices do by themselves".to_owned(),
        heads,
        words: 1,
        rows,
        notes: device_notes(study, &places),
    })
}

fn device_notes(study: &StudyReport, places: &[(usize, String)]) -> Vec<String> {
    let is_probed = |(host, place): &(usize, String)| {
        let mut probes = study.probes.iter().filter(|(on, probe)| on == host && probe.place == *place);
        probes.any(|(_, probe)| !probe.figures.is_empty())
    };
    let limits =
        "Limits of a place are not in its device's own figures: they hold for the server alone.".to_owned();
    let unprobed = places.iter().filter(|at| !is_probed(at)).map(|at| match filesystem(study, at) {
        Some("tmpfs") => {
            format!("{} is memory (tmpfs): there is no device to probe, and a flush costs nothing.", at.1)
        }
        _ => format!("{} was not probed: the warnings of the study's run say why.", at.1),
    });
    distinct(std::iter::once(limits).chain(unprobed))
}

/// What the data directories of a place stood on.
fn filesystem<'a>(study: &'a StudyReport, at: &(usize, String)) -> Option<&'a str> {
    let points = study.points.iter().filter(|point| place_of(study, point).as_ref() == Some(at));
    let mut ends = points.flat_map(|point| study.counted(point)).filter_map(|(run, _)| run.end.as_ref());
    ends.find_map(|end| end.server.storage.get("filesystem")).map(String::as_str)
}

fn host_name(study: &StudyReport, host: usize) -> String {
    let is_there = |point: &&Point| place_of(study, point).is_some_and(|(on, _)| on == host);
    let point = study.points.iter().find(is_there);
    point
        .and_then(|point| point.identity.get("host"))
        .map_or_else(|| format!("host {}", host + 1), value_text)
}
