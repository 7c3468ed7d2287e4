//! From a study to the complete, ordered list of its runs. Pure: the same study, seed and servers give the same
//! plan for ever, on every machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use store::INTERVENE;
use store::bundle::sha256;

use crate::duel;
use crate::study::{
    Body, CpusChoice, EnvChoice, Ladder, Length, Pairing, ReplicasChoice, SettingsChoice, StorageChoice,
    WorkloadChoice,
};
use crate::workloads::Resolved;

/// One point of the axes' product, without the load level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Which of the study's servers.
    pub server: usize,
    pub workload_label: String,
    pub workload: Resolved,
    /// All options that the study gives it.
    pub options: BTreeMap<String, String>,
    /// How long a level is measured; `None`: as the study says.
    pub length: Option<Length>,
    pub settings: SettingsChoice,
    /// Storage engine; `None`: the workload's default.
    pub engine: Option<String>,
    /// Place of the data directory.
    pub storage: Option<StorageChoice>,
    pub cpus: Option<CpusChoice>,
    /// Isolation level; `None`: the study's common default.
    pub isolation: Option<String>,
    /// Character set; `None`: the study's common default.
    pub charset: Option<String>,
    /// Environment of the server process.
    pub env: Option<EnvChoice>,
    /// Servers that follow the server.
    pub replicas: Option<ReplicasChoice>,
    /// What is switched on while it is measured, of the values of the axis `intervene`. Cells that differ in nothing else
    /// share the lives of their servers.
    pub intervene: Option<String>,
    /// The options that are axes, as the cell's key names them.
    pub option_axes: Vec<(String, String)>,
}

/// Name of the settings when a study does not vary them.
pub const DEFAULT_SETTINGS: &str = "default";

impl Cell {
    /// What the replicas of its server are; none where there are none.
    pub fn replicas(&self) -> &[Option<String>] {
        self.replicas.as_ref().map_or(&[], |choice| &choice.servers)
    }

    /// What tells this cell from the others of its study: axis and value. `server` is the resolved name.
    pub fn key(&self, server: &str) -> BTreeMap<String, String> {
        let mut key = BTreeMap::new();
        let mut put = |axis: &str, value: &str| key.insert(axis.to_owned(), value.to_owned());
        put("server", server);
        put("workload", &self.workload_label);
        put("settings", if self.settings.label.is_empty() { DEFAULT_SETTINGS } else { &self.settings.label });
        for (axis, value) in [
            ("engine", &self.engine),
            ("isolation", &self.isolation),
            ("charset", &self.charset),
            (INTERVENE, &self.intervene),
        ] {
            if let Some(value) = value {
                put(axis, value);
            }
        }
        if let Some(storage) = &self.storage {
            put("storage", &storage.label);
        }
        if let Some(cpus) = &self.cpus {
            put("cpus", &cpus.label());
        }
        if let Some(env) = &self.env {
            put("env", &env.label);
        }
        if let Some(replicas) = &self.replicas {
            put("replicas", &replicas.label);
        }
        for (name, value) in &self.option_axes {
            put(name, value);
        }
        key
    }
}

/// A cell and one of its runs' load levels, before blocks and order.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    cell: usize,
    levels: Vec<u32>,
}

/// A server of a plan: what a selector meant when the study was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// As the study says it (passwords masked).
    pub selector: String,
    /// `mariadb@10.11.19`, with the study's label where it gives one.
    pub name: String,
    /// The same without the study's label: what finds the build again.
    pub build_name: String,
    /// Identity of the build; for an attached server, of what it says about itself.
    pub build: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Place in the whole plan, from 0.
    pub index: u32,
    /// From 1.
    pub block: u32,
    pub cell: usize,
    /// Session counts: one, or the steps of a climb.
    pub levels: Vec<u32>,
    /// Seed of everything random in the run. The same for all runs of a block, so that they draw alike.
    pub seed: u64,
}

/// The runs of a study in the order in which they are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Decides the order and the seeds of the runs.
    pub seed: u64,
    /// With `--quick`.
    pub quick: bool,
    /// The servers, as resolved.
    pub servers: Vec<Pinned>,
    pub cells: Vec<Cell>,
    pub runs: Vec<PlannedRun>,
    pub workloads: BTreeMap<String, String>,
}

/// What the results file keeps of a plan: enough to make the same one again and to see that it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPlan {
    pub seed: u64,
    pub quick: bool,
    pub servers: Vec<Pinned>,
    pub runs: Vec<PlannedRun>,
    /// The files of workloads, by path as the study names them, with the hash of what was in them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workloads: BTreeMap<String, String>,
}

impl StoredPlan {
    /// Whether this is `before`, or `before` with more blocks.
    pub(crate) fn begins_with(&self, before: &StoredPlan) -> bool {
        let StoredPlan { seed, quick, servers, runs, workloads } = before;
        (&self.seed, &self.quick, &self.servers, &self.workloads) == (seed, quick, servers, workloads)
            && self.runs.starts_with(runs)
    }
}

impl Plan {
    /// Makes the plan: every block is a random order of all cells and, without a climb, of all their levels; runs that are
    /// compared with each other stand together.
    pub fn new(body: &Body, quick: bool, seed: u64, servers: Vec<Pinned>) -> Plan {
        let cells = cells(body);
        let points = points(body, &cells);
        let lives = Lives::of(&cells, points);
        let heads = &lives.heads;
        let groups = body.compare.as_ref().map(|compare| {
            Groups::of(heads, |point| group(&cells[point.cell], &[&compare.axis, INTERVENE], &point.levels))
        });
        let mut runs = Vec::new();
        for block in 1..=body.load.blocks {
            let block_seed = mix(seed ^ u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut order: Vec<&Point> = heads.iter().collect();
            shuffle(&mut order, block_seed);
            if let Some(groups) = &groups {
                order = groups.brought_together(&order, heads, block, seed);
            }
            for point in order.into_iter().flat_map(|head| lives.points(head)) {
                runs.push(PlannedRun {
                    index: runs.len() as u32,
                    block,
                    cell: point.cell,
                    levels: point.levels.clone(),
                    // SQLite and JSON readers have signed integers: stay within 53 bits.
                    seed: mix(block_seed) >> 11,
                });
            }
        }
        Plan { seed, quick, servers, cells, runs, workloads: workload_files(body) }
    }

    pub fn stored(&self) -> StoredPlan {
        StoredPlan {
            seed: self.seed,
            quick: self.quick,
            servers: self.servers.clone(),
            runs: self.runs.clone(),
            workloads: self.workloads.clone(),
        }
    }

    /// The key of a run's cell with its load level; a climb has levels of its own in each run.
    pub fn key(&self, run: &PlannedRun) -> BTreeMap<String, String> {
        let cell = &self.cells[run.cell];
        cell.key(&self.servers[cell.server].name)
    }

    /// What all runs have in common that are compared with each other along `axis` in a block.
    pub(crate) fn group(&self, run: &PlannedRun, axis: &str) -> String {
        group(&self.cells[run.cell], &[axis], &run.levels)
    }

    /// Says so where sides are compared whose servers' lives are not alike: one takes turns with interventions that the
    /// other does not have. `None`: all that is compared is alike, or nothing is.
    pub(crate) fn uneven_lives(&self, body: &Body) -> Option<String> {
        let axis = body.compare.as_ref().map(|compare| &compare.axis).filter(|axis| *axis != INTERVENE)?;
        let lives = Lives::of(&self.cells, points(body, &self.cells));
        let mut compared: BTreeMap<String, (&Cell, BTreeSet<&str>)> = BTreeMap::new();
        for head in &lives.heads {
            let cell = &self.cells[head.cell];
            let members = lives.points(head).iter();
            let states: BTreeSet<&str> =
                members.filter_map(|point| self.cells[point.cell].intervene.as_deref()).collect();
            let sides = group(cell, &[axis, INTERVENE], &head.levels);
            let (first, of_first) = compared.entry(sides).or_insert_with(|| (cell, states.clone()));
            if *of_first == states {
                continue;
            }
            let server = &self.servers[cell.server].name;
            let value =
                |cell: &Cell| cell.key(&self.servers[cell.server].name).remove(axis).unwrap_or_default();
            return Some(format!(
                "`{}` and `{}` are compared ({server}, {}), but the lives of their servers are not alike: the first has {}, \
                 the second {}; servers change as they grow older, so leave the same values of `intervene` to both",
                value(first),
                value(cell),
                cell.workload_label,
                turns(of_first),
                turns(&states),
            ));
        }
        None
    }

    /// Which of the servers a replica's is: they stand after those of the axis.
    pub(crate) fn replica_server(&self, server: &str) -> Option<usize> {
        self.servers.iter().rposition(|pin| pin.selector == server)
    }

    pub fn blocks(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.block)
    }
}

/// All of a cell but its values on some axes, with the load levels.
fn group(cell: &Cell, axes: &[&str], levels: &[u32]) -> String {
    let mut key = cell.key(&cell.server.to_string());
    axes.iter().for_each(|axis| drop(key.remove(*axis)));
    format!("{key:?} {levels:?}")
}

/// What a server is switched between in one life, in words.
fn turns(states: &BTreeSet<&str>) -> String {
    match states.iter().copied().collect::<Vec<_>>().as_slice() {
        [only] => format!("{only} alone"),
        many => format!("{} in turns", many.join(", ")),
    }
}

/// Points that are measured in one life of a server: those that differ in what is switched on in it, and in nothing else.
struct Lives {
    /// The first point of each life.
    heads: Vec<Point>,
    /// All of its points, the first one among them, by cell and levels of the first.
    points: BTreeMap<(usize, Vec<u32>), Vec<Point>>,
}

impl Lives {
    fn of(cells: &[Cell], points: Vec<Point>) -> Lives {
        let mut lives = Lives { heads: Vec::new(), points: BTreeMap::new() };
        let mut known: BTreeMap<String, (usize, Vec<u32>)> = BTreeMap::new();
        for point in points {
            let life = group(&cells[point.cell], &[INTERVENE], &point.levels);
            let head = known.entry(life).or_insert_with(|| {
                lives.heads.push(point.clone());
                (point.cell, point.levels.clone())
            });
            lives.points.entry(head.clone()).or_default().push(point);
        }
        lives
    }

    fn points(&self, head: &Point) -> &[Point] {
        self.points.get(&(head.cell, head.levels.clone())).map_or(&[], Vec::as_slice)
    }
}

/// Which points are compared with each other: each one's group, by number.
struct Groups(Vec<usize>);

impl Groups {
    fn of(points: &[Point], group: impl Fn(&Point) -> String) -> Groups {
        let mut names = Vec::new();
        let number = |point: &Point| {
            let name = group(point);
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        };
        Groups(points.iter().map(number).collect())
    }

    /// The points of a block in the order in which the first of each group comes, the others of its group behind it. Their
    /// own order is drawn, and turned round in every other block (ABBA for two): neither a drift of the machine nor what the
    /// one before leaves behind favours a side.
    fn brought_together<'a>(
        &self,
        order: &[&'a Point],
        points: &'a [Point],
        block: u32,
        seed: u64,
    ) -> Vec<&'a Point> {
        let number = |point: &Point| points.iter().position(|known| known == point).map(|at| self.0[at]);
        let mut seen = Vec::new();
        for group in order.iter().filter_map(|point| number(point)) {
            if !seen.contains(&group) {
                seen.push(group);
            }
        }
        let mut together = Vec::with_capacity(order.len());
        for group in seen {
            let mut members: Vec<&Point> =
                points.iter().zip(&self.0).filter(|(_, of)| **of == group).map(|(point, _)| point).collect();
            let pair_of_blocks = u64::from(block.div_ceil(2));
            shuffle(&mut members, mix(seed ^ mix(group as u64) ^ pair_of_blocks.rotate_left(32)));
            if block.is_multiple_of(2) {
                members.reverse();
            }
            together.extend(members);
        }
        together
    }
}

/// The workloads of a study that were read from files: path and hash of the content.
pub(crate) fn workload_files(body: &Body) -> BTreeMap<String, String> {
    let hash =
        |choice: &WorkloadChoice| Some((choice.name.clone(), choice.workload.content_sha256()?.to_owned()));
    body.axes.workload.iter().filter_map(hash).collect()
}

/// Runs, and cells before anything is excluded, that a plan may have: a hundred thousand runs of ten seconds take
/// twelve days.
pub(crate) const RUNS_MAX: u128 = 100_000;

/// How many cells the axes of a study have, nothing excluded, by arithmetic alone.
pub(crate) fn cells_at_most(body: &Body) -> u128 {
    let axes = &body.axes;
    let many = |len: usize| len.max(1) as u128;
    let plain = [
        axes.settings.len(),
        axes.engine.len(),
        axes.storage.len(),
        axes.cpus.len(),
        axes.isolation.len(),
        axes.charset.len(),
        axes.env.len(),
        axes.replicas.len(),
        axes.interventions().len(),
    ];
    let options = axes.options.iter().map(|(_, values)| many(values.len()));
    let factors = plain.into_iter().map(many).chain(options);
    factors.fold(axes.server.len() as u128 * axes.workload.len() as u128, u128::saturating_mul)
}

/// How many runs the plan of a study has.
pub(crate) fn run_count(body: &Body) -> u128 {
    points(body, &cells(body)).len() as u128 * u128::from(body.load.blocks)
}

/// All cells of a study: the product of its axes without what is excluded at every load level.
pub fn cells(body: &Body) -> Vec<Cell> {
    let axes = &body.axes;
    let mut cells = Vec::new();
    for server in 0..axes.server.len() {
        for workload in &axes.workload {
            let mut options = body.options.clone();
            options.extend(workload.options.clone());
            let known = workload.workload.option_names();
            options.retain(|name, _| known.contains(name));
            cells.push(Cell {
                server,
                workload_label: workload.label.clone(),
                workload: workload.workload.clone(),
                options,
                length: workload.length,
                settings: SettingsChoice::default(),
                engine: None,
                storage: None,
                cpus: None,
                isolation: None,
                charset: None,
                env: None,
                replicas: None,
                intervene: None,
                option_axes: Vec::new(),
            });
        }
    }
    for (name, values) in &axes.options {
        cells = product(cells, values, |cell, value| {
            cell.option_axes.push((name.clone(), value.clone()));
            if cell.workload.option_names().contains(name) {
                cell.options.insert(name.clone(), value.clone());
            }
        });
    }
    cells = product(cells, &axes.settings, |cell, value| cell.settings = value.clone());
    cells = product(cells, &axes.engine, |cell, value| cell.engine = Some(value.clone()));
    cells = product(cells, &axes.storage, |cell, value| cell.storage = Some(value.clone()));
    cells = product(cells, &axes.cpus, |cell, value| cell.cpus = Some(value.clone()));
    cells = product(cells, &axes.isolation, |cell, value| cell.isolation = Some(value.clone()));
    cells = product(cells, &axes.charset, |cell, value| cell.charset = Some(value.clone()));
    cells = product(cells, &axes.env, |cell, value| cell.env = Some(value.clone()));
    cells = product(cells, &axes.replicas, |cell, value| cell.replicas = Some(value.clone()));
    // Last of all, so that those that share a life stand together.
    cells = product(cells, &axes.interventions(), |cell, value| cell.intervene = Some(value.clone()));
    cells.retain(|cell| axes.ladder.levels().iter().any(|&level| !is_excluded(body, cell, level)));
    cells
}

fn product<T>(cells: Vec<Cell>, values: &[T], put: impl Fn(&mut Cell, &T)) -> Vec<Cell> {
    if values.is_empty() {
        return cells;
    }
    let mut all = Vec::with_capacity(cells.len() * values.len());
    for cell in cells {
        for value in values {
            let mut cell = cell.clone();
            put(&mut cell, value);
            all.push(cell);
        }
    }
    all
}

fn points(body: &Body, cells: &[Cell]) -> Vec<Point> {
    let mut points = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let levels: Vec<u32> = body
            .axes
            .ladder
            .levels()
            .iter()
            .copied()
            .filter(|&level| !is_excluded(body, cell, level))
            .collect();
        match body.axes.ladder {
            Ladder::Climb(_) => points.push(Point { cell: index, levels }),
            Ladder::Sessions(_) => {
                points.extend(levels.into_iter().map(|level| Point { cell: index, levels: vec![level] }));
            }
        }
    }
    points
}

fn is_excluded(body: &Body, cell: &Cell, level: u32) -> bool {
    let choice = &body.axes.server[cell.server];
    let mut key = cell.key(&choice.server);
    key.insert("sessions".into(), level.to_string());
    let matches = |axis: &String, values: &Vec<String>| {
        if axis == "server" {
            let labelled = choice.label.as_ref().map(|label| format!("{}+{label}", choice.server));
            return match &choice.label {
                Some(label) => values.contains(label) || values.contains(&labelled.unwrap_or_default()),
                None => values.contains(&choice.server),
            };
        }
        key.get(axis).is_some_and(|value| values.contains(value))
    };
    body.excludes.iter().any(|exclude| exclude.0.iter().all(|(axis, values)| matches(axis, values)))
}

/// Hash of all that decides what a study measures and how it is judged. Comments, spaces, title and question do
/// not count; the length of slices does where there are duels, for lives of longer ones are no repeats of these.
pub fn fingerprint(body: &Body, quick: bool) -> String {
    let text = match body.load.pairing {
        Pairing::Duel => serde_json::to_string(&(body, quick, duel::SLICE)),
        Pairing::Adjacent => serde_json::to_string(&(body, quick)),
    };
    let text = text.unwrap_or_default();
    sha256(text.as_bytes())[..32].to_owned()
}

/// SplitMix64's output function. Our own few lines, because a recorded seed must give the same order with every
/// later release, which no random-number crate promises.
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fisher and Yates, without modulo bias (Lemire's multiplication with rejection).
pub(crate) fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(state)
    };
    for i in (1..items.len()).rev() {
        let bound = i as u64 + 1;
        let j = loop {
            let wide = u128::from(next()) * u128::from(bound);
            if wide as u64 >= bound.wrapping_neg() % bound {
                break (wide >> 64) as usize;
            }
        };
        items.swap(i, j);
    }
}

/// A seed for a study that gives none.
pub fn draw_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // RandomState is seeded by the system; 53 bits so that every reader of JSON keeps it whole.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 11
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn body(text: &str) -> Body {
        let head = "title = \"t\"\nquestion = \"q\"\n";
        let study = crate::study::parse(Path::new("s.toml"), &format!("{head}{text}"));
        study.unwrap_or_else(|error| panic!("{error}")).body(false)
    }

    fn servers(count: usize) -> Vec<Pinned> {
        let pin = |n: usize| Pinned {
            selector: format!("s{n}"),
            name: format!("mariadb@10.{n}"),
            build_name: format!("mariadb@10.{n}"),
            build: format!("{n:x}"),
        };
        (0..count).map(pin).collect()
    }

    const TWO_BY_TWO: &str = "
        [axes]
        server = [\"mariadb\", \"postgres\"]
        workload = [\"oltp_read_only\", \"oltp_read_write\"]
        sessions = [1, 8, 64]
        [load]
        blocks = 4
    ";

    #[test]
    fn every_block_has_every_cell_and_level_once() {
        let plan = Plan::new(&body(TWO_BY_TWO), false, 7, servers(2));
        assert_eq!((plan.cells.len(), plan.runs.len(), plan.blocks()), (4, 48, 4));
        for block in 1..=4 {
            let points: BTreeSet<(usize, u32)> = plan
                .runs
                .iter()
                .filter(|run| run.block == block)
                .map(|run| (run.cell, run.levels[0]))
                .collect();
            assert_eq!(points.len(), 12);
        }
        let indexes: Vec<u32> = plan.runs.iter().map(|run| run.index).collect();
        assert_eq!(indexes, (0..48).collect::<Vec<u32>>());
    }

    #[test]
    fn the_seed_decides_the_order_and_blocks_differ() {
        let of = |seed| Plan::new(&body(TWO_BY_TWO), false, seed, servers(2));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7).runs, of(8).runs);
        let order = |plan: &Plan, block| -> Vec<(usize, u32)> {
            plan.runs.iter().filter(|run| run.block == block).map(|run| (run.cell, run.levels[0])).collect()
        };
        let plan = of(7);
        assert_ne!(order(&plan, 1), order(&plan, 2));
        let seeds: BTreeSet<u64> = plan.runs.iter().map(|run| run.seed).collect();
        assert_eq!(seeds.len(), 4, "one seed for each block");
        assert!(seeds.iter().all(|seed| *seed < 1 << 53));
    }

    #[test]
    fn a_recorded_seed_gives_the_same_order_for_ever() {
        let plan = Plan::new(&body(TWO_BY_TWO), false, 42, servers(2));
        let first: Vec<(usize, u32)> =
            plan.runs.iter().take(6).map(|run| (run.cell, run.levels[0])).collect();
        insta::assert_debug_snapshot!((first, plan.runs[0].seed));
    }

    #[test]
    fn orders_are_not_biased() {
        let mut first = [0u32; 4];
        for seed in 0..4000 {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut items, mix(seed));
            first[items[0]] += 1;
        }
        // Binomial with n = 4000 and p = 1/4: six standard deviations are 164.
        assert!(first.iter().all(|&count| count.abs_diff(1000) < 164), "{first:?}");
    }

    #[test]
    fn runs_that_are_compared_stand_together_and_turn_round_in_the_next_block() {
        let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = [\"tps\"]";
        let plan = Plan::new(&body(&format!("{TWO_BY_TWO}{compare}")), false, 7, servers(2));
        let mut firsts = BTreeMap::new();
        for pair in plan.runs.chunks(2) {
            let [one, other] = pair else { panic!("an odd number of runs") };
            assert_eq!(plan.group(one, "server"), plan.group(other, "server"));
            assert_ne!(one.cell, other.cell);
            firsts
                .entry(plan.group(one, "server"))
                .or_insert_with(Vec::new)
                .push(plan.cells[one.cell].server);
        }
        assert_eq!(firsts.len(), 6);
        for firsts in firsts.values() {
            assert!(firsts.len() == 4 && firsts.chunks(2).all(|two| two[0] != two[1]), "{firsts:?}");
        }
        let groups = |block| -> Vec<String> {
            plan.runs.iter().filter(|run| run.block == block).map(|run| plan.group(run, "server")).collect()
        };
        assert_ne!(groups(1), groups(2), "the groups are in random order");
    }

    #[test]
    fn a_climb_is_one_run_of_ordered_steps() {
        let body = body(&TWO_BY_TWO.replace("sessions = [1, 8, 64]", "climb = [1, 8, 64]"));
        let plan = Plan::new(&body, false, 7, servers(2));
        assert_eq!(plan.runs.len(), 16);
        assert!(plan.runs.iter().all(|run| run.levels == [1, 8, 64]));
    }

    #[test]
    fn excludes_leave_out_cells_and_levels() {
        let text = format!(
            "{TWO_BY_TWO}\n[[exclude]]\nserver = \"postgres\"\nworkload = \"oltp_read_only\"\n[[exclude]]\nserver = \"mariadb\"\nsessions = 64"
        );
        let plan = Plan::new(&body(&text), false, 7, servers(2));
        assert_eq!(plan.cells.len(), 3);
        assert_eq!(plan.runs.len(), 4 * (2 * 2 + 3));
    }

    #[test]
    fn options_on_an_axis_stand_in_the_key_and_reach_the_workload() {
        let text = TWO_BY_TWO
            .replace("[load]", "options = { table_size = [1000, 5000] }\n[options]\ntables = 2\n[load]");
        let plan = Plan::new(&body(&text), false, 7, servers(2));
        assert_eq!(plan.cells.len(), 8);
        let sizes: BTreeSet<String> =
            plan.cells.iter().map(|cell| cell.options["table_size"].clone()).collect();
        assert_eq!(sizes, BTreeSet::from(["1000".to_owned(), "5000".to_owned()]));
        assert_eq!(
            plan.key(&plan.runs[0]).keys().map(String::as_str).collect::<Vec<_>>(),
            ["server", "settings", "table_size", "workload"]
        );
        assert!(plan.cells.iter().all(|cell| cell.options["tables"] == "2"));
    }

    const INTERVENED: &str = "
        [axes]
        server = \"mariadb\"
        workload = \"oltp_read_only\"
        settings = [\"default\", { name = \"binlog\", logging = \"binlog\" }]
        [[intervene]]
        name = \"log\"
        on = \"SET GLOBAL general_log = ON\"
        off = \"SET GLOBAL general_log = OFF\"
        [compare]
        axis = \"settings\"
        base = \"default\"
    ";

    #[test]
    fn sides_whose_lives_are_not_alike_are_told() {
        let told = |text: &str| {
            let body = body(text);
            Plan::new(&body, false, 7, servers(1)).uneven_lives(&body)
        };
        assert_eq!(told(INTERVENED), None);
        assert_eq!(told(TWO_BY_TWO), None);
        let one_alone = "[[exclude]]\nsettings = \"binlog\"\nintervene = \"log\"";
        let text = told(&format!("{INTERVENED}{one_alone}")).expect("a note");
        assert!(text.contains("none alone") && text.contains("log, none in turns"), "{text}");
        let both = "[[exclude]]\nintervene = \"log\"";
        assert_eq!(told(&format!("{INTERVENED}{both}")), None);
    }

    #[test]
    fn the_fingerprint_is_of_the_meaning() {
        let one = body(TWO_BY_TWO);
        let same = body(&format!("# a remark\n{TWO_BY_TWO}\n\n"));
        let other = body(&TWO_BY_TWO.replace("blocks = 4", "blocks = 5"));
        assert_eq!(fingerprint(&one, false), fingerprint(&same, false));
        assert_ne!(fingerprint(&one, false), fingerprint(&one, true));
        assert_ne!(fingerprint(&one, false), fingerprint(&other, false));
        let of_text =
            |body: &Body| sha256(serde_json::to_string(&(body, false)).unwrap().as_bytes())[..32].to_owned();
        let mut duel = one.clone();
        duel.load.pairing = Pairing::Duel;
        assert_eq!(fingerprint(&one, false), of_text(&one), "studies without duels go on as they were begun");
        assert_ne!(fingerprint(&duel, false), of_text(&duel), "those of longer slices are others");
    }
}
