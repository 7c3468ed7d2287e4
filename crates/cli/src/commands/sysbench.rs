//! `plimsoll sysbench`.

use crate::commands::stop_on_signals;
use crate::exit::{End, Failure};

pub(crate) fn sysbench(arguments: &[String]) -> Result<End, Failure> {
    let stop = stop_on_signals()?;
    // What failed has been told, in sysbench's form.
    let outcome = script::run(arguments, &mut std::io::stdout(), stop.load());
    Ok(if outcome.exit_code == 0 { End::Done } else { End::RunFailed })
}
