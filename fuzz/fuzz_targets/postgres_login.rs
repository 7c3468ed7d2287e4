//! See [`plimsoll_fuzz::postgres_login`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::postgres_login(data));
