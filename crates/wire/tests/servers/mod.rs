//! Private servers for the tests of this folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Endpoint, Secret, Target, TlsMode};

/// Servers refuse to run as root.
const SERVER_UID: u32 = 64_001;

/// A running server; stopped and removed when dropped.
pub struct Server {
    pub name: &'static str,
    /// Part of what it calls its version.
    pub version: &'static str,
    pub port: u16,
    pub certificate_names_localhost: bool,
    is_mariadb: bool,
    child: Child,
    dir: tempfile::TempDir,
}

impl Server {
    /// The administrator over the unix socket.
    pub fn target(&self) -> Target {
        Target {
            protocol: wire::Protocol::Mysql,
            endpoint: Endpoint::Unix(self.dir.path().join("s")),
            user: "root".into(),
            password: Secret::default(),
            database: None,
            tls: TlsMode::Disabled,
            tls_ca: None,
            connect_timeout: Duration::from_secs(60),
            statement_timeout: Duration::from_secs(120),
        }
    }

    pub fn tcp(&self) -> Endpoint {
        Endpoint::Tcp { host: "127.0.0.1".into(), port: self.port }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub fn other_ca(&self) -> PathBuf {
        self.dir.path().join("other-ca.pem")
    }

    /// How this server spells an account's method and password.
    pub fn identified(&self, plugin: &str, password: &str) -> String {
        if self.is_mariadb {
            format!("IDENTIFIED VIA {plugin} USING PASSWORD('{password}')")
        } else {
            format!("IDENTIFIED WITH {plugin} BY '{password}'")
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_told_to_do_without(what: &str) -> bool {
    if std::env::var_os("PLIMSOLL_TEST_SERVERS").is_some_and(|v| v == "none") {
        eprintln!("NOT TESTED: {what}, because PLIMSOLL_TEST_SERVERS=none");
        return true;
    }
    false
}

/// The installed MariaDB. Panics where there is none: a test that needs it must fail, not pass unseen.
pub fn mariadb() -> Option<Server> {
    if is_told_to_do_without("the MySQL protocol against MariaDB") {
        return None;
    }
    let binary = Path::new("/usr/sbin/mariadbd");
    assert!(
        binary.exists(),
        "no {}: install mariadb-server or set PLIMSOLL_TEST_SERVERS=none",
        binary.display()
    );
    let dir = directory();
    let mut sql = String::from("create database mysql;\nuse mysql;\nSET @auth_root_socket=NULL;\n");
    for name in ["system_tables", "performance_tables", "system_tables_data"] {
        let path = format!("/usr/share/mysql/mysql_{name}.sql");
        sql += &fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let bootstrap = dir.path().join("bootstrap.sql");
    fs::write(&bootstrap, sql).unwrap();
    let data = format!("--datadir={}", dir.path().join("data").display());
    let common =
        ["--no-defaults", "--lc-messages-dir=/usr/share/mysql", "--innodb-buffer-pool-size=64M", &data];
    let output = as_server(binary)
        .args(common)
        .args(["--bootstrap", "--max-allowed-packet=16M"])
        .stdin(fs::File::open(&bootstrap).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = as_server(binary);
    command.args(common).args(["--plugin-dir=/usr/lib/mysql/plugin"]);
    Some(start(command, dir, "MariaDB", "MariaDB", true))
}

/// A MySQL 8 unpacked where `PLIMSOLL_TEST_MYSQL` says.
pub fn mysql_8() -> Option<Server> {
    if is_told_to_do_without("the MySQL protocol against MySQL 8") {
        return None;
    }
    let base = PathBuf::from(
        std::env::var_os("PLIMSOLL_TEST_MYSQL").expect("set PLIMSOLL_TEST_MYSQL to a base directory"),
    );
    let dir = directory();
    let common = [
        "--no-defaults".to_owned(),
        format!("--basedir={}", base.display()),
        format!("--datadir={}", dir.path().join("data").display()),
    ];
    let output =
        as_server(&base.join("bin/mysqld")).args(&common).arg("--initialize-insecure").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = as_server(&base.join("bin/mysqld"));
    command.args(&common).args(["--mysqlx=OFF", "--skip-log-bin", "--innodb-buffer-pool-size=64M"]);
    Some(start(command, dir, "MySQL 8", "8.", false))
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("wire-test-").tempdir_in("/tmp").unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    write_certificates(dir.path());
    if is_root() {
        for path in [dir.path(), &data] {
            chown(path, Some(SERVER_UID), Some(SERVER_UID)).unwrap();
        }
    }
    dir
}

fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

fn as_server(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    if is_root() {
        command.uid(SERVER_UID).gid(SERVER_UID);
    }
    command
}

/// An authority, a certificate from it for `localhost`, and an authority that has nothing to do with it.
fn write_certificates(dir: &Path) {
    let authority = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        (params, key, certificate)
    };
    let (params, key, certificate) = authority("test authority");
    fs::write(dir.join("ca.pem"), certificate.pem()).unwrap();
    fs::write(dir.join("other-ca.pem"), authority("other authority").2.pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let server_key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["localhost".into()])
        .unwrap()
        .signed_by(&server_key, &issuer)
        .unwrap();
    fs::write(dir.join("server.pem"), server.pem()).unwrap();
    fs::write(dir.join("server-key.pem"), server_key.serialize_pem()).unwrap();
}

fn start(
    mut command: Command,
    dir: tempfile::TempDir,
    name: &'static str,
    version: &'static str,
    is_mariadb: bool,
) -> Server {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = |file: &str| dir.path().join(file).display().to_string();
    let log = fs::File::create(dir.path().join("log")).unwrap();
    let child = command
        .args([
            format!("--socket={}", at("s")),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".into(),
            format!("--pid-file={}", at("pid")),
            format!("--tmpdir={}", at("data")),
            "--local-infile=1".into(),
            format!("--ssl-ca={}", at("ca.pem")),
            format!("--ssl-cert={}", at("server.pem")),
            format!("--ssl-key={}", at("server-key.pem")),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut server =
        Server { name, version, port, certificate_names_localhost: true, is_mariadb, child, dir };
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = Client::connect(&server.target()) {
        let log = || fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
        assert!(Instant::now() < deadline, "{name} does not answer: {error}\n{}", log());
        if let Some(status) = server.child.try_wait().unwrap() {
            panic!("{name} ended with {status}:\n{}", log());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    server
}
