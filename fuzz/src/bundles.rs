//! Bundles: a file as it is, or a whole bundle with a piece of one member written over and sealed anew, as somebody would
//! who knows the format.

use std::cell::RefCell;

use report::bundle::{Bundling, bundle, verify};
use store::Store;
use store::bundle::{Limits, Manifest, Member, pack, unpack};

use crate::common;

/// A bundle is small here; what unpacks to more is one made to fill the memory.
const LIMITS: Limits = Limits { packed_bytes_max: 1 << 22, unpacked_bytes_max: 1 << 24 };

thread_local! {
    static MEMBERS: RefCell<Vec<Member>> = RefCell::new(members());
}

fn members() -> Vec<Member> {
    let place = crate::place();
    let mut file = Store::open(place.path()).expect("a results file");
    let study = file.add_study(&common::study("fuzzed")).expect("a study");
    let host = file.add_host(&common::host()).expect("a host");
    let build = file.add_build(&common::build()).expect("a build");
    file.record_run(study, &common::start(host, Some(build), 1), &common::end(0)).expect("a run");
    let sealed = bundle(&file, study, Bundling::default()).expect("a bundle");
    unpack(&sealed.bytes, &LIMITS).expect("a bundle's members")
}

/// The first byte chooses: 0, the rest is a file; else a member. The next four say from where on it is written over with the
/// rest.
pub fn bundles(data: &[u8]) {
    let [which, rest @ ..] = data else { return };
    if *which == 0 {
        drop(verify(rest, &LIMITS));
        return;
    }
    let Some((at, piece)) = rest.split_first_chunk::<4>() else { return };
    MEMBERS.with_borrow(|members| {
        let mut members = members.clone();
        let member = usize::from(*which) % members.len();
        let content = &mut members[member].1;
        let at = u32::from_le_bytes(*at) as usize % content.len().max(1);
        let end = content.len().min(at + piece.len());
        content[at..end].copy_from_slice(&piece[..end - at]);
        if member > 0 {
            let manifest = Manifest::check(&members[..1]).ok();
            let author = manifest.map(|manifest| manifest.author).unwrap_or_default();
            members[0].1 = Manifest::new("fuzzed", author, &members[1..], vec![]).bytes();
        }
        let file = pack(&members).expect("names that bundles have");
        drop(verify(&file, &LIMITS));
    });
}
