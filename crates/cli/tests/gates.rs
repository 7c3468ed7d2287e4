//! Gates that need a whole run: what the server made of its settings.

mod common;

use common::{run, servers_are_there};
use serde_json::Value;

#[test]
fn a_setting_that_the_server_rounds_is_not_what_was_asked_for() {
    if !servers_are_there() {
        return;
    }
    let of = |setting: &str| -> Value {
        let out = run(&[
            "bench",
            "oltp_point_select",
            "--server",
            "mariadb",
            "-o",
            "table_size=1000",
            "--time",
            "1s",
            "--set",
            setting,
            "--json",
            "-",
        ])
        .out;
        serde_json::from_str(out.lines().next().unwrap_or_else(|| panic!("no line"))).unwrap()
    };
    // It is kept in blocks of 4096 bytes.
    let rounded = of("read_buffer_size=200001");
    assert_eq!(rounded["gates"]["settings"]["finding"], "tripped", "{rounded}");
    assert_eq!(rounded["status"], "invalid", "{rounded}");
    let kept = of("read_buffer_size=204800");
    assert_eq!(kept["gates"]["settings"]["finding"], "held", "{kept}");
}
