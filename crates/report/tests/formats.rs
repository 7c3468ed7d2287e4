//! Markdown, CSV and JSON as they are written, kept as snapshots; the page and text that would break out of it.

mod common;

use report::{Report, Selection};

fn report() -> Report {
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 5, 3);
    common::add_climb(&mut store, 5, 3);
    let mut report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    for study in &mut report.studies {
        for record in &mut study.records {
            record.file = "results.db".to_owned();
        }
    }
    report
}

#[test]
fn markdown() {
    insta::assert_snapshot!(report::markdown(&report()));
}

#[test]
fn csv() {
    let directory = tempfile::tempdir().unwrap();
    report::write_csv(&report(), directory.path()).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut text = String::new();
    for path in names {
        let file = std::fs::read_to_string(&path).unwrap();
        let columns = file.lines().next().unwrap().split(',').count();
        let mut reader = csv::Reader::from_reader(file.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.unwrap()).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.len() == columns), "{}", path.display());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let head: Vec<&str> = file.lines().take(3).collect();
        text.push_str(&format!("## {name}: {} rows\n{}\n", rows.len(), head.join("\n")));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn json() {
    let mut json = report::json(&report());
    // One cell with one run shows the form; the rest has the same.
    json["cells"].as_array_mut().unwrap().truncate(1);
    json["cells"][0]["runs"].as_array_mut().unwrap().truncate(1);
    json["comparisons"].as_array_mut().unwrap().truncate(1);
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

#[test]
fn the_page_holds_everything_and_asks_for_nothing() {
    let page = report::html(&report()).unwrap();
    assert!(page.contains("Content-Security-Policy") && page.contains("default-src 'none'"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import", "<link rel=\"stylesheet"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for wanted in ["id=\"s1-r1\"", "id=\"s2-c1\"", "LOCK_open", "MySQL 5.1.33", "fio 3.33", "performance"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Every link within the page has its target.
    let targets: std::collections::HashSet<&str> =
        page.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for link in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(targets.contains(link), "no target for #{link}");
    }
}

#[test]
fn hostile_text_stays_text() {
    let page = report::html(&report()).unwrap();
    assert!(!page.contains("<script>alert"), "from the study file or a server's log");
    assert!(!page.contains("<b>could not bind"), "from an error");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;"));
    assert!(page.contains("THR_LOCK::mutex &lt;odd&gt;"));
    assert_eq!(page.matches("</script>").count(), 3, "data, library, page");
}
