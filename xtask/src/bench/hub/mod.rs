//! What readers of a hub wait for, at 10,000 bundles: the first screen of each kind of page, one by one, and a mix of all
//! pages and files at 200 requests a second from SQLite. The hub is the command, on this machine; metadata are made.

mod made;
mod readers;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hub::Place;
use stats::rng::Rng;

use self::made::World;
use self::readers::{Asked, Sample, Vegeta};
use super::lab::{Server, cpu_of};
use super::told;

const FIRST_SCREEN_MS_MAX: f64 = 200.0;
const MIX_P99_MS_MAX: f64 = 100.0;
const SEED: u64 = 22;

/// A kind of page.
struct Kind {
    name: &'static str,
    /// Of a hundred requests of the mix.
    share: usize,
    /// What stands in braces is drawn.
    path: &'static str,
}

const KINDS: [Kind; 20] = [
    Kind { name: "list", share: 20, path: "/" },
    Kind { name: "list, older ones", share: 4, path: "/search?page={page}" },
    Kind { name: "study", share: 20, path: "/bundle/{id}" },
    Kind { name: "claim", share: 14, path: "/claim/{claim}" },
    Kind { name: "compare", share: 5, path: "/compare?with={id}&with={sibling}" },
    Kind { name: "history", share: 5, path: "/history/{flavor}/{metric}" },
    Kind { name: "host", share: 6, path: "/host/{host}" },
    Kind { name: "server", share: 6, path: "/server/{server}" },
    Kind { name: "report", share: 6, path: "/bundle/{with_files}/report" },
    Kind { name: "bundle", share: 2, path: "/bundle/{with_files}/file" },
    Kind { name: "style", share: 4, path: "/hub.css" },
    Kind { name: "script of charts", share: 2, path: "/charts.js" },
    Kind { name: "places", share: 2, path: "/places" },
    Kind { name: "search, common", share: 4, path: "/search?q=mariadb+oltp" },
    Kind { name: "search, one study", share: 3, path: "/search?q={study}" },
    Kind { name: "search, nothing", share: 1, path: "/search?q=nothing{number}" },
    Kind { name: "feed", share: 4, path: "/feed.atom" },
    Kind { name: "JSON, list", share: 2, path: "/api/v1/front" },
    Kind { name: "JSON, study", share: 2, path: "/api/v1/bundles/{id}" },
    Kind { name: "JSON, history", share: 2, path: "/api/v1/history/{flavor}/tps" },
];

impl Kind {
    /// The path of one of its pages, of a bundle that is drawn where it is of one.
    fn path(&self, world: &World, rng: &mut Rng) -> String {
        let mut bundle = None;
        let parts = self.path.split_inclusive('}').map(|part| {
            let Some((text, mark)) = part.split_once('{') else { return part.to_owned() };
            let value = match mark.trim_end_matches('}') {
                "page" => (1 + rng.below(world.bundles.len().div_ceil(50))).to_string(),
                "number" => rng.below(1000).to_string(),
                "metric" => ["tps", "p95", "p99"][rng.below(3)].to_owned(),
                "with_files" => world.with_files()[rng.below(world.with_files().len())].id.clone(),
                mark => {
                    let of = *bundle.get_or_insert_with(|| &world.bundles[rng.below(world.bundles.len())]);
                    match mark {
                        "id" => of.id.clone(),
                        "claim" => world.claim_id(of, rng),
                        "sibling" => world.sibling(of, rng).id.clone(),
                        "flavor" => world.flavor(of).to_owned(),
                        "host" => world.fingerprint(of).to_owned(),
                        "server" => world.server(of).to_owned(),
                        _ => world.study_name(of).to_owned(),
                    }
                }
            };
            format!("{text}{value}")
        });
        parts.collect()
    }
}

#[derive(clap::Parser)]
struct Arguments {
    #[arg(long, default_value_t = 10_000)]
    bundles: usize,
    /// `sqlite`, `postgres[@VERSION]`, or a URL.
    #[arg(long, default_value = "sqlite")]
    db: String,
    #[arg(long, default_value_t = 100)]
    requests: usize,
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    #[arg(long, default_value_t = 90.0)]
    seconds: f64,
}

pub(super) fn run(words: &[&str]) -> Result<bool> {
    let asked: Arguments = crate::asked("bench hub", words);
    let is_sound = asked.bundles > 0 && asked.requests > 0 && asked.rate > 0.0 && asked.seconds > 0.0;
    ensure!(is_sound, "none of these is nothing: --bundles, --requests, --rate, --seconds");
    let vegeta = Vegeta::find()?;
    let plimsoll = crate::plimsoll()?;
    let folder = tempfile::tempdir()?;
    // Dropped last: the hub's own database server.
    let mut server = None;
    let db = match &*asked.db {
        "sqlite" => format!("sqlite:{}", folder.path().join("hub.db").display()),
        url if url.contains("://") => url.to_owned(),
        selector => server.insert(Server::deploy(&plimsoll, selector)?).url_of("postgres"),
    };
    let place: Place = db.parse().map_err(|why: String| anyhow::anyhow!("--db: {why}"))?;
    let world = World::new(asked.bundles, SEED)?;
    let began = Instant::now();
    hub::list_made(&place, world.made())?;
    println!("{} bundles listed in {:.0} s, {}", asked.bundles, began.elapsed().as_secs_f64(), state(&place));
    world.keep_files(&folder.path().join("bundles"))?;
    let hub = Hub::start(&plimsoll, &db, folder.path())?;
    let are_quick = one_by_one(&hub, &world, asked.requests)?;
    let requests = drawn(&hub, &world, &asked)?;
    let read = || vegeta.read(&requests, asked.rate, folder.path());
    let is_held = mix(&hub, &requests, &place, &asked, read)?;
    let is_reached = are_quick && (is_held || !matches!(place, Place::Sqlite(_)));
    told(is_reached)
}

/// What else a reader of the figures has to know.
fn state(place: &Place) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let size = match place {
        Place::Sqlite(path) => std::fs::metadata(path).map_or(0, |file| file.len()) >> 20,
        Place::Postgres(_) => 0,
    };
    let size = if size > 0 { format!("{size} MiB of SQLite") } else { place.to_string() };
    format!("{size}; {cpus} cpus, load averages {}", load.join(" "))
}

/// The first screen is a page and nothing else: no script, and a style that a browser keeps.
fn one_by_one(hub: &Hub, world: &World, requests: usize) -> Result<bool> {
    println!(
        "\nfirst screen, ms          median      p99  longest      KiB  (p99 below {FIRST_SCREEN_MS_MAX})"
    );
    let agent = readers::agent();
    let (mut rng, mut are_quick) = (Rng::new(SEED), true);
    for kind in &KINDS {
        let mut bytes = 0;
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let url = format!("{}{}", hub.root, kind.path(world, &mut rng));
            let began = Instant::now();
            bytes = bytes.max(readers::get(&agent, &url)?);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let p99 = quantile(&times, 0.99);
        let is_quick = p99 < FIRST_SCREEN_MS_MAX;
        are_quick &= is_quick;
        println!(
            "{:22} {}  {:7}{}",
            kind.name,
            three(&times),
            bytes >> 10,
            if is_quick { "" } else { "  TOO SLOW" }
        );
    }
    Ok(are_quick)
}

/// The pages that readers want, one after the other.
fn drawn(hub: &Hub, world: &World, asked: &Arguments) -> Result<Vec<Asked>> {
    let mut rng = Rng::new(SEED + 1);
    let all: usize = KINDS.iter().map(|kind| kind.share).sum();
    let mut draw = || {
        let mut drawn = rng.below(all);
        let at = KINDS.iter().position(|kind| match drawn.checked_sub(kind.share) {
            None => true,
            Some(left) => {
                drawn = left;
                false
            }
        });
        let kind = at.context("a share of the mix")?;
        Ok(Asked { kind, url: format!("{}{}", hub.root, KINDS[kind].path(world, &mut rng)) })
    };
    (0..(asked.rate * asked.seconds) as usize).map(|_| draw()).collect()
}

/// Readers who come whether those before have been answered or not.
fn mix(
    hub: &Hub,
    requests: &[Asked],
    place: &Place,
    asked: &Arguments,
    read: impl FnOnce() -> Result<Vec<Sample>>,
) -> Result<bool> {
    let before = cpu_of(hub.child.id())?;
    let began = Instant::now();
    let (samples, changes) = while_bundles_come(place, read)?;
    let samples = samples?;
    let took_s = began.elapsed().as_secs_f64();
    let after = cpu_of(hub.child.id())?;
    let cpus = (after.0 + after.1 - before.0 - before.1) / took_s;
    println!(
        "\n{} requests, {:.0} a second for {} s by vegeta, from when each was due; {changes} changes, after each of which \
         every page is made anew; the hub took {cpus:.2} cpus",
        samples.len(),
        asked.rate,
        asked.seconds
    );
    println!("response, ms              median      p99  longest  requests");
    let mut by_kind: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for sample in &samples {
        by_kind.entry(sample.kind).or_default().push(sample.response_ms);
    }
    for (kind, times) in &mut by_kind {
        times.sort_by(f64::total_cmp);
        println!("{:22} {}  {:8}", KINDS[*kind].name, three(times), times.len());
    }
    let mut times: Vec<f64> = samples.iter().map(|sample| sample.response_ms).collect();
    times.sort_by(f64::total_cmp);
    let failed: Vec<&Sample> = samples.iter().filter(|sample| sample.failure.is_some()).collect();
    println!("{:22} {}  {:8}  (p99 below {MIX_P99_MS_MAX} from SQLite)", "all", three(&times), times.len());
    println!("failed: {} (none)", failed.len() + requests.len() - samples.len());
    if let Some(failure) = failed.first().and_then(|sample| sample.failure.as_ref()) {
        println!("  the first: {failure}");
    }
    let are_all_read = failed.is_empty() && samples.len() == requests.len();
    Ok(are_all_read && quantile(&times, 0.99) < MIX_P99_MS_MAX)
}

/// A hub that takes 2,880 bundles a day.
const CHANGE_EVERY: Duration = Duration::from_secs(30);

/// Reads while pages that were made go out of date, as they do with each bundle that comes; how often they did.
fn while_bundles_come<T>(place: &Place, read: impl FnOnce() -> T) -> Result<(T, usize)> {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let changing = scope.spawn(move || {
            let mut count = 0;
            while is_over.recv_timeout(CHANGE_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                hub::note_change(place)?;
                count += 1;
            }
            Ok::<usize, hub::Error>(count)
        });
        let done = read();
        drop(over);
        let count = changing.join().map_err(|_| anyhow::anyhow!("the thread of changes broke off"))?;
        Ok((done, count?))
    })
}

/// Of values in order, by the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn three(sorted: &[f64]) -> String {
    let longest = sorted.last().copied().unwrap_or(f64::NAN);
    format!("{:9.2}{:9.2}{longest:9.2}", quantile(sorted, 0.5), quantile(sorted, 0.99))
}

/// A hub that serves until it is dropped.
struct Hub {
    child: Child,
    root: String,
}

impl Hub {
    fn start(plimsoll: &Path, db: &str, folder: &Path) -> Result<Hub> {
        let mut child = Command::new(plimsoll)
            .args(["hub", "serve", "--listen", "127.0.0.1:0", "--db", db, "--bundles"])
            .arg(folder.join("bundles"))
            .stderr(Stdio::piped())
            .spawn()
            .context("starting the hub")?;
        let told = child.stderr.take().context("no standard error")?;
        let mut hub = Hub { child, root: String::new() };
        let mut lines = BufReader::new(told).lines();
        let line = lines.next().context("the hub says nothing")??;
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        hub.root = format!("http://{}", address.with_context(|| line.clone())?);
        // What it says later is for whoever runs this.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Ok(hub)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
