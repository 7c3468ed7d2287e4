//! See [`plimsoll_fuzz::bundles`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::bundles(data));
