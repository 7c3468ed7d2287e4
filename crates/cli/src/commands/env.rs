//! Connection settings of a sandbox in the forms that other tools read.

use sandbox::{Flavor, Sandbox};

use crate::args::EnvFormat;
use crate::commands::shell_word;
use crate::exit::Failure;

/// Socket, host, port, user, password, database: what a tool calls them, empty where it has no name for it.
type Names = [&'static str; 6];

fn names(format: EnvFormat, is_postgres: bool) -> Result<Names, Failure> {
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    match (format, is_postgres) {
        (EnvFormat::Shell, false) => {
            Ok(["MYSQL_UNIX_PORT", "MYSQL_HOST", "MYSQL_TCP_PORT", "MYSQL_USER", "MYSQL_PWD", ""])
        }
        (EnvFormat::Shell, true) => Ok(["", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"]),
        (EnvFormat::MyCnf, false) => Ok(["socket", "host", "port", "user", "password", ""]),
        (EnvFormat::MyCnf, true) => refuse("a my.cnf is for MySQL and MariaDB: take --format pg-service"),
        (EnvFormat::PgService, true) => Ok(["", "host", "port", "user", "password", "dbname"]),
        (EnvFormat::PgService, false) => refuse("a service file is for PostgreSQL: take --format my-cnf"),
        (EnvFormat::Sysbench, false) => {
            Ok(["mysql-socket", "mysql-host", "mysql-port", "mysql-user", "mysql-password", ""])
        }
        (EnvFormat::Sysbench, true) => {
            Ok(["", "pgsql-host", "pgsql-port", "pgsql-user", "pgsql-password", ""])
        }
    }
}

/// Their values: over the socket, where the administrator needs no password, or over TCP.
fn values(sandbox: &Sandbox, over_tcp: bool) -> Result<[Option<String>; 6], Failure> {
    let is_postgres = sandbox.build().flavor == Flavor::Postgres;
    let user = Some(if is_postgres { "postgres" } else { "root" }.to_owned());
    let database = is_postgres.then(|| "postgres".to_owned());
    if over_tcp {
        let (Some(target), Some(port)) = (sandbox.tcp_target(None), sandbox.status()?.port) else {
            return Err(Failure::Usage(format!("{} has no port", sandbox.name())));
        };
        let password = Some(target.password.reveal().to_owned());
        return Ok([None, Some("127.0.0.1".to_owned()), Some(port.to_string()), user, password, database]);
    }
    let vars = sandbox.env_vars();
    let var = |name: &str| vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    if is_postgres {
        return Ok([None, var("PGHOST"), var("PGPORT"), user, None, database]);
    }
    Ok([var("MYSQL_UNIX_PORT"), var("MYSQL_HOST"), var("MYSQL_TCP_PORT"), user, None, database])
}

/// The settings as text.
pub(super) fn settings(sandbox: &Sandbox, format: EnvFormat, over_tcp: bool) -> Result<String, Failure> {
    let names = names(format, sandbox.build().flavor == Flavor::Postgres)?;
    let values = values(sandbox, over_tcp)?;
    let driver = if sandbox.build().flavor == Flavor::Postgres { "pgsql" } else { "mysql" };
    let pairs = names.iter().zip(&values).filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    Ok(text(format, sandbox.name(), driver, pairs.filter(|(name, _)| !name.is_empty())))
}

fn text<'a>(
    format: EnvFormat,
    section: &str,
    driver: &str,
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let plain = |(name, value): (&str, &str)| format!("{name}={value}\n");
    match format {
        EnvFormat::Shell => {
            pairs.map(|(name, value)| format!("export {name}={}\n", shell_word(value))).collect()
        }
        // A section that only MariaDB's clients read: those of 11.4 want a certificate, which a sandbox lacks.
        EnvFormat::MyCnf => {
            let lines: String = pairs.map(plain).collect();
            format!("[client]\n{lines}[client-mariadb]\nskip-ssl-verify-server-cert\n")
        }
        EnvFormat::PgService => format!("[{section}]\n{}", pairs.map(plain).collect::<String>()),
        EnvFormat::Sysbench => {
            let flags: String =
                pairs.map(|(name, value)| format!(" {}", shell_word(&format!("--{name}={value}")))).collect();
            format!("--db-driver={driver}{flags}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_gets_its_own_names() {
        let show = |format, pairs: &[(&'static str, &'static str)]| {
            text(format, "p16", "mysql", pairs.iter().copied())
        };
        assert_eq!(show(EnvFormat::Shell, &[("PGHOST", "/a b")]), "export PGHOST='/a b'\n");
        assert_eq!(
            show(EnvFormat::MyCnf, &[("socket", "/s"), ("user", "root")]),
            "[client]\nsocket=/s\nuser=root\n[client-mariadb]\nskip-ssl-verify-server-cert\n"
        );
        assert_eq!(show(EnvFormat::PgService, &[("host", "/run")]), "[p16]\nhost=/run\n");
        assert_eq!(
            show(EnvFormat::Sysbench, &[("mysql-socket", "/a b"), ("mysql-user", "root")]),
            "--db-driver=mysql '--mysql-socket=/a b' --mysql-user=root\n"
        );
        assert!(names(EnvFormat::MyCnf, true).is_err() && names(EnvFormat::PgService, false).is_err());
    }
}
