//! Archives by URL: streamed to disk, taken up where they broke off.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, OnProgress, Progress};

/// The same path at another place: `https://host/a/b` at `file:///srv/mirror` is `file:///srv/mirror/a/b`.
pub(crate) fn mirrored(url: &str, mirror: &str) -> String {
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or(url, |(_, path)| path);
    format!("{}/{path}", mirror.trim_end_matches('/'))
}

/// Brings `url` into `dir` and returns the file. A part left by an earlier try is taken up, if the server's copy is
/// still the same one (its ETag or date).
pub(crate) fn get(url: &str, dir: &Path, progress: OnProgress<'_>) -> Result<PathBuf, Error> {
    let name = url.rsplit('/').next().filter(|n| !n.is_empty() && *n != "..").unwrap_or("archive");
    let place = dir.join(name);
    let part = dir.join(format!("{name}.part"));
    if let Some(path) = url.strip_prefix("file://") {
        let path = local(Path::new(path), name);
        let mut from = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
        let total = from.metadata().ok().map(|m| m.len());
        let mut to = File::create(&part).map_err(|e| Error::io("write", &part, e))?;
        stream(&mut from, &mut to, &part, url, 0, total, progress)?;
    } else {
        http(url, &part, progress)?;
    }
    fs::rename(&part, &place).map_err(|e| Error::io("put in place", &place, e))?;
    Ok(place)
}

/// A mirror on disk may have the vendor's folders or all archives side by side.
fn local(path: &Path, name: &str) -> PathBuf {
    if path.is_file() {
        return path.to_owned();
    }
    let beside = path.ancestors().skip(1).map(|dir| dir.join(name)).find(|p| p.is_file());
    beside.unwrap_or_else(|| path.to_owned())
}

fn http(url: &str, part: &Path, progress: OnProgress<'_>) -> Result<(), Error> {
    let fail = |why: String| Error::Fetch { what: url.to_owned(), why };
    let tag_path = part.with_extension("part-tag");
    let have = fs::metadata(part).map(|m| m.len()).unwrap_or(0);
    let tag = fs::read_to_string(&tag_path).ok().filter(|_| have > 0);
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(url);
    if let Some(tag) = &tag {
        request = request.header("Range", format!("bytes={have}-")).header("If-Range", tag.as_str());
    }
    let mut response = request
        .call()
        .map_err(|e| fail(format!("{e}. Is the network there? --mirror URL takes it from elsewhere")))?;
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let length = header("content-length").and_then(|v| v.parse::<u64>().ok());
    let new_tag = header("etag").filter(|t| !t.starts_with("W/")).or_else(|| header("last-modified"));
    let (mut file, from) = match status {
        206 => (File::options().append(true).open(part).map_err(|e| Error::io("write", part, e))?, have),
        200 => (File::create(part).map_err(|e| Error::io("write", part, e))?, 0),
        404 => return Err(fail(
            "there is no such file (404): the vendor may have moved it; --mirror URL or fetch --archive FILE"
                .into(),
        )),
        _ => return Err(fail(format!("the answer is {}", response.status()))),
    };
    match new_tag {
        Some(tag) => fs::write(&tag_path, tag).map_err(|e| Error::io("write", &tag_path, e))?,
        // Without one a later try could not know whether it continues the same file.
        None => drop(fs::remove_file(&tag_path)),
    }
    let total = length.map(|l| l + from);
    let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
    stream(&mut reader, &mut file, part, url, from, total, progress)?;
    let _ = fs::remove_file(&tag_path);
    Ok(())
}

fn stream(
    from: &mut impl Read,
    to: &mut File,
    part: &Path,
    url: &str,
    begin: u64,
    total: Option<u64>,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut done = begin;
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(url, done, total, &e.to_string())),
        };
        to.write_all(&buffer[..length]).map_err(|e| Error::io("write", part, e))?;
        let before = done >> 20;
        done += length as u64;
        if done >> 20 != before {
            progress(Progress::Bytes { done, total });
        }
    }
    match total {
        Some(total) if done < total => Err(broken(url, done, Some(total), "the connection closed")),
        _ => Ok(()),
    }
}

fn broken(url: &str, done: u64, total: Option<u64>, why: &str) -> Error {
    let of = total.map(|t| format!(" of {t}")).unwrap_or_default();
    Error::Fetch {
        what: url.to_owned(),
        why: format!("it broke off after {done}{of} bytes ({why}); the same command takes it up there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    #[test]
    fn mirrors_keep_the_path() {
        let url = "https://cdn.example.com/a/b-1.tar.gz";
        assert_eq!(mirrored(url, "http://127.0.0.1:8000/m/"), "http://127.0.0.1:8000/m/a/b-1.tar.gz");
        assert_eq!(mirrored(url, "file:///srv/m"), "file:///srv/m/a/b-1.tar.gz");
    }

    #[test]
    fn a_mirror_on_disk_may_be_flat() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x.tar.gz"), "content").unwrap();
        let into = tempfile::tempdir().unwrap();
        let url = format!("file://{}/some/folder/x.tar.gz", dir.path().display());
        let got = get(&url, into.path(), &|_| ()).unwrap();
        assert_eq!(fs::read_to_string(got).unwrap(), "content");
        assert!(get("file:///nowhere/y", into.path(), &|_| ()).is_err());
    }

    /// Serves one file; the first answer breaks off in the middle.
    fn serve(
        content: &'static [u8],
        etags: [&'static str; 2],
    ) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x.tar", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let mut ranges = Vec::new();
            for (round, etag) in etags.iter().enumerate() {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = Vec::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let line = line.unwrap().to_lowercase();
                    if line.is_empty() {
                        break;
                    }
                    lines.push(line);
                }
                let value =
                    |name: &str| lines.iter().find_map(|l| l.strip_prefix(name).map(|v| v.trim().to_owned()));
                let range = value("range:").unwrap_or_default();
                let is_same = value("if-range:").is_some_and(|t| t == *etag);
                let from: usize =
                    range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
                let (status, from) = if is_same { ("206 Partial Content", from) } else { ("200 OK", 0) };
                let rest = &content[from..];
                let sent = if round == 0 { &rest[..rest.len() / 2] } else { rest };
                write!(stream, "HTTP/1.1 {status}\r\nETag: {etag}\r\nContent-Length: {}\r\n\r\n", rest.len())
                    .unwrap();
                stream.write_all(sent).unwrap();
                ranges.push(range);
            }
            ranges
        });
        (url, served)
    }

    #[test]
    fn a_broken_transfer_is_taken_up_unless_the_file_changed() {
        static CONTENT: [u8; 10_000] = [42; 10_000];
        for (etags, expected) in [(["\"a\"", "\"a\""], "bytes=5000-"), (["\"a\"", "\"b\""], "bytes=5000-")] {
            let (url, served) = serve(&CONTENT, etags);
            let dir = tempfile::tempdir().unwrap();
            let error = get(&url, dir.path(), &|_| ()).unwrap_err().to_string();
            assert!(error.contains("broke off after 5000"), "{error}");
            let got = get(&url, dir.path(), &|_| ()).unwrap();
            assert_eq!(fs::read(got).unwrap(), CONTENT);
            assert_eq!(served.join().unwrap(), ["", expected]);
        }
    }
}
