//! ccache, where it is installed: what one commit has compiled is there for the next one.
//!
//! Each recipe has a cache of its own, so that what runs under one recipe is not taken for the work of another.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::recipe::{PATH, Recipe};
use super::{BUILD_UID, create_open};
use crate::builds::inspect::hex;
use crate::{Error, record};

/// Where distributions have ccache stand in for compilers.
const STAND_INS: [&str; 2] = ["/usr/lib/ccache", "/usr/lib64/ccache"];
/// Of a cache, as ccache is told it.
const SIZE: &str = "5G";
/// All of them together; the ones that were used longest ago go.
const KEPT_BYTES: u64 = 10 << 30;

/// The cache of a recipe.
#[derive(Debug)]
pub(super) struct Cache {
    stand_ins: &'static str,
    dir: PathBuf,
}

/// The cache of a recipe; `None` where there is no ccache.
pub(super) fn of_recipe(sources: &Path, recipe: &Recipe) -> Result<Option<Cache>, Error> {
    let Some(stand_ins) = STAND_INS.into_iter().find(|dir| Path::new(dir).is_dir()) else { return Ok(None) };
    let key = hex(&Sha256::digest(&recipe.text))[..16].to_owned();
    let dir = sources.join(".ccache").join(key);
    create_open(&dir)?;
    let fail = |e| Error::io("give away", &dir, e);
    if record::is_root() {
        std::os::unix::fs::lchown(&dir, Some(BUILD_UID), Some(BUILD_UID)).map_err(fail)?;
    }
    // What was used last goes last.
    File::open(&dir).and_then(|file| file.set_modified(SystemTime::now())).map_err(fail)?;
    Ok(Some(Cache { stand_ins, dir }))
}

impl Cache {
    /// What ccache goes by. Each build has another directory, so paths below it are taken as seen from where the compiler
    /// runs, and where that is does not count; nothing would be found again otherwise.
    pub(super) fn environment(&self, work: &Path) -> [(String, String); 5] {
        [
            ("PATH", format!("{}:{PATH}", self.stand_ins)),
            ("CCACHE_DIR", self.dir.display().to_string()),
            ("CCACHE_BASEDIR", work.display().to_string()),
            ("CCACHE_NOHASHDIR", "1".to_owned()),
            ("CCACHE_MAXSIZE", SIZE.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}

/// Removes the caches that were used longest ago while there is more than is kept. The newest stays.
pub(super) fn evict(sources: &Path) {
    let Ok(entries) = fs::read_dir(sources.join(".ccache")) else { return };
    let mut all: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().and_then(|meta| meta.modified()).ok()?, entry.path())))
        .collect();
    all.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (at, (_, dir)) in all.iter().enumerate() {
        bytes += crate::storage::bytes_below(dir);
        if at > 0 && bytes > KEPT_BYTES {
            // What cannot be removed now is tried again after the next build.
            let _ = fs::remove_dir_all(dir);
        }
    }
}
