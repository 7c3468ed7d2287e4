//! The service: ways, bounds and answers. All that waits for the database or a child goes to threads that may wait.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::OPENAPI;
use crate::accept;
use crate::db::{Db, Place, Sql};
use crate::error::Error;
use crate::files::{BUNDLE, Keeping, REPORT};
use crate::kept::{self, Kept};
use crate::pages::{self, Pages};
use crate::query::{self, Part};
use crate::remeasure::{self, By};
use crate::submit::{allowed, bearer, form, read_bounded, submit, submit_by_form};
use crate::tokens::Scope;

/// How a hub is served.
#[derive(Debug, Clone)]
pub struct Options {
    pub db: Place,
    pub keeping: Keeping,
    pub listen: SocketAddr,
    /// The program whose child looks at bundles.
    pub program: PathBuf,
    /// How the world calls it, without a slash at its end: `https://hub.example.org`. For the feed; unless it is given, the
    /// address that it listens at.
    pub root: Option<String>,
    /// Of a bundle as it comes.
    pub packed_bytes_max: u64,
    pub unpacked_bytes_max: u64,
    /// For looking at one bundle.
    pub patience: Duration,
    /// By one token in an hour.
    pub submissions_max: usize,
    /// Share of new submissions of which a worker is to measure a claim again, from 0 to 1.
    pub remeasure_share: f64,
}

/// Bundles that are looked at at once, and those that arrive and wait for it.
const CHECKS: usize = 2;
const WAITING_MAX: usize = 16;
/// Forms of which nobody knows yet who sends them.
const FORMS: usize = 64;
/// Requests that wait for the database at once.
const QUERIES: usize = 32;

pub(crate) struct Hub {
    pub(crate) options: Options,
    /// As in the options, or the address that was had.
    root: String,
    pub(crate) db: Db,
    pub(crate) pages: Pages,
    css: String,
    pub(crate) checks: Semaphore,
    pub(crate) waiting: Semaphore,
    pub(crate) forms: Semaphore,
    queries: Semaphore,
    pub(crate) recent: Mutex<HashMap<String, Vec<Instant>>>,
    /// Histories are made one after the other: tens of milliseconds each, in which every other page has the rest of the cpus.
    histories: Semaphore,
    pub(crate) kept: Kept,
}

pub(crate) type Shared = Arc<Hub>;

/// Serves until the process is asked to end. `ready` hears the address once it can be asked.
///
/// # Errors
/// The database cannot be had, or the address is taken.
pub fn serve(options: Options, ready: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    if let Keeping::Directory(folder) = &options.keeping {
        std::fs::create_dir_all(folder)
            .map_err(|source| Error::File { what: folder.display().to_string(), source })?;
    }
    options.keeping.sweep();
    // PostgreSQL's client has a runtime of its own, and is called outside of ours.
    let db = Db::open(&options.db)?;
    let (pages, listen) = (Pages::new("", false)?, options.listen);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::File { what: "the hub's threads".to_owned(), source })?;
    let fail = |source| Error::File { what: format!("listening on {listen}"), source };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let hub = Arc::new(Hub {
            db,
            pages,
            root: options.root.clone().unwrap_or_else(|| format!("http://{address}")),
            css: pages::css(),
            checks: Semaphore::new(CHECKS),
            waiting: Semaphore::new(WAITING_MAX),
            forms: Semaphore::new(FORMS),
            queries: Semaphore::new(QUERIES),
            recent: Mutex::new(HashMap::new()),
            histories: Semaphore::new(1),
            kept: Kept::default(),
            options,
        });
        ready(address);
        axum::serve(listener, router(hub)).with_graceful_shutdown(asked_to_end()).await.map_err(fail)
    })
}

async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
}

/// Ways of the JSON, as the OpenAPI file names them. The pages stand beside them.
fn router(hub: Shared) -> Router {
    let pages = Router::new()
        .route("/", get(front))
        .route("/search", get(search))
        .route("/bundle/{id}", get(bundle))
        .route("/claim/{id}", get(claim))
        .route("/compare", get(compare))
        .route("/places", get(places))
        .route("/host/{id}", get(host))
        .route("/server/{name}", get(server))
        .route("/history", get(history_of_first))
        .route("/history/{flavor}/{metric}", get(history))
        .route("/feed.atom", get(feed))
        .route("/api/v1/front", get(front))
        .route("/api/v1/bundles", get(search))
        .route("/api/v1/bundles/{id}", get(bundle))
        .route("/api/v1/claims/{id}", get(claim))
        .route("/api/v1/compare", get(compare))
        .route("/api/v1/places", get(places))
        .route("/api/v1/hosts/{id}", get(host))
        .route("/api/v1/servers/{name}", get(server))
        .route("/api/v1/history/{flavor}/{metric}", get(api_history))
        .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&hub), kept::answer));
    Router::new()
        .route("/bundle/{id}/report", get(report_page))
        .route("/bundle/{id}/file", get(bundle_file))
        .route("/submit", get(form).post(submit_by_form))
        .route("/hub.css", get(css))
        .route("/charts.js", get(chart_script))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/bundles", post(submit))
        .route("/api/v1/bundles/{id}", delete(hide))
        .route("/api/v1/bundles/{id}/remeasurements", post(ask_again))
        .route("/api/v1/remeasurements/lease", post(lease))
        .route("/api/v1/remeasurements/{id}/renew", post(renew))
        .route("/api/v1/remeasurements/{id}/end", post(ended))
        .merge(pages)
        .fallback(async || Answer(Error::NotFound("page")))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&hub), with_policy))
        // The handlers bound what they read themselves.
        .layer(DefaultBodyLimit::disable())
        .with_state(hub)
}

/// Of a refusal.
const WORDS_BYTES_MAX: usize = 64 << 10;
/// What a program asks for stands below it.
const API: &str = "/api/";

/// A refusal, also of axum's own (a page that is no number, a method that is none of a way): as JSON to a program, as a page
/// to a browser.
async fn refusal(hub: &Hub, is_page: bool, response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_in_form = if is_page { kind.starts_with(b"text/html") } else { kind == b"application/json" };
    if response.status().as_u16() < 400 || is_in_form {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let said = to_bytes(body, WORDS_BYTES_MAX).await.unwrap_or_default();
    let json: Value = serde_json::from_slice(&said).unwrap_or_default();
    let reason = parts.status.canonical_reason().unwrap_or("This cannot be");
    let words = match json["error"].as_str() {
        Some(words) => words.to_owned(),
        None if said.is_empty() => reason.to_lowercase(),
        None => String::from_utf8_lossy(&said).into_owned(),
    };
    let page = is_page.then(|| pages::note(&hub.pages, reason, &words, json["path"].as_str()));
    let (kind, body) = match page {
        Some(Ok(page)) => ("text/html; charset=utf-8", page),
        Some(Err(_)) => ("text/plain; charset=utf-8", words),
        None => ("application/json", json!({"error": words}).to_string()),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Response::from_parts(parts, Body::from(body))
}

/// What every answer says unless it says otherwise.
async fn with_policy(State(hub): State<Shared>, request: Request, next: axum::middleware::Next) -> Response {
    let is_page = !request.uri().path().starts_with(API);
    let mut response = refusal(&hub, is_page, next.run(request).await).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, pages::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// An error as an answer: JSON, of which a page is made for a browser.
pub(crate) struct Answer(pub(crate) Error);

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        Answer(error)
    }
}

pub(crate) fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::NotFound(_) | Error::NoHistory { .. } => StatusCode::NOT_FOUND,
        Error::Wrong(_) => StatusCode::BAD_REQUEST,
        Error::Forbidden(_) => StatusCode::FORBIDDEN,
        Error::Hidden(_) => StatusCode::GONE,
        Error::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::Known(_) | Error::LeaseOver => StatusCode::CONFLICT,
        Error::Unreachable(_) | Error::Database(_) | Error::File { .. } | Error::Inside(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// What is told to whoever asked: nothing of the hub's inside.
pub(crate) fn told(error: &Error) -> String {
    match error {
        Error::Database(_) | Error::File { .. } | Error::Inside(_) => {
            "the hub cannot do this now: try again later. What was taken by then is told as known".to_owned()
        }
        error => error.to_string(),
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = status_of(&self.0);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // One line for whoever keeps the hub; standard error is theirs.
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), format!("hub: {}\n", self.0).as_bytes());
        }
        let mut body = json!({"error": told(&self.0)});
        if let Error::Known(path) = &self.0 {
            body["path"] = json!(path);
        }
        (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
    }
}

pub(crate) type Answered = Result<Response, Answer>;

/// A place among so many.
pub(crate) async fn place(of: &Semaphore) -> Result<SemaphorePermit<'_>, Error> {
    of.acquire().await.map_err(|_| Error::Inside("the hub ends".to_owned()))
}

/// Work that waits, on a thread that may.
pub(crate) async fn waiting<T: Send + 'static>(
    hub: &Shared,
    work: impl FnOnce(&Hub) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let broken = |_| Error::Inside("a thread of the hub broke off".to_owned());
    let permit = place(&hub.queries).await?;
    let hub = Arc::clone(hub);
    let done = tokio::task::spawn_blocking(move || work(&hub)).await.map_err(broken)?;
    drop(permit);
    done
}

pub(crate) fn html(page: String) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

pub(crate) fn as_json(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Response {
        answer.into_response()
    }
}

/// What the database says, as a page; `title` finds its title in that. Made where the database is waited for: a long page
/// takes as long as its rows.
async fn page(
    hub: &Shared,
    template: &'static str,
    title: fn(&Value) -> Option<&str>,
    ask: impl FnOnce(&mut Sql) -> Result<Value, Error> + Send + 'static,
) -> Answered {
    let made = waiting(hub, move |hub| {
        let value = hub.db.with(ask)?;
        hub.pages.page(template, title(&value).unwrap_or("Results"), &value)
    });
    Ok(html(made.await?))
}

/// The same as JSON.
async fn api(hub: &Shared, ask: impl FnOnce(&mut Sql) -> Result<Value, Error> + Send + 'static) -> Answered {
    Ok(as_json(waiting(hub, move |hub| Ok(hub.db.with(ask)?.to_string())).await?))
}

/// Who asks, of what has both forms: a browser for a page, or a program for JSON.
struct Asked {
    hub: Shared,
    is_page: bool,
}

impl FromRequestParts<Shared> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, hub: &Shared) -> Result<Asked, Infallible> {
        Ok(Asked { hub: Arc::clone(hub), is_page: !parts.uri.path().starts_with(API) })
    }
}

impl Asked {
    async fn answer(
        self,
        template: &'static str,
        title: fn(&Value) -> Option<&str>,
        ask: impl FnOnce(&mut Sql) -> Result<Value, Error> + Send + 'static,
    ) -> Answered {
        match self.is_page {
            true => page(&self.hub, template, title, ask).await,
            false => api(&self.hub, ask).await,
        }
    }
}

async fn front(asked: Asked) -> Answered {
    asked.answer("front.html", |_| Some("Results"), query::front).await
}

#[derive(Deserialize)]
struct Words {
    #[serde(default)]
    q: String,
    #[serde(default = "one")]
    page: i64,
}

fn one() -> i64 {
    1
}

impl Words {
    /// So many letters are looked for.
    fn short(&self) -> String {
        self.q.chars().take(200).collect()
    }
}

async fn search(asked: Asked, Query(words): Query<Words>) -> Answered {
    asked
        .answer("search.html", |_| Some("Search"), move |sql| query::search(sql, &words.short(), words.page))
        .await
}

/// Names of bundles are hashes: nothing else is looked for, in a directory least of all.
fn bundle_id(id: String) -> Result<String, Error> {
    let is_hash =
        id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if is_hash { Ok(id) } else { Err(Error::NotFound("bundle")) }
}

async fn bundle(asked: Asked, Path(id): Path<String>) -> Answered {
    let id = bundle_id(id)?;
    asked.answer("bundle.html", |value| value["title"].as_str(), move |sql| query::bundle(sql, &id)).await
}

async fn file_of(hub: &Shared, id: String, kind: &'static str) -> Result<Vec<u8>, Error> {
    let id = bundle_id(id)?;
    waiting(hub, move |hub| {
        hub.db.with(|sql| {
            let sentence = "SELECT id FROM bundle WHERE id = ?1 AND is_hidden = 0";
            if sql.rows(sentence, &[id.clone().into()])?.is_empty() {
                return Err(Error::NotFound("bundle"));
            }
            hub.options.keeping.read(sql, &id, kind)
        })
    })
    .await
}

async fn report_page(State(hub): State<Shared>, Path(id): Path<String>) -> Answered {
    let bytes = file_of(&hub, id, REPORT).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, pages::REPORT_POLICY),
        (header::CACHE_CONTROL, "max-age=3600"),
    ];
    Ok((headers, bytes).into_response())
}

async fn bundle_file(State(hub): State<Shared>, Path(id): Path<String>) -> Answered {
    let name = format!("attachment; filename=\"{}.plimsoll\"", id.get(..12).unwrap_or_default());
    let bytes = file_of(&hub, id, BUNDLE).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, name),
        (header::CACHE_CONTROL, "max-age=3600".to_owned()),
    ];
    Ok((headers, bytes).into_response())
}

async fn claim(asked: Asked, Path(id): Path<String>, Query(words): Query<Words>) -> Answered {
    let ask = move |sql: &mut Sql| query::claim(sql, &id, Part::Page(words.page));
    asked.answer("claim.html", |value| value["standing"]["text"].as_str(), ask).await
}

/// The bundles that `with` names, as often as it stands there.
fn compared(pairs: Vec<(String, String)>) -> Result<Vec<String>, Error> {
    pairs.into_iter().filter(|(name, _)| name == "with").map(|(_, id)| bundle_id(id)).collect()
}

async fn compare(asked: Asked, Query(pairs): Query<Vec<(String, String)>>) -> Answered {
    let ids = compared(pairs)?;
    asked.answer("compare.html", |_| Some("Compare"), move |sql| query::compare(sql, &ids)).await
}

async fn places(asked: Asked) -> Answered {
    asked
        .answer("places.html", |_| Some("Servers and machines"), |sql| query::places(sql, Part::Page(1)))
        .await
}

async fn host(asked: Asked, Path(id): Path<String>, Query(words): Query<Words>) -> Answered {
    let ask = move |sql: &mut Sql| query::host(sql, &id, Part::Page(words.page));
    asked.answer("host.html", |value| value["host"]["name"].as_str(), ask).await
}

async fn server(asked: Asked, Path(name): Path<String>, Query(words): Query<Words>) -> Answered {
    let ask = move |sql: &mut Sql| query::server(sql, &name, Part::Page(words.page));
    asked.answer("server.html", |value| value["server"].as_str(), ask).await
}

#[derive(Deserialize)]
struct Flavour {
    /// The one that has most, unless it is named.
    #[serde(default)]
    flavour: String,
}

async fn history_of_first(state: State<Shared>, of: Query<Flavour>, words: Query<Words>) -> Answered {
    history(state, Path((of.0.flavour, "tps".to_owned())), words).await
}

async fn history(
    State(hub): State<Shared>,
    Path(of): Path<(String, String)>,
    Query(words): Query<Words>,
) -> Answered {
    let (flavor, metric) = of;
    let ask = move |sql: &mut Sql| {
        let flavors = query::flavors(sql)?;
        let first = || flavors.first().map_or("", String::as_str);
        let flavor = if flavor.is_empty() { first() } else { &flavor };
        let found = query::history(sql, flavor, &metric, &words.short(), Part::Page(words.page))?;
        Ok(pages::history(&found, flavor, &metric, &flavors))
    };
    let _turn = place(&hub.histories).await?;
    let mut answer = page(&hub, pages::HISTORY, |_| Some("History"), ask).await?;
    let policy = HeaderValue::from_static(pages::CHART_POLICY);
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(answer)
}

async fn api_history(
    State(hub): State<Shared>,
    Path((flavor, metric)): Path<(String, String)>,
    Query(words): Query<Words>,
) -> Answered {
    let ask = move |sql: &mut Sql| {
        let found = query::history(sql, &flavor, &metric, &words.short(), Part::Page(words.page))?;
        let mut value = found.history.json();
        value["next"] = json!(found.next);
        Ok(value)
    };
    let _turn = place(&hub.histories).await?;
    api(&hub, ask).await
}

async fn css(State(hub): State<Shared>) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")];
    (headers, hub.css.clone()).into_response()
}

async fn chart_script() -> Response {
    static SCRIPT: LazyLock<String> = LazyLock::new(report::chart_script);
    let headers =
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")];
    (headers, SCRIPT.as_str()).into_response()
}

async fn feed(State(hub): State<Shared>) -> Answered {
    let feed = waiting(&hub, |hub| {
        let mut value = hub.db.with(query::feed)?;
        value["root"] = json!(hub.root);
        hub.pages.page("feed.xml", "", &value)
    });
    let feed = feed.await?;
    Ok(([(header::CONTENT_TYPE, "application/atom+xml; charset=utf-8")], feed).into_response())
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}

#[derive(Deserialize)]
struct Why {
    #[serde(default)]
    why: String,
}

async fn hide(
    State(hub): State<Shared>,
    Path(id): Path<String>,
    Query(why): Query<Why>,
    headers: HeaderMap,
) -> Answered {
    allowed(&hub, bearer(&headers)?, Scope::Moderate).await?;
    let id = bundle_id(id)?;
    waiting(&hub, move |hub| accept::hide(&hub.db, &id, &why.why)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A moderator asks for a claim of this bundle to be measured again.
async fn ask_again(State(hub): State<Shared>, Path(id): Path<String>, headers: HeaderMap) -> Answered {
    allowed(&hub, bearer(&headers)?, Scope::Moderate).await?;
    let id = bundle_id(id)?;
    let ask = move |hub: &Hub| {
        hub.db.with(|sql| sql.transaction(|sql| remeasure::ask(sql, &id, By::Moderator, now_ms())))
    };
    let asked = waiting(&hub, ask).await?;
    Ok((StatusCode::CREATED, as_json(json!({"id": asked}).to_string())).into_response())
}

/// Of a worker's words.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// Hears what a worker says, once its token has been looked at; `answer` gets the token's name and what it says.
async fn by_worker<T: serde::de::DeserializeOwned + Send + 'static>(
    hub: &Shared,
    headers: &HeaderMap,
    body: Body,
    answer: impl FnOnce(&mut Sql, String, T) -> Result<Value, Error> + Send + 'static,
) -> Answered {
    let worker = allowed(hub, bearer(headers)?, Scope::Measure).await?;
    let bytes = read_bounded(body, SAID_BYTES_MAX).await?;
    let said = serde_json::from_slice(&bytes)
        .map_err(|error| Error::Wrong(format!("what the worker says cannot be read: {error}")))?;
    api(hub, move |sql| answer(sql, worker, said)).await
}

#[derive(Deserialize)]
struct Asking {
    /// The time that the worker has for a claim. One that does not say gets whatever there is.
    #[serde(default = "any_budget")]
    budget_s: u32,
}

fn any_budget() -> u32 {
    u32::MAX
}

async fn lease(State(hub): State<Shared>, headers: HeaderMap, body: Body) -> Answered {
    let answer = |sql: &mut Sql, worker: String, asking: Asking| {
        Ok(json!({"job": remeasure::lease(sql, &worker, asking.budget_s, now_ms())?}))
    };
    by_worker(&hub, &headers, body, answer).await
}

#[derive(Deserialize)]
struct Lease {
    lease: String,
}

async fn renew(
    State(hub): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let answer = move |sql: &mut Sql, _: String, said: Lease| {
        remeasure::renew(sql, &id, &said.lease, now_ms())?;
        Ok(json!({"lease_ms": remeasure::LEASE_MS}))
    };
    by_worker(&hub, &headers, body, answer).await
}

async fn ended(
    State(hub): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let answer = move |sql: &mut Sql, _: String, said: remeasure::Report| {
        remeasure::end(sql, &id, &said, now_ms())?;
        Ok(json!({}))
    };
    by_worker(&hub, &headers, body, answer).await
}
