//! What calibrations of a machine say: which difference it tells in which time, how often a verdict was one where there is
//! nothing, and how much of a spread arises at which level. `plimsoll calibrate`, studies and bundles show the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stats::{BlockCosts, Components, Design, Question, Rules, Sample, Verdict, variance_components};
use store::{Calibrations, EqualLife, Host};

/// Lives of one A/A study, which is looked at from the fifth on as a study is that ends when it is decided.
const STUDY_LIVES: usize = 8;
/// Times for which the smallest difference is told.
pub const TIMES: [(&str, f64); 3] = [("5m", 300.0), ("10m", 600.0), ("30m", 1800.0)];

/// What is known of a machine and a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub server: String,
    pub lives: usize,
    /// Of the log-ratios of pairs of slices, between and within lives; `None` below five lives.
    pub ratios: Option<Components>,
    /// Standard deviation of the logarithms of one server's slices, within a life.
    pub second: Option<f64>,
    /// Smallest difference told with a chance of 80 % in each of [`TIMES`]; `None` where it is not known or not enough.
    pub resolvable: [Option<f64>; 3],
    /// A/A studies made so far, and those that called a difference.
    pub studies: usize,
    pub false_verdicts: usize,
    /// Median and 99th percentile of how late wake-ups were, in microseconds.
    pub wakeup_us: Option<(f64, f64)>,
    /// Milliseconds since 1970 of the last life.
    pub at_ms: i64,
    /// What a block of such a study costs, in seconds; `None` without lives.
    costs: Option<BlockCosts>,
}

fn rules(design: Design) -> Rules {
    Rules { design, ..Rules::default() }
}

/// Logarithms of the ratios of pairs of slices of each life.
fn log_ratios(lives: &[EqualLife]) -> Vec<Vec<f64>> {
    let of = |life: &EqualLife| {
        life.tps[0]
            .iter()
            .zip(&life.tps[1])
            .map(|(a, b)| (b / a).ln())
            .filter(|log| log.is_finite())
            .collect()
    };
    lives.iter().map(of).collect()
}

/// From what was measured to what it means.
pub fn summary(made: &Calibrations) -> Summary {
    // A spread between fewer lives than a verdict needs is a guess.
    let is_enough = made.lives.len() >= Rules::default().blocks_min;
    let ratios = variance_components(&log_ratios(&made.lives)).filter(|_| is_enough);
    let logs =
        |tps: &Vec<f64>| tps.iter().map(|tps| tps.ln()).filter(|log| log.is_finite()).collect::<Vec<f64>>();
    let sides: Vec<Vec<f64>> = made.lives.iter().flat_map(|life| life.tps.iter().map(logs)).collect();
    let lengths: Vec<f64> = made
        .lives
        .iter()
        .map(|life| life.took_s - made.pair_s * life.tps[0].len().min(life.tps[1].len()) as f64)
        .collect();
    let costs =
        stats::median(&lengths).map(|life_s| BlockCosts { life_s: life_s.max(0.0), pair_s: made.pair_s });
    let resolvable = TIMES.map(|(_, seconds)| {
        let layout = stats::best_layout(ratios.as_ref()?, &costs?, seconds, &rules(Design::Watched))?;
        Some(layout.difference)
    });
    let (studies, false_verdicts) = equal_studies(&made.lives);
    Summary {
        server: made.server.clone(),
        lives: made.lives.len(),
        ratios,
        second: variance_components(&sides).map(|found| found.within.sqrt()),
        resolvable,
        studies,
        false_verdicts,
        wakeup_us: made.wakeup_us,
        at_ms: made.lives.last().map_or(0, |life| life.at_ms),
        costs,
    }
}

/// A/A studies of lives that follow each other in one calibration, each life used once: how many there are, and how many
/// called a difference at some look.
fn equal_studies(lives: &[EqualLife]) -> (usize, usize) {
    let (mut studies, mut wrong) = (0, 0);
    for lives in lives.chunk_by(|a, b| a.calibration == b.calibration) {
        for lives in lives.chunks_exact(STUDY_LIVES) {
            studies += 1;
            let mean = |tps: &[f64]| stats::mean(tps).unwrap_or(f64::NAN);
            let samples = |side: usize, count: usize| -> Vec<Sample> {
                let of = |(block, life): (u32, &EqualLife)| Sample { block, value: mean(&life.tps[side]) };
                (1..).zip(&lives[..count]).map(of).collect()
            };
            let rules = rules(Design::Watched);
            let is_wrong = (rules.blocks_min..=STUDY_LIVES).any(|count| {
                let (base, other) = (samples(0, count), samples(1, count));
                let question = Question { base, other, better: stats::Better::Higher };
                let verdict = stats::compare_one(&question, &rules).verdict;
                matches!(verdict, Verdict::Faster | Verdict::Slower)
            });
            wrong += usize::from(is_wrong);
        }
    }
    (studies, wrong)
}

impl Summary {
    /// The line of `plimsoll calibrate --json`.
    pub fn json(&self, host: &Host) -> Value {
        let resolvable: BTreeMap<&str, Option<f64>> =
            TIMES.iter().map(|(name, _)| *name).zip(self.resolvable).collect();
        json!({
            "schema": 2,
            "host": {"name": host.name, "fingerprint": host.fingerprint, "cpu_model": host.cpu_model, "cpus": host.cpus},
            "server": self.server,
            "lives": self.lives,
            "resolvable": resolvable,
            "aa": {"studies": self.studies, "false_verdicts": self.false_verdicts},
            "spread": {
                "life": self.ratios.map(|found| found.between.sqrt()),
                "slice": self.ratios.map(|found| found.within.sqrt()),
                "second": self.second,
            },
            "wakeup_us": {"p50": self.wakeup_us.map(|(p50, _)| p50), "p99": self.wakeup_us.map(|(_, p99)| p99)},
        })
    }

    /// `3.1 % in 5 minutes, 2.0 % in 10 minutes`: the smallest differences told, of the times for which there is one.
    pub fn resolvable_text(&self) -> Option<String> {
        let told = TIMES.iter().zip(self.resolvable).filter_map(|((name, _), difference)| {
            Some(format!("{:.1} % in {} minutes", difference? * 100.0, name.trim_end_matches('m')))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// The smallest difference that a study of at most `blocks` duels of `pairs` pairs of slices tells.
    pub fn told_by(&self, blocks: usize, pairs: usize, is_watched: bool) -> Option<f64> {
        let design = if is_watched { Design::Watched } else { Design::Fixed };
        let spread = self.ratios?.of_a_mean(pairs).sqrt();
        stats::difference_told(spread, blocks, &rules(design))
    }

    /// Blocks of `pairs` pairs of slices that `seconds` are enough for.
    pub fn blocks_in(&self, seconds: f64, pairs: usize) -> Option<usize> {
        let costs = self.costs?;
        Some((seconds / (costs.life_s + costs.pair_s * pairs as f64)).floor() as usize)
    }
}

#[cfg(test)]
mod tests {
    use store::testing::calibrations as made;

    use super::*;

    #[test]
    fn equal_servers_give_studies_without_a_false_verdict_and_differences_that_shrink_with_time() {
        let found = summary(&made(20, 1.0));
        // Sixteen lives of the first calibration, and four of the second, which are too few for a study.
        assert_eq!((found.lives, found.studies, found.false_verdicts), (20, 2, 0));
        let told: Vec<f64> = found.resolvable.into_iter().map(Option::unwrap).collect();
        assert!(told[0] > told[1] && told[1] > told[2] && told[2] > 0.0, "{told:?}");
        let host = Host {
            name: "h".to_owned(),
            fingerprint: "f".to_owned(),
            boot_id: String::new(),
            kernel: String::new(),
            os: String::new(),
            arch: String::new(),
            cpu_model: "c".to_owned(),
            cpus: 2,
            memory_bytes: 1,
            facts: BTreeMap::new(),
        };
        let json = found.json(&host);
        assert_eq!(json["aa"], json!({"studies": 2, "false_verdicts": 0}));
        assert!(json["resolvable"]["30m"].is_f64() && json["spread"]["slice"].is_f64(), "{json}");
        assert!(json["spread"]["second"].as_f64().unwrap() > 0.02, "{json}");
    }

    #[test]
    fn studies_that_call_a_difference_where_there_is_none_are_counted() {
        let found = summary(&made(16, 1.2));
        assert_eq!((found.studies, found.false_verdicts), (2, 2));
    }

    #[test]
    fn too_few_lives_tell_nothing() {
        let found = summary(&made(4, 1.0));
        assert_eq!((found.resolvable, found.ratios, found.resolvable_text()), ([None; 3], None, None));
        assert_eq!(found.told_by(10, 8, true), None);
    }
}
