//! See [`plimsoll_fuzz::results_files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::results_files(data));
