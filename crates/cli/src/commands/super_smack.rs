//! `plimsoll super-smack`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::servers::{self, Server};
use sandbox::{Home, Sandbox, Spec};
use smack::program::DataDir;
use smack::{Options, Printer, Timing, builtin};
use wire::files;

use crate::args::{SmackDriver, SuperSmackArgs};
use crate::commands::{stop_on_signals, told};
use crate::exit::{End, Failure};
use crate::show::{Plain, terminal};

/// The database where the file's clients name none.
const DATABASE: &str = "test";

pub(crate) fn super_smack(args: &SuperSmackArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    args.password.read()?;
    let (name, source) = source(args.words.first())?;
    let arguments: Vec<String> = args.words.iter().skip(1).cloned().collect();
    // Before anything is started for it.
    smack::check(&name, &source, &arguments).map_err(|error| Failure::Usage(error.to_string()))?;
    let stop = stop_on_signals()?;
    let mut own = None;
    let server = match &args.server {
        None => None,
        Some(text) => Some(match servers::parse_argument(text)? {
            Server::Url(target) => *target,
            Server::Sandbox(name) => servers::open_sandbox(&home, &name)?.target(Some(DATABASE)),
            Server::Selector(selector) => {
                let plain = Plain::without_runs();
                let build = servers::obtain(&home, &selector, &|event| plain.event(&event))?;
                plain.clear();
                let spec = Spec::new(format!("smack-{}", std::process::id()), build);
                own.insert(Sandbox::deploy(&home, &spec, &told())?).target(Some(DATABASE))
            }
        }),
    };
    let protocol = match (&server, args.driver) {
        (Some(server), _) => server.protocol,
        (None, SmackDriver::Mysql) => wire::Protocol::Mysql,
        (None, SmackDriver::Pg) => wire::Protocol::Postgres,
    };
    let options = Options {
        protocol,
        data: DataDir {
            path: args.data.clone().unwrap_or_else(|| home.path().join("smack-data")),
            allow_shell: args.allow_shell,
            elsewhere: BTreeMap::new(),
        },
        arguments,
        timing: if args.fixed { Timing::Fixed } else { Timing::Faithful },
        server,
        seed: args.seed,
        workers: None,
        room: |target, bytes| lab::checks::room(target, bytes).map_err(|error| error.to_string()),
        create_suffix: args.engine.as_ref().map(|engine| format!(" engine={engine}")).unwrap_or_default(),
    };
    let ran = smack::run(&name, &source, &options, &Printer::new(terminal::output()), stop.load());
    if let Some(own) = own {
        own.destroy()?;
    }
    match ran {
        Ok(_) | Err(smack::Error::Stopped { .. }) if stop.is_requested() => {
            Err(lab::Error::Interrupted.into())
        }
        Ok(_) => Ok(End::Done),
        Err(
            error @ (smack::Error::Parse { .. }
            | smack::Error::ShellNotAllowed { .. }
            | smack::Error::Argument { .. }),
        ) => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::Other(error.into())),
    }
}

/// Name and text: built in, a file, or standard input.
fn source(word: Option<&String>) -> Result<(String, String), Failure> {
    let Some(word) = word else {
        let text = files::read_text_from(std::io::stdin(), &files::WORKLOAD)
            .map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
        return Ok(("standard input".into(), text));
    };
    let path = PathBuf::from(word);
    if path.exists() && !path.is_dir() {
        let text = files::read_text(&path, &files::WORKLOAD)
            .map_err(|error| Failure::Usage(format!("{word}: {error}")))?;
        return Ok((word.clone(), text));
    }
    // Old command lines name the installed files: /usr/share/smacks/select-key.smack.
    let file =
        Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match builtin::find(&file) {
        Some(text) => Ok((file, text.to_owned())),
        None => {
            let names: Vec<&str> = builtin::ALL.iter().map(|(name, _)| *name).collect();
            Err(Failure::Usage(format!("there is no file {word}; built in are {}", names.join(" and "))))
        }
    }
}
