//! What the hub knows, as values: the JSON gives them as they are, pages are templates over them.

use std::collections::{BTreeMap, BTreeSet};

use report::bundle::{ListedCell, ListedClaim, ListedHost, Listing};
use report::history::{History, PointOfSeries};
use serde_json::{Value, json};
use stats::{RatioSpan, replicated};
use store::ChangeDecision;

use crate::db::{Cell, Row, Sql, places_of_values};
use crate::error::Error;
use crate::remeasure;
use crate::standing::{ALL, measured, span};

/// Rows of a list.
const PAGE: i64 = 50;
/// Studies on a server's page, which shows their cells, and audits.
const STUDIES: i64 = 20;
const AUDITS_MAX: i64 = 500;
/// Bundles on the first page.
const NEWEST: i64 = 15;
/// Bundles that are compared at once.
pub(crate) const COMPARED_MAX: usize = 12;
/// Series of histories on a page, and their points that are read at once, the newest.
const SERIES: i64 = 5;
const POINTS_MAX: i64 = 5_000;
/// Words of a search.
const WORDS_MAX: usize = 8;

fn of_json(text: &str) -> Result<Value, Error> {
    Ok(serde_json::from_str(text)?)
}

fn heads(rows: &[Row]) -> Result<Vec<Value>, Error> {
    rows.iter().map(|row| of_json(&row.text(0))).collect()
}

fn standing(row: &Row) -> Value {
    json!({"claim": row.text(0), "text": row.text(1), "bundle": row.text(2), "bundles": row.int(3), "hosts": row.int(4),
           "submitters": row.int(8), "reproduced": row.int(5), "contradicted": row.int(6), "undecided": row.int(7)})
}

const STANDING: &str = "SELECT claim_id, text, bundle_id, bundles, hosts, reproduced, contradicted, undecided, submitters FROM standing";

fn newest(sql: &mut Sql) -> Result<Vec<Value>, Error> {
    let sentence = "SELECT head FROM bundle WHERE is_hidden = 0 ORDER BY received_ms DESC, id LIMIT ?1";
    heads(&sql.rows(sentence, &[NEWEST.into()])?)
}

/// The newest, each with when something was last said of it: received, or measured again.
pub(crate) fn feed(sql: &mut Sql) -> Result<Value, Error> {
    let mut all = newest(sql)?;
    for head in &mut all {
        let again = &head["remeasured"]["ended_at"];
        head["updated"] = if again.is_string() { again.clone() } else { head["received_at"].clone() };
    }
    let last = all.iter().filter_map(|head| head["updated"].as_str()).max();
    Ok(json!({"updated": last.unwrap_or("1970-01-01T00:00:00Z"), "newest": all}))
}

/// A part of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// From 1.
    Page(i64),
    All,
}

impl Part {
    /// How many, and how many before them, where a page has `size`.
    fn bounds(self, size: i64) -> (i64, i64) {
        match self {
            Part::Page(page) => (size, (page.clamp(1, 1_000_000) - 1) * size),
            Part::All => (ALL, 0),
        }
    }

    /// Takes away what is more than a page; the number of the next one.
    fn cut<T>(self, found: &mut Vec<T>, size: i64) -> Option<i64> {
        let Part::Page(page) = self else { return None };
        let is_more = found.len() as i64 > size;
        found.truncate(size as usize);
        is_more.then_some(page.clamp(1, 1_000_000) + 1)
    }
}

/// That `column` has all words, which are values from here on; a letter that means something to LIKE is a letter.
fn has_words(column: &str, words: &str, values: &mut Vec<Cell>) -> String {
    let mut condition = String::new();
    for word in words.split_whitespace().take(WORDS_MAX) {
        let escaped: String = word
            .to_lowercase()
            .chars()
            .flat_map(|c| "\\%_".contains(c).then_some('\\').into_iter().chain([c]))
            .collect();
        values.push(format!("%{escaped}%").into());
        condition.push_str(&format!(" AND {column} LIKE ?{} ESCAPE '\\'", values.len()));
    }
    condition
}

/// Newest and best proven.
pub(crate) fn front(sql: &mut Sql) -> Result<Value, Error> {
    let newest = newest(sql)?;
    let proven = sql.rows(
        &format!("{STANDING} WHERE reproduced > 0 ORDER BY reproduced DESC, contradicted, claim_id LIMIT ?1"),
        &[NEWEST.into()],
    )?;
    let disputed = sql.rows(
        &format!("{STANDING} WHERE contradicted > 0 ORDER BY contradicted DESC, claim_id LIMIT ?1"),
        &[5_i64.into()],
    )?;
    let counted = sql.rows("SELECT count(*) FROM bundle WHERE is_hidden = 0", &[])?;
    Ok(json!({
        "bundles": counted[0].int(0), "newest": newest,
        "proven": proven.iter().map(standing).collect::<Vec<_>>(),
        "disputed": disputed.iter().map(standing).collect::<Vec<_>>(),
    }))
}

/// Bundles that have all words somewhere in their texts, newest first; without words all of them.
pub(crate) fn search(sql: &mut Sql, words: &str, page: i64) -> Result<Value, Error> {
    let page = page.clamp(1, 1_000_000);
    let (limit, offset) = Part::Page(page).bounds(PAGE);
    let mut values: Vec<Cell> = vec![(limit + 1).into(), offset.into()];
    let condition = has_words("words", words, &mut values);
    // The rows are long, and an index has all that is asked within.
    let sentence = format!(
        "SELECT head FROM bundle WHERE id IN (
           SELECT id FROM bundle WHERE is_hidden = 0{condition} ORDER BY received_ms DESC, id LIMIT ?1 OFFSET ?2
         ) ORDER BY received_ms DESC, id"
    );
    let mut rows = sql.rows(&sentence, &values)?;
    let next = Part::Page(page).cut(&mut rows, PAGE);
    Ok(json!({"words": words, "page": page, "bundles": heads(&rows)?, "next": next}))
}

fn listing_of(sql: &mut Sql, id: &str) -> Result<(Row, Listing), Error> {
    let rows = sql.rows(
        "SELECT head, listing, bytes, figures FROM bundle WHERE id = ?1 AND is_hidden = 0",
        &[id.into()],
    )?;
    let row = rows.into_iter().next().ok_or(Error::NotFound("bundle"))?;
    let listing = serde_json::from_str(&row.text(1))?;
    Ok((row, listing))
}

/// One bundle with its claims, and who reproduced them.
pub(crate) fn bundle(sql: &mut Sql, id: &str) -> Result<Value, Error> {
    let (row, listing) = listing_of(sql, id)?;
    let sentence = format!("{STANDING} WHERE claim_id IN (SELECT id FROM claim WHERE bundle_id = ?1)");
    let standings: BTreeMap<String, Value> =
        sql.rows(&sentence, &[id.into()])?.iter().map(|row| (row.text(0), standing(row))).collect();
    let mut claims = Vec::new();
    for claim in &listing.claims {
        let mut value = serde_json::to_value(claim)?;
        value["standing"] = standings.get(&claim.id).cloned().unwrap_or_default();
        claims.push(value);
    }
    let others = sql.rows(
        "SELECT head FROM bundle WHERE shape = ?1 AND id <> ?2 AND is_hidden = 0 ORDER BY received_ms LIMIT ?3",
        &[listing.shape.clone().into(), id.into(), PAGE.into()],
    )?;
    let mut value = serde_json::to_value(&listing)?;
    // Of histories and replays: their tables have them.
    for name in ["points", "decisions", "marks"] {
        value.as_object_mut().and_then(|fields| fields.remove(name));
    }
    let found = sql.rows("SELECT audit FROM audit WHERE bundle_id = ?1 ORDER BY id", &[id.into()])?;
    value["audits"] = json!(heads(&found)?);
    value["head"] = of_json(&row.text(0))?;
    value["id"] = json!(id);
    value["bytes"] = json!(row.int(2));
    value["figures"] = json!(row.int(3));
    value["claims"] = json!(claims);
    value["remeasured"] = json!(remeasure::of_bundle(sql, id)?);
    value["same_study"] = json!(heads(&others)?);
    Ok(value)
}

/// A claim: who measured it where, held against the first measurement.
pub(crate) fn claim(sql: &mut Sql, id: &str, part: Part) -> Result<Value, Error> {
    let found = sql.rows(&format!("{STANDING} WHERE claim_id = ?1"), &[id.into()])?;
    let counted = found.first().map(standing).ok_or(Error::NotFound("claim"))?;
    let (limit, offset) = part.bounds(PAGE);
    let mut all = measured(sql, id, offset, limit + 1)?;
    let next = part.cut(&mut all, PAGE);
    let known = heads_of(sql, all.iter().map(|one| &*one.bundle))?;
    let lines = all.into_iter().enumerate().map(|(at, one)| {
        let between = one.between.map(|(span, _)| of_span(&span));
        let standing = match one.between {
            _ if at == 0 && offset == 0 => "first",
            Some((_, verdict)) => verdict.word(),
            None => "undecided",
        };
        // A bundle may say it twice.
        let head = known.get(&one.bundle).cloned().unwrap_or_default();
        let hosts = head["hosts"].as_array().into_iter().flatten();
        let machine = hosts.clone().find(|host| host["fingerprint"] == *one.claim.host).cloned();
        json!({"bundle": head, "claim": one.claim, "between": between, "standing": standing,
               "is_same_host": one.is_same_host, "is_same_submitter": one.is_same_submitter, "machine": machine})
    });
    let lines: Vec<Value> = lines.collect();
    let remeasured = remeasure::of_claim(sql, id)?;
    Ok(json!({"claim": id, "standing": counted, "measured": lines, "next": next, "remeasured": remeasured}))
}

/// What lists show of these bundles.
fn heads_of<'a>(sql: &mut Sql, ids: impl Iterator<Item = &'a str>) -> Result<BTreeMap<String, Value>, Error> {
    let mut all = BTreeMap::new();
    let ids: Vec<Cell> = ids.map(Cell::from).collect();
    // A static page has them all, and a statement has so many values.
    for ids in ids.chunks(500) {
        let sentence =
            format!("SELECT id, head FROM bundle WHERE id IN ({})", places_of_values(1, ids.len()));
        for row in sql.rows(&sentence, ids)? {
            all.insert(row.text(0), of_json(&row.text(1))?);
        }
    }
    Ok(all)
}

/// Bundles side by side. Throughputs stand in ratio within a machine only; across machines there are ratios of ratios.
pub(crate) fn compare(sql: &mut Sql, ids: &[String]) -> Result<Value, Error> {
    if ids.len() > COMPARED_MAX {
        return Err(Error::Wrong(format!("at most {COMPARED_MAX} bundles are compared at once")));
    }
    let mut all = Vec::new();
    for id in ids {
        let (row, listing) = listing_of(sql, id)?;
        all.push((of_json(&row.text(0))?, listing));
    }
    let columns = columns(&all);
    let shown = columns.iter().map(|column| {
        json!({"bundle": column.bundle + 1, "host": column.host.fingerprint, "name": column.host.name,
               "cpu_model": column.host.cpu_model})
    });
    Ok(json!({
        "bundles": all.iter().map(|(head, _)| head).collect::<Vec<_>>(),
        "columns": shown.collect::<Vec<_>>(),
        "claims": common_claims(&all, &columns), "cells": cells_by_host(&all),
    }))
}

/// What one bundle measured on one machine.
struct Column<'a> {
    /// From 0.
    bundle: usize,
    host: &'a ListedHost,
}

fn columns(all: &[(Value, Listing)]) -> Vec<Column<'_>> {
    let bundles = all.iter().enumerate();
    let each = bundles
        .flat_map(|(bundle, (_, listing))| listing.hosts.iter().map(move |host| Column { bundle, host }));
    each.collect()
}

fn common_claims(all: &[(Value, Listing)], columns: &[Column<'_>]) -> Vec<Value> {
    let mut rows: Vec<(&ListedClaim, Vec<Option<&ListedClaim>>)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let (_, listing) = &all[column.bundle];
        // One machine's bundle has nothing else, also where a claim of several is nobody's.
        let is_here =
            |claim: &&ListedClaim| listing.hosts.len() == 1 || claim.host == column.host.fingerprint;
        for claim in listing.claims.iter().filter(is_here) {
            match rows.iter_mut().find(|(known, _)| known.id == claim.id) {
                Some((_, claims)) => claims[at] = Some(claim),
                None => {
                    let mut claims = vec![None; columns.len()];
                    claims[at] = Some(claim);
                    rows.push((claim, claims));
                }
            }
        }
    }
    let each = rows.iter().map(|(first, claims)| {
        let claims = claims.iter().map(|claim| {
            let claim = (*claim)?;
            let is_first = std::ptr::eq(claim, *first);
            let between = span(first)
                .zip(span(claim))
                .filter(|_| !is_first)
                .and_then(|(first, here)| replicated(first, here, claim.margin));
            Some(json!({"claim": claim, "standing": between.map(|(_, verdict)| verdict.word()),
                        "between": between.map(|(span, _)| of_span(&span))}))
        });
        json!({"id": first.id, "text": first.text, "columns": claims.collect::<Vec<_>>()})
    });
    each.collect()
}

fn of_span(span: &RatioSpan) -> Value {
    json!({"ratio": span.ratio, "low": span.low, "high": span.high})
}

/// Throughputs by machine and by what was measured there: a ratio is to the first server of the same cell, so that nothing
/// but servers (and the bundle) differ within it.
fn cells_by_host(all: &[(Value, Listing)]) -> Vec<Value> {
    let spanned =
        |cell: &ListedCell| cell.tps.map(|tps| RatioSpan { ratio: tps.median, low: tps.low, high: tps.high });
    let mut groups: BTreeMap<(&str, String), Vec<(usize, &ListedCell)>> = BTreeMap::new();
    for (at, (_, listing)) in all.iter().enumerate() {
        for cell in &listing.cells {
            groups.entry((&cell.host, place_of(cell))).or_default().push((at + 1, cell));
        }
    }
    let name = |fingerprint: &str| {
        let mut hosts = all.iter().flat_map(|(_, listing)| &listing.hosts);
        hosts.find(|host| host.fingerprint == fingerprint).map_or_else(String::new, |host| host.name.clone())
    };
    let each = groups.iter().map(|((host, place), cells)| {
        let first = cells.iter().find_map(|(_, cell)| spanned(cell));
        let rows = cells.iter().map(|(bundle, cell)| {
            let ratio = first.zip(spanned(cell)).and_then(|(first, here)| replicated(first, here, 0.0));
            json!({"bundle": bundle, "server": cell.server, "engine": cell.engine, "durability": cell.durability,
                   "tps": cell.tps,
                   "p95_ms": cell.p95_ms, "ratio": ratio.map(|(span, _)| of_span(&span))})
        });
        json!({"host": host, "name": name(host), "place": place, "rows": rows.collect::<Vec<_>>()})
    });
    each.collect()
}

/// Of a cell's key, what a table has of its own, and what goes with a server: another one has another engine.
const TOLD: [&str; 7] = ["host", "study", "workload", "sessions", "server", "engine", "durability"];

/// What a cell is but for its server and the names of studies, in words.
fn place_of(cell: &ListedCell) -> String {
    let others = cell.key.iter().filter(|(name, _)| !TOLD.contains(&name.as_str()));
    let mut words = vec![cell.workload.clone(), store::counted(cell.sessions, "session")];
    words.extend(others.map(|(name, value)| format!("{name} {}", report::value_text(value))));
    words.join(", ")
}

/// A machine: its facts, its calibrations and what was measured on it.
pub(crate) fn host(sql: &mut Sql, fingerprint: &str, part: Part) -> Result<Value, Error> {
    let (limit, offset) = part.bounds(PAGE);
    let mut rows = sql.rows(
        "SELECT bundle.head, host.host FROM bundle JOIN host ON host.bundle_id = bundle.id AND host.fingerprint = ?1
         WHERE bundle.id IN (
           SELECT bundle.id FROM host JOIN bundle ON bundle.id = host.bundle_id
           WHERE host.fingerprint = ?1 AND bundle.is_hidden = 0
           ORDER BY bundle.received_ms DESC, bundle.id LIMIT ?2 OFFSET ?3
         ) ORDER BY bundle.received_ms DESC, bundle.id",
        &[fingerprint.into(), (limit + 1).into(), offset.into()],
    )?;
    let next = part.cut(&mut rows, PAGE);
    let newest = rows.first().ok_or(Error::NotFound("host"))?;
    let mut host: ListedHost = serde_json::from_str(&newest.text(1))?;
    // The newest facts, and the newest calibrations that anybody has sealed.
    for row in &rows {
        let other: ListedHost = serde_json::from_str(&row.text(1))?;
        for made in other.calibrations {
            if !host.calibrations.iter().any(|known| known.server == made.server) {
                host.calibrations.push(made);
            }
        }
    }
    Ok(json!({"host": host, "bundles": heads(&rows)?, "next": next}))
}

/// What audits of a cell's durability found, in words: `power cut: kept what it promises`.
fn audited(cell: &ListedCell, audits: &[Value]) -> Vec<String> {
    let speaks = |audit: &Value| {
        !cell.build.is_empty()
            && audit["build"] == cell.build
            && audit["class"] == cell.durability
            && audit["settings"] == cell.deciding
    };
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = audits.iter().filter(|audit| speaks(audit));
    let mut all: Vec<String> =
        each.map(|audit| format!("{}: {}", word(&audit["way"]), word(&audit["verdict_text"]))).collect();
    all.sort();
    all.dedup();
    all
}

/// A server: the studies of it with their figures, settings and durability, and its audits.
pub(crate) fn server(sql: &mut Sql, name: &str, part: Part) -> Result<Value, Error> {
    let (limit, offset) = part.bounds(STUDIES);
    let mut rows = sql.rows(
        "SELECT head, listing FROM bundle WHERE id IN (
           SELECT bundle.id FROM server JOIN bundle ON bundle.id = server.bundle_id
           WHERE server.name = ?1 AND bundle.is_hidden = 0
           ORDER BY bundle.received_ms DESC, bundle.id LIMIT ?2 OFFSET ?3
         ) ORDER BY received_ms DESC, id",
        &[name.into(), (limit + 1).into(), offset.into()],
    )?;
    let next = part.cut(&mut rows, STUDIES);
    if rows.is_empty() {
        return Err(Error::NotFound("server"));
    }
    // What an audit found speaks for all studies with the settings that it looked at.
    let audits = audits(sql, name)?;
    let mut studies = Vec::new();
    for row in &rows {
        let listing: Listing = serde_json::from_str(&row.text(1))?;
        let cells = listing.cells.iter().filter(|cell| cell.server == name).map(|cell| {
            let mut value = json!(cell);
            value["audited"] = json!(audited(cell, &audits));
            value
        });
        // Of the newest: on a static page of thousands the others have them on their bundles' pages.
        let reported = listing.reported.get(name).filter(|_| studies.len() < STUDIES as usize);
        studies.push(json!({"bundle": of_json(&row.text(0))?, "cells": cells.collect::<Vec<_>>(),
                            "reported": reported.cloned().unwrap_or_default()}));
    }
    Ok(json!({"server": name, "studies": studies, "audits": audits, "next": next}))
}

/// Audits of a server, each once, with the newest bundle that has it.
fn audits(sql: &mut Sql, server: &str) -> Result<Vec<Value>, Error> {
    let mut rows = sql.rows(
        "SELECT audit.audit, audit.bundle_id, audit.id FROM audit JOIN bundle ON bundle.id = audit.bundle_id
         WHERE audit.server = ?1 AND bundle.is_hidden = 0 ORDER BY bundle.received_ms DESC, audit.id LIMIT ?2",
        &[server.into(), AUDITS_MAX.into()],
    )?;
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert(row.text(2)));
    let each = rows.iter().map(|row| {
        let mut audit = of_json(&row.text(0))?;
        audit["bundle"] = json!(row.text(1));
        Ok(audit)
    });
    each.collect()
}

/// Servers, and machines, on a page.
const PLACES: i64 = 2000;

/// Servers and machines, with how many bundles have them.
pub(crate) fn places(sql: &mut Sql, part: Part) -> Result<Value, Error> {
    let servers = sql.rows(
        "SELECT name, count(*) FROM server WHERE bundle_id NOT IN (SELECT id FROM bundle WHERE is_hidden = 1)
         GROUP BY name ORDER BY name LIMIT ?1",
        &[part.bounds(PLACES).0.into()],
    )?;
    let hosts = sql.rows(
        "SELECT host.fingerprint, counted.bundles, host.host FROM (
           SELECT fingerprint, count(*) AS bundles, max(bundle_id) AS one FROM host
           WHERE bundle_id NOT IN (SELECT id FROM bundle WHERE is_hidden = 1) GROUP BY fingerprint
         ) AS counted JOIN host ON host.fingerprint = counted.fingerprint AND host.bundle_id = counted.one
         ORDER BY counted.bundles DESC, host.fingerprint LIMIT ?1",
        &[part.bounds(PLACES).0.into()],
    )?;
    let servers = servers.iter().map(|row| json!({"server": row.text(0), "bundles": row.int(1)}));
    let mut machines = Vec::new();
    for row in &hosts {
        let host: ListedHost = serde_json::from_str(&row.text(2))?;
        machines.push(json!({"fingerprint": row.text(0), "bundles": row.int(1), "name": host.name,
                             "cpu_model": host.cpu_model, "cpus": host.cpus}));
    }
    Ok(json!({"servers": servers.collect::<Vec<_>>(), "hosts": machines}))
}

/// Series over versions, commits or time of one flavour, with the changes of their level.
pub(crate) struct Histories {
    /// The longest series first.
    pub(crate) history: History,
    pub(crate) words: String,
    /// The next page, if there is one.
    pub(crate) next: Option<i64>,
}

/// Those that every study has.
pub(crate) const METRICS: [&str; 3] = ["tps", "p95", "p99"];

/// Of series whose cell has all words.
pub(crate) fn history(
    sql: &mut Sql,
    flavor: &str,
    metric: &str,
    words: &str,
    part: Part,
) -> Result<Histories, Error> {
    let is_any = "SELECT id FROM series WHERE flavor = ?1 AND points > 0 LIMIT 1";
    // Without a name: that of a hub that has none yet.
    if !flavor.is_empty() && sql.rows(is_any, &[flavor.into()])?.is_empty() {
        let all = "SELECT DISTINCT flavor FROM series WHERE points > 0 ORDER BY flavor LIMIT 100";
        let there = sql.rows(all, &[])?.iter().map(|row| row.text(0)).collect();
        return Err(Error::NoHistory { flavor: flavor.to_owned(), there });
    }
    if !METRICS.contains(&metric) {
        let sentence = "SELECT id FROM series WHERE flavor = ?1 AND metric = ?2 AND points > 0 LIMIT 1";
        if sql.rows(sentence, &[flavor.into(), metric.into()])?.is_empty() {
            return Err(Error::NotFound("history"));
        }
    }
    let (limit, offset) = part.bounds(SERIES);
    let mut values: Vec<Cell> = vec![flavor.into(), metric.into(), (limit + 1).into(), offset.into()];
    let condition = has_words("label", words, &mut values);
    let sentence = format!(
        "SELECT id FROM series WHERE flavor = ?1 AND metric = ?2 AND points > 1{condition}
         ORDER BY points DESC, id LIMIT ?3 OFFSET ?4"
    );
    let mut chosen = sql.rows(&sentence, &values)?;
    let next = part.cut(&mut chosen, SERIES);
    let mut series = Vec::new();
    for chosen in chosen.chunks(SERIES as usize) {
        series.extend(history_of(sql, chosen)?.series);
    }
    series.retain(|series| series.points.len() > 1);
    series.sort_by_key(|series| std::cmp::Reverse(series.points.len()));
    Ok(Histories { history: History { series }, words: words.to_owned(), next })
}

/// Series by their identities.
fn history_of(sql: &mut Sql, series: &[Row]) -> Result<History, Error> {
    let mut values: Vec<Cell> = vec![POINTS_MAX.into()];
    values.extend(series.iter().map(|row| Cell::from(row.text(0))));
    let sentence = format!(
        // In this order: SQLite began with all bundles, for they come out in the order of time.
        "SELECT point.point FROM point CROSS JOIN bundle
         WHERE bundle.id = point.bundle_id AND point.series IN ({}) AND bundle.is_hidden = 0
         ORDER BY bundle.measured_ms DESC, bundle.id, point.ordinal LIMIT ?1",
        places_of_values(2, series.len())
    );
    let rows = sql.rows(&sentence, &values)?;
    let mut points: Vec<PointOfSeries> = Vec::new();
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.iter().rev() {
        let mut point: PointOfSeries = serde_json::from_str(&row.text(0))?;
        let next = files.len();
        point.record = (*files.entry(point.point.file.clone()).or_insert(next), 0);
        points.push(point);
    }
    Ok(History::of_points(points, &decisions(sql)?))
}

/// What was said of changes, wherever they were measured; the newest last. There are a few.
fn decisions(sql: &mut Sql) -> Result<Vec<ChangeDecision>, Error> {
    let rows = sql.rows(
        "SELECT decision.decision FROM decision JOIN bundle ON bundle.id = decision.bundle_id
         WHERE bundle.is_hidden = 0 ORDER BY decision.decided_ms, decision.bundle_id, decision.ordinal LIMIT 10000",
        &[],
    )?;
    rows.iter().map(|row| Ok(serde_json::from_str(&row.text(0))?)).collect()
}

/// The flavours of which there are histories, the one with most of them first.
pub(crate) fn flavors(sql: &mut Sql) -> Result<Vec<String>, Error> {
    let sentence =
        "SELECT flavor FROM series WHERE points > 1 GROUP BY flavor ORDER BY count(*) DESC, flavor LIMIT 100";
    Ok(sql.rows(sentence, &[])?.iter().map(|row| row.text(0)).collect())
}

#[cfg(test)]
mod tests;
