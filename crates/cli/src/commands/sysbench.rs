//! `plimsoll sysbench`.

use crate::commands::stop_on_signals;
use crate::exit::{End, Failure};

pub(crate) fn sysbench(arguments: &[String]) -> Result<End, Failure> {
    let stop = stop_on_signals()?;
    match script::run(arguments, &mut std::io::stdout(), stop.load()) {
        Ok(outcome) if outcome.exit_code == 0 => Ok(End::Done),
        // What failed has been told, in sysbench's form.
        Ok(_) => Ok(End::RunFailed),
        Err(error) => {
            eprintln!("FATAL: {error}");
            Ok(End::RunFailed)
        }
    }
}
