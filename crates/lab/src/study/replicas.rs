//! The axis `replicas`: servers that follow the server.

use sandbox::replication::Mode;

use super::axes::{Places, choice, label_in};
use super::model::ReplicasChoice;
use super::problem::one_of;
use super::read::{Item, Problems, word};
use crate::servers::{self, Server};

/// As many as a primary of each version lets in by default, with room for a user's own.
const REPLICAS_MAX: u32 = 8;

const MODES: [&str; 3] = ["async", "semi-sync", "sync"];
const EXAMPLE: &str = "{ name = \"old\", server = \"mariadb@10.6\", mode = \"semi-sync\" }";

impl ReplicasChoice {
    /// A server alone.
    pub fn none() -> ReplicasChoice {
        ReplicasChoice { label: "none".to_owned(), mode: Mode::Async, servers: Vec::new() }
    }

    /// `none`, one in a mode (`async`, `semi-sync`, `sync`), or as many asynchronous ones as a number says; each is what the
    /// server itself is.
    ///
    /// # Errors
    /// It is nothing of these, or too many.
    pub fn of_word(text: &str) -> Result<ReplicasChoice, String> {
        let of = |mode, count| ReplicasChoice { label: text.to_owned(), mode, servers: vec![None; count] };
        match (text.parse::<usize>(), text.parse::<Mode>()) {
            (Ok(count), _) if count <= REPLICAS_MAX as usize => Ok(of(Mode::Async, count)),
            (Ok(count), _) => Err(format!("{count} replicas are not possible: at most {REPLICAS_MAX}")),
            (_, Ok(mode)) => Ok(of(mode, 1)),
            _ if text == "none" => Ok(ReplicasChoice::none()),
            _ => Err(format!("none, {}, or a number of asynchronous ones", MODES.join(", "))),
        }
    }
}

pub(super) fn read_replicas(
    item: Item<'_>,
    problems: &mut Problems,
    places: &mut Places<'_>,
) -> Option<ReplicasChoice> {
    if item.integer().is_some() {
        let count = item.count_within::<u32>(problems, 0, REPLICAS_MAX)?.value;
        return ReplicasChoice::of_word(&count.to_string()).ok();
    }
    if !item.is_table() {
        let text = item.text(problems)?;
        let what = format!("a set of replicas ({EXAMPLE} makes one)");
        let allowed = ["none"].into_iter().chain(MODES);
        if !word(problems, &text, &what, allowed) {
            return None;
        }
        return ReplicasChoice::of_word(&text.value).ok();
    }
    let mut table = item.table(problems, "replicas")?;
    let label = label_in(&mut table, problems, EXAMPLE);
    let mode = choice(table.get("mode"), problems, "a mode of replication", MODES);
    let mode = mode.and_then(|mode| mode.parse().ok()).unwrap_or(Mode::Async);
    let (server, count) = (table.get("server"), table.get("count"));
    table.finish(problems);
    let count_given = count.and_then(|item| item.count_within::<u32>(problems, 1, REPLICAS_MAX));
    let members = server.map(|item| item.list(problems)).unwrap_or_default();
    let named: Vec<String> =
        members.iter().filter_map(|member| read_server(*member, problems, places)).collect();
    if named.len() > REPLICAS_MAX as usize
        && let Some(item) = server
    {
        let message = format!("{} replicas are not possible", named.len());
        problems.add(&item.span(), message, format!("at most {REPLICAS_MAX}"));
    }
    let count = count_given.as_ref().map_or(1, |at| at.value as usize);
    let servers = match (named.as_slice(), count_given) {
        ([], _) => vec![None; count],
        ([one], _) => vec![Some(one.clone()); count],
        (_, Some(given)) => {
            problems.add(&given.span, "a list of servers says how many there are", "leave `count` out");
            return None;
        }
        (many, None) => many.iter().cloned().map(Some).collect(),
    };
    Some(ReplicasChoice { label: label?, mode, servers })
}

/// The build of a replica. Where it is looked up in vain, this is where it stands.
fn read_server(item: Item<'_>, problems: &mut Problems, places: &mut Places<'_>) -> Option<String> {
    let text = item.text(problems)?;
    match servers::parse(&text.value) {
        Ok(Server::Selector(_)) => {
            places.spans.entry(format!("server/{}", text.value)).or_insert(text.span);
            Some(text.value)
        }
        Ok(Server::Sandbox(_) | Server::Url(_)) => {
            let message = format!("a replica of `{}` is not possible", wire::mask::value(&text.value));
            let known = one_of(sandbox::Flavor::ALL.iter().map(|flavor| flavor.name()));
            let help = format!("replicas are made of builds, as in \"mariadb@10.6\" ({known})");
            problems.add_help(&text.span, message, "a server that runs already", help);
            None
        }
        Err(why) => {
            problems.add_help(&text.span, why.message, "not a server", why.help);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::study::parse;

    fn study(axes: &str, rest: &str) -> String {
        format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"tpcb\"\n{axes}\n{rest}\n"
        )
    }

    #[test]
    fn replicas_are_words_numbers_or_tables() {
        let axes = "replicas = [\"none\", \"semi-sync\", 2, { name = \"old\", server = \"mariadb@10.6\", mode = \"semi-sync\", \
                    count = 2 }, { name = \"two\", server = [\"mysql\", \"mariadb@10.6\"] }]";
        let body = parse(Path::new("s.toml"), &study(axes, "")).unwrap().body(false);
        let own = |label: &str, mode, count| ReplicasChoice {
            label: label.into(),
            mode,
            servers: vec![None; count],
        };
        let of = |label: &str, mode, servers: &[&str]| ReplicasChoice {
            label: label.into(),
            mode,
            servers: servers.iter().map(|server| Some((*server).to_owned())).collect(),
        };
        assert_eq!(
            body.axes.replicas,
            [
                own("none", Mode::Async, 0),
                own("semi-sync", Mode::SemiSync, 1),
                own("2", Mode::Async, 2),
                of("old", Mode::SemiSync, &["mariadb@10.6", "mariadb@10.6"]),
                of("two", Mode::Async, &["mysql", "mariadb@10.6"]),
            ]
        );
        // Those that only replicas are of are pinned once, and behind the others.
        let pinned: Vec<String> =
            body.axes.pinned_servers().into_iter().map(|choice| choice.server).collect();
        assert_eq!(pinned, ["mariadb", "mariadb@10.6", "mysql"]);
        let cells = crate::plan::cells(&body);
        let keys: Vec<String> = cells.iter().map(|cell| cell.key("s")["replicas"].clone()).collect();
        assert_eq!(keys, ["none", "semi-sync", "2", "old", "two"]);
    }

    #[test]
    fn duels_states_and_lines_may_have_replicas() {
        let axes = "settings = [\"default\", \"fast\"]\nreplicas = [\"none\", \"async\"]";
        let duel = "[load]\npairing = \"duel\"\n[compare]\naxis = \"replicas\"\nbase = \"none\"";
        let switched = "[[intervene]]\nname = \"log\"\nsettings = { general_log = \"ON\" }";
        let line = "[line]\npromises = \"p99 < 20ms\"";
        for rest in [duel, switched, line] {
            parse(Path::new("s.toml"), &study(axes, rest)).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn a_command_line_has_them_as_words() {
        assert_eq!(ReplicasChoice::of_word("none").unwrap().servers.len(), 0);
        let two = ReplicasChoice::of_word("2").unwrap();
        assert_eq!((two.mode, two.servers.len()), (Mode::Async, 2));
        assert_eq!(ReplicasChoice::of_word("semi-sync").unwrap().mode, Mode::SemiSync);
        assert!(ReplicasChoice::of_word("9").unwrap_err().contains("at most 8"));
        assert!(ReplicasChoice::of_word("assync").unwrap_err().contains("none, async, semi-sync, sync"));
    }
}
