//! `plimsoll bundle` and `plimsoll verify`.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ::report::bundle::{Bundling, Proof, Signature, bundle as seal, read, verify as prove};
use lab::workloads::Elsewhere;
use store::bundle::{
    BundleError, EXTENSION, LeftOut, Limits, Member, NamedWorkloads, Private, SigningKey, content_sha256,
};
use store::{Calibrations, Store, StudyRecord};

use crate::args::{BundleArgs, VerifyArgs};
use crate::commands::out::{Out, not_written};
use crate::commands::{print, print_data};
use crate::exit::{End, Failure};

pub(crate) fn bundle(args: &BundleArgs) -> Result<End, Failure> {
    let store = Store::open_read_only(&args.results)?;
    let name = study_name(&args.study);
    let record = newest(&store, &name)?;
    let key = args.sign.as_deref().map(signing_key).transpose()?;
    let (workloads, mut absent) = workload_files(&record, folder_of(&args.results));
    let (logs, lost) = logs(&store, &record, &args.results)?;
    absent.extend(lost);
    let bundling = Bundling {
        private: private(&store, args.host_names)?,
        key: key.as_ref(),
        workloads,
        calibrations: calibrations(&store, &record)?,
        logs,
        absent,
        is_slim: args.slim,
    };
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.{EXTENSION}")));
    let sealed = seal(&store, record.id, bundling).map_err(failed)?;
    // What does not verify here verifies nowhere.
    let proof = prove(&sealed.bytes, &Limits::default());
    if !proof.is_verified() {
        let why = told(&format!("{} is not written, for it would not verify", path.display()), &proof);
        return Err(Failure::Other(anyhow::anyhow!("{}", why.trim_end())));
    }
    ::report::write_file(&path, &sealed.bytes).map_err(|error| not_written(&path, error))?;
    let mut text = format!(
        "{}: {} bytes, {}\n",
        path.display(),
        sealed.bytes.len(),
        store::counted(sealed.manifest.members.len(), "file")
    );
    match &sealed.signer {
        Some(signer) => text.push_str(&format!("signed by {signer}\n")),
        None => text.push_str("not signed: --sign ~/.ssh/id_ed25519 says whose word it is\n"),
    }
    for left in &sealed.manifest.left_out {
        let instead =
            if left.instead.is_empty() { "left out".to_owned() } else { format!("now {}", left.instead) };
        text.push_str(&format!("{}: {instead}, {}\n", left.what, store::counted(left.times, "time")));
    }
    proof.unproved.iter().for_each(|what| text.push_str(&format!("{what}\n")));
    print(&text)
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<End, Failure> {
    if !args.file.is_file() {
        return Err(Failure::Usage(format!("{}: there is no such file", args.file.display())));
    }
    let limits = Limits::default();
    let bytes = read(&args.file, &limits)
        .map_err(|error| Failure::Usage(format!("{}: {error}", args.file.display())))?;
    let proof = prove(&bytes, &limits);
    if let Some(path) = &args.json {
        let line = format!("{}\n", proof.json());
        if path.as_os_str() == "-" {
            print_data(&line)?;
        } else {
            Out::create(path)?.end(&line)?;
        }
    } else {
        print(&told(&args.file.display().to_string(), &proof))?;
    }
    Ok(if proof.is_verified() { End::Done } else { End::NotVerified })
}

/// Different figures shown at once.
const SHOWN: usize = 20;

fn told(name: &str, proof: &Proof) -> String {
    let signature = match &proof.signature {
        Signature::None => "nobody signed it".to_owned(),
        Signature::Good(signer) => format!("signed by {signer}"),
        Signature::Bad => "its signature is bad".to_owned(),
    };
    if let Some(why) = &proof.refused {
        return format!("{name}: NOT VERIFIED: {why}\n");
    }
    let figures = proof.figures;
    if proof.different.is_empty() {
        let unproved: String = proof.unproved.iter().map(|what| format!("not proved: {what}\n")).collect();
        return format!(
            "{name}: verified, {figures} figures; {signature}\nproves that {}\n{unproved}cannot prove {}\n",
            Proof::PROVES,
            Proof::CANNOT
        );
    }
    let mut text =
        format!("{name}: NOT VERIFIED: {} of {figures} figures differ; {signature}\n", proof.different.len());
    for different in proof.different.iter().take(SHOWN) {
        text.push_str(&format!(
            "  {}: {} is stored, {} comes out of what was measured\n",
            different.where_, different.stored, different.recomputed
        ));
    }
    if proof.different.len() > SHOWN {
        text.push_str(&format!("  and {} more (--json - lists all)\n", proof.different.len() - SHOWN));
    }
    text
}

fn failed(error: ::report::Error) -> Failure {
    match error {
        ::report::Error::Store(error) => Failure::from(error),
        error => Failure::Other(anyhow::Error::new(error)),
    }
}

/// Named by its file or by itself.
fn study_name(what: &str) -> String {
    let path = Path::new(what);
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    match path.file_stem().filter(|_| is_file) {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => what.to_owned(),
    }
}

/// The newest record of that name; a first look does not stand for a whole study.
fn newest(store: &Store, name: &str) -> Result<StudyRecord, Failure> {
    let all = store.studies()?;
    let known: Vec<&str> = all.iter().map(|record| &*record.study.name).collect();
    let of_name = || all.iter().filter(|record| record.study.name == name);
    let found = of_name().rfind(|record| !record.study.is_quick).or_else(|| of_name().next_back());
    found.cloned().ok_or_else(|| {
        let there = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        Failure::Usage(format!("no study {name} in {}; recorded: {there}", store.path().display()))
    })
}

pub(crate) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    let passphrase = std::env::var("PLIMSOLL_KEY_PASSPHRASE").ok();
    SigningKey::read(path, passphrase.as_deref())
        .map_err(|error: BundleError| Failure::Usage(format!("--sign {error}")))
}

/// What names people and machines here and in what was recorded.
fn private(store: &Store, allow_hosts: bool) -> Result<Private, Failure> {
    let home = std::env::var("HOME").ok();
    let users = ["USER", "LOGNAME", "SUDO_USER"].into_iter().filter_map(|name| std::env::var(name).ok());
    let mut hosts = BTreeMap::new();
    if !allow_hosts {
        let here = lab::host::facts();
        for (name, fingerprint) in store.hosts()?.into_iter().chain([(here.name, here.fingerprint)]) {
            let short: String = fingerprint.chars().take(8).collect();
            hosts.insert(name, format!("host-{short}"));
        }
    }
    let (user, home_of_user) = lab::host::user();
    let homes = home.into_iter().chain(home_of_user);
    Ok(Private { homes: homes.collect(), users: users.chain(user).collect(), hosts })
}

/// What is known of the machines that measured, where it was found here.
fn calibrations(store: &Store, record: &StudyRecord) -> Result<BTreeMap<String, Vec<Calibrations>>, Failure> {
    let Ok(home) = sandbox::Home::find() else { return Ok(BTreeMap::new()) };
    let mut found = BTreeMap::new();
    for head in store.run_heads(record.id)? {
        let fingerprint = store.host(head.start.host)?.fingerprint;
        let all = lab::calibrate::of_host(&home, &fingerprint);
        if !all.is_empty() {
            found.insert(fingerprint, all);
        }
    }
    Ok(found)
}

/// Workload files of a study travel up to here, with the rows and words that they read from files: sealing and verifying
/// hold a bundle in memory several times.
const WORKLOADS_BYTES_MAX: usize = 512 << 20;

/// The workload files of the plan, where they are still what was run: those that a rerun was made with, else those that are
/// here under their names.
fn workload_files(record: &StudyRecord, folder: &Path) -> (NamedWorkloads, Vec<LeftOut>) {
    let name = &record.study.name;
    let unpacked = match store::is_file_name(name) {
        true => lab::rerun::unpacked_before(folder, name),
        false => BTreeMap::new(),
    };
    let here = BTreeMap::new();
    let planned = record.study.plan.get("workloads").and_then(|all| all.as_object());
    let (mut named, mut absent) = (NamedWorkloads::default(), Vec::new());
    let mut room = WORKLOADS_BYTES_MAX;
    for (workload, hash) in planned.into_iter().flatten() {
        let places = unpacked.get(workload).unwrap_or(&here);
        match files_of(workload, hash.as_str().unwrap_or_default(), places)
            .and_then(|files| within(&mut room, files))
        {
            Ok(files) => named.add(workload, files),
            Err(why) => absent.push(LeftOut {
                what: format!("files of workload {workload}: {why}"),
                instead: String::new(),
                times: 1,
            }),
        }
    }
    (named, absent)
}

/// A workload's files, or why they cannot travel.
fn files_of(workload: &str, hash: &str, elsewhere: &Elsewhere) -> Result<Vec<Member>, String> {
    let files = lab::workloads::files(workload, elsewhere)
        .map_err(|error| format!("they cannot be read here ({error})"))?;
    let each: Vec<(&str, &Vec<u8>)> = files.iter().map(|(path, bytes)| (path.as_str(), bytes)).collect();
    if content_sha256(workload, &each) != hash {
        return Err("they are no longer what was run".to_owned());
    }
    Ok(files)
}

/// Takes them where there is room for them.
fn within(room: &mut usize, files: Vec<Member>) -> Result<Vec<Member>, String> {
    let bytes = files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    match room.checked_sub(bytes) {
        Some(left) => {
            *room = left;
            Ok(files)
        }
        None => Err(format!(
            "they have {} MiB, and the workload files of a bundle {} MiB at most: bring them where it is measured again",
            bytes >> 20,
            WORKLOADS_BYTES_MAX >> 20
        )),
    }
}

/// Of each log so much travels, its end.
const LOG_BYTES: u64 = 16 << 10;

/// Files by name, and what should be among them and is not.
type Files = (Vec<(String, String)>, Vec<LeftOut>);

/// The ends of the servers' logs.
fn logs(store: &Store, record: &StudyRecord, results: &Path) -> Result<Files, Failure> {
    let folder = folder_of(results);
    let (mut logs, mut lost) = (Vec::new(), 0);
    for head in store.run_heads(record.id)? {
        let Some(file) = store.log_file(head.id)?.filter(|file| !file.is_empty()) else { continue };
        match beneath(folder, &file).and_then(|path| end_of(&path)) {
            Some(text) => logs.push((format!("r{}.txt", head.id.0), text)),
            None => lost += 1,
        }
    }
    let what = "server log that is no longer in the results directory".to_owned();
    let absent = (lost > 0).then(|| LeftOut { what, instead: String::new(), times: lost });
    Ok((logs, absent.into_iter().collect()))
}

/// The directory of results that are named by it or by their file.
fn folder_of(results: &Path) -> &Path {
    if results.is_dir() { results } else { results.parent().unwrap_or(Path::new(".")) }
}

/// A file that results name, which may be somebody else's: none of this machine's other files gets into a bundle by it.
fn beneath(folder: &Path, file: &str) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    folder.join(file).canonicalize().ok().filter(|path| path.starts_with(&folder))
}

fn end_of(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok().filter(|it| it.is_file())?.len();
    let from = length.saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line of an end is half of one.
    Some(if from > 0 {
        text.split_once('\n').map_or(text.clone(), |(_, rest)| rest.to_owned())
    } else {
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_files_travel_up_to_a_bound_that_is_told() {
        let of = |bytes: usize| vec![("x.dat".to_owned(), vec![0; bytes])];
        let mut room = 3 << 20;
        assert!(within(&mut room, of(2 << 20)).is_ok());
        let why = within(&mut room, of(2 << 20)).unwrap_err();
        assert!(why.contains("2 MiB") && why.contains("512 MiB at most"), "{why}");
        assert!(within(&mut room, of(1 << 20)).is_ok(), "a smaller one has room");
    }
}
