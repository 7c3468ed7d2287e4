//! What a hub lists of a bundle with everything in it: the machine, its calibrations and storage, settings, audits, author.

use super::recorded::full;
use super::{Hub, sqlite};
use report::bundle::bundle;

/// A hub with that bundle, and its id.
fn listed(dir: &std::path::Path) -> (Hub, String) {
    let store = full::results(&dir.join("results"));
    let key = full::key(dir);
    let sealed = bundle(&store, store.studies().unwrap()[0].id, full::bundling(Some(&key))).unwrap();
    let hub = Hub::start(&sqlite(dir), &[]);
    let token = hub.token("ada", &[]);
    let (status, said) = hub.submit(&token, &sealed.bytes);
    assert_eq!(status, 201, "{said}");
    (hub, store::bundle::sha256(&sealed.bytes))
}

#[test]
fn machine_server_and_author_are_shown_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, id) = listed(dir.path());
    let shown = |path: &str, words: &[&str]| {
        let page = hub.page(path);
        for word in words {
            assert!(page.contains(word), "{path} lacks {word}: {page}");
        }
    };
    let json = hub.json(&format!("/api/v1/bundles/{id}"));
    let host = json["hosts"][0].clone();
    assert_eq!(json["audits"][0]["server"], "mariadb@11.4.5", "{}", json["audits"]);
    assert!(json.get("marks").is_none() && json.get("decisions").is_none());
    let machine = format!("/host/{}", host["fingerprint"].as_str().unwrap().replace(' ', "%20"));
    let calibrated = report::calibration::summary(&full::calibrations());
    let told = format!("{:.2} %", calibrated.resolvable[1].unwrap() * 100.0);
    let spread = format!("{:.2} %", calibrated.ratios.unwrap().within.sqrt() * 100.0);
    let of_machine =
        ["aws", "m7i.large", "0.10 USD", "ext4", "rw,relatime", "nvme0n1", "0 of 2", "2026-11-18"];
    shown(&machine, &of_machine);
    shown(&machine, &[&told, &spread]);
    let author = ["Ada Lovelace", "ada@example.org", "CC-BY-4.0", "On one laptop.", "oltp, upgrade"];
    shown(&format!("/bundle/{id}"), &author);
    shown(
        &format!("/bundle/{id}"),
        &["aws, m7i.large, 0.10 USD", "disk: ext4 on nvme0n1", &told, "process crash: "],
    );
    let server = [
        "process crash: consistent with the promise",
        "innodb_flush_log_at_trx_commit=1",
        "a power cut needs root",
    ];
    shown("/server/mariadb@11.4.5", &server);
    shown("/server/mariadb@11.4.5", &[&format!("href=\"/bundle/{id}\">2026-11-18</a>")]);
    shown("/server/postgres@18.6", &["not audited", "fsync=on"]);
    // What nobody asked for and no command line sets.
    assert_eq!(json["reported"]["postgres@18.6"]["shared_buffers"], "1GB", "{}", json["reported"]);
    for path in ["/server/postgres@18.6", &format!("/bundle/{id}")] {
        shown(path, &["<details><summary>All other settings", "<td>shared_buffers</td><td>1GB</td>"]);
    }
    for words in ["m7i.large", "aws", "upgrade", "USD/h"] {
        let found = hub.json(&format!("/api/v1/bundles?q={words}"));
        assert_eq!(found["bundles"].as_array().unwrap().len(), 1, "{words}: {found}");
    }
    let api = hub.json("/api/v1/openapi.json");
    for (path, name) in [
        (format!("/api/v1/bundles/{id}"), "/api/v1/bundles/{id}"),
        (machine.replace("/host/", "/api/v1/hosts/"), "/api/v1/hosts/{id}"),
        ("/api/v1/servers/mariadb@11.4.5".to_owned(), "/api/v1/servers/{name}"),
    ] {
        let schema = &api["paths"][name]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{name}");
        super::fits(&api, schema, &hub.json(&path), &path);
    }
}
