//! The latest values as Prometheus text (OpenMetrics' ancestor, "Exposition formats", version 0.0.4), over a listener
//! of a few lines: one page, no library of a web server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::track::{Kind, Track};

/// Full name (with its unit, and `_total` for a counter), instance.
type Key = (String, String);

/// What was last seen. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    latest: Arc<Mutex<BTreeMap<Key, Latest>>>,
}

#[derive(Debug, Clone)]
struct Latest {
    kind: Kind,
    help: String,
    value: f64,
}

impl Metrics {
    /// Notes a value: who says it (`load`, `host`, `server` ...), its name and unit as [`Track`] has them, which one of
    /// several.
    pub fn set(&self, (source, name, unit): (&str, &str, &str), instance: &str, kind: Kind, value: f64) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (full_name(source, name, unit, kind), instance.to_owned());
        match latest.get_mut(&key) {
            Some(known) => known.value = value,
            None => {
                latest.insert(key, Latest { kind, help: help(source, name, unit), value });
            }
        }
    }

    /// Notes the last point of each track.
    pub(crate) fn set_all(&self, tracks: &[Track]) {
        for track in tracks {
            if let Some((_, value)) = track.points.last() {
                self.set((track.source, track.name, track.unit), &track.instance, track.kind, *value);
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
        for ((name, instance), Latest { kind, help, value }) in latest.iter() {
            let word = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            // Writing to a String cannot fail.
            if name != last_name {
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {word}");
                last_name = name;
            }
            let label = if instance.is_empty() {
                String::new()
            } else {
                format!("{{instance=\"{}\"}}", escaped(instance))
            };
            let _ = writeln!(text, "{name}{label} {value}");
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

/// Units last in names, as Prometheus wants them; most of ours have them already.
fn full_name(source: &str, name: &str, unit: &str, kind: Kind) -> String {
    let bare = name.strip_suffix("_s").filter(|_| unit == "s").unwrap_or(name);
    let unit = match unit {
        "s" | "stalled_s" | "waited_s" => "_seconds",
        "ms" => "_ms",
        "ticks" => "_ticks",
        _ => "",
    };
    let total = if kind == Kind::Counter { "_total" } else { "" };
    format!("plimsoll_{source}_{bare}{unit}{total}")
}

fn help(source: &str, name: &str, unit: &str) -> String {
    let who = match source {
        "load" => "The load of the last second",
        "host" => "The machine",
        "device" => "The device under the data directory",
        "process" => "The server's processes",
        "client" => "Plimsoll itself",
        "server" => "The server's own counters",
        "replica" => "A replica of the server",
        other => other,
    };
    let unit = match unit {
        "" => "",
        "s" => ", in seconds",
        "B" => ", in bytes",
        "stalled_s" => ", in seconds stalled",
        "waited_s" => ", in seconds waited by all sessions together",
        other => &format!(", in {other}"),
    };
    format!("{who}: {}{unit}", name.replace('_', " "))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_units_and_types_once_and_escapes_labels() {
        let metrics = Metrics::default();
        metrics.set(("host", "cpu_busy_share", "share"), "0", Kind::Gauge, 0.5);
        metrics.set(("host", "cpu_busy_share", "share"), "a\"b", Kind::Gauge, 0.25);
        metrics.set(("process", "cpu_user", "s"), "", Kind::Counter, 2.5);
        metrics.set(("server", "log_bytes", "B"), "", Kind::Counter, 9.0);
        metrics.set(("server", "log_bytes", "B"), "", Kind::Counter, 10.0);
        metrics.set(("server", "started_unix_s", "s"), "", Kind::Gauge, 1.5e9);
        assert_eq!(
            metrics.text(),
            "# HELP plimsoll_host_cpu_busy_share The machine: cpu busy share, in share\n\
             # TYPE plimsoll_host_cpu_busy_share gauge\n\
             plimsoll_host_cpu_busy_share{instance=\"0\"} 0.5\n\
             plimsoll_host_cpu_busy_share{instance=\"a\\\"b\"} 0.25\n\
             # HELP plimsoll_process_cpu_user_seconds_total The server's processes: cpu user, in seconds\n\
             # TYPE plimsoll_process_cpu_user_seconds_total counter\n\
             plimsoll_process_cpu_user_seconds_total 2.5\n\
             # HELP plimsoll_server_log_bytes_total The server's own counters: log bytes, in bytes\n\
             # TYPE plimsoll_server_log_bytes_total counter\n\
             plimsoll_server_log_bytes_total 10\n\
             # HELP plimsoll_server_started_unix_seconds The server's own counters: started unix s, in seconds\n\
             # TYPE plimsoll_server_started_unix_seconds gauge\n\
             plimsoll_server_started_unix_seconds 1500000000\n"
        );
        metrics.clear();
        assert_eq!(metrics.text(), "");
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let metrics = Metrics::default();
        metrics.set(("load", "tps", ""), "", Kind::Gauge, 1234.0);
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
