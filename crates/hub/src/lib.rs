//! The hub: where bundles are kept, checked, shown and compared. A web service of its own; the only room with an async
//! runtime and HTTP.
//!
//! What is shown is the same as what the JSON says (`query`): pages are templates over it. Nothing that somebody submitted is
//! opened in this process: a child without rights checks it first (`check`).
//!
//! Never here: measuring, servers that are measured, figures that no bundle has.

mod accept;
mod check;
mod client;
mod db;
mod error;
mod export;
mod files;
mod pages;
mod query;
mod schema;
mod serve;
mod tokens;

pub use check::check_in_child;
pub use client::{Submitted, submit};
pub use db::Place;
pub use error::Error;
pub use export::export;
pub use files::Keeping;
pub use serve::{Options, serve};
pub use tokens::{Scope, Token, Tokens};

/// The description of the JSON, as it is served.
pub const OPENAPI: &str = include_str!("../assets/openapi.json");
