//! What a server can make a session hold, measured: the memory that this thread takes while a hostile server talks to it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use testkit::fake::{Address, FakeServer, Language, Reply, Request, Then, mysql, postgres};
use wire::blocking::Client;
use wire::limits::{CONTROL_BYTES_MAX, LOGIN_BYTES_MAX, RESULT_BYTES_MAX, ROW_BYTES_MAX};
use wire::{Endpoint, Error, Protocol, Target};

struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn took(bytes: usize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    // What another thread took and this one freed wraps around.
    if held < usize::MAX / 2 && held > PEAK.get() {
        PEAK.set(held);
    }
}

// SAFETY: passes everything on; the counters are plain cells that allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block may live beside the new one for as long as it is copied.
        took(size);
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Buffers, TLS, names: what a session takes besides the message that it is sent.
const REST: usize = 1 << 20;

/// What `work` comes to, and the memory that it took at most.
fn measured<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get().saturating_sub(before))
}

fn serve(
    language: Language,
    script: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
) -> (FakeServer, Target) {
    let server = FakeServer::on_port(language, script).expect("a port");
    let Address::Tcp(port) = *server.address() else { panic!("no port") };
    let scheme = if language == Language::Mysql { "mysql" } else { "postgres" };
    let mut target = Target::parse(&format!("{scheme}://u:p@127.0.0.1/db?tls=disabled")).unwrap();
    target.endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port };
    (target.connect_timeout, target.statement_timeout) = (Duration::from_secs(20), Duration::from_secs(60));
    (server, target)
}

/// A message that claims `length` bytes, the beginning of which are sent, over and over.
fn endless(language: Language, tag: u8, length: usize) -> (Vec<u8>, Then) {
    let head = match language {
        Language::Mysql => {
            let [a, b, c, ..] = (length as u32).to_le_bytes();
            vec![a, b, c, 0]
        }
        Language::Postgres => [&[tag][..], &(length as u32).to_be_bytes()].concat(),
    };
    (head, Then::Repeat(vec![b'x'; 1 << 16]))
}

#[test]
fn before_the_log_in_a_server_is_given_little() {
    for (language, length) in [
        (Language::Mysql, 0xff_ffff),
        (Language::Mysql, 1 << 20),
        (Language::Postgres, CONTROL_BYTES_MAX - 1),
    ] {
        let at = if language == Language::Mysql { Request::Connect } else { Request::Login };
        let (_server, target) = serve(language, move |request, reply| match *request == at {
            true => {
                let (bytes, then) = endless(language, b'S', length);
                Reply { bytes, then }
            }
            false => reply,
        });
        let (error, bytes) = measured(|| Client::connect(&target).expect_err("a greeting without end"));
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        assert!(bytes < 2 * LOGIN_BYTES_MAX + REST, "{language:?} {length}: {bytes} bytes");
    }
}

#[test]
fn parameters_and_notices_without_end_are_not_kept() {
    for at in [Request::Login, Request::Query("SELECT 1".into())] {
        let (_server, mut target) = serve(Language::Postgres, move |request, reply| {
            let noise = [
                postgres::message(b'S', format!("name\0{}\0", "v".repeat(30_000)).as_bytes()),
                postgres::message(b'N', format!("SNOTICE\0M{}\0\0", "n".repeat(30_000)).as_bytes()),
                postgres::message(b'A', &[b'a'; 20_000]),
            ];
            if *request == at { reply.cut(0).then(Then::Repeat(noise.concat())) } else { reply }
        });
        (target.connect_timeout, target.statement_timeout) = (Duration::from_secs(1), Duration::from_secs(1));
        let (error, bytes) = measured(|| {
            let mut client = Client::connect(&target)?;
            client.query_sets("SELECT 1").map(drop)
        });
        assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
        assert!(bytes < 2 * LOGIN_BYTES_MAX + REST, "{bytes} bytes");
    }
}

/// The error of a query to a server that answers with these bytes, and the memory that it took.
fn asked(
    language: Language,
    answer: Vec<u8>,
    then: Then,
    ask: impl FnOnce(&mut Client) -> Result<(), Error>,
) -> (Error, usize) {
    let (_server, target) = serve(language, move |request, reply| match request {
        Request::Query(_) => Reply { bytes: answer.clone(), then: then.clone() },
        _ => reply,
    });
    let mut client = Client::connect(&target).expect("a log-in");
    let (result, bytes) = measured(|| ask(&mut client));
    (result.expect_err("a hostile answer"), bytes)
}

#[test]
fn after_the_log_in_a_message_has_a_bound() {
    let skip = |client: &mut Client| client.query("SELECT 1").map(drop);
    let show = |client: &mut Client| client.query_rows("SELECT 1", &mut |_| {}).map(drop);
    // An error of 16 MiB; a row whose frames never end, shown to somebody.
    let error = [&0xff_fffeu32.to_le_bytes()[..3], &[1, 0xff]].concat();
    let (found, bytes) = asked(Language::Mysql, error, Then::Repeat(vec![b'x'; 1 << 16]), skip);
    assert!(found.to_string().contains("no row"), "{found}");
    assert!(bytes < REST, "{bytes} bytes");

    let mut row = mysql::packets(1, &[vec![1], mysql::column(), mysql::eof()]);
    for sequence in 4..20u8 {
        row.extend_from_slice(&[0xff, 0xff, 0xff, sequence, 0xfe]);
        row.resize(row.len() + 0xff_fffe, b'x');
    }
    let (found, bytes) = asked(Language::Mysql, row, Then::FallSilent, show);
    assert!(found.to_string().contains("allowed"), "{found}");
    assert!(bytes < 4 * ROW_BYTES_MAX + REST, "{bytes} bytes");

    let error = [&b"E"[..], &(CONTROL_BYTES_MAX as u32 + 5).to_be_bytes()].concat();
    let (found, bytes) = asked(Language::Postgres, error, Then::Repeat(vec![b'x'; 1 << 16]), skip);
    assert!(found.to_string().contains("claims"), "{found}");
    assert!(bytes < REST, "{bytes} bytes");

    let row = [&postgres::description()[..], b"D", &(1u32 << 29).to_be_bytes()].concat();
    let (found, bytes) = asked(Language::Postgres, row, Then::Repeat(vec![b'x'; 1 << 16]), show);
    assert!(found.to_string().contains("a row of"), "{found}");
    assert!(bytes < REST, "{bytes} bytes");
}

#[test]
fn rows_without_end_are_kept_up_to_a_bound() {
    let keep = |client: &mut Client| {
        client.set_statement_timeout(Duration::from_secs(5));
        client.query_sets("SELECT 1").map(drop)
    };
    let rows: Vec<u8> = (0..200).flat_map(|_| postgres::row(&[b'x'; 1000])).collect();
    let (found, bytes) = asked(Language::Postgres, postgres::description(), Then::Repeat(rows), keep);
    assert!(found.to_string().contains("larger than"), "{found}");
    // Vectors double.
    assert!(bytes < RESULT_BYTES_MAX * 3 / 2 + REST, "{bytes} bytes");

    // 252 packets until the numbers begin anew.
    let head = mysql::packets(1, &[vec![1], mysql::column(), mysql::eof()]);
    let row = [&[0xfc, 0xe8, 3][..], &[b'x'; 1000]].concat();
    let rows = (0..=255u8).flat_map(|n| mysql::packet(n.wrapping_add(4), &row)).collect();
    let (found, bytes) = asked(Language::Mysql, head, Then::Repeat(rows), keep);
    // The rest is passed over until it is too late.
    assert!(matches!(found, Error::Timeout { .. }), "{found}");
    assert!(bytes < RESULT_BYTES_MAX * 3 / 2 + REST, "{bytes} bytes");
}

#[test]
fn an_errors_text_and_state_are_cut_to_what_they_can_be() {
    let text = format!("no\u{1b}[31m{}", "x".repeat(100_000));
    for language in [Language::Mysql, Language::Postgres] {
        let answer = match language {
            Language::Mysql => mysql::packet(1, &mysql::error(1105, "\u{1b}[2Jx", &text)),
            Language::Postgres => [postgres::error("\u{1b}[2Jx", &text), postgres::ready()].concat(),
        };
        let (found, _) = asked(language, answer, Then::GoOn, |client| client.query("SELECT 1").map(drop));
        let Error::Server(error) = found else { panic!("{found}") };
        assert_eq!(error.state(), "HY000");
        assert!(error.text.starts_with("no\\u{1b}[31m"), "{}", &error.text[..20]);
        assert!(error.text.len() <= wire::limits::ERROR_TEXT_BYTES_MAX + 8, "{}", error.text.len());
    }
}

/// rustls bounds its own buffers; this says which bounds those are.
#[test]
fn tls_holds_a_record_and_a_message_of_its_handshake() {
    // Handshake records of 16 KiB, each the continuation of one message that claims to have 16 MiB (ServerHello).
    let record = |body: &[u8]| [&[22, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat();
    let first = record(&[&[2, 0xff, 0xff, 0xff][..], &[0; 16_000]].concat());
    let more = record(&[0; 16_000]);
    let (_server, mut target) = serve(Language::Postgres, move |request, reply| match request {
        Request::Tls => {
            Reply { bytes: b"S".to_vec(), then: Then::Repeat([first.clone(), more.clone()].concat()) }
        }
        _ => reply,
    });
    target.tls = wire::TlsMode::Required;
    target.connect_timeout = Duration::from_secs(2);
    assert_eq!(target.protocol, Protocol::Postgres);
    let (error, bytes) = measured(|| Client::connect(&target).expect_err("no TLS"));
    assert!(matches!(error, Error::Tls(_) | Error::Protocol(_)), "{error}");
    assert!(bytes < REST, "{bytes} bytes");
}

/// As the connection drives it: what came is taken before more is read.
#[test]
fn compression_holds_a_packet_before_and_after() {
    use std::io::Write;
    let bomb = |plain: usize, number: u8| {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&vec![0; plain]).expect("memory");
        let body = zlib.finish().expect("memory");
        let [a, b, c, _] = (body.len() as u32).to_le_bytes();
        let [x, y, z, _] = (plain as u32).to_le_bytes();
        [&[a, b, c, number, x, y, z][..], &body].concat()
    };
    let stream: Vec<u8> = (0..20).flat_map(|number| bomb(0xff_ffff, number)).collect();
    let mut compression = wire::mysql::compression::Compression::new();
    let mut buf = vec![0; 1 << 16];
    let (ended, bytes) = measured(|| {
        for piece in stream.chunks(16 * 1024) {
            compression.feed(piece)?;
            while compression.take(&mut buf) > 0 {}
        }
        Ok::<_, Error>(())
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert!(bytes < 3 * (16 << 20), "{bytes} bytes");
}
