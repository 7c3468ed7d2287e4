//! Claims of submissions that the hub has measured again: who asked, who has the work, and what came of it.
//!
//! The hub draws which claim it is, and says itself what the measurement means: a worker hands in no more than the ratio that
//! it found. Work is given out as a lease, which ends by itself; of two hubs on one database one gives it out.

use report::bundle::ListedClaim;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stats::{RatioSpan, Replication, replicated};

use crate::accept::short;
use crate::db::{Row, Sql, cells};
use crate::error::Error;
use crate::kept::changed;
use crate::random;
use crate::standing::span;

/// A worker that says nothing for so long has lost its work.
pub(crate) const LEASE_MS: i64 = 5 * 60 * 1000;
/// Leases that are given for one piece of work. What ends three workers would end the fourth.
const ATTEMPTS_MAX: i64 = 3;

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Policy,
    Moderator,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            By::Policy => "policy",
            By::Moderator => "moderator",
        }
    }
}

/// Work for a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) lease: String,
    pub(crate) bundle: String,
    /// Identity of the claim.
    pub(crate) claim: String,
    /// What is not renewed within this time is given to somebody else.
    pub(crate) lease_ms: i64,
}

/// How a worker's work ended, in its own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) lease: String,
    pub(crate) end: End,
    /// Why it was refused, failed, or has no ratio.
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) here: Option<Span>,
    /// Refused for nothing but the worker's budget: how long it would have to be.
    #[serde(default)]
    pub(crate) needs_budget_s: Option<u32>,
    pub(crate) host: Host,
    pub(crate) plimsoll: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// It was measured.
    Done,
    /// It is not measured for strangers.
    Refused,
    /// It could not be measured.
    Failed,
    /// Given back: somebody else may take it.
    Waiting,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Refused => "refused",
            End::Failed => "failed",
            End::Waiting => "waiting",
        }
    }
}

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl From<RatioSpan> for Span {
    fn from(span: RatioSpan) -> Span {
        Span { ratio: span.ratio, low: span.low, high: span.high }
    }
}

/// Where a worker measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) fingerprint: String,
    pub(crate) cpu_model: String,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) os: String,
    pub(crate) arch: String,
}

impl Host {
    fn shortened(&self) -> Host {
        Host {
            fingerprint: short(&self.fingerprint),
            cpu_model: short(&self.cpu_model),
            kernel: short(&self.kernel),
            os: short(&self.os),
            arch: short(&self.arch),
            ..self.clone()
        }
    }
}

/// Asks for a bundle to be measured again, within a transaction: draws one of the claims that have an interval.
pub(crate) fn ask(sql: &mut Sql, bundle: &str, by: By, now_ms: i64) -> Result<String, Error> {
    let known = "SELECT id FROM bundle WHERE id = ?1 AND is_hidden = 0";
    if sql.rows(known, &[bundle.into()])?.is_empty() {
        return Err(Error::NotFound("bundle"));
    }
    let open = "SELECT id FROM remeasurement WHERE bundle_id = ?1 AND state IN ('waiting', 'leased')";
    if !sql.rows(open, &[bundle.into()])?.is_empty() {
        return Err(Error::Wrong("this bundle waits to be measured again already".to_owned()));
    }
    let rows = sql.rows("SELECT claim FROM claim WHERE bundle_id = ?1 ORDER BY ordinal", &[bundle.into()])?;
    let mut claims = Vec::new();
    for row in &rows {
        let claim: ListedClaim = serde_json::from_str(&row.text(0))?;
        if span(&claim).is_some() {
            claims.push(claim);
        }
    }
    let drawn = (random::share()? * claims.len() as f64) as usize;
    let claim = claims.get(drawn);
    let (state, outcome) = match claim {
        Some(_) => ("waiting", json!({})),
        None => ("refused", json!({"reason": "it claims nothing: no comparison in it has an interval"})),
    };
    let id = random::word::<16>()?;
    let text = claim.map_or_else(|| Ok("{}".to_owned()), serde_json::to_string)?;
    let claim_id = claim.map(|claim| &*claim.id).unwrap_or_default();
    let ended_ms = claim.is_none().then_some(now_ms);
    let (asked_by, outcome) = (by.word(), outcome.to_string());
    sql.execute(
        "INSERT INTO remeasurement (id, bundle_id, claim_id, claim, asked_ms, asked_by, state, attempts, lease, worker,
         lease_until_ms, ended_ms, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, '', '', 0, ?8, ?9)",
        &cells![id.clone(), bundle, claim_id, text, now_ms, asked_by, state, ended_ms, outcome],
    )?;
    list(sql, bundle)?;
    Ok(id)
}

/// Gives out the oldest work that nobody has and that is not known to take longer than `budget_s`, to the worker of that token.
pub(crate) fn lease(sql: &mut Sql, worker: &str, budget_s: u32, now_ms: i64) -> Result<Option<Job>, Error> {
    sql.transaction(|sql| {
        give_up(sql, now_ms)?;
        // Leases that are over: their workers are gone.
        let rows = sql.rows(
            "SELECT remeasurement.id, remeasurement.bundle_id, claim_id FROM remeasurement
             JOIN bundle ON bundle.id = remeasurement.bundle_id
             WHERE bundle.is_hidden = 0 AND (state = 'waiting' OR (state = 'leased' AND lease_until_ms <= ?1))
             AND needs_s <= ?2 ORDER BY asked_ms, remeasurement.id LIMIT 1",
            &[now_ms.into(), i64::from(budget_s).into()],
        )?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (id, lease) = (row.text(0), random::word::<16>()?);
        let values = cells![id.clone(), lease.clone(), worker, now_ms + LEASE_MS, now_ms];
        let taken = sql.execute(
            "UPDATE remeasurement SET state = 'leased', lease = ?2, worker = ?3, lease_until_ms = ?4,
             attempts = attempts + 1
             WHERE id = ?1 AND (state = 'waiting' OR (state = 'leased' AND lease_until_ms <= ?5))",
            &values,
        )?;
        changed(sql)?;
        let job = Job { id, lease, bundle: row.text(1), claim: row.text(2), lease_ms: LEASE_MS };
        Ok((taken == 1).then_some(job))
    })
}

/// Ends what has lost its worker too often.
fn give_up(sql: &mut Sql, now_ms: i64) -> Result<(), Error> {
    let lost = sql.rows(
        "SELECT id, bundle_id FROM remeasurement WHERE state = 'leased' AND lease_until_ms <= ?1 AND attempts >= ?2",
        &[now_ms.into(), ATTEMPTS_MAX.into()],
    )?;
    for row in &lost {
        let reason = format!("{ATTEMPTS_MAX} workers began with it, and none of them came to an end");
        let values = [row.text(0).into(), now_ms.into(), json!({"reason": reason}).to_string().into()];
        let sentence = "UPDATE remeasurement SET state = 'failed', ended_ms = ?2, outcome = ?3 WHERE id = ?1";
        sql.execute(sentence, &values)?;
        list(sql, &row.text(1))?;
    }
    Ok(())
}

/// The worker is still at it. Also a lease that is over is renewed, as long as nobody else has the work.
pub(crate) fn renew(sql: &mut Sql, id: &str, lease: &str, now_ms: i64) -> Result<(), Error> {
    let sentence =
        "UPDATE remeasurement SET lease_until_ms = ?3 WHERE id = ?1 AND lease = ?2 AND state = 'leased'";
    match sql.execute(sentence, &[id.into(), lease.into(), (now_ms + LEASE_MS).into()])? {
        0 => Err(Error::LeaseOver),
        _ => Ok(()),
    }
}

/// Takes what a worker has to say of its work. The same said again changes nothing.
pub(crate) fn end(sql: &mut Sql, id: &str, report: &Report, now_ms: i64) -> Result<(), Error> {
    sql.transaction(|sql| {
        let rows = sql.rows(
            "SELECT bundle_id, claim, state, lease, needs_s FROM remeasurement WHERE id = ?1",
            &[id.into()],
        )?;
        let row = rows.first().ok_or(Error::NotFound("work"))?;
        if row.text(3) != report.lease {
            return Err(Error::LeaseOver);
        }
        if row.text(2) != "leased" {
            return Ok(());
        }
        if report.end == End::Waiting {
            let back = "UPDATE remeasurement SET state = 'waiting', attempts = attempts - 1 WHERE id = ?1";
            sql.execute(back, &[id.into()])?;
            return changed(sql);
        }
        let claim: ListedClaim = serde_json::from_str(&row.text(1))?;
        let outcome = outcome(&claim, report)?;
        // Each time for a longer one: a worker that had the time and refuses all the same has refused.
        let needs_s = report.needs_budget_s.map(i64::from).filter(|needs_s| *needs_s > row.int(4));
        if let Some(needs_s) = needs_s.filter(|_| report.end == End::Refused) {
            let longer = "UPDATE remeasurement SET state = 'waiting', attempts = attempts - 1, needs_s = ?2, outcome = ?3
                          WHERE id = ?1";
            let reason =
                format!("no worker had the {needs_s} s that it takes at least: {}", short(&report.reason));
            let outcome = json!({"reason": reason}).to_string();
            sql.execute(longer, &[id.into(), needs_s.into(), outcome.into()])?;
            return list(sql, &row.text(0));
        }
        let values = cells![id, report.end.word(), now_ms, outcome.to_string()];
        let sentence = "UPDATE remeasurement SET state = ?2, ended_ms = ?3, outcome = ?4 WHERE id = ?1";
        sql.execute(sentence, &values)?;
        list(sql, &row.text(0))
    })
}

/// What a measurement means for the claim: the hub's own words.
fn outcome(claim: &ListedClaim, report: &Report) -> Result<Value, Error> {
    let here = report.here.filter(|_| report.end == End::Done);
    let sound = |it: &Span| it.low > 0.0 && it.low <= it.ratio && it.ratio <= it.high && it.high.is_finite();
    if here.as_ref().is_some_and(|here| !sound(here)) {
        return Err(Error::Wrong("a ratio is positive, and lies within its interval".to_owned()));
    }
    let published = span(claim);
    let of_here = here.map(|it| RatioSpan { ratio: it.ratio, low: it.low, high: it.high });
    let held = published.zip(of_here).and_then(|(there, here)| replicated(there, here, claim.margin));
    Ok(json!({
        "reason": short(&report.reason), "published": published.map(Span::from), "here": here,
        "between": held.map(|(between, _)| Span::from(between)),
        "verdict": held.map_or(Replication::Undecided, |(_, verdict)| verdict).word(),
        "host": report.host.shortened(), "is_same_host": report.host.fingerprint == claim.host,
        "plimsoll": short(&report.plimsoll),
    }))
}

/// What is shown of each; its bundle is there for whether it is hidden.
const SHOWN: &str =
    "SELECT claim_id, claim, asked_ms, asked_by, state, ended_ms, outcome, remeasurement.bundle_id
     FROM remeasurement JOIN bundle ON bundle.id = remeasurement.bundle_id WHERE bundle.is_hidden = 0";
/// Of one claim, in however many bundles.
const SHOWN_MAX: i64 = 50;

/// All that was asked for of a bundle, the newest first.
pub(crate) fn of_bundle(sql: &mut Sql, bundle: &str) -> Result<Vec<Value>, Error> {
    let sentence =
        format!("{SHOWN} AND remeasurement.bundle_id = ?1 ORDER BY asked_ms DESC, remeasurement.id");
    sql.rows(&sentence, &[bundle.into()])?.iter().map(shown).collect()
}

/// What was asked for of a claim, whichever bundle it was drawn from, the newest first.
pub(crate) fn of_claim(sql: &mut Sql, claim: &str) -> Result<Vec<Value>, Error> {
    let sentence = format!("{SHOWN} AND claim_id = ?1 ORDER BY asked_ms DESC, remeasurement.id LIMIT ?2");
    sql.rows(&sentence, &[claim.into(), SHOWN_MAX.into()])?.iter().map(shown).collect()
}

fn shown(row: &Row) -> Result<Value, Error> {
    let claim: Value = serde_json::from_str(&row.text(1))?;
    let outcome: Value = serde_json::from_str(&row.text(6))?;
    let state = row.text(4);
    let says = match (&*state, outcome["verdict"].as_str()) {
        ("done", Some("reproduced")) => "agrees",
        ("done", Some("not reproduced")) => "disagrees",
        ("done", _) => "undecided",
        ("refused" | "failed", _) => "could not be",
        _ => "waiting",
    };
    Ok(json!({
        "claim": row.text(0), "text": claim["text"].as_str().unwrap_or_default(), "metric": claim["metric"],
        "asked_at": report::history::time(row.int(2)), "asked_by": row.text(3), "state": state, "says": says,
        "ended_at": row.maybe_int(5).map(report::history::time), "reason": outcome["reason"].as_str().unwrap_or_default(),
        "published": outcome["published"], "here": outcome["here"], "between": outcome["between"],
        "host": outcome["host"], "is_same_host": outcome["is_same_host"].as_bool().unwrap_or_default(),
        "plimsoll": outcome["plimsoll"], "bundle": row.text(7),
    }))
}

/// Lists show the newest that has ended, or that there is one to come.
fn list(sql: &mut Sql, bundle: &str) -> Result<(), Error> {
    let all = of_bundle(sql, bundle)?;
    let Some(newest) = all.iter().find(|one| one["ended_at"].is_string()).or(all.first()) else {
        return Ok(());
    };
    let rows = sql.rows("SELECT head FROM bundle WHERE id = ?1", &[bundle.into()])?;
    let Some(row) = rows.first() else { return Ok(()) };
    let mut head: Value = serde_json::from_str(&row.text(0))?;
    head["remeasured"] = json!({
        "says": newest["says"], "reason": newest["reason"], "claim": newest["claim"], "text": newest["text"],
        "between": newest["between"], "ended_at": newest["ended_at"],
        "host": newest["host"]["cpu_model"].as_str().unwrap_or_default(),
    });
    sql.execute("UPDATE bundle SET head = ?2 WHERE id = ?1", &[bundle.into(), head.to_string().into()])?;
    changed(sql)
}
