//! `plimsoll workloads`.

use std::collections::BTreeMap;

use lab::workloads::Resolved;
use serde_json::json;
use workload::{Dialect, Workload};

use crate::args::WorkloadsArgs;
use crate::commands::{print, print_data};
use crate::exit::{End, Failure};
use crate::show::{Align, Table};

pub(crate) fn workloads(args: &WorkloadsArgs) -> Result<End, Failure> {
    let chosen: Vec<Resolved> = match &args.name {
        Some(name) => vec![lab::workloads::resolve(name)?],
        None => lab::workloads::all(),
    };
    if args.json {
        let all =
            chosen.iter().map(|workload| as_json(&**workload, args.server)).collect::<Result<Vec<_>, _>>()?;
        return print_data(&format!("{}\n", serde_json::Value::from(all)));
    }
    if let (Some(_), [workload]) = (&args.name, chosen.as_slice()) {
        return print(&describe(&**workload, args.server)?);
    }
    let mut table = Table::new(&[("workload", Align::Left), ("what a transaction is", Align::Left)]);
    for workload in &chosen {
        table.row([workload.name().to_owned(), workload.summary().to_owned()]);
    }
    print(&format!(
        "{}\n`plimsoll workloads NAME` shows options and statements; a FILE.sql of your own is a workload too\n",
        table.text()
    ))
}

fn dialect(flavor: sandbox::Flavor) -> Dialect {
    let text = match flavor {
        sandbox::Flavor::Mariadb => "11.4.5-MariaDB",
        sandbox::Flavor::Postgres => "16.0",
        sandbox::Flavor::Mysql | sandbox::Flavor::Percona => "8.0.33",
    };
    Dialect::of_server(flavor.protocol(), text)
}

fn describe(workload: &dyn Workload, flavor: sandbox::Flavor) -> Result<String, Failure> {
    let mut text =
        format!("{}: {}\n\n{}\n", workload.name(), workload.summary(), workload.description().trim());
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
