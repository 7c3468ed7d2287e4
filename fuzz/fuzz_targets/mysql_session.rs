//! A MySQL session whose server says anything once it has let us in.
#![no_main]

use testkit::fake::mysql;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let welcome = [mysql::packet(0, &mysql::greeting()), mysql::packet(2, &mysql::ok(0))].concat();
    plimsoll_fuzz::use_session(wire::Protocol::Mysql, &welcome, data);
});
