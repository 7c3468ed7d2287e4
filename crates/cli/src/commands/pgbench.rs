//! `plimsoll pgbench`.

use crate::commands::stop_on_signals;
use crate::exit::{End, Failure};
use crate::show::terminal;

pub(crate) fn pgbench(arguments: &[String]) -> Result<End, Failure> {
    let stop = stop_on_signals()?;
    let room: ::pgbench::Room =
        |target, bytes| lab::checks::room(target, bytes).map_err(|error| error.to_string());
    // What failed has been told, in pgbench's form.
    match ::pgbench::run(arguments, &mut terminal::output(), room, stop.load()) {
        0 => Ok(End::Done),
        code => Ok(End::OfTool(code)),
    }
}
