//! Builds from source with what is met on real ones, on small ones made here: a "server" is a program that says its
//! version.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::builds::source::{Made, Recipe, SourceRequest, made, make};
use sandbox::{Build, Home};

struct Place {
    dir: tempfile::TempDir,
    home: Home,
    clone: PathBuf,
}

impl Place {
    /// A home where other users may enter, and a clone with a server in C and a library that it is made of.
    fn new() -> Place {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home::at(dir.path().join("home")).unwrap();
        let clone = dir.path().join("clone");
        fs::create_dir_all(clone.join("src")).unwrap();
        let place = Place { dir, home, clone };
        place.git(&["init", "-q"]);
        place.write("src/part.h", "int part(int);\n");
        place.write("src/part.c", "#include \"part.h\"\nint part(int n) { return n + 1; }\n");
        let main = "#include <stdio.h>\n#include \"part.h\"\n\
                    int main(void) { puts(\"postgres (PostgreSQL) 99.1\"); return part(-1); }\n";
        place.write("src/main.c", main);
        place.commit("v1");
        place
    }

    fn git(&self, words: &[&str]) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"];
        let done =
            Command::new("git").arg("-C").arg(&self.clone).args(identity).args(words).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.clone.join(file), text).unwrap();
    }

    fn commit(&self, tag: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", tag]);
        self.git(&["tag", tag]);
    }

    fn recipe(&self, text: &str) -> Recipe {
        let file = self.dir.path().join("mine.toml");
        fs::write(&file, text).unwrap();
        Recipe::find(file.to_str().unwrap()).unwrap()
    }

    fn request(&self, reference: Option<&str>, recipe: &Recipe) -> SourceRequest {
        SourceRequest {
            from: self.clone.clone(),
            reference: reference.map(str::to_owned),
            recipe: Some(recipe.clone()),
            jobs: 2,
            has_network: false,
        }
    }

    fn make(&self, reference: Option<&str>, recipe: &Recipe) -> Made {
        make(&self.home, &self.request(reference, recipe), &|_| {}, &|| false).unwrap()
    }

    fn build(&self, reference: Option<&str>, recipe: &Recipe) -> Build {
        match self.make(reference, recipe) {
            Made::Build(build) => build,
            Made::Broken { step, log, .. } => panic!("{step}: {log}"),
        }
    }

    fn sources(&self) -> PathBuf {
        self.home.path().join("sources")
    }
}

/// Compiles each file by itself, from absolute paths, as cmake does, and says how often ccache had it.
const RECIPE: &str = r#"
build = '''
for part in part main; do cc -g $CFLAGS -I"$SOURCE/src" -c "$SOURCE/src/$part.c" -o $part.o; done
cc part.o main.o -o postgres
'''
install = '''
mkdir -p "$PREFIX/bin"
cp postgres "$PREFIX/bin/"
if command -v ccache >/dev/null; then ccache --print-stats > "$PREFIX/stats"; fi
'''
env = { CFLAGS = "-O2" }
"#;

/// Everything was compiled anew for each commit: the cache lay in the directory that goes with the build, and even so each
/// build had other paths.
#[test]
fn what_one_commit_has_compiled_is_there_for_the_next() {
    if !Path::new("/usr/lib/ccache").is_dir() {
        testkit::not_tested("ccache over commits", "ccache is not installed");
        return;
    }
    let place = Place::new();
    let recipe = place.recipe(RECIPE);
    place.write(
        "src/main.c",
        &format!("{}/* the end */\n", fs::read_to_string(place.clone.join("src/main.c")).unwrap()),
    );
    place.commit("v2");
    let hits = |build: &Build| -> u64 {
        let stats = fs::read_to_string(build.files.base.join("stats")).unwrap();
        let of = |line: &str| line.split_whitespace().last().and_then(|count| count.parse::<u64>().ok());
        stats.lines().filter(|line| line.contains("cache_hit")).filter_map(of).sum()
    };
    assert_eq!(hits(&place.build(Some("v1"), &recipe)), 0);
    let second = place.build(Some("v2"), &recipe);
    assert!(hits(&second) >= 1, "{}", fs::read_to_string(second.files.base.join("stats")).unwrap());
}

#[test]
fn a_build_says_how_it_was_made_and_is_made_once() {
    let place = Place::new();
    let recipe = place.recipe(RECIPE);
    let request = place.request(Some("v1"), &recipe);
    assert!(made(&place.home, &request).unwrap().is_none());
    let build = place.build(Some("v1"), &recipe);
    assert_eq!(build.facts["flags"], "CFLAGS=-O2");
    assert_eq!(build.facts["allocator"], "the C library's");
    assert_eq!(build.facts["dirty"], "no");
    assert!(build.facts["compiler"].contains('.'), "{:?}", build.facts);
    assert_eq!(made(&place.home, &request).unwrap().map(|made| made.name()), Some(build.name()));
    // jemalloc, linked into the server.
    let with = "int mallctl(void) { return 0; }\n#include \"part.h\"\nint part(int n) { return n + 1; }\n";
    place.write("src/part.c", with);
    place.commit("v2");
    assert_eq!(place.build(Some("v2"), &recipe).facts["allocator"], "jemalloc");
}

/// Half of an installation stayed for ever, and so did the directory of a plimsoll that was killed while it built.
#[test]
fn what_does_not_build_leaves_its_log_and_a_killed_one_nothing() {
    let place = Place::new();
    let broken =
        RECIPE.replace("install = '''\n", "install = '''\nmkdir \"$PREFIX/half\"; echo no more; exit 3\n");
    let recipe = place.recipe(&broken);
    let Made::Broken { step, log, log_file, .. } = place.make(Some("v1"), &recipe) else { panic!() };
    assert_eq!((step, log.as_str()), ("install", "no more"));
    assert!(log_file.is_file());
    assert!(!log_file.with_file_name("prefix").exists());
    // A second try says what it said, once.
    let Made::Broken { log, .. } = place.make(Some("v1"), &recipe) else { panic!() };
    assert_eq!(log, "no more");

    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let (dead, alive) = (format!(".work-{}-ab12", gone.id()), format!(".work-{}-ab12", std::process::id()));
    for name in [&dead, &alive] {
        fs::create_dir_all(place.sources().join(name).join("source")).unwrap();
    }
    sandbox::leftovers(&place.home).unwrap();
    assert!(!place.sources().join(&dead).exists());
    assert!(place.sources().join(&alive).exists());
}

/// A recipe could ask for programs only, and cmake then went to the network for a library whose headers were missing.
#[test]
fn headers_that_are_missing_are_told_with_their_package() {
    let place = Place::new();
    let needs = "needs = { \"stdio.h\" = \"libc6-dev\", \"sys/types.h\" = \"libc6-dev\", \"no/such.h\" = \"libno-dev\" }\n";
    let recipe = place.recipe(&format!("{needs}{RECIPE}"));
    let error = place.request(Some("v1"), &recipe).check().unwrap_err().to_string();
    assert!(error.contains("no/such.h not on this machine: apt-get install libno-dev"), "{error}");
    assert!(!error.contains("libc6-dev"), "{error}");
}

/// A checkout in the middle of work: a file removed, another with a name that git quotes, one ignored.
#[test]
fn a_checkout_is_built_as_it_stands() {
    let place = Place::new();
    place.write("old", "removed later");
    place.write(".gitignore", "*.o\n");
    place.commit("v2");
    fs::remove_file(place.clone.join("old")).unwrap();
    place.write("new \u{e9}\n file", "one");
    place.write("made.o", "not a source");
    let seen = "ls \"$SOURCE\" > \"$PREFIX/seen\"\n";
    let recipe = place.recipe(&RECIPE.replace("install = '''\n", &format!("install = '''\n{seen}")));
    let first = place.build(None, &recipe);
    assert_eq!(first.facts["dirty"], "yes");
    assert!(first.name().ends_with("-dirty"), "{}", first.name());
    let seen = fs::read_to_string(first.files.base.join("seen")).unwrap();
    assert!(seen.contains("new ") && seen.contains("src"), "{seen}");
    assert!(!seen.contains("old") && !seen.contains("made.o"), "{seen}");
    // Another text in a file that git does not know yet is another build.
    place.write("new \u{e9}\n file", "two");
    assert_ne!(place.build(None, &recipe).name(), first.name());
}
