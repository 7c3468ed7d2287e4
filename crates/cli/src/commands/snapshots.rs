//! `plimsoll snapshots`.

use std::time::{Duration, SystemTime};

use sandbox::{Home, snapshot};
use serde_json::{Value, json};

use crate::args::SnapshotsCommand;
use crate::commands::{print, print_data};
use crate::exit::{End, Failure};
use crate::show::{Align, Table, bytes, time};

pub(crate) fn snapshots(command: &SnapshotsCommand) -> Result<End, Failure> {
    let home = Home::find()?;
    match command {
        SnapshotsCommand::List { json: true } => {
            let seconds = |time: SystemTime| {
                time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
            };
            let all: Vec<Value> = snapshot::list(&home)?
                .iter()
                .map(|snapshot| {
                    json!({"key": snapshot.key, "build": snapshot.build, "dataset": snapshot.dataset,
                           "bytes": snapshot.bytes, "taken_at": seconds(snapshot.taken_at),
                           "used_at": seconds(snapshot.used_at)})
                })
                .collect();
            print_data(&format!("{}\n", Value::from(all)))
        }
        SnapshotsCommand::List { json: false } => {
            let mut table = Table::new(&[
                ("build", Align::Left),
                ("dataset", Align::Left),
                ("size", Align::Right),
                ("last used", Align::Right),
            ]);
            let ago = |at: SystemTime| SystemTime::now().duration_since(at).unwrap_or(Duration::ZERO);
            for snapshot in snapshot::list(&home)? {
                let used = format!("{} ago", time(ago(snapshot.used_at)));
                table.row([snapshot.build, snapshot.dataset, bytes(snapshot.bytes), used]);
            }
            if table.is_empty() {
                return print("no snapshots\n");
            }
            print(&table.text())
        }
        SnapshotsCommand::Prune { max, dry_run: true, .. } => {
            let beyond = snapshot::beyond(&home, max.unwrap_or(0))?;
            let lines = beyond.iter().map(|s| format!("{} {}, {}\n", s.build, s.dataset, bytes(s.bytes)));
            let total = bytes(beyond.iter().map(|snapshot| snapshot.bytes).sum());
            let count = store::counted(beyond.len(), "snapshot");
            print(&format!("{}would remove {count}, {total}\n", lines.collect::<String>()))
        }
        SnapshotsCommand::Prune { max, .. } => {
            let pruned = snapshot::prune(&home, max.unwrap_or(0))?;
            let count = store::counted(pruned.keys.len(), "snapshot");
            print(&format!("removed {count}, {}\n", bytes(pruned.bytes)))
        }
    }
}
