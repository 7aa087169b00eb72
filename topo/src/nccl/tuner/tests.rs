use super::*;
use crate::nccl::graph::{Graph, Graphs, PathType, Pattern};
use crate::nccl::release::Release;

/// Communicators of the reference's worked examples.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    V100x4,
    A100x8,
    H100x8,
    H100x16,
    H100x32Slow,
    A10Nodes(u32),
    A100x16,
    A100x16One,
    Rtx4090x2,
}

fn graph(pattern: Pattern, channels: u32, bw: (f32, f32), types: (PathType, PathType), same: bool) -> Graph {
    Graph {
        pattern,
        channels,
        bw_intra: bw.0,
        bw_inter: bw.1,
        type_intra: types.0,
        type_inter: types.1,
        same_channels: same,
        cross_nic: 0,
    }
}

fn shape(which: Sample) -> (u32, u32, u32, Cpu, f32) {
    match which {
        Sample::V100x4 => (4, 1, 70, Cpu::Intel, 0.0),
        Sample::A100x8 => (8, 1, 80, Cpu::Amd, 0.0),
        Sample::H100x8 => (8, 1, 90, Cpu::Intel, 0.0),
        Sample::H100x16 => (16, 2, 90, Cpu::Intel, 0.0),
        Sample::H100x32Slow => (32, 4, 90, Cpu::Intel, 0.0),
        Sample::A10Nodes(nodes) => (nodes, nodes, 86, Cpu::Intel, 75.0),
        Sample::A100x16 | Sample::A100x16One => (16, 2, 80, Cpu::Amd, 0.0),
        Sample::Rtx4090x2 => (2, 1, 89, Cpu::Amd, 0.0),
    }
}

pub(super) fn sample(which: Sample) -> Setup {
    use PathType::{Loc, Nvl, Phb, Pix, Pxn};
    use Pattern::{BalancedTree, Nvls, Ring, Tree};
    let (ring, tree, nvls) = match which {
        Sample::V100x4 => {
            let (bw, types) = ((20.0, 20.0), (Nvl, Pix));
            (graph(Ring, 6, bw, types, false), graph(BalancedTree, 6, bw, types, false), None)
        }
        Sample::A100x8 => {
            let (bw, types) = ((20.0, 20.0), (Nvl, Pix));
            (graph(Ring, 12, bw, types, true), graph(BalancedTree, 12, bw, types, true), None)
        }
        Sample::H100x8 => {
            let (bw, types) = ((30.0, 30.0), (Nvl, Pix));
            let nvls = graph(Nvls, 8, (40.0, 60.0), types, false);
            (graph(Ring, 12, bw, types, true), graph(BalancedTree, 12, bw, types, true), Some(nvls))
        }
        Sample::H100x16 => {
            let (bw, types) = ((48.0, 48.0), (Nvl, Pix));
            let nvls = graph(Nvls, 8, (40.0, 48.0), types, false);
            (graph(Ring, 8, bw, types, false), graph(Tree, 8, bw, types, false), Some(nvls))
        }
        Sample::H100x32Slow => {
            let nvls = graph(Nvls, 8, (24.0, 24.0), (Nvl, Pix), false);
            let ring = graph(Ring, 8, (24.0, 24.0), (Nvl, Pxn), false);
            (ring, graph(Tree, 8, (48.0, 24.0), (Nvl, Pix), false), Some(nvls))
        }
        Sample::A10Nodes(_) => {
            let ring = graph(Ring, 1, (12.0, 12.0), (Loc, Phb), true);
            (ring, graph(Tree, 1, (24.0, 12.0), (Loc, Phb), true), None)
        }
        Sample::A100x16 => {
            let ring = graph(Ring, 8, (24.0, 24.0), (Nvl, Pix), false);
            (ring, graph(BalancedTree, 8, (30.0, 24.0), (Nvl, Pix), false), None)
        }
        Sample::A100x16One => {
            let ring = graph(Ring, 1, (12.0, 12.0), (Nvl, Pix), true);
            (ring, graph(BalancedTree, 1, (24.0, 12.0), (Nvl, Pix), true), None)
        }
        Sample::Rtx4090x2 => {
            let ring = graph(Ring, 2, (12.0, 12.0), (Phb, Pix), true);
            (ring, graph(BalancedTree, 2, (20.0, 20.0), (Phb, Pix), true), None)
        }
    };
    let (ranks, nodes, compute_capability, cpu, plugin_latency_us) = shape(which);
    Setup {
        release: Release::new(2, 22, 3),
        ranks,
        nodes,
        compute_capability,
        compute_capability_max: compute_capability,
        cpu,
        plugin_latency_us,
        graphs: Graphs { ring, tree, nvls },
        collnet: None,
        cuda_11_8: false,
        environment: Environment::default(),
    }
}

pub(super) fn tuner(setup: Setup, release: &str) -> Tuner {
    Tuner::new(Setup { release: release.parse().unwrap(), ..setup }).unwrap()
}

mod examples;
mod properties;
mod variables;
