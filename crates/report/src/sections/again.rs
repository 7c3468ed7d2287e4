//! What was published, held against the same study measured again.

use super::{Cell, Section, Table, dash, heads};
use crate::bundle::Claim;
use crate::model::StudyReport;
use crate::text::{metric_name, percent};

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let tables: Vec<Table> =
        study.claims.chunk_by(|a, b| (&a.metric, a.margin) == (&b.metric, b.margin)).map(table).collect();
    (!tables.is_empty()).then(|| Section {
        id: "again",
        title: "Measured again",
        hint: "The published ratio beside the one measured here, and the second divided by the first with its interval: \
               reproduced where the whole interval lies within the margin around 1, not reproduced where it lies outside, \
               undecided where it lies on both sides or one of them has no interval yet. A published comparison without an \
               interval claims nothing."
            .to_owned(),
        tables,
        ..Section::default()
    })
}

/// Claims by one metric with one margin.
fn table(claims: &[Claim]) -> Table {
    let first = &claims[0];
    let heads = heads("Verdict | Compared | On | Published | Here | Here / published");
    let row = |claim: &Claim| {
        [
            claim.verdict.word().to_owned(),
            claim.compared(),
            claim.place(),
            Claim::span_text(&claim.published),
            dash(claim.here.as_ref().map(Claim::span_text)),
            dash(claim.between.as_ref().map(Claim::span_text)),
        ]
        .map(Cell::from)
        .to_vec()
    };
    Table {
        id: "claims",
        caption: format!("{}, margin {}", metric_name(&first.metric), percent(first.margin)),
        heads,
        words: 3,
        rows: claims.iter().map(row).collect(),
        notes: Vec::new(),
    }
}
