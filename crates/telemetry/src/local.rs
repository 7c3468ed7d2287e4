//! Whether a server that we only have an address of runs on this machine, and as which process.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use wire::{Endpoint, Target};

/// A server's process on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// Its process id; of PostgreSQL the postmaster's.
    pub pid: u32,
    /// Its data directory, where we may see it.
    pub datadir: Option<PathBuf>,
}

/// What servers call their processes. Others listen in their place, as the proxies of containers do.
const NAMES: [&str; 4] = ["mysqld", "mariadbd", "postgres", "postmaster"];

/// The process that listens where `target` says, if it is on this machine and a database server's. The owner of its
/// sockets is known to root and to the server's own user; whoever listens on a unix socket, to everybody.
pub fn local_server(target: &Target) -> Option<LocalServer> {
    let proc = Path::new("/proc");
    let pid = match &target.endpoint {
        Endpoint::Unix(path) => listener_of(proc, &unix_inodes(proc, path))
            .or_else(|| peer_of(path).filter(|pid| is_server(proc, *pid))),
        Endpoint::Tcp { host, port } => {
            let mut addresses = (host.as_str(), *port).to_socket_addrs().ok()?;
            addresses.any(|address| is_of_this_machine(address.ip())).then_some(())?;
            listener_of(proc, &tcp_inodes(proc, *port))
        }
    }?;
    // Both families work in their data directory.
    let datadir = fs::read_link(proc.join(pid.to_string()).join("cwd")).ok();
    let is_data =
        |dir: &PathBuf| ["PG_VERSION", "ibdata1", "mysql"].iter().any(|name| dir.join(name).exists());
    Some(LocalServer { pid, datadir: datadir.filter(is_data) })
}

/// Only addresses of this machine can be bound to.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Sockets that listen on a path, by inode (`/proc/net/unix`: the seventh column, the path is the last).
fn unix_inodes(proc: &Path, path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(proc.join("net/unix")).unwrap_or_default();
    // Another spelling of the same path is found by the other way.
    let is_it = |line: &&str| line.split_whitespace().nth(7).is_some_and(|word| Path::new(word) == path);
    text.lines().filter(is_it).filter_map(|line| line.split_whitespace().nth(6)?.parse().ok()).collect()
}

/// Sockets that listen on a port, by inode (`/proc/net/tcp` and `tcp6`: local address, state 0A, the tenth column).
fn tcp_inodes(proc: &Path, port: u16) -> Vec<u64> {
    let listening = |text: &str| -> Vec<u64> {
        let inode = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (_, local_port) = words.get(1)?.rsplit_once(':')?;
            let is_it = u16::from_str_radix(local_port, 16) == Ok(port) && *words.get(3)? == "0A";
            is_it.then(|| words.get(9)?.parse().ok()).flatten()
        };
        text.lines().skip(1).filter_map(inode).collect()
    };
    ["net/tcp", "net/tcp6"]
        .iter()
        .flat_map(|file| listening(&fs::read_to_string(proc.join(file)).unwrap_or_default()))
        .collect()
}

/// The server that has one of these sockets open: of several the first that was started, whose children the others are.
fn listener_of(proc: &Path, inodes: &[u64]) -> Option<u32> {
    if inodes.is_empty() {
        return None;
    }
    let links: Vec<PathBuf> = inodes.iter().map(|inode| PathBuf::from(format!("socket:[{inode}]"))).collect();
    let has_one = |pid: &u32| {
        let open = fs::read_dir(proc.join(pid.to_string()).join("fd"));
        open.into_iter()
            .flatten()
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|link| links.contains(&link)))
    };
    let all = fs::read_dir(proc).ok()?.flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_server(proc, *pid)).filter(has_one).min()
}

fn is_server(proc: &Path, pid: u32) -> bool {
    fs::read_to_string(proc.join(pid.to_string()).join("comm")).is_ok_and(|name| NAMES.contains(&name.trim()))
}

/// Who listens on a unix socket, as the kernel tells whoever connects (SO_PEERCRED in unix(7)).
fn peer_of(path: &Path) -> Option<u32> {
    let stream = UnixStream::connect(path).ok()?;
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the pointers are to a ucred and its size for the time of the call.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    // A process that we cannot see, in another container, has the number 0.
    u32::try_from(peer.pid).ok().filter(|pid| got == 0 && *pid > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn listeners_are_found_by_path_and_by_port() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _unix = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let proc = Path::new("/proc");
        assert_eq!(unix_inodes(proc, &path).len(), 1);
        assert!(unix_inodes(proc, &dir.path().join("other")).is_empty());
        assert_eq!(tcp_inodes(proc, port).len(), 1);
        assert_eq!(peer_of(&path), Some(std::process::id()));
        // This process listens, and is no server.
        for url in
            [format!("mysql://root@/?socket={}", path.display()), format!("mysql://root@127.0.0.1:{port}/")]
        {
            assert_eq!(local_server(&Target::parse(&url).unwrap()), None, "{url}");
        }
        drop(tcp);
        assert!(tcp_inodes(proc, port).is_empty());
    }

    #[test]
    fn other_machines_are_told_apart() {
        assert!(is_of_this_machine("127.0.0.1".parse().unwrap()));
        // An address for documentation (RFC 5737) is nobody's.
        assert!(!is_of_this_machine("192.0.2.1".parse().unwrap()));
    }
}
