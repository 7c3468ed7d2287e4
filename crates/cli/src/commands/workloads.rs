//! `plimsoll workloads`.

use std::collections::BTreeMap;

use serde_json::json;
use workload::{Dialect, Workload};

use crate::args::WorkloadsArgs;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::{Align, Table};

pub(crate) fn workloads(args: &WorkloadsArgs) -> Result<End, Failure> {
    let chosen: Vec<&dyn Workload> = match &args.name {
        Some(name) => vec![lab::workloads::find(name)?],
        None => lab::workloads::all(),
    };
    if args.json {
        let all =
            chosen.iter().map(|workload| as_json(*workload, args.server)).collect::<Result<Vec<_>, _>>()?;
        return print(&format!("{}\n", serde_json::Value::from(all)));
    }
    let mut text = String::new();
    for (at, workload) in chosen.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        text.push_str(&describe(*workload, args.server, args.name.is_some())?);
    }
    print(&text)
}

fn dialect(flavor: sandbox::Flavor) -> Dialect {
    let text = match flavor {
        sandbox::Flavor::Mariadb => "11.4.5-MariaDB",
        sandbox::Flavor::Postgres => "16.0",
        sandbox::Flavor::Mysql | sandbox::Flavor::Percona => "8.0.33",
    };
    Dialect::of_server(flavor.protocol(), text)
}

fn describe(workload: &dyn Workload, flavor: sandbox::Flavor, in_full: bool) -> Result<String, Failure> {
    let mut text = format!("{}: {}\n", workload.name(), workload.summary());
    if in_full {
        text.push_str(&format!("\n{}\n", workload.description().trim()));
    }
    let mut options = Table::new(&[("  option", Align::Left), ("default", Align::Left), ("", Align::Left)]);
    for option in workload.options() {
        options.row([format!("  {}", option.name), option.default.to_string(), option.help.to_string()]);
    }
    text.push_str(&format!("\n{}", options.text()));
    let configured = workload.configure(&BTreeMap::new(), dialect(flavor))?;
    let mut statements =
        Table::new(&[("  statement", Align::Left), ("per transaction", Align::Right), ("", Align::Left)]);
    for statement in configured.statements() {
        statements.row([format!("  {}", statement.class), statement.per_transaction, statement.sql]);
    }
    if !statements.is_empty() {
        text.push_str(&format!("\n{}", statements.text()));
    }
    Ok(text)
}

fn as_json(workload: &dyn Workload, flavor: sandbox::Flavor) -> Result<serde_json::Value, Failure> {
    let configured = workload.configure(&BTreeMap::new(), dialect(flavor))?;
    let options: Vec<_> = workload
        .options()
        .iter()
        .map(|option| json!({"name": option.name, "default": option.default, "help": option.help}))
        .collect();
    let statements: Vec<_> = configured
        .statements()
        .into_iter()
        .map(|statement| {
            json!({"class": statement.class, "sql": statement.sql, "per_transaction": statement.per_transaction,
                   "parameters": statement.parameters})
        })
        .collect();
    Ok(json!({"name": workload.name(), "summary": workload.summary(), "description": workload.description(),
              "options": options, "statements": statements}))
}
