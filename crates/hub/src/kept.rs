//! Pages that were made before, for as long as nothing that a page shows has changed: between two submissions everybody is
//! shown the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::db::Sql;
use crate::error::Error;
use crate::serve::{Answer, Shared, waiting};

/// All pages together. When there are more, all are forgotten: whoever asks for so many different ones asks by a program.
const BYTES_MAX: usize = 64 << 20;
/// One that is longer is not kept.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// By what was asked for.
#[derive(Default)]
pub(crate) struct Kept {
    pages: Mutex<Pages>,
    /// Pages that are being made: whoever asks for one of them waits for it.
    in_work: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Default)]
struct Pages {
    /// The number of changes of which they are.
    changes: i64,
    bytes: usize,
    by_way: HashMap<String, Page>,
}

#[derive(Clone)]
struct Page {
    headers: HeaderMap,
    body: Bytes,
}

impl Kept {
    fn find(&self, way: &str, changes: i64) -> Option<Page> {
        let pages = self.pages.lock().ok()?;
        if pages.changes == changes { pages.by_way.get(way).cloned() } else { None }
    }

    fn keep(&self, way: String, changes: i64, page: Page) {
        let Ok(mut pages) = self.pages.lock() else { return };
        // One that took long to make is of a state that others have left behind.
        if changes < pages.changes {
            return;
        }
        let bytes = way.len() + page.body.len();
        if pages.changes < changes || pages.bytes + bytes > BYTES_MAX {
            *pages = Pages { changes, ..Pages::default() };
        }
        pages.bytes += bytes;
        pages.by_way.insert(way, page);
    }

    /// A place among those who want a page to be made.
    fn turn(&self, way: &str) -> Turn<'_> {
        let lock = match self.in_work.lock() {
            Ok(mut in_work) => Arc::clone(in_work.entry(way.to_owned()).or_default()),
            Err(_) => Arc::default(),
        };
        Turn { kept: self, way: way.to_owned(), lock }
    }
}

/// Given back also where a reader goes away meanwhile.
struct Turn<'a> {
    kept: &'a Kept,
    way: String,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Ok(mut in_work) = self.kept.in_work.lock() else { return };
        // The list's and ours: nobody else wants it.
        if Arc::strong_count(&self.lock) == 2 {
            in_work.remove(&self.way);
        }
    }
}

/// How often something that a page shows has changed, as told by [`changed`] of any hub on this database.
pub(crate) fn changes(sql: &mut Sql) -> Result<i64, Error> {
    Ok(sql.rows("SELECT changes FROM hub_version", &[])?.first().map_or(0, |row| row.int(0)))
}

/// Whoever changes what a page shows says so, in the same transaction.
pub(crate) fn changed(sql: &mut Sql) -> Result<(), Error> {
    sql.execute("UPDATE hub_version SET changes = changes + 1", &[]).map(drop)
}

/// Answers with the page as it was made before, or makes and keeps it. Around all ways whose answers [`changed`] speaks of.
pub(crate) async fn answer(State(hub): State<Shared>, request: Request, next: Next) -> Response {
    let way = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    // HEAD has no body.
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    // Asked before the page is made: what changes meanwhile makes it an old one.
    let changes = match waiting(&hub, |hub| hub.db.with(changes)).await {
        Ok(changes) => changes,
        Err(error) => return Answer(error).into_response(),
    };
    if let Some(page) = hub.kept.find(&way, changes) {
        return (page.headers, page.body).into_response();
    }
    let turn = hub.kept.turn(&way);
    let _turn = turn.lock.lock().await;
    match hub.kept.find(&way, changes) {
        Some(page) => (page.headers, page.body).into_response(),
        None => make(&hub, way, changes, request, next).await,
    }
}

async fn make(hub: &Shared, way: String, changes: i64, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let is_small = |size: u64| size <= PAGE_BYTES_MAX as u64;
    let size = axum::body::HttpBody::size_hint(response.body()).exact();
    if response.status() != StatusCode::OK || !size.is_some_and(is_small) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, PAGE_BYTES_MAX).await else {
        return Answer(Error::Inside("a page broke off".to_owned())).into_response();
    };
    hub.kept.keep(way, changes, Page { headers: parts.headers.clone(), body: body.clone() });
    Response::from_parts(parts, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(length: usize) -> Page {
        Page { headers: HeaderMap::new(), body: vec![0; length].into() }
    }

    #[test]
    fn pages_are_kept_until_something_changes_and_up_to_a_bound() {
        let kept = Kept::default();
        kept.keep("/a".to_owned(), 1, page(10));
        assert!(kept.find("/a", 1).is_some() && kept.find("/b", 1).is_none() && kept.find("/a", 2).is_none());
        kept.keep("/b".to_owned(), 2, page(10));
        assert!(kept.find("/b", 2).is_some() && kept.find("/a", 2).is_none(), "of an older state");
        kept.keep("/late".to_owned(), 1, page(10));
        assert!(kept.find("/b", 2).is_some(), "a late one of an older state forgets nothing");
        for at in 0..100 {
            kept.keep(format!("/{at}"), 2, page(1 << 20));
            assert!(kept.pages.lock().unwrap().bytes <= BYTES_MAX);
        }
        assert!(kept.find("/99", 2).is_some());

        let (first, second) = (kept.turn("/a"), kept.turn("/a"));
        assert!(Arc::ptr_eq(&first.lock, &second.lock));
        drop(first);
        assert_eq!(kept.in_work.lock().unwrap().len(), 1);
        drop(second);
        assert_eq!(kept.in_work.lock().unwrap().len(), 0);
    }
}
