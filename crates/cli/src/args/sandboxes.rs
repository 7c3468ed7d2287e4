//! Flags of `plimsoll sandbox`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::{cpus, key_value, logging, profile};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll sandbox deploy mariadb --name m1
  eval \"$(plimsoll sandbox env m1)\" && mysql --socket=\"$MYSQL_UNIX_PORT\"
  plimsoll sandbox destroy m1")]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Make a private instance of a server and start it
    #[command(
        after_help = "Example:\n  plimsoll sandbox deploy postgres@18 --name p18 --profile fast --set work_mem=64MB"
    )]
    Deploy(DeployArgs),
    /// List sandboxes
    #[command(after_help = "Example:\n  plimsoll sandbox list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one sandbox
    #[command(after_help = "Example:\n  plimsoll sandbox status m1")]
    Status(Named),
    /// Start its server
    #[command(after_help = "Example:\n  plimsoll sandbox start m1")]
    Start(Named),
    /// Stop its server
    #[command(after_help = "Example:\n  plimsoll sandbox stop m1")]
    Stop(Named),
    /// Stop and start its server
    #[command(after_help = "Example:\n  plimsoll sandbox restart m1")]
    Restart(Named),
    /// Open the server's own client, or a prompt of Plimsoll's where there is none
    #[command(
        after_help = "Examples:\n  plimsoll sandbox use m1\n  plimsoll sandbox use m1 -- -e 'SELECT version()'"
    )]
    Use {
        /// Its name
        name: String,
        /// Plimsoll's own prompt, also where there is a client
        #[arg(long)]
        builtin: bool,
        /// Arguments of the client
        #[arg(last = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Run a command with the sandbox's connection settings in its environment
    #[command(after_help = "Example:\n  plimsoll sandbox exec m1 -- printenv MYSQL_UNIX_PORT")]
    Exec {
        /// Its name
        name: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Print the server's log
    #[command(after_help = "Example:\n  plimsoll sandbox log -f m1")]
    Log {
        /// Its name
        name: String,
        /// Go on as the log grows
        #[arg(short, long)]
        follow: bool,
        /// Only the last lines
        #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
        lines: Option<usize>,
    },
    /// Print connection settings for other tools
    #[command(after_help = "Examples:\n  eval \"$(plimsoll sandbox env m1)\"
  plimsoll sandbox env m1 --format my-cnf > m1.cnf && mysql --defaults-file=m1.cnf
  plimsoll sandbox use m1 -- -e 'CREATE DATABASE shop'
  sysbench oltp_read_only $(plimsoll sandbox env m1 --format sysbench) --mysql-db=shop prepare")]
    Env {
        /// Its name
        name: String,
        /// For which tools
        #[arg(long, value_enum, default_value_t = EnvFormat::Shell)]
        format: EnvFormat,
        /// Over TCP, with the password, instead of over the socket
        #[arg(long)]
        tcp: bool,
    },
    /// Stop the server and remove everything of the sandbox
    #[command(after_help = "Example:\n  plimsoll sandbox destroy m1")]
    Destroy(Named),
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name
    pub(crate) name: String,
}

/// Forms of connection settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// Lines for a shell
    Shell,
    /// An option file for MySQL's and MariaDB's programs
    MyCnf,
    /// A service for PostgreSQL's pg_service.conf
    PgService,
    /// Flags for sysbench
    Sysbench,
}

#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// The build: flavor[@version]
    pub(crate) server: String,
    /// Name of the sandbox (default: from the build)
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Durability
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub(crate) profile: Option<sandbox::Profile>,
    /// A server variable (repeatable)
    #[arg(long, value_name = "variable=value", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// What the server logs: none, general-file, general-table, binlog
    #[arg(long, value_name = "VARIANT", value_parser = logging)]
    pub(crate) logging: Option<sandbox::Logging>,
    /// A variable of the server's environment (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) env: Vec<(String, String)>,
    /// Directory under which the data directory is made, or tmpfs
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) datadir: Option<PathBuf>,
    /// Cpus of the server, as in 0-3,8
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = cpus)]
    pub(crate) cpus: Option<sandbox::Cpus>,
    /// Port on 127.0.0.1 (default: a free one)
    #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
}
