//! Servers of a study that are built from commits of a clone: `{ git = "DIR", ref = "COMMIT" }`, and
//! `{ git = "DIR", refs = "OLD..NEW" }` for all commits after one up to another.

use std::path::PathBuf;

use sandbox::builds::commits_of_range;
use serde::Serialize;

use super::axes::label_of;
use super::model::{ServerChoice, Study};
use super::read::{At, Item, Problems, Table};
use crate::error::Error;

/// Beyond, a study is for days, and for `plimsoll bisect`.
const COMMITS_MAX: usize = 100;
/// Of a commit's name, as it stands on the axis.
const SHORT: usize = 10;

/// Where a server is built from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceChoice {
    /// The clone; nothing in it is changed.
    pub clone: PathBuf,
    /// A recipe's file or name; `None`: what the sources look like decides.
    pub recipe: Option<String>,
    /// The choice stands for all commits of a range, until [`expand`] has looked them up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_range: bool,
}

/// A table with `git`.
pub(super) fn read_source(mut table: Table<'_>, problems: &mut Problems) -> Option<ServerChoice> {
    let text = |item: Option<Item<'_>>, problems: &mut Problems| item.and_then(|item| item.text(problems));
    let clone = text(table.get("git"), problems);
    let recipe = text(table.get("recipe"), problems);
    let label = table.get("label").map(|item| (item.span(), label_of(item, problems)));
    let range = text(table.get("refs"), problems);
    if let (Some(range), Some((span, _))) = (&range, &label) {
        let help = "each commit of a range is called by its name";
        problems.add_help(
            span,
            format!("`refs = \"{}\"` has no label", range.value),
            "of one commit only",
            help,
        );
    }
    let server = match (text(table.get("ref"), problems), range) {
        (Some(commit), None) => fits(commit, false, problems),
        (None, Some(range)) => fits(range, true, problems),
        (None, None) => {
            let help =
                "for example ref = \"REL_17_2\", or refs = \"v1..v2\" for all commits after v1 up to v2";
            problems.add_help(
                &table.span(),
                "a server that is built needs its commit",
                "`ref` or `refs`",
                help,
            );
            None
        }
        (Some(commit), Some(_)) => {
            problems.add(&commit.span, "`ref` and `refs` exclude each other", "one of the two");
            None
        }
    };
    table.finish(problems);
    let (clone, (server, is_range)) = (clone?, server?);
    let (clone, recipe) = (PathBuf::from(clone.value), recipe.map(|recipe| recipe.value));
    let source = SourceChoice { clone, recipe, is_range };
    Some(ServerChoice { server, label: label.and_then(|(_, label)| label), source: Some(source) })
}

/// Names of commits as git takes them; what could be an option of git's is none.
fn fits(named: At<String>, is_range: bool, problems: &mut Problems) -> Option<(String, bool)> {
    let is_commit = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/~^+".contains(c);
        !text.is_empty() && !text.starts_with('-') && !text.contains("..") && text.chars().all(plain)
    };
    let is_good = match named.value.split_once("..") {
        Some((old, new)) if is_range => is_commit(old) && is_commit(new),
        _ => !is_range && is_commit(&named.value),
    };
    if !is_good {
        let (what, help) = match is_range {
            true => ("a range of commits", "for example refs = \"v1..v2\": all commits after v1 up to v2"),
            false => ("a commit", "for example ref = \"REL_17_2\", \"main\" or the first digits of its hash"),
        };
        problems.add_help(
            &named.span,
            format!("`{}` is not the name of {what}", named.value),
            "unknown",
            help,
        );
    }
    is_good.then_some((named.value, is_range))
}

/// Puts the commits of each range on the axis, oldest first.
///
/// # Errors
/// The clone does not know them, or there are none or too many.
pub(crate) fn expand(study: &mut Study) -> Result<(), Error> {
    let expanded = [&study.body.axes.server, &study.quick.axes.server].map(|choices| {
        let each = choices.iter().map(|choice| commits(study, choice));
        each.collect::<Result<Vec<_>, Error>>().map(|all| all.concat())
    });
    let [body, quick] = expanded;
    (study.body.axes.server, study.quick.axes.server) = (body?, quick?);
    Ok(())
}

fn commits(study: &Study, choice: &ServerChoice) -> Result<Vec<ServerChoice>, Error> {
    let Some(source) = choice.source.as_ref().filter(|source| source.is_range) else {
        return Ok(vec![choice.clone()]);
    };
    let refuse =
        |why: String| Error::Usage(format!("{}: refs = \"{}\": {why}", study.path.display(), choice.server));
    let (old, new) = choice.server.split_once("..").unwrap_or_default();
    let commits = commits_of_range(&source.clone, old, new).map_err(|error| refuse(error.to_string()))?;
    if commits.is_empty() {
        return Err(refuse("there is no commit after the first that leads to the second".to_owned()));
    }
    if commits.len() > COMMITS_MAX {
        let why = format!(
            "these are {} commits, and a study takes at most {COMMITS_MAX}: choose some with `ref`, or let `plimsoll bisect` \
             find the one that matters",
            commits.len()
        );
        return Err(refuse(why));
    }
    let of = |commit: &String| ServerChoice {
        server: commit.chars().take(SHORT).collect(),
        label: None,
        source: Some(SourceChoice { is_range: false, ..source.clone() }),
    };
    Ok(commits.iter().map(of).collect())
}
