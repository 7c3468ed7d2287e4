//! What `plimsoll submit` and `plimsoll hub worker` say to a hub.

use std::time::Duration;

use serde_json::Value;
use ureq::http::Uri;

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

/// What is longer is sent once the hub asks for it, so that a refusal is heard.
const ASKED_FROM_BYTES: usize = 64 << 10;
/// One that says nothing for so long gets it all the same.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

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
        let wrong = |why: &str| Error::Wrong(format!("{url}: {why}"));
        let parsed: Uri = root.parse().map_err(|_| wrong("this is no URL"))?;
        if parsed.authority().is_some_and(|place| place.as_str().contains('@')) {
            // Not shown: there may be a password in it.
            return Err(Error::Wrong("a hub's URL has no user: the token says who it is".to_owned()));
        }
        let is_here = matches!(parsed.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
        match parsed.scheme_str() {
            Some("https") => {}
            Some("http") if is_here => {}
            _ => return Err(wrong("a token travels by https:// only (http:// to this machine)")),
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(patience))
            .timeout_await_100(Some(ASKED_WITHIN))
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
        let mut request = self
            .agent
            .post(format!("{}{path}", self.root))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind);
        if bytes.len() > ASKED_FROM_BYTES {
            request = request.header("Expect", "100-continue");
        }
        let mut response = request.send(bytes).map_err(|error| self.unreachable(&error))?;
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
    let root = client.root();
    match said.status {
        201 | 409 => {
            // The runs may be known under another seal, which is another bundle.
            let named = said.body["path"].as_str().filter(|path| path.starts_with("/bundle/"));
            let path = match named {
                Some(path) => path.to_owned(),
                None => format!("/bundle/{}", store::bundle::sha256(bytes)),
            };
            Ok(Submitted { url: format!("{root}{path}"), was_known: said.status == 409 })
        }
        _ => Err(Error::Refused(format!("{root} does not take it: {}", said.why()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_the_host_that_the_url_names() {
        let told = |url: &str| {
            Client::new(url, "t", Duration::from_secs(1)).map(drop).err().map(|it| it.to_string())
        };
        for url in
            ["https://hub.example.org", "http://127.0.0.1:8030/", "http://localhost", "http://[::1]:80/hub"]
        {
            assert_eq!(told(url), None, "{url}");
        }
        for (url, says) in [
            ("http://localhost:1@evil.example", "no user"),
            ("https://ada:secret@hub.example.org", "no user"),
            ("http://127.0.0.1.example.org", "https:// only"),
            ("http://hub.example.org/127.0.0.1", "https:// only"),
            ("ftp://127.0.0.1", "https:// only"),
            ("hub.example.org", "https:// only"),
            ("http://a b", "no URL"),
        ] {
            let said = told(url).unwrap_or_default();
            assert!(said.contains(says) && !said.contains("secret"), "{url}: {said}");
        }
    }
}
