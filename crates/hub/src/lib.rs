//! The hub: where bundles are kept, checked, shown and compared. A web service of its own; the only room with an async
//! runtime and HTTP.
//!
//! What is shown is the same as what the JSON says (`query`): pages are templates over it. Nothing that somebody submitted is
//! opened in this process: a child without rights checks it first (`check`).
//!
//! Never here: measuring, servers that are measured, figures that neither a bundle nor a worker has. A worker measures by a child
//! (`worker`), and hands in what it found.

mod accept;
mod check;
mod client;
mod db;
mod error;
mod export;
mod files;
mod kept;
mod pages;
mod query;
mod random;
mod remeasure;
mod schema;
mod serve;
mod standing;
mod submit;
mod tokens;
mod worker;

pub use accept::{Made, keep_made, list_made, note_change};
pub use check::check_in_child;
pub use client::{Submitted, submit};
pub use db::Place;
pub use error::Error;
pub use export::export;
pub use files::Keeping;
pub use serve::{Options, serve};
pub use tokens::{Scope, Token, Tokens};
pub use worker::{Work, work};

/// The environment variable that a token is taken from. No child gets it.
pub const TOKEN_VARIABLE: &str = "PLIMSOLL_HUB_TOKEN";

/// The description of the JSON, as it is served.
pub const OPENAPI: &str = include_str!("../assets/openapi.json");
