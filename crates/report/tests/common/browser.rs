//! Headless Chromium, asked over its debugging pipe what a reader would see.
//!
//! Needs `chromium` (Debian: chromium), or what `PLIMSOLL_TEST_CHROMIUM` names; without it, or with `none`, these tests
//! say that nothing was opened.
#![allow(dead_code)] // each test file uses its share

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser, spoken to over the pipe of `--remote-debugging-pipe`: JSON texts that end with a zero byte.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: mpsc::Receiver<Value>,
    events: Vec<Value>,
    last_id: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` where there is no browser to test `what` with.
    pub(crate) fn start(what: &str) -> Option<Self> {
        let binary = testkit::chromium(what)?;
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

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(message.to_string().as_bytes()).and_then(|()| self.to.write_all(b"\0"));
        sent.and_then(|()| self.to.flush()).unwrap_or_else(|error| {
            panic!(
                "no Chromium to open pages with ({error}): install the Debian package chromium, or set \
                    PLIMSOLL_TEST_CHROMIUM to its path, or to none to skip these tests"
            )
        });
        let id = self.last_id;
        let answer = self.wait(method, |message| message["id"] == id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The first message for which `is_it` holds; all others are kept as events.
    pub(crate) fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
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

    pub(crate) fn open(&mut self, url: &str, width: u32) {
        self.events.clear();
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", size);
        self.ask("Page.navigate", json!({"url": url}));
        self.wait("load", |message| message["method"] == "Page.loadEventFired");
    }

    /// The value of an expression within the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Everything that the console and the policy complained about.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
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
    pub(crate) fn requests(&self) -> Vec<&str> {
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
