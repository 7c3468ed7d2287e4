//! What a sandbox is to be.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::build::Build;
use crate::cpus::Cpus;
use crate::profile::{Durability, Logging, Profile};
use crate::replication;
use crate::settings::{Isolation, Settings, defaults};
use crate::snapshot::Snapshot;
use crate::storage::Storage;

/// Who looks after the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The process that deploys it: dropping the [`crate::Sandbox`] destroys it, and it dies with the process.
    Run,
    /// The user: it stays until `destroy`.
    ByHand,
}

/// Where the server listens beside its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere: an administrator without password is for the owner of the socket only.
    SocketOnly,
    /// A free port on 127.0.0.1.
    FreePort,
    /// This port on 127.0.0.1.
    Port(u16),
    /// A free port on this address of the machine, for clients on others: whoever reaches it and has the password, which
    /// is drawn, is the administrator.
    At(IpAddr),
}

/// What a sandbox is to be. [`Spec::new`] gives the defaults of a benchmark.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Name of the sandbox: up to 40 letters, digits, `.`, `_`, `-`.
    pub name: String,
    pub build: Build,
    /// Settings asked for, over profile, logging and defaults.
    pub settings: Settings,
    /// Durability level; `None` leaves the defaults (full durability, no binary log).
    pub profile: Option<Profile>,
    /// What the server logs; `None` leaves it to the profile.
    pub logging: Option<Logging>,
    /// Storage engine that will be asked of the server: refused early where the build lacks it, its plugin loaded
    /// where it needs one.
    pub engine: Option<String>,
    pub isolation: Isolation,
    /// Most sessions at once, for max_connections, max_prepared_stmt_count and file descriptors.
    pub sessions: u32,
    /// Prepared statements of one session, for max_prepared_stmt_count.
    pub statements_per_session: u32,
    /// Buffer pool or shared_buffers in bytes; `None` takes an eighth of the machine's memory, at most 8 GiB.
    pub buffer_bytes: Option<u64>,
    /// Place of the data directory, with its limits; `None` is the home.
    pub storage: Option<Storage>,
    /// TCP.
    pub listen: Listen,
    /// Whether the server offers TLS. Off saves 11.4 a key generation at each start.
    pub tls: bool,
    /// CPUs of the server; `None` leaves all.
    pub cpus: Option<Cpus>,
    /// Environment of the server process, beside a clean one.
    pub env: BTreeMap<String, String>,
    /// A data directory to begin with instead of a fresh one.
    pub snapshot: Option<Snapshot>,
    /// It is the replica of a primary, whose data directory is what it begins with where that is a snapshot.
    pub follows: Option<replication::Source>,
    pub life: Life,
}

impl Spec {
    /// A sandbox with the defaults: socket only, no TLS, 64 sessions, owned by this process.
    pub fn new(name: impl Into<String>, build: Build) -> Spec {
        Spec {
            name: name.into(),
            build,
            settings: Settings::new(),
            profile: None,
            logging: None,
            engine: None,
            isolation: Isolation::default(),
            sessions: 64,
            statements_per_session: 40,
            buffer_bytes: None,
            storage: None,
            listen: Listen::SocketOnly,
            tls: false,
            cpus: None,
            env: BTreeMap::new(),
            snapshot: None,
            follows: None,
            life: Life::Run,
        }
    }

    /// Every setting the server will be started with: defaults, then profile, logging, then [`Spec::settings`].
    /// Paths, socket and port are not among them.
    pub fn effective_settings(&self) -> Settings {
        defaults::effective(self, defaults::memory_bytes(self), crate::process::open_files_max())
    }

    /// The settings that decide [`Spec::durability`], in one notation.
    pub fn deciding_settings(&self) -> Settings {
        defaults::deciding(self.build.flavor, &self.effective_settings())
    }

    /// What a crash may lose under these settings.
    pub fn durability(&self) -> Durability {
        defaults::durability(self.build.flavor, &self.effective_settings())
    }
}
