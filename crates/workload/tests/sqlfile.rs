//! A workload file on real servers.

mod support;

use support::{SERVERS, database, load_tables, run_and_check};
use wire::blocking::Client;
use workload::sqlfile::SqlFile;
use workload::{Configured, Dialect, Workload};

const BANK: &str = include_str!("../../../studies/workloads/bank.sql");

fn configure(text: &str, target: &wire::Target, pairs: &[(&str, &str)]) -> Box<dyn Configured> {
    let client = Client::connect(target).expect("the server answers");
    let dialect = Dialect::of_server(target.protocol, &client.server().version);
    let file = SqlFile::parse("bank.sql", text).expect("a good file");
    file.configure(&support::given(pairs), dialect).expect("good options")
}

#[test]
fn a_file_with_everything_runs_on_both_protocols() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "bank");
        for mode in ["auto", "disable"] {
            let configured = configure(BANK, &target, &[("accounts", "500"), ("db_ps_mode", mode)]);
            let report = load_tables(&*configured, &target);
            assert_eq!(report.rows, 500);
            // Transfers in opposite directions may deadlock: the engine retries them.
            let step = run_and_check(&*configured, &target, 4, 1000, 5).steps.remove(0);
            assert_eq!(step.outcomes.failed(), 0, "{selector}: {:?}", step.errors);
            assert_eq!(step.outcomes.committed + step.outcomes.rolled_back, 1000);
            // Weights 3, 1, 1: one in five is rolled back; 60 % of a thousand has a standard deviation of 15.
            assert!((130..270).contains(&step.outcomes.rolled_back), "{:?}", step.outcomes);
            let takes = step.by_statement.iter().find(|class| class.name == "take").expect("named").count;
            let mut client = Client::connect(&target).expect("the server answers");
            let journal = client.query_value("SELECT COUNT(*) FROM journal").expect("a count");
            let transfers: u64 = journal.expect("not NULL").parse().expect("a number");
            assert!(takes >= transfers && (530..670).contains(&transfers), "{takes} {transfers}");
        }
    }
}

#[test]
fn a_mistake_in_the_sql_ends_the_step_with_the_servers_words() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "mistake");
        let configured = configure("SELECT 1 FROM no_such_table;", &target, &[]);
        let plan = load::LoadPlan {
            steps: vec![load::Step {
                sessions: 1,
                warmup: std::time::Duration::ZERO,
                length: load::Length::Transactions { count: 5, at_most: None },
                pacing: load::Pacing::Closed,
            }],
            ..load::LoadPlan::default()
        };
        let factory = configured.sessions(&target, 1);
        let error = match load::run(&plan, &*factory, &mut |_| (), &load::Stop::new()) {
            Err(error) => error.to_string(),
            Ok(result) => result.steps[0].ended_by.clone().unwrap_or_default(),
        };
        assert!(error.contains("no_such_table"), "{error}");
    }
}
