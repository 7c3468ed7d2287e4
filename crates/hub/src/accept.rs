//! Taking a bundle: verified, kept, listed; all of it or nothing.

use std::collections::BTreeMap;

use report::bundle::{Listing, RunMark};
use serde_json::{Value, json};
use store::{CLOUD, INSTANCE_TYPE, PRICE};

use crate::check::Verified;
use crate::db::{Cell, Db, Place, Sql, cells, places_of_values};
use crate::error::Error;
use crate::files::{BUNDLE, Keeping, REPORT};
use crate::kept::changed;
use crate::remeasure::{self, By};
use crate::schema;
use crate::standing::{count, count_all, has_verdict};

/// Texts of a submitter are shown up to here.
const SHOWN_MAX: usize = 400;

/// What was submitted, verified.
pub(crate) struct Submission<'a> {
    pub(crate) id: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) verified: Verified,
    /// Name of the token.
    pub(crate) token: &'a str,
    pub(crate) now_ms: i64,
    /// The hub's policy has drawn it to be measured again.
    pub(crate) is_drawn: bool,
}

/// Lists a bundle. When this returns it is kept and listed, also if everything loses power now.
pub(crate) fn accept(db: &Db, keeping: &Keeping, submission: &Submission<'_>) -> Result<(), Error> {
    let Submission { id, bytes, verified, token, .. } = submission;
    // Before anything of it is kept; within the transaction it is asked again.
    db.with(|sql| refuse_replayed(sql, token, &verified.listing.marks))?;
    keeping.keep_before(id, BUNDLE, bytes)?;
    keeping.keep_before(id, REPORT, verified.report.as_bytes())?;
    db.with(|sql| {
        sql.transaction(|sql| {
            refuse_known(sql, id)?;
            refuse_replayed(sql, token, &verified.listing.marks)?;
            keeping.keep_with(sql, id, BUNDLE, bytes)?;
            keeping.keep_with(sql, id, REPORT, verified.report.as_bytes())?;
            insert(sql, submission)?;
            let mut claims: Vec<&str> =
                submission.verified.listing.claims.iter().map(|claim| &*claim.id).collect();
            claims.sort_unstable();
            claims.dedup();
            claims.into_iter().try_for_each(|claim| count(sql, claim))?;
            if submission.is_drawn {
                remeasure::ask(sql, id, By::Policy, submission.now_ms)?;
            }
            changed(sql)
        })
    })
}

/// Refuses the same file again.
pub(crate) fn refuse_known(sql: &mut Sql, id: &str) -> Result<(), Error> {
    let rows = sql.rows("SELECT is_hidden FROM bundle WHERE id = ?1", &[id.into()])?;
    match rows.first().map(|row| row.int(0)) {
        None => Ok(()),
        Some(0) => Err(Error::Known(format!("/bundle/{id}"))),
        Some(_) => Err(Error::Hidden("this bundle was here, and a moderator hid it: it is not taken again")),
    }
}

/// Refuses runs that are here already, sealed anew: as a whole, or as another machine's. A study that has grown since has
/// runs of its own beside those of its earlier bundle.
///
/// Runs that a moderator hid are not taken again from the token that submitted them, under whatever seal. From another
/// token they are: what was hidden may be a forgery of them, and its author must not keep out whoever measured them. A
/// signature does not tell the two apart, for anybody can submit a copy of a file that its owner has signed.
pub(crate) fn refuse_replayed(sql: &mut Sql, token: &str, marks: &[RunMark]) -> Result<(), Error> {
    let mut here: BTreeMap<String, usize> = BTreeMap::new();
    for some in marks.chunks(500) {
        let hosts: BTreeMap<&str, &str> = some.iter().map(|mark| (&*mark.run, &*mark.host)).collect();
        let runs: Vec<Cell> = hosts.keys().map(|run| Cell::from(*run)).collect();
        let sentence = format!(
            "SELECT run_mark.run, run_mark.bundle_id, run_mark.host, bundle.is_hidden, bundle.token
             FROM run_mark JOIN bundle ON bundle.id = run_mark.bundle_id WHERE run_mark.run IN ({})",
            places_of_values(1, runs.len())
        );
        for row in sql.rows(&sentence, &runs)? {
            let (run, bundle, host) = (row.text(0), row.text(1), row.text(2));
            match (row.int(3), row.text(4) == token) {
                (0, _) => {}
                (_, true) => return Err(Error::Hidden(HIDDEN_RUNS)),
                (_, false) => continue,
            }
            if hosts.get(&*run).is_some_and(|here| *here != host) {
                return Err(Error::Refused(format!(
                    "its runs are those of /bundle/{bundle}, which names another machine for them"
                )));
            }
            *here.entry(bundle).or_default() += 1;
        }
    }
    match here.into_iter().find(|(_, known)| *known == marks.len()) {
        Some((bundle, _)) => Err(Error::Known(format!("/bundle/{bundle}"))),
        None => Ok(()),
    }
}

const HIDDEN_RUNS: &str = "runs of this bundle were submitted by this token before, and a moderator hid them: they are not taken again from it";

pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What lists show of a bundle.
fn head(submission: &Submission<'_>) -> Value {
    let listing = &submission.verified.listing;
    let servers = servers(listing);
    json!({
        "id": submission.id, "study": short(&listing.study), "title": short(&listing.title),
        "question": short(&listing.question),
        "answer": listing.answer.iter().take(2).map(|text| short(text)).collect::<Vec<_>>(),
        "author": short(&listing.author.name), "signer": listing.signer, "is_quick": listing.is_quick,
        "received_at": report::history::time(submission.now_ms),
        "measured_at": report::history::time(listing.measured_at_ms), "servers": servers,
        "hosts": listing.hosts.iter().map(|host| json!({"fingerprint": host.fingerprint, "name": short(&host.name),
            "cpu_model": short(&host.cpu_model), "cpus": host.cpus})).collect::<Vec<_>>(),
        "runs": listing.runs.0, "claims": listing.claims.len(),
    })
}

fn servers(listing: &Listing) -> Vec<String> {
    let mut servers: Vec<String> = listing.cells.iter().map(|cell| short(&cell.server)).collect();
    servers.sort();
    servers.dedup();
    servers
}

fn words(listing: &Listing) -> String {
    let mut all = vec![listing.study.clone(), listing.title.clone(), listing.question.clone()];
    all.extend(listing.answer.iter().cloned());
    all.push(listing.author.name.clone());
    all.extend(listing.author.keywords.iter().cloned());
    all.extend(servers(listing));
    all.extend(listing.cells.iter().map(|cell| cell.workload.clone()));
    all.extend(listing.hosts.iter().flat_map(|host| [host.name.clone(), host.cpu_model.clone()]));
    let bought =
        listing.hosts.iter().flat_map(|host| [CLOUD, INSTANCE_TYPE, PRICE].map(|fact| host.facts.get(fact)));
    all.extend(bought.flatten().cloned());
    all.dedup();
    all.join("\n").to_lowercase()
}

fn insert(sql: &mut Sql, submission: &Submission<'_>) -> Result<(), Error> {
    let Submission { id, bytes, verified, token, now_ms, .. } = submission;
    let (id, listing) = (*id, &verified.listing);
    // These stand in tables of their own.
    let kept = Listing {
        points: Vec::new(),
        decisions: Vec::new(),
        marks: Vec::new(),
        audits: Vec::new(),
        ..listing.clone()
    };
    let values = cells![
        id,
        *now_ms,
        listing.measured_at_ms,
        *token,
        0_i64,
        "",
        listing.study.clone(),
        listing.shape.clone(),
        bytes.len() as i64,
        verified.figures as i64,
        words(listing),
        head(submission).to_string(),
        serde_json::to_string(&kept)?,
        listing.signer.clone().unwrap_or_default(),
    ];
    sql.insert(
        "bundle (id, received_ms, measured_ms, token, is_hidden, hidden_why, study, shape, bytes, figures, words, head,
         listing, signer)",
        &values,
    )?;
    for (at, claim) in listing.claims.iter().enumerate() {
        let (text, has_verdict) = (serde_json::to_string(claim)?, i64::from(has_verdict(claim)));
        let values = cells![id, at as i64, claim.id.clone(), claim.host.clone(), text, has_verdict];
        sql.insert("claim (bundle_id, ordinal, id, host, claim, has_verdict)", &values)?;
    }
    for host in &listing.hosts {
        let values = cells![host.fingerprint.clone(), id, serde_json::to_string(host)?];
        sql.insert_new("host (fingerprint, bundle_id, host)", &values)?;
    }
    for mark in &listing.marks {
        sql.insert("run_mark (run, bundle_id, host)", &cells![mark.run.clone(), id, mark.host.clone()])?;
    }
    for (at, decision) in listing.decisions.iter().enumerate() {
        let values = cells![id, at as i64, decision.decided_at_ms, serde_json::to_string(decision)?];
        sql.insert("decision (bundle_id, ordinal, decided_ms, decision)", &values)?;
    }
    listing.audits.iter().try_for_each(|audit| insert_audit(sql, id, audit))?;
    for server in servers(listing) {
        sql.insert("server (name, bundle_id)", &cells![server, id])?;
    }
    insert_points(sql, id, listing)
}

/// An audit is sealed with each study of its results.
pub(crate) fn insert_audit(sql: &mut Sql, bundle: &str, audit: &Value) -> Result<(), Error> {
    let text = audit.to_string();
    let server = audit["server"].as_str().unwrap_or_default();
    let values = cells![store::bundle::sha256(text.as_bytes()), server, bundle, text];
    sql.insert_new("audit (id, server, bundle_id, audit)", &values)
}

fn insert_points(sql: &mut Sql, id: &str, listing: &Listing) -> Result<(), Error> {
    for (at, point) in listing.points.iter().enumerate() {
        let mut point = point.clone();
        point.point.file = format!("/bundle/{id}");
        let (flavor, metric) = (schema::flavor_of(&point), point.metric.clone());
        let text = serde_json::to_string(&point)?;
        let values = cells![id, at as i64, flavor, metric, text, point.group()];
        sql.insert("point (bundle_id, ordinal, flavor, metric, point, series)", &values)?;
        schema::count_point(sql, &point)?;
    }
    Ok(())
}

/// What is listed of a bundle that nobody submitted.
#[derive(Debug, Clone)]
pub struct Made {
    /// As long as a SHA-256 in hexadecimal digits.
    pub id: String,
    /// In milliseconds since 1970.
    pub received_ms: i64,
    /// Name of a token.
    pub token: String,
    pub listing: Listing,
}

/// Made ones that are listed in one transaction.
const MADE_AT_ONCE: usize = 250;

/// Lists made bundles as those that verified are listed; [`keep_made`] gives them files. For benchmarks of pages, in a database
/// that has nothing else.
///
/// # Errors
/// The database cannot be had, or has bundles.
pub fn list_made(place: &Place, made: impl IntoIterator<Item = Made>) -> Result<(), Error> {
    Db::open(place)?.with(|sql| list_into(sql, made))
}

/// Keeps a bundle and its report under the name of a made one. For benchmarks of pages.
///
/// # Errors
/// They cannot be written, or are to be kept in a database.
pub fn keep_made(keeping: &Keeping, id: &str, bundle: &[u8], report: &[u8]) -> Result<(), Error> {
    if *keeping == Keeping::Database {
        return Err(Error::Wrong("files of made bundles are kept in a directory".to_owned()));
    }
    keeping.keep_before(id, REPORT, report)?;
    keeping.keep_before(id, BUNDLE, bundle)
}

/// Has all pages made anew, as after a submission. For benchmarks of pages.
///
/// # Errors
/// The database cannot be had.
pub fn note_change(place: &Place) -> Result<(), Error> {
    Db::open(place)?.with(changed)
}

pub(crate) fn list_into(sql: &mut Sql, made: impl IntoIterator<Item = Made>) -> Result<(), Error> {
    let mut made = made.into_iter().peekable();
    if !sql.rows("SELECT id FROM bundle LIMIT 1", &[])?.is_empty() {
        return Err(Error::Wrong("this database has bundles: made ones need one of their own".to_owned()));
    }
    while made.peek().is_some() {
        sql.transaction(|sql| {
            made.by_ref().take(MADE_AT_ONCE).try_for_each(|one| {
                let verified = Verified { figures: 0, listing: one.listing, report: String::new() };
                let submission = Submission {
                    id: &one.id,
                    bytes: &[],
                    verified,
                    token: &one.token,
                    now_ms: one.received_ms,
                    is_drawn: false,
                };
                insert(sql, &submission)
            })
        })?;
    }
    // Once each: one by one a claim that thousands measured would be counted thousands of times.
    sql.transaction(count_all)
}

/// Takes a bundle out of everything that is shown; its file stays.
pub(crate) fn hide(db: &Db, id: &str, why: &str) -> Result<(), Error> {
    db.with(|sql| hide_in(sql, id, why))
}

pub(crate) fn hide_in(sql: &mut Sql, id: &str, why: &str) -> Result<(), Error> {
    sql.transaction(|sql| {
        let sentence = "UPDATE bundle SET is_hidden = 1, hidden_why = ?2 WHERE id = ?1 AND is_hidden = 0";
        if sql.execute(sentence, &[id.into(), why.into()])? == 0 {
            return Err(Error::NotFound("bundle"));
        }
        let fewer = "UPDATE series SET points = points - (SELECT count(*) FROM point
                             WHERE point.bundle_id = ?1 AND point.series = series.id)
                         WHERE id IN (SELECT series FROM point WHERE bundle_id = ?1)";
        sql.execute(fewer, &[id.into()])?;
        let claims = sql.rows("SELECT DISTINCT id FROM claim WHERE bundle_id = ?1", &[id.into()])?;
        claims.iter().try_for_each(|row| count(sql, &row.text(0)))?;
        changed(sql)
    })
}
