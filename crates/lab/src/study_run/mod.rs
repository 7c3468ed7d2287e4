//! `plimsoll run`: a study from its file to its last recorded run.

mod block;
mod only;
mod outline;
mod part;
mod pins;
mod places;
mod queue;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use sandbox::Home;
use store::{BuildId, HostId, Status, Store, StudyId};

pub(crate) use self::outline::run_length;
pub use self::outline::{Outline, outline};
pub use self::part::Part;
use crate::cells::{Controlled, SettingsNotes};
use crate::clients::Hosts;
use crate::ending::{self, Ended, Next};
use crate::error::Error;
use crate::hooks::Attach;
use crate::host;
use crate::machine::{take_for_measuring, take_results};
use crate::observe::{Event, Observer};
use crate::plan::{Plan, PlannedRun, draw_seed, fingerprint};
use crate::record;
use crate::recorded::{earlier, grow, keep_to_its_end, planned_before, statuses, study_row, unfinished};
use crate::run::Around;
use crate::stop::StopSwitch;
use crate::study::{Body, Study};
use crate::subject::Subject;

/// What `run` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub study: Study,
    pub results: PathBuf,
    pub quick: bool,
    /// Only runs whose cells have these values; what is left out stays unfinished.
    pub only: Vec<(String, String)>,
    /// Only these blocks: somebody else makes the others, from the same plan.
    pub part: Option<Part>,
    /// Where the clients of its runs are, where it has several.
    pub client_hosts: Hosts,
    /// Begin anew although there is an unfinished or finished one.
    pub new: bool,
    /// The command line, without secrets.
    pub command: String,
    pub version: String,
}

/// How a study stands after `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its row in the results file.
    pub study: StudyId,
    pub runs: usize,
    pub made: usize,
    /// Runs of the plan that ended well.
    pub done: usize,
    /// Runs of the plan that ended and whose figures must not be used.
    pub invalid: usize,
    /// Runs of the plan whose last attempt failed.
    pub failed: usize,
    /// Why it ended before its last block: the runs of later blocks are none of those above.
    pub ended: Option<Ended>,
}

impl Outcome {
    /// Runs that have not ended yet.
    pub fn open(&self) -> usize {
        self.runs - self.done - self.invalid - self.failed
    }
}

/// A ladder that this process could not open the connections for is refused before its first rung.
pub(crate) fn sessions_are_possible(study: &Study, body: &Body) -> Result<(), Error> {
    let most = body.axes.ladder.levels().iter().copied().max().unwrap_or(1);
    crate::checks::levels(body.axes.ladder.levels(), body.load.clients, None).map_err(|error| {
        let message = format!("{most} sessions are not possible here");
        study.refuse(
            &format!("level/{most}"),
            message,
            "too many for this machine as it is set",
            &error.to_string(),
        )
    })
}

/// Makes all runs of the study that are not recorded yet.
///
/// # Errors
/// The study cannot be begun or gone on with. Runs that fail are no error: they are in the outcome.
pub fn run_study(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Outcome, Error> {
    let body = request.study.body(request.quick);
    sessions_are_possible(&request.study, &body)?;
    let machine = take_for_measuring(home, Some(&body.machine), observer, stop)?;
    let mut store = Store::open(&request.results)?;
    let _results = take_results(&request.results)?;
    let before = if request.new { None } else { unfinished(&store, request, &body)? };
    let Begun { subjects, plan, id, notes } =
        begin(home, request, &body, &mut store, before, observer, stop)?;
    let chosen = chosen(&plan, request)?;
    store.interrupt_running(id)?;
    if let Some(doubt) = &machine.doubt {
        store.add_note(id, load::time::unix_ms(), doubt)?;
    }
    let mut facts = host::facts();
    facts.facts.extend(request.study.price.iter().map(|price| (store::PRICE.to_owned(), price.clone())));
    let host = store.add_host(&facts)?;
    let builds = subjects
        .iter()
        .map(|subject| subject.build().map(|build| store.add_build(&record::build(build))).transpose())
        .collect::<Result<Vec<Option<BuildId>>, store::Error>>()?;
    let mut plan = plan;
    // Before what uses them: they go last.
    let made = places::make(home, &mut plan, &chosen, observer, stop)?;
    for doubt in &made.doubts {
        observer(Event::Warning(doubt));
        store.add_note(id, load::time::unix_ms(), doubt)?;
    }
    // After the plan and its fingerprint, which are of the study and not of this machine.
    let body = crate::cells::with_client_apart(body)?;
    let work = Work {
        home,
        request,
        body: &body,
        plan: &plan,
        id,
        host,
        subjects: &subjects,
        builds: &builds,
        notes: &notes,
        around: Around { stop, observer, attach, seat: None },
    };
    let outcome = work.go_on(&mut store, &chosen);
    made.close(observer);
    outcome
}

/// The runs of the plan that are asked for.
fn chosen(plan: &Plan, request: &Request) -> Result<Vec<PlannedRun>, Error> {
    let mut chosen = only::choose(plan, &request.only)?;
    chosen.retain(|run| request.part.as_ref().is_none_or(|part| part.has(run.block)));
    Ok(chosen)
}

/// A study whose row is in the results file, and whose servers are there as far as the runs asked for need them.
pub(crate) struct Begun {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) plan: Plan,
    pub(crate) id: StudyId,
    pub(crate) notes: SettingsNotes,
}

/// Looks up the servers, and plans the study or takes up the plan that it has.
pub(crate) fn begin(
    home: &Home,
    request: &Request,
    body: &Body,
    store: &mut Store,
    before: Option<store::StudyRecord>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Begun, Error> {
    let before = match before {
        Some(record) => Some((planned_before(&record, body, request.quick)?, record)),
        None => None,
    };
    let plan_before = before.as_ref().map(|(plan, _)| plan);
    let (subjects, pinned) = pins::look_up(home, request, body, plan_before, observer, stop)?;
    pins::no_name_twice(&request.study, body, &pinned)?;
    let controlled: Vec<Controlled<'_>> = subjects
        .iter()
        .map(|subject| Controlled { flavor: subject.flavor(), life: subject.life() })
        .collect();
    let (plan, id) = match before {
        Some((plan, record)) => {
            keep_to_its_end(store, &record, body, request.quick)?;
            if plan.blocks() > record.study.blocks {
                grow(store, request, body, &plan, &record)?;
            }
            (plan, record.id)
        }
        None => {
            let plan = Plan::new(body, request.quick, seed(request, body), pinned);
            crate::possible::check(home, &request.study, &body.load, &plan, &controlled)?;
            places::check(home, &request.study, body, &plan)?;
            has_blocks(request, &plan)?;
            let id = store.add_study(&study_row(request, body, &plan)?)?;
            if let Some(note) = crate::calibrate::note(home, &request.study, body, &plan) {
                store.add_note(id, load::time::unix_ms(), &note)?;
            }
            for note in [plan.uneven_lives(body), earlier(store, id)?].into_iter().flatten() {
                observer(Event::Warning(&note));
                store.add_note(id, load::time::unix_ms(), &note)?;
            }
            (plan, id)
        }
    };
    has_blocks(request, &plan)?;
    let notes = SettingsNotes::of(&request.study, &body.load, &plan, &controlled)?;
    notes.all().for_each(|note| observer(Event::Warning(note)));
    Ok(Begun { subjects, plan, id, notes })
}

/// The seed of a new plan. Parts of one plan that are made in places which know nothing of each other have the same one: it
/// follows from what the study measures.
pub(crate) fn seed(request: &Request, body: &Body) -> u64 {
    let drawn = || match &request.part {
        None => draw_seed(),
        Some(_) => {
            let digits: String = fingerprint(body, request.quick).chars().take(13).collect();
            u64::from_str_radix(&digits, 16).unwrap_or_default()
        }
    };
    body.load.seed.unwrap_or_else(drawn)
}

fn has_blocks(request: &Request, plan: &Plan) -> Result<(), Error> {
    let Some(part) = &request.part else { return Ok(()) };
    if (1..=plan.blocks()).any(|block| part.has(block)) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--block {part} is none of this study's blocks, which are 1 to {}",
        plan.blocks()
    )))
}

/// The runs that a command has to make: those that have not ended, and those that failed, as what made them fail may
/// have been mended. Only when there are none of these, the invalid ones: a study is finished before parts of it are
/// repeated.
pub(crate) fn to_make(
    runs: &[PlannedRun],
    status_of: impl Fn(&PlannedRun) -> Option<Status>,
) -> Vec<&PlannedRun> {
    let unfinished: Vec<&PlannedRun> =
        runs.iter().filter(|run| !matches!(status_of(run), Some(Status::Done | Status::Invalid))).collect();
    if !unfinished.is_empty() {
        return unfinished;
    }
    runs.iter().filter(|run| status_of(run) != Some(Status::Done)).collect()
}

/// How the runs of the blocks up to `last` stand. A later block may have been begun before the study was found decided.
fn counted(runs: &[PlannedRun], stands: &BTreeMap<u32, Status>, last: u32, study: StudyId) -> Outcome {
    outcome(&runs.iter().filter(|run| run.block <= last).collect::<Vec<_>>(), stands, study)
}

/// How these runs stand.
pub(crate) fn outcome(runs: &[&PlannedRun], stands: &BTreeMap<u32, Status>, study: StudyId) -> Outcome {
    let count = |wanted: Status| runs.iter().filter(|run| stands.get(&run.index) == Some(&wanted)).count();
    Outcome {
        study,
        runs: runs.len(),
        made: 0,
        done: count(Status::Done),
        invalid: count(Status::Invalid),
        failed: count(Status::Failed),
        ended: None,
    }
}

/// A study that is being worked on.
struct Work<'a> {
    home: &'a Home,
    request: &'a Request,
    body: &'a Body,
    plan: &'a Plan,
    id: StudyId,
    host: HostId,
    subjects: &'a [Subject],
    builds: &'a [Option<BuildId>],
    notes: &'a SettingsNotes,
    around: Around<'a>,
}

impl Work<'_> {
    fn go_on(&self, store: &mut Store, chosen: &[PlannedRun]) -> Result<Outcome, Error> {
        let around = self.around;
        let began_ms = load::time::unix_ms();
        let heads = store.run_heads(self.id)?;
        let stands = statuses(store, &heads)?;
        let open = to_make(chosen, |run| stands.get(&run.index).copied());
        let open = block::whole_units(self.body, self.plan, open);
        let own = self.own_runs();
        let left = to_make(&own, |run| stands.get(&run.index).copied()).len();
        let finished = own.len().saturating_sub(left);
        (around.observer)(Event::Planned {
            title: &self.request.study.title,
            runs: own.len(),
            finished,
            to_do: open.len(),
            cells: self.plan.cells.len(),
            blocks: self.plan.blocks(),
            seed: self.plan.seed,
            run_length: outline::run_length(self.body),
        });
        if !heads.is_empty() && !open.is_empty() {
            store.add_command(self.id, load::time::unix_ms(), &self.request.command)?;
        }
        if !open.is_empty() {
            self.probe(store)?;
        }
        let mut made = 0;
        let mut ended = None;
        for runs in open.chunk_by(|one, next| one.block == next.block) {
            if around.stop.is_requested() {
                break;
            }
            let mut spare = None;
            // A part says too little to end the whole.
            if let Some(until) = self.body.load.until.filter(|_| self.request.part.is_none()) {
                let since = Some(began_ms);
                match ending::before_block(store, self.id, until, runs[0].block, since, around.observer)? {
                    Next::Ends(why) => {
                        ended = Some(why);
                        break;
                    }
                    Next::Begins { spare: left } => spare = left,
                }
            }
            made += self.make_block(store, runs, spare)?;
        }
        if self.body.load.hot_locks {
            let begun = chosen.iter().filter(|run| ended.is_none_or(|ended| run.block <= ended.blocks()));
            made += self.lock_passes(store, &begun.collect::<Vec<_>>())?;
        }
        let outcome = self.outcome(store, made, ended)?;
        let is_whole = self.request.part.is_none();
        if self.body.load.until.is_some() && is_whole && ended.is_none() && outcome.open() == 0 {
            ending::last_look(store, self.id, self.plan.blocks(), around.observer)?;
        }
        let state = match (around.stop.is_requested(), outcome.open(), outcome.failed) {
            (true, ..) => "interrupted",
            (_, 0, _) if !is_whole => "a part, complete",
            (_, 0, 0) => "complete",
            (_, 0, _) => "complete, with failed runs",
            _ => "unfinished",
        };
        store.set_study_state(self.id, state)?;
        if around.stop.is_requested() { Err(Error::Interrupted) } else { Ok(outcome) }
    }

    /// The runs that are made here, now or by an earlier command.
    fn own_runs(&self) -> Cow<'_, [PlannedRun]> {
        match &self.request.part {
            None => Cow::Borrowed(&self.plan.runs),
            Some(part) => self.plan.runs.iter().filter(|run| part.has(run.block)).cloned().collect(),
        }
    }

    fn outcome(&self, store: &Store, made: usize, ended: Option<Ended>) -> Result<Outcome, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = statuses(store, &heads)?;
        let last = ended.map_or(u32::MAX, Ended::blocks);
        Ok(Outcome { made, ended, ..counted(&self.own_runs(), &stands, last, self.id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_block_that_was_begun_before_the_end_are_not_counted() {
        let run = |index: u32| PlannedRun { index, block: index / 2 + 1, cell: 0, levels: vec![1], seed: 1 };
        let runs: Vec<PlannedRun> = (0..6).map(run).collect();
        // Interrupted in the second block, and then found decided after the first.
        let stands = BTreeMap::from([(0, Status::Done), (1, Status::Invalid), (2, Status::Done)]);
        let early = counted(&runs, &stands, 1, StudyId(1));
        assert_eq!((early.runs, early.done, early.invalid, early.open()), (2, 1, 1, 0));
        let whole = counted(&runs, &stands, u32::MAX, StudyId(1));
        assert_eq!((whole.runs, whole.done, whole.invalid, whole.open()), (6, 2, 1, 3));
    }

    #[test]
    fn what_is_unfinished_comes_first_and_invalid_runs_last() {
        let runs: Vec<PlannedRun> =
            (0..4).map(|index| PlannedRun { index, block: 1, cell: 0, levels: vec![1], seed: 1 }).collect();
        let of = |statuses: [Option<Status>; 4]| -> Vec<u32> {
            to_make(&runs, |run| statuses[run.index as usize]).iter().map(|run| run.index).collect()
        };
        let (done, invalid, failed) = (Some(Status::Done), Some(Status::Invalid), Some(Status::Failed));
        assert_eq!(of([None; 4]), [0, 1, 2, 3]);
        assert_eq!(of([done, invalid, Some(Status::Interrupted), None]), [2, 3]);
        assert_eq!(of([done, invalid, failed, done]), [2]);
        assert_eq!(of([done, invalid, done, done]), [1]);
        assert_eq!(of([done; 4]), [0u32; 0]);
    }
}
