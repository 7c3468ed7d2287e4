//! Nodes on which blocks come to nothing that others make: a full disk, a missing library. Such a node fails in seconds,
//! is idle again, and is given one block after the other until none is left for the nodes that could make them.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks that must come to nothing on a node, one after the other, before it counts as unable: a server that does not
/// always start fails somewhere, too.
const FAILURES_MIN: usize = 3;

/// What came of the blocks that each node was given.
#[derive(Debug, Default)]
pub(super) struct NodeRecord {
    /// By node: blocks that came to nothing since its last good one, each with the reason.
    failures: BTreeMap<String, Vec<(u32, String)>>,
    /// Nodes that have made a block.
    able: BTreeSet<String>,
    /// Nodes that were told to be unable: what ran there then, or is begun there all the same, fails there, too.
    told: BTreeSet<String>,
}

/// A node that cannot do what others can.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unable {
    pub(super) node: String,
    /// What it has to give back.
    pub(super) blocks: BTreeSet<u32>,
    pub(super) why: String,
}

impl NodeRecord {
    /// Runs of a block ended well on this node, or were called invalid: it can measure.
    pub(super) fn made(&mut self, node: &str) {
        self.failures.remove(node);
        self.able.insert(node.to_owned());
    }

    /// A block came to nothing on this node.
    pub(super) fn failed(&mut self, node: &str, block: u32, why: &str) {
        self.failures.entry(node.to_owned()).or_default().push((block, why.to_owned()));
    }

    /// A node that has failed so often, while another one has made a block, and again with each block that fails there later.
    /// Where no node can, it is no matter of nodes.
    pub(super) fn unable(&mut self) -> Option<Unable> {
        let is_unable = |(node, failures): (&String, &Vec<(u32, String)>)| {
            let can_another = self.able.iter().any(|able| able != node);
            let is_often = failures.len() >= FAILURES_MIN || self.told.contains(node);
            (is_often && can_another).then(|| node.clone())
        };
        let node = self.failures.iter().find_map(is_unable)?;
        let failures = self.failures.remove(&node)?;
        self.told.insert(node.clone());
        let count = failures.len();
        let (_, last) = failures.last()?;
        let others: Vec<&str> = self.able.iter().map(String::as_str).filter(|able| *able != node).collect();
        let why = format!(
            "{} in a row came to nothing there, and {} can make them; the last one: {last}",
            store::counted(count, "block"),
            others.join(", ")
        );
        Some(Unable { node, blocks: failures.into_iter().map(|(block, _)| block).collect(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_where_others_do_not_gives_its_blocks_back() {
        let mut record = NodeRecord::default();
        for block in [2, 4, 5] {
            record.failed("n2", block, "No space left on device");
        }
        assert_eq!(record.unable(), None, "nobody else has shown that it can be done");
        record.made("n1");
        let unable = record.unable().unwrap();
        assert_eq!((unable.node.as_str(), unable.blocks), ("n2", BTreeSet::from([2, 4, 5])));
        assert_eq!(
            unable.why,
            "3 blocks in a row came to nothing there, and n1 can make them; the last one: No space left on device"
        );
        assert_eq!(record.unable(), None, "it is told once");
        record.failed("n2", 8, "No space left on device");
        let unable = record.unable().expect("the block that ran there when it was told is given back, too");
        assert_eq!(unable.blocks, BTreeSet::from([8]));
    }

    #[test]
    fn failures_of_the_study_or_now_and_then_are_no_matter_of_a_node() {
        let mut record = NodeRecord::default();
        for node in ["n1", "n2", "n3"] {
            (1..=5).for_each(|block| record.failed(node, block, "the server crashed"));
        }
        assert_eq!(record.unable(), None);
        let mut record = NodeRecord::default();
        record.made("n1");
        for block in 1..=6 {
            record.failed("n2", block, "the server crashed");
            record.failed("n2", block, "the server crashed");
            record.made("n2");
        }
        assert_eq!(record.unable(), None);
    }
}
