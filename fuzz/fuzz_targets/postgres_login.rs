//! Log-in at a server that says anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::log_in(wire::Protocol::Postgres, data));
