//! `plimsoll submit`.

use std::time::Duration;

use serde_json::Value;

use crate::error::Error;

/// A bundle that a hub took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Where it is shown.
    pub url: String,
    /// The hub had it before.
    pub was_known: bool,
}

/// Sends a bundle to a hub.
///
/// # Errors
/// The URL is none, the hub cannot be reached, or it refuses, with its reason.
pub fn submit(bytes: &[u8], to: &str, token: &str) -> Result<Submitted, Error> {
    let root = to.trim_end_matches('/');
    let is_here = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|here| {
        root.strip_prefix(here).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    });
    if !root.starts_with("https://") && !is_here {
        return Err(Error::Wrong(format!(
            "{to}: a token travels by https:// only (http:// to this machine)"
        )));
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(600)))
        .max_redirects(0)
        .build()
        .into();
    let unreachable = |error: ureq::Error| Error::Wrong(format!("{root} cannot be reached: {error}"));
    let mut response = agent
        .post(format!("{root}/api/v1/bundles"))
        .header("Authorization", format!("Bearer {token}"))
        .header("Content-Type", "application/octet-stream")
        .send(bytes)
        .map_err(unreachable)?;
    let status = response.status().as_u16();
    let text = response.body_mut().with_config().limit(1 << 20).read_to_string().map_err(unreachable)?;
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let id = store::bundle::sha256(bytes);
    match status {
        201 | 409 => Ok(Submitted { url: format!("{root}/bundle/{id}"), was_known: status == 409 }),
        _ => {
            let why = said["error"].as_str().map_or_else(|| format!("it answers {status}"), str::to_owned);
            Err(Error::Refused(format!("{root} does not take it: {why}")))
        }
    }
}
