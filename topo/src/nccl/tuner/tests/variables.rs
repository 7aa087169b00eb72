//! What NCCL's variables change, and what is off without them.

use super::*;
use crate::nccl::tuner::Algorithm::{CollNetChain, CollNetDirect, Nvls, NvlsTree, Pat, Ring, Tree};
use crate::nccl::tuner::Collective::{AllGather, AllReduce, Broadcast};
use crate::nccl::tuner::Protocol::{Ll, Ll128, Simple};

fn with(which: Sample, release: &str, pairs: &[(&str, &str)]) -> Tuner {
    let mut setup = sample(which);
    setup.release = release.parse().unwrap();
    setup.environment = Environment::parse(pairs.iter().copied(), setup.release).unwrap();
    Tuner::new(setup).unwrap()
}

fn pick(tuner: &Tuner, collective: Collective, bytes: u64) -> Option<(Algorithm, Protocol)> {
    tuner.pick(Operation::new(collective, bytes))
}

#[test]
fn lists_change_the_choice() {
    // Each variable takes the best away, and the best of the rest is chosen.
    let mib = 64 << 20;
    let choice = |pairs: &[(&str, &str)]| pick(&with(Sample::V100x4, "2.22.3", pairs), AllReduce, mib);
    assert_eq!(choice(&[]), Some((Ring, Simple)));
    assert_eq!(choice(&[("NCCL_ALGO", "Tree")]), Some((Tree, Simple)));
    assert_eq!(choice(&[("NCCL_PROTO", "^Simple")]), Some((Ring, Ll128)));
    assert_eq!(choice(&[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL")]), Some((Tree, Ll)));
}

#[test]
fn a_list_turns_ll128_on_where_the_rule_says_no() {
    // 4090s on PCIe have no LL128 by default.
    let only = with(Sample::Rtx4090x2, "2.22.3", &[("NCCL_PROTO", "LL128")]);
    assert_eq!(pick(&only, AllReduce, 64 << 20), Some((Ring, Ll128)));
    let tuner = with(Sample::Rtx4090x2, "2.22.3", &[("NCCL_PROTO", "^LL")]);
    assert!(tuner.cell(AllReduce, Ring, Ll128).unwrap().is_on());
}

#[test]
fn lists_that_leave_nothing() {
    // Up to 2.23 rings and trees return, or the ring kept aside; from 2.24 it is an error that names the variable.
    let nothing = [("NCCL_ALGO", "CollNetDirect")];
    let older = with(Sample::V100x4, "2.23.4", &nothing);
    assert_eq!(pick(&older, AllReduce, 64 << 20), Some((Ring, Simple)));
    assert!(older.cell(AllReduce, Tree, Simple).unwrap().is_on());
    let tree = [("NCCL_ALGO", "Tree")];
    let kept = with(Sample::V100x4, "2.23.4", &tree);
    let choice = kept.choose(Operation::new(Broadcast, 64 << 20)).unwrap();
    assert!(choice.is_fallback && choice.best.algorithm == Ring);
    for pairs in [nothing, tree] {
        let newer = with(Sample::V100x4, "2.24.3", &pairs);
        let error = newer.choose(Operation::new(Broadcast, 64 << 20)).unwrap_err().to_string();
        assert!(error.contains("Broadcast") && error.contains("NCCL_ALGO"), "{error}");
    }
    // 2.18 never takes the ring away from anything but all-reduce.
    let first = with(Sample::V100x4, "2.18.6", &tree);
    assert!(first.cell(Broadcast, Ring, Simple).unwrap().is_on());
    assert!(!first.cell(AllReduce, Ring, Simple).unwrap().is_on());
}

#[test]
fn the_fallback_keeps_to_the_protocols() {
    // The ring kept aside is used only with protocols that are on.
    let tuner = with(Sample::V100x4, "2.22.3", &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL")]);
    assert_eq!(pick(&tuner, Broadcast, 64 << 20), Some((Ring, Ll)));
}

#[test]
fn switches_take_algorithms_away() {
    // NVLS and PAT by their variables; everything else stays.
    let on = |which, release, pairs: &[(&str, &str)], collective, algorithm| {
        with(which, release, pairs).cell(collective, algorithm, Simple).is_some_and(Cell::is_on)
    };
    assert!(on(Sample::H100x8, "2.22.3", &[], AllReduce, Nvls));
    assert!(!on(Sample::H100x8, "2.22.3", &[("NCCL_NVLS_ENABLE", "0")], AllReduce, Nvls));
    assert!(on(Sample::A10Nodes(2), "2.27.7", &[], AllGather, Pat));
    assert!(!on(Sample::A10Nodes(2), "2.27.7", &[("NCCL_PAT_ENABLE", "0")], AllGather, Pat));
    assert!(!on(Sample::A10Nodes(2), "2.22.3", &[], AllGather, Pat));
    assert!(on(Sample::H100x16, "2.22.3", &[], AllReduce, NvlsTree));
    assert!(!on(Sample::H100x16, "2.22.3", &[], AllReduce, Nvls));
}

#[test]
fn ll128_to_the_network_through_peers() {
    // PXN is near enough from compute capability 9.0; from 2.27.7 NCCL_LL128_C2C=0 ends that; mixed GPUs need 2.30.
    let on = |tuner: &Tuner| tuner.cell(AllReduce, Ring, Ll128).unwrap().is_on();
    for (release, pairs, expected) in [
        ("2.22.3", &[][..], true),
        ("2.27.7", &[("NCCL_LL128_C2C", "0")], false),
        ("2.27.6", &[("NCCL_LL128_C2C", "0")], true),
    ] {
        assert_eq!(on(&with(Sample::H100x32Slow, release, pairs)), expected, "{release} {pairs:?}");
    }
    let mut mixed = sample(Sample::H100x16);
    mixed.compute_capability_max = 100;
    for (release, expected) in [("2.29.7", false), ("2.30.7", true)] {
        assert_eq!(on(&tuner(mixed.clone(), release)), expected, "{release}");
    }
    let mut pair = sample(Sample::H100x8);
    (pair.ranks, pair.cuda_11_8) = (2, true);
    assert!(!on(&tuner(pair, "2.22.3")));
}

#[test]
fn channels_move_the_plateau_but_no_bandwidth() {
    // NCCL_MAX_NCHANNELS changes the printed time of a ring at the plateau's edge, and no cell.
    let (all, few) = (
        with(Sample::A100x16, "2.22.3", &[]),
        with(Sample::A100x16, "2.22.3", &[("NCCL_MAX_NCHANNELS", "2")]),
    );
    assert_eq!(all.cells(), few.cells());
    assert_eq!((all.plateau_from(), few.plateau_from()), (64 * 16 * 16, 64 * 2 * 16));
    let time = |tuner: &Tuner| tuner.time_of(tuner.cell(AllReduce, Ring, Simple).unwrap(), 4096).unwrap();
    assert!(time(&all).corrections.is_empty() && time(&few).latency > time(&all).latency);
}

#[test]
fn the_network_overhead_can_be_given() {
    // 26 steps inside nodes at 3 x 5 us instead of 6 us, as AMD's 2 us give.
    let (default, given) = (
        with(Sample::A100x16, "2.22.3", &[]),
        with(Sample::A100x16, "2.22.3", &[("NCCL_NET_OVERHEAD", "5000")]),
    );
    let latency = |tuner: &Tuner| tuner.cell(AllReduce, Ring, Simple).unwrap().latency.total;
    assert_eq!((latency(&default), latency(&given)), (220.4, 454.4));
}

#[test]
fn types_that_nvls_cannot_reduce_go_round_the_ring() {
    // Products are no matter for an NVSwitch, all-gather is; 8-bit floats avoid deep rings from 2.24.
    let tuner = with(Sample::H100x8, "2.22.3", &[]);
    let product = Operation { nvls_reduces: false, ..Operation::new(AllReduce, 64 << 20) };
    assert_eq!(tuner.choose(product).unwrap().best.algorithm, Ring);
    let gather = Operation { nvls_reduces: false, ..Operation::new(AllGather, 64 << 20) };
    assert_eq!(tuner.choose(gather).unwrap().best.algorithm, pick(&tuner, AllGather, 64 << 20).unwrap().0);
    let fp8 = Operation { fp8: true, nvls_reduces: false, ..Operation::new(AllReduce, 1 << 30) };
    for (release, expected) in [("2.23.4", Ring), ("2.24.3", Tree)] {
        assert_eq!(with(Sample::A100x16, release, &[]).choose(fp8).unwrap().best.algorithm, expected);
    }
}

#[test]
fn collnet_needs_a_network_that_reduces() {
    // Off without one, by its variable, or with more GPUs than heads; NVLS on several nodes comes with it.
    let mut setup = sample(Sample::H100x16);
    setup.release = "2.27.7".parse().unwrap();
    let on = |setup: &Setup, collective, algorithm| {
        Tuner::new(setup.clone()).unwrap().cell(collective, algorithm, Simple).unwrap().is_on()
    };
    assert!(!on(&setup, AllReduce, CollNetDirect));
    let direct = setup.graphs.nvls.clone();
    setup.collnet = Some(CollNet { direct, chain: Some(setup.graphs.tree.clone()), heads: 8, gathers: true });
    for (collective, algorithm) in [
        (AllReduce, CollNetDirect),
        (AllReduce, CollNetChain),
        (AllGather, CollNetDirect),
        (AllGather, Nvls),
        (AllReduce, Nvls),
    ] {
        assert!(on(&setup, collective, algorithm), "{collective} {algorithm}");
    }
    if let Some(collnet) = &mut setup.collnet {
        collnet.heads = 4;
    }
    assert!(!on(&setup, AllGather, CollNetDirect) && on(&setup, AllReduce, CollNetDirect));
    setup.environment = Environment::parse([("NCCL_COLLNET_ENABLE", "0")], setup.release).unwrap();
    assert!(!on(&setup, AllReduce, CollNetDirect) && !on(&setup, AllReduce, CollNetChain));
}

#[test]
fn the_first_nvls_had_its_own_formulas() {
    // 2.18: 23 us and bare hops; 5/6 and 0.70 N / (2 (N - 1)) of the bandwidth, 0.75 in 2.18.1.
    let cell = |release, which, algorithm| {
        let tuner = tuner(sample(which), release);
        let cell = tuner.cell(AllReduce, algorithm, Simple).unwrap();
        (cell.latency.total, cell.bandwidth.total)
    };
    assert_eq!(cell("2.18.3", Sample::H100x8, Nvls), (23.0, 320.0 * (5.0f32 / 6.0)));
    assert_eq!(cell("2.18.1", Sample::H100x8, Nvls), (23.0, 240.0));
    let (latency, bandwidth) = cell("2.18.3", Sample::H100x16, NvlsTree);
    assert_eq!((latency, format!("{bandwidth:.3}")), (61.0, "224.000".to_owned()));
}

#[test]
fn ll128_by_compute_capability() {
    // T4, 3090 and 4090 have it from 2.27 on, Blackwell from 2.25; P100 never.
    let on = |capability, release| {
        let mut setup = sample(Sample::V100x4);
        (setup.compute_capability, setup.compute_capability_max) = (capability, capability);
        tuner(setup, release).cell(AllReduce, Ring, Ll128).unwrap().is_on()
    };
    let releases = ["2.24.3", "2.25.1", "2.26.6", "2.27.7"];
    for (capability, expected) in [
        (60, [false; 4]),
        (70, [true; 4]),
        (75, [false, false, false, true]),
        (86, [false, false, false, true]),
        (90, [true; 4]),
        (100, [false, true, true, true]),
        (120, [false, true, true, true]),
    ] {
        assert_eq!(releases.map(|release| on(capability, release)), expected, "{capability}");
    }
}

#[test]
fn rings_with_ll_before_2_21() {
    // A quarter of the bandwidth on several nodes or where something is reduced, otherwise a third; then a half.
    let part = |which, release, collective| {
        let tuner = tuner(sample(which), release);
        let steps = tuner.cell(collective, Ring, Ll).unwrap().bandwidth.steps.clone();
        steps.iter().find(|step| step.rule == Rule::RingLl).unwrap().operand
    };
    for (which, collective, older) in [
        (Sample::V100x4, AllReduce, 0.25),
        (Sample::V100x4, Collective::Reduce, 0.25),
        (Sample::V100x4, Broadcast, 1.0 / 3.0),
        (Sample::V100x4, AllGather, 1.0 / 3.0),
        (Sample::H100x16, AllReduce, 0.25),
        (Sample::H100x16, Broadcast, 0.25),
        (Sample::H100x16, AllGather, 0.25),
    ] {
        assert_eq!(part(which, "2.20.5", collective), older, "{which:?} {collective}");
        assert_eq!(part(which, "2.21.5", collective), 0.5);
    }
}
