//! A PostgreSQL session whose server says anything once it has let us in.
#![no_main]

use testkit::fake::postgres;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let welcome = [postgres::message(b'R', &[0; 4]), postgres::ready()].concat();
    plimsoll_fuzz::use_session(wire::Protocol::Postgres, &welcome, data);
});
