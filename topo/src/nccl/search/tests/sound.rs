//! What holds for every search: its channels fit on the links, it repeats, it ends.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::nccl::graph::Graph;
use crate::nccl::system::machine::Machine;
use crate::nccl::system::routes::Routes;
use crate::nccl::system::{Cpu, CpuKind, Device, Gpu, NvLink, NvPeer, Port, Slot};

/// Slack in GB/s of a link that many channels share: each booking is rounded to a thousandth.
const SLACK: f32 = 0.1;

/// Checks that the ways of `channels` fit on the links of `node` with the bandwidths of `graph`.
fn assert_fits(
    node: &Node,
    network: bool,
    release: Release,
    graph: &Graph,
    channels: &[Channel],
    is_ring: bool,
) {
    let routes = Routes::of(Machine::new(node, release, network), &Env::default());
    let mut used = vec![0.0f32; routes.machine.links.len()];
    let gpus = &routes.machine.gpus;
    for channel in channels {
        let mut book = |from: usize, to: usize, bandwidth: f32| {
            for &link in &routes.paths.get(from, to).links {
                used[link] += bandwidth;
            }
        };
        let order: Vec<usize> = channel.gpus.iter().map(|&gpu| gpus[gpu as usize]).collect();
        order.windows(2).for_each(|pair| book(pair[0], pair[1], graph.bw_intra));
        let (first, last) = (order[0], order[order.len() - 1]);
        match channel.ports {
            Some((entry, exit)) if is_ring => {
                book(routes.machine.ports[entry as usize], first, graph.bw_inter);
                book(last, routes.machine.ports[exit as usize], graph.bw_inter);
            }
            None if is_ring && order.len() > 1 => book(last, first, graph.bw_intra),
            _ => {}
        }
        let mut seen = channel.gpus.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..gpus.len() as u32).collect::<Vec<_>>(), "each GPU once");
    }
    for (link, used) in routes.machine.links.iter().zip(used) {
        assert!(used <= link.bandwidth + SLACK, "{used} GB/s on a link of {}", link.bandwidth);
    }
}

#[test]
fn channels_fit_on_the_links() {
    // Every golden node with an old and the newest release: no link carries more than it can.
    for (name, node) in nodes() {
        for release in [Release::new(2, 18, 3), Release::new(2, 22, 3), Release::NEWEST] {
            let network = !node.ports().is_empty();
            let search = graphs_of(&node, if network { 2 } else { 1 }, release, &Env::default()).unwrap();
            assert_eq!(search.ring.len(), search.graphs.ring.channels as usize, "{name}");
            assert_fits(&node, network, release, &search.graphs.ring, &search.ring, true);
            assert_fits(&node, network, release, &search.graphs.tree, &search.tree, false);
        }
    }
}

#[test]
fn the_largest_node_ends_within_stack_and_time() {
    // 32 GPUs with a switch, and the same over PCIe with 64 ports, on the small stack of a test's thread.
    let gpu = |_| Slot { bandwidth: 48.0, device: Device::Gpu(Gpu { sm: 100, gdr: true }) };
    let card = |_| {
        let port = Port { mbps: 400_000, latency_us: 0.0, gdr: true, card: None };
        Slot { bandwidth: 48.0, device: Device::Card(vec![port]) }
    };
    let slots: Vec<Slot> = (0..32).map(gpu).chain((0..64).map(card)).collect();
    let mut node =
        Node { cpus: vec![Cpu { kind: CpuKind::Amd, slots }], nvlinks: Vec::new(), peer_access: true };
    for with_switch in [false, true] {
        if with_switch {
            let link = |gpu| NvLink { gpu, peer: NvPeer::Switch, links: 18 };
            node.nvlinks = (0..32).map(link).collect();
        }
        for nodes in [1, 2] {
            let start = Instant::now();
            let search = graphs_of(&node, nodes, Release::NEWEST, &Env::default()).unwrap();
            assert!(search.graphs.ring.channels >= 1);
            assert!(start.elapsed() < Duration::from_secs(60), "the budget of steps bounds the time");
        }
    }
}

/// Small nodes of all kinds.
fn any_node() -> impl Strategy<Value = Node> {
    let kinds = prop_oneof![
        Just(CpuKind::Amd),
        Just(CpuKind::Intel(85)),
        Just(CpuKind::Intel(207)),
        Just(CpuKind::Arm),
        Just(CpuKind::Power)
    ];
    let slot = (
        any::<bool>(),
        0..3usize,
        0..3usize,
        prop_oneof![Just(12.0f32), Just(24.0), Just(48.0)],
        1..500_000u32,
    );
    let cpus = proptest::collection::vec(proptest::collection::vec(slot, 1..3), 1..3);
    let sm = prop_oneof![Just(70u32), Just(80), Just(86), Just(90), Just(100)];
    (kinds, cpus, sm, 0..3u8, 1..12u32).prop_map(|(kind, cpus, sm, nvlink, links)| {
        let slots = |parts: Vec<(bool, usize, usize, f32, u32)>| {
            let mut slots = Vec::new();
            for (switch, gpus, ports, bandwidth, mbps) in parts {
                let gpu = Slot { bandwidth, device: Device::Gpu(Gpu { sm, gdr: true }) };
                let port =
                    Port { mbps, latency_us: 1.0, gdr: mbps % 2 == 0, card: Some(u64::from(mbps % 3)) };
                let card = Slot { bandwidth, device: Device::Card(vec![port]) };
                let all: Vec<Slot> = vec![gpu; gpus].into_iter().chain(vec![card; ports]).collect();
                match switch {
                    true => slots.push(Slot { bandwidth, device: Device::Switch(all) }),
                    false => slots.extend(all),
                }
            }
            slots
        };
        let cpus = cpus.into_iter().map(|parts| Cpu { kind, slots: slots(parts) }).collect();
        let mut node = Node { cpus, nvlinks: Vec::new(), peer_access: true };
        let gpus = node.gpus().len() as u32;
        node.nvlinks = match nvlink {
            0 => Vec::new(),
            1 => (0..gpus).map(|gpu| NvLink { gpu, peer: NvPeer::Switch, links }).collect(),
            // A chain of pairs.
            _ => (1..gpus)
                .flat_map(|gpu| [(gpu - 1, gpu), (gpu, gpu - 1)])
                .map(|(gpu, peer)| NvLink { gpu, peer: NvPeer::Gpu(peer), links })
                .collect(),
        };
        node
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_node_is_searched_soundly(node in any_node(), minor in 0..13usize, nodes in 1..3u32) {
        // No panic; the same again for the same input; no link overbooked; a ring and a tree of as many channels.
        let release = Release::last_of_each_minor().nth(minor).unwrap();
        if let Ok(search) = graphs_of(&node, nodes, release, &Env::default()) {
            let ring = &search.graphs.ring;
            prop_assert!(ring.channels >= 1 && ring.channels == search.graphs.tree.channels);
            prop_assert_eq!(&search, &graphs_of(&node, nodes, release, &Env::default()).unwrap());
            // The fallback order is not booked.
            if ring.bw_intra > 0.1 {
                assert_fits(&node, nodes > 1, release, ring, &search.ring, true);
            }
        }
    }
}
