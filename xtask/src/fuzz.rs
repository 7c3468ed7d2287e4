//! `cargo xtask fuzz`: builds the fuzzer's programs with AddressSanitizer and runs them, one after the other.
//!
//! The toolchain is the project's own: stable rustc ships the sanitizer's runtime, and `RUSTC_BOOTSTRAP` lets it take
//! the flags. Neither cargo-fuzz nor a nightly compiler; a C++ compiler builds libFuzzer.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The sanitizer, and checks that a release build leaves out: for everything.
const RUSTFLAGS: &str = "-Zsanitizer=address --cfg fuzzing -Cdebug-assertions -Coverflow-checks";
/// As cargo-fuzz passes it: counters in line, comparisons traced.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Whose ways are counted: those that read what is foreign. With TLS, cryptography and all else that a program of the
/// workspace links, each input would go through 280,000 counters, which takes longer than to read it.
const COUNTED: [&str; 13] = [
    "hdrhistogram",
    "lab@0.1.0",
    "pgscript",
    "plimsoll-fuzz",
    "ruzstd",
    "sandbox",
    "smack",
    "store",
    "tar",
    "toml",
    "wire",
    "workload",
    "zip",
];
/// A small quarantine: freed memory is used again while it is still in the cache. An input that fails is kept, and can be
/// replayed with more of both. SQLite has arrays of one name in two files, which are not at fault. Frames on the heap, for
/// a use after return, take a fifth of the time and find what safe Rust does not compile.
const ASAN_OPTIONS: &str = "detect_odr_violation=0:quarantine_size_mb=4:thread_local_quarantine_size_kb=64:\
                            malloc_context_size=2:detect_stack_use_after_return=0";

#[derive(clap::Parser)]
struct Asked {
    /// All without a name.
    targets: Vec<String>,
    /// Inputs for each.
    #[arg(long, default_value_t = 10_000_000)]
    runs: u64,
}

/// Runs the targets that are named; false when one of them failed.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { targets: chosen, runs } = crate::asked("fuzz", arguments);
    let root = &crate::root();
    let known = targets(root)?;
    for name in &chosen {
        ensure!(known.contains(name), "no target {name}; there are {}", known.join(", "));
    }
    let names = known.iter().filter(|name| chosen.is_empty() || chosen.contains(name));
    let programs = build(root)?;
    let mut is_good = true;
    for name in names {
        is_good &= fuzz(root, &programs.join(name), name, runs)?;
    }
    Ok(is_good)
}

/// A folder of seeds each; `cargo test` holds them against the programs.
fn targets(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("fuzz/seeds"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Where the programs are.
fn build(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/fuzz");
    // Named, so that the flags are not for build scripts and macros, which must run without a sanitizer.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(env!("CARGO"));
    for package in COUNTED {
        let key = format!("profile.release.package.\"{package}\".rustflags");
        command.args(["--config", &format!("{key}={COVERAGE:?}")]);
    }
    let status = command
        .current_dir(root)
        .args([
            "-Zprofile-rustflags",
            "build",
            "--release",
            "--locked",
            "--package",
            "pgscript",
            "plimsoll-fuzz",
        ])
        .arg("--bins")
        .args(["--features", "libfuzzer", "--target", &triple, "--target-dir"])
        .arg(&folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", RUSTFLAGS)
        // The coverage of each crate stays its own; nothing reads the debug information.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "the fuzzer's programs do not build; libFuzzer needs a C++ compiler");
    Ok(folder.join(triple).join("release"))
}

/// Bytes of an input. A longer one has more of the same in it, and takes as much longer; a tar is blocks of 512 bytes.
fn length_max(name: &str) -> u32 {
    match name {
        "archives" => 4096,
        "study_files" => 1024,
        _ => 512,
    }
}

fn fuzz(root: &Path, program: &Path, name: &str, runs: u64) -> Result<bool> {
    let corpus = root.join("target/fuzz/corpus").join(name);
    let failed = root.join("target/fuzz/failed");
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&failed)?;
    println!("== {name}: {runs} inputs");
    let status = Command::new("nice")
        .args(["-n", "19"])
        .arg(program)
        .env("ASAN_OPTIONS", ASAN_OPTIONS)
        .env("PLIMSOLL_HOME", root.join("target/fuzz/home"))
        .args([&corpus, &root.join("fuzz/seeds").join(name)])
        .arg(format!("-runs={runs}"))
        .arg(format!("-artifact_prefix={}/{name}-", failed.display()))
        .arg(format!("-max_len={}", length_max(name)))
        // Inputs are chosen evenly: to weigh them by how rare their ways are takes longer than to read one.
        .args(["-entropic=0", "-malloc_limit_mb=256", "-timeout=60", "-print_final_stats=1"])
        .status()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    if !status.success() {
        println!(
            "{name} FAILED: keep the input that target/fuzz/failed has now in fuzz/seeds/{name}, mend what it shows"
        );
    }
    Ok(status.success())
}
