//! See [`plimsoll_fuzz::mysql_compression`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::mysql_compression(data));
