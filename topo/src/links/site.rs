//! What the links belong to: machines that are alike, and the network between them.

use super::error::LinkError;
use crate::nccl::system::Node;

/// The network between nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Nodes that share a leaf switch; the ports of nodes 0 to k-1 lead to the first.
    pub nodes_per_leaf: u32,
    /// How much less a leaf's way to the spine carries than the ports below it: 1 for none, 2 for half.
    pub oversubscription: f64,
    /// Whether a leaf switch has the same port of all its nodes (a rail) instead of all ports of some nodes: then what
    /// leaves a node by one port and enters the next by another crosses the spine too.
    pub rails: bool,
}

impl Default for Fabric {
    fn default() -> Self {
        Self { nodes_per_leaf: 1, oversubscription: 1.0, rails: false }
    }
}

impl Fabric {
    /// Checks both numbers.
    ///
    /// # Errors
    ///
    /// [`LinkError::Fabric`] with the number that cannot be.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.nodes_per_leaf == 0 {
            return Err(LinkError::Fabric {
                what: "nodes per leaf",
                value: 0.0,
                expected: "at least 1 node per leaf switch",
            });
        }
        if !(0.01..=1000.0).contains(&self.oversubscription) {
            return Err(LinkError::Fabric {
                what: "oversubscription",
                value: self.oversubscription,
                expected: "0.01 to 1000; 1 is a network that carries all that the ports do",
            });
        }
        Ok(())
    }
}

/// Machines that are alike, one rank on each GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// One of the machines.
    pub node: Node,
    /// How many there are.
    pub nodes: u32,
    /// The network between them.
    pub fabric: Fabric,
}
