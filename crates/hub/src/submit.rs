//! Submissions: by a program with a token in a header, or by the form. Nothing of a bundle is read from somebody without a
//! token, and each that is read has a place among those that wait.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::accept::{self, Submission};
use crate::check::{Bounds, Found, check};
use crate::error::Error;
use crate::pages;
use crate::random;
use crate::serve::{Answer, Answered, Hub, Shared, as_json, html, now_ms, place, status_of, told, waiting};
use crate::tokens::{self, Scope};

/// A submission has so long to arrive.
const ARRIVAL: Duration = Duration::from_secs(120);
/// A form's token stands within so much; beside the bundle there is no more than that.
const HEAD_BYTES: u64 = 64 << 10;
/// What is refused is read on up to here, and no longer than its sender says something: one who still sends hears no answer.
const REFUSED_BYTES_MAX: u64 = 256 << 20;
const REFUSED_WITHIN: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(2);

pub(crate) fn bearer(headers: &HeaderMap) -> Result<String, Error> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|text| text.strip_prefix("Bearer "));
    token
        .map(|text| text.trim().to_owned())
        .ok_or_else(|| Error::Forbidden("a token is asked for: Authorization: Bearer TOKEN".to_owned()))
}

impl Hub {
    /// One token has so many submissions in an hour, refused ones included.
    fn count(&self, token: &str) -> Result<(), Error> {
        let hour = Duration::from_secs(3600);
        let mut recent = self.recent.lock().map_err(|_| Error::Inside("a request broke off".to_owned()))?;
        let times = recent.entry(token.to_owned()).or_default();
        times.retain(|at| at.elapsed() < hour);
        if times.len() >= self.options.submissions_max {
            let most = self.options.submissions_max;
            return Err(Error::TooMany(format!(
                "this token has submitted {most} times in an hour: try again later"
            )));
        }
        times.push(Instant::now());
        Ok(())
    }

    fn submitted(&self, token: &str, bytes: &[u8]) -> Result<Value, Error> {
        let id = store::bundle::sha256(bytes);
        self.db.with(|sql| accept::refuse_known(sql, &id))?;
        let bounds =
            Bounds { unpacked_bytes_max: self.options.unpacked_bytes_max, patience: self.options.patience };
        let verified = match check(&self.options.program, bytes, &bounds)? {
            Found::Refused(why) => return Err(Error::Refused(why)),
            Found::Verified(verified) => *verified,
        };
        let figures = verified.figures;
        let is_drawn = random::share()? < self.options.remeasure_share;
        let submission = Submission { id: &id, bytes, verified, token, now_ms: now_ms(), is_drawn };
        accept::accept(&self.db, &self.options.keeping, &submission)?;
        Ok(json!({"id": id, "path": format!("/bundle/{id}"), "figures": figures}))
    }
}

pub(crate) async fn allowed(hub: &Shared, token: String, scope: Scope) -> Result<String, Error> {
    let name = waiting(hub, move |hub| tokens::allowed(&hub.db, &token, scope, now_ms())).await?;
    if scope == Scope::Submit {
        hub.count(&name)?;
    }
    Ok(name)
}

/// A place that is there now, or the answer that there is none.
fn free_place(of: &Semaphore) -> Result<SemaphorePermit<'_>, Error> {
    let many = |_| Error::TooMany("many bundles are being looked at: try again in a minute".to_owned());
    of.try_acquire().map_err(many)
}

/// Takes a bundle from whoever has a token and a place.
async fn take(hub: &Shared, token: String, bytes: Vec<u8>) -> Result<Value, Error> {
    let _turn = place(&hub.checks).await?;
    let hub = Arc::clone(hub);
    tokio::task::spawn_blocking(move || hub.submitted(&token, &bytes))
        .await
        .map_err(|_| Error::Inside("a thread of the hub broke off".to_owned()))?
}

/// What comes next of a body; nothing at its end.
async fn piece(body: &mut Body) -> Result<Option<Bytes>, Error> {
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| Error::Wrong("what was sent broke off".to_owned()))?;
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Reads until there are more than `most` bytes, or all of them; says whether these are all.
async fn read_past(body: &mut Body, bytes: &mut Vec<u8>, most: u64) -> Result<bool, Error> {
    while bytes.len() as u64 <= most {
        match piece(body).await? {
            Some(more) => bytes.extend_from_slice(&more),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Reads all, where that is no more than `most` bytes.
async fn read_within(body: &mut Body, bytes: &mut Vec<u8>, most: u64) -> Result<(), Error> {
    if body.size_hint().lower() + bytes.len() as u64 <= most && read_past(body, bytes, most).await? {
        Ok(())
    } else {
        Err(Error::TooLarge(most))
    }
}

fn late<E>(_: E) -> Error {
    Error::Wrong(format!("the bundle did not arrive within {} s", ARRIVAL.as_secs()))
}

pub(crate) async fn read_bounded(mut body: Body, most: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    timeout(ARRIVAL, read_within(&mut body, &mut bytes, most)).await.map_err(late)??;
    Ok(bytes)
}

/// Reads on what is refused, so that its sender comes to hear why. One who asks before sending has heard it.
async fn read_on(headers: &HeaderMap, body: &mut Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let read = async {
        let mut bytes = 0;
        while let Ok(Ok(Some(more))) = timeout(SILENCE, piece(body)).await
            && bytes < REFUSED_BYTES_MAX
        {
            bytes += more.len() as u64;
        }
    };
    // Whoever sends for longer does without.
    drop(timeout(REFUSED_WITHIN, read).await);
}

/// The token is looked at, and a place is taken, before anything of the body is read.
async fn of_body(hub: &Shared, headers: &HeaderMap, body: &mut Body) -> Result<Value, Error> {
    let token = allowed(hub, bearer(headers)?, Scope::Submit).await?;
    let _place = free_place(&hub.waiting)?;
    let mut bytes = Vec::new();
    let read = read_within(body, &mut bytes, hub.options.packed_bytes_max);
    timeout(ARRIVAL, read).await.map_err(late)??;
    take(hub, token, bytes).await
}

pub(crate) async fn submit(State(hub): State<Shared>, headers: HeaderMap, mut body: Body) -> Answered {
    match of_body(&hub, &headers, &mut body).await {
        Ok(taken) => Ok((StatusCode::CREATED, as_json(taken.to_string())).into_response()),
        Err(error) => {
            read_on(&headers, &mut body).await;
            Err(Answer(error))
        }
    }
}

pub(crate) async fn form(State(hub): State<Shared>) -> Answered {
    let text = "A bundle is one file that proves its own figures: plimsoll bundle STUDY makes it.";
    Ok(html(hub.pages.page("note.html", "Submit", &json!({"text": text, "form": true}))?))
}

pub(crate) async fn submit_by_form(State(hub): State<Shared>, request: Request) -> Answered {
    let (parts, mut body) = request.into_parts();
    let (status, title, text, link) = match of_form(&hub, &parts, &mut body).await {
        Ok(taken) => {
            let text = format!("It verifies: {} figures come out of what it stores.", taken["figures"]);
            (StatusCode::CREATED, "Taken", text, taken["path"].as_str().map(str::to_owned))
        }
        Err(Error::Known(path)) => {
            (StatusCode::CONFLICT, "Known", "What it measured is here already.".to_owned(), Some(path))
        }
        Err(error) => {
            read_on(&parts.headers, &mut body).await;
            (status_of(&error), "Not taken", told(&error), None)
        }
    };
    Ok((status, html(pages::note(&hub.pages, title, &text, link.as_deref())?)).into_response())
}

/// The token stands first in the form, so that a bundle is read from nobody without one.
async fn of_form(hub: &Shared, parts: &Parts, body: &mut Body) -> Result<Value, Error> {
    let until = tokio::time::Instant::now() + ARRIVAL;
    let known = tokio::time::timeout_at(until, token_of_form(hub, parts, body));
    let (token, mut bytes) = known.await.map_err(late)??;
    let _place = free_place(&hub.waiting)?;
    let most = hub.options.packed_bytes_max;
    let read = tokio::time::timeout_at(until, read_within(body, &mut bytes, most + HEAD_BYTES));
    read.await.map_err(late)?.map_err(|error| match error {
        Error::TooLarge(_) => Error::TooLarge(most),
        error => error,
    })?;
    let mut form = fields(parts, bytes).await?;
    // The token.
    drop(form.next_field().await.map_err(unreadable)?);
    let field = form.next_field().await.map_err(unreadable)?.filter(|field| field.name() == Some("bundle"));
    let field = field.ok_or_else(|| Error::Wrong("the form has no bundle".to_owned()))?;
    let bundle = field.bytes().await.map_err(unreadable)?.to_vec();
    drop(form);
    if bundle.len() as u64 > most {
        return Err(Error::TooLarge(most));
    }
    take(hub, token, bundle).await
}

/// Whose form it is, by its beginning, which is all that is read of it; and that beginning.
async fn token_of_form(hub: &Shared, parts: &Parts, body: &mut Body) -> Result<(String, Vec<u8>), Error> {
    let _place = free_place(&hub.forms)?;
    let mut head = Vec::new();
    read_past(body, &mut head, HEAD_BYTES).await?;
    let mut form = fields(parts, head.clone()).await?;
    let field = form.next_field().await.map_err(unreadable)?.filter(|field| field.name() == Some("token"));
    let field = field.ok_or_else(|| Error::Forbidden("a token is asked for".to_owned()))?;
    let token = field.bytes().await.map_err(unreadable)?;
    if token.len() > 200 {
        return Err(Error::Forbidden("the hub does not know this token".to_owned()));
    }
    let token = allowed(hub, String::from_utf8_lossy(&token).trim().to_owned(), Scope::Submit).await?;
    Ok((token, head))
}

fn unreadable(_: MultipartError) -> Error {
    Error::Wrong("the form could not be read".to_owned())
}

/// Fields of a form that has been read: from a body that comes in pieces the parser keeps what it likes.
async fn fields(parts: &Parts, bytes: Vec<u8>) -> Result<Multipart, Error> {
    let request = Request::from_parts(parts.clone(), Body::from(bytes));
    let form = Multipart::from_request(request, &()).await;
    form.map_err(|_| Error::Wrong("the form could not be read".to_owned()))
}
