//! The axis `replicas`: servers that follow the server.

use std::ops::Range;

use sandbox::replication::Mode;

use super::axes::{Places, choice, label_in};
use super::model::{Body, Pairing, ReplicasChoice};
use super::problem::one_of;
use super::read::{Item, Problems, word};
use crate::servers::{self, Server};

/// As many as a primary of each version lets in by default, with room for a user's own.
const REPLICAS_MAX: u32 = 8;

const MODES: [&str; 3] = ["async", "semi-sync", "sync"];
const EXAMPLE: &str = "{ name = \"old\", server = \"mariadb@10.6\", mode = \"semi-sync\" }";

pub(super) fn read_replicas(
    item: Item<'_>,
    problems: &mut Problems,
    places: &mut Places<'_>,
) -> Option<ReplicasChoice> {
    let of = |label: String, mode, count| ReplicasChoice { label, mode, servers: vec![None; count] };
    if item.integer().is_some() {
        let count = item.count_within::<u32>(problems, 0, REPLICAS_MAX)?.value;
        return Some(of(count.to_string(), Mode::Async, count as usize));
    }
    if !item.is_table() {
        let text = item.text(problems)?;
        let what = format!("a set of replicas ({EXAMPLE} makes one)");
        let allowed = ["none"].into_iter().chain(MODES);
        if !word(problems, &text, &what, allowed) {
            return None;
        }
        let mode: Option<Mode> = text.value.parse().ok();
        return Some(of(text.value, mode.unwrap_or(Mode::Async), usize::from(mode.is_some())));
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

/// Refuses what replicas cannot be combined with; `span` is where they stand.
pub(super) fn check_replicas(body: &Body, span: &Range<usize>, when: &str, problems: &mut Problems) {
    if body.axes.replicas.iter().all(|choice| choice.servers.is_empty()) {
        return;
    }
    let mut refuse = |message: &str, label: &str, help: &str| {
        problems.add_help(span, format!("{when}{message}"), label, help);
    };
    if body.load.pairing == Pairing::Duel {
        refuse(
            "a replica works on when its primary's slice is over, and would disturb the other side's",
            "with `pairing = \"duel\"`",
            "leave `pairing` out: runs are made next to each other then",
        );
    }
    if !body.axes.intervene.is_empty() {
        refuse(
            "a replica works on when a phase is over, and would disturb the next state's",
            "with [[intervene]]",
            "give the [[intervene]] an `at`, or leave the replicas out",
        );
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

    fn refused(text: &str) -> String {
        parse(Path::new("s.toml"), text).expect_err(text).to_string()
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
    fn replicas_that_disturb_others_are_refused_where_they_stand() {
        let duel = "[load]\npairing = \"duel\"\n[compare]\naxis = \"settings\"\nbase = \"default\"";
        let axes = "settings = [\"default\", \"fast\"]\nreplicas = [\"none\", \"async\"]";
        let text = refused(&study(axes, duel));
        assert!(text.contains("would disturb the other side") && text.contains("s.toml:7:1"), "{text}");
        let switched = "[[intervene]]\nname = \"log\"\nsettings = { general_log = \"ON\" }";
        assert!(refused(&study("replicas = 1", switched)).contains("the next state"));
        parse(Path::new("s.toml"), &study("replicas = \"none\"", switched)).unwrap();
        let at = "[[intervene]]\nname = \"log\"\nat = \"1s\"\nsettings = { general_log = \"ON\" }";
        parse(Path::new("s.toml"), &study("replicas = 1", at)).unwrap();
    }
}
