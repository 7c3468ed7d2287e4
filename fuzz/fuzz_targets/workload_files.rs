//! See [`plimsoll_fuzz::workload_files`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::workload_files(data));
