//! Who sends to whom between nodes: the two trees of an all-reduce, and what of it leaves a leaf switch.

use super::site::Fabric;

/// A node's place in one of the two trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Whether it has a parent.
    pub(super) has_parent: bool,
    /// Its children, up to two.
    pub(super) children: u32,
}

/// Nodes that do the same: their places in both trees, and whether they are at an end of the chain of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Role {
    pub(super) trees: [Place; 2],
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// The parent of node `at` in the first tree of `nodes` nodes: the inner nodes of a level are those whose lowest
/// bit is the level's.
fn parent_in_first(at: u32, nodes: u32) -> Option<u32> {
    if at == 0 {
        return None;
    }
    let bit = at & at.wrapping_neg();
    let up = (at ^ bit) | (bit << 1);
    Some(if up >= nodes { at ^ bit } else { up })
}

/// The parent of node `at` in tree `tree` of `nodes` nodes.
///
/// The second tree is the first one mirrored, or moved by one where the number of nodes is odd, so that hardly any
/// node is an inner one of both.
pub(super) fn parent(tree: usize, at: u32, nodes: u32) -> Option<u32> {
    if tree == 0 {
        return parent_in_first(at, nodes);
    }
    if nodes.is_multiple_of(2) {
        parent_in_first(nodes - 1 - at, nodes).map(|up| nodes - 1 - up)
    } else {
        parent_in_first((at + nodes - 1) % nodes, nodes).map(|up| (up + 1) % nodes)
    }
}

/// The roles that there are, each with how many nodes have it.
pub(super) fn roles(nodes: u32) -> Vec<(Role, u32)> {
    let mut places = vec![[Place::default(); 2]; nodes as usize];
    for (tree, at) in [0, 1].into_iter().flat_map(|tree| (0..nodes).map(move |at| (tree, at))) {
        if let Some(up) = parent(tree, at, nodes) {
            places[at as usize][tree].has_parent = true;
            places[up as usize][tree].children += 1;
        }
    }
    let mut all: Vec<Role> = places
        .into_iter()
        .enumerate()
        .map(|(at, trees)| Role { trees, is_first: at == 0, is_last: at as u32 + 1 == nodes })
        .collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b).map(|alike| (alike[0], alike.len() as u32)).collect()
}

/// What crosses the busiest leaf switch's way to the spine in either direction, per byte that an edge carries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Crossings {
    /// Of a ring through the nodes in order.
    pub(super) ring: f64,
    /// Of each tree, with the edge's bytes going up and down.
    pub(super) trees: [f64; 2],
    /// Whether there is more than one leaf.
    pub(super) leaves: u32,
    /// Nodes below a leaf where a leaf has one port of each, so that a change of ports crosses the spine.
    pub(super) rails: Option<u32>,
}

impl Crossings {
    pub(super) fn of(fabric: &Fabric, nodes: u32) -> Self {
        let leaf = |at: u32| (at / fabric.nodes_per_leaf) as usize;
        let leaves = nodes.div_ceil(fabric.nodes_per_leaf);
        let rails = fabric.rails.then(|| fabric.nodes_per_leaf.min(nodes));
        if leaves < 2 {
            return Self { leaves, rails, ..Self::default() };
        }
        let mut crossing = vec![[0u32; 2]; leaves as usize];
        for (tree, at) in [0, 1].into_iter().flat_map(|tree| (0..nodes).map(move |at| (tree, at))) {
            if let Some(up) = parent(tree, at, nodes).filter(|&up| leaf(up) != leaf(at)) {
                crossing[leaf(at)][tree] += 1;
                crossing[leaf(up)][tree] += 1;
            }
        }
        // Each tree has half of the channels, so the busiest leaf is that with the most edges of both.
        let busiest = crossing.into_iter().max_by_key(|edges| edges[0] + edges[1]).unwrap_or_default();
        let trees = busiest.map(f64::from);
        Self { ring: 1.0, trees, leaves, rails }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_trees_span_all_nodes() {
        // Every node but one has a parent, the way up ends at that one, nobody has more than two children.
        for nodes in 1..200 {
            for tree in 0..2 {
                let roots: Vec<u32> = (0..nodes).filter(|&at| parent(tree, at, nodes).is_none()).collect();
                assert_eq!(roots.len(), 1, "{nodes}");
                let mut children = vec![0; nodes as usize];
                for start in 0..nodes {
                    let (mut at, mut hops) = (start, 0);
                    while let Some(up) = parent(tree, at, nodes) {
                        if hops == 0 {
                            children[up as usize] += 1;
                        }
                        (at, hops) = (up, hops + 1);
                        assert!(hops <= nodes.ilog2() + 1, "{nodes} {start}");
                    }
                    assert_eq!(at, roots[0]);
                }
                assert!(children.iter().all(|&count| count <= 2), "{nodes}");
            }
            assert_eq!(roles(nodes).iter().map(|(_, count)| count).sum::<u32>(), nodes);
        }
    }

    #[test]
    fn hardly_any_node_is_an_inner_one_of_both_trees() {
        // Where the number of nodes is even none is, so no port carries more than twice the buffer.
        for nodes in (2..=64).step_by(2) {
            for (role, _) in roles(nodes) {
                let edges = |place: Place| u32::from(place.has_parent) + place.children;
                assert!(edges(role.trees[0]) + edges(role.trees[1]) <= 4, "{nodes} {role:?}");
            }
        }
    }

    #[test]
    fn what_stays_below_a_leaf_does_not_cross() {
        // One leaf for all nodes has no crossing; two leaves of four have one edge of the ring each.
        let fabric = |nodes_per_leaf| Fabric { nodes_per_leaf, oversubscription: 1.0, rails: false };
        assert_eq!(Crossings::of(&fabric(8), 8).ring, 0.0);
        let halves = Crossings::of(&fabric(4), 8);
        assert_eq!((halves.ring, halves.leaves), (1.0, 2));
        assert!(halves.trees.iter().all(|&edges| (1.0..=4.0).contains(&edges)), "{halves:?}");
        assert!(Crossings::of(&fabric(1), 8).trees[0] >= halves.trees[0] / 4.0);
    }
}
