//! The container: tar, zstd, seal. Reading trusts nothing: names are from a short list, members are plain files whose
//! heads are written in the one way that this code writes them, and nothing is unpacked beyond a bound.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use super::{
    BundleError, CALIBRATIONS, FIGURES, LOGS, MANIFEST, Member, RESULTS, SIGNATURE, STUDY, WORKLOADS,
};

/// What a bundle may cost its reader.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of the file.
    pub packed_bytes_max: u64,
    /// Of all members together.
    pub unpacked_bytes_max: u64,
}

impl Default for Limits {
    /// For a file that its user chose: a week of seconds by statement is a few hundred MiB.
    fn default() -> Limits {
        Limits { packed_bytes_max: 2 << 30, unpacked_bytes_max: 4 << 30 }
    }
}

/// A skippable frame of zstd, of the last of the sixteen kinds, with the length of what follows.
const SEAL_HEAD: [u8; 16] = *b"\x5f\x2a\x4d\x18\x28\x00\x00\x00PLIMSOLL";
const SEAL_BYTES: usize = SEAL_HEAD.len() + 32;
const BLOCK: usize = 512;
/// A study has thousands of runs at most, each with a log.
const MEMBERS_MAX: usize = 100_000;

/// Packs members: equal members give equal bytes.
///
/// # Errors
/// A name that no bundle has.
pub fn pack(members: &[Member]) -> Result<Vec<u8>, BundleError> {
    Ok(sealed(compress_to_vec(&archive(members)?[..], CompressionLevel::Fastest)))
}

/// The members as a tar.
pub(crate) fn archive(members: &[Member]) -> Result<Vec<u8>, BundleError> {
    let mut tar = Vec::new();
    for (name, bytes) in members {
        tar.extend_from_slice(head(name, bytes.len() as u64)?.as_bytes());
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    Ok(tar)
}

/// What is packed, with the seal behind it.
pub(crate) fn sealed(mut packed: Vec<u8>) -> Vec<u8> {
    packed.extend_from_slice(&SEAL_HEAD);
    let seal = Sha256::digest(&packed);
    packed.extend_from_slice(&seal);
    packed
}

/// The members of a bundle.
///
/// # Errors
/// Anything about the container is not as [`pack`] makes it, or it is larger than the limits.
pub fn unpack(packed: &[u8], limits: &Limits) -> Result<Vec<Member>, BundleError> {
    if packed.len() as u64 > limits.packed_bytes_max {
        return Err(BundleError::refused(format!("it is larger than {} bytes", limits.packed_bytes_max)));
    }
    let Some((frame, seal)) = packed.len().checked_sub(SEAL_BYTES).map(|at| packed.split_at(at)) else {
        return Err(BundleError::refused("it is no bundle of plimsoll, or was cut short"));
    };
    if !seal.starts_with(&SEAL_HEAD) {
        return Err(BundleError::refused("it has no seal: it is no bundle of plimsoll, or was cut short"));
    }
    let sealed = &packed[..packed.len() - 32];
    if Sha256::digest(sealed)[..] != seal[SEAL_HEAD.len()..] {
        return Err(BundleError::refused("it was changed after it was sealed"));
    }
    let tar = unpack_frame(frame, limits.unpacked_bytes_max)?;
    members(&tar)
}

fn unpack_frame(mut frame: &[u8], bytes_max: u64) -> Result<Vec<u8>, BundleError> {
    let corrupt = |error: &dyn std::fmt::Display| {
        BundleError::refused(format!("what is packed in it cannot be unpacked: {error}"))
    };
    let mut tar = Vec::new();
    {
        let decoder = StreamingDecoder::new(&mut frame).map_err(|error| corrupt(&error))?;
        decoder.take(bytes_max + 1).read_to_end(&mut tar).map_err(|error| corrupt(&error))?;
    }
    if tar.len() as u64 > bytes_max {
        return Err(BundleError::refused(format!("it unpacks to more than {bytes_max} bytes")));
    }
    if !frame.is_empty() {
        return Err(BundleError::refused("something stands between what is packed and the seal"));
    }
    Ok(tar)
}

fn members(mut tar: &[u8]) -> Result<Vec<Member>, BundleError> {
    let cut = || BundleError::refused("an archive in it is cut short");
    let mut members: Vec<Member> = Vec::new();
    loop {
        let (head_block, rest) = tar.split_first_chunk::<BLOCK>().ok_or_else(cut)?;
        if head_block.iter().all(|byte| *byte == 0) {
            if rest.len() != BLOCK || rest.iter().any(|byte| *byte != 0) {
                return Err(BundleError::refused("something stands behind the end of its archive"));
            }
            return Ok(members);
        }
        let found = Header::from_byte_slice(head_block);
        let name = found.path().map_err(|_| BundleError::refused("a member's name is no text"))?;
        let name = name.to_string_lossy().into_owned();
        if found.entry_type() != EntryType::Regular {
            return Err(BundleError::refused(format!("{name:?} is no plain file")));
        }
        let bytes = found.size().map_err(|error| BundleError::refused(format!("{name:?}: {error}")))?;
        if head(&name, bytes)?.as_bytes() != head_block {
            return Err(BundleError::refused(format!("the head of {name:?} is not as plimsoll writes it")));
        }
        if members.last().is_some_and(|(last, _)| place(last) >= place(&name)) {
            return Err(BundleError::refused(format!("{name:?} does not stand where it belongs")));
        }
        if members.len() == MEMBERS_MAX {
            return Err(BundleError::refused(format!("it has more than {MEMBERS_MAX} members")));
        }
        let bytes = usize::try_from(bytes).map_err(|_| cut())?;
        let (content, rest) = rest.split_at_checked(bytes).ok_or_else(cut)?;
        let (padding, rest) = rest.split_at_checked(bytes.next_multiple_of(BLOCK) - bytes).ok_or_else(cut)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(BundleError::refused(format!("something stands behind {name:?}")));
        }
        members.push((name, content.to_vec()));
        tar = rest;
    }
}

/// The one head that a member of that name and length has.
fn head(name: &str, bytes: u64) -> Result<Header, BundleError> {
    if place(name).is_none() {
        return Err(BundleError::refused(format!("{name:?} is no member of a bundle")));
    }
    let mut head = Header::new_ustar();
    head.set_path(name).map_err(|error| BundleError::refused(format!("{name:?}: {error}")))?;
    head.set_size(bytes);
    head.set_mode(0o644);
    head.set_uid(0);
    head.set_gid(0);
    head.set_mtime(0);
    head.set_entry_type(EntryType::Regular);
    head.set_cksum();
    Ok(head)
}

/// Where a member stands; `None`: no bundle has it.
fn place(name: &str) -> Option<(usize, &str)> {
    let fixed = [MANIFEST, SIGNATURE, STUDY, RESULTS, FIGURES, CALIBRATIONS];
    if let Some(at) = fixed.iter().position(|known| *known == name) {
        return Some((at, ""));
    }
    let folder = [WORKLOADS, LOGS].iter().position(|folder| name.starts_with(folder))?;
    let file = &name[[WORKLOADS, LOGS][folder].len()..];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name =
        !file.is_empty() && file.len() <= 80 && !file.starts_with('.') && file.chars().all(is_plain);
    is_name.then_some((fixed.len() + folder, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Member> {
        let text = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
        vec![
            text(MANIFEST, "{}"),
            text(STUDY, "title = 't'"),
            text(RESULTS, &"x".repeat(1024)),
            text("workloads/bank.sql", ""),
            text("logs/r1.txt", "a log"),
        ]
    }

    /// Seals any frame, as somebody would who knows how.
    fn resealed(tar: &[u8]) -> Vec<u8> {
        let mut packed = compress_to_vec(tar, CompressionLevel::Fastest);
        packed.extend_from_slice(&SEAL_HEAD);
        let seal = Sha256::digest(&packed);
        packed.extend_from_slice(&seal);
        packed
    }

    fn refusal(packed: &[u8]) -> String {
        unpack(packed, &Limits::default()).unwrap_err().to_string()
    }

    #[test]
    fn equal_members_give_equal_bytes_and_come_back() {
        let packed = pack(&sample()).unwrap();
        assert_eq!(packed, pack(&sample()).unwrap());
        assert_eq!(unpack(&packed, &Limits::default()).unwrap(), sample());
    }

    #[test]
    fn every_cut_and_every_turned_byte_is_found() {
        let packed = pack(&sample()).unwrap();
        for at in 0..packed.len() {
            assert!(unpack(&packed[..at], &Limits::default()).is_err(), "cut at {at}");
            let mut turned = packed.clone();
            turned[at] ^= 1 << (at % 8);
            assert!(unpack(&turned, &Limits::default()).is_err(), "turned at {at}");
        }
    }

    #[test]
    fn no_byte_of_the_tar_can_change_without_notice_but_for_the_members_own() {
        let packed = pack(&sample()).unwrap();
        let tar = unpack_frame(&packed[..packed.len() - SEAL_BYTES], 1 << 20).unwrap();
        for at in (0..tar.len()).step_by(3) {
            let mut turned = tar.clone();
            turned[at] ^= 1 << (at % 8);
            let Ok(members) = unpack(&resealed(&turned), &Limits::default()) else { continue };
            // What is left to the manifest: a content, or a name that could be one.
            assert_ne!(members, sample(), "turned at {at}");
        }
    }

    #[test]
    fn links_devices_strange_names_and_bombs_are_refused() {
        let with = |change: &dyn Fn(&mut Header)| {
            let mut head = head(MANIFEST, 0).unwrap();
            change(&mut head);
            head.set_cksum();
            let mut tar = head.as_bytes().to_vec();
            tar.resize(3 * BLOCK, 0);
            refusal(&resealed(&tar))
        };
        for kind in
            [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo, EntryType::Directory]
        {
            assert!(with(&|head| head.set_entry_type(kind)).contains("no plain file"), "{kind:?}");
        }
        for name in ["other", "logs/../x", "logs/", "logs/.x", "workloads/a/b", "/etc/passwd"] {
            let refused = with(&|head| {
                let old = head.as_old_mut();
                old.name = [0; 100];
                old.name[..name.len()].copy_from_slice(name.as_bytes());
            });
            assert!(refused.contains("no member of a bundle"), "{name}: {refused}");
        }
        assert!(with(&|head| head.set_size(u64::MAX >> 4)).contains("cut short"));
        assert!(with(&|head| head.set_mtime(1)).contains("not as plimsoll writes it"));
        let bomb = resealed(&vec![0; 1 << 22]);
        let limits = Limits { packed_bytes_max: 1 << 20, unpacked_bytes_max: 1 << 20 };
        assert!(unpack(&bomb, &limits).unwrap_err().to_string().contains("more than"));
        let mut twice = sample();
        twice.push(sample()[1].clone());
        assert!(refusal(&pack(&twice).unwrap()).contains("where it belongs"));
    }
}
