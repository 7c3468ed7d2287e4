//! Bundles: the container at each of its layers, sealed anew as somebody would who knows the format, and the texts in it.
//! What is in the results of a bundle is for `results_files`.

use std::cell::RefCell;
use std::hint::black_box;

use report::bundle::{Bundling, bundle, verify};
use store::bundle::{
    CALIBRATIONS, FIGURES, Limits, MANIFEST, Manifest, Member, RESULTS, SIGNATURE, index_of, pack, signer_of,
    unpack,
};
use store::testing::{archive, sealed};
use store::{Calibrations, Store};

use crate::common;

/// A bundle is small here; what unpacks to more is one made to fill the memory.
const LIMITS: Limits = Limits { packed_bytes_max: 1 << 22, unpacked_bytes_max: 1 << 24 };
/// It has every kind of member.
const STORED: &[u8] = include_bytes!("../../crates/report/tests/bundles/0.1.0-schema-10.plimsoll");
/// To verify a whole bundle makes its report, which takes a thousand times as long as all else: the fuzzer does so with one
/// input of so many, the test of the seeds with all.
const WHOLE_OF: u64 = if cfg!(feature = "libfuzzer") { 4096 } else { 1 };

struct Scene {
    /// All but results and figures.
    texts: Vec<Member>,
    /// A small bundle.
    whole: Vec<Member>,
}

thread_local! {
    static SCENE: RefCell<Scene> = RefCell::new(Scene { texts: texts(), whole: whole() });
}

fn texts() -> Vec<Member> {
    let mut members = unpack(STORED, &Limits::default()).expect("a bundle's members");
    members.retain(|(name, _)| name != RESULTS && name != FIGURES);
    members
}

fn whole() -> Vec<Member> {
    let place = crate::place();
    let mut file = Store::open(place.path()).expect("a results file");
    let study = file.add_study(&common::study("fuzzed")).expect("a study");
    let host = file.add_host(&common::host()).expect("a host");
    let build = file.add_build(&common::build()).expect("a build");
    file.record_run(study, &common::start(host, Some(build), 1), &common::end(0)).expect("a run");
    let sealed = bundle(&file, study, Bundling::default()).expect("a bundle");
    unpack(&sealed.bytes, &LIMITS).expect("a bundle's members")
}

/// The first byte chooses: 0, the rest is a file; 1, what is packed in one; 2, the archive in that. Else a member of a bundle
/// is written over: the next four bytes say from where on, and the rest is what it is written over with.
pub fn bundles(data: &[u8]) {
    let [which, rest @ ..] = data else { return };
    match which {
        0 => return drop(black_box(unpack(rest, &LIMITS))),
        1 => return drop(black_box(unpack(&sealed(rest.to_vec()), &LIMITS))),
        2 => return drop(black_box(unpack(&sealed(stored_frame(rest)), &LIMITS))),
        _ => {}
    }
    let Some((at, piece)) = rest.split_first_chunk::<4>() else { return };
    let at = u32::from_le_bytes(*at) as usize;
    let is_whole = data
        .iter()
        .fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add((*byte).into()))
        .is_multiple_of(WHOLE_OF);
    SCENE.with_borrow(|scene| {
        let member = usize::from(*which);
        if is_whole {
            let file = pack(&written_over(&scene.whole, member, at, piece)).expect("names that bundles have");
            drop(black_box(verify(&file, &LIMITS)));
        }
        // Packed by the fuzzer's programs each would take ten times as long.
        let texts = archive(&written_over(&scene.texts, member, at, piece)).expect("names that bundles have");
        let is_about_signature = [MANIFEST, SIGNATURE].contains(&&*scene.texts[member % scene.texts.len()].0);
        read(&sealed(stored_frame(&texts)), is_about_signature);
    });
}

/// Everything that is read of a bundle before its results are.
fn read(file: &[u8], is_about_signature: bool) {
    let Ok(members) = unpack(file, &LIMITS) else { return };
    drop(black_box(Manifest::check(&members)));
    let member = |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes);
    // The check of a signature takes longer than all else, and none of any other member reaches it.
    if let Some((manifest, signature)) =
        member(MANIFEST).zip(member(SIGNATURE)).filter(|_| is_about_signature)
    {
        drop(black_box(signer_of(manifest, signature)));
    }
    for workload in index_of(&members).ok().flatten().iter().flatten() {
        drop(black_box(workload.content(&members)));
    }
    if let Some(bytes) = member(CALIBRATIONS) {
        drop(black_box(serde_json::from_slice::<std::collections::BTreeMap<String, Vec<Calibrations>>>(
            bytes,
        )));
    }
}

/// The members with a piece of one written over, and a manifest that says so.
fn written_over(members: &[Member], member: usize, at: usize, piece: &[u8]) -> Vec<Member> {
    let mut members = members.to_vec();
    let member = member % members.len();
    let content = &mut members[member].1;
    let at = at % content.len().max(1);
    let end = content.len().min(at + piece.len());
    content[at..end].copy_from_slice(&piece[..end - at]);
    if member > 0 {
        let manifest = Manifest::check(&members[..1]).ok();
        let author = manifest.map(|manifest| manifest.author).unwrap_or_default();
        // It tells of all but itself and its signature.
        let is_told = |(name, _): &&Member| name != MANIFEST && name != SIGNATURE;
        let told: Vec<Member> = members.iter().filter(is_told).cloned().collect();
        members[0].1 = Manifest::new("fuzzed", author, &told, vec![]).bytes();
    }
    members
}

/// A frame of zstd that holds bytes as they are: one raw block, the last (RFC 8878, 3.1.1).
fn stored_frame(bytes: &[u8]) -> Vec<u8> {
    // One segment, whose length stands in four bytes; no checksum.
    let mut frame = b"\x28\xb5\x2f\xfd\xa0".to_vec();
    let length = bytes.len() as u32;
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&((length << 3) | 1).to_le_bytes()[..3]);
    frame.extend_from_slice(bytes);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the fuzzer would look at refusals alone.
    #[test]
    fn what_is_sealed_here_is_read() {
        let nothing = [0; 1024];
        assert_eq!(unpack(&sealed(stored_frame(&nothing)), &LIMITS).unwrap(), Vec::<Member>::new());
        let texts = texts();
        for wanted in [MANIFEST, SIGNATURE, CALIBRATIONS, store::bundle::INDEX] {
            assert!(texts.iter().any(|(name, _)| name == wanted), "{wanted}");
        }
        let again = written_over(&texts, 2, 0, b"");
        assert_eq!(unpack(&sealed(stored_frame(&archive(&again).unwrap())), &LIMITS).unwrap(), again);
        Manifest::check(&again).unwrap();
        // Looked at to its end: what the made run tells does not agree with itself.
        let proof = verify(&pack(&written_over(&whole(), 1, 0, b"")).unwrap(), &LIMITS);
        assert_eq!(proof.refused, None);
    }
}
