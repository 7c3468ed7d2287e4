//! Servers of others: one that calls itself MySQL 8.0 and is not, a pooler in front of PostgreSQL, a hostile one. And the
//! passwords of URLs.

mod common;

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Done, Running, plimsoll, run, servers_are_there, wait_until};
use testkit::fake::{Address, FakeServer, Language, Reply, Request, mysql};

const SHORT: [&str; 8] = ["--time", "1s", "--warmup", "100ms", "-o", "table_size=1000", "--sessions", "4"];

/// go-mysql-server, built once for this checkout; `Err`: why there is none.
fn go_mysql_server() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/go-mysql-server");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-mysql-server-0.20.0");
    if program.exists() {
        return Ok(program);
    }
    let being_built = program.with_extension(std::process::id().to_string());
    let built = Command::new("go")
        .args(["build", "-o", being_built.to_str().unwrap(), "."])
        .current_dir(source)
        .output()
        .map_err(|error| format!("go cannot be run: {error}"))?;
    if !built.status.success() {
        return Err(format!("go-mysql-server cannot be built: {}", String::from_utf8_lossy(&built.stderr)));
    }
    std::fs::rename(&being_built, &program).map_err(|error| error.to_string())?;
    Ok(program)
}

#[test]
fn a_server_that_calls_itself_mysql_8_is_measured_without_what_it_refuses() {
    let program = match go_mysql_server() {
        Ok(program) => program,
        Err(why) => return testkit::not_tested("a server that is not MySQL", why),
    };
    let mut server = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let _server = Running(server);
    let port = port.trim();
    wait_until(Duration::from_secs(10), "its port", || {
        TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    });
    let url = format!("mysql://root@127.0.0.1:{port}/sbtest");
    let bench = ["bench", "oltp_point_select", "--server", &url];
    let done = run(&[&bench[..], &SHORT[..]].concat()).expect(0, &["innodb_ddl_buffer_size"]);
    let told = done.err.lines().filter(|line| line.contains("innodb_ddl_buffer_size")).count();
    assert_eq!(told, 1, "{}", done.err);
    let at =
        ["--mysql-host=127.0.0.1", &format!("--mysql-port={port}"), "--mysql-user=root", "--mysql-db=sbtest"];
    let prepare = ["sysbench", "oltp_read_write", "--table-size=100", "--threads=2"];
    let done = run(&[&prepare[..], &at[..], &["prepare"]].concat()).expect(0, &[]);
    assert!(done.out.contains("100 rows are in place"), "{}", done.out);
    run(&[&prepare[..], &at[..], &["--time=1", "run"]].concat()).expect(0, &[]);
}

/// PgBouncer in transaction mode before a server, under a uid of its own, because it does not run as root.
fn pgbouncer(dir: &Path, server: &str) -> Option<(Running, u16)> {
    const UID: u32 = 64_994;
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].iter().find(|path| Path::new(path).exists());
    let Some(program) = program else {
        testkit::not_tested("a pooler before PostgreSQL", "the Debian package pgbouncer is not installed");
        return None;
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = dir.join("pgbouncer.ini");
    let text = format!(
        "[databases]\nsbtest = {server} dbname=sbtest\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nlogfile = {}\n",
        dir.join("pgbouncer.log").display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
        [dir, config.as_path()].iter().for_each(|path| chown(path, Some(UID), Some(UID)).unwrap());
        command = Command::new("setpriv");
        command.args([&format!("--reuid={UID}"), &format!("--regid={UID}"), "--clear-groups", *program]);
    }
    let child = command.arg(&config).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = Running(child);
    wait_until(Duration::from_secs(10), "pgbouncer", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((running, port))
}

struct Sandbox(String);

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = plimsoll().args(["sandbox", "destroy", &self.0]).output();
    }
}

#[test]
fn behind_a_pooler_the_message_names_the_option_and_the_option_works() {
    if !servers_are_there() {
        return;
    }
    let sandbox = Sandbox(format!("pooled-{}", std::process::id()));
    let name = sandbox.0.as_str();
    run(&["sandbox", "deploy", "postgres", "--name", name]).expect(0, &[]);
    run(&["sandbox", "use", name, "--builtin", "--", "-e", "CREATE DATABASE sbtest"]).expect(0, &[]);
    let service = run(&["sandbox", "env", name, "--format", "pg-service", "--tcp"]).expect(0, &[]).out;
    let server: Vec<&str> =
        service.lines().filter(|line| line.contains('=') && !line.starts_with("dbname")).collect();
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let value = |key: &str| server.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let direct = format!("postgres://postgres@127.0.0.1:{}/sbtest", value("port="));
    let direct = ["bench", "oltp_point_select", "--server", &direct];
    let line = [&direct[..], &SHORT[..]].concat();
    run(&line).expect(3, &["wants a password"]);
    let with =
        |variable: &str, value: &str| Done::of(plimsoll().args(&line).env(variable, value).output().unwrap());
    with("PGPASSWORD", value("password=")).expect(0, &[]);
    let pass = dir.path().join("pass");
    std::fs::write(&pass, format!("127.0.0.1:*:sbtest:postgres:{}\n", value("password="))).unwrap();
    with("PGPASSFILE", pass.to_str().unwrap()).expect(2, &["chmod 600"]);
    std::fs::set_permissions(&pass, std::fs::Permissions::from_mode(0o600)).unwrap();
    with("PGPASSFILE", pass.to_str().unwrap()).expect(0, &[]);
    std::fs::write(&pass, value("password=")).unwrap();
    run(&[&line[..], &["--password-file", pass.to_str().unwrap()]].concat()).expect(0, &[]);

    let Some((_pooler, port)) = pgbouncer(dir.path(), &server.join(" ")) else { return };
    let url = format!("postgres://postgres@127.0.0.1:{port}/sbtest");
    let bench = ["bench", "oltp_point_select", "--server", &url];
    let line = [&bench[..], &SHORT[..]].concat();
    // Sessions prepare when they connect: the server could not be had in this way.
    run(&line).expect(3, &["prepared statement", "-o db_ps_mode=disable"]);
    let done = run(&[&line[..], &["-o", "db_ps_mode=disable"]].concat()).expect(0, &[]);
    assert!(!done.err.contains("db_ps_mode"), "{}", done.err);
}

#[test]
fn what_a_server_says_cannot_draw_on_the_terminal() {
    let server = FakeServer::on_port(Language::Mysql, |request, reply| match request {
        Request::Login => {
            Reply::new(mysql::packet(2, &mysql::error(1045, "28000", "no\u{1b}[2J\u{9b}1m\u{7}\u{202e}")))
        }
        _ => reply,
    })
    .unwrap();
    let Address::Tcp(port) = *server.address() else { panic!("no port") };
    let url = format!("mysql://u:geheim@127.0.0.1:{port}/db");
    let done = run(&["bench", "oltp_point_select", "--server", &url])
        .expect(3, &["refused the log-in", "\\u{1b}[2J"]);
    assert!(!done.err.contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']), "{:?}", done.err);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    for workload in ["oltp_point_select", "no\\u001b[31mne"] {
        let study = format!(
            "title = \"a\\u001b[2J title\"\nquestion = \"q\"\n[axes]\nserver = [\"mysql://u@127.0.0.1:{port}/db\"]\n\
             workload = [\"{workload}\"]\nsessions = [1]\n[load]\nduration = \"1s\"\nblocks = 1\ngates = \"warn\"\n"
        );
        std::fs::write(&path, study).unwrap();
        let done = run(&["run", path.to_str().unwrap(), "--dry-run"]);
        let all = done.out + &done.err;
        assert!(all.contains("\\u{1b}") && !all.contains('\u{1b}'), "{all:?}");
    }

    let script = dir.path().join("s.lua");
    std::fs::write(&script, "error('a\\27[2J script')").unwrap();
    let done = run(&["sysbench", script.to_str().unwrap(), "run"]);
    assert!(done.out.contains("script") && !done.out.contains('\u{1b}'), "{done:?}");
    assert!(!done.err.contains('\u{1b}'), "{done:?}");
}

/// What `ps` would show of a process.
fn arguments(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

#[test]
fn passwords_of_urls_are_not_seen_and_come_from_elsewhere() {
    let (sender, log_ins) = std::sync::mpsc::channel();
    let server = FakeServer::on_port(Language::Mysql, move |request, reply| {
        if *request == Request::Login {
            let _ = sender.send(());
            std::thread::sleep(Duration::from_millis(500));
        }
        match request {
            Request::Login => Reply::new(mysql::packet(2, &mysql::error(1045, "28000", "no"))),
            _ => reply,
        }
    })
    .unwrap();
    let Address::Tcp(port) = *server.address() else { panic!("no port") };
    for url in [
        format!("mysql://u:geheim@127.0.0.1:{port}/db"),
        format!("mysql://u@127.0.0.1:{port}/db?password=geheim"),
    ] {
        // What an earlier process has asked for.
        while log_ins.try_recv().is_ok() {}
        let child = plimsoll()
            .args(["bench", "oltp_point_select", "--server", &url])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        log_ins.recv_timeout(Duration::from_secs(20)).expect("a log-in");
        let seen = arguments(child.id());
        assert!(seen.contains("oltp_point_select") && !seen.contains("geheim"), "{seen}");
        let done = Done::of(child.wait_with_output().unwrap()).expect(3, &["refused the log-in"]);
        assert!(!done.err.contains("geheim"), "{}", done.err);
    }
    let url = format!("mysql://u@127.0.0.1:{port}/db");
    let missing = ["bench", "oltp_point_select", "--server", &url, "--password-file", "/nonexistent/secret"];
    run(&missing).expect(2, &["/nonexistent/secret", "cannot read the password"]);
    for command in ["sysbench", "super-smack"] {
        let help = run(&[command, "--help"]).expect(0, &[]).out;
        assert!(help.contains("is code"), "{help}");
    }
}

/// A server that this process cannot see, with an agent beside it: what `ssh` would start is started by the test, and its
/// pipes are what stands in the place of `ssh`.
#[test]
fn an_agent_looks_at_the_machine_of_a_server_that_runs_elsewhere() {
    if !servers_are_there() {
        return;
    }
    let hidden = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !Command::new(hidden[0]).args(&hidden[1..]).arg("true").status().is_ok_and(|done| done.success()) {
        return testkit::not_tested("an agent", "no namespaces may be made here");
    }
    let sandbox = Sandbox(format!("elsewhere-{}", std::process::id()));
    run(&["sandbox", "deploy", "mariadb", "--name", &sandbox.0]).expect(0, &[]);
    let env = run(&["sandbox", "env", &sandbox.0, "--tcp"]).expect(0, &[]).out;
    let value = |name: &str| {
        let line = env.lines().find_map(|line| line.split_once(&format!("{name}="))).unwrap().1;
        line.trim_matches(['\'', '"', ';']).to_owned()
    };
    let (port, password) = (value("MYSQL_TCP_PORT"), value("MYSQL_PWD"));
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").args([file("told"), file("says")]).status().unwrap().success());
    let script = |name: &str, text: String| {
        std::fs::write(file(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(file(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (told, says, log) = (file("told"), file("says"), file("log"));
    let (told, says, log) = (told.display(), says.display(), log.display());
    script("ssh", format!("echo \"$@\" >> {log}\ncat {says} &\nexec cat > {told}"));
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let agents = format!("while :; do {program} agent {port} < {told} > {says}; done");
    let _agents = Running(Command::new("sh").args(["-c", &agents]).spawn().unwrap());
    let bench = |more: &[&str]| {
        let url = format!("mysql://root@127.0.0.1:{port}/sbtest");
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(hidden[0]);
        command.args(&hidden[1..]).arg(program).args(["bench", "oltp_point_select", "--server", &url]);
        command.args(SHORT).args(["--json", "-"]).args(more);
        Done::of(command.env("PATH", path).env("MYSQL_PWD", &password).output().unwrap())
    };
    let finding = |done: Done| {
        let run: serde_json::Value = serde_json::from_str(&done.expect(0, &[]).out).unwrap();
        run["gates"]["noisy_host"]["finding"].as_str().unwrap().to_owned()
    };
    assert_eq!(finding(bench(&[])), "not_checked");
    assert_ne!(finding(bench(&["--agent", "me@db1:/opt/plimsoll"])), "not_checked");
    let asked = std::fs::read_to_string(file("log")).unwrap();
    assert!(asked.contains(&format!("BatchMode=yes -- me@db1 /opt/plimsoll agent {port}")), "{asked}");

    // The same by a real sshd, where there is one.
    if let Some(sshd) = Sshd::start(dir.path()) {
        script("ssh", format!("exec /usr/bin/ssh -F {} \"$@\"", sshd.client.display()));
        let place = format!("db1:{program}");
        assert_ne!(finding(bench(&["--agent", &place])), "not_checked");
        bench(&["--agent", "db1:/nonexistent/plimsoll"]).expect(3, &["/nonexistent/plimsoll"]);
        // A host whose key nobody has seen: nobody is there to say yes.
        std::fs::remove_file(file("known_hosts")).unwrap();
        bench(&["--agent", &place]).expect(3, &["Host key verification failed"]);
    }

    script("ssh", "echo 'no route to host' >&2; exit 255".into());
    bench(&["--agent", "db1"]).expect(3, &["no route to host"]);
    run(&["bench", "oltp_point_select", "--server", "mariadb", "--agent", "db1"])
        .expect(2, &["--agent is for a server that runs elsewhere"]);
}

/// A server of OpenSSH for this user, on loopback, with everything in one directory.
struct Sshd {
    _child: Running,
    /// What `ssh -F` takes: it knows the server as `db1`.
    client: PathBuf,
}

impl Sshd {
    /// `None`, and said as not tested, where there is none.
    fn start(dir: &Path) -> Option<Sshd> {
        let program = "/usr/sbin/sshd";
        if !Path::new(program).exists() || !Path::new("/usr/bin/ssh").exists() {
            testkit::not_tested(
                "an agent by a real sshd",
                "there is no sshd (Debian: openssh-server, openssh-client)",
            );
            return None;
        }
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(key))
                .status();
            assert!(made.unwrap().success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let here = dir.display();
        let of = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
        write("known_hosts", format!("db1 {}", of("host_key.pub")));
        write(
            "ssh_config",
            format!(
                "Host db1\nHostName 127.0.0.1\nPort {port}\nHostKeyAlias db1\nIdentityFile {here}/user_key\nIdentitiesOnly yes\n\
                 UserKnownHostsFile {here}/known_hosts\nGlobalKnownHostsFile none\n"
            ),
        );
        write(
            "sshd_config",
            format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host_key\nAuthorizedKeysFile {here}/user_key.pub\n\
                 StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n"
            ),
        );
        // It wants a directory in /run, which it gets in its own mounts.
        let script = format!(
            "mount -t tmpfs none /run && mkdir /run/sshd && exec {program} -D -e -f {here}/sshd_config"
        );
        let log = std::fs::File::create(dir.join("sshd.log")).unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stderr(log)
            .spawn()
            .unwrap();
        let sshd = Sshd { _child: Running(child), client: dir.join("ssh_config") };
        wait_until(Duration::from_secs(20), "sshd", || of("sshd.log").contains("listening"));
        Some(sshd)
    }
}
