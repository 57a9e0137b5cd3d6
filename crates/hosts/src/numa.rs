//! Memory allocation of a host: counters of each NUMA node.
//!
//! G. Lencse and Y. Kadobayashi, "Benchmarking DNS64 Implementations: Theory and Practice" (2018,
//! DOI 10.1016/j.comcom.2018.05.005) read these counters before and after each trial, and report
//! the hits and misses of each node.

use serde::{Deserialize, Serialize};

use crate::environment::Tree;

/// Folder in which Linux describes the NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// Page allocation counters of a host's NUMA nodes, or the increase of these counters during a
/// trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Numa {
    /// Counters of each node, in the order of the node numbers.
    pub nodes: Vec<NodePages>,
}

/// Page allocation counters of one NUMA node (Linux, Documentation/admin-guide/numastat.rst).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct NodePages {
    /// The node's number, as assigned by the kernel.
    pub node: usize,
    /// Number of pages allocated on this node as intended.
    pub hit: u64,
    /// Number of pages allocated on this node although a different node was preferred.
    pub miss: u64,
    /// Number of pages intended for this node but allocated on a different node.
    pub foreign: u64,
    /// Number of pages allocated on this node by the interleave policy, as intended.
    pub interleave_hit: u64,
    /// Number of pages allocated on this node by a process that ran on this node.
    pub local: u64,
    /// Number of pages allocated on this node by a process that ran on a different node.
    pub other: u64,
}

impl Numa {
    /// Reads the counters of a host. Returns `None` if the kernel does not count page allocations.
    pub(crate) fn read(tree: &Tree) -> Option<Numa> {
        let of = |name: String| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            NodePages::parse(node, &tree.read(format!("{NODES}/{name}/numastat"))?)
        };
        let nodes: Vec<NodePages> = tree.names(NODES).into_iter().filter_map(of).collect();
        (!nodes.is_empty()).then_some(Numa { nodes })
    }

    /// Returns a POSIX shell script that prints the files with these counters. The output of this script is the input
    /// of [`Numa::read`].
    pub fn script() -> String {
        Tree::script_for(&format!("{NODES}/node*/numastat"))
    }

    /// Returns the increase of the counters since `before`. Nodes that are missing in `before` are omitted.
    pub fn since(&self, before: &Numa) -> Numa {
        let of = |now: &NodePages| {
            let before = before.nodes.iter().find(|then| then.node == now.node)?;
            Some(now.since(before))
        };
        Numa { nodes: self.nodes.iter().filter_map(of).collect() }
    }

    /// Returns the total number of hits and the total number of misses over all nodes.
    pub fn sum(&self) -> (u64, u64) {
        self.nodes.iter().fold((0, 0), |(hit, miss), node| (hit + node.hit, miss + node.miss))
    }
}

impl NodePages {
    /// Parses a `numastat` file; `None` if one of the mandatory counters is missing.
    fn parse(node: usize, text: &str) -> Option<NodePages> {
        let value = |name: &str| {
            let of_line =
                |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
            text.lines().find_map(of_line)
        };
        Some(NodePages {
            node,
            hit: value("numa_hit")?,
            miss: value("numa_miss")?,
            foreign: value("numa_foreign").unwrap_or(0),
            interleave_hit: value("interleave_hit").unwrap_or(0),
            local: value("local_node").unwrap_or(0),
            other: value("other_node").unwrap_or(0),
        })
    }

    fn since(&self, before: &NodePages) -> NodePages {
        NodePages {
            node: self.node,
            hit: self.hit.saturating_sub(before.hit),
            miss: self.miss.saturating_sub(before.miss),
            foreign: self.foreign.saturating_sub(before.foreign),
            interleave_hit: self.interleave_hit.saturating_sub(before.interleave_hit),
            local: self.local.saturating_sub(before.local),
            other: self.other.saturating_sub(before.other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::environment::tree::tests::from_lines;

    use super::*;

    /// Returns the text of a `numastat` file that was recorded on Linux. `n` distinguishes the
    /// nodes.
    fn numastat(n: u64) -> String {
        format!(
            "numa_hit {}\nnuma_miss {n}\nnuma_foreign 3\ninterleave_hit 1136\nlocal_node {}\nother_node 7\n",
            8_175_888 + n,
            8_175_881 + n
        )
    }

    /// Writes the files of `nodes` NUMA nodes. `more` is added to the recorded counters.
    fn recorded(folder: &Path, nodes: u64, more: u64) -> Tree {
        for node in 0..nodes {
            let place = folder.join(format!("sys/devices/system/node/node{node}"));
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("numastat"), numastat(node + more)).unwrap();
            fs::write(place.join("cpulist"), "0\n").unwrap();
        }
        fs::write(folder.join("sys/devices/system/node/online"), "0\n").unwrap();
        Tree::Disk(folder.into())
    }

    #[test]
    fn each_node_is_counted_for_itself() {
        for nodes in [1, 2, 4] {
            let folder = tempfile::tempdir().unwrap();
            let before = Numa::read(&recorded(folder.path(), nodes, 0)).unwrap();
            assert_eq!(
                before.nodes.iter().map(|n| n.node as u64).collect::<Vec<_>>(),
                (0..nodes).collect::<Vec<_>>()
            );
            assert_eq!(before.nodes[0].hit, 8_175_888);
            let last = before.nodes.last().unwrap();
            assert_eq!((last.hit, last.miss, last.foreign), (8_175_888 + nodes - 1, nodes - 1, 3));
            assert_eq!(
                (last.interleave_hit, last.local, last.other),
                (1136, 8_175_881 + nodes - 1, 7)
            );
            let after = Numa::read(&recorded(folder.path(), nodes, 20)).unwrap();
            let difference = after.since(&before);
            assert!(
                difference
                    .nodes
                    .iter()
                    .all(|n| (n.hit, n.miss, n.foreign, n.local) == (20, 20, 0, 20))
            );
            assert_eq!(difference.sum(), (20 * nodes, 20 * nodes));
        }
    }

    /// The recordings for the tests of `topology` also contain the counters of NUMA nodes.
    #[test]
    fn counters_of_recorded_machines_are_read() {
        let of = |text: &str| Numa::read(&from_lines(text)).unwrap();
        let (one, two) =
            (of(include_str!("topology/one-node.txt")), of(include_str!("topology/two-nodes.txt")));
        let four = of(include_str!("topology/four-nodes.txt"));
        assert_eq!([&one, &two, &four].map(|numa| numa.nodes.len()), [1, 2, 4]);
        assert_eq!(
            (two.nodes[1].hit, two.nodes[1].other, two.sum()),
            (1_515_735_046, 39_564, (3_142_180_377, 0))
        );
        let busy = four.nodes[3];
        assert_eq!(
            (busy.hit, busy.miss, busy.foreign),
            (305_675_194_569, 3_449_526_378, 702_415_389)
        );
        assert_eq!(four.sum().1, 1_324_627_545 + 77_713_893 + 28_389_061 + 3_449_526_378);
        assert_eq!(four.since(&four).sum(), (0, 0));
    }

    #[test]
    fn a_shell_hands_over_the_same_counters() {
        let folder = tempfile::tempdir().unwrap();
        let tree = recorded(folder.path(), 12, 0);
        let script = Numa::script()
            .replace("/sys/devices", &format!("{}/sys/devices", folder.path().display()));
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout)
            .replace(&folder.path().display().to_string(), "");
        assert_eq!(Numa::read(&Tree::printed(&printed)), Numa::read(&tree));
        assert_eq!(Numa::read(&tree).unwrap().nodes[10].node, 10);
    }

    #[test]
    fn a_kernel_without_counters_has_no_result() {
        assert_eq!(Numa::read(&Tree::printed("")), None);
        let odd = "dns64bench-file /sys/devices/system/node/node0/numastat\nnuma_hits 5\n";
        assert_eq!(Numa::read(&Tree::printed(odd)), None);
    }
}
