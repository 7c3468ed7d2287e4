//! A workload on a server, whatever is measured of it: what the command lines of `bench` and `line` share.

use std::collections::BTreeMap;

use sandbox::{Build, Home, Listen, Profile, Spec, replication};
use store::Key;

use crate::clients::Hosts;
use crate::duel::room::memory_for;
use crate::error::Error;
use crate::replicas::ReplicaOrder;
use crate::run::Order;
use crate::servers::Server;
use crate::study::ReplicasChoice;
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
    /// Servers that follow a sandbox of its own.
    pub replicas: ReplicasChoice,
    /// Of everything random.
    pub seed: u64,
}

impl OnServer {
    /// The sandbox of a run's own. `what` begins its name.
    pub(crate) fn spec(&self, what: &str, build: &Build) -> Spec {
        let mut spec = self.plain_spec(what, build);
        if !self.replicas.servers.is_empty() {
            replication::make_primary(&mut spec);
        }
        if let Some(address) = self.client_hosts.server_address() {
            spec.listen = Listen::At(address);
        }
        spec
    }

    fn plain_spec(&self, what: &str, build: &Build) -> Spec {
        let (settings, profile) = (self.settings.clone(), self.profile);
        Spec { settings, profile, ..Spec::new(sandbox_name(what), build.clone()) }
    }

    /// The replicas of a sandbox of its own, which are of the same build.
    fn replica_order(&self, build: &Build) -> Result<Option<ReplicaOrder>, Error> {
        let ReplicasChoice { label, mode, servers } = &self.replicas;
        if servers.is_empty() {
            return Ok(None);
        }
        let primary = self.spec("primary", build);
        let replica = |number| {
            let mut spec = self.plain_spec("replica", build);
            replication::make_replica(&mut spec, number);
            spec
        };
        let specs: Vec<Spec> = (1..).take(servers.len()).map(replica).collect();
        let refusal = replication::refused_primary(&primary, *mode)
            .or_else(|| memory_for(&specs.iter().chain([&primary]).collect::<Vec<_>>()).err());
        match refusal {
            Some(why) => Err(Error::Usage(format!("replicas `{label}` are not possible on {build}: {why}"))),
            None => Ok(Some(ReplicaOrder { mode: *mode, specs })),
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

    /// # Errors
    /// Its replicas cannot be.
    pub(crate) fn order<'a>(
        &'a self,
        home: &'a Home,
        subject: &Subject,
        load: load::LoadPlan,
    ) -> Result<Order<'a>, Error> {
        let replicas = subject.own_build().map(|build| self.replica_order(build)).transpose()?.flatten();
        Ok(Order {
            clients: self.clients,
            client_hosts: &self.client_hosts,
            replicas,
            ..Order::new(home, (subject.name(), subject.flavor()), (&self.workload, &self.options), load)
        })
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
