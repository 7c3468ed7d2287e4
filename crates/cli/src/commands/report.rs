//! `plimsoll report`.

use std::path::{Path, PathBuf};

use ::report::{Report, Selection, StudyReport};
use stats::Gate;

use crate::args::ReportArgs;
use crate::commands::out::Out;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::summary;
use crate::show::terminal::tell;

pub(crate) fn report(args: &ReportArgs) -> Result<End, Failure> {
    let (files, names) = sort(&args.what);
    let files = if files.is_empty() { vec![args.results.clone()] } else { files };
    let selection = if names.is_empty() { Selection::Latest } else { Selection::Studies(names) };
    let report = load(&files, &selection)?;
    let mut written = Vec::new();
    if let Some(path) = &args.json {
        write(path, &format!("{}\n", ::report::json(&report)))?;
        written.push(path.clone());
    }
    if let Some(path) = &args.md {
        write(path, &::report::markdown(&report))?;
        written.push(path.clone());
    }
    if let Some(dir) = &args.csv {
        ::report::write_csv(&report, dir).map_err(failed)?;
        written.push(dir.clone());
    }
    if let Some(path) = &args.html {
        write_html(&report, path)?;
        written.push(path.clone());
    }
    if !written.is_empty() {
        for path in written.iter().filter(|path| path.as_os_str() != "-") {
            tell!("wrote {}", path.display());
        }
        return judged(&report, &args.gate);
    }
    let name = match report.studies.as_slice() {
        [study] => study.name.clone(),
        _ => "report".to_owned(),
    };
    let folder =
        if files[0].is_dir() { files[0].as_path() } else { files[0].parent().unwrap_or(Path::new(".")) };
    if !store::is_file_name(&name) {
        return Err(Failure::Usage(format!(
            "the study is called {name:?}, which names no file: say where its report goes with --html FILE"
        )));
    }
    let path = folder.join(format!("{name}.html"));
    write_html(&report, &path)?;
    print(&format!("{}\nreport: {}\n", summary(&report), path.display()))?;
    judged(&report, &args.gate)
}

/// The gates of the command line over all studies, or else those of each study over itself.
fn judged(report: &Report, flags: &[Gate]) -> Result<End, Failure> {
    if !flags.is_empty() {
        return gated(&report.studies, flags);
    }
    let mut end = End::Done;
    for study in &report.studies {
        if let End::GateUnmet = gated_by_itself(study, &study.gates())? {
            end = End::GateUnmet;
        }
    }
    Ok(end)
}

/// Holds the gates of a study's own file against it. A first look (`--quick`) that can have no verdict is not held to
/// them, and that is said.
pub(crate) fn gated_by_itself(study: &StudyReport, gates: &[Gate]) -> Result<End, Failure> {
    let (least, planned) = (stats::Rules::default().blocks_min, study.blocks_planned());
    if (planned as usize) < least {
        for gate in gates {
            tell!("gate {gate}: not asked: a verdict needs at least {least} blocks, and this has {planned}");
        }
        return Ok(End::Done);
    }
    gated(std::slice::from_ref(study), gates)
}

/// Holds the gates against studies whose report has been written, and says how they stand.
pub(crate) fn gated(studies: &[StudyReport], gates: &[Gate]) -> Result<End, Failure> {
    let mut end = End::Done;
    for gate in gates {
        let state = report::check(gate, studies);
        if state.asked == 0 {
            return Err(Failure::Usage(format!(
                "gate {gate}: there is no such comparison: a study asks for comparisons with [compare] axis, base \
                 and metrics"
            )));
        }
        if state.is_met() {
            let doubted = match state.doubted {
                0 => String::new(),
                some => format!(", {some} of which rest on runs in doubt"),
            };
            match state.asked {
                1 => tell!("gate {gate}: met by its one comparison{doubted}"),
                asked => tell!("gate {gate}: met by all {asked} comparisons{doubted}"),
            }
            continue;
        }
        let asked = store::counted(state.asked, "comparison");
        tell!("gate {gate}: not met by {} of {asked}", state.unmet.len());
        for line in &state.unmet {
            tell!("  {line}");
        }
        end = End::GateUnmet;
    }
    Ok(end)
}

/// Results files on the left, names of studies on the right.
fn sort(what: &[String]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, mut names) = (Vec::new(), Vec::new());
    for word in what {
        let path = Path::new(word);
        if path.extension().is_some_and(|extension| extension == "toml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        } else if is_results(word) {
            files.push(path.to_owned());
        } else {
            names.push(word.clone());
        }
    }
    (files, names)
}

/// Whether a word names results: a file, a folder that holds a results file, or what is no study's name. A study may be
/// called as a folder that happens to lie here.
fn is_results(word: &str) -> bool {
    let path = Path::new(word);
    let is_named_so = path.extension().is_some_and(|extension| extension == "db" || extension == "plimsoll");
    is_named_so
        || path.is_file()
        || path.join(store::FILE_NAME).exists()
        || (path.is_dir() && word.contains('/'))
}

fn load(files: &[PathBuf], selection: &Selection) -> Result<Report, Failure> {
    Report::load(files, selection).map_err(failed)
}

pub(crate) fn failed(error: ::report::Error) -> Failure {
    match error {
        ::report::Error::Store(error) => Failure::from(error),
        error @ (::report::Error::NoStudy { .. } | ::report::Error::Table(_)) => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Other(anyhow::Error::new(error)),
    }
}

/// The report as one HTML file.
pub(crate) fn write_html(report: &Report, path: &Path) -> Result<(), Failure> {
    write(path, &::report::html(report).map_err(failed)?)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Out::create(path)?.end(text)
}

#[cfg(test)]
mod tests {
    use super::is_results;

    #[test]
    fn a_folder_without_results_may_have_the_name_of_a_study() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("results");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(store::FILE_NAME), "").unwrap();
        assert!(is_results(folder.to_str().unwrap()));
        // The package's own folder is the current one: it has a `src`, which holds no results.
        assert!(std::path::Path::new("src").is_dir());
        assert!(!is_results("src"));
        assert!(is_results("./src"), "a path: its message names what is missing");
        assert!(is_results("gone.plimsoll"));
        assert!(!is_results("gone"));
    }
}
