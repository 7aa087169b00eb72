//! Cluster files with machines, a release, forced choices, graphs of a log: what is modelled is what they say.

use topo::Cluster;
use topo::links::{Calibration, Pricer, together_us};
use topo::nccl::release::Release;
use topo::nccl::tuner::{Algorithm, Collective, Operation, Protocol};

const FABRIC: &str = "fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300Gb/s, latency_us: 3us}
  inter_node: {type: infiniband, bandwidth_gbps: 200, latency_us: 0.015 ms}
";

fn cluster(parts: &str) -> Cluster {
    let text = format!("version: 1\ncluster: {{name: lab, default_backend: nccl}}\n{parts}{FABRIC}");
    Cluster::parse("lab.yaml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn pricer(cluster: &Cluster) -> Pricer {
    Pricer::of_cluster(cluster, &[], Calibration::default()).unwrap().expect("known machines")
}

fn all_reduce(bytes: u64) -> Operation {
    Operation::new(Collective::AllReduce, bytes)
}

#[test]
fn units_are_numbers() {
    // A speed and two times with units are the numbers without them.
    let cluster = cluster("nodes:\n  - {id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1, 2, 3]}\n");
    let fabric = cluster.fabric();
    assert_eq!((fabric.intra_node().bandwidth_gbps(), fabric.intra_node().latency_us()), (300.0, 3.0));
    assert_eq!(fabric.inter_node().latency_us(), 15.0);
}

#[test]
fn a_named_machine_has_nccls_numbers() {
    // The worked example: 4 x V100, 64 MiB, 867.660767 us on 12 channels, in any order of ranks.
    let text = "nccl: {version: 2.22.3}
nodes:
  - {id: a, host: a, machine: 4xv100-nv2, ranks: [3, 1, 2, 0]}
";
    let cluster = cluster(text);
    assert_eq!(cluster.nccl().release, Release::new(2, 22, 3));
    let mut group = pricer(&cluster).group(&[0, 1, 2, 3]).unwrap();
    let price = group.price(all_reduce(64 << 20)).unwrap();
    assert_eq!((price.tuner_us, price.channels), (867.660_77, 12));
    assert_eq!((price.algorithm, price.protocol), (Algorithm::Ring, Protocol::Simple));
}

#[test]
fn choices_are_forced_by_the_file() {
    // Algorithm, protocol and channels of the file are those of the price.
    let text = "nccl: {algo: Tree, proto: LL, channels: 5}
nodes:
  - {id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1, 2, 3]}
";
    let mut group = pricer(&cluster(text)).group(&[0, 1, 2, 3]).unwrap();
    let price = group.price(all_reduce(64 << 20)).unwrap();
    assert_eq!((price.algorithm, price.protocol, price.channels), (Algorithm::Tree, Protocol::Ll, 5));
}

#[test]
fn graphs_of_a_log_count_for_all_ranks() {
    // The graphs make the price of all ranks; a part of them has its own search on the machine.
    let text = "nccl:
  version: 2.22.3
  graphs: |
    x [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 10.000000/10.000000, type NVL/PIX, sameChannels 1
    x [0] NCCL INFO Pattern 1, crossNic 0, nChannels 2, bw 10.000000/10.000000, type NVL/PIX, sameChannels 1
nodes:
  - {id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1, 2, 3]}
";
    let pricer = pricer(&cluster(text));
    let all = pricer.group(&[0, 1, 2, 3]).unwrap();
    assert_eq!(all.model().tuner().setup().graphs.ring.channels, 2);
    let part = pricer.group(&[0, 1]).unwrap();
    assert_ne!(part.model().tuner().setup().graphs.ring.bw_intra, 10.0);
}

#[test]
fn machines_of_the_file_and_of_fakegpu_are_found() {
    // A machine that the file describes, GPUs by their numbers; and FakeGPU's profiles stand for the usual machines.
    let text = "machines:
  pair:
    cpu: spr
    sm: 90
    numa:
      - [{switch: true, pcie_gen: 5, gpus: 2, nics: [[400Gb/s, 0us, 1]]}]
    nvlink: [[0, 4], [4, 0]]
nodes:
  - {id: a, host: a, machine: pair, ranks: [0, 1], gpus: [{profile: h100, index: 1}, {profile: h100, index: 0}]}
  - {id: b, host: b, machine: pair, ranks: [2, 3]}
";
    let own = cluster(text);
    assert_eq!((own.nodes()[0].gpus(), own.nodes()[1].gpus()), (&[1, 0][..], &[0, 1][..]));
    let group = pricer(&own).group(&[0, 1, 2, 3]).unwrap();
    assert_eq!(group.model().tuner().setup().nodes, 2);
    assert!(group.links().iter().any(|link| link.name == "gpu0 -> gpu1"), "{:?}", group.links());
    let text = "nodes:
  - {id: a, host: a, ranks: [0, 1], gpus: [{profile: a100}, {profile: a100}]}
  - {id: b, host: b, ranks: [2, 3], gpus: [{profile: h100}, {profile: h100}]}
";
    let mixed = pricer(&cluster(text)).group(&[0, 1, 2, 3]).unwrap();
    assert_eq!(mixed.model().tuner().setup().compute_capability, 80);
    let unknown = cluster("nodes:\n  - {id: a, host: a, ranks: [0], gpus: [{profile: gtx980}]}\n");
    assert!(Pricer::of_cluster(&unknown, &[], Calibration::default()).unwrap().is_none());
}

#[test]
fn a_network_that_reduces_has_graphs_from_the_search() {
    // With `collnet` two nodes of DGX-H100 have a chain with the ring's channels, heads for all ports, and NVLS.
    let ranks: Vec<u32> = (0..16).collect();
    let text = "nccl: {version: 2.27.7, collnet: COLLNET}
nodes:
  - {id: a, host: a, machine: dgx-h100, ranks: [0, 1, 2, 3, 4, 5, 6, 7]}
  - {id: b, host: b, machine: dgx-h100, ranks: [8, 9, 10, 11, 12, 13, 14, 15]}
";
    let of = |on: &str| pricer(&cluster(&text.replace("COLLNET", on))).group(&ranks).unwrap();
    assert!(of("false").model().tuner().setup().collnet.is_none());
    let mut with = of("true");
    let setup = with.model().tuner().setup().clone();
    let collnet = setup.collnet.unwrap();
    assert_eq!(collnet.chain.unwrap().channels, setup.graphs.ring.channels);
    let direct = collnet.direct.unwrap();
    assert_eq!((collnet.heads, direct.channels, direct.pattern.id()), (8, 8, 6));
    // What all heads and all GPUs put on a GPU's NVLinks fits.
    assert!(direct.bw_intra * 14.0 <= 370.8 && direct.bw_intra > 0.0, "{direct:?}");
    let collnets =
        with.model().tuner().cells().iter().filter(|cell| cell.algorithm.is_collnet() && cell.is_on());
    assert!(collnets.count() > 0);
    assert!(with.price(all_reduce(64 << 20)).unwrap().predicted_us > 0.0);
}

#[test]
fn groups_of_different_ranks_share_links() {
    // Two groups of other GPUs of one node meet at its single port and take longer; on other nodes they do not meet.
    let text = "machines:
  box:
    cpu: amd
    sm: 80
    numa:
      - [{switch: true, pcie_gen: 4, gpus: 4, nics: [[100Gb/s, 0, 1]]}]
    nvswitch: 12
nodes:
  - {id: a, host: a, machine: box, ranks: [0, 1, 2, 3]}
  - {id: b, host: b, machine: box, ranks: [4, 5, 6, 7]}
  - {id: c, host: c, machine: box, ranks: [8, 9, 10, 11]}
  - {id: d, host: d, machine: box, ranks: [12, 13, 14, 15]}
";
    let pricer = pricer(&cluster(text));
    let [mut one, mut other, mut far] =
        [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13]].map(|ranks| pricer.group(&ranks).unwrap());
    let operation = all_reduce(64 << 20);
    let [first, second, third] =
        [&mut one, &mut other, &mut far].map(|group| group.price(operation).unwrap());
    let apart = together_us(&[(&one, first), (&far, third)]);
    assert_eq!(apart, [first.predicted_us, third.predicted_us]);
    let meeting = together_us(&[(&one, first), (&other, second)]);
    assert!(meeting[0] > 1.6 * first.predicted_us && meeting[0] < 2.1 * first.predicted_us, "{meeting:?}");
    // The more, the slower.
    let four = together_us(&[(&one, first), (&other, second), (&one, first), (&other, second)]);
    assert!(four[0] > 1.6 * meeting[0], "{four:?}");
}

#[test]
fn rails_make_a_change_of_ports_cross_the_spine() {
    // With the same oversubscription a fabric of rails carries no less over its spine than one where each leaf has all
    // ports of its nodes; the exact bytes are those of the edges that change ports.
    let nodes: String = (0..4)
        .map(|node| {
            let ranks: Vec<String> = (8 * node..8 * node + 8).map(|rank: u32| rank.to_string()).collect();
            format!("  - {{id: n{node}, host: a, machine: dgx-h100, ranks: [{}]}}\n", ranks.join(", "))
        })
        .collect();
    let of = |more: &str| {
        let text = format!(
            "version: 1\ncluster: {{name: lab, default_backend: nccl}}\nnodes:\n{nodes}fabric:\n  nodes_per_leaf: 4\n  \
             {more}\n  intra_node: {{type: a, bandwidth_gbps: 1}}\n  inter_node: {{type: b, bandwidth_gbps: 1, \
             oversubscription: 2}}\n"
        );
        let cluster = Cluster::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
        pricer(&cluster).group(&(0..32).collect::<Vec<u32>>()).unwrap()
    };
    let trunk = |group: &topo::links::Group| group.links().iter().any(|link| link.name == "leaf -> spine");
    assert!(!trunk(&of("rails: false")));
    assert!(trunk(&of("rails: true")));
}

#[test]
fn the_pages_file_is_valid() {
    // What the page shows can be copied: it is read, and all its ranks have a price.
    let page = include_str!("../../docs/cluster.md");
    let block = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let cluster = Cluster::parse("page.yaml", block).unwrap_or_else(|error| panic!("{error}"));
    let price = pricer(&cluster).group(&[0, 1, 2, 3]).unwrap().price(all_reduce(1 << 20)).unwrap();
    assert_eq!((price.algorithm, price.protocol, price.channels), (Algorithm::Ring, Protocol::Simple, 12));
}
