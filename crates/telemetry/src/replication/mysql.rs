//! MySQL, MariaDB, Percona Server: positions in the binary log. Applied is what the replica says that it executed; one that
//! applies in parallel says so a few times a second (`replica_checkpoint_period`).

use std::collections::BTreeMap;

use wire::blocking::Client;
use wire::{Error, ResultSet};

use super::{Place, Told};

/// Newest names first.
pub(super) const OF_PRIMARY: [&str; 2] = ["SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"];
pub(super) const OF_REPLICA: [&str; 2] = ["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"];

/// Where the primary's log ends.
pub(super) fn end(sets: &[ResultSet]) -> Place {
    let text = |column: &str| named(sets, &[column]).unwrap_or_default();
    Place { file: text("File"), offset: text("Position").parse().unwrap_or(0) }
}

/// Where each file of the primary's log begins.
pub(super) fn files(primary: &mut Client) -> Result<BTreeMap<String, u64>, Error> {
    let (mut files, mut begin) = (BTreeMap::new(), 0);
    primary.query_rows("SHOW BINARY LOGS", &mut |row| {
        if let (Some(name), Some(Ok(bytes))) = (row.text(0), row.text(1).map(str::parse::<u64>)) {
            files.insert(name.to_owned(), begin);
            begin += bytes;
        }
    })?;
    Ok(files)
}

/// The value of the first of these columns that there is: 8.0.22 renamed them.
fn named(sets: &[ResultSet], names: &[&str]) -> Option<String> {
    let set = sets.first()?;
    let is_named = |column: &String| names.iter().any(|name| column.eq_ignore_ascii_case(name));
    Some(set.text(0, set.columns.iter().position(is_named)?)?.to_owned())
}

pub(super) fn told(sets: &[ResultSet]) -> Told {
    let text = |names: &[&str]| named(sets, names).unwrap_or_default();
    let place = |file: &[&str], offset: &[&str]| Place {
        file: text(file),
        offset: text(offset).parse().unwrap_or(0),
    };
    let runs = |names: &[&str]| text(names) == "Yes";
    let (receives, applies) = (
        runs(&["Slave_IO_Running", "Replica_IO_Running"]),
        runs(&["Slave_SQL_Running", "Replica_SQL_Running"]),
    );
    let has_failed = |names: &[&str]| !matches!(&*text(names), "" | "0");
    let said =
        [text(&["Last_SQL_Error"]), text(&["Last_IO_Error"])].into_iter().find(|said| !said.is_empty());
    Told {
        received: place(
            &["Master_Log_File", "Source_Log_File"],
            &["Read_Master_Log_Pos", "Read_Source_Log_Pos"],
        ),
        applied: place(
            &["Relay_Master_Log_File", "Relay_Source_Log_File"],
            &["Exec_Master_Log_Pos", "Exec_Source_Log_Pos"],
        ),
        is_following: receives && applies,
        has_stopped: !applies && has_failed(&["Last_SQL_Errno"])
            || text(&["Slave_IO_Running", "Replica_IO_Running"]) == "No" && has_failed(&["Last_IO_Errno"]),
        trouble: said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> Vec<ResultSet> {
        let columns = pairs.iter().map(|(name, _)| (*name).to_owned()).collect();
        let row = pairs.iter().map(|(_, value)| Some(value.as_bytes().to_vec())).collect();
        vec![ResultSet { columns, rows: vec![row], ..ResultSet::default() }]
    }

    #[test]
    fn old_and_new_names_say_the_same() {
        let old = [
            ("Master_Log_File", "binlog.000003"),
            ("Read_Master_Log_Pos", "900"),
            ("Relay_Master_Log_File", "binlog.000002"),
            ("Exec_Master_Log_Pos", "450"),
            ("Slave_IO_Running", "Yes"),
            ("Slave_SQL_Running", "Yes"),
            ("Last_IO_Errno", "0"),
            ("Last_SQL_Errno", "0"),
            ("Last_IO_Error", ""),
            ("Last_SQL_Error", ""),
        ];
        let new =
            old.map(|(name, value)| (name.replace("Slave", "Replica").replace("Master", "Source"), value));
        let new: Vec<(&str, &str)> = new.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let place = |file: &str, offset| Place { file: file.to_owned(), offset };
        let expected = Told {
            received: place("binlog.000003", 900),
            applied: place("binlog.000002", 450),
            is_following: true,
            has_stopped: false,
            trouble: None,
        };
        assert_eq!(told(&set(&old)), expected);
        assert_eq!(told(&set(&new)), expected);
    }

    #[test]
    fn a_replica_that_stopped_says_why() {
        let said = told(&set(&[
            ("Slave_IO_Running", "Yes"),
            ("Slave_SQL_Running", "No"),
            ("Last_SQL_Errno", "1062"),
            ("Last_SQL_Error", "Duplicate entry"),
        ]));
        assert!(said.has_stopped && !said.is_following);
        assert_eq!(said.trouble.as_deref(), Some("Duplicate entry"));
        // One that waits for its primary goes on by itself.
        let said = told(&set(&[
            ("Slave_IO_Running", "Connecting"),
            ("Slave_SQL_Running", "Yes"),
            ("Last_IO_Errno", "2003"),
            ("Last_IO_Error", "error connecting"),
        ]));
        assert!(!said.has_stopped && !said.is_following);
        assert!(!told(&[]).is_following);
    }
}
