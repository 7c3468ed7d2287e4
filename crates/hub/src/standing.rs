//! What became of a claim: who measured it, held against the first, and how many others reproduced it.

use std::collections::{BTreeMap, BTreeSet};

use report::bundle::ListedClaim;
use stats::{RatioSpan, Replication, Verdict, replicated};

use crate::accept::short;
use crate::db::{Sql, cells};
use crate::error::Error;

/// A bundle's part in a claim, and what it says of the first one.
pub(crate) struct Measured {
    pub(crate) bundle: String,
    pub(crate) claim: ListedClaim,
    /// Of the first one: none. Where one of the two has no verdict nothing is decided.
    pub(crate) between: Option<(RatioSpan, Replication)>,
    /// On the machine of the first one.
    pub(crate) is_same_host: bool,
    /// From the submitter of the first one.
    pub(crate) is_same_submitter: bool,
    by: Submitter,
}

/// Whom a hub knows somebody as: the token that submitted, and the key that signed, where one did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Submitter {
    token: String,
    signer: String,
}

impl Submitter {
    fn is_same(&self, other: &Submitter) -> bool {
        self.token == other.token || (!self.signer.is_empty() && self.signer == other.signer)
    }
}

/// More than there are of anything.
pub(crate) const ALL: i64 = 1 << 40;

/// Whether a comparison says faster, slower or equivalent.
pub(crate) fn has_verdict(claim: &ListedClaim) -> bool {
    claim.verdict != Verdict::Undecided.word()
}

/// Measurements of a claim that are shown: those with a verdict before the others, the first received first, held against
/// the first of all; `limit` of them from `offset` on.
pub(crate) fn measured(sql: &mut Sql, claim: &str, offset: i64, limit: i64) -> Result<Vec<Measured>, Error> {
    let rows = sql.rows(
        "SELECT bundle.id, claim.claim, bundle.token, bundle.signer
         FROM claim JOIN bundle ON bundle.id = claim.bundle_id
         WHERE claim.id = ?1 AND bundle.is_hidden = 0
         ORDER BY claim.has_verdict DESC, bundle.received_ms, bundle.id, claim.ordinal LIMIT ?2 OFFSET ?3",
        &[claim.into(), limit.into(), offset.into()],
    )?;
    let mut first = match offset {
        0 => None,
        _ => measured(sql, claim, 0, 1)?.pop().map(|one| (one.claim, one.by)),
    };
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let claim: ListedClaim = serde_json::from_str(&row.text(1))?;
        let by = Submitter { token: row.text(2), signer: row.text(3) };
        let between = first.as_ref().and_then(|(first, _)| held_against(first, &claim));
        let is_same_host = first.as_ref().is_some_and(|(first, _)| first.host == claim.host);
        let is_same_submitter = first.as_ref().is_some_and(|(_, first)| first.is_same(&by));
        first.get_or_insert_with(|| (claim.clone(), by.clone()));
        all.push(Measured { bundle: row.text(0), claim, between, is_same_host, is_same_submitter, by });
    }
    Ok(all)
}

fn held_against(first: &ListedClaim, here: &ListedClaim) -> Option<(RatioSpan, Replication)> {
    let (between, verdict) = replicated(span(first)?, span(here)?, first.margin)?;
    let is_said = has_verdict(first) && has_verdict(here);
    Some((between, if is_said { verdict } else { Replication::Undecided }))
}

pub(crate) fn span(claim: &ListedClaim) -> Option<RatioSpan> {
    Some(RatioSpan { ratio: claim.ratio?, low: claim.low?, high: claim.high? })
}

/// Counts each claim anew.
pub(crate) fn count_all(sql: &mut Sql) -> Result<(), Error> {
    let claims = sql.rows("SELECT DISTINCT id FROM claim", &[])?;
    claims.iter().try_for_each(|row| count(sql, &row.text(0)))
}

/// Counts how many others reproduced a claim: submitters other than that of the first measurement, each on a machine of its
/// own that is not the first one's, by their newest measurements that decide something.
pub(crate) fn count(sql: &mut Sql, claim: &str) -> Result<(), Error> {
    let all = measured(sql, claim, 0, ALL)?;
    sql.execute("DELETE FROM standing WHERE claim_id = ?1", &[claim.into()])?;
    let Some(first) = all.first() else { return Ok(()) };
    let submitters = submitters(&all);
    let mut words: BTreeMap<(usize, &str), Replication> = BTreeMap::new();
    for (one, by) in all.iter().zip(&submitters) {
        if *by == submitters[0] || one.claim.host == first.claim.host {
            continue;
        }
        let kept = words.entry((*by, &one.claim.host)).or_insert(Replication::Undecided);
        if let Some((_, verdict)) = one.between.filter(|(_, verdict)| *verdict != Replication::Undecided) {
            *kept = verdict;
        }
    }
    let of = |verdict| {
        independent(words.iter().filter(|(_, found)| **found == verdict).map(|(pair, _)| *pair)) as i64
    };
    let hosts: BTreeSet<&str> = all.iter().map(|one| &*one.claim.host).collect();
    let values = cells![
        claim,
        short(&first.claim.text),
        first.bundle.clone(),
        all.len() as i64,
        hosts.len() as i64,
        of(Replication::Reproduced),
        of(Replication::NotReproduced),
        of(Replication::Undecided),
        submitters.iter().collect::<BTreeSet<_>>().len() as i64,
    ];
    sql.insert(
        "standing (claim_id, text, bundle_id, bundles, hosts, reproduced, contradicted, undecided, submitters)",
        &values,
    )
}

/// A number for the submitter of each measurement: the same token is the same one, and tokens whose bundles one key signs
/// are.
fn submitters(all: &[Measured]) -> Vec<usize> {
    fn root(of: &[usize], mut at: usize) -> usize {
        while of[at] != at {
            at = of[at];
        }
        at
    }
    let mut of: Vec<usize> = (0..all.len()).collect();
    let (mut tokens, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for (at, one) in all.iter().enumerate() {
        let by_token = *tokens.entry(&one.by.token).or_insert(at);
        let by_key = if one.by.signer.is_empty() { at } else { *keys.entry(&one.by.signer).or_insert(at) };
        let (token, key) = (root(&of, by_token), root(&of, by_key));
        of[token.max(key)] = token.min(key);
        of[at] = token.min(key);
    }
    (0..all.len()).map(|at| root(&of, at)).collect()
}

/// How many submitters have a machine of their own, of those that measured: whoever has the fewest chooses first.
fn independent<'a>(pairs: impl Iterator<Item = (usize, &'a str)>) -> usize {
    let mut machines: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    pairs.for_each(|(submitter, machine)| machines.entry(submitter).or_default().push(machine));
    let mut each: Vec<Vec<&str>> = machines.into_values().collect();
    each.sort_by_key(Vec::len);
    let mut taken = BTreeSet::new();
    each.iter().filter(|machines| machines.iter().any(|machine| taken.insert(*machine))).count()
}
