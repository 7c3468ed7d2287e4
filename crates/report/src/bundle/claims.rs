//! What a bundle claims, held against the same study measured here.

use serde_json::{Value, json};
use stats::{RatioSpan, Replication, replicated};
use store::Key;

use crate::history::{hash, shape};
use crate::model::{Report, StudyReport, VerdictView};
use crate::text::{ratio, ratio_span, value_text};

/// A published comparison and what became of it here.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// As a listing has it: the same for the same question about the same study, on whatever machine.
    pub id: String,
    /// `tps`, `p95` ...
    pub metric: String,
    /// The cell that is compared with, without its machine.
    pub base: Key,
    /// The cell that the comparison speaks about.
    pub other: Key,
    /// What counts as the same: 0.05 is 5 % either way.
    pub margin: f64,
    pub published: RatioSpan,
    /// `None` where it was not measured here, or has no interval yet.
    pub here: Option<RatioSpan>,
    /// The ratio here divided by the published one.
    pub between: Option<RatioSpan>,
    pub verdict: Replication,
}

impl Claim {
    /// Its part of the JSON of `rerun`.
    pub fn json(&self) -> Value {
        let span = |span: &RatioSpan| json!({"ratio": span.ratio, "low": span.low, "high": span.high});
        json!({
            "id": self.id, "metric": self.metric, "base": self.base, "other": self.other, "published": span(&self.published),
            "here": self.here.as_ref().map(span), "between": self.between.as_ref().map(span),
            "margin": self.margin, "verdict": self.verdict.word(),
        })
    }

    /// `postgres@18.1 against mariadb@11.4.5`.
    pub fn compared(&self) -> String {
        let differing = self.other.iter().filter(|(axis, value)| self.base.get(*axis) != Some(value));
        let sides = differing.map(|(axis, value)| {
            format!(
                "{} against {}",
                value_text(value),
                self.base.get(axis).map_or_else(|| "none".to_owned(), value_text)
            )
        });
        sides.collect::<Vec<_>>().join(", ")
    }

    /// What both sides have in common: `sessions=8 workload=oltp_read_write`.
    pub fn place(&self) -> String {
        let common = self.other.iter().filter(|(axis, value)| self.base.get(*axis) == Some(value));
        let place = common.map(|(axis, value)| format!("{axis}={}", value_text(value)));
        place.collect::<Vec<_>>().join(" ")
    }

    /// `×1.02 (×0.98 to ×1.07)`.
    pub fn span_text(span: &RatioSpan) -> String {
        format!("{} ({})", ratio(span.ratio), ratio_span(&[span.low, span.high]))
    }
}

/// Every comparison of `published` that has an interval, with its verdict by what `here` has of it.
pub fn claims(published: &Report, here: &Report) -> Vec<Claim> {
    let of = |report: &Report| -> Vec<(usize, usize)> {
        let each = report.studies.iter().enumerate();
        each.flat_map(|(at, study)| (0..study.verdicts.len()).map(move |verdict| (at, verdict))).collect()
    };
    let mut claims = Vec::new();
    for (study, verdict) in of(published) {
        let study = &published.studies[study];
        let view = &study.verdicts[verdict];
        let Some(published) = span(view) else { continue };
        let again = of(here).into_iter().find_map(|(other, verdict)| {
            let other = &here.studies[other];
            let again = &other.verdicts[verdict];
            (name(study, view) == name(other, again)).then(|| span(again)).flatten()
        });
        let compared = again.and_then(|again| replicated(published, again, view.margin));
        claims.push(Claim {
            id: identity(&shape_of(study), study, view),
            metric: view.metric.clone(),
            base: key(study, view.base),
            other: key(study, view.other),
            margin: view.margin,
            published,
            here: again,
            between: compared.map(|(between, _)| between),
            verdict: compared.map_or(Replication::Undecided, |(_, verdict)| verdict),
        });
    }
    claims
}

fn span(view: &VerdictView) -> Option<RatioSpan> {
    let result = &view.result;
    Some(RatioSpan { ratio: result.ratio?, low: result.low?, high: result.high? })
}

fn shape_of(study: &StudyReport) -> String {
    study.records.first().map(|recorded| shape(&recorded.record.study.file_text)).unwrap_or_default()
}

/// What names a claim, wherever it is measured; `shape` is that of the study's text.
pub(super) fn identity(shape: &str, study: &StudyReport, view: &VerdictView) -> String {
    let (base, other) = (key(study, view.base), key(study, view.other));
    hash(&json!([shape, view.metric, view.axis, view.climb, base, other]).to_string())
}

/// The axes' values of a point; the machine is what differs.
pub(super) fn key(study: &StudyReport, point: usize) -> Key {
    let mut key = study.points[point].identity.clone();
    key.remove("host");
    key
}

/// What makes two comparisons the same question.
fn name<'a>(study: &StudyReport, view: &'a VerdictView) -> (&'a str, &'a str, Option<&'a [u32]>, Key, Key) {
    let (base, other) = (key(study, view.base), key(study, view.other));
    (&view.metric, &view.axis, view.climb.as_deref(), base, other)
}
