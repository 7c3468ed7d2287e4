//! Places that are made for a study: file systems in images, and the scheduler of their disk.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::{
    Filesystem, FilesystemWish, Home, MadeFilesystem, Sandbox, Spec, Storage, builds, storage, testing,
};

fn wish(options: &[&str]) -> FilesystemWish {
    FilesystemWish {
        filesystem: Filesystem::Ext4,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        size_bytes: 512 << 20,
        on: None,
    }
}

/// One in a home of its own; `None` where that cannot be had, which is said.
fn make(home: &Home, options: &[&str]) -> Option<MadeFilesystem> {
    let made = MadeFilesystem::make(home, "place", &wish(options), &|_| (), &|| false);
    made.map_err(|error| testkit::not_tested("file systems that are made", error)).ok()
}

fn files_below(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_file_system_is_made_read_back_and_removed() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    let Some(made) = make(&home, &["noatime", "commit=60", "auto_da_alloc"]) else { return };
    let facts = storage::facts(&made.path()).unwrap();
    assert_eq!((facts.filesystem.as_str(), facts.mount.as_path()), ("ext4", made.path().as_path()));
    assert!(facts.options.contains("noatime") && facts.options.contains("commit=60"), "{}", facts.options);
    // A default is not among the options that the kernel shows.
    assert_eq!(made.unseen, ["auto_da_alloc"]);
    let image = facts.image.unwrap();
    assert!(image.direct_io);
    assert_eq!(image.number, storage::facts(dir.path()).unwrap().number);
    // All of it is there before anybody writes, and stays.
    let images: Vec<String> =
        files_below(dir.path()).into_iter().filter(|name| name.ends_with(".img")).collect();
    let about = std::fs::metadata(dir.path().join(&images[0])).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&about) * 512 >= 512 << 20);
    std::fs::write(made.path().join("file"), "text").unwrap();
    assert!(sandbox::leftovers(&home).unwrap().is_empty(), "it is looked after");
    made.close().unwrap();
    assert_eq!(files_below(dir.path()), ["filesystems"]);
    assert!(files_below(&home.filesystems()).is_empty());
}

/// btrfs gives its files a number that no device has: its image was taken for one without direct I/O.
#[test]
fn each_file_system_is_seen_on_its_image() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let wish = FilesystemWish { filesystem, ..wish(&["noatime"]) };
        let made = match MadeFilesystem::make(&home, filesystem.name(), &wish, &|_| (), &|| false) {
            Ok(made) => made,
            Err(error) => {
                testkit::not_tested("file systems that are made", format!("{}: {error}", filesystem.name()));
                continue;
            }
        };
        let facts = storage::facts(&made.path()).unwrap();
        assert_eq!(facts.filesystem, filesystem.name());
        let image = facts.image.unwrap();
        assert!(image.direct_io, "{}", filesystem.name());
        assert_eq!(image.number, storage::facts(dir.path()).unwrap().number);
        made.close().unwrap();
    }
    assert!(files_below(&home.filesystems()).is_empty());
}

#[test]
fn an_option_that_the_file_system_refuses_leaves_nothing() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    if make(&home, &[]).is_none() {
        return;
    }
    let made = MadeFilesystem::make(&home, "place", &wish(&["nosuchoption"]), &|_| (), &|| false);
    let error = made.unwrap_err().to_string();
    assert!(error.contains("mount -t ext4 -o nosuchoption"), "{error}");
    let stopped = MadeFilesystem::make(&home, "place", &wish(&[]), &|_| (), &|| true);
    assert!(matches!(stopped, Err(sandbox::Error::Interrupted)));
    assert_eq!(files_below(dir.path()), ["filesystems"]);
}

/// The scheduler of the disk under `path`, and another one that it has.
fn schedulers(path: &Path) -> Option<(String, String)> {
    let now = storage::facts(path).ok()?.scheduler?;
    let other = ["none", "mq-deadline", "kyber", "bfq"]
        .into_iter()
        .find(|name| *name != now && sandbox::scheduler::check(path, name).is_ok())?;
    Some((now, other.to_owned()))
}

#[test]
fn what_a_killed_plimsoll_leaves_of_a_place_is_removed() {
    // The test program runs itself as the one that is killed.
    const VICTIM: &str = "PLIMSOLL_TEST_VICTIM_OF_PLACES";
    if let Some(dir) = std::env::var_os(VICTIM) {
        let home = Home::at(dir).unwrap();
        let made = make(&home, &[]).unwrap();
        let build = builds::resolve(&Home::find().unwrap(), &"postgres".parse().unwrap(), &|_| ()).unwrap();
        let mut spec = Spec::new("victim", build);
        let scheduler = schedulers(home.path()).map(|(_, other)| other);
        spec.storage = Some(Storage { scheduler, ..Storage::at("place", made.path()) });
        let sandbox = Sandbox::deploy(&home, &spec, &|_| ()).unwrap();
        println!("{}", sandbox.storage_facts().unwrap().image.unwrap().scheduler.unwrap_or_default());
        std::thread::sleep(std::time::Duration::from_secs(60));
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let home = Home::at(dir.path()).unwrap();
    if testing::server("postgres").is_none() || make(&home, &[]).is_none() {
        return;
    }
    let scheduler = schedulers(dir.path());
    if scheduler.is_none() {
        testkit::not_tested("I/O schedulers", "the disk of temporary files has none, or lets none be set");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "what_a_killed_plimsoll_leaves_of_a_place_is_removed", "--nocapture"]);
    command.env(VICTIM, dir.path()).stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let shown = match &scheduler {
        Some((_, other)) => lines.any(|line| line == *other),
        None => lines.any(|line| line.is_empty()),
    };
    assert!(shown, "the server runs under the scheduler that was asked for");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let removed = sandbox::leftovers(&home).unwrap();
    assert!(removed.len() == 2 && removed[0] == "victim", "{removed:?}");
    assert!(removed[1].starts_with("file system place-"), "{removed:?}");
    assert_eq!(schedulers(dir.path()), scheduler);
    assert!(!files_below(dir.path()).iter().any(|name| name.ends_with(".img")));
}
