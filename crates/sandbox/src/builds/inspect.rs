//! Recognising a server: from a directory or a binary to its flavour, version and files.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ask;
use crate::build::{Files, Flavor, Version};
use crate::{Error, Origin, record};

/// Where the server binary may be below the root of a build: packages, then source trees after `make`.
const SERVER_PLACES: [&str; 13] = [
    "bin/mariadbd",
    "bin/mysqld",
    "sbin/mariadbd",
    "sbin/mysqld",
    "libexec/mariadbd",
    "libexec/mysqld",
    "mysqld",
    "runtime_output_directory/mysqld",
    "sql/mariadbd",
    "sql/mysqld",
    "bin/postgres",
    "tmp_install/usr/local/pgsql/bin/postgres",
    "pgsql/bin/postgres",
];

/// What was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) flavor: Flavor,
    pub(crate) version: String,
    pub(crate) files: Files,
}

/// The server binary in a directory, if there is one.
pub(crate) fn server_in(root: &Path) -> Option<PathBuf> {
    SERVER_PLACES.iter().map(|place| root.join(place)).find(|path| path.is_file())
}

/// The files around a server binary.
pub(crate) fn files_around(server: &Path) -> Files {
    let bin = server.parent().unwrap_or(Path::new("/"));
    // A source tree has the binary in sql/ or runtime_output_directory/, an installation in bin/ or sbin/.
    let base = match bin.file_name().and_then(|n| n.to_str()) {
        Some("bin" | "sbin" | "libexec" | "sql" | "runtime_output_directory") => bin.parent().unwrap_or(bin),
        _ => bin,
    };
    let first = |relative: &[&str], holds: &dyn Fn(&Path) -> bool| {
        relative.iter().map(|r| base.join(r)).find(|path| holds(path))
    };
    let is_postgres = server.file_name().is_some_and(|n| n == "postgres");
    let client_names: &[&str] = if is_postgres { &["psql"] } else { &["mariadb", "mysql"] };
    let client_dirs = ["bin", "client", "runtime_output_directory", "."];
    let client = client_dirs
        .iter()
        .flat_map(|dir| client_names.iter().map(move |name| base.join(dir).join(name)))
        .find(|path| path.is_file());
    let shares = ["share/mysql", "share/mariadb", "share", "scripts"];
    Files {
        server: server.to_owned(),
        share: first(&shares, &|dir| system_tables(dir).is_some()),
        messages: first(&["share/mysql", "share/mariadb", "share", "sql/share"], &|dir| {
            dir.join("english/errmsg.sys").is_file()
        }),
        plugins: first(
            &["lib/mysql/plugin", "lib/plugin", "lib64/mysql/plugin", "plugin_output_directory"],
            &|dir| dir.is_dir(),
        ),
        initdb: Some(bin.join("initdb")).filter(|path| path.is_file()),
        client,
        libraries: ["libs", "lib/private", "library_output_directory"]
            .iter()
            .map(|folder| base.join(folder))
            .filter(|dir| dir.is_dir())
            .collect(),
        base: base.to_owned(),
    }
}

/// The SQL file that makes the system tables, and the prefix of its siblings.
pub(crate) fn system_tables(share: &Path) -> Option<&'static str> {
    ["mariadb_", "mysql_"]
        .into_iter()
        .find(|prefix| share.join(format!("{prefix}system_tables.sql")).is_file())
}

/// Asks a server binary who it is.
pub(crate) fn inspect(server: &Path) -> Result<Found, Error> {
    let files = files_around(server);
    let refuse = |why: String| Error::Archive { path: server.to_owned(), why };
    let mut env = Vec::new();
    if !files.libraries.is_empty() {
        env.push(("LD_LIBRARY_PATH".into(), library_path(&files.libraries)));
    }
    let said = ask::ask(server, &["--version".into()], &env).map_err(|e| refuse(unasked(server, &e)))?;
    if !said.status.success() {
        let missing = super::libraries::missing(&files).unwrap_or_default();
        if !missing.is_empty() {
            return Err(Error::Libraries { build: server.display().to_string(), missing });
        }
        return Err(refuse(format!("`--version` failed: {}", shown(&said.err))));
    }
    let (flavor, version) = read_version(&said.out)
        .ok_or_else(|| refuse(format!("its version cannot be read from \"{}\"", shown(&said.out))))?;
    Ok(Found { flavor, version, files })
}

/// What a program that nothing is known about has said: a line's length, and nothing that a terminal would obey.
fn shown(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

/// Why a program could not be asked. Root asks as another user, who has to get there.
fn unasked(server: &Path, error: &std::io::Error) -> String {
    let closed = server.ancestors().skip(1).find(|dir| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
    });
    match closed.filter(|_| error.kind() == std::io::ErrorKind::PermissionDenied && record::is_root()) {
        Some(dir) => format!(
            "as root Plimsoll runs it under an unprivileged uid, to which {} is closed: put it where other users may \
             enter, or set PLIMSOLL_HOME to such a place (/var/lib/plimsoll)",
            dir.display()
        ),
        None => format!("it does not run here ({error})"),
    }
}

/// `LD_LIBRARY_PATH` of some directories.
pub(crate) fn library_path(dirs: &[PathBuf]) -> std::ffi::OsString {
    let mut path = std::ffi::OsString::new();
    for (i, dir) in dirs.iter().enumerate() {
        if i > 0 {
            path.push(":");
        }
        path.push(dir);
    }
    path
}

/// Reads the line that `--version` prints.
fn read_version(line: &str) -> Option<(Flavor, String)> {
    let numbers = |text: &str, also: &[char]| -> String {
        let end = text.find(|c: char| !c.is_ascii_digit() && !also.contains(&c)).unwrap_or(text.len());
        text[..end].trim_end_matches(['.', '-']).to_owned()
    };
    if let Some(rest) = line.split("(PostgreSQL) ").nth(1) {
        return Some((Flavor::Postgres, numbers(rest, &['.'])));
    }
    let rest = line.split("Ver ").nth(1)?;
    if line.contains("Percona") {
        // 8.0.36-28: the part behind the dash is Percona's own.
        return Some((Flavor::Percona, numbers(rest, &['.', '-'])));
    }
    let flavor = if line.contains("MariaDB") { Flavor::Mariadb } else { Flavor::Mysql };
    let version = numbers(rest, &['.']);
    (Version::of(&version) > Version(0, 0, 0, 0)).then_some((flavor, version))
}

/// SHA-256 of a file, in hex.
pub(crate) fn sha256_file(path: &Path) -> Result<String, Error> {
    let fail = |e| Error::io("read", path, e);
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(fail)?;
    Ok(hex(&hasher.finalize()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The identity of a build: its binary's hash with where it came from.
pub(crate) fn identity(binary_sha256: &str, origin: &Origin) -> String {
    let mut hasher = Sha256::new();
    hasher.update(binary_sha256.as_bytes());
    hasher.update(b"\n");
    hasher.update(origin.to_string().as_bytes());
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_lines_of_every_flavour_are_read() {
        let cases = [
            ("mysqld  Ver 5.5.34 for linux2.6 on x86_64 (MySQL Community Server (GPL))", "mysql 5.5.34"),
            ("/x/mysqld  Ver 8.0.33 for Linux on x86_64 (MySQL Community Server - GPL)", "mysql 8.0.33"),
            ("./mysqld  Ver 10.1.23-MariaDB for Linux on x86_64 (MariaDB Server)", "mariadb 10.1.23"),
            (
                "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                "mariadb 10.11.19",
            ),
            (
                "mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28, Revision 47601f19)",
                "percona 8.0.36-28",
            ),
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "postgres 15.18"),
            ("postgres (PostgreSQL) 9.6.24", "postgres 9.6.24"),
            ("postgres (PostgreSQL) 18beta1", "postgres 18"),
        ];
        for (line, expected) in cases {
            let (flavor, version) = read_version(line).unwrap();
            assert_eq!(format!("{flavor} {version}"), expected, "{line}");
        }
        assert_eq!(read_version("bash, version 5.2"), None);
    }
}
