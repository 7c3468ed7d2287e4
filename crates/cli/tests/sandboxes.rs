//! `plimsoll sandbox` from the first deploy to the last destroy, as a user types it.

mod common;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Done, plimsoll, run, servers_are_there};

/// A sandbox of a name of its own, destroyed at the end whatever happened.
struct Named(String);

impl Named {
    fn deploy(server: &str, name: &str, more: &[&str]) -> Named {
        let named = Named(format!("{name}-{server}-{}", std::process::id()));
        let mut line = vec!["sandbox", "deploy", server, "--name", &named.0];
        line.extend(more);
        run(&line).expect(0, &[]);
        named
    }

    fn run(&self, words: &[&str]) -> Done {
        let (command, rest) = words.split_first().unwrap();
        let mut line = vec!["sandbox", command, self.0.as_str()];
        line.extend(rest);
        run(&line)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // Destroyed by the test itself, mostly.
        let _ = plimsoll().args(["sandbox", "destroy", &self.0]).output();
    }
}

fn pid_of(sandbox: &Named) -> String {
    let status = sandbox.run(&["status"]).expect(0, &[]).out;
    let line = status.lines().find_map(|line| line.strip_prefix("pid")).unwrap_or_else(|| panic!("{status}"));
    line.trim().to_owned()
}

#[test]
fn a_sandbox_from_deploy_to_destroy() {
    if !servers_are_there() {
        return;
    }
    for (server, client, version) in
        [("mariadb", "-e", "SELECT CONCAT('sum ', 40 + 2)"), ("postgres", "-c", "SELECT 'sum ' || 40 + 2")]
    {
        let version = version.replace("40 + 2", "(40 + 2)");
        let one = Named::deploy(server, "cli", &[]);
        let list = run(&["sandbox", "list"]).expect(0, &[]).out;
        assert!(list.contains(&one.0) && list.contains("running"), "{list}");
        let pid = pid_of(&one);

        // It runs on without the plimsoll that deployed it, and is not started a second time.
        one.run(&["start"]).expect(0, &[]);
        assert_eq!(pid_of(&one), pid);
        assert!(one.run(&["use", "--", client, &version]).expect(0, &[]).out.contains("sum 42"));
        let said =
            one.run(&["exec", "--", "sh", "-c", "echo ${MYSQL_UNIX_PORT:-$PGHOST}"]).expect(0, &[]).out;
        assert!(said.contains(&one.0), "{said}");
        assert!(!one.run(&["log", "-n", "3"]).expect(0, &[]).out.is_empty());

        let said = one.run(&["restart"]).expect(0, &[]).out;
        assert!(said.contains("restarted; stopping took"), "{said}");
        assert_ne!(pid_of(&one), pid);
        let said = one.run(&["stop"]).expect(0, &[]).out;
        assert!(said.contains("stopped after"), "{said}");
        assert!(one.run(&["status"]).expect(0, &[]).out.contains("stopped"));
        one.run(&["use"]).expect(3, &["is not running", "plimsoll sandbox start"]);
        one.run(&["start"]).expect(0, &[]);
        one.run(&["destroy"]).expect(0, &[]);
        one.run(&["status"]).expect(2, &["no sandbox named"]);
    }
}

#[test]
fn the_log_is_followed_until_the_sandbox_is_gone() {
    if !servers_are_there() {
        return;
    }
    let one = Named::deploy("postgres", "log", &[]);
    let before = one.run(&["log"]).expect(0, &[]).out;
    let mut command = plimsoll();
    command.args(["sandbox", "log", "-f", &one.0]).stdout(Stdio::piped());
    let mut follower = command.spawn().unwrap();
    let mut out = follower.stdout.take().unwrap();
    // It is there once it has said something.
    let mut after = vec![0];
    out.read_exact(&mut after).unwrap();
    one.run(&["restart"]).expect(0, &[]);
    one.run(&["destroy"]).expect(0, &[]);
    // To its end, which only the destroy brings.
    out.read_to_end(&mut after).unwrap();
    let after = String::from_utf8(after).unwrap();
    assert!(follower.wait().unwrap().success());
    assert!(after.starts_with(&before) && after.len() > before.len(), "{after}");
    assert_eq!(after.matches("ready to accept connections").count(), 2, "{after}");
}

#[test]
fn connection_settings_let_other_tools_in() {
    if !servers_are_there() {
        return;
    }
    let my = Named::deploy("mariadb", "env", &[]);
    // The client that comes with the server, else an installed one.
    let home = sandbox::Home::find().unwrap();
    let build = sandbox::builds::resolve(&home, &"mariadb".parse().unwrap(), &|_| ()).unwrap();
    let client = sandbox::builds::client(&build).unwrap().unwrap_or_else(|| "mariadb".into());
    let dir = tempfile::tempdir().unwrap();
    for tcp in [&[][..], &["--tcp"]] {
        let settings = |format: &str| {
            let mut words = vec!["env", "--format", format];
            words.extend(tcp);
            my.run(&words).expect(0, &[]).out
        };
        let file = dir.path().join("my.cnf");
        std::fs::write(&file, settings("my-cnf")).unwrap();
        let output = Command::new(&client)
            .arg(format!("--defaults-file={}", file.display()))
            .args(["-N", "-e", "SELECT 40 + 2"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "42", "{output:?}");
        // The environment cannot say that no certificate is to be expected.
        let options = sandbox::builds::client_options("mariadb").join(" ");
        let (settings_of_shell, client) = (settings("shell"), client.display());
        let line =
            format!("{settings_of_shell}{client} --no-defaults {options} -N -u root -e 'SELECT 40 + 2'");
        let host = if tcp.is_empty() { "" } else { " -h 127.0.0.1" };
        let output = Command::new("sh").args(["-c", &(line + host)]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "42", "{output:?}");
        assert!(settings("sysbench").starts_with("--db-driver=mysql --mysql-"));
    }
    my.run(&["env", "--format", "pg-service"]).expect(2, &["my-cnf"]);

    let pg = Named::deploy("postgres", "env", &[]);
    for tcp in [&[][..], &["--tcp"]] {
        let mut words = vec!["env", "--format", "pg-service"];
        words.extend(tcp);
        let file = dir.path().join("pg_service.conf");
        std::fs::write(&file, pg.run(&words).expect(0, &[]).out).unwrap();
        let output = Command::new("psql")
            .env("PGSERVICEFILE", &file)
            .args([&format!("service={}", pg.0), "-Atc", "SELECT 40 + 2"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "42", "{output:?}");
    }
    pg.run(&["env", "--format", "my-cnf"]).expect(2, &["pg-service"]);
}

#[test]
fn the_prompt_of_its_own_takes_statements_and_tells_errors() {
    if !servers_are_there() {
        return;
    }
    for server in ["mariadb", "postgres"] {
        let one = Named::deploy(server, "prompt", &[]);
        let type_in = |words: &[&str], typed: &str| {
            let mut command = plimsoll();
            command.args(["sandbox", "use", &one.0, "--builtin"]).args(words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // A command that reads nothing may be gone already.
            let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), typed.as_bytes());
            Done::of(child.wait_with_output().unwrap())
        };
        let out = type_in(&["--", "-e", "SELECT 40 + 2 AS sum"], "").expect(0, &[]).out;
        assert_eq!(out, "sum\n42\n(1 row)\n");
        let script = "CREATE DATABASE shop;\n\\c shop\nCREATE TABLE t (a INTEGER);\nINSERT INTO t\nVALUES (1), (2);\n\n\
                      SELECT a, NULL AS b FROM t\nORDER BY a;\n\\q\nSELECT never;\n";
        let out = type_in(&[], script).expect(0, &[]).out;
        assert!(out.contains("ok, 2 rows changed\na  b\n1  NULL\n2  NULL\n(2 rows)\n"), "{out}");
        let out = type_in(&["--", "-D", "shop"], "SELECT COUNT(*) AS n FROM t").expect(0, &[]).out;
        assert_eq!(out, "n\n2\n(1 row)\n");
        let done = type_in(&[], "SELECT nothing_such;\nSELECT 1;\n").expect(1, &["nothing_such"]);
        assert_eq!(done.out, "", "a script ends at its first error");
        type_in(&["--", "--batch"], "").expect(2, &["does not know `--batch`"]);
    }
}

#[test]
fn names_and_places_that_leave_the_home_are_refused() {
    for name in ["../up", "a/b", "..", ".hidden", "-x", ""] {
        let done = run(&["sandbox", "deploy", "mariadb", &format!("--name={name}")]);
        done.expect(2, &["cannot name a sandbox"]);
        run(&["sandbox", "destroy", "--", name]).expect(2, &["cannot name a sandbox"]);
    }
}

#[test]
fn of_two_plimsolls_that_deploy_one_name_one_wins() {
    if !servers_are_there() {
        return;
    }
    let named = Named(format!("twice-{}", std::process::id()));
    let deploy = || {
        let mut command = plimsoll();
        command.args(["sandbox", "deploy", "postgres", "--name", &named.0]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [deploy(), deploy()];
    let mut ended: Vec<Done> =
        both.into_iter().map(|child| Done::of(child.wait_with_output().unwrap())).collect();
    ended.sort_by_key(|done| done.code);
    let loser = ended.pop().unwrap();
    ended.pop().unwrap().expect(0, &[]);
    loser.expect(2, &["exists already", "choose another --name"]);
    assert!(named.run(&["status"]).expect(0, &[]).out.contains("running"));
}

/// Another user of the machine, without a name in /etc/passwd, with a home of its own.
#[test]
fn an_unprivileged_user_deploys_and_destroys() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const UID: u32 = 64_995;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        // Then every other test here is about one already.
        return;
    }
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The build directory may be closed to others.
    let program = dir.path().join("plimsoll");
    std::fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &program).unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    // What was fetched for other tests is not fetched again, and may be read by everybody.
    let builds = sandbox::Home::find().unwrap().builds();
    if builds.is_dir() {
        let place = home.join(".local/share/plimsoll");
        std::fs::create_dir_all(&place).unwrap();
        std::os::unix::fs::symlink(&builds, place.join("builds")).unwrap();
        for dir in [place.as_path(), place.parent().unwrap(), &home.join(".local")] {
            chown(dir, Some(UID), Some(UID)).unwrap();
        }
    }
    chown(&home, Some(UID), Some(UID)).unwrap();
    let line = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={UID}"), format!("--regid={UID}"), "--clear-groups".to_owned()];
        command.args(ids).arg(&program).args(words).current_dir(&home).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home);
        Done::of(command.output().unwrap())
    };
    for (server, flag) in [("mariadb", "-e"), ("postgres", "-c")] {
        let deployed = line(&["sandbox", "deploy", server, "--name", "mine"]);
        if deployed.err.contains("cannot be given one") {
            testkit::not_tested(
                format!("{server} for a user without a name"),
                "user namespaces are off here",
            );
            continue;
        }
        let out = deployed.expect(0, &[]).out;
        let place: PathBuf = home.join(".local/share/plimsoll/sandboxes/mine");
        assert!(out.contains(place.to_str().unwrap()), "{out}");
        let answer = line(&["sandbox", "use", "mine", "--", flag, "SELECT 40 + 2"]).expect(0, &[]).out;
        assert!(answer.contains("42"), "{answer}");
        line(&["sandbox", "destroy", "mine"]).expect(0, &[]);
        assert!(!place.exists());
    }
}

#[test]
fn a_study_that_asks_for_what_a_build_lacks_is_refused_before_its_first_run() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    for (axis, words) in [
        (
            "engine = [\"InnoDB\", \"TokuDB\"]",
            ["engine `TokuDB` is not possible", "[[exclude]]", "leave those cells out"],
        ),
        (
            "settings = [\"default\", { name = \"big\", set = { innodb_bufer_pool_size = \"1G\" } }]",
            ["settings `big` are not possible", "is it innodb_buffer_pool_size?", "s.toml:6:48"],
        ),
        (
            "settings = [\"default\", { name = \"big\", set = { innodb_flush_method = \"never\" } }]",
            ["settings `big` are not possible", "innodb_flush_method: ", "s.toml:6:70"],
        ),
        (
            "env = [\"none\", { name = \"other\", set = { LD_PRELOAD = \"/nowhere/x.so\" } }]",
            ["LD_PRELOAD=/nowhere/x.so", "there is no such file", "nowhere"],
        ),
    ] {
        let text = format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"mariadb\"]\nworkload = [\"oltp_point_select\"]\n{axis}\n\
             sessions = [1]\n[load]\nduration = \"1s\"\nblocks = 1\ngates = \"warn\"\n"
        );
        std::fs::write(&path, text).unwrap();
        let results = dir.path().join("results");
        let done = run(&["run", path.to_str().unwrap(), "--results", results.to_str().unwrap()]);
        let done = done.expect(2, &words);
        assert!(!done.err.contains("[1/"), "{}", done.err);
    }
}
