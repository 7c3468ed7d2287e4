//! The fake server's PostgreSQL (documentation, "Message Formats").

use std::io;

use super::{Peer, Request};

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// ErrorResponse.
pub fn error(sqlstate: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{sqlstate}\0M{text}\0\0").as_bytes())
}

/// ReadyForQuery, outside of a transaction.
pub fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// CommandComplete.
pub fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

/// RowDescription of one text column named `c`.
pub fn description() -> Vec<u8> {
    // Name, table, column, type (text), its length, modifier, format.
    message(b'T', b"\0\x01c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0")
}

/// DataRow of one column.
pub fn row(value: &[u8]) -> Vec<u8> {
    let length = (value.len() as u32).to_be_bytes();
    message(b'D', &[b"\0\x01".as_slice(), &length, value].concat())
}

fn is_select(sql: &str) -> bool {
    sql.get(..6).is_some_and(|verb| verb.eq_ignore_ascii_case("select"))
}

/// Parameters of a statement: the highest `$n`.
fn params(sql: &str) -> u16 {
    let numbers = sql.split('$').skip(1).map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().unwrap_or(0)
    });
    numbers.max().unwrap_or(0)
}

fn login() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0016.0 (fake)\0"),
        message(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]),
        ready(),
    ]
    .concat()
}

fn text(body: &[u8]) -> String {
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    String::from_utf8_lossy(&body[..end]).into_owned()
}

pub(super) fn serve(peer: &mut Peer) -> io::Result<()> {
    peer.answer(&Request::Connect, Vec::new())?;
    loop {
        let length = u32::from_be_bytes(peer.read_exact()?) as usize;
        let body = peer.read_vec(length.saturating_sub(4))?;
        // 1234,5678: CancelRequest, of four numbers.
        if let Some(asked) = body.strip_prefix(&80_877_102u32.to_be_bytes())
            && let (Some(process_id), Some(key)) = (asked.first_chunk(), asked.last_chunk())
        {
            let process_id = u32::from_be_bytes(*process_id);
            return peer.answer(&Request::Cancel { process_id, key: *key }, Vec::new());
        }
        // 1234,5679: SSLRequest.
        if !body.starts_with(&80_877_103u32.to_be_bytes()) {
            break;
        }
        peer.answer(&Request::Tls, b"N".to_vec())?;
    }
    peer.answer(&Request::Login, login())?;
    serve_requests(peer)
}

fn serve_requests(peer: &mut Peer) -> io::Result<()> {
    // Of all prepared statements, by name: whether they return rows.
    let mut statements: Vec<(String, bool)> = Vec::new();
    let mut pending: Option<(Request, Vec<u8>)> = None;
    let mut loading: Option<u64> = None;
    loop {
        let [tag] = peer.read_exact()?;
        let length = u32::from_be_bytes(peer.read_exact()?) as usize;
        let body = peer.read_vec(length.saturating_sub(4))?;
        match tag {
            b'Q' => {
                let sql = text(&body);
                let honest = if is_select(&sql) {
                    [description(), row(b"value"), complete("SELECT 1"), ready()].concat()
                } else if sql.starts_with("COPY") {
                    loading = Some(0);
                    message(b'G', b"\0\0\0")
                } else {
                    [complete("UPDATE 1"), ready()].concat()
                };
                peer.answer(&Request::Query(sql), honest)?;
            }
            b'd' => loading = loading.map(|bytes| bytes + body.len() as u64),
            b'c' => {
                let bytes = loading.take().unwrap_or(0);
                peer.answer(&Request::Loaded { bytes }, [complete("COPY 1"), ready()].concat())?;
            }
            b'f' => {
                loading = None;
                peer.answer(&Request::Other(b'f'), [error("57014", "COPY failed"), ready()].concat())?;
            }
            b'P' => {
                let name = text(&body);
                let sql = text(body.get(name.len() + 1..).unwrap_or_default());
                statements.retain(|known| known.0 != name);
                statements.push((name, is_select(&sql)));
                let count = params(&sql);
                let mut body = count.to_be_bytes().to_vec();
                (0..count).for_each(|_| body.extend_from_slice(&23u32.to_be_bytes()));
                let described = if is_select(&sql) { description() } else { message(b'n', b"") };
                let honest = [message(b'1', b""), message(b't', &body), described].concat();
                pending = Some((Request::Prepare(sql), honest));
            }
            b'B' => {
                // The portal's name, then the statement's.
                let name = text(body.get(text(&body).len() + 1..).unwrap_or_default());
                let returns_rows = statements.iter().any(|known| known.0 == name && known.1);
                let result = if returns_rows {
                    [row(b"value"), complete("SELECT 1")].concat()
                } else {
                    complete("UPDATE 1")
                };
                pending = Some((Request::Execute, [message(b'2', b""), result].concat()));
            }
            b'C' => pending = Some((Request::Close, message(b'3', b""))),
            // Described with Parse, executed with Bind.
            b'D' | b'E' => {}
            b'S' => {
                let (request, honest) = pending.take().unwrap_or((Request::Ping, Vec::new()));
                peer.answer(&request, [honest, ready()].concat())?;
            }
            b'X' => return Ok(()),
            other => peer.answer(&Request::Other(other), [error("08P01", "unknown"), ready()].concat())?,
        }
    }
}
