//! A workload on a server, whatever is measured of it: what the command lines of `bench` and `line` share.

use std::collections::BTreeMap;

use sandbox::{Build, Home, Listen, Profile, Spec};
use store::Key;

use crate::clients::Hosts;
use crate::run::Order;
use crate::servers::Server;
use crate::subject::{Subject, sandbox_name};
use crate::workloads::Resolved;

/// A workload on a server.
#[derive(Debug, Clone)]
pub struct OnServer {
    pub workload: Resolved,
    /// Of the workload.
    pub options: BTreeMap<String, String>,
    pub server: Server,
    /// Worker threads, of each client process; `None`: one for two cpus.
    pub workers: Option<usize>,
    /// Processes that have the sessions; 1: this one.
    pub clients: u32,
    /// Where those are.
    pub client_hosts: Hosts,
    /// Variables of a sandbox of its own.
    pub settings: BTreeMap<String, String>,
    /// Durability level of a sandbox of its own.
    pub profile: Option<Profile>,
    /// Of everything random.
    pub seed: u64,
}

impl OnServer {
    /// The sandbox of a run's own. `what` begins its name.
    pub(crate) fn spec(&self, what: &str, build: &Build) -> Spec {
        Spec {
            listen: self.client_hosts.server_address().map_or(Listen::SocketOnly, Listen::At),
            settings: self.settings.clone(),
            profile: self.profile,
            ..Spec::new(sandbox_name(what), build.clone())
        }
    }

    /// Machines that connect to a port of the server; `None`: it is reached by its socket.
    pub(crate) fn machines_by_port(&self) -> Option<u32> {
        let attached = match &self.server {
            Server::Url(target) => Some(&**target),
            Server::Selector(_) | Server::Sandbox(_) => None,
        };
        self.client_hosts.machines_by_port(self.clients, attached)
    }

    /// A load of one level.
    pub(crate) fn load(&self, level: load::Step) -> load::LoadPlan {
        load::LoadPlan {
            steps: vec![level],
            workers: self.workers,
            seed: self.seed,
            raise_priority: true,
            ..load::LoadPlan::default()
        }
    }

    pub(crate) fn order<'a>(&'a self, home: &'a Home, subject: &Subject, load: load::LoadPlan) -> Order<'a> {
        Order {
            clients: self.clients,
            client_hosts: &self.client_hosts,
            ..Order::new(home, (subject.name(), subject.flavor()), (&self.workload, &self.options), load)
        }
    }
}

/// The cell of runs that differ in nothing else.
pub(crate) fn key(server: &str, workload: &Resolved) -> Key {
    Key::from([("server".to_owned(), server.into()), ("workload".to_owned(), workload.name().into())])
}

/// Options tell cells apart, too; numbers among them as numbers.
pub(crate) fn add_options(key: &mut Key, options: &BTreeMap<String, String>) {
    key.extend(options.iter().map(|(name, value)| {
        let number = value.parse::<i64>().ok().map(serde_json::Value::from);
        (name.clone(), number.unwrap_or_else(|| value.clone().into()))
    }));
}
