//! The server that a run is about: a build that gets a sandbox for each run, a sandbox that the user deployed, or a server
//! that runs elsewhere.

use std::collections::BTreeMap;

use sandbox::{Build, Flavor, Home, Sandbox, Spec};

use crate::asked::Asked;
use crate::cells::Life;
use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::provision::{Place, introduce};
use crate::servers::{self, Server};
use crate::workloads::{self, Resolved};

pub(crate) enum Subject {
    Build(Box<Build>),
    Sandbox(Box<Sandbox>),
    Attached {
        target: Box<wire::Target>,
        name: String,
        flavor: Flavor,
    },
    /// A build that is not there, and why: its commit does not build, or none of the runs to be made needs it. A run of it fails
    /// with the reason.
    Absent {
        name: String,
        flavor: Flavor,
        why: String,
    },
}

impl Subject {
    /// Fetches a build that is not here yet; asks an attached server who it is.
    pub(crate) fn find(home: &Home, server: &Server, observer: Observer<'_>) -> Result<Subject, Error> {
        Ok(match server {
            Server::Selector(selector) => {
                Subject::Build(Box::new(servers::obtain(home, selector, observer)?))
            }
            Server::Sandbox(name) => Subject::Sandbox(Box::new(servers::open_sandbox(home, name)?)),
            Server::Url(target) => {
                let (name, flavor) = attached_name(target)?;
                Subject::Attached { target: target.clone(), name, flavor }
            }
        })
    }

    /// `flavor@version[+label]`.
    pub(crate) fn name(&self) -> String {
        match self {
            Subject::Build(build) => build.name(),
            Subject::Sandbox(sandbox) => sandbox.build().name(),
            Subject::Attached { name, .. } | Subject::Absent { name, .. } => name.clone(),
        }
    }

    pub(crate) fn flavor(&self) -> Flavor {
        match self {
            Subject::Build(build) => build.flavor,
            Subject::Sandbox(sandbox) => sandbox.build().flavor,
            Subject::Attached { flavor, .. } | Subject::Absent { flavor, .. } => *flavor,
        }
    }

    /// The binaries; `None` for an attached server, and for one that was not looked up.
    pub(crate) fn build(&self) -> Option<&Build> {
        match self {
            Subject::Build(build) => Some(build),
            Subject::Sandbox(sandbox) => Some(sandbox.build()),
            Subject::Attached { .. } | Subject::Absent { .. } => None,
        }
    }

    /// The build, where each run starts a server of its own from it.
    pub(crate) fn own_build(&self) -> Option<&Build> {
        match self {
            Subject::Build(build) => Some(build),
            _ => None,
        }
    }

    /// Whose its runs' servers are, for what is checked before them.
    pub(crate) fn life(&self) -> Life<'_> {
        match self {
            Subject::Build(build) => Life::Own(build),
            Subject::Absent { .. } => Life::ToFetch,
            Subject::Sandbox(_) | Subject::Attached { .. } => Life::Foreign,
        }
    }

    /// Tells of the options given that it does not heed.
    pub(crate) fn tell_unheeded(
        &self,
        workload: &Resolved,
        given: &BTreeMap<String, String>,
        observer: Observer<'_>,
    ) {
        for name in workloads::unheeded(workload, given, self.flavor()) {
            observer(Event::Warning(&format!("the option `{name}` changes nothing on {}", self.name())));
        }
    }

    /// Where a run's server comes from, with what is asked of its variables; `spec` makes the sandbox of a run's own.
    pub(crate) fn place(
        &self,
        spec: impl FnOnce(&Build) -> Result<Spec, Error>,
    ) -> Result<(Place<'_>, Asked), Error> {
        Ok(match self {
            Subject::Build(build) => {
                let spec = spec(build)?;
                let asked = Asked::of(&spec);
                (Place::Own(Box::new(spec)), asked)
            }
            Subject::Sandbox(sandbox) => (Place::Deployed(sandbox), Asked::of_sandbox(sandbox)),
            Subject::Attached { target, .. } => (Place::Attached(target), Asked::default()),
            Subject::Absent { why, .. } => (Place::Absent(why), Asked::default()),
        })
    }
}

/// `flavor@version` and flavour of an attached server, as it introduces itself.
pub(crate) fn attached_name(target: &wire::Target) -> Result<(String, Flavor), Error> {
    let dialect = introduce(target)?.1;
    let flavor = dialect.flavor;
    let version = match (flavor, dialect.version) {
        (Flavor::Postgres, v) if v.major >= 10 => format!("{}.{}", v.major, v.minor),
        (_, v) => v.to_string(),
    };
    Ok((format!("{flavor}@{version}"), flavor))
}

/// A name for a sandbox of this process, which are told apart by a running number.
pub(crate) fn sandbox_name(what: &str) -> String {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{what}-{}-{number}", std::process::id())
}
