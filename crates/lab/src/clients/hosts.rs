//! The machines that clients are on: how they are started there, how they reach the server, and what else took cpu there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use store::Gate;
use telemetry::gates;
use wire::{Endpoint, Target};

use crate::duel::crowd::Span;
use crate::error::Error;
use crate::fleet::allocation::Allocation;
use crate::judge::stored;
use crate::provision::Provisioned;

/// Where client processes live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Hosts {
    /// On this machine.
    #[default]
    This,
    /// On the other nodes of a job.
    Nodes(Allocation),
}

impl Hosts {
    /// Where the server of a run's own must listen so that they reach it; `None`: its socket does.
    pub(crate) fn server_address(&self) -> Option<IpAddr> {
        match self {
            Hosts::This => None,
            Hosts::Nodes(allocation) => Some(allocation.address()),
        }
    }

    /// Machines from which so many clients connect to a port of the server; `None`: they are here, and reach it by its
    /// socket. `attached`: a server that runs already.
    pub(crate) fn machines_by_port(&self, clients: u32, attached: Option<&Target>) -> Option<u32> {
        match self {
            Hosts::This => {
                let is_by_port = |target: &Target| matches!(target.endpoint, Endpoint::Tcp { .. });
                attached.is_some_and(is_by_port).then_some(1)
            }
            Hosts::Nodes(allocation) => Some(allocation.nodes_of(clients as usize).len() as u32),
        }
    }

    /// The machine of a client, counted from 0; `None`: this one.
    pub(super) fn of(&self, client: u64) -> Option<&str> {
        match self {
            Hosts::This => None,
            Hosts::Nodes(allocation) => Some(allocation.node(client)),
        }
    }

    /// `noisy_host` of each machine that has only clients, from what these saw of it, in their order. On this machine the
    /// samplers see them.
    pub(super) fn gates(&self, spans: &[Option<Span>]) -> Vec<Gate> {
        let mut by_host: BTreeMap<&str, Vec<Option<Span>>> = BTreeMap::new();
        for (client, span) in spans.iter().enumerate() {
            if let Some(host) = self.of(client as u64) {
                by_host.entry(host).or_default().push(*span);
            }
        }
        by_host.into_iter().map(|(host, spans)| gate(host, &spans)).collect()
    }

    /// Where so many are, behind their number.
    pub(super) fn named(&self, clients: usize) -> String {
        match self {
            Hosts::This => String::new(),
            Hosts::Nodes(allocation) => format!(" on {}", allocation.nodes_of(clients).join(", ")),
        }
    }

    /// How clients connect to the server.
    pub(super) fn target(&self, server: &Provisioned<'_>) -> Result<Target, Error> {
        let Some(address) = self.server_address() else { return Ok(server.target.clone()) };
        let over_tcp =
            server.sandbox().and_then(|sandbox| sandbox.tcp_target(server.target.database.as_deref()));
        let target = over_tcp.unwrap_or_else(|| server.target.clone());
        let is_reached = match &target.endpoint {
            Endpoint::Unix(_) => false,
            Endpoint::Tcp { host, .. } => {
                let is_loopback =
                    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
                !is_loopback || address.is_loopback()
            }
        };
        if is_reached {
            return Ok(target);
        }
        Err(Error::Usage(
            "clients on other nodes do not reach a server that listens on this machine alone: name a build, which gets a \
             sandbox with an address, or a URL with the host by which the nodes know it"
                .into(),
        ))
    }

    /// What starts a client.
    pub(super) fn launch(&self, client: u64) -> Result<Command, Error> {
        match self {
            Hosts::This => {
                // The very file that runs, whatever lies by its name meanwhile.
                let mut command = Command::new("/proc/self/exe");
                command.arg0("plimsoll");
                Ok(command)
            }
            Hosts::Nodes(allocation) => {
                let program = std::env::current_exe()
                    .map_err(|error| Error::Run(format!("where this program is: {error}")))?;
                Ok(allocation.step(client, &program))
            }
        }
    }
}

/// Clients of one machine saw the same of it, and used what each of them used.
fn gate(host: &str, spans: &[Option<Span>]) -> Gate {
    let seen: Option<Vec<Span>> = spans.iter().copied().collect();
    let judged = match seen.as_deref() {
        Some(seen @ [first, ..]) => {
            let together = Span { own_s: seen.iter().map(|span| span.own_s).sum(), ..*first };
            gates::noisy_client_host(host, &together.noise())
        }
        _ => gates::Gate::not_checked("noisy_host", format!("{host}: a client there does not see its cpus")),
    };
    stored(&judged, None)
}

#[cfg(test)]
mod tests {
    use store::Finding;
    use telemetry::CpuTime;

    use super::*;

    /// Two cpus for ten seconds, of which so much was used.
    fn span(busy_s: f64, own_s: f64) -> Span {
        let cpu = CpuTime { there_s: 20.0, busy_s, low_priority_s: 0.0, stolen_s: 0.0 };
        Span { cpu, own_s }
    }

    #[test]
    fn clients_of_one_machine_are_no_strangers_to_each_other() {
        let together = gate("n2", &[Some(span(16.0, 8.0)), Some(span(16.0, 8.0))]);
        assert_eq!(together.finding, Finding::Held, "{together:?}");
        let with_others = gate("n2", &[Some(span(20.0, 5.0)), Some(span(20.0, 5.0))]);
        assert_eq!(with_others.finding, Finding::Tripped, "{with_others:?}");
        assert!(
            with_others
                .detail
                .starts_with("n2: of the cpu that its clients wanted, other processes took 50.0 %"),
            "{}",
            with_others.detail
        );
        assert_eq!(gate("n2", &[Some(span(1.0, 1.0)), None]).finding, Finding::NotChecked);
    }

    #[test]
    fn loads_of_a_search_add_up() {
        assert_eq!(span(2.0, 1.0).and(&span(3.0, 0.5)).own_s, 1.5);
        assert_eq!(span(2.0, 1.0).and(&span(3.0, 0.5)).cpu.busy_s, 5.0);
        assert!(Hosts::This.gates(&[Some(span(20.0, 1.0))]).is_empty());
    }
}
