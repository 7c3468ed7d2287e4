//! What a script's author reads when the script is wrong. No server is needed.

use std::process::Command;

fn fails(script: &str) -> String {
    let file = tempfile::Builder::new().suffix(".lua").tempfile().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sysbench-here"))
        .arg("--events=1")
        .arg(file.path())
        .arg("run")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    let name = file.path().file_name().unwrap().to_string_lossy().into_owned();
    // sysbench tells errors on standard output, and so do we.
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap().replace(&name, "SCRIPT")
}

#[test]
fn an_error_in_an_event_shows_file_line_and_traceback() {
    // A script without options of its own gets sysbench's as globals, `debug` among them: the library of that name
    // must survive it.
    let text = fails("function event()\n  local x = nil\n  x.y = 1\nend\n");
    assert!(text.contains("SCRIPT:3: attempt to index local 'x' (a nil value)"), "{text}");
    assert!(text.contains("stack traceback:"), "{text}");
}

#[test]
fn a_mistake_in_the_syntax_shows_file_and_line() {
    let text = fails("function event()\n  this is wrong\nend\n");
    assert!(text.contains("SCRIPT:2:"), "{text}");
}
