//! A reader of a hub in a browser: finds, compares, and uses each page on a phone, in the dark and by keyboard.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{Hub, bundle, bundle_of, sqlite};

fn press(browser: &mut Browser, key: &str, code: u32) {
    for kind in ["keyDown", "keyUp"] {
        let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
        if key == "Enter" && kind == "keyDown" {
            event["text"] = json!("\r");
        }
        browser.ask("Input.dispatchKeyEvent", event);
    }
}

fn loaded(browser: &mut Browser, what: &str) {
    browser.wait(what, |message| message["method"] == "Page.loadEventFired");
}

fn search(browser: &mut Browser, words: &str) -> u64 {
    browser.value("document.getElementById('q').value = ''; document.getElementById('q').focus()");
    browser.ask("Input.insertText", json!({"text": words}));
    press(browser, "Enter", 13);
    loaded(browser, "what was found");
    assert_eq!(browser.value("location.pathname"), "/search");
    browser.value("document.querySelectorAll('table.bundles tbody tr').length").as_u64().unwrap()
}

/// A hub with bundles of three machines.
fn hub(dir: &std::path::Path) -> (Hub, Vec<String>) {
    let hub = Hub::start(&sqlite(dir), &[]);
    let token = hub.token("ada", &[]);
    let submitted = (1..=3).map(|seed| {
        let (_, bytes) = bundle(dir, &format!("m{seed}"), seed);
        assert_eq!(hub.submit(&token, &bytes).0, 201);
        store::bundle::sha256(&bytes)
    });
    let ids = submitted.collect();
    (hub, ids)
}

#[test]
fn a_reader_finds_and_compares() {
    let Some(mut browser) = Browser::start("finding and comparing in a hub") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (hub, _) = hub(dir.path());
    browser.open(&format!("{}/", hub.url()), 1280);
    assert_eq!(search(&mut browser, "mariadb ladder"), 3);
    assert_eq!(search(&mut browser, "no such words"), 0);
    let text = browser.value("document.querySelector('main').innerText");
    assert!(text.as_str().unwrap().contains("None yet"), "{text}");
    assert_eq!(search(&mut browser, "example cpu"), 3);

    // Three are chosen and compared, by the keyboard.
    browser.value("document.querySelector('table.bundles input').focus()");
    let rows = "[...document.querySelectorAll('table.bundles input')]";
    for at in 0..3 {
        browser.value(&format!("{rows}[{at}].focus()"));
        press(&mut browser, " ", 32);
    }
    assert_eq!(browser.value(&format!("{rows}.filter((box) => box.checked).length")), 3);
    browser.value("[...document.querySelectorAll('main button')].at(-1).focus()");
    press(&mut browser, "Enter", 13);
    loaded(&mut browser, "the comparison");
    assert_eq!(browser.value("location.pathname"), "/compare");
    assert_eq!(browser.value("new URLSearchParams(location.search).getAll('with').length"), 3);
    let heads = browser.value("document.querySelector('table thead').rows[0].cells.length");
    assert_eq!(heads, 4, "the claim, and a column for each machine");
    let cells = browser.value("document.querySelector('table tbody').rows[0].innerText");
    let words = ["reproduced", "not reproduced", "undecided"];
    assert!(words.iter().any(|word| cells.as_str().unwrap().contains(word)), "{cells}");
    // Three machines: throughputs of none stand in another's table.
    let tables = browser.value(
        "[...document.querySelectorAll('h3 + .scroll tbody')].map((t) => [...t.rows].map((r) => r.cells[0].innerText))",
    );
    for table in tables.as_array().unwrap() {
        let rows = table.as_array().unwrap();
        assert!(rows.len() > 1 && rows.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
    // To a claim, and from there to a machine.
    browser.value("document.querySelector('table tbody a').click()");
    loaded(&mut browser, "the claim");
    assert!(browser.value("location.pathname").as_str().unwrap().starts_with("/claim/"));
    browser.value("document.querySelector('table tbody a[href^=\"/host/\"]').click()");
    loaded(&mut browser, "the machine");
    assert!(browser.value("location.pathname").as_str().unwrap().starts_with("/host/"));
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn a_history_has_a_chart_whose_points_lead_to_their_rows() {
    let Some(mut browser) = Browser::start("a hub's histories in a browser") else { return };
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &[]);
    let token = hub.token("ada", &[]);
    for seed in 1..=3 {
        assert_eq!(hub.submit(&token, &bundle_of(dir.path(), "m1", 1, seed).1).0, 201);
    }
    browser.open(&format!("{}/history", hub.url()), 380);
    let charts = "[...document.querySelectorAll('.charts[data-history]')].map((c) => c.querySelectorAll('svg path').length)";
    let charts = browser.value(charts);
    let charts: Vec<u64> = charts.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!(!charts.is_empty() && charts.iter().all(|paths| *paths >= 3), "{charts:?}");
    let open = "document.querySelectorAll('details[open]').length";
    assert_eq!(browser.value(open), 0);
    browser.value("location.hash = document.querySelector('details tbody tr:last-child').id");
    browser.value("new Promise((done) => setTimeout(done, 100))");
    assert_eq!(browser.value(open), 1);
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= 380, "{wide}");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn each_page_fits_a_phone_the_dark_and_a_keyboard() {
    let Some(mut browser) = Browser::start("a hub's pages in a browser") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (hub, ids) = hub(dir.path());
    let shown = hub.json(&format!("/api/v1/bundles/{}", ids[0]));
    let host = shown["hosts"][0]["fingerprint"].as_str().unwrap().replace(' ', "%20");
    let paths = [
        "/".to_owned(),
        "/search".to_owned(),
        "/places".to_owned(),
        "/history".to_owned(),
        "/submit".to_owned(),
        "/server/mariadb@11.4.5".to_owned(),
        format!("/host/{host}"),
        format!("/bundle/{}", ids[0]),
        format!("/claim/{}", shown["claims"][0]["id"].as_str().unwrap()),
        format!("/compare?with={}&with={}&with={}", ids[0], ids[1], ids[2]),
    ];
    let colours =
        "getComputedStyle(document.body).backgroundColor + ' ' + getComputedStyle(document.body).color";
    for path in &paths {
        let media = |scheme: &str| json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.ask("Emulation.setEmulatedMedia", media("light"));
        browser.open(&format!("{}{path}", hub.url()), 380);
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= 380, "{path}: {wide}");
        let light = browser.value(colours);
        browser.ask("Emulation.setEmulatedMedia", media("dark"));
        assert_ne!(browser.value(colours), light, "{path}");

        // The first Tab offers to skip what every page has; where the reader is, is seen.
        press(&mut browser, "Tab", 9);
        assert_eq!(browser.value("document.activeElement.className"), "skip", "{path}");
        let place = browser.value("document.activeElement.getBoundingClientRect().left");
        assert!(place.as_f64().unwrap() >= 0.0, "{path}: {place}");
        press(&mut browser, "Tab", 9);
        assert_eq!(browser.value("document.activeElement.className"), "brand", "{path}");
        let outline = "getComputedStyle(document.activeElement).outlineStyle";
        assert_eq!(browser.value(outline), "solid", "{path}");
        assert_eq!(browser.complaints(), Vec::<&Value>::new(), "{path}");
    }
}
