//! A real server from its sources, start to end: PostgreSQL's are built, loaded and searched for the guilty one of twelve
//! commits, which are made here in a clone of the clone. The fifth does not build, the eighth turns a loop before each
//! statement, and the others change comments.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

#[derive(clap::Parser)]
struct Asked {
    /// A clone of PostgreSQL's sources.
    #[arg(long)]
    from: PathBuf,
    /// A recipe's name, or its file.
    #[arg(long, default_value = "postgres")]
    recipe: String,
    /// Of the loop; by default about ten microseconds.
    #[arg(long, default_value_t = 6000)]
    turns: u32,
}

/// Where statements of both protocols of PostgreSQL's go by.
const LOADED: &str = "src/backend/tcop/postgres.c";
const COMMITS: usize = 12;
const BROKEN: usize = 5;
const GUILTY: usize = 8;

struct Proof {
    plimsoll: PathBuf,
    folder: tempfile::TempDir,
    recipe: String,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { from, recipe, turns } = crate::asked("bench real-source", arguments);
    // The commands run elsewhere.
    let recipe = std::fs::canonicalize(&recipe).map_or(recipe, |file| file.display().to_string());
    let folder = tempfile::tempdir()?;
    let proof = Proof { plimsoll: crate::plimsoll()?, folder, recipe };
    let commits = proof.plant(&from, turns)?;
    proof.builds(&commits)?;
    proof.bisect(&commits)
}

impl Proof {
    fn sources(&self) -> PathBuf {
        self.folder.path().join("clone")
    }

    fn git(&self, words: &[&str]) -> Result<String> {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        let done = Command::new("git").arg("-C").arg(self.sources()).args(identity).args(words).output()?;
        ensure!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// The commit that the clone stands at, and those that are made after it.
    fn plant(&self, from: &Path, turns: u32) -> Result<Vec<String>> {
        let cloned =
            Command::new("git").args(["clone", "-q", "--shared"]).arg(from).arg(self.sources()).status()?;
        ensure!(cloned.success(), "{} could not be cloned", from.display());
        let file = self.sources().join(LOADED);
        let mut commits = vec![self.git(&["rev-parse", "HEAD"])?];
        for number in 1..=COMMITS {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("{} is no source of PostgreSQL", from.display()))?;
            let text = match number {
                BROKEN => format!("{text}\nstatic int half_done(void) {{ return not_declared; }}\n"),
                GUILTY => slowed(&text, turns)?,
                // The broken one is mended after it.
                _ => {
                    text.lines().filter(|line| !line.contains("not_declared")).collect::<Vec<_>>().join("\n")
                        + &format!("\n/* change {number} */\n")
                }
            };
            std::fs::write(&file, text)?;
            self.git(&["commit", "-qam", &format!("change {number}")])?;
            commits.push(self.git(&["rev-parse", "HEAD"])?);
        }
        Ok(commits)
    }

    /// What a command says on standard output, whether it ended so, and how long it took.
    fn plimsoll(&self, words: &[&str], code: i32) -> Result<(String, f64)> {
        let began = Instant::now();
        let done = Command::new(&self.plimsoll)
            .args(words)
            .current_dir(self.folder.path())
            .stderr(std::process::Stdio::inherit())
            .output()?;
        ensure!(
            done.status.code() == Some(code),
            "plimsoll {words:?} ended with {}, not with {code}",
            done.status
        );
        Ok((String::from_utf8_lossy(&done.stdout).trim().to_owned(), began.elapsed().as_secs_f64()))
    }

    /// Builds the first commit twice, loads it, and the one that does not build once.
    fn builds(&self, commits: &[String]) -> Result<()> {
        let clone = self.sources().display().to_string();
        let build = |commit: &str, code| {
            self.plimsoll(&["build", "--from", &clone, "--ref", commit, "--recipe", &self.recipe], code)
        };
        let (name, first) = build(&commits[0], 0)?;
        let (again, second) = build(&commits[0], 0)?;
        ensure!(name == again, "{name} was built again, as {again}");
        println!("{name}: {first:.0} s by the recipe {}, and {second:.1} s when it was there", self.recipe);
        let (_, broken) = build(&commits[BROKEN], 1)?;
        println!("the commit that does not build: {broken:.0} s");
        let load = ["--sessions", "4", "--time", "5s", "-o", "table_size=10000", "--json", "-"];
        let (line, _) =
            self.plimsoll(&[&["bench", "oltp_read_write", "--server", &name], &load[..]].concat(), 0)?;
        let line: Value = serde_json::from_str(&line)?;
        println!(
            "{name} under oltp_read_write: {:.0} transactions a second",
            line["tps"].as_f64().unwrap_or_default()
        );
        Ok(())
    }

    fn bisect(&self, commits: &[String]) -> Result<bool> {
        let study = self.folder.path().join("real.toml");
        let text = "title = \"A slow commit\"\nquestion = \"Which commit made statements slower?\"\n[axes]\n\
                    server = [\"postgres\"]\nworkload = [\"oltp_point_select\"]\nsessions = [4]\n[options]\n\
                    table_size = 10000\n[load]\nwarmup = \"1s\"\nduration = \"10s\"\nblocks = 5\n";
        std::fs::write(&study, text)?;
        let (study, clone) = (study.display().to_string(), self.sources().display().to_string());
        let (good, bad) = (&commits[0], &commits[COMMITS]);
        let words =
            ["bisect", &study, "--from", &clone, "--recipe", &self.recipe, "--good", good, "--bad", bad];
        let (found, took) = self.plimsoll(&[&words[..], &["--json", "-"]].concat(), 0)?;
        let found: Value = serde_json::from_str(&found)?;
        let is_right = found["status"] == "found" && found["guilty"] == commits[GUILTY].as_str();
        let number = commits.iter().position(|commit| found["guilty"] == commit.as_str());
        let percent = |value: &Value| 100.0 * (value.as_f64().unwrap_or(1.0) - 1.0);
        println!(
            "{}: change {}, {:.1} % sure, bad over good {:+.1} %, {} steps in {took:.0} s (planted: change {GUILTY})",
            found["status"].as_str().unwrap_or_default(),
            number.map_or_else(|| "none".to_owned(), |number| number.to_string()),
            100.0 * found["probability"].as_f64().unwrap_or_default(),
            percent(&found["ratio"]),
            found["steps"],
        );
        for why in found["why"].as_array().into_iter().flatten().take(5) {
            let (what, low, high) =
                (why["what"].as_str().unwrap_or_default(), percent(&why["low"]), percent(&why["high"]));
            match why["more_us"].as_f64() {
                Some(more_us) => println!("  {what}: {more_us:+.0} us"),
                None => println!("  {what}: {:+.1} % ({low:+.1} to {high:+.1})", percent(&why["ratio"])),
            }
        }
        Ok(is_right)
    }
}

/// The file with a loop before each statement of either protocol.
fn slowed(text: &str, turns: u32) -> Result<String> {
    let work = format!("static void look_over(void) {{ for (volatile int i = 0; i < {turns}; i++) ; }}\n\n");
    let mut slow = text.to_owned();
    // Before the function that executes, behind its declarations.
    for (function, place) in [
        ("\nexec_execute_message(", "dest = whereToSendOutput;"),
        ("\nexec_simple_query(", "pgstat_report_activity(STATE_RUNNING"),
    ] {
        let begin = slow.find(function).with_context(|| format!("{LOADED} has no{function})"))?;
        let at = slow[begin..].find(place).with_context(|| format!("{LOADED} has no {place}"))?;
        slow.insert_str(begin + at, "look_over();\n\n\t");
    }
    let first = slow.find("\nexec_simple_query(").context("exec_simple_query is gone")?;
    let line = slow[..first].rfind("\n\n").context("nothing stands before exec_simple_query")?;
    slow.insert_str(line + 2, &work);
    Ok(slow)
}
