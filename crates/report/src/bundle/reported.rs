//! Settings as servers reported them: what makes a server this one, and all others.
//!
//! Nobody records what a build's defaults are. A private server is started without option files, so that what its command line
//! does not set is its own default, or what it made of the machine.

use std::collections::{BTreeMap, BTreeSet};

use store::ServerFacts;

type Settings = BTreeMap<String, String>;

/// What the servers of a bundle reported.
pub(super) struct ReportedSettings {
    /// By server: names that its cells show.
    shown: BTreeMap<String, BTreeSet<String>>,
    /// By server: all others, which its cells have in common.
    pub(super) others: BTreeMap<String, Settings>,
}

impl ReportedSettings {
    /// Of servers by their names, a cell's each; `volatile` names what changes with every run.
    pub(super) fn of<'a>(
        servers: impl Iterator<Item = (String, &'a ServerFacts)>,
        volatile: BTreeSet<String>,
    ) -> ReportedSettings {
        let mut by_name: BTreeMap<String, Vec<&ServerFacts>> = BTreeMap::new();
        servers.for_each(|(name, server)| by_name.entry(name).or_default().push(server));
        let (mut shown, mut others) = (BTreeMap::new(), BTreeMap::new());
        for (name, cells) in by_name {
            let mut of_server: BTreeSet<String> = cells.iter().flat_map(|server| telling(server)).collect();
            let is_said = |setting: &str, value: &str| {
                !volatile.contains(setting) && !value.starts_with('/') && setting != "port"
            };
            let all: BTreeSet<&String> = cells.iter().flat_map(|server| server.settings.keys()).collect();
            let mut rest = Settings::new();
            for setting in all {
                let value = cells[0].settings.get(setting);
                if cells.iter().any(|server| server.settings.get(setting) != value) {
                    of_server.insert(setting.clone());
                }
                if let Some(value) =
                    value.filter(|value| !of_server.contains(setting) && is_said(setting, value))
                {
                    rest.insert(setting.clone(), value.clone());
                }
            }
            of_server.retain(|setting| {
                cells.iter().all(|server| {
                    let value = server.settings.get(setting).map_or("", String::as_str);
                    is_said(setting, value) || server.settings_asked.contains_key(setting)
                })
            });
            shown.insert(name.clone(), of_server);
            others.insert(name, rest);
        }
        ReportedSettings { shown, others }
    }

    /// Those that a cell of a server shows.
    pub(super) fn of_cell(&self, name: &str, server: &ServerFacts) -> Settings {
        let shown = self.shown.get(name).into_iter().flatten();
        shown.filter_map(|name| Some((name.clone(), server.settings.get(name)?.clone()))).collect()
    }
}

/// What was asked for, what decides the durability, and what the command line sets.
fn telling(server: &ServerFacts) -> Vec<String> {
    let words = server.command.split_whitespace().filter_map(|word| {
        let word = word.trim_matches(['"', '\'']);
        let name = word.split('=').next().filter(|_| word.contains('=') || word.starts_with("--"))?;
        Some(name.trim_start_matches("--"))
    });
    let asked = server.settings_asked.keys().chain(server.deciding.keys()).map(String::as_str);
    // Command lines write some names with hyphens.
    let all = asked.chain(words).map(|name| name.replace('-', "_"));
    all.filter(|name| server.settings.contains_key(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn server(command: &str, reported: &[(&str, &str)]) -> ServerFacts {
        ServerFacts {
            settings: settings(reported),
            settings_asked: settings(&[("sync-binlog", "1")]),
            deciding: settings(&[("innodb_doublewrite", "ON")]),
            command: command.to_owned(),
            ..ServerFacts::default()
        }
    }

    #[test]
    fn what_a_server_was_started_with_is_told_from_its_own_defaults() {
        let of = |pool: &str, size: &str| {
            server(
                "mariadbd --no-defaults --datadir=/data --port=4711 '--innodb-log-file-size=96M'",
                &[
                    ("sync_binlog", "1"),
                    ("innodb_doublewrite", "ON"),
                    ("innodb_log_file_size", "100663296"),
                    ("innodb_buffer_pool_size", pool),
                    ("table_open_cache", "2000"),
                    ("datadir", "/data/"),
                    ("port", "4711"),
                    ("server_uid", size),
                ],
            )
        };
        let cells = [of("1073741824", "a"), of("2147483648", "b")];
        let each = cells.iter().map(|cell| ("m".to_owned(), cell));
        let found = ReportedSettings::of(each, BTreeSet::from(["server_uid".to_owned()]));
        assert_eq!(found.others["m"], settings(&[("table_open_cache", "2000")]));
        let expected = settings(&[
            ("innodb_buffer_pool_size", "2147483648"),
            ("innodb_doublewrite", "ON"),
            ("innodb_log_file_size", "100663296"),
            ("sync_binlog", "1"),
        ]);
        assert_eq!(found.of_cell("m", &cells[1]), expected);

        let postgres = server(
            "postgres -D /data -c fsync=on",
            &[("fsync", "on"), ("data_directory", "/data"), ("jit", "on")],
        );
        let found = ReportedSettings::of([("p".to_owned(), &postgres)].into_iter(), BTreeSet::new());
        assert_eq!(found.others["p"], settings(&[("jit", "on")]));
        assert_eq!(found.of_cell("p", &postgres), settings(&[("fsync", "on")]));
    }
}
