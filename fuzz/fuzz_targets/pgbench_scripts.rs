//! See [`plimsoll_fuzz::pgbench_scripts`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::pgbench_scripts(data));
