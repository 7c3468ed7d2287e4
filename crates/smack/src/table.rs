//! Makes the tables of a smack and fills them.

use load::Stop;
use wire::blocking::Client;
use wire::{Protocol, Target};

use crate::error::Error;
use crate::program::DataDir;
use crate::syntax::Table;

/// What was done for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// Rows loaded; `None` where the table was there with enough rows.
    pub rows: Option<u64>,
    /// Bytes sent.
    pub bytes: u64,
}

/// How tables are made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// Appended to the CREATE statement (an engine clause).
    pub suffix: &'a str,
    /// Also where the table is there.
    pub anew: bool,
    /// Ends a load between two of its parts.
    pub stop: &'a Stop,
    /// Whether a server has room for so many bytes of rows, else why not.
    pub room: fn(&Target, u64) -> Result<(), String>,
}

/// Checks a table and, where it is missing or too small (or [`How::anew`]), creates and fills it.
///
/// # Errors
/// No connection, the server refuses, there is no room, or the user stopped it.
pub(crate) fn make(table: &Table, target: &Target, data: &DataDir, how: &How<'_>) -> Result<Made, Error> {
    let fault = |source| Error::Server { client: table.client.clone(), source };
    let mut client = Client::connect(target).map_err(fault)?;
    let rows = count(&mut client, &table.name).map_err(fault)?;
    match rows {
        Some(rows) if rows >= table.min_rows && !how.anew => return Ok(Made { rows: None, bytes: 0 }),
        Some(_) => drop(client.query(&format!("drop table {}", table.name)).map_err(fault)?),
        None => {}
    }
    client.query(&format!("{}{}", table.create, how.suffix)).map_err(fault)?;
    if table.data_file.is_empty() {
        return Ok(Made { rows: Some(0), bytes: 0 });
    }
    let bytes = data.rows(table)?;
    (how.room)(target, bytes.len() as u64).map_err(|why| Error::NoRoom {
        client: table.client.clone(),
        table: table.name.clone(),
        why,
    })?;
    let done = fill(&mut client, target.protocol, &table.name, &bytes, how.stop).map_err(fault)?;
    if how.stop.is_requested() {
        return Err(Error::Stopped { table: table.name.clone() });
    }
    if target.protocol == Protocol::Postgres {
        client.query(&format!("grant all on {} to public", table.name)).map_err(fault)?;
        client.query(&format!("vacuum analyze {}", table.name)).map_err(fault)?;
    }
    Ok(Made { rows: Some(done), bytes: bytes.len() as u64 })
}

/// Rows of a table; `None` where there is no such table.
///
/// # Errors
/// The connection is lost.
pub(crate) fn count(client: &mut Client, name: &str) -> Result<Option<u64>, wire::Error> {
    let mut rows = 0;
    let asked = client.query_rows(&format!("select count(*) from {name}"), &mut |row| {
        rows = row.get(0).and_then(|v| std::str::from_utf8(v).ok()?.parse().ok()).unwrap_or(0);
    });
    match asked {
        Ok(_) => Ok(Some(rows)),
        Err(wire::Error::Server(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn fill(
    client: &mut Client,
    protocol: Protocol,
    name: &str,
    bytes: &[u8],
    stop: &Stop,
) -> Result<u64, wire::Error> {
    let sql = match protocol {
        Protocol::Mysql => {
            format!("load data local infile '{name}' into table {name} fields terminated by ','")
        }
        Protocol::Postgres => format!("copy {name} from stdin (delimiter ',')"),
    };
    let mut rest = bytes;
    let streamed = client.load_rows(&sql, &mut |chunk: &mut Vec<u8>| {
        let (now, later) = rest.split_at(rest.len().min(1 << 18));
        chunk.extend_from_slice(now);
        rest = later;
        !later.is_empty() && !stop.is_requested()
    });
    match streamed {
        Ok(done) => Ok(done.affected_rows),
        // LOAD DATA LOCAL is not allowed: 1148 (5.5 to 5.7), 3948 (8.0), 4166 (MariaDB).
        Err(wire::Error::Server(error)) if matches!(error.number, 1148 | 3948 | 4166) => {
            insert(client, name, bytes, stop)
        }
        Err(other) => Err(other),
    }
}

/// The way for servers that refuse the stream: multi-row INSERTs, each value as text.
fn insert(client: &mut Client, name: &str, bytes: &[u8], stop: &Stop) -> Result<u64, wire::Error> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    for batch in lines.chunks(1000).take_while(|_| !stop.is_requested()) {
        let rows: Vec<String> = batch
            .iter()
            .map(|line| {
                let values: Vec<String> = line
                    .split(',')
                    .map(|value| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")))
                    .collect();
                format!("({})", values.join(","))
            })
            .collect();
        client.query(&format!("insert into {name} values {}", rows.join(",")))?;
    }
    Ok(lines.len() as u64)
}
