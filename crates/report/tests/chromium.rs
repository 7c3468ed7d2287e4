//! Opens reports in headless Chromium and asks it, over its debugging pipe, what a reader would see: charts are
//! drawn, nothing is reported on the console, no request leaves the file.
//!
//! Needs `chromium` (Debian: chromium), or what `PLIMSOLL_TEST_CHROMIUM` names; without it, or with `none`, these tests
//! say that nothing was opened.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use report::{Report, Selection};
use serde_json::{Value, json};
use store::Store;

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser, spoken to over the pipe of `--remote-debugging-pipe`: JSON texts that end with a zero byte.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: mpsc::Receiver<Value>,
    events: Vec<Value>,
    last_id: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` where there is no browser to test with.
    fn start() -> Option<Self> {
        let binary = testkit::chromium("reports in a browser")?;
        let profile = tempfile::tempdir().unwrap();
        // The pipe is file 3 (to it) and 4 (from it).
        let script = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2 2>/dev/null"#;
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(binary)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = process.stdin.take().unwrap();
        let from = read_all(process.stdout.take().unwrap());
        let mut browser =
            Self { process, to, from, events: vec![], last_id: 0, session: None, _profile: profile };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(message.to_string().as_bytes()).and_then(|()| self.to.write_all(b"\0"));
        sent.and_then(|()| self.to.flush()).unwrap_or_else(|error| {
            panic!(
                "no Chromium to open reports with ({error}): install the Debian package chromium, or set \
                    PLIMSOLL_TEST_CHROMIUM to its path, or to none to skip these tests"
            )
        });
        let id = self.last_id;
        let answer = self.wait(method, |message| message["id"] == id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The first message for which `is_it` holds; all others are kept as events.
    fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left).unwrap_or_else(|error| {
                panic!(
                    "Chromium did not answer {what} ({error}): install the Debian package chromium, or set \
                        PLIMSOLL_TEST_CHROMIUM to its path, or to none to skip these tests"
                )
            });
            if is_it(&message) {
                return message;
            }
            self.events.push(message);
        }
    }

    fn open(&mut self, page: &Path, width: u32) {
        self.events.clear();
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", size);
        self.ask("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        self.wait("load", |message| message["method"] == "Page.loadEventFired");
    }

    /// The value of an expression within the page.
    fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Everything that the console and the policy complained about.
    fn complaints(&self) -> Vec<&Value> {
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] != "verbose",
            Some("Runtime.consoleAPICalled") => {
                matches!(event["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            _ => false,
        };
        self.events.iter().filter(is_complaint).collect()
    }

    /// Addresses that the page asked for.
    fn requests(&self) -> Vec<&str> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read_all(from: ChildStdout) -> mpsc::Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for text in BufReader::new(from).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&text) else { continue };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
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
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = write_page(directory.path());

    browser.open(&page, 1280);
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
    let Some(mut browser) = Browser::start() else { return };
    let mut wide_strokes = |store: Store| {
        let directory = tempfile::tempdir().unwrap();
        let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
        let page = directory.path().join("report.html");
        std::fs::write(&page, report::html(&report).unwrap()).unwrap();
        browser.open(&page, 1280);
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
fn a_reader_can_use_it() {
    let Some(mut browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = write_page(directory.path());
    browser.open(&page, 1280);

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
    browser.open(&page, 380);
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= 380, "{wide}");
    // Paper.
    let pdf = browser.ask("Page.printToPDF", json!({"printBackground": true}));
    assert!(pdf["data"].as_str().unwrap().len() > 20_000);
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}
