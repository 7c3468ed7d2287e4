//! The first build that is slower (or faster): noisy bisection over builds or commits, by duels with the good one.
//!
//! First good and bad are compared, life by life, until it is decided whether they differ; then the build that halves the
//! probability best has a duel with the good one, again and again, until one is guilty beyond doubt. At last the build
//! before it and the guilty one have a duel, whose figures by transaction say why. What was found out is written beside
//! the results after each duel, and the same command goes on from there.

mod why;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox::builds::source::{Made, Recipe};
use sandbox::{Build, Home, Selector, builds};
use serde::{Deserialize, Serialize};
use stats::{Answer, Ask, Better, BisectRules, BisectStatus, Comparison, GuiltySearch};

use crate::duel::{Life, Request as Duel, Side, SideLife, duel, slices_in};
use crate::error::Error;
use crate::hooks::Attach;
use crate::locks::LockWatch;
use crate::observe::Observer;
use crate::session_time::SessionTimes;
use crate::stop::StopSwitch;
use crate::study::{Length, Study};

use self::why::Figures;
pub use self::why::{Span, Why};

/// Pairs of lives that say why, and so many more that say at which locks, where sessions wait for those.
const LIVES_OF_WHY: u32 = 4;

/// What is searched.
#[derive(Debug, Clone)]
pub struct Request {
    /// How it is measured: workload, options, settings and load of the study's first cell.
    pub study: Study,
    /// The study's [quick] settings.
    pub is_quick: bool,
    /// Where what was found out is kept.
    pub results: PathBuf,
    /// From the good one to the bad one.
    pub candidates: Vec<Candidate>,
    /// `tps`, `p95`, `p99` ...
    pub metric: String,
    /// Smaller differences do not matter: 0.02 is 2 %.
    pub margin: f64,
    pub is_new: bool,
}

/// A build that may be guilty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    Build(Selector),
    /// A commit of a clone.
    Commit {
        from: PathBuf,
        /// Its full name.
        commit: String,
        recipe: Option<Recipe>,
    },
}

impl Candidate {
    /// As it is told.
    pub fn name(&self) -> String {
        match self {
            Candidate::Build(selector) => selector.to_string(),
            Candidate::Commit { commit, .. } => commit.clone(),
        }
    }

    /// The same, with as much of a commit's name as tells it from others.
    fn short(&self) -> String {
        match self {
            Candidate::Build(selector) => selector.to_string(),
            Candidate::Commit { commit, .. } => commit.get(..10).unwrap_or(commit).to_owned(),
        }
    }

    /// As it is told to people: of a commit what it is about, too.
    pub fn described(&self) -> String {
        let short = self.short();
        match self {
            Candidate::Build(_) => short,
            Candidate::Commit { from, commit, .. } => {
                format!("{short} {}", builds::commit_subject(from, commit)).trim_end().to_owned()
            }
        }
    }
}

/// The candidates from good to bad: builds by their names, or commits of a clone along the first parents.
///
/// # Errors
/// One of them is unknown, or there is nothing between them.
pub fn candidates(
    home: &Home,
    from: Option<&Path>,
    recipe: Option<&Recipe>,
    good: &str,
    bad: &str,
) -> Result<Vec<Candidate>, Error> {
    if let (None, Ok(good), Ok(bad)) = (from, good.parse::<Selector>(), bad.parse::<Selector>()) {
        return builds_between(home, &good, &bad);
    }
    let from = from.unwrap_or(Path::new("."));
    let good_commit = builds::commit_of(from, good)?;
    let mut commits = builds::commits_of_range(from, good, bad)?;
    if commits.is_empty() {
        return Err(Error::Usage(format!(
            "there is no commit after {good} up to {bad}: the bad one must come after the good one (git log {good}..{bad})"
        )));
    }
    commits.insert(0, good_commit);
    let candidate = |commit| Candidate::Commit { from: from.to_owned(), commit, recipe: recipe.cloned() };
    Ok(commits.into_iter().map(candidate).collect())
}

fn builds_between(home: &Home, good: &Selector, bad: &Selector) -> Result<Vec<Candidate>, Error> {
    if good.flavor != bad.flavor {
        return Err(Error::Usage(format!(
            "{good} and {bad} are servers of two families: there is nothing between them"
        )));
    }
    let name = |selector: &Selector| -> Result<String, Error> {
        Ok(match builds::find(home, selector)? {
            builds::Resolved::Here(build) => build.name(),
            builds::Resolved::Away(away) => away.name(),
        })
    };
    let here = [builds::installed(home)?, builds::fetched(home)?].concat();
    let mut names: Vec<String> =
        here.iter().filter(|build| build.flavor == good.flavor).map(Build::name).collect();
    let away = builds::fetchable(home)?;
    names.extend(away.iter().filter(|away| away.flavor == good.flavor).map(builds::Fetchable::name));
    names.sort_by_cached_key(|name| natural(name));
    names.dedup();
    let place = |wanted: &str| names.iter().position(|name| name == wanted);
    let (Some(first), Some(last)) = (place(&name(good)?), place(&name(bad)?)) else {
        return Err(Error::Usage(format!(
            "{good} and {bad} do not stand in the list of builds: `plimsoll servers` has it"
        )));
    };
    let mut between: Vec<String> = names[first.min(last)..=first.max(last)].to_vec();
    if first > last {
        between.reverse();
    }
    let selectors = between.iter().map(|name| Ok(Candidate::Build(name.parse::<Selector>()?)));
    selectors.collect()
}

/// A name in parts that sort as people count: numbers by their size.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let words = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(words);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        parts.push((0, word.to_owned()));
        parts.push((after[..digits].parse().unwrap_or(0), String::new()));
        rest = &after[digits..];
    }
    parts
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub status: BisectStatus,
    /// Index of the likeliest candidate.
    pub guilty: Option<usize>,
    /// Candidates that cannot be told from it, because they do not build or start.
    pub alternatives: Vec<usize>,
    pub probability: f64,
    /// Bad over good.
    pub comparison: Option<Comparison>,
    pub why: Vec<Why>,
    /// Duels with builds between good and bad.
    pub steps: usize,
    pub seconds: f64,
    /// Candidates that could not be asked, and why.
    pub skipped: Vec<(usize, String)>,
}

/// What the search tells while it goes on.
#[derive(Debug, Clone)]
pub enum Told {
    /// A pair of lives of good and bad: how many, and how the comparison stands.
    Ends(u32, Comparison),
    /// A build was asked: which, and the probabilities after it.
    Asked { candidate: usize, log_ratio: f64, probabilities: Vec<f64> },
    /// A build cannot be asked.
    Skipped { candidate: usize, why: String },
}

/// What was found out, as it is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Found {
    /// What it was found out about.
    fingerprint: String,
    ends: Vec<f64>,
    answers: Vec<(usize, f64)>,
    /// Their standard errors, in the same order; searches of earlier versions have none.
    #[serde(default)]
    errors: Vec<f64>,
    skipped: Vec<(usize, String)>,
    seconds: f64,
}

struct Search<'a> {
    home: &'a Home,
    request: &'a Request,
    attach: &'a dyn Attach,
    observer: Observer<'a>,
    stop: &'a StopSwitch,
    tell: &'a dyn Fn(&Told),
    found: Found,
    file: PathBuf,
    builds: BTreeMap<usize, Build>,
    began: Instant,
}

/// Searches.
///
/// # Errors
/// The request is wrong, a server cannot be had, or the user stopped it; the same request goes on from there.
pub fn bisect(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
    tell: &dyn Fn(&Told),
) -> Result<Outcome, Error> {
    if request.candidates.len() < 2 {
        return Err(Error::Usage(
            "good and bad are the same: there is nothing between them to search".into(),
        ));
    }
    let file = request.results.join(format!("{}.bisect.json", request.study.name));
    let fingerprint = fingerprint(request);
    let kept = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Found>(&text).ok());
    let kept = kept.filter(|found| found.fingerprint == fingerprint && !request.is_new);
    let found = kept.unwrap_or(Found { fingerprint, ..Found::default() });
    let began = Instant::now();
    let builds = BTreeMap::new();
    let mut search = Search { home, request, attach, observer, stop, tell, found, file, builds, began };
    search.run()
}

fn fingerprint(request: &Request) -> String {
    let names: Vec<String> = request.candidates.iter().map(Candidate::name).collect();
    let all = [request.study.file_sha256.clone(), request.metric.clone(), format!("{}", request.margin)];
    // The same commits by another recipe are other servers.
    let recipe = request.candidates.iter().find_map(|candidate| match candidate {
        Candidate::Commit { recipe: Some(recipe), .. } => Some(format!(" by {}", recipe.text())),
        _ => None,
    });
    format!("{} {} {}{}", all.join(" "), request.is_quick, names.join(" "), recipe.unwrap_or_default())
}

impl Found {
    /// The search as far as it has come.
    fn search(&mut self, candidates: usize, better: Better, margin: f64) -> GuiltySearch {
        let mut search = GuiltySearch::new(candidates, better, margin, BisectRules::default());
        self.ends.iter().for_each(|end| search.end(*end));
        self.skipped.iter().for_each(|(candidate, _)| search.skip(*candidate));
        // Files of earlier versions have no errors.
        let usual = search.answer_of(&[0.0; 2]).map_or(0.0, |answer| answer.error);
        self.errors.resize(self.answers.len(), usual);
        if search.guilty().is_some() {
            for ((candidate, log_ratio), error) in self.answers.iter().zip(&self.errors) {
                search.answer(*candidate, Answer { log_ratio: *log_ratio, error: *error });
            }
        }
        search
    }
}

impl Search<'_> {
    fn run(&mut self) -> Result<Outcome, Error> {
        let last = self.request.candidates.len() - 1;
        for end in [0, last] {
            if let Some(why) = self.obtain(end)? {
                let name = self.request.candidates[end].name();
                return Err(Error::Usage(format!("{name} cannot be an end of the search: {why}")));
            }
        }
        let search = self.search(last)?;
        let guilty = search.guilty();
        let why = match (search.status(), &guilty) {
            (BisectStatus::Found, Some(guilty)) => {
                self.why(*guilty.candidates.start(), *guilty.candidates.end())?
            }
            _ => vec![],
        };
        Ok(self.outcome(&search, guilty, why))
    }

    fn outcome(&self, search: &GuiltySearch, guilty: Option<stats::Guilty>, why: Vec<Why>) -> Outcome {
        Outcome {
            status: search.status(),
            guilty: guilty.as_ref().map(|guilty| *guilty.candidates.end()),
            alternatives: guilty.as_ref().map_or_else(Vec::new, |guilty| {
                let end = *guilty.candidates.end();
                guilty.candidates.clone().filter(|at| *at != end).collect()
            }),
            probability: guilty.map_or(0.0, |guilty| guilty.probability),
            comparison: Some(search.comparison().clone()),
            why,
            steps: self.found.answers.len(),
            seconds: self.found.seconds + self.began.elapsed().as_secs_f64(),
            skipped: self.found.skipped.clone(),
        }
    }

    /// Looks a candidate up, and builds it where it is a commit; why it cannot be asked, where it cannot.
    fn obtain(&mut self, candidate: usize) -> Result<Option<String>, Error> {
        if self.builds.contains_key(&candidate) {
            return Ok(None);
        }
        let progress = crate::source::steps(self.observer);
        let build = match &self.request.candidates[candidate] {
            Candidate::Build(selector) => match builds::resolve(self.home, selector, &progress) {
                Ok(build) => build,
                Err(error) => return Ok(Some(error.to_string())),
            },
            Candidate::Commit { from, commit, recipe } => {
                let request = crate::source::request_of(from, commit, recipe.clone());
                match crate::source::build(self.home, &request, &progress, self.observer, self.stop)? {
                    Made::Build(build) => build,
                    Made::Broken { step, log_file, .. } => {
                        let log = log_file.display();
                        return Ok(Some(format!("it does not build: {step} failed, see {log}")));
                    }
                }
            }
        };
        self.builds.insert(candidate, build);
        Ok(None)
    }

    /// Asks until the search has ended, from what was found out before.
    fn search(&mut self, last: usize) -> Result<GuiltySearch, Error> {
        let better = if self.request.metric == "tps" { Better::Higher } else { Better::Lower };
        let mut search = self.found.search(last + 1, better, self.request.margin);
        while let Some(ask) = search.next() {
            match ask {
                Ask::Ends => self.ask_ends(last, &mut search)?,
                Ask::Build(candidate) => self.ask_build(candidate, &mut search)?,
            }
            self.keep()?;
        }
        Ok(search)
    }

    fn ask_ends(&mut self, last: usize, search: &mut GuiltySearch) -> Result<(), Error> {
        let (ratios, failure) = self.duel(0, last, 1)?;
        let Some(ratio) = ratios.first() else {
            let why = failure.unwrap_or_else(|| "run the study by itself to see why".to_owned());
            return Err(Error::Run(format!("a duel of good and bad did not end well: {why}")));
        };
        self.found.ends.push(*ratio);
        search.end(*ratio);
        (self.tell)(&Told::Ends(self.found.ends.len() as u32, search.comparison().clone()));
        Ok(())
    }

    fn ask_build(&mut self, candidate: usize, search: &mut GuiltySearch) -> Result<(), Error> {
        let unusable = match self.obtain(candidate)? {
            Some(why) => Some(why),
            None => {
                let (ratios, failure) = self.duel(0, candidate, BisectRules::default().lives)?;
                match search.answer_of(&ratios) {
                    None => Some(failure.unwrap_or_else(|| "no life of it counts".to_owned())),
                    Some(answer) => {
                        search.answer(candidate, answer);
                        self.found.answers.push((candidate, answer.log_ratio));
                        self.found.errors.push(answer.error);
                        let (log_ratio, probabilities) = (answer.log_ratio, search.probabilities());
                        (self.tell)(&Told::Asked { candidate, log_ratio, probabilities });
                        None
                    }
                }
            }
        };
        if let Some(why) = unusable {
            search.skip(candidate);
            (self.tell)(&Told::Skipped { candidate, why: why.clone() });
            self.found.skipped.push((candidate, why));
        }
        Ok(())
    }

    /// Lives of the build before the guilty one and of that one, and what differs in them.
    fn why(&mut self, first: usize, guilty: usize) -> Result<Vec<Why>, Error> {
        let before = first - 1;
        if self.obtain(before)?.is_some() || self.obtain(guilty)?.is_some() {
            return Ok(vec![]);
        }
        let mut figures = Figures::default();
        let sessions = SessionTimes(self.attach);
        let request = self.duel_of(before, guilty, 2 * LIVES_OF_WHY)?;
        self.lives(&request, LIVES_OF_WHY, &sessions, &mut |life| figures.add(life))?;
        if figures.are_longer_at_locks() {
            // Instruments make locks slower: these lives say nothing else.
            let sides = request.sides.into_iter().map(|mut side| {
                side.settings.extend(crate::locks::settings(&side.build));
                side
            });
            let request = Duel { sides: sides.collect(), ..request };
            self.lives(&request, LIVES_OF_WHY, &LockWatch, &mut |life| figures.add_locks(life))?;
        }
        Ok(figures.why())
    }

    /// Log-ratios of the metric, `other` over `base`, of lives that count; and the last reason of one that does not.
    fn duel(&self, base: usize, other: usize, lives: u32) -> Result<(Vec<f64>, Option<String>), Error> {
        let (mut ratios, mut failure) = (Vec::new(), None);
        let request = self.duel_of(base, other, 2 * lives)?;
        self.lives(&request, lives, self.attach, &mut |life| match log_ratio(life, &self.request.metric) {
            Some(ratio) => ratios.push(ratio),
            None => failure = life.sides.iter().find_map(|side| side.end.error.clone()),
        })?;
        Ok((ratios, failure))
    }

    /// Makes so many lives that count, of at most those that are asked for.
    fn lives(
        &self,
        request: &Duel,
        lives: u32,
        attach: &dyn Attach,
        see: &mut dyn FnMut(&Life),
    ) -> Result<(), Error> {
        let mut valid = 0;
        let mut done = |life: Life| {
            valid += u32::from(life.is_valid());
            see(&life);
            if valid >= lives { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        duel(self.home, request, attach, self.observer, self.stop, &mut done)
    }

    fn duel_of(&self, base: usize, other: usize, lives: u32) -> Result<Duel, Error> {
        let body = self.request.study.body(self.request.is_quick);
        let refuse = |what: &str| Error::Usage(format!("{}: {what}", self.request.study.path.display()));
        let workload = body.axes.workload.first().ok_or_else(|| refuse("it has no workload"))?;
        let side = |candidate: usize| {
            let mut side =
                Side::new(self.request.candidates[candidate].short(), self.builds[&candidate].clone());
            if let Some(settings) = body.axes.settings.first() {
                side.settings.clone_from(&settings.set);
                side.profile = settings.profile.as_ref().and_then(|profile| profile.parse().ok());
            }
            side
        };
        let length = match body.load.length {
            Length::Time(time) => time,
            Length::Transactions(_) => Duration::from_secs(20),
        };
        let mut options = body.options.clone();
        options.extend(
            body.axes
                .options
                .iter()
                .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone()))),
        );
        let seed = body.load.seed.unwrap_or(1)
            ^ ((self.found.ends.len() as u64) << 32)
            ^ self.found.answers.len() as u64;
        Ok(Duel {
            sides: vec![side(base), side(other)],
            workload: workload.workload.clone(),
            options,
            sessions: body.axes.ladder.levels().first().copied().unwrap_or(1),
            lives,
            slices: slices_in(length).clamp(4, 240),
            warmup: body.load.warmup,
            pacing: load::Pacing::Closed,
            seed,
        })
    }

    fn keep(&mut self) -> Result<(), Error> {
        let now = self.began.elapsed().as_secs_f64();
        let kept = Found { seconds: self.found.seconds + now, ..self.found.clone() };
        write(&self.file, &kept)
    }
}

fn write(file: &Path, found: &Found) -> Result<(), Error> {
    let fail =
        |error: std::io::Error| Error::Run(format!("{} could not be written: {error}", file.display()));
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).map_err(fail)?;
    }
    let text = serde_json::to_string_pretty(found).map_err(|error| fail(error.into()))?;
    report::write_file(file, text.as_bytes()).map_err(fail)
}

fn log_ratio(life: &Life, metric: &str) -> Option<f64> {
    if metric == "tps" {
        return life.log_ratio(0, 1);
    }
    life.is_valid().then_some(())?;
    let of = |side: &SideLife| {
        let step = side.end.steps.first()?;
        report::StepFigures::of(step).metric(metric).filter(|value| *value > 0.0)
    };
    Some((of(&life.sides[1])? / of(&life.sides[0])?).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_stand_in_the_order_of_their_numbers() {
        let mut names =
            ["mysql@8.0.33", "mysql@5.5.9", "mysql@5.5.34", "mysql@8.0.33+b10", "mysql@8.0.33+b9"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(
            names,
            ["mysql@5.5.9", "mysql@5.5.34", "mysql@8.0.33", "mysql@8.0.33+b9", "mysql@8.0.33+b10"]
        );
    }

    #[test]
    fn the_same_commits_by_another_recipe_are_another_search() {
        let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/quickstart.toml");
        let request = |recipe: Option<&str>| {
            let recipe = recipe.map(|name| Recipe::find(name).unwrap());
            let commit = |name: &str| Candidate::Commit {
                from: PathBuf::from("clone"),
                commit: name.to_owned(),
                recipe: recipe.clone(),
            };
            Request {
                study: crate::study::read(&study).unwrap(),
                is_quick: false,
                results: PathBuf::new(),
                candidates: vec![commit("1"), commit("2")],
                metric: "tps".to_owned(),
                margin: 0.02,
                is_new: false,
            }
        };
        let of = |recipe: Option<&str>| fingerprint(&request(recipe));
        assert_eq!(of(Some("postgres")), of(Some("postgres")));
        assert_ne!(of(Some("postgres")), of(Some("postgres-meson")));
        assert_ne!(of(Some("postgres")), of(None));
    }
}
