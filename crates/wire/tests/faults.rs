//! What a connection makes of servers that break off, fall silent, lie about lengths or talk nonsense.

use std::time::Duration;

use testkit::fake::{Address, FakeServer, Language, Reply, Request, Then, mysql, postgres};
use wire::blocking::Client;
use wire::{Endpoint, Error, ParamType, Protocol, Secret, Target, TlsMode, Value};

const LANGUAGES: [Language; 2] = [Language::Mysql, Language::Postgres];

/// The steps of a session, in order; each is a request to the server.
const STEPS: [Step; 7] =
    [Step::Open, Step::Query, Step::Update, Step::Prepare, Step::Execute, Step::Load, Step::Ping];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    Query,
    Update,
    Prepare,
    Execute,
    Load,
    Ping,
}

impl Step {
    fn is_asked_by(self, request: &Request) -> bool {
        match request {
            Request::Connect | Request::Tls | Request::Login => self == Step::Open,
            Request::Query(sql) if sql.starts_with("SELECT faulty") => self == Step::Query,
            Request::Query(sql) if sql.starts_with("UPDATE faulty") => self == Step::Update,
            Request::Query(sql) => self == Step::Load && (sql.starts_with("COPY") || sql.starts_with("LOAD")),
            Request::Loaded { .. } => self == Step::Load,
            Request::Prepare(_) => self == Step::Prepare,
            Request::Execute => self == Step::Execute,
            Request::Ping => self == Step::Ping,
            Request::Close | Request::Other(_) | Request::Cancel { .. } => false,
        }
    }
}

fn target(server: &FakeServer, language: Language, limit: Duration) -> Target {
    Target {
        protocol: match language {
            Language::Mysql => Protocol::Mysql,
            Language::Postgres => Protocol::Postgres,
        },
        endpoint: match server.address() {
            Address::Unix(path) => Endpoint::Unix(path.clone()),
            Address::Tcp(port) => Endpoint::Tcp { host: "127.0.0.1".into(), port: *port },
        },
        user: "someone".into(),
        password: Secret::new("secret"),
        database: Some("db".into()),
        tls: TlsMode::Disabled,
        tls_ca: None,
        tls_client: wire::TlsClient::default(),
        is_compressed: false,
        connect_timeout: limit,
        statement_timeout: limit,
    }
}

/// Goes through a session; the step that failed with its error, or `None` where all went well.
fn run(target: &Target) -> Option<(Step, Error)> {
    let is_mysql = target.protocol == Protocol::Mysql;
    let mut client = match Client::connect(target) {
        Ok(client) => client,
        Err(error) => return Some((Step::Open, error)),
    };
    let failed = |step: Step| move |error: Error| (step, error);
    let mut session = || -> Result<(), (Step, Error)> {
        let mut rows = 0;
        client.query_rows("SELECT faulty", &mut |_| rows += 1).map_err(failed(Step::Query))?;
        client.query("UPDATE faulty").map_err(failed(Step::Update))?;
        let sql = if is_mysql { "SELECT c FROM t WHERE id = ?" } else { "SELECT c FROM t WHERE id = $1" };
        let mut statement = client.prepare(sql, &[ParamType::Int]).map_err(failed(Step::Prepare))?;
        client.execute(&mut statement, &[Value::Int(1)]).map_err(failed(Step::Execute))?;
        let sql = if is_mysql { "LOAD DATA LOCAL INFILE 'rows' INTO TABLE t" } else { "COPY t FROM STDIN" };
        let mut chunks = 0;
        let mut source = |chunk: &mut Vec<u8>| {
            chunk.extend_from_slice(b"1\t2\n");
            chunks += 1;
            chunks < 3
        };
        client.load_rows(sql, &mut source).map_err(failed(Step::Load))?;
        client.ping().map_err(failed(Step::Ping))
    };
    let ended = session().err();
    client.close();
    ended
}

fn start(
    language: Language,
    script: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
) -> (FakeServer, Target) {
    let server = FakeServer::on_socket(language, script).expect("a socket");
    let target = target(&server, language, Duration::from_secs(30));
    (server, target)
}

/// The honest replies of a whole session, in order.
fn honest_replies(language: Language) -> Vec<(Request, Vec<u8>)> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (server, target) = start(language, move |request, reply| {
        let _ = sender.send((request.clone(), reply.bytes.clone()));
        reply
    });
    assert!(run(&target).is_none(), "{language:?}: {:?}", run(&target));
    drop(server);
    receiver.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// The step that `request` belongs to.
fn step_of(request: &Request) -> Option<Step> {
    STEPS.into_iter().find(|step| step.is_asked_by(request))
}

#[test]
fn an_honest_session_over_socket_and_port() {
    for language in LANGUAGES {
        let server = FakeServer::on_socket(language, |_, reply| reply).expect("a socket");
        let failed = run(&target(&server, language, Duration::from_secs(30)));
        assert!(failed.is_none(), "{language:?}: {failed:?}");
        let server = FakeServer::on_port(language, |_, reply| reply).expect("a port");
        let failed = run(&target(&server, language, Duration::from_secs(30)));
        assert!(failed.is_none(), "{language:?}: {failed:?}");
    }
}

#[test]
fn a_server_that_hangs_up_anywhere() {
    for language in LANGUAGES {
        for (asked, bytes) in honest_replies(language) {
            let Some(expected) = step_of(&asked) else { continue };
            for count in 0..bytes.len() {
                let faulty = asked.clone();
                let (_server, target) = start(language, move |request, reply| {
                    if *request == faulty { reply.cut(count).then(Then::HangUp) } else { reply }
                });
                let (step, error) = run(&target).unwrap_or_else(|| panic!("{asked:?} cut at {count}"));
                assert_eq!(step, expected, "{language:?} {asked:?} cut at {count}: {error}");
                assert!(error.is_fatal(), "{language:?} {asked:?} cut at {count}: {error}");
                assert!(!matches!(error, Error::Timeout { .. }), "{language:?} {asked:?} cut at {count}");
            }
        }
    }
}

#[test]
fn a_server_that_falls_silent_anywhere() {
    for language in LANGUAGES {
        for (asked, bytes) in honest_replies(language) {
            let Some(expected) = step_of(&asked) else { continue };
            for count in [0, 1, bytes.len() / 2, bytes.len() - 1] {
                let faulty = asked.clone();
                let (_server, mut target) = start(language, move |request, reply| {
                    if *request == faulty { reply.cut(count).then(Then::FallSilent) } else { reply }
                });
                // Long enough for the steps before it, even on a busy machine; only the faulty step waits.
                if expected == Step::Open {
                    target.connect_timeout = Duration::from_millis(50);
                }
                target.statement_timeout = Duration::from_millis(50);
                let (step, error) = run(&target).unwrap_or_else(|| panic!("{asked:?} silent at {count}"));
                // On a machine that stands still an earlier step may run out of time too.
                assert!(STEPS.iter().position(|s| *s == step) <= STEPS.iter().position(|s| *s == expected));
                assert!(matches!(error, Error::Timeout { waited_ms: 50 }), "{language:?} {asked:?}: {error}");
            }
        }
    }
}

/// A statement that nobody waits for any more is cancelled on the server, by the session's own key or number.
#[test]
fn a_statement_that_times_out_is_cancelled() {
    for language in LANGUAGES {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (server, mut target) = start(language, move |request, reply| {
            let _ = sender.send(request.clone());
            match request {
                Request::Query(sql) if sql == "SELECT slowly" => reply.cut(0).then(Then::FallSilent),
                _ => reply,
            }
        });
        target.statement_timeout = Duration::from_millis(50);
        let mut client = Client::connect(&target).expect("an open session");
        let id = client.server().connection_id;
        let error = client.query("SELECT slowly").expect_err("a timeout");
        assert!(matches!(error, Error::Timeout { waited_ms: 50 }), "{language:?}: {error}");
        drop((client, server));
        let asked: Vec<Request> = receiver.into_iter().collect();
        let wanted = match language {
            Language::Postgres => Request::Cancel { process_id: 7, key: [1, 2, 3, 4] },
            Language::Mysql => Request::Query(format!("KILL {id}")),
        };
        assert!(asked.contains(&wanted), "{language:?}: {asked:?}");
    }
}

#[test]
fn a_server_that_never_stops_sending() {
    let notice = postgres::message(b'N', b"SNOTICE\0Mstill here\0\0");
    let a_row = postgres::row(b"value");
    let row_packets = mysql::packets(4, &vec![b"\x05value".to_vec(); 256]);
    for (language, head, endless) in [
        (Language::Postgres, Vec::new(), notice),
        (Language::Postgres, postgres::description(), a_row),
        (Language::Mysql, mysql::packets(1, &[vec![1], mysql::column(), mysql::eof()]), row_packets),
    ] {
        let (_server, mut target) = start(language, move |request, reply| match request {
            Request::Query(sql) if sql.starts_with("SELECT faulty") => {
                Reply::new(head.clone()).then(Then::Repeat(endless.repeat(100)))
            }
            _ => reply,
        });
        target.statement_timeout = Duration::from_millis(200);
        let (step, error) = run(&target).expect("an error");
        assert_eq!(step, Step::Query, "{language:?}: {error}");
        assert!(matches!(error, Error::Timeout { waited_ms: 200 }), "{language:?}: {error}");
    }
}

#[test]
fn nonsense_is_an_error_at_every_stage() {
    let nonsense: [&[u8]; 6] = [
        &[0; 64],
        &[0xff; 64],
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        &[b'Z', 0, 0, 0, 3, 0, 0, 0],
        &[1, 0, 0, 1, 0xfb, 1, 0, 0, 9, 0xfe],
        b"D\x3f\xff\xff\xff",
    ];
    for language in LANGUAGES {
        for (asked, _) in honest_replies(language) {
            let Some(expected) = step_of(&asked) else { continue };
            for bytes in nonsense {
                let faulty = asked.clone();
                let (_server, target) = start(language, move |request, reply| {
                    if *request == faulty { Reply::new(bytes).then(Then::HangUp) } else { reply }
                });
                let (step, error) = run(&target).unwrap_or_else(|| panic!("{asked:?} answered {bytes:?}"));
                assert_eq!(step, expected, "{language:?} {asked:?} answered {bytes:?}: {error}");
            }
        }
    }
}

/// Whatever a changed byte makes of an answer: an error or another answer, but no panic and no waiting for ever.
#[test]
fn a_changed_byte_anywhere() {
    for language in LANGUAGES {
        for (asked, bytes) in honest_replies(language) {
            for at in 0..bytes.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let faulty = asked.clone();
                    let (_server, target) = start(language, move |request, mut reply| {
                        if *request != faulty {
                            return reply;
                        }
                        if let Some(byte) = reply.bytes.get_mut(at) {
                            *byte ^= flip;
                        }
                        reply.then(Then::HangUp)
                    });
                    if let Some((_, Error::Timeout { .. })) = run(&target) {
                        panic!("{language:?} {asked:?}: byte {at} ^ {flip} leaves the client waiting");
                    }
                }
            }
        }
    }
}

#[test]
fn sequence_numbers_out_of_order() {
    for (asked, bytes) in honest_replies(Language::Mysql) {
        let Some(expected) = step_of(&asked) else { continue };
        if asked == Request::Connect {
            // Some proxies greet with another number than 0; nothing is lost by it.
            continue;
        }
        let wrong = bytes[3].wrapping_add(1);
        let faulty = asked.clone();
        let (_server, target) = start(Language::Mysql, move |request, mut reply| {
            if *request == faulty {
                reply.bytes[3] = wrong;
            }
            reply
        });
        let (step, error) = run(&target).unwrap_or_else(|| panic!("{asked:?} with number {wrong}"));
        assert_eq!(step, expected, "{asked:?}: {error}");
        assert!(matches!(error, Error::Protocol(_)), "{asked:?}: {error}");
    }
}

#[test]
fn errors_of_the_server_keep_their_code() {
    for language in LANGUAGES {
        for (asked, bytes) in honest_replies(language) {
            let Some(expected) = step_of(&asked) else { continue };
            if asked == Request::Tls {
                continue;
            }
            let reply = match language {
                Language::Mysql => mysql::packet(bytes[3], &mysql::error(1213, "40001", "a fake deadlock")),
                Language::Postgres => {
                    [postgres::error("40P01", "a fake deadlock"), postgres::ready()].concat()
                }
            };
            let faulty = asked.clone();
            let (_server, target) =
                start(
                    language,
                    move |request, honest| {
                        if *request == faulty { Reply::new(reply.clone()) } else { honest }
                    },
                );
            let (step, error) = run(&target).unwrap_or_else(|| panic!("{language:?} {asked:?}"));
            assert_eq!(step, expected, "{language:?} {asked:?}: {error}");
            let code = if language == Language::Mysql { "1213" } else { "40P01" };
            match error {
                Error::Server(error) => {
                    assert_eq!((error.code().as_str(), error.text.as_str()), (code, "a fake deadlock"));
                }
                other => panic!("{language:?} {asked:?}: {other}"),
            }
        }
    }
}

#[test]
fn after_an_error_of_the_server_the_session_goes_on() {
    for language in LANGUAGES {
        let (_server, target) = start(language, move |request, honest| match (request, language) {
            (Request::Query(sql), Language::Mysql) if sql.starts_with("SELECT bad") => {
                Reply::new(mysql::packet(1, &mysql::error(1064, "42000", "no")))
            }
            (Request::Query(sql), Language::Postgres) if sql.starts_with("SELECT bad") => {
                Reply::new([postgres::error("42601", "no"), postgres::ready()].concat())
            }
            _ => honest,
        });
        let mut client = Client::connect(&target).expect("connect");
        for _ in 0..3 {
            let error = client.query("SELECT bad").unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{error}");
            assert_eq!(client.query("SELECT good").expect("an answer").rows, 1);
        }
    }
}

#[test]
fn tls_that_is_refused_or_faked() {
    let postgres = |answer: &'static [u8], mode: TlsMode| {
        let server = FakeServer::on_port(Language::Postgres, move |request, honest| match request {
            Request::Tls => Reply::new(answer),
            _ => honest,
        })
        .expect("a port");
        let mut target = target(&server, Language::Postgres, Duration::from_secs(30));
        target.tls = mode;
        run(&target)
    };
    assert!(postgres(b"N", TlsMode::Preferred).is_none(), "goes on without");
    assert!(matches!(postgres(b"N", TlsMode::Required), Some((Step::Open, Error::Tls(_)))));
    assert!(matches!(postgres(b"E", TlsMode::Required), Some((Step::Open, Error::Tls(_)))));
    assert!(matches!(postgres(b"Syou are in", TlsMode::Required), Some((Step::Open, Error::Protocol(_)))));
    assert!(matches!(
        postgres(b"NR\0\0\0\x08\0\0\0\0", TlsMode::Preferred),
        Some((Step::Open, Error::Tls(_)))
    ));

    let server = FakeServer::on_port(Language::Mysql, |_, honest| honest).expect("a port");
    let mut target = target(&server, Language::Mysql, Duration::from_secs(30));
    target.tls = TlsMode::Required;
    assert!(matches!(run(&target), Some((Step::Open, Error::Tls(_)))));
}

#[test]
fn a_password_is_not_sent_where_others_can_read_it() {
    let clear_text = |request: &Request, honest: Reply| match request {
        Request::Login => Reply::new(postgres::message(b'R', &[0, 0, 0, 3])),
        _ => honest,
    };
    let server = FakeServer::on_port(Language::Postgres, clear_text).expect("a port");
    let failed = run(&target(&server, Language::Postgres, Duration::from_secs(30)));
    assert!(matches!(failed, Some((Step::Open, Error::Auth(_)))), "{failed:?}");
}
