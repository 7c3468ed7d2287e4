//! The bundle: one study sealed into one file that can travel and proves its own figures.
//!
//! A tar of a few members in a fixed order, packed by zstd, and behind it the seal: a frame that zstd skips, with the
//! SHA-256 of all that stands before it. `zstd -dc FILE | tar t` reads it. The first member, the manifest, has the
//! SHA-256 of each of the others; a signature is of the manifest.
//!
//! What the figures are and how they are proved is `report`'s business.

pub(crate) mod archive;
mod extract;
mod passwords;
mod private;
mod signature;
mod workloads;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use archive::{Limits, pack, unpack};
pub use extract::{Extracted, Extraction};
pub use private::{LeftOut, Private};
pub use signature::{NAMESPACE, SigningKey, signer_of};
pub use workloads::{
    NamedWorkloads, PGBENCH, PGBENCH_INIT, WorkloadFile, WorkloadFiles, content_sha256, index_of,
};

/// Version of the format that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// Ending of a bundle's name.
pub const EXTENSION: &str = "plimsoll";

/// What the bundle says of itself: its first member.
pub const MANIFEST: &str = "manifest.json";
/// `ssh-keygen -Y`'s signature of the manifest, where somebody signed.
pub const SIGNATURE: &str = "manifest.json.sig";
/// The study file.
pub const STUDY: &str = "study.toml";
/// All that the results file holds of the study: a results file of its own.
pub const RESULTS: &str = "results.db";
/// The figures of the report.
pub const FIGURES: &str = "figures.json";
/// What `calibrate` found of the machines that measured: by fingerprint, a list of [`crate::Calibrations`].
pub const CALIBRATIONS: &str = "calibrations.json";
/// Workload files that the study names, in the order of their names.
pub const WORKLOADS: &str = "workloads/";
/// Which of them each workload is made of: a list of [`WorkloadFiles`]. No file has this name, for those begin with a number.
pub const INDEX: &str = "workloads/index.json";
/// The ends of the servers' logs, by run.
pub const LOGS: &str = "logs/";

/// A file within a bundle: its name and its bytes.
pub type Member = (String, Vec<u8>);

/// Why a file is no bundle that can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Not what a bundle looks like, or changed after it was sealed.
    #[error("{0}")]
    Refused(String),
    /// Written by a newer plimsoll.
    #[error("its format is {found}, this plimsoll knows up to {FORMAT}: verify it with a newer one")]
    Newer {
        /// Format of the bundle.
        found: u64,
    },
    /// Its results file cannot be read.
    #[error("its results: {0}")]
    Results(#[from] crate::Error),
    #[error("{0}")]
    Key(String),
}

impl BundleError {
    pub(crate) fn refused(why: impl Into<String>) -> BundleError {
        BundleError::Refused(why.into())
    }
}

/// A member, as the manifest knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    pub name: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// Who stands for a study, in their own words; all of it optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Author {
    pub name: String,
    /// A mail address, a page.
    pub contact: String,
    /// Of the results: `CC-BY-4.0`.
    pub licence: String,
    pub disclaimer: String,
    pub keywords: Vec<String>,
}

/// What a bundle says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`] of whoever wrote it.
    pub format: u32,
    /// Version of plimsoll that wrote it.
    pub plimsoll: String,
    pub study: String,
    pub author: Author,
    /// All other members but the signature, in their order.
    pub members: Vec<Sealed>,
    /// What did not travel, and what stands in its place.
    pub left_out: Vec<LeftOut>,
}

impl Manifest {
    /// Of these members.
    pub fn new(study: &str, author: Author, members: &[Member], left_out: Vec<LeftOut>) -> Manifest {
        Manifest {
            format: FORMAT,
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            study: study.to_owned(),
            author,
            members: members.iter().map(sealed).collect(),
            left_out,
        }
    }

    /// As it is stored.
    ///
    /// # Panics
    /// JSON cannot hold it, for which it has no reason: it is made of texts and counts.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("texts and counts");
        text.push(b'\n');
        text
    }

    /// Reads a manifest and holds the members against it.
    ///
    /// # Errors
    /// It is none, is of a newer format, or a member is not what it says.
    pub fn check(members: &[Member]) -> Result<Manifest, BundleError> {
        let Some(((name, bytes), rest)) = members.split_first().filter(|((name, _), _)| name == MANIFEST)
        else {
            return Err(BundleError::refused(format!("its first member is not {MANIFEST}")));
        };
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let fail = |error: serde_json::Error| BundleError::refused(format!("{name} cannot be read: {error}"));
        let Head { format } = serde_json::from_slice(bytes).map_err(fail)?;
        if format > u64::from(FORMAT) {
            return Err(BundleError::Newer { found: format });
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(fail)?;
        // One way to write it, so that nothing stands in it that is not looked at.
        if manifest.bytes() != *bytes {
            return Err(BundleError::refused(format!("{name} is not written as plimsoll writes it")));
        }
        let found: Vec<Sealed> = rest.iter().filter(|(name, _)| name != SIGNATURE).map(sealed).collect();
        if let Some(at) = (0..found.len().max(manifest.members.len()))
            .find(|at| found.get(*at) != manifest.members.get(*at))
        {
            let name = found.get(at).or(manifest.members.get(at)).map_or("", |member| &member.name);
            return Err(BundleError::refused(format!(
                "{name} is not what the manifest says: it was changed"
            )));
        }
        Ok(manifest)
    }
}

fn sealed((name, bytes): &Member) -> Sealed {
    Sealed { name: name.clone(), bytes: bytes.len() as u64, sha256: sha256(bytes) }
}

/// SHA-256 in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
