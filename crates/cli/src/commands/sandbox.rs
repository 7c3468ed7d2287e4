//! `plimsoll sandbox`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::{Error, servers};
use sandbox::{Flavor, Home, Life, Listen, Sandbox, Spec, State, Status, Storage};
use serde_json::{Value, json};

use crate::args::{DeployArgs, Named, SandboxCommand};
use crate::commands::prompt::prompt;
use crate::commands::{env, print, print_data, told};
use crate::exit::{End, Failure, output};
use crate::show::bar::Bar;
use crate::show::terminal::{self, tell};
use crate::show::{Align, Table, bytes, time};

pub(crate) fn sandbox(command: SandboxCommand) -> Result<End, Failure> {
    let home = Home::find()?;
    match command {
        SandboxCommand::Deploy(args) => deploy(&home, args),
        SandboxCommand::List { json } => list(&home, json),
        SandboxCommand::Status(Named { name }) => print(&details(&Sandbox::open(&home, &name)?.status()?)),
        SandboxCommand::Start(Named { name }) => {
            let mut sandbox = Sandbox::open(&home, &name)?;
            sandbox.start()?;
            print(&details(&sandbox.status()?))
        }
        SandboxCommand::Stop(Named { name }) => {
            let report = Sandbox::open(&home, &name)?.stop()?;
            let how = if report.killed { "killed, as it did not stop in time," } else { "stopped" };
            print(&format!("{name} {how} after {}\n", time(report.took)))
        }
        SandboxCommand::Restart(Named { name }) => {
            let report = Sandbox::open(&home, &name)?.restart()?;
            print(&format!("{name} restarted; stopping took {}\n", time(report.took)))
        }
        SandboxCommand::Use { name, builtin, arguments } => use_client(&home, &name, builtin, arguments),
        SandboxCommand::Exec { name, command } => exec(&home, &name, command),
        SandboxCommand::Log { name, follow, lines } => log(&home, &name, follow, lines),
        SandboxCommand::Env { name, format, tcp } => {
            print_data(&env::settings(&Sandbox::open(&home, &name)?, format, tcp)?)
        }
        SandboxCommand::Destroy(Named { name }) => {
            Sandbox::open(&home, &name)?.destroy()?;
            print(&format!("{name} destroyed\n"))
        }
    }
}

fn deploy(home: &Home, args: DeployArgs) -> Result<End, Failure> {
    let servers::Server::Selector(selector) = servers::parse_argument(&args.server)? else {
        return Err(Error::Usage(format!(
            "`{}` is not a build: flavor[@version], such as mariadb@10.11",
            args.server
        ))
        .into());
    };
    let storage = args.datadir.map(|datadir| {
        let is_memory = datadir.as_os_str() == "tmpfs";
        let datadir = if is_memory { datadir } else { std::path::absolute(&datadir).unwrap_or(datadir) };
        Storage::at("given", datadir)
    });
    // Before anything is fetched for it.
    storage.as_ref().map_or(Ok(()), Storage::check)?;
    let bar = Bar::default();
    let build = servers::obtain(home, &selector, &|event| match event {
        lab::Event::Doing(what) => bar.step(what),
        lab::Event::Bytes { done, total } => bar.bytes(done, total),
        _ => {}
    })?;
    drop(bar);
    let name = match args.name {
        Some(name) => name,
        None => free_name(home, &build.name().replace(['@', '+'], "-"))?,
    };
    let mut spec = Spec::new(name, build);
    spec.life = Life::ByHand;
    spec.settings = args.set.into_iter().collect();
    spec.profile = args.profile;
    spec.logging = args.logging;
    spec.env = args.env.into_iter().collect();
    spec.cpus = args.cpus;
    spec.listen = args.port.map_or(Listen::FreePort, Listen::Port);
    spec.storage = storage;
    let sandbox = Sandbox::deploy(home, &spec, &told())?;
    let status = sandbox.status()?;
    print(&details(&status))?;
    tell!("connect: plimsoll sandbox use {}", status.name);
    Ok(End::Done)
}

/// The name, or the first of name-2, name-3 ... that is not taken.
fn free_name(home: &Home, name: &str) -> Result<String, Failure> {
    let taken: Vec<String> = Sandbox::list(home)?.into_iter().map(|status| status.name).collect();
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    Ok(names.find(|name| !taken.contains(name)).unwrap_or_else(|| name.to_owned()))
}

fn list(home: &Home, as_json: bool) -> Result<End, Failure> {
    let all = Sandbox::list(home)?;
    if as_json {
        let all: Vec<Value> = all
            .iter()
            .map(|status| {
                json!({"name": status.name, "build": status.build, "state": status.state.name(), "pid": status.pid,
                       "socket": status.socket, "port": status.port, "datadir": status.datadir,
                       "of_run": status.of_run, "data_bytes": status.data_bytes})
            })
            .collect();
        return print_data(&format!("{}\n", Value::from(all)));
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("build", Align::Left),
        ("state", Align::Left),
        ("pid", Align::Right),
        ("port", Align::Right),
        ("data", Align::Right),
    ]);
    for status in all {
        let number = |number: Option<String>| number.unwrap_or_default();
        let state = if status.of_run {
            format!("{} (of a run)", status.state.name())
        } else {
            status.state.name().to_owned()
        };
        table.row([
            status.name,
            status.build,
            state,
            number(status.pid.map(|pid| pid.to_string())),
            number(status.port.map(|port| port.to_string())),
            bytes(status.data_bytes),
        ]);
    }
    if table.is_empty() {
        return print("no sandboxes\n");
    }
    print(&table.text())
}

fn details(status: &Status) -> String {
    let mut lines = vec![
        ("name", status.name.clone()),
        ("build", status.build.clone()),
        ("state", status.state.name().to_owned()),
    ];
    lines.extend(status.pid.map(|pid| ("pid", pid.to_string())));
    lines.push(("socket", status.socket.display().to_string()));
    lines.extend(status.port.map(|port| ("port", format!("{port} on 127.0.0.1"))));
    lines.push(("datadir", status.datadir.display().to_string()));
    lines.extend(status.uid.map(|uid| ("uid", uid.to_string())));
    lines.push(("durability", status.durability.name().to_owned()));
    lines.push(("data", bytes(status.data_bytes)));
    lines.iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// The server's own client on its socket, in place of this process; the prompt of ours where there is none.
fn use_client(home: &Home, name: &str, is_builtin: bool, arguments: Vec<OsString>) -> Result<End, Failure> {
    let sandbox = running(home, name)?;
    let candidates: &[&str] = match sandbox.build().flavor {
        Flavor::Postgres => &["psql"],
        Flavor::Mariadb => &["mariadb", "mysql"],
        Flavor::Mysql | Flavor::Percona => &["mysql", "mariadb"],
    };
    let own = sandbox::builds::client(sandbox.build())?.map(|program| (program, sandbox.build().name()));
    let is_own = own.is_some();
    let installed = || candidates.iter().find_map(|name| on_path(name)).map(with_version);
    let found = if is_builtin { None } else { own.or_else(installed) };
    let Some((program, version)) = found else {
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        return prompt(&sandbox, &words);
    };
    let mut command = Command::new(program);
    if let Some(uid) = sandbox.status()?.uid.filter(|_| is_own) {
        // Like its server: what comes out of an archive gets none of root's rights.
        command.uid(uid).gid(uid);
    }
    match sandbox.build().flavor {
        Flavor::Postgres => {}
        // Options of the machine's own my.cnf are about another server.
        _ => {
            command
                .arg("--no-defaults")
                .args(sandbox::builds::client_options(&version))
                .arg(format!("--socket={}", sandbox.socket().display()))
                .arg("--user=root");
        }
    }
    become_command(command.args(arguments), &sandbox)
}

fn exec(home: &Home, name: &str, words: Vec<OsString>) -> Result<End, Failure> {
    let sandbox = running(home, name)?;
    let mut words = words.into_iter();
    // clap requires one.
    let program = words.next().ok_or_else(|| Error::Usage("give a command after `--`".into()))?;
    become_command(Command::new(program).args(words), &sandbox)
}

fn become_command(command: &mut Command, sandbox: &Sandbox) -> Result<End, Failure> {
    let error = command.envs(sandbox.env_vars()).exec();
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Error::Usage(format!("cannot run {program}: {error}")).into())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// An installed client, and what it says to `--version`: `mysql` is MariaDB's on most machines.
fn with_version(program: PathBuf) -> (PathBuf, String) {
    let said = Command::new(&program).arg("--version").output();
    let version =
        said.map_or_else(|_| String::new(), |said| String::from_utf8_lossy(&said.stdout).into_owned());
    (program, version)
}

fn running(home: &Home, name: &str) -> Result<Sandbox, Failure> {
    let sandbox = Sandbox::open(home, name)?;
    if sandbox.status()?.state == State::Running {
        return Ok(sandbox);
    }
    Err(sandbox::Error::NotRunning { name: name.to_owned() }.into())
}

fn log(home: &Home, name: &str, follow: bool, lines: Option<usize>) -> Result<End, Failure> {
    let sandbox = Sandbox::open(home, name)?;
    let path = sandbox.log_path();
    let unreadable =
        |error| Failure::Other(anyhow::Error::new(error).context(format!("reading {}", path.display())));
    let mut file = File::open(&path).map_err(unreadable)?;
    let mut out = terminal::output();
    if let Some(lines) = lines {
        for line in sandbox.log_tail(lines) {
            writeln!(out, "{line}").map_err(output)?;
        }
        file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    }
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        // Looked at before reading, so that the last lines of a destroyed sandbox are read.
        let is_gone = !path.exists();
        file.read_to_end(&mut chunk).map_err(unreadable)?;
        out.write_all(&chunk).and_then(|()| out.flush()).map_err(output)?;
        if !follow || is_gone {
            return Ok(End::Done);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
