//! A study on many hosts: one task of a scheduler is one whole block on one exclusive node.
//!
//! The scheduler is Slurm, by its commands ([`slurm`]); tasks and controller tell each other by files ([`desk`]). The
//! controller keeps nothing that it could not find again: which jobs there are it asks the queue, what was made it reads
//! from the tasks' results files, which it takes over into the user's (`store::Store::import`, each run once). So it can die
//! at any moment, and whoever begins again goes on.

pub mod allocation;
mod controller;
pub mod desk;
pub mod kubernetes;
mod quiet;
pub mod slurm;
mod standing;
mod task;
mod unable;

use std::time::Duration;

pub use self::controller::{Order, run_fleet};
pub use self::quiet::Bound;
pub use self::standing::{BlockStanding, FleetStanding, Place, cancel, standing};
pub use self::task::{Look, look, task};

/// What a study wishes of the nodes of a fleet; what is not named the cluster decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    /// Blocks are made by a scheduler, and not here.
    pub is_on: bool,
    /// Nodes at the same time.
    pub nodes: Option<u32>,
    pub partition: Option<String>,
    /// Features of nodes, in Slurm's words.
    pub constraint: Option<String>,
    /// Of one block.
    pub time_limit: Option<Duration>,
    /// How long a node that nothing is known of is calibrated before its first block; 0: it is not.
    pub calibrate: Option<Duration>,
    /// Nodes for the clients of each block, beside the server's; 0: they are processes of that one.
    pub client_nodes: Option<u32>,
    /// A node on which the study tells no difference below this is set aside: 0.05 is 5 %.
    pub noise_max: Option<f64>,
}

impl Wishes {
    /// Nodes that a block takes.
    pub(crate) fn nodes_of_block(&self) -> u32 {
        1 + self.client_nodes.unwrap_or(0)
    }

    /// These, and of `other` what these do not name.
    pub fn or(self, other: &Wishes) -> Wishes {
        Wishes {
            is_on: self.is_on || other.is_on,
            nodes: self.nodes.or(other.nodes),
            partition: self.partition.or_else(|| other.partition.clone()),
            constraint: self.constraint.or_else(|| other.constraint.clone()),
            time_limit: self.time_limit.or(other.time_limit),
            calibrate: self.calibrate.or(other.calibrate),
            client_nodes: self.client_nodes.or(other.client_nodes),
            noise_max: self.noise_max.or(other.noise_max),
        }
    }
}
