//! See [`plimsoll_fuzz::archives`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::archives(data));
