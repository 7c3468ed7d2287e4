//! PostgreSQL.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{launch_of, run_init};
use crate::Error;
use crate::process::{self, Ids};
use crate::record::Record;

/// Port in the socket's name when there is no TCP port; its directory is private.
const SOCKET_PORT: u16 = 5432;

/// Who may connect.
const RULES: &str = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 md5\n";
/// The rules of a sandbox that others than this machine's users reach, in its own directory: the data directory may become a
/// snapshot for others.
const HBA_OF_ADDRESS: &str = "pg_hba.conf";

/// Writes down who may connect to a sandbox that has an address; a server's own user reads it.
pub(crate) fn write_rules(record: &Record, dir: &Path) -> Result<(), Error> {
    let path = dir.join(HBA_OF_ADDRESS);
    let rules = format!("{RULES}host all all all md5\n");
    std::fs::write(&path, rules).map_err(|e| Error::io("write", &path, e))?;
    let Some(Ids { uid, gid }) = record.ids else { return Ok(()) };
    std::os::unix::fs::chown(&path, Some(uid), Some(gid)).map_err(|e| Error::io("give away", &path, e))
}

/// Makes the data directory with initdb: UTF8, collation C, trust on the socket and passwords on TCP.
pub(crate) fn init(record: &Record, dir: &Path) -> Result<(), Error> {
    let log = dir.join("init.log");
    let mut launch = launch_of(record, &log)?;
    let missing = || Error::Init {
        build: record.build.name(),
        why: "the build has no initdb beside postgres (a source tree needs `make install` first)".to_owned(),
        log: String::new(),
    };
    launch.program = record.build.files.initdb.clone().ok_or_else(missing)?;
    launch.args = vec!["-D".into(), record.datadir.clone().into()];
    // -N: the data directory is thrown away if the machine dies now, so nothing needs to be synchronised.
    launch
        .args
        .extend(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"].map(OsString::from));
    launch.passwd = passwd_for(record.ids, dir)?;
    run_init(record, launch, &log)?;
    let hba = record.datadir.join("pg_hba.conf");
    std::fs::write(&hba, RULES).map_err(|e| Error::io("write", &hba, e))
}

/// initdb looks its uid up and refuses one without a name. A file that only this process sees in the place of
/// /etc/passwd gives it one and leaves the machine as it is.
fn passwd_for(ids: Option<Ids>, dir: &Path) -> Result<Option<PathBuf>, Error> {
    // SAFETY: neither has preconditions, and neither can fail.
    let ours = || unsafe { Ids { uid: libc::geteuid(), gid: libc::getegid() } };
    let Ids { uid, gid } = ids.unwrap_or_else(ours);
    if has_name(uid) {
        return Ok(None);
    }
    let machine = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let path = dir.join("passwd");
    let mut file = std::fs::File::create(&path).map_err(|e| Error::io("write", &path, e))?;
    writeln!(file, "{}plimsoll:x:{uid}:{gid}::/:/bin/sh", machine)
        .map_err(|e| Error::io("write", &path, e))?;
    // The sandbox's own directory is private, its passwd file must be readable to the one it is for.
    std::os::unix::fs::chown(&path, Some(uid), Some(gid)).map_err(|e| Error::io("give away", &path, e))?;
    Ok(Some(path))
}

/// Whether the machine knows a user of this number, from /etc/passwd or a directory service.
fn has_name(uid: u32) -> bool {
    let mut buffer = vec![0; 16 << 10];
    let mut found = std::ptr::null_mut();
    // SAFETY: an all-zero passwd is valid, and all pointers are for the time of the call.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found);
    }
    !found.is_null()
}

/// Whether a process of ours may have a /etc/passwd of its own (not in a container without CAP_SYS_ADMIN).
pub(crate) fn can_show_passwd(dir: &Path) -> bool {
    let null = || std::fs::File::options().write(true).open("/dev/null");
    let Ok(log) = null() else { return false };
    let passwd = Some("/etc/passwd".into());
    let launch = process::Launch { passwd, ..process::Launch::new("/bin/true", dir, log) };
    process::spawn(launch).and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
}

/// The arguments of a running server.
pub(crate) fn arguments(record: &Record, dir: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-D".into(), record.datadir.clone().into()];
    args.extend(["-k".into(), record.run_dir.clone().into()]);
    args.extend(["-p".into(), socket_port(record).to_string().into()]);
    let mut set = |name: &str, value: &str| args.extend(["-c".into(), format!("{name}={value}").into()]);
    let address = record.port.map(|_| record.address().to_string());
    set("listen_addresses", &address.unwrap_or_default());
    if record.address.is_some() {
        set("hba_file", &dir.join(HBA_OF_ADDRESS).display().to_string());
    }
    set("logging_collector", "off");
    if record.tls {
        set("ssl", "on");
        for (name, file) in
            [("ssl_ca_file", "ca.pem"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")]
        {
            set(name, &dir.join("tls").join(file).display().to_string());
        }
    } else {
        set("ssl", "off");
    }
    for (name, value) in &record.settings {
        set(name, value);
    }
    args
}

/// The number in the socket's name.
pub(crate) fn socket_port(record: &Record) -> u16 {
    record.port.unwrap_or(SOCKET_PORT)
}

/// Removes the System V segment of a postmaster that was killed: its number stands in line 7 of postmaster.pid (source
/// code: miscadmin.h, LOCK_FILE_LINE_SHMEM_KEY). One that anybody is attached to stays.
pub(crate) fn remove_shared_memory(datadir: &Path) {
    let text = std::fs::read_to_string(datadir.join("postmaster.pid")).unwrap_or_default();
    let number = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<libc::c_int>().ok());
    let Some(segment) = text.lines().nth(6).and_then(number) else { return };
    // SAFETY: an all-zero shmid_ds is valid, and the pointer is for the time of the call.
    unsafe {
        let mut facts: libc::shmid_ds = std::mem::zeroed();
        if libc::shmctl(segment, libc::IPC_STAT, &raw mut facts) == 0 && facts.shm_nattch == 0 {
            libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}
