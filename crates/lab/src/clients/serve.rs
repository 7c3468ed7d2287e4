//! A client process.

use std::io::{self, BufReader};

use load::clients::{Serving, receive, send};
use wire::Target;
use workload::{Configured, Tally, ids};

use super::{Begin, Farewell, Ready, Setup};
use crate::duel::crowd::Look;
use crate::error::Error;

/// Serves loads as the process that started this one says, by standard input and output, until there are no more.
///
/// # Errors
/// The input is not that process's, or a worker could not be started. When the input ends in the middle of a load, the
/// process ends at once.
pub fn serve() -> Result<(), Error> {
    let mut orders = BufReader::with_capacity(1 << 16, io::stdin());
    let mut answers = io::stdout();
    let broken = |error: io::Error| Error::Run(format!("serving as a client: {error}"));
    let setup = receive::<Setup>(&mut orders).map_err(|_| Error::Usage(NOT_BY_HAND.into()))?;
    let setup = setup.ok_or_else(|| Error::Usage(NOT_BY_HAND.into()))?;
    let (client, clients) = (setup.client, setup.clients);
    let (configured, target) = match configured(setup) {
        Ok(both) => both,
        Err(why) => return send(&Ready::No { why }, &mut answers).map_err(broken),
    };
    send(&Ready::Yes, &mut answers).map_err(broken)?;
    while let Some(Begin { seed, first_id }) = receive(&mut orders).map_err(broken)? {
        ids::take_in_turn(first_id, client, clients);
        let factory = configured.sessions(&target, seed);
        let began = Look::now(&[]);
        let farewell = || {
            let changed = configured.tally().map(Tally::take);
            let span = Look::now(&[]).zip(began).map(|(now, began)| now.since(&began));
            serde_json::to_string(&Farewell { changed, ids_passed: ids::passed(), span }).unwrap_or_default()
        };
        let serving =
            Serving { factory: factory.as_ref(), farewell: &farewell, abandoned: &|| std::process::exit(1) };
        load::clients::serve(&serving, &mut orders, &mut answers).map_err(broken)?;
    }
    Ok(())
}

const NOT_BY_HAND: &str =
    "load-client is started by plimsoll itself: use `plimsoll bench WORKLOAD --server SERVER --clients N`";

fn configured(setup: Setup) -> Result<(Box<dyn Configured>, Target), String> {
    if setup.version != env!("CARGO_PKG_VERSION") {
        return Err(format!("it is another plimsoll: {} for {}", env!("CARGO_PKG_VERSION"), setup.version));
    }
    let workload = crate::workloads::resolve_from(&setup.workload, &setup.elsewhere);
    let workload = workload.map_err(|error| error.to_string())?;
    if workload.content_sha256() != setup.content_sha256.as_deref() {
        return Err(format!(
            "the file of workload `{}` has changed since it was read: begin again",
            setup.workload
        ));
    }
    let configured = workload.configure(&setup.options, setup.dialect).map_err(|error| error.to_string())?;
    Ok((configured, setup.target))
}
