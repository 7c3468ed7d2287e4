//! What must not travel: passwords in texts, names of people and machines, places of homes. It is replaced everywhere by the
//! same words, so that what belonged together still does, and listed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::passwords;

/// What is to be left out.
#[derive(Debug, Clone, Default)]
pub struct Private {
    /// Home directories, absolute.
    pub homes: Vec<String>,
    /// Names of people as the system knows them.
    pub users: Vec<String>,
    /// Names of machines with what stands in their place; empty where they may travel.
    pub hosts: BTreeMap<String, String>,
}

/// Something that did not travel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// `password`, `user name`, `home directory`, `host name`, `user of a URL`, `host of a URL`, `file`, what a slim
    /// bundle lacks.
    pub what: String,
    /// What stands in its place; empty: nothing.
    pub instead: String,
    pub times: u64,
}

/// Names that tell nothing about anybody.
const COMMON: [&str; 9] =
    ["root", "mysql", "mariadb", "postgres", "plimsoll", "nobody", "user", "test", "localhost"];

/// Replaces what is private and counts it.
#[derive(Debug, Default)]
pub(crate) struct Eraser {
    private: Private,
    counts: BTreeMap<(&'static str, String), u64>,
    /// Hosts of URLs in the order in which they were found.
    servers: Vec<String>,
}

/// A hyphen ends a word: MySQL calls its files after its host, `db7-slow.log`.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

impl Eraser {
    pub(crate) fn new(private: &Private) -> Eraser {
        let mut private = private.clone();
        let tells = |name: &str| name.len() > 1 && !COMMON.contains(&name);
        // With a slash at its end it would be followed by a word.
        private.homes.iter_mut().for_each(|home| home.truncate(home.trim_end_matches('/').len()));
        private.homes.retain(|home| home.len() > 1);
        // A home within another goes first.
        private.homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
        private.users.retain(|user| tells(user));
        private.hosts.retain(|host, _| tells(host));
        Eraser { private, ..Eraser::default() }
    }

    /// What was replaced, and how often.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        let each = self.counts.iter();
        each.map(|((what, instead), times)| LeftOut {
            what: (*what).to_owned(),
            instead: instead.clone(),
            times: *times,
        })
        .collect()
    }

    /// A text without what is private.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let (text, passwords) = passwords::without(text);
        if passwords > 0 {
            *self.counts.entry(("password", passwords::INSTEAD.to_owned())).or_default() += passwords;
        }
        let mut text = self.urls(&text);
        for home in self.private.homes.clone() {
            text = self.replace(&text, &home, "~", "home directory");
        }
        text = self.foreign_homes(&text);
        for (host, instead) in self.private.hosts.clone() {
            text = self.replace(&text, &host, &instead, "host name");
        }
        for user in self.private.users.clone() {
            text = self.replace(&text, &user, "somebody", "user name");
        }
        text
    }

    fn count(&mut self, what: &'static str, instead: &str) {
        *self.counts.entry((what, instead.to_owned())).or_default() += 1;
    }

    /// A whole word, wherever it stands.
    fn replace(&mut self, text: &str, word: &str, instead: &str, what: &'static str) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        let mut before = None;
        while let Some(at) = rest.find(word) {
            let end = at + word.len();
            let last = rest[..at].bytes().last().or(before);
            let is_whole = !last.is_some_and(is_word) && !rest[end..].bytes().next().is_some_and(is_word);
            out.push_str(&rest[..at]);
            out.push_str(if is_whole { instead } else { word });
            if is_whole {
                self.count(what, instead);
            }
            before = rest[..end].bytes().last();
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    /// `/home/NAME` and `/Users/NAME` of whoever else has worked on the study.
    fn foreign_homes(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for folder in ["/home/", "/Users/"] {
            let mut from = 0;
            while let Some(at) = text[from..].find(folder).map(|at| at + from) {
                let name = at + folder.len();
                let length =
                    text[name..].bytes().take_while(|byte| is_word(*byte) || b".-".contains(byte)).count();
                if length > 0 {
                    text.replace_range(at..name + length, "~");
                    self.count("home directory", "~");
                }
                from = at + 1;
            }
        }
        text
    }

    /// Of `mysql://user:***@host:port/`, the user and the host; of any other URL the user, who may have a password.
    fn urls(&mut self, text: &str) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find("://") {
            let is_server = ["mysql", "mariadb", "postgres", "postgresql"]
                .iter()
                .any(|scheme| rest[..at].ends_with(scheme));
            out.push_str(&rest[..at + 3]);
            rest = &rest[at + 3..];
            let end = rest.find(['/', '?', '"', '\'', ' ', '\\', '\n']).unwrap_or(rest.len());
            let authority = &rest[..end];
            if !is_server && !authority.contains('@') {
                continue;
            }
            let host = match authority.rsplit_once('@') {
                Some((_, host)) => {
                    self.count("user of a URL", "***");
                    out.push_str("***@");
                    host
                }
                None => authority,
            };
            let host = if is_server { self.host_of_url(host) } else { host.to_owned() };
            out.push_str(&host);
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    fn host_of_url(&mut self, host: &str) -> String {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, Some(port)),
            _ => (host, None),
        };
        let is_here = ["", "localhost", "127.0.0.1", "[::1]"].contains(&name);
        // Names of machines may travel: then so may these.
        if is_here || self.private.hosts.is_empty() {
            return host.to_owned();
        }
        let known = self.servers.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.servers.push(name.to_owned());
            self.servers.len() - 1
        });
        let instead = format!("server-{}", number + 1);
        self.count("host of a URL", &instead);
        port.map_or(instead.clone(), |port| format!("{instead}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_machines_and_homes_are_replaced_as_whole_words() {
        let private = Private {
            homes: vec!["/srv/people/ada/".to_owned(), "/".to_owned()],
            users: vec!["ada".to_owned(), "root".to_owned()],
            hosts: BTreeMap::from([("db7".to_owned(), "host-f1f1".to_owned())]),
        };
        let mut eraser = Eraser::new(&private);
        let text =
            "/srv/people/ada/x by ada (canada, ada_2) in db7-slow.log, not db77; /home/grace-h/y as root";
        let told = "~/x by somebody (canada, ada_2) in host-f1f1-slow.log, not db77; ~/y as root";
        assert_eq!(eraser.text(text), told);
        let url = "mysql://ada:***@db7.corp:3306/test?x=1 mysql://root@localhost/d postgres://db9/d";
        assert_eq!(
            eraser.text(url),
            "mysql://***@server-1:3306/test?x=1 mysql://***@localhost/d postgres://server-2/d"
        );
        assert_eq!(eraser.text("mysql://db7.corp:3306/"), "mysql://server-1:3306/");
        let others = "https://u:geheim@proxy:80/x mysqlx://u:geheim@h https://example.org/@x";
        assert_eq!(eraser.text(others), "https://***@proxy:80/x mysqlx://***@h https://example.org/@x");
        let times: u64 = eraser.left_out().iter().map(|left| left.times).sum();
        assert_eq!(times, 4 + 2 + 2 + 1 + 2);
    }

    #[test]
    fn names_of_machines_travel_where_they_may() {
        let mut eraser = Eraser::new(&Private::default());
        assert_eq!(eraser.text("on db7: mysql://me@db7/d"), "on db7: mysql://***@db7/d");
    }
}
