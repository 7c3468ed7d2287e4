//! Bundles: a study sealed with its figures, and the proof that the figures are those of what was measured.

mod claims;
mod figures;
mod lines;
mod listing;
mod marks;
mod proof;
mod reported;
mod sound;

use std::collections::BTreeMap;
use std::path::Path;

use store::bundle::{
    Author, BundleError, CALIBRATIONS, Extraction, FIGURES, INDEX, LOGS, LeftOut, Limits, MANIFEST, Manifest,
    Member, NamedWorkloads, Private, RESULTS, SIGNATURE, STUDY, SigningKey, WorkloadFiles, content_sha256,
    index_of, pack, signer_of, unpack,
};
use store::{Calibrations, Store, Study, StudyId};

use crate::error::Error;
use crate::load::Selection;
use crate::model::Report;
use crate::wishes::{table_of, words};

pub use claims::{Claim, claims};
pub use listing::{ListedCalibration, ListedCell, ListedClaim, ListedHost, ListedStorage, Listing, listing};
pub use marks::RunMark;
pub use proof::{Different, Proof, Signature, verify};

/// What goes into a bundle beside the results file.
#[derive(Debug, Default)]
pub struct Bundling<'a> {
    /// What must not travel.
    pub private: Private,
    /// Who signs.
    pub key: Option<&'a SigningKey>,
    /// Workload files that the study names.
    pub workloads: NamedWorkloads,
    /// What `calibrate` found of the machines, by fingerprint.
    pub calibrations: BTreeMap<String, Vec<Calibrations>>,
    /// Ends of the servers' logs: `r12.txt`, and the text.
    pub logs: Vec<(String, String)>,
    /// Files that should be here and could not be had.
    pub absent: Vec<LeftOut>,
    /// Without the response times by second and class of statement, from which no figure comes.
    pub is_slim: bool,
}

/// A sealed study.
#[derive(Debug)]
pub struct Bundle {
    /// The file.
    pub bytes: Vec<u8>,
    pub manifest: Manifest,
    /// Fingerprint of the key that signed it.
    pub signer: Option<String>,
}

/// Seals a study. The same store and the same bundling give the same bytes.
///
/// # Errors
/// There is no such study, it cannot be read, or the key cannot sign.
pub fn bundle(store: &Store, study: StudyId, bundling: Bundling<'_>) -> Result<Bundle, Error> {
    let mut files = bundling.workloads.members;
    if !bundling.workloads.index.is_empty() {
        files.push((INDEX.to_owned(), as_json(INDEX, &bundling.workloads.index)?));
    }
    let mut logs: Vec<Member> =
        bundling.logs.into_iter().map(|(name, text)| (format!("{LOGS}{name}"), text.into_bytes())).collect();
    files.sort();
    logs.sort();
    files.append(&mut logs);
    if !bundling.calibrations.is_empty() {
        files.insert(0, (CALIBRATIONS.to_owned(), as_json(CALIBRATIONS, &bundling.calibrations)?));
    }
    let series = crate::history::decided_series_of(store, study)?;
    let mut extracted = store.extract(
        study,
        Extraction {
            private: &bundling.private,
            series: &series,
            members: files,
            absent: bundling.absent,
            is_slim: bundling.is_slim,
        },
    )?;
    let results = Store::of_bundle(&extracted.results, Path::new(RESULTS)).map_err(refused)?;
    let stored = study_of(&results)?;
    mark_changed(&mut extracted.members, &stored)?;
    let figures = figures::of(&report_of(&results)?);
    let mut members: Vec<Member> = vec![
        (STUDY.to_owned(), stored.file_text.clone().into_bytes()),
        (RESULTS.to_owned(), extracted.results),
        (FIGURES.to_owned(), figures::bytes(&figures)),
    ];
    members.extend(extracted.members);
    let mut left_out = extracted.left_out;
    left_out.sort();
    let manifest = Manifest::new(&stored.name, author(&stored.file_text), &members, left_out);
    let text = manifest.bytes();
    let mut head = vec![(MANIFEST.to_owned(), text.clone())];
    let mut signer = None;
    if let Some(key) = bundling.key {
        let signature = key.sign(&text).map_err(refused)?;
        signer = signer_of(&text, &signature);
        head.push((SIGNATURE.to_owned(), signature));
    }
    members.splice(0..0, head);
    Ok(Bundle { bytes: pack(&members).map_err(refused)?, manifest, signer })
}

fn as_json(name: &str, content: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(content)
        .map_err(|error| refused(BundleError::Refused(format!("{name} cannot be written: {error}"))))
}

/// Notes which workloads are no longer what the plan says, because something private was replaced in them.
fn mark_changed(members: &mut [Member], study: &Study) -> Result<(), Error> {
    let Some(mut index) = index_of(members).map_err(refused)? else { return Ok(()) };
    for workload in &mut index {
        workload.is_changed = hash_of(workload, members) != planned_hash(study, &workload.workload);
    }
    let text = as_json(INDEX, &index)?;
    if let Some((_, bytes)) = members.iter_mut().find(|(name, _)| name == INDEX) {
        *bytes = text;
    }
    Ok(())
}

/// What the sealed files of a workload hash to; `None` where one is not there.
fn hash_of(workload: &WorkloadFiles, members: &[Member]) -> Option<String> {
    Some(content_sha256(&workload.workload, &workload.content(members)?))
}

/// What the plan says that the files of a workload hash to.
fn planned_hash(study: &Study, workload: &str) -> Option<String> {
    study.plan.get("workloads")?.get(workload)?.as_str().map(str::to_owned)
}

fn refused(source: BundleError) -> Error {
    Error::Bundle { name: "the bundle".to_owned(), source: Box::new(source) }
}

/// A bundle whose container, manifest and signature hold. Whether its figures do is for [`verify`].
#[derive(Debug)]
pub struct Opened {
    pub manifest: Manifest,
    /// Fingerprint of the key that signed it, if anybody did.
    pub signer: Option<String>,
    /// What was measured.
    pub results: Store,
    /// The members, as the manifest lists them.
    pub members: Vec<Member>,
}

impl Opened {
    /// Opens a bundle; `name` is what its results call themselves.
    ///
    /// # Errors
    /// It is none, was changed, is larger than the limits, is of a newer format, or its signature is of something else.
    pub fn new(bytes: &[u8], name: &Path, limits: &Limits) -> Result<Opened, BundleError> {
        let members = unpack(bytes, limits)?;
        let manifest = Manifest::check(&members)?;
        let signer =
            match member(&members, SIGNATURE) {
                None => None,
                Some(signature) => Some(signer_of(&members[0].1, signature).ok_or_else(|| {
                    BundleError::Refused("its signature is not of this manifest".to_owned())
                })?),
            };
        let results =
            member(&members, RESULTS).ok_or_else(|| BundleError::Refused("it has no results".to_owned()))?;
        let results = Store::of_bundle(results, name)?;
        Ok(Opened { manifest, signer, results, members })
    }

    /// What `calibrate` found of the machines, by fingerprint.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn calibrations(&self) -> Result<BTreeMap<String, Vec<Calibrations>>, BundleError> {
        let Some(bytes) = self.member(CALIBRATIONS) else { return Ok(BTreeMap::new()) };
        serde_json::from_slice(bytes)
            .map_err(|error| BundleError::Refused(format!("{CALIBRATIONS} cannot be read: {error}")))
    }

    /// The workloads whose files are in it.
    ///
    /// # Errors
    /// What leads to them cannot be read.
    pub fn workloads(&self) -> Result<Vec<WorkloadFiles>, BundleError> {
        Ok(index_of(&self.members)?.unwrap_or_default())
    }

    /// A member's bytes.
    pub fn member(&self, name: &str) -> Option<&[u8]> {
        member(&self.members, name)
    }
}

fn member<'a>(members: &'a [Member], name: &str) -> Option<&'a [u8]> {
    members.iter().find(|(known, _)| known == name).map(|(_, bytes)| &bytes[..])
}

/// Whether a file is called as bundles are.
pub fn is_bundle(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == store::bundle::EXTENSION)
}

/// The results in a bundle's file.
pub(crate) fn results_in(path: &Path) -> Result<Store, Error> {
    let fail = |source| Error::Bundle { name: path.display().to_string(), source: Box::new(source) };
    let bytes = read(path, &Limits::default()).map_err(fail)?;
    Ok(Opened::new(&bytes, path, &Limits::default()).map_err(fail)?.results)
}

/// Reads a bundle's file, which may be anybody's.
///
/// # Errors
/// It cannot be read, or is larger than the limits.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<u8>, BundleError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(limits.packed_bytes_max + 1).read_to_end(&mut bytes))
        .map_err(|error| BundleError::Refused(format!("it cannot be read: {error}")))?;
    Ok(bytes)
}

/// The one study of a bundle.
fn study_of(results: &Store) -> Result<Study, Error> {
    let mut studies = results.studies()?;
    match (studies.pop(), studies.is_empty()) {
        (Some(record), true) => Ok(record.study),
        _ => Err(refused(BundleError::Refused("its results are not those of one study".to_owned()))),
    }
}

fn report_of(results: &Store) -> Result<Report, Error> {
    Report::of_stores(&[results], &Selection::Latest)
}

/// What a study file says of its author.
pub fn author(file_text: &str) -> Author {
    let Some(author) = table_of(file_text, "author") else { return Author::default() };
    let word = |key: &str| author.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    Author {
        name: word("name"),
        contact: word("contact"),
        licence: word("licence"),
        disclaimer: word("disclaimer"),
        keywords: author.get("keywords").filter(|all| all.is_array()).map(words).unwrap_or_default(),
    }
}
