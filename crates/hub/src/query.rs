//! What the hub knows, as values: the JSON gives them as they are, pages are templates over them.

use std::collections::BTreeMap;

use report::bundle::{ListedClaim, ListedHost, Listing};
use report::history::{History, PointOfSeries};
use serde_json::{Value, json};
use stats::{RatioSpan, replicated};

use crate::accept::measured;
use crate::db::{Cell, Row, Sql};
use crate::error::Error;
use crate::remeasure;

/// Rows of a list.
const PAGE: i64 = 50;
/// Bundles on the first page.
const NEWEST: i64 = 15;
/// Bundles that are compared at once.
pub(crate) const COMPARED_MAX: usize = 12;
/// Points of histories that are read at once, the newest.
const POINTS_MAX: i64 = 20_000;
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
           "reproduced": row.int(5), "contradicted": row.int(6), "undecided": row.int(7)})
}

const STANDING: &str =
    "SELECT claim_id, text, bundle_id, bundles, hosts, reproduced, contradicted, undecided FROM standing";

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
    let mut values: Vec<Cell> = vec![(PAGE + 1).into(), ((page - 1) * PAGE).into()];
    let mut condition = String::new();
    for word in words.split_whitespace().take(WORDS_MAX) {
        let escaped: String = word
            .to_lowercase()
            .chars()
            .flat_map(|c| "\\%_".contains(c).then_some('\\').into_iter().chain([c]))
            .collect();
        values.push(format!("%{escaped}%").into());
        condition.push_str(&format!(" AND words LIKE ?{} ESCAPE '\\'", values.len()));
    }
    let sentence = format!(
        "SELECT head FROM bundle WHERE is_hidden = 0{condition} ORDER BY received_ms DESC, id LIMIT ?1 OFFSET ?2"
    );
    let mut rows = sql.rows(&sentence, &values)?;
    let is_more = rows.len() as i64 > PAGE;
    rows.truncate(PAGE as usize);
    Ok(json!({"words": words, "page": page, "bundles": heads(&rows)?, "next": is_more.then_some(page + 1)}))
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
    let mut claims = Vec::new();
    for claim in &listing.claims {
        let found = sql.rows(&format!("{STANDING} WHERE claim_id = ?1"), &[claim.id.clone().into()])?;
        let mut value = serde_json::to_value(claim)?;
        value["standing"] = found.first().map(standing).unwrap_or_default();
        claims.push(value);
    }
    let others = sql.rows(
        "SELECT head FROM bundle WHERE shape = ?1 AND id <> ?2 AND is_hidden = 0 ORDER BY received_ms LIMIT ?3",
        &[listing.shape.clone().into(), id.into(), PAGE.into()],
    )?;
    let mut value = serde_json::to_value(&listing)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("points");
    }
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
pub(crate) fn claim(sql: &mut Sql, id: &str) -> Result<Value, Error> {
    let found = sql.rows(&format!("{STANDING} WHERE claim_id = ?1"), &[id.into()])?;
    let counted = found.first().map(standing).ok_or(Error::NotFound("claim"))?;
    let mut lines = Vec::new();
    for one in measured(sql, id)? {
        let head = sql.rows("SELECT head FROM bundle WHERE id = ?1", &[one.bundle.clone().into()])?;
        let head = heads(&head)?.pop().unwrap_or_default();
        let between =
            one.between.map(|(span, _)| json!({"ratio": span.ratio, "low": span.low, "high": span.high}));
        let standing = match one.between {
            _ if lines.is_empty() => "first",
            Some((_, verdict)) => verdict.word(),
            None => "undecided",
        };
        lines.push(json!({"bundle": head, "claim": one.claim, "between": between, "standing": standing,
                          "is_same_host": one.is_same_host}));
    }
    let remeasured = remeasure::of_claim(sql, id)?;
    Ok(json!({"claim": id, "standing": counted, "measured": lines, "remeasured": remeasured}))
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
    Ok(json!({
        "bundles": all.iter().map(|(head, _)| head).collect::<Vec<_>>(),
        "claims": common_claims(&all), "cells": cells_by_host(&all),
    }))
}

fn common_claims(all: &[(Value, Listing)]) -> Vec<Value> {
    let mut rows: Vec<(&ListedClaim, Vec<Option<&ListedClaim>>)> = Vec::new();
    for (at, (_, listing)) in all.iter().enumerate() {
        for claim in &listing.claims {
            match rows.iter_mut().find(|(known, _)| known.id == claim.id) {
                Some((_, columns)) => columns[at] = Some(claim),
                None => {
                    let mut columns = vec![None; all.len()];
                    columns[at] = Some(claim);
                    rows.push((claim, columns));
                }
            }
        }
    }
    let span =
        |claim: &ListedClaim| Some(RatioSpan { ratio: claim.ratio?, low: claim.low?, high: claim.high? });
    let each = rows.iter().map(|(claim, columns)| {
        let first = columns.iter().flatten().next().copied().unwrap_or(claim);
        let columns = columns.iter().map(|column| {
            let column = (*column)?;
            let is_first = std::ptr::eq(column, first);
            let between = span(first)
                .zip(span(column))
                .filter(|_| !is_first)
                .and_then(|(first, here)| replicated(first, here, claim.margin));
            Some(json!({"claim": column, "standing": between.map(|(_, verdict)| verdict.word()),
                        "between": between.map(|(span, _)| json!({"ratio": span.ratio, "low": span.low,
                                                                  "high": span.high}))}))
        });
        json!({"id": claim.id, "text": claim.text, "columns": columns.collect::<Vec<_>>()})
    });
    each.collect()
}

/// Throughputs by machine; a ratio is to the first server of the same cell on the same machine.
fn cells_by_host(all: &[(Value, Listing)]) -> Vec<Value> {
    let mut groups: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    let mut firsts: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (at, (_, listing)) in all.iter().enumerate() {
        for cell in &listing.cells {
            let group = (cell.host.clone(), format!("{}, {} sessions", cell.workload, cell.sessions));
            let median = cell.tps.map(|tps| tps.median);
            let first = match (firsts.get(&group), median) {
                (Some(first), _) => Some(*first),
                (None, Some(median)) => {
                    firsts.insert(group.clone(), median);
                    Some(median)
                }
                (None, None) => None,
            };
            let ratio = median.zip(first).map(|(median, first)| median / first);
            groups.entry(group).or_default().push(json!({
                "bundle": at + 1, "server": cell.server, "durability": cell.durability, "tps": cell.tps,
                "p95_ms": cell.p95_ms, "ratio": ratio,
                "settings": cell.key.get("settings").cloned().unwrap_or_default(),
            }));
        }
    }
    let name = |fingerprint: &str| {
        let hosts = all.iter().flat_map(|(_, listing)| &listing.hosts);
        hosts
            .into_iter()
            .find(|host| host.fingerprint == fingerprint)
            .map_or_else(String::new, |host| host.name.clone())
    };
    let each = groups.into_iter().map(
        |((host, place), rows)| json!({"host": host, "name": name(&host), "place": place, "rows": rows}),
    );
    each.collect()
}

/// A machine: its facts, its calibrations and what was measured on it.
pub(crate) fn host(sql: &mut Sql, fingerprint: &str) -> Result<Value, Error> {
    let rows = sql.rows(
        "SELECT bundle.head, host.host FROM host JOIN bundle ON bundle.id = host.bundle_id
         WHERE host.fingerprint = ?1 AND bundle.is_hidden = 0 ORDER BY bundle.received_ms DESC, bundle.id LIMIT ?2",
        &[fingerprint.into(), (PAGE * 4).into()],
    )?;
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
    Ok(json!({"host": host, "bundles": heads(&rows)?}))
}

/// A server: every study of it with its figures, settings and durability, and audits.
pub(crate) fn server(sql: &mut Sql, name: &str) -> Result<Value, Error> {
    let rows = sql.rows(
        "SELECT bundle.head, bundle.listing FROM server JOIN bundle ON bundle.id = server.bundle_id
         WHERE server.name = ?1 AND bundle.is_hidden = 0 ORDER BY bundle.received_ms DESC, bundle.id LIMIT ?2",
        &[name.into(), PAGE.into()],
    )?;
    if rows.is_empty() {
        return Err(Error::NotFound("server"));
    }
    let (mut studies, mut audits) = (Vec::new(), Vec::new());
    for row in &rows {
        let listing: Listing = serde_json::from_str(&row.text(1))?;
        let cells: Vec<_> = listing.cells.iter().filter(|cell| cell.server == name).collect();
        studies.push(json!({"bundle": of_json(&row.text(0))?, "cells": cells}));
        for audit in listing.audits {
            if audit["server"] == name && !audits.contains(&audit) {
                audits.push(audit);
            }
        }
    }
    Ok(json!({"server": name, "studies": studies, "audits": audits}))
}

/// All servers and machines, with how many bundles have them.
pub(crate) fn places(sql: &mut Sql) -> Result<Value, Error> {
    let servers = sql.rows(
        "SELECT server.name, count(*) FROM server JOIN bundle ON bundle.id = server.bundle_id
         WHERE bundle.is_hidden = 0 GROUP BY server.name ORDER BY server.name LIMIT 2000",
        &[],
    )?;
    let hosts = sql.rows(
        "SELECT host.fingerprint, count(*), max(host.host) FROM host JOIN bundle ON bundle.id = host.bundle_id
         WHERE bundle.is_hidden = 0 GROUP BY host.fingerprint ORDER BY count(*) DESC, host.fingerprint LIMIT 2000",
        &[],
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
pub(crate) fn history(sql: &mut Sql, flavor: &str, metric: &str) -> Result<History, Error> {
    let rows = sql.rows(
        "SELECT point.point FROM point JOIN bundle ON bundle.id = point.bundle_id
         WHERE point.flavor = ?1 AND point.metric = ?2 AND bundle.is_hidden = 0
         ORDER BY bundle.measured_ms DESC, bundle.id, point.ordinal LIMIT ?3",
        &[flavor.into(), metric.into(), POINTS_MAX.into()],
    )?;
    let mut points: Vec<PointOfSeries> = Vec::new();
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.iter().rev() {
        let mut point: PointOfSeries = serde_json::from_str(&row.text(0))?;
        let next = files.len();
        point.record = (*files.entry(point.point.file.clone()).or_insert(next), 0);
        points.push(point);
    }
    let mut history = History::of_points(points, &[]);
    history.series.retain(|series| series.points.len() > 1);
    Ok(history)
}

/// The flavours of which there are histories.
pub(crate) fn flavors(sql: &mut Sql) -> Result<Vec<String>, Error> {
    Ok(sql
        .rows("SELECT DISTINCT flavor FROM point ORDER BY flavor", &[])?
        .iter()
        .map(|row| row.text(0))
        .collect())
}
