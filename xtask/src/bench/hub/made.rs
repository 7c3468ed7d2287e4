//! Metadata of many bundles, drawn by a seed from one real one: other studies, machines, builds, load levels and figures. A few
//! studies and machines are in many bundles and most in few (by 1 / rank, Zipf), and half of a study's bundles measure the
//! builds of its first one again.

use std::path::Path;

use anyhow::{Context, Result};
use hub::{Keeping, Made};
use report::bundle::{
    ListedCalibration, ListedCell, ListedClaim, ListedHost, Listing, Opened, RunMark, listing,
};
use report::history::PointOfSeries;
use report::{Estimate, Report, Selection};
use stats::rng::Rng;
use store::bundle::{Limits, sha256};

/// A bundle of real servers, which the tests of `report` keep.
const REAL: &str = "../crates/report/tests/bundles/0.1.0-schema-8.plimsoll";
/// Bundles for one study, and for one machine, on average.
const OF_A_STUDY: usize = 10;
const OF_A_MACHINE: usize = 20;
/// Bundles that have files, all the same: 10,000 reports would be 10 GB.
const WITH_FILES: usize = 200;
/// Releases of a server over the time that the bundles come in.
const RELEASES: usize = 20;
/// A bundle comes in so often.
const EVERY_MS: i64 = 10 * 60 * 1000;
/// 2024-01-01.
const FIRST_MS: i64 = 1_704_067_200_000;
const LEVELS: [u32; 6] = [1, 4, 16, 64, 128, 256];
const METRICS: [&str; 2] = ["tps", "p95"];
/// Name, and what stands before the number of a release.
const FLAVORS: [(&str, &str); 4] =
    [("mariadb", "10.11."), ("mysql", "8.0.2"), ("percona", "8.0.2"), ("postgres", "16.")];
const WORKLOADS: [&str; 5] = ["oltp_point_select", "oltp_read_write", "oltp_update_index", "tpcb", "tpcc"];
const TOPICS: [&str; 12] = [
    "durability",
    "checkpoints",
    "doublewrite",
    "compression",
    "huge pages",
    "parallel replication",
    "row format",
    "autovacuum",
    "adaptive hashing",
    "change buffering",
    "direct writes",
    "jemalloc",
];

/// A study that somebody published.
struct Study {
    name: String,
    title: String,
    shape: String,
    workload: &'static str,
    /// Base, and what is compared with it.
    flavors: [usize; 2],
    levels: usize,
    /// Logarithm of the ratio that is true.
    log_ratio: f64,
}

/// What tells a bundle from the others.
pub(super) struct Drawn {
    pub(super) id: String,
    study: usize,
    host: usize,
    builds: [String; 2],
    seed: u64,
}

/// All that the hub is to list.
pub(super) struct World {
    /// The real one.
    bytes: Vec<u8>,
    opened: Opened,
    real: Listing,
    studies: Vec<Study>,
    hosts: Vec<ListedHost>,
    /// The oldest first.
    pub(super) bundles: Vec<Drawn>,
}

impl World {
    pub(super) fn new(bundles: usize, seed: u64) -> Result<World> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(REAL);
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let opened = Opened::new(&bytes, &path, &Limits::default())?;
        let (real, _) = listing(&opened)?;
        let is_enough = real.cells.len() > 1 && !real.claims.is_empty() && !real.hosts.is_empty();
        anyhow::ensure!(is_enough, "{} has no comparison of two cells", path.display());
        let mut rng = Rng::new(seed);
        let studies = (0..bundles.div_ceil(OF_A_STUDY)).map(|at| study(at, &mut rng)).collect::<Vec<_>>();
        let hosts: Vec<_> = (0..bundles.div_ceil(OF_A_MACHINE)).map(|at| host(at, &real.hosts[0])).collect();
        let (by_study, by_host) = (Zipf::of(studies.len()), Zipf::of(hosts.len()));
        let mut firsts: Vec<Option<[String; 2]>> = vec![None; studies.len()];
        let mut drawn = Vec::with_capacity(bundles);
        for at in 0..bundles {
            let (study, host) = (by_study.draw(&mut rng), by_host.draw(&mut rng));
            let newest = at * RELEASES / bundles.max(1);
            let fresh = studies[study].flavors.map(|flavor| {
                let (name, version) = FLAVORS[flavor];
                format!("{name}@{version}{}", newest.saturating_sub(rng.below(3)))
            });
            let builds = match &firsts[study] {
                Some(first) if rng.below(2) == 0 => first.clone(),
                _ => fresh,
            };
            firsts[study].get_or_insert_with(|| builds.clone());
            drawn.push(Drawn {
                id: sha256(format!("made {at}").as_bytes()),
                study,
                host,
                builds,
                seed: rng.next_u64(),
            });
        }
        Ok(World { bytes, opened, real, studies, hosts, bundles: drawn })
    }

    pub(super) fn made(&self) -> impl Iterator<Item = Made> {
        self.bundles.iter().enumerate().map(|(at, drawn)| {
            let received_ms = FIRST_MS + at as i64 * EVERY_MS;
            // Each machine is somebody's.
            let token = format!("token {}", drawn.host);
            Made {
                id: drawn.id.clone(),
                received_ms,
                token,
                listing: self.listing(drawn, received_ms - EVERY_MS),
            }
        })
    }

    /// Gives the first ones the files of the real one.
    pub(super) fn keep_files(&self, folder: &Path) -> Result<()> {
        let report = report::html(&Report::of_stores(&[&self.opened.results], &Selection::Latest)?)?;
        let keeping = Keeping::Directory(folder.to_owned());
        self.with_files()
            .iter()
            .try_for_each(|drawn| hub::keep_made(&keeping, &drawn.id, &self.bytes, report.as_bytes()))?;
        Ok(())
    }

    /// Those whose report and bundle can be read.
    pub(super) fn with_files(&self) -> &[Drawn] {
        &self.bundles[..WITH_FILES.min(self.bundles.len())]
    }

    /// As many runs as the real bundle has.
    fn marks(&self, drawn: &Drawn, host: &ListedHost) -> Vec<RunMark> {
        let each = self.real.marks.iter().map(|mark| RunMark {
            run: sha256(format!("{} {}", drawn.id, mark.run).as_bytes()),
            host: host.fingerprint.clone(),
        });
        each.collect()
    }

    fn listing(&self, drawn: &Drawn, measured_at_ms: i64) -> Listing {
        let (study, host) = (&self.studies[drawn.study], &self.hosts[drawn.host]);
        let mut rng = Rng::new(drawn.seed);
        let mut made = Listing {
            study: study.name.clone(),
            title: study.title.clone(),
            question: format!("What do {} cost, and does that depend on the load?", study.title),
            answer: self.real.answer.iter().map(|text| self.renamed(text, drawn)).collect(),
            shape: study.shape.clone(),
            measured_at_ms,
            hosts: vec![host.clone()],
            cells: Vec::new(),
            claims: Vec::new(),
            points: Vec::new(),
            marks: self.marks(drawn, host),
            ..self.real.clone()
        };
        made.author.name = format!("Author {}", drawn.host % 97);
        for level in &LEVELS[..study.levels] {
            for side in 0..2 {
                let factor =
                    f64::from(*level).powf(0.7) * (0.05 * rng.normal() + side as f64 * study.log_ratio).exp();
                made.cells.push(self.cell(drawn, side, *level, factor));
                made.points.extend(self.points(drawn, side, *level, factor, measured_at_ms));
            }
            made.claims.extend((0..METRICS.len()).map(|metric| self.claim(drawn, metric, *level, &mut rng)));
        }
        made
    }

    /// A text of the real bundle about these builds.
    fn renamed(&self, text: &str, drawn: &Drawn) -> String {
        (0..2).fold(text.to_owned(), |text, side| {
            text.replace(&self.real.cells[side].server, &drawn.builds[side])
        })
    }

    fn key(&self, key: &store::Key, drawn: &Drawn, build: &str, level: u32) -> store::Key {
        let (study, host) = (&self.studies[drawn.study], &self.hosts[drawn.host]);
        let mut key = key.clone();
        for (name, value) in [
            ("server", build.into()),
            ("study", study.name.clone().into()),
            ("workload", study.workload.into()),
            ("sessions", level.into()),
            ("host", host.name.clone().into()),
        ] {
            if let Some(known) = key.get_mut(name) {
                *known = value;
            }
        }
        key
    }

    fn cell(&self, drawn: &Drawn, side: usize, level: u32, factor: f64) -> ListedCell {
        let cell = &self.real.cells[side];
        ListedCell {
            key: self.key(&cell.key, drawn, &drawn.builds[side], level),
            server: drawn.builds[side].clone(),
            workload: self.studies[drawn.study].workload.to_owned(),
            sessions: level,
            host: self.hosts[drawn.host].fingerprint.clone(),
            tps: cell.tps.map(|it| times(it, factor)),
            p95_ms: cell.p95_ms.map(|it| times(it, f64::from(level) / factor)),
            p99_ms: cell.p99_ms.map(|it| times(it, f64::from(level) / factor)),
            ..cell.clone()
        }
    }

    fn claim(&self, drawn: &Drawn, metric: usize, level: u32, rng: &mut Rng) -> ListedClaim {
        let (study, claim) = (&self.studies[drawn.study], &self.real.claims[0]);
        let [base, other] = &drawn.builds;
        let ratio = (study.log_ratio + 0.03 * rng.normal()).exp();
        // Some are reproduced, some contradicted, some neither.
        let (low, high) = (ratio * 0.99, ratio * 1.01);
        let identity = format!("{} {base} {other} {level} {}", study.shape, METRICS[metric]);
        ListedClaim {
            id: sha256(identity.as_bytes())[..12].to_owned(),
            metric: METRICS[metric].to_owned(),
            text: format!(
                "{} of {other} against {base}, {level} sessions",
                report::metric_name(METRICS[metric])
            ),
            base: self.key(&claim.base, drawn, base, level),
            other: self.key(&claim.other, drawn, other, level),
            verdict: match (low > 1.0, high < 1.0) {
                (true, _) => "faster".to_owned(),
                (_, true) => "slower".to_owned(),
                _ => "undecided".to_owned(),
            },
            ratio: Some(ratio),
            low: Some(low),
            high: Some(high),
            is_primary: metric == 0,
            host: self.hosts[drawn.host].fingerprint.clone(),
            ..claim.clone()
        }
    }

    fn points(
        &self,
        drawn: &Drawn,
        side: usize,
        level: u32,
        factor: f64,
        at_ms: i64,
    ) -> impl Iterator<Item = PointOfSeries> {
        let (study, host) = (&self.studies[drawn.study], &self.hosts[drawn.host]);
        let server = &self.real.cells[side].server;
        let of_side = self
            .real
            .points
            .iter()
            .filter(move |point| point.key.get("server").is_some_and(|it| it == server));
        of_side.map(move |real| {
            let mut point = real.clone();
            point.key = self.key(&real.key, drawn, &drawn.builds[side], level);
            point.boundary = format!("{}\n{}", host.fingerprint, study.shape);
            let factor = if real.metric == "tps" { factor } else { f64::from(level) / factor };
            let known = &mut point.point;
            known.build.clone_from(&drawn.builds[side]);
            known.at_ms = at_ms;
            known.host.clone_from(&host.name);
            for value in [&mut known.value, &mut known.low, &mut known.high] {
                *value *= factor;
            }
            point
        })
    }

    /// What the hub's pages of a bundle are called.
    pub(super) fn fingerprint(&self, drawn: &Drawn) -> &str {
        &self.hosts[drawn.host].fingerprint
    }

    pub(super) fn server<'a>(&self, drawn: &'a Drawn) -> &'a str {
        &drawn.builds[0]
    }

    pub(super) fn flavor(&self, drawn: &Drawn) -> &'static str {
        FLAVORS[self.studies[drawn.study].flavors[0]].0
    }

    pub(super) fn study_name(&self, drawn: &Drawn) -> &str {
        &self.studies[drawn.study].name
    }

    /// A claim of it.
    pub(super) fn claim_id(&self, drawn: &Drawn, rng: &mut Rng) -> String {
        let level = LEVELS[rng.below(self.studies[drawn.study].levels)];
        self.claim(drawn, rng.below(METRICS.len()), level, &mut Rng::new(0)).id
    }

    /// Another bundle of the same study, where there is one.
    pub(super) fn sibling<'a>(&'a self, drawn: &'a Drawn, rng: &mut Rng) -> &'a Drawn {
        let begin = rng.below(self.bundles.len());
        let others = self.bundles[begin..].iter().chain(&self.bundles[..begin]);
        let is_other = |other: &&Drawn| other.study == drawn.study && other.id != drawn.id;
        others.into_iter().find(is_other).unwrap_or(drawn)
    }
}

fn times(estimate: Estimate, factor: f64) -> Estimate {
    Estimate {
        median: estimate.median * factor,
        low: estimate.low * factor,
        high: estimate.high * factor,
        ..estimate
    }
}

fn study(at: usize, rng: &mut Rng) -> Study {
    let workload = WORKLOADS[rng.below(WORKLOADS.len())];
    let topic = TOPICS[rng.below(TOPICS.len())];
    let name = format!("{}-{at:05}", topic.replace(' ', "-"));
    let base = rng.below(FLAVORS.len());
    Study {
        title: format!("{topic} under {workload}, take {at}"),
        shape: sha256(name.as_bytes())[..12].to_owned(),
        name,
        workload,
        flavors: [base, (base + 1 + rng.below(FLAVORS.len() - 1)) % FLAVORS.len()],
        levels: 1 + rng.below(LEVELS.len()),
        log_ratio: 0.2 * rng.normal(),
    }
}

fn host(at: usize, real: &ListedHost) -> ListedHost {
    let cpus = [2, 4, 8, 16, 64][at % 5];
    let calibration = |server: &str| ListedCalibration {
        server: server.to_owned(),
        workload: WORKLOADS[0].to_owned(),
        sessions: cpus,
        lives: 8,
        spread_life: Some(0.01),
        wakeup_p99_us: Some(80.0),
        ..ListedCalibration::default()
    };
    ListedHost {
        fingerprint: sha256(format!("machine {at}").as_bytes())[..16].to_owned(),
        name: format!("host-{at:04}"),
        cpu_model: format!("{} ({})", real.cpu_model, at % 40),
        cpus,
        calibrations: vec![calibration("mariadb@10.11.1"), calibration("postgres@16.1")],
        ..real.clone()
    }
}

/// Numbers from 0, each with a chance of 1 / (number + 1).
struct Zipf(Vec<f64>);

impl Zipf {
    fn of(count: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Zipf(sums.collect())
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let drawn = rng.unit() * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|sum| *sum <= drawn).min(self.0.len() - 1)
    }
}
