//! Who submits the blocks of a study, takes over what tasks have made, and has lost blocks made again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox::{Build, Home};
use store::{Status, Store, StudyId};

use super::desk::{Desk, Ended, Fleet, Try};
use super::slurm::{self, Queued};
use super::standing::{FleetStanding, Place};
use super::unable::{NodeRecord, Unable};
use super::{Bound, Look, Wishes, task};
use crate::ending::{self, Ended as Early, Next};
use crate::error::Error;
use crate::machine::take_results;
use crate::observe::{Event, Observer};
use crate::plan::{Plan, draw_seed};
use crate::recorded::{statuses, study_row, unfinished};
use crate::stop::StopSwitch;
use crate::study::Body;
use crate::study_run::{Begun, Outcome, Request, begin, outcome, to_make};
use crate::subject::Subject;

/// What a fleet is told beside its study.
#[derive(Debug, Clone)]
pub struct Order {
    pub wishes: Wishes,
    /// Ctrl-C leaves the jobs running, and does not cancel them.
    pub leaves_jobs: bool,
    /// The plimsoll that nodes run: a path that all of them have.
    pub executable: PathBuf,
}

/// How often the directory and the queue are looked at.
const POLL: Duration = Duration::from_secs(2);
/// How often Slurm is asked for its nodes while blocks wait.
const POLL_NODES: Duration = Duration::from_secs(30);
/// Looks at which a task must be missing in the queue before it counts as gone: shared directories and schedulers are late.
const MISSING_LOOKS: u32 = 2;
/// Submissions of a block by one command.
const SUBMISSIONS_MAX: u32 = 3;
/// How long cancelled tasks are waited for.
const CANCEL_WAIT: Duration = Duration::from_secs(45);

/// Makes all blocks of the study that are not recorded yet on nodes of a cluster.
///
/// # Errors
/// The cluster or its nodes cannot do it, the study cannot be begun, or somebody stopped it. Runs that fail are no error.
pub fn run_fleet(
    home: &Home,
    request: &Request,
    order: &Order,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Outcome, Error> {
    let body = request.study.body(request.quick);
    if !request.only.is_empty() || request.part.is_some() {
        return Err(Error::Usage(
            "--only and --block do not go with --on: a fleet makes whole blocks, and all of them".into(),
        ));
    }
    clients_are_possible(&order.wishes, &body)?;
    slurm::commands()?;
    let mut store = Store::open(&request.results)?;
    let _results = take_results(&request.results)?;
    let before = if request.new { None } else { unfinished(&store, request, &body)? };
    // One that is taken up may have tasks under way while slurmctld is down: the cluster is looked at before it is given more.
    if before.is_none() {
        slurm::nodes(&order.wishes)?;
    }
    let begun = begin(home, request, &body, &mut store, before, observer, stop)?;
    if body.load.hot_locks {
        observer(Event::Warning(
            "a fleet makes no passes for hot locks: `plimsoll run` without --on makes them afterwards",
        ));
    }
    let results = absolute(&request.results)?;
    let desk = Desk::of(&results, &request.study.name, begun.id);
    let bound = bound_of(order, &body, &begun, observer);
    let fleet = fleet_of(request, order, &desk, &begun, bound)?;
    let mut row = study_row(request, &body, &begun.plan)?;
    if let Some(known) = store.studies()?.into_iter().find(|record| record.id == begun.id) {
        row = known.study;
    }
    desk.open(&fleet, &row)?;
    let stands = statuses(&store, &store.run_heads(begun.id)?)?;
    let open = to_make(&begun.plan.runs, |run| stands.get(&run.index).copied());
    let before = desk.tries().into_iter().filter(|one| one.ended.is_some()).map(|one| one.dir).collect();
    let mut controller = Controller {
        home,
        subjects: &begun.subjects,
        desk,
        fleet,
        order,
        body: &body,
        plan: &begun.plan,
        id: begun.id,
        results,
        observer,
        wanted: open.iter().map(|run| run.block).collect(),
        settled: BTreeSet::new(),
        taken: BTreeMap::new(),
        unread: BTreeSet::new(),
        missing: BTreeMap::new(),
        submitted: BTreeMap::new(),
        given_up: BTreeSet::new(),
        told: BTreeMap::new(),
        looked_after: 0,
        ended: None,
        shown: FleetStanding::default(),
        before,
        node_record: NodeRecord::default(),
        aside: BTreeMap::new(),
        kept_away: BTreeMap::new(),
        away: (Vec::new(), None),
        made: 0,
    };
    let finished = begun.plan.runs.len() - open.len();
    observer(Event::Planned {
        title: &request.study.title,
        runs: begun.plan.runs.len(),
        finished,
        to_do: open.len(),
        cells: begun.plan.cells.len(),
        blocks: begun.plan.blocks(),
        seed: begun.plan.seed,
        run_length: None,
    });
    controller.go_on(&mut store, stop)
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}

/// How quiet nodes must be; where that is not looked at, it is told why.
fn bound_of(order: &Order, body: &Body, begun: &Begun, observer: Observer<'_>) -> Option<Bound> {
    match Bound::of(&order.wishes, body, &begun.plan, &begun.subjects) {
        Ok(bound) => Some(bound),
        Err(why) => {
            observer(Event::Doing(&format!("nodes are not calibrated: {why}")));
            None
        }
    }
}

/// Refuses nodes for clients that the study does not have.
fn clients_are_possible(wishes: &Wishes, body: &Body) -> Result<(), Error> {
    let (nodes, clients) = (wishes.client_nodes.unwrap_or(0), body.load.clients);
    let refuse = |why: String| Err(Error::Usage(format!("--client-nodes {nodes}: {why}")));
    if nodes == 0 {
        return Ok(());
    }
    if clients < 2 {
        return refuse(
            "the study has one client: `clients` in [load] says how many share the sessions".into(),
        );
    }
    if nodes > clients {
        return refuse(format!("the study has {clients} clients: ask for as many nodes or fewer"));
    }
    if body.axes.replicas.iter().any(|choice| !choice.servers.is_empty()) {
        return refuse("replicas follow a server on its own machine: leave one of the two out".into());
    }
    Ok(())
}

/// What the tasks are told: the fleet that there is, with the wishes of this command, or a new one.
fn fleet_of(
    request: &Request,
    order: &Order,
    desk: &Desk,
    begun: &Begun,
    bound: Option<Bound>,
) -> Result<Fleet, Error> {
    let name = &request.study.name;
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' }).collect();
    let jobs = match desk.fleet() {
        Ok(known) => known.jobs,
        Err(_) => format!("plimsoll-{plain}-{:08x}", draw_seed() as u32),
    };
    let wishes = order.wishes.clone();
    Ok(Fleet {
        study: begun.id.0,
        name: name.clone(),
        study_file: absolute(&request.study.path)?,
        quick: request.quick,
        version: request.version.clone(),
        jobs,
        nodes: wishes.nodes,
        partition: wishes.partition,
        constraint: wishes.constraint,
        time_limit_s: wishes.time_limit.map(|limit| limit.as_secs()),
        calibrate_s: wishes.calibrate.map(|budget| budget.as_secs()),
        client_nodes: wishes.client_nodes,
        noise_max: wishes.noise_max,
        bound,
        builds: begun
            .subjects
            .iter()
            .filter_map(Subject::build)
            .map(|build| (build.name(), build.identity.clone()))
            .collect(),
    })
}

/// What a try has made.
#[derive(Default)]
struct Imported {
    /// Its block's timed runs that came to an end.
    ended: usize,
    /// Why the first of its runs failed.
    failure: Option<String>,
}

struct Controller<'a> {
    home: &'a Home,
    subjects: &'a [Subject],
    desk: Desk,
    fleet: Fleet,
    order: &'a Order,
    body: &'a Body,
    plan: &'a Plan,
    id: StudyId,
    /// Absolute.
    results: PathBuf,
    observer: Observer<'a>,
    /// Blocks that this command makes.
    wanted: BTreeSet<u32>,
    /// Those of them that are made.
    settled: BTreeSet<u32>,
    /// Tries whose runs are taken over, and whether they had ended: one whose node was lost may go on.
    taken: BTreeMap<PathBuf, bool>,
    /// Tries whose results files could not be read yet.
    unread: BTreeSet<PathBuf>,
    /// Blocks that were neither in the queue nor made, and at how many looks in a row.
    missing: BTreeMap<u32, u32>,
    submitted: BTreeMap<u32, u32>,
    /// Blocks that had all their submissions.
    given_up: BTreeSet<u32>,
    /// What was told of each block last.
    told: BTreeMap<u32, String>,
    /// Blocks that there were at the last look at the verdicts.
    looked_after: usize,
    ended: Option<Early>,
    shown: FleetStanding,
    /// Tries that earlier commands have seen the end of: a node that could not do it then is asked again.
    before: BTreeSet<PathBuf>,
    /// What came of blocks that this command has seen the end of.
    node_record: NodeRecord,
    /// Nodes that get no more blocks, and why.
    aside: BTreeMap<String, String>,
    /// From how many of them each job that waits is kept away.
    kept_away: BTreeMap<u64, usize>,
    /// Nodes that take no job, as they were told last, and when Slurm was asked for them.
    away: (Vec<String>, Option<Instant>),
    /// Runs that were taken over.
    made: usize,
}

impl Controller<'_> {
    fn go_on(&mut self, store: &mut Store, stop: &StopSwitch) -> Result<Outcome, Error> {
        let mut queue_error: Option<String> = None;
        let mut is_looked_at = false;
        loop {
            let queue = match slurm::queue(&self.fleet.jobs) {
                Ok(queue) => {
                    queue_error = None;
                    Some(queue)
                }
                // What cannot be asked is not gone: slurmctld may be down for a while.
                Err(error) => {
                    if queue_error.is_none() {
                        let text = format!("the queue cannot be asked, and is asked again: {error}");
                        (self.observer)(Event::Warning(&text));
                    }
                    queue_error = Some(error.to_string());
                    None
                }
            };
            // After the queue: a task that is not in it any more has said how it ended.
            let tries = self.desk.tries();
            self.take_over(store, queue.as_deref(), &tries)?;
            self.show(queue.as_deref(), &tries, queue_error.clone());
            if stop.is_requested() {
                return self.leave(store);
            }
            self.keep_away(queue.as_deref().unwrap_or_default());
            self.look_for_an_end(store, queue.as_deref())?;
            if self.is_over(queue.as_deref()) {
                return self.conclude(store);
            }
            if let Some(queue) = &queue {
                let due = self.due(queue);
                if !due.is_empty() {
                    if !is_looked_at && queue.is_empty() {
                        self.look_at_nodes()?;
                    }
                    is_looked_at = true;
                    self.submit(&due)?;
                }
            }
            wait(POLL, stop);
        }
    }

    /// Asks nodes whether they can do it, before anything is measured.
    fn look_at_nodes(&self) -> Result<(), Error> {
        let wishes = self.fleet.wishes();
        slurm::nodes(&wishes)?;
        let nodes = wishes.nodes.unwrap_or(1);
        (self.observer)(Event::Doing(&format!(
            "looking at {}, as soon as the cluster gives {}",
            store::counted(nodes, "node"),
            if nodes == 1 { "one" } else { "them" }
        )));
        let mut said = self.ask_nodes(nodes, &wishes)?;
        if self.hand_builds(&task::looks(&said))? {
            said = self.ask_nodes(nodes, &wishes)?;
        }
        let odd = task::judge(&said, &self.fleet, &self.desk, nodes, load::time::unix_ms())?;
        odd.iter().for_each(|text| (self.observer)(Event::Warning(text)));
        Ok(())
    }

    /// What so many nodes say of themselves.
    fn ask_nodes(&self, nodes: u32, wishes: &Wishes) -> Result<String, Error> {
        let executable = self.order.executable.display().to_string();
        let desk = self.desk.path().display().to_string();
        let command = [executable, "fleet".to_owned(), "look".to_owned(), desk];
        slurm::everywhere(&format!("{}-look", self.fleet.jobs), nodes, &command, wishes).map_err(|error| {
            Error::Server(format!(
                "{error}\nthe nodes could not be looked at: {} must be there on each of them, at the same path",
                self.order.executable.display()
            ))
        })
    }

    /// Lays builds that nodes lack where they can take them; whether there are any.
    fn hand_builds(&self, looks: &[Look]) -> Result<bool, Error> {
        let lacking: Vec<&Look> = looks.iter().filter(|look| !look.lacks.is_empty()).collect();
        if lacking.is_empty() {
            return Ok(false);
        }
        for look in &lacking {
            (self.observer)(Event::Doing(&format!("{} lacks {}", look.node, look.lacks.join(", "))));
        }
        let is_lacked = |name: &String| lacking.iter().any(|look| look.lacks.contains(name));
        let builds = self.subjects.iter().filter_map(Subject::build);
        let builds: Vec<&Build> = builds.filter(|build| is_lacked(&build.name())).collect();
        let by_themselves = self.desk.pack(self.home, &builds)?;
        for name in &by_themselves {
            (self.observer)(Event::Warning(&format!(
                "{name} cannot be handed to nodes, its files are not in {}: those that lack it must get it by themselves",
                self.home.path().display()
            )));
        }
        Ok(builds.len() > by_themselves.len())
    }

    /// Blocks that have to be submitted now.
    fn due(&mut self, queue: &[Queued]) -> BTreeSet<u32> {
        let mut due = BTreeSet::new();
        if self.ended.is_some() {
            return due;
        }
        let open: Vec<u32> =
            self.wanted.iter().filter(|block| !self.settled.contains(block)).copied().collect();
        for block in open {
            if self.given_up.contains(&block) {
                continue;
            }
            if queue.iter().any(|task| task.task == block) {
                self.missing.insert(block, 0);
                continue;
            }
            let missing = self.missing.entry(block).or_default();
            *missing += 1;
            let submitted = self.submitted.get(&block).copied().unwrap_or(0);
            if submitted == 0 {
                due.insert(block);
            } else if *missing > MISSING_LOOKS {
                if submitted < SUBMISSIONS_MAX {
                    due.insert(block);
                } else {
                    self.given_up.insert(block);
                    let text = format!(
                        "block {block} was lost {submitted} times and is given up: the same command tries again"
                    );
                    (self.observer)(Event::Warning(&text));
                }
            }
        }
        due
    }

    fn submit(&mut self, blocks: &BTreeSet<u32>) -> Result<(), Error> {
        let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        let script = format!(
            "#!/bin/sh\nexec {} fleet task {}\n",
            quoted(&self.order.executable),
            quoted(self.desk.path())
        );
        let output = self.desk.log().join("%A_%a.out");
        let array = slurm::Array {
            name: &self.fleet.jobs,
            tasks: blocks,
            output: &output,
            script: &script,
            aside: &self.nodes_aside(),
        };
        let mut wishes = self.fleet.wishes();
        // The first block of a node has its calibration before it.
        let before = self.fleet.bound.as_ref().map_or(0, |bound| bound.budget_s);
        wishes.time_limit = wishes.time_limit.map(|limit| limit + Duration::from_secs(before));
        let job = slurm::submit(&array, &wishes)?;
        self.kept_away.insert(job, self.aside.len());
        for block in blocks {
            *self.submitted.entry(*block).or_default() += 1;
            self.missing.insert(*block, 0);
        }
        let what = store::counted(blocks.len(), "block");
        (self.observer)(Event::Doing(&format!("submitted {what} as job {job}")));
        Ok(())
    }

    /// Takes over what tries have made that are over.
    fn take_over(&mut self, store: &mut Store, queue: Option<&[Queued]>, tries: &[Try]) -> Result<(), Error> {
        for (at, one) in tries.iter().enumerate() {
            if self.taken.get(&one.dir) == Some(&one.ended.is_some()) {
                continue;
            }
            let started = &one.started;
            let has_newer = tries[at + 1..].iter().any(|later| later.started.block == started.block);
            let is_queued = queue.is_none_or(|queue| {
                queue.iter().any(|task| (task.job, task.task) == (started.job, started.block))
            });
            let is_gone =
                !is_queued && self.missing.get(&started.block).is_none_or(|looks| *looks >= MISSING_LOOKS);
            if one.ended.is_none() && !has_newer && !is_gone {
                continue;
            }
            self.take(store, one)?;
        }
        Ok(())
    }

    fn take(&mut self, store: &mut Store, one: &Try) -> Result<(), Error> {
        self.taken.insert(one.dir.clone(), one.ended.is_some());
        let (block, node) = (one.started.block, &one.started.node);
        let ended = one.ended.clone().unwrap_or_default();
        if let Some(why) = ended.refused {
            // What one node refuses for good the others would.
            let _ = slurm::cancel(&self.fleet.jobs, false);
            return Err(Error::Usage(why));
        }
        if let Some(why) = &ended.set_aside {
            if self.before.contains(&one.dir) {
                return Ok(());
            }
            // It was not tried.
            if let Some(submitted) = self.submitted.get_mut(&block) {
                *submitted = submitted.saturating_sub(1);
            }
            return self.set_aside(store, node, why);
        }
        let Imported { ended: ended_runs, failure } = match Store::open_read_only(&one.dir) {
            Ok(from) => self.import(store, &from, one)?,
            // It ended before it had one, or before anything stood in it.
            Err(store::Error::Missing { .. } | store::Error::Foreign { .. }) => Imported::default(),
            // A full directory, for one, lets nobody read a file that is being written: it is looked at again.
            Err(error) => {
                self.taken.remove(&one.dir);
                if self.unread.insert(one.dir.clone()) {
                    let text = format!("{error}; it is looked at again");
                    (self.observer)(Event::Warning(&text));
                }
                return Ok(());
            }
        };
        if !self.before.contains(&one.dir) {
            let came_to_nothing = ended.error.as_deref().or(failure.as_deref());
            match came_to_nothing.filter(|_| ended.done + ended.invalid == 0) {
                Some(why) => self.node_record.failed(node, block, why),
                None if ended.done + ended.invalid > 0 => self.node_record.made(node),
                None => {}
            }
        }
        let said =
            |ended: &Ended| ended.is_whole() && ended_runs >= ended.done + ended.invalid + ended.failed;
        let is_whole = one.ended.as_ref().is_some_and(said);
        let of_block = self.plan.runs.iter().filter(|run| run.block == block).count();
        if is_whole || ended_runs >= of_block {
            self.settled.insert(block);
            let runs = store::counted(ended_runs, "run");
            let is_good = one.ended.is_none() || ended.done + ended.invalid > 0;
            let what = if is_good { "was made" } else { "came to nothing" };
            (self.observer)(Event::Doing(&format!("block {block} {what} on {node}, {runs}")));
        } else if self.wanted.contains(&block) && !self.settled.contains(&block) {
            let why = match (ended.error, ended.is_interrupted) {
                (Some(error), _) => format!(": {error}"),
                (None, true) => ": it was stopped".to_owned(),
                (None, false) => String::new(),
            };
            let text = format!(
                "block {block} was lost on {node} after {ended_runs} of {}{why}; it is made again",
                store::counted(of_block, "run")
            );
            (self.observer)(Event::Warning(&text));
        }
        while let Some(Unable { node, blocks, why }) = self.node_record.unable() {
            // They have not been made, and were no failures of theirs.
            for block in blocks {
                self.settled.remove(&block);
                self.given_up.remove(&block);
                self.submitted.remove(&block);
            }
            self.set_aside(store, &node, &why)?;
        }
        Ok(())
    }

    /// A node is too noisy, or cannot do what others can: what it was given is made elsewhere.
    fn set_aside(&mut self, store: &mut Store, node: &str, why: &str) -> Result<(), Error> {
        if self.aside.insert(node.to_owned(), why.to_owned()).is_some() {
            return Ok(());
        }
        let text = format!("{node} is set aside: {why}; its blocks are made on other nodes");
        (self.observer)(Event::Warning(&text));
        let known = store.studies()?.into_iter().find(|record| record.id == self.id);
        let is_noted = known.is_some_and(|record| record.notes.iter().any(|(_, note)| *note == text));
        if !is_noted {
            store.add_note(self.id, load::time::unix_ms(), &text)?;
        }
        let wishes = Wishes { nodes: None, ..self.fleet.wishes() };
        // Where Slurm cannot be asked now, blocks that nobody may make wait in its queue.
        let are_all_aside =
            slurm::nodes(&wishes).is_ok_and(|nodes| nodes.iter().all(|node| self.aside.contains_key(node)));
        if !are_all_aside {
            return Ok(());
        }
        let _ = slurm::cancel(&self.fleet.jobs, false);
        store.set_study_state(self.id, "unfinished")?;
        Err(Error::Run(
            "no node is left that is quiet enough: raise noise_max (--noise-max), give the study more blocks or longer \
             ones, or take the nodes as they are (--calibrate 0s)"
                .into(),
        ))
    }

    fn nodes_aside(&self) -> BTreeSet<String> {
        self.aside.keys().cloned().collect()
    }

    /// Has what waits of jobs that were submitted before a node was set aside made on others.
    fn keep_away(&mut self, queue: &[Queued]) {
        let waiting = queue.iter().filter(|task| task.state == slurm::State::Waiting).map(|task| task.job);
        for job in waiting.collect::<BTreeSet<u64>>() {
            if self.aside.is_empty() || self.kept_away.get(&job) == Some(&self.aside.len()) {
                continue;
            }
            // A task that is begun on such a node all the same says so again at once.
            if let Err(error) = slurm::keep_away(job, &self.nodes_aside()) {
                (self.observer)(Event::Warning(&format!(
                    "job {job} cannot be kept away from nodes that are set aside: {error}"
                )));
            }
            self.kept_away.insert(job, self.aside.len());
        }
    }

    /// Takes over the runs of a try, with their logs.
    fn import(&mut self, store: &mut Store, from: &Store, one: &Try) -> Result<Imported, Error> {
        let Some(its) = from.studies()?.first().map(|record| record.id) else {
            return Ok(Imported::default());
        };
        let name = one.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let moved = |file: &str| {
            let of = file.strip_prefix("logs/").unwrap_or(file).replace('/', "_");
            format!("logs/{name}-{of}")
        };
        let heads = from.run_heads(its)?;
        let _ = std::fs::create_dir_all(self.results.join("logs"));
        for entry in std::fs::read_dir(one.dir.join("logs")).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            // A log that cannot be copied stays where it is; the run is what counts.
            let _ = std::fs::copy(entry.path(), self.results.join(moved(&file)));
        }
        let imported = store.import(self.id, from, its, &moved)?;
        self.made += imported.runs;
        let ended: BTreeSet<u32> = heads
            .iter()
            .filter(|head| head.start.purpose == store::Purpose::Measure)
            .filter(|head| matches!(head.status, Status::Done | Status::Invalid | Status::Failed))
            .map(|head| head.start.index)
            .collect();
        let failed = heads.into_iter().find(|head| head.status == Status::Failed);
        Ok(Imported { ended: ended.len(), failure: failed.and_then(|head| head.error) })
    }

    /// A study that may be watched is looked at whenever a block has come.
    fn look_for_an_end(&mut self, store: &mut Store, queue: Option<&[Queued]>) -> Result<(), Error> {
        let Some(until) = self.body.load.until.filter(|_| self.ended.is_none()) else { return Ok(()) };
        let made = self.plan.blocks() as usize - self.wanted.len() + self.settled.len();
        if made == self.looked_after {
            return Ok(());
        }
        self.looked_after = made;
        let next = ending::before_block(store, self.id, until, made as u32 + 1, None, self.observer)?;
        if let Next::Ends(ended) = next {
            self.ended = Some(ended);
            (self.observer)(Event::Doing(&format!("{ended}: blocks that wait are not begun")));
            slurm::cancel(&self.fleet.jobs, true)?;
            let running = queue.into_iter().flatten().filter(|task| task.state != slurm::State::Waiting);
            let running: BTreeSet<u32> = running.map(|task| task.task).collect();
            self.wanted.retain(|block| self.settled.contains(block) || running.contains(block));
        }
        Ok(())
    }

    fn is_over(&self, queue: Option<&[Queued]>) -> bool {
        let is_open = |block: &&u32| !self.settled.contains(block) && !self.given_up.contains(block);
        if self.ended.is_some() {
            return queue.is_some_and(|queue| queue.iter().all(|task| self.settled.contains(&task.task)));
        }
        !self.wanted.iter().any(|block| is_open(&block))
    }

    fn show(&mut self, queue: Option<&[Queued]>, tries: &[Try], queue_error: Option<String>) {
        let known = FleetStanding::of(queue.unwrap_or_default(), tries, self.plan.blocks());
        let aside = self.aside.iter().map(|(node, why)| (node.clone(), why.clone()));
        let aside = known.aside.into_iter().chain(aside).collect();
        let now = FleetStanding { queue_error, aside, ..known };
        for (block, node) in now.running() {
            let text = format!("block {block} runs on {node}");
            if self.told.get(&block) != Some(&text) {
                (self.observer)(Event::Doing(&text));
                self.told.insert(block, text);
            }
        }
        let is_waiting = now.blocks.iter().any(|one| matches!(one.place, Place::Waiting(_)));
        if now != self.shown {
            (self.observer)(Event::Fleet(&now));
            self.shown = now;
        }
        if is_waiting {
            self.tell_of_nodes();
        }
    }

    /// Why blocks may wait for ever: nodes that Slurm gives no job. Where it cannot be asked, the queue's error tells that.
    fn tell_of_nodes(&mut self) {
        if self.away.1.is_some_and(|asked| asked.elapsed() < POLL_NODES) {
            return;
        }
        let Ok(away) = slurm::out_of_use(&self.fleet.wishes()) else { return };
        if !away.is_empty() && away != self.away.0 {
            (self.observer)(Event::Warning(&format!(
                "blocks wait, and nodes take no job: {}; `sinfo -R` says why, `scontrol update NodeName=... State=RESUME` \
                 brings a node back",
                away.join(", ")
            )));
        }
        self.away = (away, Some(Instant::now()));
    }

    /// Somebody wants it to end.
    fn leave(&mut self, store: &mut Store) -> Result<Outcome, Error> {
        if self.order.leaves_jobs {
            (self.observer)(Event::Warning(&format!(
                "the jobs go on: `plimsoll fleet attach {0}` watches them again, `plimsoll fleet cancel {0}` ends them",
                self.fleet.name
            )));
            return Err(Error::Interrupted);
        }
        (self.observer)(Event::Doing("cancelling the jobs"));
        slurm::cancel(&self.fleet.jobs, false)?;
        let began = Instant::now();
        while began.elapsed() < CANCEL_WAIT && !slurm::queue(&self.fleet.jobs)?.is_empty() {
            std::thread::sleep(Duration::from_millis(500));
        }
        self.missing.clear();
        let tries = self.desk.tries();
        self.take_over(store, Some(&[]), &tries)?;
        store.set_study_state(self.id, "interrupted")?;
        Err(Error::Interrupted)
    }

    fn conclude(&mut self, store: &mut Store) -> Result<Outcome, Error> {
        let stands = statuses(store, &store.run_heads(self.id)?)?;
        // Blocks come in any order: of a study that ended early those count that were made.
        let is_begun = |block: u32| {
            self.ended.is_none()
                || self.plan.runs.iter().any(|run| run.block == block && stands.contains_key(&run.index))
        };
        let runs: Vec<_> = self.plan.runs.iter().filter(|run| is_begun(run.block)).collect();
        let mut outcome = Outcome { made: self.made, ended: self.ended, ..outcome(&runs, &stands, self.id) };
        let state = match (outcome.open(), outcome.failed) {
            (0, 0) => "complete",
            (0, _) => "complete, with failed runs",
            _ => "unfinished",
        };
        store.set_study_state(self.id, state)?;
        // Blocks that ran when the budget was used up have been made since.
        let made = runs.iter().map(|run| run.block).collect::<BTreeSet<u32>>().len() as u32;
        let is_whole = outcome.open() == 0 && self.body.load.until.is_some();
        match &mut outcome.ended {
            Some(Early::OverBudget { blocks, open }) => {
                (*blocks, *open) = (made, ending::last_look(store, self.id, made, self.observer)?.open);
            }
            None if is_whole => {
                ending::last_look(store, self.id, made, self.observer)?;
            }
            _ => {}
        }
        if self.ended.is_none() && !self.given_up.is_empty() {
            let blocks = store::counted(self.given_up.len(), "block");
            return Err(Error::Run(format!("{blocks} could not be made: the same command tries again")));
        }
        Ok(outcome)
    }
}

/// Waits, but not for somebody who wants to leave.
fn wait(time: Duration, stop: &StopSwitch) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.is_requested() {
        std::thread::sleep(Duration::from_millis(100));
    }
}
