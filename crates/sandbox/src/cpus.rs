//! Which CPUs a server and its client may use.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

/// What a study asks for: a count, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CpuRequest {
    /// That many CPUs, chosen by Plimsoll.
    Count(u32),
    /// These: `"0-3,8"`.
    List(String),
}

/// CPUs by number, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cpus(pub Vec<u32>);

impl Cpus {
    /// Reads `0-3,8`.
    pub fn parse(list: &str) -> Result<Cpus, Error> {
        let refuse = || Error::Unsupported {
            what: format!("cpus \"{list}\""),
            why: "a list is numbers and ranges with commas, such as \"0-3,8\"".to_owned(),
        };
        let mut cpus = Vec::new();
        for part in list.trim().split(',') {
            let (low, high) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let low: u32 = low.trim().parse().map_err(|_| refuse())?;
            let high: u32 = high.trim().parse().map_err(|_| refuse())?;
            if low > high || high > 8191 {
                return Err(refuse());
            }
            cpus.extend(low..=high);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Cpus(cpus))
    }
}

impl fmt::Display for Cpus {
    /// As [`Cpus::parse`] reads it, ranges joined.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let length = rest.iter().zip(first..).take_while(|(cpu, expected)| *cpu == expected).count();
            write!(f, "{separator}{first}")?;
            if length > 1 {
                write!(f, "-{}", rest[length - 1])?;
            }
            separator = ",";
            rest = &rest[length..];
        }
        Ok(())
    }
}

/// One CPU of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cpu {
    number: u32,
    /// The lowest number among the threads of its core.
    core: u32,
    node: u32,
}

/// Who gets which CPUs, and what a reader should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The server's; `None` leaves it all.
    pub server: Option<Cpus>,
    /// The client's; `None` leaves it all.
    pub client: Option<Cpus>,
    /// Sharing, split siblings, memory of another node.
    pub notes: Vec<String>,
}

/// Assigns CPUs of this machine: lists as they are, counts from CPUs that the other side does not have, whole cores of
/// one NUMA node first. Refuses more than there are.
pub fn assign(server: Option<&CpuRequest>, client: Option<&CpuRequest>) -> Result<Assignment, Error> {
    assign_from(&machine(), server, client)
}

fn assign_from(
    machine: &[Cpu],
    server: Option<&CpuRequest>,
    client: Option<&CpuRequest>,
) -> Result<Assignment, Error> {
    let listed = |request: Option<&CpuRequest>| match request {
        Some(CpuRequest::List(list)) => Cpus::parse(list).and_then(|cpus| all_here(machine, cpus)).map(Some),
        _ => Ok(None),
    };
    let (mut server_cpus, mut client_cpus) = (listed(server)?, listed(client)?);
    if let Some(CpuRequest::Count(count)) = server {
        server_cpus = Some(choose(machine, *count, client_cpus.as_ref())?);
    }
    if let Some(CpuRequest::Count(count)) = client {
        client_cpus = Some(choose(machine, *count, server_cpus.as_ref())?);
    }
    let notes = notes(machine, server_cpus.as_ref(), client_cpus.as_ref());
    Ok(Assignment { server: server_cpus, client: client_cpus, notes })
}

/// The CPUs that none of these servers needs: for a client that is to be the same beside each of them. `None` where
/// nothing is left.
pub fn rest(servers: &[CpuRequest]) -> Result<Option<Cpus>, Error> {
    rest_of(&machine(), servers)
}

fn rest_of(machine: &[Cpu], servers: &[CpuRequest]) -> Result<Option<Cpus>, Error> {
    let mut left = all(machine);
    for request in servers {
        let taken = assign_from(machine, Some(request), None)?.server;
        left.0.retain(|cpu| !taken.as_ref().is_some_and(|taken| taken.0.contains(cpu)));
    }
    Ok(Some(left).filter(|left| !left.0.is_empty()))
}

/// Refuses CPUs that this process may not use.
///
/// # Errors
/// Names the first of them, and those that it may.
pub fn usable_here(cpus: Cpus) -> Result<Cpus, Error> {
    all_here(&machine(), cpus)
}

fn all_here(machine: &[Cpu], cpus: Cpus) -> Result<Cpus, Error> {
    match cpus.0.iter().find(|n| !machine.iter().any(|cpu| cpu.number == **n)) {
        None => Ok(cpus),
        Some(absent) => Err(Error::Unsupported {
            what: format!("cpus \"{cpus}\""),
            why: format!("this process may use {}, and {absent} is not among them", all(machine)),
        }),
    }
}

fn all(machine: &[Cpu]) -> Cpus {
    Cpus(machine.iter().map(|cpu| cpu.number).collect())
}

/// `count` CPUs, those that `other` lacks first, then by node and core.
fn choose(machine: &[Cpu], count: u32, other: Option<&Cpus>) -> Result<Cpus, Error> {
    let refuse = || Error::Unsupported {
        what: format!("cpus = {count}"),
        why: format!("this process may use {} cpus ({})", machine.len(), all(machine)),
    };
    let wanted = count as usize;
    if wanted == 0 || wanted > machine.len() {
        return Err(refuse());
    }
    let is_taken = |cpu: &Cpu| other.is_some_and(|o| o.0.contains(&cpu.number));
    let shares_core = |cpu: &Cpu| machine.iter().any(|o| o.core == cpu.core && is_taken(o));
    // The node with the most room first, so that one node serves if any does.
    let room = |node: u32| machine.iter().filter(|cpu| cpu.node == node && !is_taken(cpu)).count();
    let mut ranked: Vec<Cpu> = machine.to_vec();
    ranked.sort_by_key(|cpu| {
        (
            is_taken(cpu),
            shares_core(cpu),
            std::cmp::Reverse(room(cpu.node).min(wanted)),
            cpu.node,
            cpu.core,
            cpu.number,
        )
    });
    let mut cpus: Vec<u32> = ranked.iter().take(wanted).map(|cpu| cpu.number).collect();
    cpus.sort_unstable();
    Ok(Cpus(cpus))
}

fn notes(machine: &[Cpu], server: Option<&Cpus>, client: Option<&Cpus>) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |cpus: &Cpus| machine.iter().filter(|c| cpus.0.contains(&c.number)).copied().collect::<Vec<_>>();
    if let Some(server) = server.map(of) {
        let split = server.iter().any(|cpu| {
            machine.iter().any(|o| o.core == cpu.core && o.number != cpu.number && !server.contains(o))
        });
        if split {
            notes.push("the server has some hardware threads of a core and not the others".to_owned());
        }
        let mut nodes: Vec<u32> = server.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() > 1 {
            notes.push(format!("the server's cpus are of {} NUMA nodes", nodes.len()));
        }
    }
    if let (Some(server), Some(client)) = (server, client) {
        let shared: Vec<u32> = server.0.iter().filter(|cpu| client.0.contains(cpu)).copied().collect();
        if !shared.is_empty() {
            notes.push(format!("server and client share cpu {}", Cpus(shared)));
        } else if of(server).iter().any(|s| of(client).iter().any(|c| c.core == s.core)) {
            notes.push("server and client run on hardware threads of the same core".to_owned());
        }
    } else if server.is_some() != client.is_some() || machine.len() > 1 {
        // One of them may run anywhere.
        notes.push("server and client share cpus".to_owned());
    }
    notes
}

/// The CPUs that this process may use.
fn machine() -> Vec<Cpu> {
    let system = Path::new("/sys/devices/system");
    let number_in = |path: std::path::PathBuf| -> Option<u32> {
        Cpus::parse(std::fs::read_to_string(path).ok()?.trim()).ok()?.0.first().copied()
    };
    let node_of = |cpu: u32| {
        let entries = std::fs::read_dir(system.join(format!("cpu/cpu{cpu}"))).ok()?;
        entries.flatten().find_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse::<u32>().ok())
    };
    usable()
        .into_iter()
        .map(|number| Cpu {
            number,
            core: number_in(system.join(format!("cpu/cpu{number}/topology/thread_siblings_list")))
                .unwrap_or(number),
            node: node_of(number).unwrap_or(0),
        })
        .collect()
}

fn usable() -> Vec<u32> {
    // SAFETY: an all-zero cpu_set_t is valid, and sched_getaffinity writes at most the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
            .map(|cpu| cpu as u32)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two cores of two threads each: siblings are n and n + 4.
    fn eight() -> Vec<Cpu> {
        (0..8).map(|number| Cpu { number, core: number % 4, node: (number % 4) / 2 }).collect()
    }

    #[test]
    fn lists_are_read_and_written() {
        for (text, expected) in
            [("0", "0"), ("0-3,8", "0-3,8"), ("3,1,2", "1-3"), (" 1 , 1-2", "1-2"), ("0,2,4", "0,2,4")]
        {
            assert_eq!(Cpus::parse(text).unwrap().to_string(), expected);
        }
        for text in ["", "a", "3-1", "1-", "-1", "1,,2", "0-99999"] {
            assert!(Cpus::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_take_whole_cores_of_one_node_away_from_the_client() {
        let check =
            |server: CpuRequest, client: Option<CpuRequest>, cpus: &str, clients: &str, notes: &[&str]| {
                let got = assign_from(&eight(), Some(&server), client.as_ref()).unwrap();
                assert_eq!(got.server.unwrap().to_string(), cpus);
                assert_eq!(got.client.map(|c| c.to_string()).unwrap_or_default(), clients);
                assert_eq!(got.notes.len(), notes.len(), "{:?}", got.notes);
                for (note, expected) in got.notes.iter().zip(notes) {
                    assert!(note.contains(expected), "{note}");
                }
            };
        let (count, list) = (CpuRequest::Count, |l: &str| CpuRequest::List(l.to_owned()));
        check(count(2), Some(count(2)), "0,4", "1,5", &[]);
        check(count(4), Some(list("0,4")), "2-3,6-7", "0,4", &[]);
        check(count(1), Some(list("7")), "0", "7", &["not the others"]);
        check(count(8), Some(list("0")), "0-7", "0", &["2 NUMA nodes", "share cpu 0"]);
        check(list("0"), Some(list("4")), "0", "4", &["not the others", "same core"]);
        check(count(2), None, "0,4", "", &["share cpus"]);
        assert!(assign_from(&eight(), Some(&count(9)), None).is_err());
        assert!(assign_from(&eight(), Some(&count(0)), None).is_err());
        assert!(assign_from(&eight(), Some(&list("7-8")), None).is_err());
    }

    #[test]
    fn what_no_server_needs_is_the_client_s() {
        let rest = |servers: &[CpuRequest]| {
            rest_of(&eight(), servers).unwrap().map(|cpus| cpus.to_string()).unwrap_or_default()
        };
        let (count, list) = (CpuRequest::Count, |l: &str| CpuRequest::List(l.to_owned()));
        assert_eq!(rest(&[count(2)]), "1-3,5-7");
        assert_eq!(rest(&[count(1), count(2), count(4)]), "2-3,6-7");
        assert_eq!(rest(&[count(2), list("7")]), "1-3,5-6");
        assert_eq!(rest(&[count(2), count(8)]), "");
        // Beside what is left, each server gets what it asks for.
        let client = list("2-3,6-7");
        for (asked, expected) in [(1, "0"), (2, "0,4"), (4, "0-1,4-5")] {
            let got = assign_from(&eight(), Some(&count(asked)), Some(&client)).unwrap();
            assert_eq!(got.server.unwrap().to_string(), expected);
        }
    }
}
