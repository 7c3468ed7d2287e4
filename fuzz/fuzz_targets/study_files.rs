//! See [`plimsoll_fuzz::study_files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::study_files(data));
