//! How Debian's sysbench, which figures are compared with, is called on a sandbox.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use wire::{Endpoint, Protocol, Target};

/// The program, where it is installed.
pub(crate) fn check() -> Result<()> {
    let found = Command::new("sysbench").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        bail!("this benchmark compares with sysbench, which is not installed: apt-get install sysbench");
    }
    Ok(())
}

/// Options that name the server and the database.
pub(crate) fn connection(target: &Target) -> Result<Vec<String>> {
    let Endpoint::Unix(socket) = &target.endpoint else { bail!("sandboxes are reached by their socket") };
    let database = target.database.as_deref().context("a database is named")?;
    Ok(match target.protocol {
        Protocol::Mysql => vec![
            "--db-driver=mysql".to_owned(),
            format!("--mysql-socket={}", socket.display()),
            format!("--mysql-user={}", target.user),
            format!("--mysql-password={}", target.password.reveal()),
            format!("--mysql-db={database}"),
        ],
        Protocol::Postgres => {
            let (directory, port) = place_of(socket)?;
            vec![
                "--db-driver=pgsql".to_owned(),
                format!("--pgsql-host={directory}"),
                format!("--pgsql-port={port}"),
                format!("--pgsql-user={}", target.user),
                format!("--pgsql-password={}", target.password.reveal()),
                format!("--pgsql-db={database}"),
            ]
        }
    })
}

/// Directory and port of a PostgreSQL socket, as programs of libpq are told.
pub(super) fn place_of(socket: &Path) -> Result<(String, String)> {
    let directory = socket.parent().context("the socket has a directory")?;
    let port = socket.extension().context("the socket's name ends in the port")?;
    Ok((directory.display().to_string(), port.to_string_lossy().into_owned()))
}

/// Runs one command of a script (`prepare`, `run`) to its end.
pub(super) fn call(script: &str, target: &Target, options: &[&str], command: &str) -> Result<Output> {
    let output = Command::new("sysbench")
        .arg(script)
        .args(connection(target)?)
        .args(options)
        .arg(command)
        .output()
        .context("starting sysbench")?;
    if !output.status.success() {
        bail!(
            "sysbench {script} {command} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}
