//! Every command line that README, docs/, the heads of the studies and the help texts show is run, as it is written,
//! against real servers: an example that rots fails here. One that cannot be run so stands in [`SPECIAL`] with its
//! reason and with what is run instead; a command line that is neither there nor ends well fails the test.
//!
//! Not with trycmd or cram: they run files of their own form beside the documents, and what has to be run is what the
//! documents and `--help` say.

mod common;
#[path = "../../report/tests/common/mod.rs"]
mod recorded;
#[path = "common/shown.rs"]
mod shown;

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use common::{plimsoll, run, servers_are_there};
use shown::{Shown, documents, forms, help_texts};

/// What is done with a command line that is not run as it is written.
enum How {
    /// Run with these parts replaced, each of which it must have, and why.
    Changed(&'static [(&'static str, &'static str)], &'static str),
    /// This is run in its place, and why.
    Instead(&'static str, &'static str),
    /// Run as it is where that program is on the machine; else this.
    With(&'static str, &'static str),
    /// Run as it is, and ends with this code, and why.
    Ends(i32, &'static str),
    /// Not run, and why.
    NotRun(&'static str),
}

use How::{Changed, Ends, Instead, NotRun, With};

const LONG: &str = "it takes half a minute and more as it is written";
const NO_CLIENT: &str = "where no client programs are installed";
const OTHER_HOST: &str = "there is no such host; a sandbox's socket stands in for it";
const OTHER_HUB: &str = "there is no such hub; one of its own is served on this machine";
const CARGO: &str = "cargo builds and runs what this test is part of";
const BY_HAND: &str = "takes minutes to hours, and measures this machine";

const NO_CLUSTER: &str =
    "there is no Slurm cluster here; tests/fleet.rs makes one and runs such a study on it";

const NO_SOURCE: &str =
    "there is no such clone here, which is said at once; tests/builds.rs builds commits of one";

/// To a hub of its own, for a bundle that is known already is refused.
const SUBMIT: &str = "export PLIMSOLL_HUB_TOKEN=$(plimsoll hub token add ada --db sqlite:s$$.db)\n\
    plimsoll hub serve --db sqlite:s$$.db --listen 127.0.0.1:0 2> s$$.log & trap 'kill $!' EXIT\n\
    until grep -q http s$$.log; do sleep 0.1; done\n\
    plimsoll submit quickstart.plimsoll --to $(grep -o 'http://[0-9.:]*' s$$.log) | grep /bundle/";

const SPECIAL: &[(&str, How)] = &[
    // docs/fleet.md and the help of `run` and `fleet`
    ("plimsoll run studies/quickstart.toml --on slurm --nodes 8 --time-limit 2h", Ends(3, NO_CLUSTER)),
    (
        "plimsoll bench oltp_point_select --server mariadb --sessions 64 --clients 4 --on slurm",
        Ends(3, NO_CLUSTER),
    ),
    (
        "plimsoll bench oltp_point_select --server mysql://app@db1/test --agent db1",
        Ends(3, "there is no such host; tests/foreign.rs has an agent look at a server"),
    ),
    ("plimsoll fleet attach quickstart", Ends(2, NO_CLUSTER)),
    ("plimsoll fleet status quickstart", Ends(2, NO_CLUSTER)),
    ("plimsoll fleet cancel quickstart", Ends(2, NO_CLUSTER)),
    (
        "plimsoll run studies/quickstart.toml --block 1/2 --results half",
        Changed(
            &[("--results half", "--results half --dry-run")],
            "minutes as it is written; tests/fleet.rs makes parts",
        ),
    ),
    (
        "plimsoll report half/results.db other/results.db",
        Instead("plimsoll report --results q", "the parts are those of two hosts"),
    ),
    // README.md
    ("cargo run --release -- run studies/quickstart.toml", NotRun(CARGO)),
    ("cargo test --workspace", NotRun(CARGO)),
    // The head of a study.
    (
        "plimsoll run studies/allocators.toml",
        Instead("test -f studies/allocators.toml", "its allocators may not be on this machine"),
    ),
    (
        "plimsoll run studies/quickstart.toml --quick",
        Changed(
            &[(
                "--quick",
                "--quick --only server=postgres --only workload=oltp_read_only --only sessions=8 --results q",
            )],
            "90 seconds as it is written",
        ),
    ),
    (
        "plimsoll bench oltp_read_write --server postgres@18 --sessions 1,8,64 --time 10s",
        Changed(&[("1,8,64 --time 10s", "1,8 --time 1s --warmup 200ms")], LONG),
    ),
    (
        "plimsoll bench oltp_point_select --server mysql://app:secret@db1/test --rate 2000 --json -",
        Changed(
            &[("mysql://app:secret@db1/test", "$URL_OF_M1"), ("--json -", "--json - --time 1s")],
            OTHER_HOST,
        ),
    ),
    (
        "plimsoll sandbox use m114",
        Changed(&[("m114", "m114 --builtin")], "nobody types at the client's prompt"),
    ),
    (
        "plimsoll sysbench --threads=64 oltp_read_write.lua run",
        Changed(
            &[(
                "--threads=64 oltp_read_write.lua run",
                "$(plimsoll sandbox env m1 --format sysbench) --mysql-db=sbtest --threads=64 --time=1 oltp_read_write run",
            )],
            "scripts are sysbench's, and the server its default",
        ),
    ),
    ("plimsoll super-smack select-key 10 10000 --server mariadb", Changed(&[("10 10000", "10 100")], LONG)),
    ("plimsoll audit mariadb --profile fast", Changed(&[("fast", "fast --rounds 1")], LONG)),
    (
        "plimsoll calibrate",
        Changed(
            &[("plimsoll calibrate", "timeout --preserve-status -s INT 15 plimsoll calibrate || [ $? = 4 ]")],
            "twenty minutes as it is written: it begins, and is interrupted",
        ),
    ),
    ("plimsoll calibrate postgres --budget 10m --json -", Changed(&[("10m", "1s")], LONG)),
    // docs/studies.md
    ("cargo xtask studies", NotRun(BY_HAND)),
    ("cargo xtask studies maxia-2009 --keep DIR", NotRun(BY_HAND)),
    // docs/sysbench.md
    (
        "plimsoll sysbench --mysql-socket=/run/mysqld/mysqld.sock --threads=64 --time=60 /usr/share/sysbench/oltp_read_write.lua run",
        Instead(
            "plimsoll sysbench $(plimsoll sandbox env m1 --format sysbench) --mysql-db=sbtest --threads=64 --time=1 \
             oltp_read_write run",
            "sysbench's scripts and a server of the system are not on every machine",
        ),
    ),
    (
        "for threads in 1 8 64; do\nplimsoll sysbench --threads=$threads --time=60 --results=runs --mysql-socket=/run/mysqld/mysqld.sock /usr/share/sysbench/oltp_read_write.lua run\ndone",
        Instead(
            "for threads in 1 8; do plimsoll sysbench --threads=$threads --time=1 --results=runs \
             $(plimsoll sandbox env m1 --format sysbench) --mysql-db=sbtest oltp_read_write run; done",
            "as above, and three minutes",
        ),
    ),
    // docs/publish.md
    (
        "ssh-keygen -q -t ed25519 -N '' -f key && plimsoll bundle quickstart --sign key",
        With("ssh-keygen", "plimsoll bundle quickstart"),
    ),
    (
        "plimsoll rerun quickstart.plimsoll --budget 20m",
        Instead(
            "plimsoll bundle quickstart --results q -o q2.plimsoll && plimsoll rerun q2.plimsoll --budget 60s --only server=postgres --only workload=oltp_read_only \
             --only sessions=8",
            "what is recorded here was made up, and its builds were never there",
        ),
    ),
    // docs/hub.md
    (
        "plimsoll hub serve --listen 127.0.0.1:8030",
        Instead(
            "timeout 3 plimsoll hub serve --listen 127.0.0.1:0 || test $? -eq 124",
            "it serves until somebody ends it",
        ),
    ),
    (
        "plimsoll hub serve --db postgres://hub@db.example.org/hub",
        Instead(
            "plimsoll sandbox deploy postgres --name hubdb --profile fast && eval \"$(plimsoll sandbox env hubdb)\" && \
             { timeout 3 plimsoll hub serve --listen 127.0.0.1:0 \
             --db \"postgres://$PGUSER@/$PGDATABASE?host=$PGHOST&port=$PGPORT\" || test $? -eq 124; } && \
             plimsoll sandbox destroy hubdb",
            "there is no such database; a sandbox stands in for it",
        ),
    ),
    (
        "plimsoll hub serve --remeasure 0.2",
        Instead(
            "timeout 3 plimsoll hub serve --remeasure 0.2 --listen 127.0.0.1:0 || test $? -eq 124",
            "it serves until somebody ends it",
        ),
    ),
    (
        "plimsoll hub worker --hub https://hub.example.org --budget 20m",
        Instead(
            "export PLIMSOLL_HUB_TOKEN=$(plimsoll hub token add worker --scope measure --db sqlite:w.db)\n\
             plimsoll hub serve --db sqlite:w.db --listen 127.0.0.1:0 2> w.log & trap 'kill $!' EXIT\n\
             until grep -q http w.log; do sleep 0.1; done\n\
             timeout 3 plimsoll hub worker --hub $(grep -o 'http://[0-9.:]*' w.log) --budget 20m || test $? -eq 124",
            OTHER_HUB,
        ),
    ),
    (
        "plimsoll rerun quickstart.plimsoll --untrusted",
        NotRun("what is recorded here was made up; tests/hub.rs has a worker do it"),
    ),
    ("plimsoll submit quickstart.plimsoll --to http://127.0.0.1:8030", Instead(SUBMIT, OTHER_HUB)),
    ("plimsoll submit quickstart.plimsoll --to https://hub.example.org", Instead(SUBMIT, OTHER_HUB)),
    // The help texts.
    (
        "plimsoll bench oltp_read_write --server mariadb --sessions 1,8,64",
        Changed(&[("1,8,64", "1,8 --time 1s --warmup 200ms")], LONG),
    ),
    (
        "plimsoll bench oltp_point_select --server postgres@18 --rate 5000 --time 30s --json -",
        Changed(&[("--time 30s", "--time 1s")], LONG),
    ),
    (
        "plimsoll bench oltp_read_only --server 'mysql://root@localhost/sbtest?socket=/run/mysqld/mysqld.sock' --keep",
        Changed(
            &[
                ("'mysql://root@localhost/sbtest?socket=/run/mysqld/mysqld.sock'", "$URL_OF_M1"),
                ("--keep", "--keep --time 1s"),
            ],
            OTHER_HOST,
        ),
    ),
    (
        "plimsoll line oltp_read_write --server postgres@18 --promise 'p99 < 20ms' --promise 'errors < 0.1%'",
        Changed(
            &[
                ("'p99 < 20ms'", "'p50 < 500ms'"),
                (
                    "'errors < 0.1%'",
                    "'errors < 50%' --budget 30s -o table_size=1000 --results lines || test $? -eq 1",
                ),
            ],
            "ten minutes as it is written; on a busy machine half a minute finds no line, which ends with 1",
        ),
    ),
    (
        "plimsoll line oltp_point_select --server mariadb --promise 'p99 < 5ms' --budget 2m --json -",
        Changed(
            &[
                ("'p99 < 5ms' --budget 2m", "'p50 < 500ms' --budget 25s -o table_size=1000 --results lines"),
                ("--json -", "--json - || test $? -eq 1"),
            ],
            "two minutes as it is written; on a busy machine half a minute finds no line, which ends with 1",
        ),
    ),
    (
        "plimsoll line tpcc --server mariadb --promise tpcc --sessions-max 500",
        Changed(
            &[(
                "--sessions-max 500",
                "--sessions-max 8 --budget 25s -o warehouses=1 --results lines || test $? -eq 1",
            )],
            "ten minutes as it is written; on a busy machine half a minute finds no line, which ends with 1",
        ),
    ),
    (
        "plimsoll bench studies/workloads/bank.sql --server postgres -o accounts=100000",
        Changed(&[("accounts=100000", "accounts=100000 --time 1s")], "12 seconds as it is written"),
    ),
    (
        "plimsoll bench studies/workloads/bank.sql --server mariadb -o accounts=100000",
        Changed(&[("accounts=100000", "accounts=100000 --time 1s")], "12 seconds as it is written"),
    ),
    (
        "plimsoll report quickstart --gate not-slower --gate p95:equivalent",
        Ends(1, "one of the recorded servers is slower"),
    ),
    (
        "plimsoll fetch --archive mysql-8.4.3-linux-glibc2.28-x86_64.tar.xz --as mysql@8.4.3",
        Instead(
            "tar -cf server.tar -C \"$PLIMSOLL_HOME/builds/mysql@5.5.34\" --exclude plimsoll-build.json . && \
             plimsoll fetch --archive server.tar --as mysql@5.5.34+mine",
            "nobody downloads the vendor's archive for it",
        ),
    ),
    (
        "plimsoll builds remove mysql@8.0.33",
        Instead(
            "tar -cf gone.tar -C \"$PLIMSOLL_HOME/builds/mysql@5.5.34\" --exclude plimsoll-build.json . && \
             plimsoll fetch --archive gone.tar --as mysql@5.5.34+gone && plimsoll builds remove mysql@5.5.34+gone",
            "other examples need the build",
        ),
    ),
    (
        "eval \"$(plimsoll sandbox env m1)\" && mysql --socket=\"$MYSQL_UNIX_PORT\"",
        With("mysql", "eval \"$(plimsoll sandbox env m1)\" && test -S \"$MYSQL_UNIX_PORT\""),
    ),
    (
        "plimsoll sandbox env m1 --format my-cnf > m1.cnf && mysql --defaults-file=m1.cnf",
        With("mysql", "plimsoll sandbox env m1 --format my-cnf > m1.cnf && grep -q socket= m1.cnf"),
    ),
    (
        "plimsoll sandbox log -f m1",
        Changed(
            &[("plimsoll", "timeout 2 plimsoll"), ("m1", "m1 || [ $? = 124 ]")],
            "it goes on as the log grows",
        ),
    ),
    (
        "plimsoll history accept 1f0c9a2b --why 'checksums are on'",
        Ends(2, "there is no such change in what is recorded"),
    ),
    (
        "plimsoll history ignore 1f0c9a2b --why 'the host was moved'",
        Ends(2, "there is no such change in what is recorded"),
    ),
    ("plimsoll build --from ~/postgres --ref REL_17_2", Ends(2, NO_SOURCE)),
    ("plimsoll build --from ~/server --ref 11.4 --recipe mariadb --jobs 8", Ends(2, NO_SOURCE)),
    (
        "plimsoll build --from ~/mine --recipe mine.toml",
        Instead(
            "mkdir -p ~/mine && echo 1 > ~/mine/source && build=$(ls -d \"$PLIMSOLL_HOME\"/builds/postgres@18* | head -1) && \
             printf \"install = 'cp -r %s/. \\\"\\$PREFIX\\\"'\\n\" \"$build\" > mine.toml && \
             plimsoll build --from ~/mine --recipe mine.toml && rm mine.toml",
            "a server of one's own is not on every machine",
        ),
    ),
    (
        "plimsoll bisect studies/quickstart.toml --good mysql@5.5.34 --bad mysql@8.0.33",
        Changed(
            &[
                ("plimsoll", "timeout --preserve-status -s INT 20 plimsoll"),
                ("8.0.33", "8.0.33 || [ $? = 4 ]"),
            ],
            "it measures for half an hour: it begins, and is interrupted",
        ),
    ),
    (
        "plimsoll bisect nightly.toml --from ~/postgres --good REL_17_1 --bad REL_17_2 --json -",
        Ends(2, NO_SOURCE),
    ),
    ("plimsoll man | man -l -", With("man", "plimsoll man | grep -q '^.TH plimsoll'")),
    (
        "plimsoll audit postgres@18 --set synchronous_commit=off --rounds 10 --json -",
        Changed(&[("--rounds 10", "--rounds 1")], LONG),
    ),
    (
        "plimsoll audit mysql@8.0.33 --only process-crash",
        Changed(&[("process-crash", "process-crash --rounds 1")], LONG),
    ),
    (
        "plimsoll super-smack -d pg my.smack 4 500",
        Changed(&[("4 500", "4 50 --server postgres")], "the file's clients name a server of the system"),
    ),
];

/// Studies take minutes to hours: their plans are made, and `cargo xtask studies` runs them.
const STUDY: &str = "the study's plan is made; `cargo xtask studies` and other tests run studies";

/// What is run for a command line, the code that it ends with, and why it is not run as it is.
fn told(shown: &Shown) -> Result<(String, i32, Option<&'static str>), String> {
    let as_it_is = (shown.line.clone(), 0, None);
    let Some((_, how)) = SPECIAL.iter().find(|(line, _)| *line == shown.line) else {
        // Measurements of this machine have names, which xtask knows and not this test.
        if shown.line.starts_with("cargo xtask ") || shown.line.starts_with("cargo test -p ") {
            return Ok((String::new(), 0, Some(BY_HAND)));
        }
        if shown.line.starts_with("plimsoll run ") && !shown.line.contains("--dry-run") {
            return Ok((format!("{} --dry-run", shown.line), 0, Some(STUDY)));
        }
        return Ok(as_it_is);
    };
    Ok(match how {
        NotRun(why) => (String::new(), 0, Some(why)),
        Instead(script, why) => ((*script).to_owned(), 0, Some(why)),
        Ends(code, why) => (shown.line.clone(), *code, Some(why)),
        With(program, _) if is_on_path(program) => as_it_is,
        With(_, otherwise) => ((*otherwise).to_owned(), 0, Some(NO_CLIENT)),
        Changed(parts, why) => {
            let mut line = shown.line.clone();
            for (from, to) in *parts {
                if !line.contains(from) {
                    return Err(format!("{}: `{from}` is not in `{}`", shown.place, shown.line));
                }
                line = line.replacen(from, to, 1);
            }
            (line, 0, Some(why))
        }
    })
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Builds that the examples name; those that have to be fetched go to the user's own home, as in other tests.
const BUILDS: [&str; 6] =
    ["mariadb", "mariadb@11.4", "postgres", "postgres@18", "mysql@5.5.34", "mysql@8.0.33"];

/// A home and a working directory in which the examples find what they speak of.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(repository: &Path) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        // As root, servers run under other users, who have to pass here.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let scene = Scene { dir };
        for part in ["home/builds", "bin", "work/linux", "work/freebsd", "user"] {
            std::fs::create_dir_all(scene.at(part)).unwrap();
        }
        scene.take_builds();
        symlink(env!("CARGO_BIN_EXE_plimsoll"), scene.at("bin/plimsoll")).unwrap();
        symlink(env!("CARGO_BIN_EXE_plimsoll"), scene.at("bin/sysbench")).unwrap();
        for part in ["docs", "studies"] {
            symlink(repository.join(part), scene.at("work").join(part)).unwrap();
        }
        scene.record();
        scene.must("plimsoll bundle quickstart -o quickstart.plimsoll");
        let smack = repository.join("crates/smack/smacks/select-key.smack");
        std::fs::copy(smack, scene.at("work/my.smack")).unwrap();
        let study = std::fs::read_to_string(repository.join("studies/quickstart.toml")).unwrap();
        std::fs::write(scene.at("work/upgrade.toml"), study).unwrap();
        let nightly: String =
            (0..40).map(|at| format!("{}\n", if at < 20 { 100 + at % 3 } else { 90 + at % 3 })).collect();
        std::fs::write(scene.at("work/nightly.csv"), format!("tps\n{nightly}")).unwrap();
        scene
    }

    /// Builds, as if they had been fetched; one that an example removed is there again.
    fn take_builds(&self) {
        let own = sandbox::Home::find().unwrap();
        for selector in BUILDS {
            let build = sandbox::builds::resolve(&own, &selector.parse().unwrap(), &|_| ()).unwrap();
            let from = own.builds().join(build.name());
            let to = self.at("home/builds").join(build.name());
            if from.is_dir() && !to.exists() {
                // Hard links where both are on one disk; nothing in a build is ever written to.
                let link = |flags: &str| {
                    Command::new("cp").arg(flags).args([&from, &to]).stderr(Stdio::null()).status().unwrap()
                };
                assert!(link("-al").success() || link("-a").success(), "{}", from.display());
            }
        }
    }

    /// Results that reports are made of.
    fn record(&self) {
        let results = self.at("work/plimsoll-results");
        let mut store = recorded::ladder(&results, 6, 3);
        recorded::add_climb(&mut store, 5, 3);
        drop(store);
        let file = results.join("results.db");
        for copy in ["work/laptop.db", "work/server.db", "work/linux/results.db", "work/freebsd/results.db"] {
            std::fs::copy(&file, self.at(copy)).unwrap();
        }
    }

    fn at(&self, part: &str) -> PathBuf {
        self.dir.path().join(part)
    }

    /// A shell in which `plimsoll` is the one under test.
    fn shell(&self, script: &str) -> Command {
        let mut path = vec![self.at("bin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = Command::new("timeout");
        command
            .args(["300", "bash", "-eu", "-o", "pipefail", "-c", script])
            .current_dir(self.at("work"))
            .stdin(Stdio::null())
            .env("PATH", std::env::join_paths(path).unwrap())
            .env("PLIMSOLL_HOME", self.at("home"))
            .env("HOME", self.at("user"))
            .env("NO_COLOR", "1")
            .env_remove("RUST_BACKTRACE");
        command
    }

    /// Sandboxes that a command speaks of are there and run; the one that it makes is not.
    fn prepare(&self, line: &str) {
        for name in shown::sandboxes(line) {
            let (name, is_made) = name;
            let state = self.state(&name);
            match (is_made, state.as_deref()) {
                (true, Some(_)) => self.must(&format!("plimsoll sandbox destroy {name}")),
                (true, None) | (false, Some("running")) => {}
                (false, Some(_)) => self.must(&format!("plimsoll sandbox start {name}")),
                (false, None) => {
                    self.must(&format!("plimsoll sandbox deploy mariadb --name {name} --profile fast"));
                    self.must(&format!(
                        "plimsoll bench oltp_read_write --server {name} --transactions 1 --warmup 0s"
                    ));
                }
            }
        }
    }

    fn state(&self, name: &str) -> Option<String> {
        let listed = self.shell("plimsoll sandbox list --json").output().unwrap();
        let all: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let one = all.as_array().unwrap().iter().find(|one| one["name"] == name)?;
        Some(one["state"].as_str().unwrap().to_owned())
    }

    fn must(&self, script: &str) {
        let done = self.shell(script).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(done.status.success(), "{script}\n{}{}", text(&done.stdout), text(&done.stderr));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let all = "for name in $(plimsoll sandbox list | awk 'NR > 1 {print $1}'); do plimsoll sandbox destroy $name; done";
        // What cannot be destroyed is left for people to look at.
        let _ = self.shell(all).output();
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// All command lines, each once, with the place that shows it first.
fn all_shown() -> Vec<Shown> {
    let mut seen = BTreeSet::new();
    let mut all = documents(&repository());
    all.extend(help_texts(&mut |words| {
        let output = plimsoll().args(words).arg("--help").env("COLUMNS", "110").output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    }));
    all.retain(|shown| seen.insert(shown.line.clone()));
    all
}

/// They are run in two halves at the same time, which take about as long: each has a scene of its own.
fn is_in_first_half(shown: &Shown) -> bool {
    shown.place.starts_with("README")
        || ('a'..'s').any(|first| shown.place.starts_with(&format!("docs/{first}")))
}

#[test]
fn what_is_special_is_still_shown() {
    let all = all_shown();
    assert!(all.len() > 40, "the documents show {} command lines", all.len());
    for (line, _) in SPECIAL {
        assert!(all.iter().any(|shown| shown.line == *line), "no document shows this any more: {line}");
    }
    for shown in &all {
        told(shown).unwrap();
    }
}

/// `plimsoll fetch --archive FILE`, or just `plimsoll servers`, in the middle of a sentence.
#[test]
fn commands_and_flags_that_sentences_name_are_there() {
    for form in forms(&repository()) {
        let mut words: Vec<&str> = form.line.split_whitespace().skip(1).collect();
        let flags: Vec<&str> = words.iter().filter(|word| word.starts_with("--")).copied().collect();
        let is_command = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let count = words.iter().take_while(|word| is_command(word) && !word.starts_with('-')).count();
        words.truncate(count.min(if words.first() == Some(&"sandbox") { 2 } else { 1 }));
        let help: &[&str] = if words.first() == Some(&"help") { &[] } else { &["--help"] };
        let done = run(&[&words, help].concat());
        assert_eq!(done.code, Some(0), "{}: {}\n{}", form.place, form.line, done.err);
        for flag in flags {
            let name = flag.split('=').next().unwrap_or(flag);
            assert!(done.out.contains(name), "{}: {} has no {name}", form.place, form.line);
        }
    }
}

#[test]
fn every_command_line_up_to_publishing_ends_well() {
    all_end_well(all_shown().into_iter().filter(is_in_first_half).collect());
}

#[test]
fn every_command_line_from_shared_runners_on_ends_well() {
    all_end_well(all_shown().into_iter().filter(|shown| !is_in_first_half(shown)).collect());
}

fn all_end_well(all: Vec<Shown>) {
    if !servers_are_there() {
        return;
    }
    let scene = Scene::new(&repository());
    let mut failed = Vec::new();
    let began = Instant::now();
    for shown in all {
        let (script, code, why) = told(&shown).unwrap();
        if script.is_empty() {
            println!("not run: {} ({})", shown.line, why.unwrap_or_default());
            continue;
        }
        scene.take_builds();
        scene.prepare(&script);
        let url = "URL_OF_M1=\"mysql://root@localhost/sbtest?socket=$(plimsoll sandbox exec m1 -- printenv MYSQL_UNIX_PORT)\"";
        let script = if script.contains("$URL_OF_M1") {
            scene.prepare("plimsoll sandbox use m1");
            format!("{url}; {}", script.replace("$URL_OF_M1", "\"$URL_OF_M1\""))
        } else {
            script
        };
        let start = Instant::now();
        let done = scene.shell(&script).output().unwrap();
        println!("{:6.1} s  {}", start.elapsed().as_secs_f64(), script);
        if done.status.code() != Some(code) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            failed.push(format!(
                "{}: `{}`, run as `{script}`, ended with {:?} and not {code}:\n{}{}",
                shown.place,
                shown.line,
                done.status.code(),
                text(&done.stdout),
                text(&done.stderr)
            ));
        }
    }
    println!("{:6.1} s  in all", began.elapsed().as_secs_f64());
    assert!(failed.is_empty(), "{} examples do not work:\n\n{}", failed.len(), failed.join("\n\n"));
}
