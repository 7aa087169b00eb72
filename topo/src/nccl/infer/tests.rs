use std::time::Duration;

use super::*;
use crate::nccl::log::show_pattern;
use crate::nccl::profiles;
use crate::nccl::release::Release;
use crate::nccl::search::{Env, graphs_of};
use crate::nccl::tuner::{Collective, Cpu, Environment, Operation, Setup, Tuner};

const LIMIT: Duration = Duration::from_secs(60);

/// A log as NCCL would write it: graphs if asked, channels, then operations over sizes.
fn log_of(tuner: &Tuner, with_graphs: bool, with_head: bool) -> String {
    let setup = tuner.setup();
    let mut lines = Vec::new();
    if with_head {
        lines.push(format!("NCCL version {}+cuda12.4", setup.release));
        lines.push(format!("comm 0x1 rank 0 nRanks {} nNodes {} localRanks 8", setup.ranks, setup.nodes));
    }
    if with_graphs {
        let graphs = &setup.graphs;
        lines.extend([&graphs.ring, &graphs.tree].into_iter().chain(&graphs.nvls).map(show_pattern));
    }
    lines.push(format!("{} coll channels, 0 collnet channels", setup.channels()));
    for collective in [Collective::AllReduce, Collective::AllGather] {
        for bytes in (3..31).map(|power| 1u64 << power) {
            let operation = Operation::new(collective, bytes * u64::from(setup.ranks));
            let best = tuner.choose(operation).unwrap().best;
            lines.extend(tuner.line(
                operation,
                &best,
                tuner.spread(operation, best.algorithm, best.protocol),
            ));
        }
    }
    let prefixed: Vec<String> = lines.iter().map(|line| format!("h:1:2 [0] NCCL INFO {line}")).collect();
    prefixed.join("\n")
}

fn machine(
    name: &str,
    nodes: u32,
    release: Release,
    latency: Option<f32>,
    cpu: Cpu,
    variables: &[(&str, &str)],
) -> Tuner {
    let node = profiles::find(name).unwrap();
    let found = graphs_of(&node, nodes, release, &Env::default()).unwrap();
    let capability = node.gpus()[0].sm;
    Tuner::new(Setup {
        release,
        ranks: node.gpus().len() as u32 * nodes,
        nodes,
        compute_capability: capability,
        compute_capability_max: capability,
        cpu,
        plugin_latency_us: latency.unwrap_or(found.net_latency_us),
        graphs: found.graphs,
        collnet: None,
        cuda_11_8: false,
        environment: Environment::parse(variables.iter().copied(), release).unwrap(),
    })
    .unwrap()
}

#[test]
fn inputs_are_found_from_their_own_log() {
    // With graphs: CPU, capability, latency no one tries by default, and release come back; every line is explained.
    let release = Release::new(2, 22, 3);
    let tuner = machine("dgx-a100", 2, release, Some(42.0), Cpu::Amd, &[]);
    let (fit, tried) = infer(&Log::read(&log_of(&tuner, true, true)), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
    assert!(fit.explained.len() > 40 && tried.is_complete);
    assert_eq!(fit.tuner.setup(), tuner.setup());
    assert_eq!(fit.origin, Origin::Log);
}

#[test]
fn a_release_is_found_from_the_form_and_the_numbers() {
    // Without a head: the form leaves three releases, the times one; ranks and nodes are found too.
    let release = Release::new(2, 21, 5);
    let tuner = machine("dgx-h100", 2, release, None, Cpu::Intel, &[]);
    let (fit, _) = infer(&Log::read(&log_of(&tuner, true, false)), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
    let setup = fit.tuner.setup();
    assert_eq!((setup.ranks, setup.nodes, setup.compute_capability, setup.cpu), (16, 2, 90, Cpu::Intel));
    // 2.20 has other numbers; 2.21 and 2.22 have the same.
    assert!(setup.release.since(21, 0) && !setup.release.since(23, 0), "{}", setup.release);
}

#[test]
fn a_machine_is_found_without_graphs() {
    // Only head, channels and times: the machine, or one whose network and GPUs are alike, with the speed of its cards.
    let tuner = machine("4xa100-nv4", 2, Release::new(2, 22, 3), Some(75.0), Cpu::Amd, &[]);
    let (fit, _) = infer(&Log::read(&log_of(&tuner, false, true)), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
    assert!(matches!(fit.origin, Origin::Machine { .. }));
    assert_eq!(fit.tuner.setup(), tuner.setup());
}

#[test]
fn the_speed_of_network_cards_is_found() {
    // No known machine has these cards; the search with exchanged ones explains every line.
    let mut node = profiles::find("4xv100-nv2").unwrap();
    for cpu in &mut node.cpus {
        machines::exchange(&mut cpu.slots, 25_000);
    }
    let release = Release::new(2, 22, 3);
    let found = graphs_of(&node, 2, release, &Env::default()).unwrap();
    let mut setup = machine("4xv100-nv2", 2, release, None, Cpu::Intel, &[]).setup().clone();
    setup.graphs = found.graphs;
    let tuner = Tuner::new(setup).unwrap();
    let (fit, _) = infer(&Log::read(&log_of(&tuner, false, true)), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
    assert!(matches!(fit.origin, Origin::Machine { mbps: Some(25_000), .. }), "{:?}", fit.origin);
}

#[test]
fn lines_that_nothing_explains_are_told() {
    // One time is false: it alone is unexplained, with what the model says instead.
    let tuner = machine("dgx-a100", 1, Release::new(2, 22, 3), None, Cpu::Amd, &[]);
    let text =
        log_of(&tuner, true, true) + "\nh:1:2 [0] NCCL INFO 3000 Bytes -> Algo 1 proto 0 time 9.000000";
    let (fit, _) = infer(&Log::read(&text), LIMIT).unwrap();
    assert_eq!(fit.unexplained.len(), 1);
    let (line, instead) = &fit.unexplained[0];
    assert_eq!(
        (line.number, instead.as_str()),
        (text.lines().count(), "3000 Bytes -> Algo 1 proto 0 time 15.059863")
    );
}

#[test]
fn variables_of_the_log_are_heeded() {
    // NCCL says which variables it has read; the choice follows them.
    let tuner =
        machine("dgx-a100", 1, Release::new(2, 24, 3), None, Cpu::Amd, &[("NCCL_ALGO", "allreduce:tree")]);
    let text =
        "NCCL INFO NCCL_ALGO set by environment to allreduce:tree\n".to_owned() + &log_of(&tuner, true, true);
    let (fit, _) = infer(&Log::read(&text), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
}

#[test]
fn a_log_without_the_tuner_is_refused() {
    // Nothing to explain: the message says how to get such lines.
    let error = infer(&Log::read("hello\nworld"), LIMIT).unwrap_err().to_string();
    assert!(error.contains("NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"), "{error}");
}

#[test]
fn a_public_log_of_two_nodes_is_explained_whole() {
    // NCCL 2.29.7 on two nodes of one GPU each over sockets, as somebody has published it: rows of the table, and the
    // channels of broadcasts by size. Nothing of it is from this model.
    let head = "NCCL version 2.29.7+cuda12.9\ncomm 0x1 rank 0 nRanks 2 nNodes 2
Pattern 4, crossNic 0, nChannels 2, bw 1.200000/1.200000, type LOC/PHB, sameChannels 1
Pattern 3, crossNic 0, nChannels 2, bw 2.400000/1.200000, type LOC/PHB, sameChannels 1
Algorithm | Tree | Ring |
Broadcast | 0.0/0.0 | 0.0/0.0 | 0.0/0.0 | 9.3/1.2 | 18.0/0.0 | 22.4/2.4 |
AllGather | 0.0/0.0 | 0.0/0.0 | 0.0/0.0 | 11.6/2.4 | 22.5/0.0 | 22.4/4.8 |
AllReduce | 16.8/0.5 | 31.0/0.0 | 36.4/1.9 | 16.6/1.2 | 31.0/0.0 | 36.4/2.4 |
Algorithm | PAT |
AllGather | 0.0/0.0 | 0.0/0.0 | 17.6/3.6 |\n";
    let mut text = head.to_owned();
    for (kib, protocol, last) in [
        (8, "LL", 0),
        (16, "LL", 1),
        (32, "SIMPLE", 0),
        (64, "SIMPLE", 1),
        (128, "SIMPLE", 3),
        (131_072, "SIMPLE", 3),
    ] {
        let bytes = kib << 10;
        text += &format!(
            "Broadcast: {bytes} Bytes -> Algo RING proto {protocol} channel{{Lo..Hi}}={{0..{last}}}\n"
        );
    }
    let (fit, _) = infer(&Log::read(&text), LIMIT).unwrap();
    assert!(fit.unexplained.is_empty(), "{:?}", fit.unexplained);
    assert_eq!((fit.explained.len(), fit.tuner.setup().plugin_latency_us), (10, 0.0));
}

#[test]
fn a_public_time_of_three_nodes_is_explained() {
    // 24 H100 on three nodes with 8 x 200 Gbit/s, one line of a published log of 2.21 or 2.22.
    let mut node = profiles::find("dgx-h100").unwrap();
    for cpu in &mut node.cpus {
        machines::exchange(&mut cpu.slots, 200_000);
    }
    for release in ["2.21.5", "2.22.3"] {
        let release: Release = release.parse().unwrap();
        let mut setup = machine("dgx-h100", 3, release, None, Cpu::Intel, &[]).setup().clone();
        setup.graphs = graphs_of(&node, 3, release, &Env::default()).unwrap().graphs;
        let tuner = Tuner::new(setup).unwrap();
        let operation = Operation::new(Collective::AllReduce, 262_144);
        let best = tuner.choose(operation).unwrap().best;
        let line = tuner.line(operation, &best, tuner.spread(operation, best.algorithm, best.protocol));
        assert_eq!(line.as_deref(), Some("262144 Bytes -> Algo 0 proto 1 time 54.707825"), "{release}");
    }
}
