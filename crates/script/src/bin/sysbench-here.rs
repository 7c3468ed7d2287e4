//! The command line of this room alone, for its tests: scripts print through C's buffer, which only a process of its
//! own lets a test read. The released command is `plimsoll sysbench`.

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = script::run(&arguments, &mut std::io::stdout(), &load::Stop::new(), &mut ());
    std::process::ExitCode::from(outcome.exit_code as u8)
}
