//! Average, 95th percentile and TPS by storage, with what the device does by itself, what a commit survives, and
//! whether each row can be true (Little's law).

use super::{Section, Table, dash, groups, name};
use crate::model::{Point, StudyReport};
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
    Some(Section {
        id: "storage",
        title: "By storage",
        hint: "Response times in ms. Little: sessions that TPS and the mean response time imply, over the real ones; a row \
               that is marked cannot be true as it stands. TPS per fsync: transactions that one log flush of the device \
               carries at the rate that the device alone can do; above 1 commits are grouped or not flushed each."
            .to_owned(),
        charts: Vec::new(),
        tables,
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
            let fsync = device(study, &place, "append_sync_p50");
            vec![
                place,
                text("settings"),
                class,
                point.sessions.to_string(),
                dash(point.mean_ms.map(|e| number(e.median))),
                dash(point.p95_ms.map(|e| number(e.median))),
                dash(tps.map(number)),
                dash(little(study, point)),
                dash(tps.zip(fsync).map(|(tps, fsync)| number(tps / fsync))),
            ]
        })
        .collect();
    Table {
        caption,
        heads: [
            "Storage",
            "Profile",
            "Durability",
            "Sessions",
            "avg",
            "p95",
            "TPS",
            "Little",
            "TPS per fsync",
        ]
        .map(str::to_owned)
        .to_vec(),
        words: 3,
        rows,
        notes,
    }
}

fn durability(study: &StudyReport, point: &Point) -> (String, Option<String>) {
    let server = study.counted(point).find_map(|(run, _)| Some(&run.end.as_ref()?.server));
    server.map_or((String::new(), None), |s| (s.durability_class.clone(), Some(s.durability_why.clone())))
}

fn little(study: &StudyReport, point: &Point) -> Option<String> {
    let checks: Vec<stats::LittleCheck> = study
        .counted(point)
        .filter_map(|(_, step)| {
            let mean_s = step.response?.mean / 1000.0;
            stats::little(f64::from(point.sessions), step.tps, mean_s, 0.0, LITTLE_TOLERANCE)
        })
        .collect();
    let ratio = stats::median(&checks.iter().map(|check| check.ratio).collect::<Vec<_>>())?;
    let mark = if (ratio - 1.0).abs() <= LITTLE_TOLERANCE { "" } else { " (does not add up)" };
    Some(format!("{ratio:.2}{mark}"))
}

/// A figure of the place's probe; the time of a flush as its rate.
fn device(study: &StudyReport, place: &str, figure: &str) -> Option<f64> {
    let (_, probe) = study.probes.iter().find(|(_, probe)| probe.place == place)?;
    let found = probe.figures.iter().find(|known| known.name == figure)?.value;
    Some(if figure == "append_sync_p50" { 1e6 / found } else { found })
}

fn devices(study: &StudyReport) -> Option<Table> {
    let mut places: Vec<String> = Vec::new();
    for (_, probe) in &study.probes {
        if !places.contains(&probe.place) {
            places.push(probe.place.clone());
        }
    }
    let rows: Vec<Vec<String>> = places
        .iter()
        .map(|place| {
            let values = DEVICE.iter().map(|(figure, _)| dash(device(study, place, figure).map(number)));
            std::iter::once(place.clone()).chain(values).collect()
        })
        .collect();
    let mut heads = vec!["Device".to_owned()];
    heads.extend(DEVICE.map(|(_, head)| head.to_owned()));
    (!rows.is_empty()).then(|| Table {
        caption: "What the devices do by themselves".to_owned(),
        heads,
        words: 1,
        rows,
        notes: vec![
            "Limits of a place are not in its device's own figures: they hold for the server alone."
                .to_owned(),
        ],
    })
}
