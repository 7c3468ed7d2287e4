//! What `plimsoll submit` and `plimsoll hub worker` say to a hub.

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

/// A hub that is spoken to with a token.
pub(crate) struct Client {
    /// Without a slash at its end.
    root: String,
    token: String,
    agent: ureq::Agent,
}

/// What a hub says in words at most.
const SAID_BYTES_MAX: u64 = 1 << 20;

/// A hub's answer.
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Said {
    /// The hub's own reason, or that it gives none.
    pub(crate) fn why(&self) -> String {
        self.body["error"].as_str().map_or_else(|| format!("it answers {}", self.status), str::to_owned)
    }
}

impl Client {
    pub(crate) fn new(url: &str, token: &str, patience: Duration) -> Result<Client, Error> {
        let root = url.trim_end_matches('/').to_owned();
        let is_here = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|here| {
            root.strip_prefix(here).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        });
        if !root.starts_with("https://") && !is_here {
            return Err(Error::Wrong(format!(
                "{url}: a token travels by https:// only (http:// to this machine)"
            )));
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(patience))
            .max_redirects(0)
            .build()
            .into();
        Ok(Client { root, token: token.to_owned(), agent })
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        Error::Unreachable(format!("{} cannot be reached: {error}", self.root))
    }

    pub(crate) fn post(&self, path: &str, kind: &str, bytes: &[u8]) -> Result<Said, Error> {
        let mut response = self
            .agent
            .post(format!("{}{path}", self.root))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind)
            .send(bytes)
            .map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(SAID_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| self.unreachable(&error))?;
        Ok(Said { status, body: serde_json::from_str(&text).unwrap_or_default() })
    }

    /// A bundle's file. The token stays here.
    pub(crate) fn bundle(&self, id: &str, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let answer = self.agent.get(format!("{}/bundle/{id}/file", self.root)).call();
        let mut response = answer.map_err(|error| self.unreachable(&error))?;
        if response.status().as_u16() != 200 {
            return Err(Error::Refused(format!(
                "{} does not give bundle {id}: it answers {}",
                self.root,
                response.status()
            )));
        }
        let bytes = response.body_mut().with_config().limit(bytes_max).read_to_vec();
        let bytes = bytes.map_err(|error| self.unreachable(&error))?;
        if store::bundle::sha256(&bytes) != id {
            return Err(Error::Refused(format!("{} gives another file than bundle {id}", self.root)));
        }
        Ok(bytes)
    }
}

/// Sends a bundle to a hub.
///
/// # Errors
/// The URL is none, the hub cannot be reached, or it refuses, with its reason.
pub fn submit(bytes: &[u8], to: &str, token: &str) -> Result<Submitted, Error> {
    let client = Client::new(to, token, Duration::from_secs(600))?;
    let said = client.post("/api/v1/bundles", "application/octet-stream", bytes)?;
    let (root, id) = (client.root(), store::bundle::sha256(bytes));
    match said.status {
        201 | 409 => Ok(Submitted { url: format!("{root}/bundle/{id}"), was_known: said.status == 409 }),
        _ => Err(Error::Refused(format!("{root} does not take it: {}", said.why()))),
    }
}
