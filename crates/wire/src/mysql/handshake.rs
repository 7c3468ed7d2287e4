//! The first packets: the server's greeting, the request for TLS, the client's answer.
//! MySQL internals manual, "Connection Phase Packets"; MariaDB knowledge base, "Connecting".

use super::answer::server_error;
use super::framing::{Reader, malformed, push_lenenc_bytes};
use crate::error::Error;
use crate::limits;

/// Capability flags (MySQL internals manual, "Capability Flags").
pub mod capability {
    /// Longer flags in column definitions.
    pub const LONG_FLAG: u64 = 0x4;
    /// Once about old hashes. A server that lacks it is MariaDB 10.2 or newer and has capabilities of its own.
    pub const LONG_PASSWORD: u64 = 0x1;
    /// A database is named in the log-in.
    pub const CONNECT_WITH_DB: u64 = 0x8;
    /// Packets are compressed after the log-in.
    pub const COMPRESS: u64 = 0x20;
    /// LOAD DATA LOCAL INFILE.
    pub const LOCAL_FILES: u64 = 0x80;
    /// The protocol since 4.1.
    pub const PROTOCOL_41: u64 = 0x200;
    /// TLS.
    pub const SSL: u64 = 0x800;
    /// Transaction status in OK packets.
    pub const TRANSACTIONS: u64 = 0x2000;
    /// The log-in since 4.1.
    pub const SECURE_CONNECTION: u64 = 0x8000;
    /// Several statements in one query.
    pub const MULTI_STATEMENTS: u64 = 0x1_0000;
    /// Several results of one query.
    pub const MULTI_RESULTS: u64 = 0x2_0000;
    /// Several results of a prepared statement.
    pub const PS_MULTI_RESULTS: u64 = 0x4_0000;
    /// Log-in methods by name.
    pub const PLUGIN_AUTH: u64 = 0x8_0000;
    /// A log-in answer may be longer than 255 bytes.
    pub const PLUGIN_AUTH_LENENC: u64 = 0x20_0000;
    /// An OK packet ends the rows and nothing ends the column definitions.
    pub const DEPRECATE_EOF: u64 = 0x100_0000;

    /// MariaDB since 10.2.7: a prepared statement can be executed for many rows at once.
    pub const BULK_OPERATIONS: u64 = 1 << 34;
    /// MariaDB since 10.6: a prepared statement's column definitions are sent again only when they have changed.
    /// MariaDB's own client library asks for it, hence so do all who measure MariaDB with it.
    pub const CACHE_METADATA: u64 = 1 << 36;

    /// What this client uses where the server can.
    pub const WANTED: u64 = LONG_PASSWORD
        | LONG_FLAG
        | LOCAL_FILES
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | MULTI_STATEMENTS
        | MULTI_RESULTS
        | PS_MULTI_RESULTS
        | PLUGIN_AUTH
        | PLUGIN_AUTH_LENENC
        | DEPRECATE_EOF
        | BULK_OPERATIONS
        | CACHE_METADATA;
}

/// Length of the nonce in the greeting.
pub const NONCE_BYTES: usize = 20;

/// utf8mb4_general_ci, known since MySQL 5.5.3: one collation for all servers, so that they can be compared.
const COLLATION_UTF8MB4_GENERAL_CI: u8 = 45;
/// utf8_general_ci, for servers older than that.
const COLLATION_UTF8_GENERAL_CI: u8 = 33;
/// What the client says it can take; the protocol's own limit.
const MAX_PACKET_BYTES: u32 = 1 << 30;

/// The server's first packet (protocol version 10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The version as sent.
    pub version: String,
    /// Thread id.
    pub connection_id: u32,
    /// Its capabilities; MariaDB's own ones are the upper 32 bits.
    pub capabilities: u64,
    /// What passwords are scrambled with.
    pub nonce: [u8; NONCE_BYTES],
    /// The log-in method it would like; empty where it names none.
    pub plugin: Vec<u8>,
}

impl Greeting {
    /// Reads a greeting. An error packet instead (too many connections, host blocked) becomes [`Error::Server`].
    pub fn parse(payload: &[u8]) -> Result<Greeting, Error> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            10 => {}
            0xff => return Err(server_error(payload)),
            other => {
                return malformed(format!(
                    "the server greets with protocol version {other}; it is no MySQL or MariaDB of the last 20 years"
                ));
            }
        }
        let version = limits::text(reader.null_terminated(), limits::NAME_BYTES_MAX);
        let connection_id = reader.u32()?;
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(reader.take(8)?);
        reader.take(1)?;
        let low = reader.u16()?;
        reader.take(3)?;
        let mut capabilities = u64::from(low) | u64::from(reader.u16()?) << 16;
        let nonce_len = usize::from(reader.u8()?);
        reader.take(6)?;
        let extended = reader.u32()?;
        if capabilities & capability::LONG_PASSWORD == 0 {
            capabilities |= u64::from(extended) << 32;
        }
        if capabilities & capability::PROTOCOL_41 == 0 || capabilities & capability::SECURE_CONNECTION == 0 {
            return Err(Error::Unsupported(format!("server {version} speaks only the protocol before 4.1")));
        }
        // The second part is as long as announced, at least 13 bytes, the last of them a NUL.
        let second = reader.take(nonce_len.saturating_sub(8).max(13))?;
        nonce[8..].copy_from_slice(&second[..NONCE_BYTES - 8]);
        let plugin = if capabilities & capability::PLUGIN_AUTH != 0 {
            reader.null_terminated().to_vec()
        } else {
            Vec::new()
        };
        Ok(Greeting { version, connection_id, capabilities, nonce, plugin })
    }

    /// What both sides can do.
    pub fn shared_capabilities(&self, with_database: bool, with_tls: bool) -> u64 {
        let mut wanted = capability::WANTED;
        if with_database {
            wanted |= capability::CONNECT_WITH_DB;
        }
        if with_tls {
            wanted |= capability::SSL;
        }
        // A MariaDB that does not say LONG_PASSWORD takes a client that does not say it either for one of its own.
        wanted & self.capabilities
    }

    /// utf8mb4 where the server knows it.
    pub fn collation(&self) -> u8 {
        let mut numbers =
            self.version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= (5, 5, 3) { COLLATION_UTF8MB4_GENERAL_CI } else { COLLATION_UTF8_GENERAL_CI }
    }
}

/// Appends the request for TLS: the first 32 bytes of the log-in.
pub fn push_tls_request(out: &mut Vec<u8>, capabilities: u64, collation: u8) {
    let (low, extended) = (capabilities as u32, (capabilities >> 32) as u32);
    out.extend_from_slice(&low.to_le_bytes());
    out.extend_from_slice(&MAX_PACKET_BYTES.to_le_bytes());
    out.push(collation);
    out.extend_from_slice(&[0; 19]);
    out.extend_from_slice(&extended.to_le_bytes());
}

/// The client's log-in.
#[derive(Debug, Clone, Copy)]
pub struct LogIn<'a> {
    /// As in the request for TLS, if there was one.
    pub capabilities: u64,
    /// As [`Greeting::collation`] says.
    pub collation: u8,
    /// Who.
    pub user: &'a [u8],
    /// The method's first answer.
    pub auth: &'a [u8],
    /// `None`: none selected.
    pub database: Option<&'a [u8]>,
    /// The method.
    pub plugin: &'a [u8],
}

/// Appends the log-in (`HandshakeResponse41`). A NUL in a name would end it early, hence is refused.
pub fn push_log_in(out: &mut Vec<u8>, log_in: &LogIn<'_>) -> Result<(), Error> {
    for (what, text) in [("user", Some(log_in.user)), ("database", log_in.database)] {
        if text.is_some_and(|text| text.contains(&0)) {
            return Err(Error::Auth(format!("the {what} name holds a NUL byte")));
        }
    }
    push_tls_request(out, log_in.capabilities, log_in.collation);
    out.extend_from_slice(log_in.user);
    out.push(0);
    if log_in.capabilities & capability::PLUGIN_AUTH_LENENC != 0 {
        push_lenenc_bytes(out, log_in.auth);
    } else {
        let len = u8::try_from(log_in.auth.len())
            .map_err(|_| Error::Auth("the server takes no log-in answer of more than 255 bytes".into()))?;
        out.push(len);
        out.extend_from_slice(log_in.auth);
    }
    if log_in.capabilities & capability::CONNECT_WITH_DB != 0 {
        out.extend_from_slice(log_in.database.unwrap_or_default());
        out.push(0);
    }
    if log_in.capabilities & capability::PLUGIN_AUTH != 0 {
        out.extend_from_slice(log_in.plugin);
        out.push(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A greeting as the manual describes it.
    fn greeting(version: &str, capabilities: u64, plugin: &[u8]) -> Vec<u8> {
        let mut out = vec![10];
        out.extend_from_slice(version.as_bytes());
        out.push(0);
        out.extend_from_slice(&77u32.to_le_bytes());
        out.extend_from_slice(b"abcdefgh\0");
        out.extend_from_slice(&(capabilities as u16).to_le_bytes());
        out.extend_from_slice(&[8, 2, 0]);
        out.extend_from_slice(&((capabilities >> 16) as u16).to_le_bytes());
        out.push(21);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&((capabilities >> 32) as u32).to_le_bytes());
        out.extend_from_slice(b"ijklmnopqrst\0");
        out.extend_from_slice(plugin);
        out
    }

    #[test]
    fn a_greeting_is_read() {
        let bytes = greeting("8.0.33", 0xdfff_ffff, b"caching_sha2_password\0");
        let read = Greeting::parse(&bytes).unwrap();
        assert_eq!(read.version, "8.0.33");
        assert_eq!(read.connection_id, 77);
        assert_eq!(&read.nonce, b"abcdefghijklmnopqrst");
        assert_eq!(read.plugin, b"caching_sha2_password");
        let shared = read.shared_capabilities(false, false);
        assert_eq!(shared & (capability::CONNECT_WITH_DB | capability::SSL), 0);
        assert_ne!(shared & capability::DEPRECATE_EOF, 0);
    }

    #[test]
    fn mariadbs_own_capabilities_are_for_mariadb() {
        let cached = capability::CACHE_METADATA;
        let mariadb =
            Greeting::parse(&greeting("5.5.5-10.11.6-MariaDB", cached | 0xffff_fffe, b"\0")).unwrap();
        assert_eq!(mariadb.shared_capabilities(false, false) & (cached | capability::LONG_PASSWORD), cached);
        let mysql = Greeting::parse(&greeting("8.0.33", cached | 0xffff_ffff, b"\0")).unwrap();
        assert_eq!(mysql.shared_capabilities(false, false) & cached, 0, "those bytes are filler there");
        assert_ne!(mysql.shared_capabilities(false, false) & capability::LONG_PASSWORD, 0);
    }

    #[test]
    fn old_and_odd_greetings() {
        let no_nul = greeting("5.5.9", 0x000f_f7ff, b"mysql_native_password");
        assert_eq!(Greeting::parse(&no_nul).unwrap().plugin, b"mysql_native_password");
        let old = Greeting::parse(&greeting("4.0.1", 0x1, b"")).unwrap_err();
        assert!(matches!(old, Error::Unsupported(_)), "{old}");
        let busy = Greeting::parse(b"\xff\x10\x04Too many connections").unwrap_err();
        let Error::Server(busy) = busy else { panic!("{busy}") };
        assert_eq!((busy.number, busy.state(), busy.text.as_str()), (1040, "HY000", "Too many connections"));
        assert!(matches!(Greeting::parse(b"HTTP/1.1 400"), Err(Error::Protocol(_))));
    }

    #[test]
    fn utf8mb4_where_it_is_known() {
        for (version, collation) in [
            ("5.5.9", 45),
            ("5.1.73-log", 33),
            ("5.5.2", 33),
            ("8.4.0", 45),
            ("5.5.5-10.11.6-MariaDB", 45),
            ("x", 33),
        ] {
            let greeting = Greeting::parse(&greeting(version, !0, b"\0")).unwrap();
            assert_eq!(greeting.collation(), collation, "{version}");
        }
    }

    #[test]
    fn a_log_in_is_written_as_the_manual_has_it() {
        let mut out = Vec::new();
        let capabilities = capability::WANTED | capability::CONNECT_WITH_DB;
        push_log_in(
            &mut out,
            &LogIn {
                capabilities,
                collation: 45,
                user: b"u",
                auth: b"xy",
                database: Some(b"db"),
                plugin: b"p",
            },
        )
        .unwrap();
        assert_eq!(out[..4], (capabilities as u32).to_le_bytes());
        assert_eq!(out[28..32], ((capabilities >> 32) as u32).to_le_bytes());
        assert_eq!(out[8], 45);
        assert_eq!(&out[32..], b"u\0\x02xydb\0p\0");
        let nul =
            LogIn { capabilities, collation: 45, user: b"u\0root", auth: b"", database: None, plugin: b"" };
        assert!(matches!(push_log_in(&mut out, &nul), Err(Error::Auth(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Greeting::parse(&bytes);
        }

        #[test]
        fn a_cut_greeting_is_no_panic(cut in 0usize..90, flip in 0usize..90, to: u8) {
            let mut bytes = greeting("8.0.33", !0, b"caching_sha2_password\0");
            if let Some(byte) = bytes.get_mut(flip) { *byte = to; }
            bytes.truncate(cut);
            let _ = Greeting::parse(&bytes);
        }
    }
}
