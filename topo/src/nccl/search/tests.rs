use std::fmt::Write as _;

use super::*;
use crate::nccl::release::Release;
use crate::nccl::system::{Node, parse_nodes};

mod rules;
mod sound;
mod walks;

const TOPOLOGIES: &str = include_str!("../../../testdata/nccl/topologies.yaml");
const GRAPHS: &str = include_str!("../../../testdata/nccl/graphs.tsv");

/// Rows that the search does not reproduce: release, node, and what differs.
const NOT_REPRODUCED: &[(&str, &str, &str)] = &[
    ("2.19.4", "h800x8_8x400", "the tree has 8 channels of 20; NCCL finds an order for 22"),
    ("2.20.5", "h800x8_8x400", "the tree has 8 channels of 20; NCCL finds an order for 22"),
];

fn nodes() -> Vec<(String, Node)> {
    parse_nodes("topologies.yaml", TOPOLOGIES).unwrap()
}

fn node(name: &str) -> Node {
    nodes().into_iter().find(|(known, _)| known == name).unwrap().1
}

/// The columns of the golden file from `ring_ch` on.
fn columns(search: &Search) -> String {
    let (ring, tree) = (&search.graphs.ring, &search.graphs.tree);
    let nvls = search.graphs.nvls.as_ref();
    let (nvls_ch, nvls_intra, nvls_inter) =
        nvls.map_or((0, 0.0, 0.0), |nvls| (nvls.channels, nvls.bw_intra, nvls.bw_inter));
    let of_ring = format!(
        "{}\t{}\t{}\t{}\t{}\t{}\t{}",
        ring.channels,
        ring.bw_intra,
        ring.bw_inter,
        ring.type_intra,
        ring.type_inter,
        u8::from(ring.same_channels),
        ring.cross_nic
    );
    let of_tree = format!(
        "{}\t{}\t{}\t{}\t{}\t{}",
        tree.pattern.id(),
        tree.channels,
        tree.bw_intra,
        tree.bw_inter,
        tree.type_intra,
        tree.type_inter
    );
    let latency = search.net_latency_us;
    format!("{of_ring}\t{of_tree}\t{nvls_ch}\t{nvls_intra}\t{nvls_inter}\t{latency}\t{}", search.channels)
}

#[test]
fn every_golden_graph_is_found_by_search() {
    // Each row of the golden file from the description of its node: channels, speeds, types, patterns. What is not
    // reproduced is listed, and a listed row that is reproduced after all is an error too.
    let nodes = nodes();
    let (mut equal, mut listed, mut different) = (0, 0, String::new());
    for line in GRAPHS.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let release: Release = row[0].parse().unwrap();
        let node = &nodes.iter().find(|(name, _)| name == row[1]).unwrap().1;
        // The golden rows of 2.18 were made without NVLS.
        let env = Env { nvls_enable: release.since(19, 0), ..Env::default() };
        let ours = columns(&graphs_of(node, row[2].parse().unwrap(), release, &env).unwrap());
        let theirs = row[4..].join("\t");
        let is_listed = NOT_REPRODUCED.iter().any(|&(nccl, name, _)| (nccl, name) == (row[0], row[1]));
        match (ours == theirs, is_listed) {
            (true, false) => equal += 1,
            (false, true) => listed += 1,
            _ => {
                let _ = writeln!(
                    different,
                    "{} {} {}\n  ours   {ours}\n  golden {theirs}",
                    row[0], row[1], row[2]
                );
            }
        }
    }
    assert!(
        different.is_empty(),
        "{equal} rows are equal, these are not, or are listed for nothing:\n{different}"
    );
    assert_eq!((equal, listed), (692, NOT_REPRODUCED.len()));
}
