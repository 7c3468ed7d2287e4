//! Servers that speak the protocol and refuse what is only a hint.

use std::collections::BTreeMap;

use testkit::fake::{Address, FakeServer, Language, Reply, Request, mysql, postgres};
use wire::Target;
use workload::{Dialect, LoadAt};

/// A server that refuses statements in which one of `words` stands.
fn refusing(language: Language, words: &'static [&'static str]) -> (FakeServer, Target) {
    let server = FakeServer::on_port(language, move |request, reply| match request {
        Request::Query(sql) if words.iter().any(|word| sql.contains(word)) => Reply::new(match language {
            Language::Mysql => {
                mysql::packet(1, &mysql::error(1193, "HY000", "column \u{1b}[31m could not be found"))
            }
            Language::Postgres => {
                [postgres::error("42704", "unrecognized parameter"), postgres::ready()].concat()
            }
        }),
        _ => reply,
    })
    .expect("a port");
    let Address::Tcp(port) = *server.address() else { panic!("no port") };
    let scheme = if language == Language::Mysql { "mysql" } else { "postgres" };
    (server, Target::parse(&format!("{scheme}://u@127.0.0.1:{port}/sbtest")).unwrap())
}

fn load(target: &Target) -> Result<workload::LoadReport, workload::Error> {
    let workload = workload::find("oltp_read_write").expect("a workload");
    let options =
        BTreeMap::from([("table_size".to_owned(), "100".to_owned()), ("tables".to_owned(), "3".to_owned())]);
    let configured = workload.configure(&options, Dialect::of_server(target.protocol, "8.0.33")).unwrap();
    configured.load(
        &LoadAt { target: target.clone(), connections: 3, is_own_server: true, stop: load::Stop::new() },
        &|_| (),
    )
}

#[test]
fn hints_and_statistics_that_a_server_refuses_are_left_out_and_told_once() {
    let words = &["innodb_ddl_buffer_size", "ANALYZE", "information_schema"];
    let (_server, target) = refusing(Language::Mysql, words);
    let report = load(&target).expect("a load");
    // One note for the hint, however many connections there were, and one for each table's statistics.
    let about = |word: &str| report.notes.iter().filter(|note| note.contains(word)).count();
    assert_eq!(
        (about("innodb_ddl_buffer_size"), about("ANALYZE"), report.notes.len()),
        (1, 3, 4),
        "{:?}",
        report.notes
    );
    assert!(!report.notes.iter().any(|note| note.contains('\u{1b}')), "{:?}", report.notes);

    let (_server, target) = refusing(Language::Postgres, &["maintenance_work_mem", "VACUUM"]);
    let report = load(&target).expect("a load");
    assert_eq!(report.notes.len(), 4, "{:?}", report.notes);
}

#[test]
fn what_makes_the_tables_is_no_hint() {
    let (_server, target) = refusing(Language::Mysql, &["CREATE TABLE"]);
    let error = load(&target).expect_err("no tables").to_string();
    assert!(error.contains("creating a table"), "{error}");
}
