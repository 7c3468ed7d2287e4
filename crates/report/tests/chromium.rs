//! Opens reports in headless Chromium: charts are drawn, nothing is reported on the console, no request leaves the file.

#[path = "common/browser.rs"]
mod browser;
mod common;

use std::path::Path;

use browser::Browser;
use report::history::{self, History, HistoryQuery};
use report::{Report, Selection};
use serde_json::{Value, json};
use store::Store;

fn address(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// A page with a ladder and a climb.
fn write_page(directory: &Path) -> std::path::PathBuf {
    let mut store = common::ladder(directory, 5, 5);
    common::add_climb(&mut store, 5, 5);
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let page = directory.join("report.html");
    std::fs::write(&page, report::html(&report).unwrap()).unwrap();
    page
}

#[test]
fn a_report_opens_offline_with_its_charts() {
    let Some(mut browser) = Browser::start("reports in a browser") else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = write_page(directory.path());

    browser.open(&address(&page), 1280);
    let drawn = "[...document.querySelectorAll('.chart')].map((c) => c.querySelectorAll('svg path').length)";
    let paths = browser.value(drawn);
    let paths: Vec<u64> = paths.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    // Two facets by three metrics and the seconds, the climb's four, and the graphs over time.
    assert!(paths.len() >= 8 + 4 + 4, "{paths:?}");
    assert!(paths.iter().all(|count| *count > 5), "an empty chart: {paths:?}");
    let zero = "[...document.querySelectorAll('.charts[data-metric=tps] .chart')].every((c) => \
                [...c.querySelectorAll('text')].some((t) => t.textContent === '0'))";
    assert_eq!(browser.value(zero), true, "axes start at zero");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    let requests = browser.requests();
    assert!(
        requests.iter().all(|url| url.starts_with("file://") || url.starts_with("data:")),
        "{requests:?}"
    );
    assert_eq!(requests.iter().filter(|url| url.starts_with("file://")).count(), 1, "{requests:?}");
}

#[test]
fn a_curve_is_interrupted_where_no_run_counts() {
    let Some(mut browser) = Browser::start("reports in a browser") else { return };
    let mut wide_strokes = |store: Store| {
        let directory = tempfile::tempdir().unwrap();
        let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
        let page = directory.path().join("report.html");
        std::fs::write(&page, report::html(&report).unwrap()).unwrap();
        browser.open(&address(&page), 1280);
        let found = browser.value(
            "[...document.querySelector('.charts[data-metric=tps] .chart').querySelectorAll('svg path')]\
             .filter((path) => path.getAttribute('stroke-width') === '2.2' && path.getBBox().width > 100).length",
        );
        assert_eq!(browser.complaints(), Vec::<&Value>::new());
        found
    };
    let results = tempfile::tempdir().unwrap();
    assert_eq!(wide_strokes(common::ladder(results.path(), 5, 3)), 2, "a curve for each server");
    // Of three levels the middle one is gone: two points, and nothing between them.
    let results = tempfile::tempdir().unwrap();
    assert_eq!(wide_strokes(common::ladder_with_gap(results.path(), 5, 3)), 1);
}

#[test]
fn a_history_opens_offline_with_its_charts() {
    let Some(mut browser) = Browser::start("histories in a browser") else { return };
    let directory = tempfile::tempdir().unwrap();
    drop(common::nights(directory.path()));
    let query = HistoryQuery { metrics: vec!["tps".to_owned()], ..HistoryQuery::default() };
    let history = History::load(&[directory.path().to_owned()], &query).unwrap();
    let page = directory.path().join("history.html");
    std::fs::write(&page, history::html(&history).unwrap()).unwrap();

    browser.open(&address(&page), 1280);
    // A symbol for each night, and the line where the level changed.
    let drawn = "[...document.querySelectorAll('.chart')].map((c) => c.querySelectorAll('svg path').length)";
    let paths = browser.value(drawn);
    assert!(paths[0].as_u64().is_some_and(|paths| paths > 20), "{paths}");
    let dashed = "document.querySelectorAll('.chart svg path[stroke-dasharray]').length";
    assert!(browser.value(dashed).as_u64().is_some_and(|lines| lines >= 1));
    browser.value(&format!("location.hash = '{}-10'", history.series[0].id));
    let row = "document.querySelector(':target').closest('details').open && document.querySelector(':target').innerText";
    assert!(browser.value(row).as_str().is_some_and(|row| row.contains("mariadb@11.4.5+c10")));
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    assert_eq!(browser.requests().iter().filter(|url| url.starts_with("file://")).count(), 1);
}

#[test]
fn a_reader_can_use_it() {
    let Some(mut browser) = Browser::start("reports in a browser") else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = write_page(directory.path());
    browser.open(&address(&page), 1280);

    // Another cell in the graph over time.
    let title = "document.querySelector('.timeline figcaption').firstChild.textContent";
    let before = browser.value(title);
    browser.value(
        "(() => { const s = document.querySelector('.timeline select'); s.value = 5; \
                   s.dispatchEvent(new Event('change')); })()",
    );
    assert_ne!(browser.value(title), before);
    // A link to a run opens it.
    browser.value("location.hash = 's1-r15'");
    browser.value("new Promise((done) => setTimeout(done, 200))");
    assert_eq!(browser.value("document.getElementById('s1-r15').open"), true);
    // Text from outside is text.
    assert_eq!(browser.value("document.querySelectorAll('pre b, pre script').length"), 0);

    // Dark: the page and the charts follow.
    let colours = "getComputedStyle(document.body).backgroundColor + ' ' + \
                   document.querySelector('.chart svg text').getAttribute('fill')";
    let light = browser.value(colours);
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.ask("Emulation.setEmulatedMedia", dark);
    browser.value("new Promise((done) => setTimeout(done, 300))");
    assert_ne!(browser.value(colours), light);

    // A phone: nothing is wider than the screen but what scrolls by itself.
    browser.open(&address(&page), 380);
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= 380, "{wide}");
    // Paper.
    let pdf = browser.ask("Page.printToPDF", json!({"printBackground": true}));
    assert!(pdf["data"].as_str().unwrap().len() > 20_000);
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}
