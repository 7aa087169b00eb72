use proptest::prelude::*;

use super::machine::Machine;
use super::routes::Routes;
use super::*;
use crate::ConfigError;
use crate::nccl::graph::PathType;
use crate::nccl::release::Release;
use crate::nccl::search::Env;

mod dump;

const TOPOLOGIES: &str = include_str!("../../../testdata/nccl/topologies.yaml");

/// A small description that is right; tests break it.
const SMALL: &str = "box:
  cpu: amd
  sm: 90
  numa:
    -
      - {switch: true, pcie_gen: 5, gpus: 2, nics: [[400000, 0, 1]]}
    - [{pcie_gen: 4, gpus: 1}]
  nvlink:
    - [0, 4, 4]
    - [4, 0, 4]
    - [4, 4, 0]
";

fn node(name: &str) -> Node {
    parse_nodes("t", TOPOLOGIES).unwrap().into_iter().find(|(known, _)| known == name).unwrap().1
}

fn routes(name: &str, release: Release, network: bool, env: &Env) -> Routes {
    Routes::of(Machine::new(&node(name), release, network), env)
}

/// Type and bandwidth of the path from GPU `a` to GPU `b`.
fn pair(routes: &Routes, a: usize, b: usize) -> (PathType, f32) {
    let path = routes.paths.get(routes.machine.gpus[a], routes.machine.gpus[b]);
    (path.kind, path.bandwidth)
}

fn to_port(routes: &Routes, gpu: usize, port: usize) -> (PathType, f32) {
    let path = routes.paths.get(routes.machine.gpus[gpu], routes.machine.ports[port]);
    (path.kind, path.bandwidth)
}

#[test]
fn a_description_is_read_whole() {
    // Every field of the small description arrives at its place.
    let (name, node) = parse_nodes("small.yaml", SMALL).unwrap().pop().unwrap();
    assert_eq!((name.as_str(), node.cpus.len(), node.gpus().len()), ("box", 2, 3));
    assert!(node.cpus.iter().all(|cpu| cpu.kind == CpuKind::Amd));
    assert!(matches!(&node.cpus[0].slots[0].device, Device::Switch(below) if below.len() == 3));
    assert_eq!((node.cpus[0].slots[0].bandwidth, node.cpus[1].slots[0].bandwidth), (48.0, 24.0));
    assert_eq!(node.ports(), [Port { mbps: 400_000, latency_us: 0.0, gdr: true, card: None }]);
    assert_eq!((node.nvlinks.len(), node.links_between(0, 2)), (6, 4));
    assert!(node.gpus().iter().all(|gpu| gpu.sm == 90 && gpu.gdr));
}

#[test]
fn every_broken_description_names_line_field_and_remedy() {
    // One change a case: what is replaced, by what, then line, field and a word of the remedy.
    let cases: &[(&str, &str, usize, &str, &str)] = &[
        ("cpu: amd", "cpu: amdd", 2, "box.cpu", "did you mean `amd`"),
        ("cpu: amd", "cpu: toaster", 2, "box.cpu", "intel_MODEL"),
        ("cpu: amd", "cpu: intel_99999", 2, "box.cpu", "no CPU"),
        ("  cpu: amd\n", "", 1, "box.cpu", "missing"),
        ("sm: 90", "sm: 9.0", 3, "box.sm", "compute capability"),
        ("sm: 90", "sm: 30", 3, "box.sm", "compute capability"),
        ("sm: 90", "sms: 90", 3, "box.sms", "did you mean `sm`"),
        ("switch: true", "switch: yes please", 6, "box.numa[0][0].switch", "true"),
        ("pcie_gen: 5", "pcie_gen: 7", 6, "box.numa[0][0].pcie_gen", "1 to 6"),
        ("pcie_gen: 5, ", "", 6, "box.numa[0][0].pcie_gen", "missing"),
        ("pcie_gen: 4", "pcie_gen: 4, lanes: 3", 7, "box.numa[1][0].lanes", "16"),
        ("gpus: 2", "gpus: -1", 6, "box.numa[0][0].gpus", "0 to 32"),
        ("gpus: 2", "gpus: 4000000000", 6, "box.numa[0][0].gpus", "0 to 32"),
        ("[400000, 0, 1]", "[400000, 0]", 6, "box.numa[0][0].nics[0]", "Mbit/s"),
        ("[400000, 0, 1]", "[0, 0, 1]", 6, "box.numa[0][0].nics[0]", "Mbit/s"),
        ("[400000, 0, 1]", "[400000, -1, 1]", 6, "box.numa[0][0].nics[0]", "latency"),
        ("[400000, 0, 1]", "[400000, 0, 2]", 6, "box.numa[0][0].nics[0]", "RDMA"),
        ("[[400000, 0, 1]]", "fast", 6, "box.numa[0][0].nics", "not a list"),
        ("- [0, 4, 4]", "- [0, 4]", 8, "box.nvlink", "3 rows of 3"),
        ("- [4, 4, 0]\n", "", 8, "box.nvlink", "3 rows of 3"),
        ("- [0, 4, 4]", "- [0, 4, 5]", 8, "box.nvlink", "lead back"),
        ("- [0, 4, 4]", "- [1, 4, 4]", 8, "box.nvlink", "lead back"),
        ("- [0, 4, 4]\n    - [4, 0, 4]", "- [0, 99, 4]\n    - [99, 0, 4]", 8, "box.nvlink", "1 to 64"),
        ("gpus: 1}", "gpus: 31}", 8, "box.nvlink", "33 rows"),
        ("box:", "- box:", 1, "", "a name and a node"),
    ];
    for &(from, to, line, field, word) in cases {
        assert!(SMALL.contains(from), "{from}");
        let error = parse_nodes("small.yaml", &SMALL.replacen(from, to, 1)).unwrap_err();
        let told = error.to_string();
        if field.is_empty() {
            assert!(told.contains(word), "{to}: {told}");
            continue;
        }
        let found = error.problems().iter().any(|problem| {
            problem.line == Some(line) && problem.field == field && problem.message.contains(word)
        });
        assert!(found, "{to}: {told}");
    }
}

#[test]
fn what_is_too_much_is_refused_before_it_costs() {
    // Many names, many entries, alias bombs and other shapes end with a message.
    let many: String = (0..80).map(|_| "      - {pcie_gen: 3, gpus: 1}\n").collect();
    let error = parse_nodes("t", &format!("a:\n  cpu: amd\n  sm: 80\n  numa:\n    -\n{many}")).unwrap_err();
    assert!(error.to_string().contains("at most 64"), "{error}");
    let wide = "a: {cpu: amd, sm: 80, numa: [[{pcie_gen: 3, gpus: 32}, {pcie_gen: 3, gpus: 1}]]}";
    assert!(parse_nodes("t", wide).unwrap_err().to_string().contains("33 GPUs"));
    for text in ["", "[]", "a", "a: 3", "? [1]\n: {}", "a: {}\na: {}"] {
        assert!(matches!(parse_nodes("t", text), Err(ConfigError::Invalid { .. })), "{text}");
    }
    assert!(matches!(load_nodes("/dev/null"), Err(ConfigError::NotAFile { .. })));
}

#[test]
fn nodes_made_by_hand_are_checked() {
    // What a file cannot say, a program can: each is an error and no panic.
    let sound = parse_nodes("t", SMALL).unwrap().pop().unwrap().1;
    let gpu = Slot { bandwidth: 12.0, device: Device::Gpu(Gpu { sm: 80, gdr: true }) };
    let broken = |change: &dyn Fn(&mut Node)| {
        let mut node = sound.clone();
        change(&mut node);
        node.check().unwrap_err()
    };
    assert_eq!(broken(&|node| node.cpus.clear()), NodeError::NoCpu);
    assert_eq!(broken(&|node| node.cpus.iter_mut().for_each(|cpu| cpu.slots.clear())), NodeError::NoGpu);
    assert!(matches!(broken(&|node| node.nvlinks[0].gpu = 9), NodeError::Dangling { .. }));
    assert!(matches!(broken(&|node| node.nvlinks[0].links = 0), NodeError::Links { .. }));
    assert!(matches!(broken(&|node| node.cpus[0].slots[0].bandwidth = f32::NAN), NodeError::Bandwidth(_)));
    assert!(matches!(broken(&|node| node.cpus[0].slots[0].bandwidth = 0.0), NodeError::Bandwidth(_)));
    let deep = |node: &mut Node| {
        for _ in 0..100_000 {
            let below = std::mem::take(&mut node.cpus[0].slots);
            node.cpus[0].slots.push(Slot { bandwidth: 12.0, device: Device::Switch(below) });
        }
    };
    // Taken apart again by hand: dropping a tree that deep would take more stack than there is.
    let mut node = sound.clone();
    deep(&mut node);
    assert!(matches!(node.check(), Err(NodeError::TooMany { what: "levels of PCIe switches", .. })));
    while let Some(Slot { device: Device::Switch(below), .. }) = node.cpus[0].slots.pop() {
        node.cpus[0].slots = below;
    }
    let many = |node: &mut Node| node.cpus[1].slots = vec![gpu.clone(); 300];
    assert!(matches!(broken(&many), NodeError::TooMany { what: "devices", .. }));
}

#[test]
fn links_have_the_speed_of_their_release() {
    // NVLink, PCIe and sockets by compute capability, CPU and release.
    let old = Release::new(2, 18, 3);
    let newest = Release::NEWEST;
    for (sm, release, speed) in [
        (60, old, 18.0),
        (70, old, 20.0),
        (86, old, 12.0),
        (90, old, 20.0),
        (90, newest, 20.6),
        (100, newest, 40.1),
    ] {
        assert_eq!(rates::nvlink(sm, release), speed, "{sm} {release}");
    }
    assert_eq!(rates::nvlink(100, Release::new(2, 27, 7)), 40.0);
    assert_eq!(
        (3..=6).map(|generation| rates::pcie(generation, 16)).collect::<Vec<_>>(),
        [12.0, 24.0, 48.0, 96.0].map(Some)
    );
    assert_eq!((rates::pcie(4, 8), rates::pcie(0, 16), rates::pcie(4, 5)), (Some(12.0), None, None));
    assert_eq!((rates::port(400_000), rates::port(25_000), rates::port(0)), (50.0, 3.125, 1.25));
    let spr = CpuKind::Intel(143);
    assert_eq!((rates::socket(spr, Release::new(2, 25, 1)), rates::socket(spr, newest)), (10.0, 22.0));
    assert_eq!(
        (rates::socket(CpuKind::Intel(207), newest), rates::socket(CpuKind::Intel(79), newest)),
        (40.0, 6.0)
    );
    assert_eq!(
        (rates::socket(CpuKind::Amd, newest), rates::socket(CpuKind::Zhaoxin(true), newest)),
        (16.0, 9.0)
    );
}

#[test]
fn paths_are_the_best_there_are() {
    // The hybrid cube mesh: one or two links, a relay where there is none; NVSwitch; switches and sockets.
    let env = Env::default();
    let mesh = routes("dgx1v", Release::new(2, 22, 3), false, &env);
    assert_eq!(pair(&mesh, 0, 1), (PathType::Nvl, 20.0));
    assert_eq!(pair(&mesh, 0, 3), (PathType::Nvl, 40.0));
    // From 0 to 7 over 3 (two links, then one) or over 4 (two and two).
    assert_eq!(pair(&mesh, 0, 7), (PathType::Nvb, 40.0));
    let unrelayed = routes("dgx1v", Release::new(2, 22, 3), false, &Env { nvb_disable: true, ..env.clone() });
    assert_eq!(pair(&unrelayed, 0, 7), (PathType::Sys, 6.0));
    let switched = routes("h100x8", Release::new(2, 22, 3), false, &env);
    assert_eq!(pair(&switched, 0, 7), (PathType::Nvl, 18.0 * 20.6));
    let pcie = routes("t4x8_2s", Release::new(2, 22, 3), false, &env);
    assert_eq!((pair(&pcie, 0, 1).0, pair(&pcie, 0, 7).0), (PathType::Pix, PathType::Sys));
}

#[test]
fn without_peer_access_pairs_meet_at_a_cpu() {
    // Switched off, or farther than is allowed: the way goes through the CPU next to the destination.
    let release = Release::new(2, 22, 3);
    let off = Env { p2p_level: Some(PathType::Loc), ..Env::default() };
    let nvlink = routes("v100x4_nv2", release, false, &off);
    assert_eq!(pair(&nvlink, 0, 1).0, PathType::Phb, "not even NVLink");
    let pix = routes("t4x8_2s", release, false, &off);
    assert_eq!(pair(&pix, 0, 1), (PathType::Phb, 12.0));
    let machine = &pix.machine;
    let way = &pix.paths.get(machine.gpus[0], machine.gpus[7]).links;
    assert!(way.iter().any(|&link| machine.links[link].to == machine.cpus[1]));
    let near = Env { p2p_level: Some(PathType::Pix), ..Env::default() };
    assert_eq!(pair(&routes("t4x8_2s", release, false, &near), 0, 1).0, PathType::Pix);
}

#[test]
fn ports_are_reached_by_the_best_detour() {
    // PXN where a peer is nearer, the CPU without RDMA, and what the variables change.
    let env = Env::default();
    let release = Release::new(2, 22, 3);
    let near = routes("h100x8_8x400", release, true, &env);
    assert_eq!((to_port(&near, 0, 0), to_port(&near, 1, 0).0), ((PathType::Pix, 48.0), PathType::Pxn));
    let plain = routes("h100x8_8x400", release, true, &Env { pxn_disable: true, ..env.clone() });
    assert_eq!((to_port(&plain, 1, 0).0, to_port(&plain, 7, 0).0), (PathType::Phb, PathType::Sys));
    let far = routes("h100x8_8x400", release, true, &Env { gdr_level: Some(PathType::Loc), ..env.clone() });
    assert_eq!(to_port(&far, 0, 0).0, PathType::Phb);
    let no_rdma = routes("p3dn", release, true, &env);
    assert_eq!((to_port(&no_rdma, 0, 0).0, to_port(&no_rdma, 7, 0).0), (PathType::Sys, PathType::Phb));
}

#[test]
fn gpus_share_their_ports_evenly() {
    // Two GPUs beside two ports take one each; four ports beside one GPU serve it in turn.
    let env = Env::default();
    let release = Release::new(2, 22, 3);
    let pairs = routes("a100x8_8hdr", release, true, &env);
    let ports: Vec<_> = (0..8).map(|gpu| pairs.port_for(gpu, 0)).collect();
    let mut sorted = ports.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..8).map(Some).collect::<Vec<_>>(), "{ports:?}");
    assert_eq!(pairs.port_for(0, 1), pairs.port_for(0, 0));
    let fourfold = routes("p5_L75", release, true, &env);
    let mut turns: Vec<_> = (0..4).map(|channel| fourfold.port_for(0, channel)).collect();
    turns.sort_unstable();
    assert_eq!(turns, (0..4).map(Some).collect::<Vec<_>>());
    // The second GPU begins at the mirrored number: 01 becomes 10.
    assert_eq!(fourfold.port_for(1, 0), Some(4 + 2));
    assert!((0..32).all(|port| fourfold.gpu_near(port) == Some(port / 4)));
}

#[test]
fn split_nvlinks_are_two_groups() {
    // Two pairs of 3090s are split; one pair, a mesh and a switch are not.
    let split = |name| routes(name, Release::NEWEST, false, &Env::default()).nvlink_is_split();
    assert!(split("rtx3090x4_pairs"));
    assert!(!split("rtx3090x2_nvlink") && !split("h100x8") && !split("pcie_4090x4_amd"));
}

proptest! {
    #[test]
    fn damaged_descriptions_never_panic(at in 0..SMALL.len(), with in "[-0-9a-z:,\\[\\]{} \n]{0,6}", cut in 0usize..4) {
        let (head, tail) = SMALL.split_at(at);
        let tail = tail.get(cut..).unwrap_or("");
        if let Ok(nodes) = parse_nodes("t", &format!("{head}{with}{tail}")) {
            for (_, node) in nodes {
                prop_assert!(node.check().is_ok());
            }
        }
    }
}
