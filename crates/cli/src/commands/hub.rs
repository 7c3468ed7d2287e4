//! `plimsoll hub` and `plimsoll submit`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ::hub::{Keeping, Options, Place, TOKEN_VARIABLE, Tokens, Work};
use ::report::history::time;
use store::bundle::Limits;

use crate::args::{
    ExportArgs, HubArgs, HubCommand, HubPlaceArgs, ServeArgs, SubmitArgs, TokenCommand, WorkerArgs,
};
use crate::commands::{print, stop_on_signals};
use crate::exit::{End, Failure};
use crate::show::terminal::tell;

pub(crate) fn hub(args: HubArgs) -> Result<End, Failure> {
    match args.command {
        HubCommand::Serve(args) => serve(&args),
        HubCommand::Token(args) => token(args.command),
        HubCommand::Export(args) => export(&args),
        HubCommand::Worker(args) => worker(&args),
        HubCommand::Check(args) => {
            ::hub::check_in_child(args.unpacked_max, args.seconds_max).map_err(failed)?;
            Ok(End::Done)
        }
    }
}

fn failed(error: ::hub::Error) -> Failure {
    match error {
        ::hub::Error::Wrong(why) => Failure::Usage(why),
        error => Failure::Other(anyhow::Error::new(error)),
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

fn keeping(place: &HubPlaceArgs) -> Keeping {
    match (&place.bundles, &place.db) {
        (Some(folder), _) => Keeping::Directory(folder.clone()),
        (None, Place::Sqlite(file)) => Keeping::Directory(file.with_file_name("hub-bundles")),
        (None, Place::Postgres(_)) => Keeping::Database,
    }
}

fn serve(args: &ServeArgs) -> Result<End, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::Other(error.into()))?;
    let options = Options {
        db: args.place.db.clone(),
        keeping: keeping(&args.place),
        listen: args.listen,
        program,
        root: args.root.clone(),
        packed_bytes_max: args.bundle_max << 20,
        unpacked_bytes_max: args.unpacked_max << 20,
        patience: args.patience,
        submissions_max: args.rate,
        remeasure_share: args.remeasure,
    };
    let place = args.place.db.to_string();
    ::hub::serve(options, |address| tell!("the hub listens on http://{address}, {place}")).map_err(failed)?;
    Ok(End::Done)
}

fn token(command: TokenCommand) -> Result<End, Failure> {
    match command {
        TokenCommand::Add { name, scope, expires, place } => {
            let now = now_ms();
            let expires = expires.map(|after| now + after.as_millis() as i64);
            let tokens = Tokens::open(&place.db).map_err(failed)?;
            let made = tokens.add(&name, &scope, expires, now).map_err(failed)?;
            tell!("it is shown this once; a hash of it is kept");
            print(&format!("{made}\n"))?;
        }
        TokenCommand::List { place } => {
            let mut text = String::new();
            for token in Tokens::open(&place.db).and_then(|tokens| tokens.list()).map_err(failed)? {
                let state = match (token.revoked_ms, token.expires_ms) {
                    (Some(at), _) => format!("revoked {}", time(at)),
                    (None, Some(at)) if at <= now_ms() => format!("expired {}", time(at)),
                    (None, Some(at)) => format!("until {}", time(at)),
                    (None, None) => "for ever".to_owned(),
                };
                let scopes = token.scopes.join(",");
                text.push_str(&format!("{}  {scopes}  made {}  {state}\n", token.name, time(token.made_ms)));
            }
            print(&text)?;
        }
        TokenCommand::Revoke { name, place } => {
            Tokens::open(&place.db).and_then(|tokens| tokens.revoke(&name, now_ms())).map_err(failed)?;
        }
    }
    Ok(End::Done)
}

fn export(args: &ExportArgs) -> Result<End, Failure> {
    let place = &args.place;
    let bundles = ::hub::export(&place.db, &keeping(place), &args.directory, &args.base).map_err(failed)?;
    print(&format!("{}: {}\n", args.directory.display(), store::counted(bundles, "bundle")))?;
    Ok(End::Done)
}

/// The token of whoever speaks to a hub: from a file, or from the environment.
fn token_of(file: Option<&Path>) -> Result<String, Failure> {
    let text = match file {
        Some(path) => wire::files::read_text(path, &wire::files::SECRET)
            .map_err(|error| Failure::Usage(format!("--token-file {}: {error}", path.display())))?,
        None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
            Failure::Usage(format!("no token: set {TOKEN_VARIABLE}, or name a file by --token-file"))
        })?,
    };
    Ok(text.trim().to_owned())
}

fn worker(args: &WorkerArgs) -> Result<End, Failure> {
    let work = Work {
        hub: args.hub.clone(),
        token: token_of(args.token_file.as_deref())?,
        program: std::env::current_exe().map_err(|error| Failure::Other(error.into()))?,
        results: args.results.clone(),
        budget: args.budget,
        is_once: args.once,
        pause: args.pause,
        host: lab::host::facts(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let stop = stop_on_signals()?;
    let told = ::hub::work(&work, &|| stop.is_requested(), &|text| tell!("{text}"));
    told.map_err(failed)?;
    if stop.is_requested() { Err(Failure::Told(lab::Class::Interrupted)) } else { Ok(End::Done) }
}

pub(crate) fn submit(args: &SubmitArgs) -> Result<End, Failure> {
    let token = token_of(args.token_file.as_deref())?;
    let bytes = ::report::bundle::read(&args.file, &Limits::default())
        .map_err(|error| Failure::Usage(format!("{}: {error}", args.file.display())))?;
    let submitted = ::hub::submit(&bytes, &args.to, &token).map_err(failed)?;
    let known = if submitted.was_known { " (it was there before)" } else { "" };
    print(&format!("{}{known}\n", submitted.url))?;
    Ok(End::Done)
}
