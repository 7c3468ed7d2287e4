//! Messages from the client to the server (PostgreSQL documentation, "Message Formats"), appended to a buffer.

/// The protocol version of the startup message: 3.0, which every server from 7.4 on accepts.
const PROTOCOL_3_0: i32 = 196_608;
/// The code that stands in a startup message's place to ask for TLS.
const SSL_REQUEST: i32 = 80_877_103;

/// The code that stands in a startup message's place to have another session's statement cancelled.
const CANCEL_REQUEST: i32 = 80_877_102;

/// Appends a message with `tag`, its length filled in after `body` has appended the rest.
fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    set_length(out, length_at);
}

/// Writes the length of everything from `length_at` to the end, itself included.
fn set_length(out: &mut [u8], length_at: usize) {
    let length = (out.len() - length_at) as i32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a zero-terminated string. A zero byte inside would shift all that follows, hence it ends the text
/// there; callers refuse such text before.
fn string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.split('\0').next().unwrap_or_default().as_bytes());
    out.push(0);
}

/// SSLRequest.
pub(super) fn ssl_request(out: &mut Vec<u8>) {
    out.extend_from_slice(&8i32.to_be_bytes());
    out.extend_from_slice(&SSL_REQUEST.to_be_bytes());
}

/// CancelRequest.
pub(super) fn cancel_request(out: &mut Vec<u8>, process_id: u32, key: [u8; 4]) {
    out.extend_from_slice(&16i32.to_be_bytes());
    out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    out.extend_from_slice(&process_id.to_be_bytes());
    out.extend_from_slice(&key);
}

/// StartupMessage with the given run-time parameters (`user` among them).
pub(super) fn startup(out: &mut Vec<u8>, parameters: &[(&str, &str)]) {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
    for (name, value) in parameters {
        string(out, name);
        string(out, value);
    }
    out.push(0);
    set_length(out, length_at);
}

/// PasswordMessage: clear text or md5.
pub(super) fn password(out: &mut Vec<u8>, text: &str) {
    message(out, b'p', |out| string(out, text));
}

/// SASLInitialResponse.
pub(super) fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    message(out, b'p', |out| {
        string(out, mechanism);
        out.extend_from_slice(&(data.len() as i32).to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// SASLResponse.
pub(super) fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'p', |out| out.extend_from_slice(data));
}

/// Query.
pub(super) fn query(out: &mut Vec<u8>, sql: &str) {
    message(out, b'Q', |out| string(out, sql));
}

/// Parse. `oids`: declared parameter types, 0 where the server shall infer one.
pub(super) fn parse(out: &mut Vec<u8>, name: &str, sql: &str, oids: impl ExactSizeIterator<Item = u32>) {
    message(out, b'P', |out| {
        string(out, name);
        string(out, sql);
        out.extend_from_slice(&(oids.len() as u16).to_be_bytes());
        oids.for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Bind of the unnamed portal to a statement, parameters and results all as text; `None` is SQL NULL.
pub(super) fn bind_texts(out: &mut Vec<u8>, statement: &str, params: &[Option<&str>]) {
    message(out, b'B', |out| {
        out.push(0);
        string(out, statement);
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&(params.len() as u16).to_be_bytes());
        for param in params {
            match param {
                Some(text) => {
                    out.extend_from_slice(&(text.len() as i32).to_be_bytes());
                    out.extend_from_slice(text.as_bytes());
                }
                None => out.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
        out.extend_from_slice(&[0, 0]);
    });
}

/// Describe of the unnamed portal.
pub(super) fn describe_portal(out: &mut Vec<u8>) {
    message(out, b'D', |out| out.extend_from_slice(b"P\0"));
}

/// Execute of the unnamed portal, all rows.
pub(super) fn execute(out: &mut Vec<u8>) {
    message(out, b'E', |out| out.extend_from_slice(&[0, 0, 0, 0, 0]));
}

/// Describe of a prepared statement.
pub(super) fn describe_statement(out: &mut Vec<u8>, name: &str) {
    message(out, b'D', |out| {
        out.push(b'S');
        string(out, name);
    });
}

/// Close of a prepared statement.
pub(super) fn close_statement(out: &mut Vec<u8>, name: &str) {
    message(out, b'C', |out| {
        out.push(b'S');
        string(out, name);
    });
}

/// Sync.
pub(super) fn sync(out: &mut Vec<u8>) {
    message(out, b'S', |_| ());
}

/// CopyDone.
pub(super) fn copy_done(out: &mut Vec<u8>) {
    message(out, b'c', |_| ());
}

/// CopyFail.
pub(super) fn copy_fail(out: &mut Vec<u8>, reason: &str) {
    message(out, b'f', |out| string(out, reason));
}

/// Terminate.
pub(super) fn terminate(out: &mut Vec<u8>) {
    message(out, b'X', |_| ());
}

/// Starts a CopyData message in an empty buffer; the data are appended, then [`end_copy_data`] is called.
pub(super) fn begin_copy_data(out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[b'd', 0, 0, 0, 0]);
}

/// Fills in the length of the CopyData message that is the whole buffer. `false`: there are no data, or more
/// than a message may hold.
pub(super) fn end_copy_data(out: &mut [u8]) -> bool {
    if out.len() <= 5 || out.len() > super::framing::MESSAGE_BYTES_MAX {
        return false;
    }
    set_length(out, 1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build(&mut out);
        out
    }

    #[test]
    fn messages_have_the_documented_bytes() {
        assert_eq!(built(ssl_request), [0, 0, 0, 8, 4, 210, 22, 47]);
        assert_eq!(
            built(|out| startup(out, &[("user", "me")])),
            b"\0\0\0\x11\0\x03\0\0user\0me\0\0".as_slice()
        );
        assert_eq!(built(|out| query(out, "select 1")), b"Q\0\0\0\x0dselect 1\0");
        assert_eq!(
            built(|out| parse(out, "p1", "x", [23, 0].into_iter())),
            b"P\0\0\0\x13p1\0x\0\0\x02\0\0\0\x17\0\0\0\0"
        );
        assert_eq!(built(sync), b"S\0\0\0\x04");
        assert_eq!(built(|out| sasl_initial(out, "M", b"abc")), b"p\0\0\0\x0dM\0\0\0\0\x03abc");
    }

    #[test]
    fn copy_data_knows_its_length() {
        let mut out = vec![1, 2, 3];
        begin_copy_data(&mut out);
        assert!(!end_copy_data(&mut out), "no data, no message");
        out.extend_from_slice(b"1\t2\n");
        assert!(end_copy_data(&mut out));
        assert_eq!(out, b"d\0\0\0\x081\t2\n");
    }

    #[test]
    fn a_zero_byte_cannot_smuggle_a_second_string() {
        assert_eq!(built(|out| password(out, "a\0b")), b"p\0\0\0\x06a\0");
    }
}
