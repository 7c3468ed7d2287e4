//! See [`plimsoll_fuzz::smack_files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::smack_files(data));
