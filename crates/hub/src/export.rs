//! The whole hub as static pages, for any web space.

use std::path::Path;

use crate::db::{Db, Place};
use crate::error::Error;
use crate::files::{BUNDLE, Keeping, REPORT};
use crate::pages::{self, Pages, in_folder};
use crate::query::{self, Part};

/// Writes every page below `folder`; `base` is where it will stand on its web space (`/results`, or nothing for its root).
/// Returns how many bundles there are.
///
/// # Errors
/// The database cannot be had, or a file cannot be written.
pub fn export(place: &Place, keeping: &Keeping, folder: &Path, base: &str) -> Result<usize, Error> {
    let db = Db::open(place)?;
    let pages = Pages::new(base.trim_end_matches('/'), true)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        let fail = |source| Error::File { what: path.display().to_string(), source };
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(fail)?;
        std::fs::write(&path, bytes).map_err(fail)
    };
    let front = db.with(query::front)?;
    write("hub.css", pages::css().as_bytes())?;
    write("charts.js", report::chart_script().as_bytes())?;
    write("index.html", pages.page("front.html", "Results", &front)?.as_bytes())?;
    let places = db.with(|sql| query::places(sql, Part::All))?;
    write("places/index.html", pages.page("places.html", "Servers and machines", &places)?.as_bytes())?;
    for server in places["servers"].as_array().into_iter().flatten() {
        let name = server["server"].as_str().unwrap_or_default();
        let value = db.with(|sql| query::server(sql, name, Part::All))?;
        write(
            &format!("server/{}/index.html", in_folder(name)),
            pages.page("server.html", name, &value)?.as_bytes(),
        )?;
    }
    for host in places["hosts"].as_array().into_iter().flatten() {
        let name = host["fingerprint"].as_str().unwrap_or_default();
        let value = db.with(|sql| query::host(sql, name, Part::All))?;
        write(
            &format!("host/{}/index.html", in_folder(name)),
            pages.page("host.html", name, &value)?.as_bytes(),
        )?;
    }
    let (mut page, mut bundles, mut all) = (1, 0, Vec::new());
    loop {
        let found = db.with(|sql| query::search(sql, "", page))?;
        for head in found["bundles"].as_array().into_iter().flatten() {
            let id = head["id"].as_str().unwrap_or_default();
            let value = db.with(|sql| query::bundle(sql, id))?;
            let title = value["title"].as_str().unwrap_or("Bundle");
            write(&format!("bundle/{id}/index.html"), pages.page("bundle.html", title, &value)?.as_bytes())?;
            for (kind, name) in [(REPORT, "report.html"), (BUNDLE, "file.plimsoll")] {
                let bytes = db.with(|sql| keeping.read(sql, id, kind))?;
                write(&format!("bundle/{id}/{name}"), &bytes)?;
            }
            for claim in value["claims"].as_array().into_iter().flatten() {
                let id = claim["id"].as_str().unwrap_or_default();
                let value = db.with(|sql| query::claim(sql, id, Part::All))?;
                write(
                    &format!("claim/{id}/index.html"),
                    pages.page("claim.html", "Claim", &value)?.as_bytes(),
                )?;
            }
            bundles += 1;
        }
        all.extend(found["bundles"].as_array().into_iter().flatten().cloned());
        match found["next"].as_i64() {
            Some(next) => page = next,
            None => break,
        }
    }
    let list = serde_json::json!({"words": "", "bundles": all, "next": null});
    write("search/index.html", pages.page("search.html", "All results", &list)?.as_bytes())?;
    let flavors = db.with(query::flavors)?;
    for (at, flavor) in flavors.iter().enumerate() {
        for metric in ["tps", "p95", "p99"] {
            let found = db.with(|sql| query::history(sql, flavor, metric, "", Part::All))?;
            let value = pages::history(&found, flavor, metric, &flavors);
            let text = pages.page(pages::HISTORY, "History", &value)?;
            write(&format!("history/{}/{metric}/index.html", in_folder(flavor)), text.as_bytes())?;
            if at == 0 && metric == "tps" {
                write("history/index.html", text.as_bytes())?;
            }
        }
    }
    Ok(bundles)
}
