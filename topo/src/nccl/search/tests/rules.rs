//! What variables, releases and mixed nodes change.

use super::*;
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::{Device, Gpu, Slot};

const RELEASE: Release = Release::new(2, 22, 3);

fn search(name: &str, nodes: u32, env: &Env) -> Search {
    graphs_of(&node(name), nodes, RELEASE, env).unwrap()
}

fn env(pairs: &[(&str, &str)]) -> Env {
    Env::from_pairs(pairs.iter().copied()).unwrap()
}

#[test]
fn variables_are_read_strictly() {
    // Values of each variable, and for wrong ones the variable, the value and what is accepted.
    let all = env(&[
        ("NCCL_P2P_LEVEL", "nvl"),
        ("NCCL_NET_GDR_LEVEL", "5"),
        ("NCCL_PXN_DISABLE", "1"),
        ("NCCL_CROSS_NIC", " 1 "),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_MIN_NCHANNELS", "4"),
        ("NCCL_MAX_NCHANNELS", "64"),
        ("NCCL_NVB_DISABLE", "1"),
        ("NCCL_ALGO", "whatever"),
    ]);
    let expected = Env {
        nvb_disable: true,
        p2p_level: Some(PathType::Nvl),
        pxn_disable: true,
        gdr_level: Some(PathType::Sys),
        cross_nic: 1,
        collnet: false,
        nvls_enable: true,
        channels_min: Some(4),
        channels_max: Some(64),
    };
    assert_eq!(all, expected);
    let levels =
        ["0", "1", "2", "3", "4", "5", "99"].map(|level| env(&[("NCCL_NET_GDR_LEVEL", level)]).gdr_level);
    use PathType::{Loc, Phb, Pix, Pxb, Sys};
    assert_eq!(levels, [Loc, Pix, Pxb, Phb, Sys, Sys, Sys].map(Some));
    // Off is off, in whichever order the two come.
    for pairs in [
        [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "SYS")],
        [("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_DISABLE", "1")],
    ] {
        assert_eq!(env(&pairs).p2p_level, Some(PathType::Loc));
    }
    for (name, value) in [
        ("NCCL_P2P_LEVEL", "NET"),
        ("NCCL_P2P_LEVEL", "-1"),
        ("NCCL_P2P_DISABLE", "yes"),
        ("NCCL_CROSS_NIC", "3"),
        ("NCCL_MIN_NCHANNELS", "0"),
        ("NCCL_MAX_NCHANNELS", "256"),
        ("NCCL_NVLS_ENABLE", ""),
    ] {
        let error = Env::from_pairs([(name, value)]).unwrap_err();
        assert_eq!((error.variable, error.value.as_str()), (name, value));
        assert!(error.to_string().contains("; write "), "{error}");
    }
    assert!(
        Env::from_pairs([("NCCL_CROSS_NIC", "x".repeat(1 << 20).as_str())]).unwrap_err().value.len() <= 32
    );
}

#[test]
fn limits_on_channels_change_the_communicator_not_the_graph() {
    // Fewer, more, and a minimum that wins over a maximum.
    let plain = search("v100x4_nv2", 1, &Env::default());
    assert_eq!(plain.channels, 12);
    for (pairs, channels) in [
        (&[("NCCL_MAX_NCHANNELS", "1")][..], 1),
        (&[("NCCL_MIN_NCHANNELS", "20")], 20),
        (&[("NCCL_MIN_NCHANNELS", "64")], 32),
        (&[("NCCL_MAX_NCHANNELS", "4"), ("NCCL_MIN_NCHANNELS", "8")], 8),
    ] {
        let limited = search("v100x4_nv2", 1, &env(pairs));
        assert_eq!((limited.channels, &limited.graphs), (channels, &plain.graphs), "{pairs:?}");
    }
}

#[test]
fn crossing_and_pxn_can_be_forbidden() {
    // 8 x 400G leave by another port than they came in by; without that they take a peer's, then less.
    let plain = search("h100x8_8x400", 2, &Env::default()).graphs.ring;
    assert_eq!((plain.bw_intra, plain.type_inter, plain.cross_nic), (48.0, PathType::Pix, 1));
    let straight = search("h100x8_8x400", 2, &env(&[("NCCL_CROSS_NIC", "0")])).graphs.ring;
    assert_eq!((straight.bw_intra, straight.type_inter, straight.cross_nic), (45.0, PathType::Pxn, 0));
    let neither = env(&[("NCCL_CROSS_NIC", "0"), ("NCCL_PXN_DISABLE", "1")]);
    let neither = search("h100x8_8x400", 2, &neither).graphs.ring;
    assert!(neither.channels as f32 * neither.bw_intra < 8.0 * 45.0, "{neither:?}");
    assert_ne!(neither.type_inter, PathType::Pxn);
}

#[test]
fn without_peer_access_nvlink_is_not_used() {
    // Four V100s fall from NVLink at 6 x 20 to one channel over PCIe and the sockets.
    let ring = search("v100x4_nv2", 1, &env(&[("NCCL_P2P_DISABLE", "1")])).graphs.ring;
    assert!(ring.channels as f32 * ring.bw_intra <= 12.0, "{ring:?}");
    assert_eq!(ring.type_intra, PathType::Sys);
}

#[test]
fn nvls_needs_the_switch_and_the_gpus() {
    // Hopper with a switch has it, unless it is switched off, too few, or older.
    let has = |name: &str, release, env: &Env| {
        graphs_of(&node(name), 1, release, env).unwrap().graphs.nvls.is_some()
    };
    let default = Env::default();
    assert!(has("h100x8", RELEASE, &default) && !has("a100x8", RELEASE, &default));
    assert!(!has("h100x8", RELEASE, &env(&[("NCCL_NVLS_ENABLE", "0")])));
    assert!(
        !has("h100x2", Release::new(2, 27, 7), &default) && has("h100x2", Release::new(2, 28, 3), &default)
    );
}

#[test]
fn mixed_nodes_take_the_least_of_each() {
    // One node with a slow card holds the others back, whichever comes first; the same twice changes nothing.
    let (fast, slow) = (node("h100x8_8x400"), node("h100x8_1x100"));
    let alone = |node: &Node| graphs_of(node, 2, RELEASE, &Env::default()).unwrap().graphs;
    let mixed = |nodes: &[(&Node, u32)]| graphs_of_nodes(nodes, RELEASE, &Env::default()).unwrap();
    let both = mixed(&[(&fast, 3), (&slow, 1)]);
    let (quick, other) = (alone(&fast).ring, alone(&slow).ring);
    let ring = &both.graphs.ring;
    assert_eq!(
        (ring.channels, ring.bw_inter),
        (quick.channels.min(other.channels), quick.bw_inter.min(other.bw_inter))
    );
    assert_eq!((ring.type_inter, both.channels), (PathType::Pxn, 2));
    assert_eq!(mixed(&[(&slow, 1), (&fast, 3)]).graphs.ring, *ring);
    assert_eq!(mixed(&[(&fast, 1), (&fast, 1)]).graphs, alone(&fast));
    let nvls = mixed(&[(&fast, 1), (&node("a100x8_8hdr"), 1)]).graphs.nvls;
    assert_eq!(nvls, None, "one node without it is enough");
}

#[test]
fn what_cannot_be_searched_is_an_error() {
    // No nodes, no network, an unknown release, a node that cannot be.
    let box_ = node("v100x4_nv2");
    let go = |nodes, release| graphs_of(&box_, nodes, release, &Env::default());
    assert_eq!(go(0, RELEASE), Err(SearchError::NoNode));
    assert_eq!(go(2, RELEASE), Err(SearchError::NoNetwork { nodes: 2 }));
    assert!(matches!(go(1, Release::new(2, 17, 1)), Err(SearchError::Release(_))));
    let mut broken = box_.clone();
    broken.cpus.clear();
    assert!(matches!(graphs_of(&broken, 1, RELEASE, &Env::default()), Err(SearchError::Node(_))));
}

#[test]
fn one_gpu_alone_needs_no_search() {
    // A single rank has a graph too: no links are needed, so nothing limits it but the list of speeds.
    let mut alone = node("a10x1_100g");
    alone.cpus[0].slots.retain(|slot| matches!(slot.device, Device::Gpu(_)));
    let search = graphs_of(&alone, 1, RELEASE, &Env::default()).unwrap();
    assert_eq!((search.graphs.ring.type_intra, search.graphs.tree.pattern), (PathType::Loc, Pattern::Tree));
    let two = Slot { bandwidth: 24.0, device: Device::Gpu(Gpu { sm: 86, gdr: true }) };
    alone.cpus[0].slots.push(two);
    assert!(graphs_of(&alone, 1, RELEASE, &Env::default()).is_ok());
}
