//! A private PostgreSQL server for one test binary.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use wire::{Endpoint, Protocol, Secret, Target, TlsMode};

/// Who may log in how. The socket and TCP without TLS accept the same methods, except for `tls`.
const HBA: &str = "
local   all admin  trust
local   all clear  password
local   all hashed md5
local   all scram  scram-sha-256
hostssl all tls    127.0.0.1/32 scram-sha-256
host    all tls    127.0.0.1/32 reject
host    all admin  127.0.0.1/32 trust
host    all clear  127.0.0.1/32 password
host    all hashed 127.0.0.1/32 md5
host    all scram  127.0.0.1/32 scram-sha-256
";

const USERS: &str = "
CREATE USER clear PASSWORD 'clear-pw';
SET password_encryption = md5;
CREATE USER hashed PASSWORD 'hashed-pw';
SET password_encryption = 'scram-sha-256';
CREATE USER scram PASSWORD 'pass,=w\u{00f6}rd';
CREATE USER tls PASSWORD 'tls-pw';
";

/// The server. It and its directory go when the process ends, however that happens: a watchdog waits for the
/// end of a pipe that this process holds open.
pub(crate) struct Server {
    directory: PathBuf,
    port: u16,
    /// The server and its watchdog, which lives as long as its standard input is open.
    _processes: [Child; 2],
}

/// The server that all tests of this binary share, or `None` where the caller wants no servers.
pub(crate) fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER
        .get_or_init(|| {
            if std::env::var("PLIMSOLL_TEST_SERVERS").as_deref() == Ok("none") {
                eprintln!(
                    "NOT TESTED: PostgreSQL protocol against a real server (PLIMSOLL_TEST_SERVERS=none)"
                );
                return None;
            }
            Some(Server::start())
        })
        .as_ref()
}

/// The newest installed PostgreSQL.
fn binaries() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    found.sort();
    found
        .pop()
        .expect(
            "no PostgreSQL server below /usr/lib/postgresql: install the postgresql package, or set \
             PLIMSOLL_TEST_SERVERS=none to go without",
        )
        .1
}

/// The account that a server may run under: PostgreSQL refuses root, and initdb wants a passwd entry.
fn account() -> Option<(u32, u32)> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").expect("read /etc/passwd");
    let line = passwd.lines().find(|line| line.starts_with("postgres:")).expect("user postgres exists");
    let ids: Vec<u32> = line.split(':').skip(2).take(2).map(|id| id.parse().expect("numeric id")).collect();
    Some((ids[0], ids[1]))
}

fn command(program: &Path, account: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = account {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

impl Server {
    fn start() -> Server {
        let account = account();
        let bin = binaries();
        let directory = std::env::temp_dir().join(format!("plimsoll-wire-pg-{}", std::process::id()));
        let data = directory.join("data");
        fs::create_dir_all(&directory).expect("create the directory");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("chmod");
        let own = |path: &Path| {
            if let Some((uid, gid)) = account {
                chown(path, Some(uid), Some(gid)).expect("chown");
            }
        };
        own(&directory);

        let initdb = command(&bin.join("initdb"), account)
            .args(["-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .expect("run initdb");
        assert!(initdb.status.success(), "initdb: {}", String::from_utf8_lossy(&initdb.stderr));
        fs::write(data.join("pg_hba.conf"), HBA).expect("write pg_hba.conf");
        make_certificates(&directory);
        for file in ["server.crt", "server.key"] {
            fs::set_permissions(directory.join(file), Permissions::from_mode(0o600)).expect("chmod");
            own(&directory.join(file));
        }

        let port = free_port();
        let child = command(&bin.join("postgres"), account)
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&directory)
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "ssl=on"])
            .arg("-c")
            .arg(format!("ssl_cert_file={}", directory.join("server.crt").display()))
            .arg("-c")
            .arg(format!("ssl_key_file={}", directory.join("server.key").display()))
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).expect("create the log"))
            .spawn()
            .expect("start postgres");
        let watchdog = watch(&child, &directory);
        let server = Server { directory, port, _processes: [child, watchdog] };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            match wire::blocking::Client::connect(&self.target("admin", "")) {
                Ok(mut client) => {
                    client.query(USERS).expect("create users");
                    return;
                }
                Err(error) if Instant::now() > give_up => {
                    let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                    panic!("the server does not start: {error}\n{log}");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Over the unix socket.
    pub(crate) fn target(&self, user: &str, password: &str) -> Target {
        Target {
            protocol: Protocol::Postgres,
            endpoint: Endpoint::Unix(self.directory.join(format!(".s.PGSQL.{}", self.port))),
            user: user.into(),
            password: Secret::new(password),
            database: Some("postgres".into()),
            tls: TlsMode::Disabled,
            tls_ca: None,
            connect_timeout: Duration::from_secs(20),
            statement_timeout: Duration::from_secs(60),
        }
    }

    /// Over TCP.
    pub(crate) fn tcp(&self, host: &str, user: &str, password: &str, tls: TlsMode) -> Target {
        Target {
            endpoint: Endpoint::Tcp { host: host.into(), port: self.port },
            tls,
            tls_ca: Some(self.authority()),
            ..self.target(user, password)
        }
    }

    /// The certificate of the authority that signed the server's.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }
}

/// Kills the server and removes its directory once this process has ended.
fn watch(server: &Child, directory: &Path) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg("read -r line; kill -QUIT \"$1\"; sleep 0.2; rm -rf \"$2\"")
        .arg("watchdog")
        .arg(server.id().to_string())
        .arg(directory)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("start the watchdog")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("address").port()
}

/// An authority and a certificate for the name `localhost`, not for 127.0.0.1.
fn make_certificates(directory: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("authority");
    let key = KeyPair::generate().expect("key");
    let certificate = CertificateParams::new(vec!["localhost".into()])
        .expect("name")
        .signed_by(&key, &authority)
        .expect("certificate");
    let write = |name: &str, pem: &str| {
        fs::File::create(directory.join(name))
            .and_then(|mut file| file.write_all(pem.as_bytes()))
            .expect("write a PEM file");
    };
    write("ca.crt", &authority.pem());
    write("server.crt", &certificate.pem());
    write("server.key", &key.serialize_pem());
}
