//! Workloads of one's own: `.sql` files, pgbench's scripts, Super Smack's files. Each is read, and what can be done with it
//! without a server is done.

use std::collections::BTreeMap;

use pgscript::random::Random;
use pgscript::{Action, Names, Place, Scope, Script};
use workload::sqlfile::SqlFile;
use workload::{Dialect, Workload};

/// Steps of a script that are walked: conditions only lead forward, but a text of 1 KiB has hundreds of commands.
const STEPS_MOST: usize = 1000;

/// A text is a workload that both families of servers get, or a mistake with its place.
pub fn workload_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    std::hint::black_box(workload::sqlfile::has_directives(&text));
    let file = match SqlFile::parse("fuzzed.sql", &text) {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let servers = [(wire::Protocol::Mysql, "8.0.33"), (wire::Protocol::Postgres, "18.0")];
    for (protocol, version) in servers {
        let dialect = Dialect::of_server(protocol, version);
        if let Ok(configured) = file.configure(&BTreeMap::new(), dialect) {
            std::hint::black_box((
                configured.statements(),
                configured.dataset_key(),
                configured.data_bytes(),
            ));
        }
    }
}

/// A text is a script whose conditions, settings and statements can be worked out, or a mistake in pgbench's form.
pub fn pgbench_scripts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    std::hint::black_box(pgscript::statements(&text));
    let mut names = Names::default();
    match Script::parse("fuzzed.sql", &text, &mut names) {
        Ok(script) => walk(&script, &names),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn walk(script: &Script, names: &Names) {
    let mut variables = Script::no_values(names);
    let mut random = Random::new(1);
    let mut place = Script::START;
    let mut sent = String::new();
    for _ in 0..STEPS_MOST {
        let mut scope = Scope { names, variables: &variables, random: &mut random, debug: &mut |_| () };
        let Ok(next) = script.resolve(place, &mut scope) else { return };
        let Some(command) = script.commands.get(next.at) else { return };
        match &command.action {
            Action::Sql(sql) => {
                sent.clear();
                std::hint::black_box(sql.with_marks());
                sql.fill(names, &variables, &mut sent);
            }
            Action::Set { slot, value } => {
                let Ok(found) = scope.value(value) else { return };
                variables[*slot] = Some(found);
            }
            _ => {}
        }
        place = Place::behind(next);
    }
}

/// A text is a test, or a mistake with its line.
pub fn smack_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let arguments = ["10".to_owned(), "100".to_owned()];
    if let Err(error) = smack::check("fuzzed.smack", &text, &arguments) {
        assert!(!error.to_string().is_empty());
    }
}
