//! The latest values as Prometheus text (OpenMetrics' ancestor, "Exposition formats", version 0.0.4), over a listener
//! of a few lines: one page, no library of a web server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::track::{Kind, Track};

/// Name with source, instance.
type Key = (String, String);

/// What was last seen. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    latest: Arc<Mutex<BTreeMap<Key, (Kind, f64)>>>,
}

impl Metrics {
    /// Nothing yet.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// Notes a value of `source` (`load`, `host`, `server` ...).
    pub fn set(&self, source: &str, name: &str, instance: &str, kind: Kind, value: f64) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.insert((format!("{source}_{name}"), instance.to_owned()), (kind, value));
    }

    /// Notes the last point of each track.
    pub(crate) fn set_all(&self, tracks: &[Track]) {
        for track in tracks {
            if let Some((_, value)) = track.points.last() {
                self.set(track.source, track.name, &track.instance, track.kind, *value);
            }
        }
    }

    /// Forgets everything: the run is over, and its last values are no longer true.
    pub fn clear(&self) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The page.
    pub fn text(&self) -> String {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let mut last_name = "";
        for ((name, instance), (kind, value)) in latest.iter() {
            let (word, suffix) = match kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Gauge => ("gauge", ""),
            };
            // Writing to a String cannot fail.
            if name != last_name {
                let _ = writeln!(text, "# TYPE plimsoll_{name}{suffix} {word}");
                last_name = name;
            }
            let label = if instance.is_empty() {
                String::new()
            } else {
                format!("{{instance=\"{}\"}}", escaped(instance))
            };
            let _ = writeln!(text, "plimsoll_{name}{suffix}{label} {value}");
        }
        text
    }

    /// Serves the page until the process ends; the address that it listens on (port 0 takes a free one).
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn serve(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        let metrics = self.clone();
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A reader that went away misses a page.
                let _ = metrics.answer(stream);
            }
        })?;
        Ok(bound)
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        // A peer that says nothing must not keep the page from others.
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        let mut request = [0u8; 4096];
        let mut length = 0;
        while length < request.len() && !request[..length].windows(4).any(|w| w == b"\r\n\r\n") {
            match stream.read(&mut request[length..])? {
                0 => break,
                n => length += n,
            }
        }
        let is_page = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET / ");
        let (status, body) = if is_page { ("200 OK", self.text()) } else { ("404 Not Found", String::new()) };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        stream.flush()
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_types_once_and_escapes_labels() {
        let metrics = Metrics::new();
        metrics.set("host", "cpu_busy_share", "0", Kind::Gauge, 0.5);
        metrics.set("host", "cpu_busy_share", "a\"b", Kind::Gauge, 0.25);
        metrics.set("server", "log_bytes", "", Kind::Counter, 10.0);
        assert_eq!(
            metrics.text(),
            "# TYPE plimsoll_host_cpu_busy_share gauge\n\
             plimsoll_host_cpu_busy_share{instance=\"0\"} 0.5\n\
             plimsoll_host_cpu_busy_share{instance=\"a\\\"b\"} 0.25\n\
             # TYPE plimsoll_server_log_bytes_total counter\n\
             plimsoll_server_log_bytes_total 10\n"
        );
        metrics.clear();
        assert_eq!(metrics.text(), "");
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let metrics = Metrics::new();
        metrics.set("load", "tps", "", Kind::Gauge, 1234.0);
        let address = metrics.serve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let get = |path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(get("/metrics").ends_with("plimsoll_load_tps 1234\n"));
        assert!(get("/secret").starts_with("HTTP/1.1 404"));
        // Silence is no obstacle.
        let _silent = TcpStream::connect(address).unwrap();
        assert!(get("/metrics").starts_with("HTTP/1.1 200"));
    }
}
