//! Writes sample reports of the synthetic results for a person to look at: `PLIMSOLL_SAMPLE=/some/dir cargo test -p
//! report --test sample -- --ignored`; with `PLIMSOLL_SAMPLE_RESULTS=results.db` also of real ones.

mod common;

use report::{Report, Selection};

#[test]
#[ignore = "writes files for a person to look at"]
fn write_samples() {
    let Some(directory) = std::env::var_os("PLIMSOLL_SAMPLE").map(std::path::PathBuf::from) else { return };
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 6, 30);
    let ladder = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    std::fs::write(directory.join("ladder.html"), report::html(&ladder).unwrap()).unwrap();
    common::add_climb(&mut store, 5, 20);
    let both = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    std::fs::write(directory.join("both.html"), report::html(&both).unwrap()).unwrap();
    let climb = Report::of_stores(&[&store], &Selection::Studies(vec!["stress".to_owned()])).unwrap();
    std::fs::write(directory.join("climb.html"), report::html(&climb).unwrap()).unwrap();
    if let Some(results) = std::env::var_os("PLIMSOLL_SAMPLE_RESULTS") {
        let real = Report::load(&[results.into()], &Selection::Latest).unwrap();
        std::fs::write(directory.join("real.html"), report::html(&real).unwrap()).unwrap();
    }
    std::fs::write(directory.join("report.json"), report::json(&both).to_string()).unwrap();
}
