//! One measuring plimsoll per machine.

use std::time::Duration;

use crate::Error;

/// Held while this process measures; released when dropped or when the process dies.
#[derive(Debug)]
pub struct MachineLock {
    _socket: std::os::unix::net::UnixListener,
}

/// Takes the machine for measuring: waits up to `wait` for another plimsoll to end (`waiting` is told its pid, once),
/// then refuses with [`Error::Busy`].
pub fn lock_machine(wait: Duration, waiting: &dyn Fn(Option<u32>)) -> Result<MachineLock, Error> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    // A name in the abstract namespace belongs to the machine, needs no file, and goes with its process.
    let address = SocketAddr::from_abstract_name(b"plimsoll-measuring")
        .map_err(|e| Error::io("name the machine's lock", "plimsoll-measuring", e))?;
    let deadline = std::time::Instant::now() + wait;
    let mut told = false;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(socket) => return Ok(MachineLock { _socket: socket }),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(Error::io("take the machine's lock", "plimsoll-measuring", e)),
        }
        let holder = UnixStream::connect_addr(&address).ok().and_then(|s| peer_pid(&s));
        if std::time::Instant::now() >= deadline {
            return Err(Error::Busy { what: "this machine".to_owned(), pid: holder });
        }
        if !told {
            waiting(holder);
            told = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn peer_pid(stream: &std::os::unix::net::UnixStream) -> Option<u32> {
    use std::os::fd::AsRawFd;
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` and `len` are valid for writes of the sizes given.
    let rc = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    };
    (rc == 0 && who.pid > 0).then_some(who.pid as u32)
}
