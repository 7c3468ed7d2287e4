//! `plimsoll servers`.

use sandbox::{Build, Home, Selector, builds};
use serde_json::{Value, json};

use crate::args::ServersArgs;
use crate::commands::{print, print_data};
use crate::exit::{End, Failure};
use crate::show::{Align, Table};

pub(crate) fn servers(args: &ServersArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let which = args.which.iter().map(|text| text.parse()).collect::<Result<Vec<Selector>, _>>()?;
    let is_asked = |flavor, version: &str, label: Option<&str>| {
        which.is_empty() || which.iter().any(|selector| builds::is_asked(selector, flavor, version, label))
    };
    let is_build_asked = |build: &Build| is_asked(build.flavor, &build.version, build.label.as_deref());
    let is_all = !args.installed && !args.fetched;
    let mut installed = builds::installed(&home)?;
    let mut fetched = builds::fetched(&home)?;
    let mut fetchable = builds::fetchable(&home)?;
    fetchable.retain(|entry| !fetched.iter().any(|build| build.name() == entry.name()));
    installed.retain(|build| (is_all || args.installed) && is_build_asked(build));
    fetched.retain(|build| (is_all || args.fetched) && is_build_asked(build));
    fetchable.retain(|entry| is_all && is_asked(entry.flavor, &entry.version, entry.label.as_deref()));
    if args.json {
        let here = |build: &Build, state: &str| {
            json!({"name": build.name(), "flavor": build.flavor.name(), "version": build.version, "label": build.label,
                   "state": state, "identity": build.identity, "from": build.origin.to_string(),
                   "server": build.files.server})
        };
        let mut all: Vec<Value> = installed.iter().map(|build| here(build, "installed")).collect();
        all.extend(fetched.iter().map(|build| here(build, "fetched")));
        all.extend(fetchable.iter().map(|entry| {
            json!({"name": entry.name(), "flavor": entry.flavor.name(), "version": entry.version, "label": entry.label,
                   "state": "fetchable", "identity": null, "from": entry.source, "server": null})
        }));
        return print_data(&format!("{}\n", Value::from(all)));
    }
    let mut table = Table::new(&[("build", Align::Left), ("state", Align::Left), ("from", Align::Left)]);
    for build in &installed {
        table.row([build.name(), "installed".into(), build.files.server.display().to_string()]);
    }
    for build in &fetched {
        table.row([build.name(), "fetched".into(), build.origin.to_string()]);
    }
    for entry in &fetchable {
        table.row([entry.name(), "fetchable".into(), entry.source.clone()]);
    }
    if table.is_empty() {
        if !is_all || !which.is_empty() {
            return print("no such builds; `plimsoll servers` lists all\n");
        }
        return print(
            "no builds: install mariadb-server or postgresql, or Maven's client `mvn` so that they can be fetched\n",
        );
    }
    print(&table.text())
}
