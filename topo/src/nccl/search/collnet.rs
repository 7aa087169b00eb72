//! The graphs for a network that reduces: heads that talk to it, and chains that lead to them.
//!
//! *Source*: the conditions are NCCL's; the numbers have not been compared with a log, since none is public.

use super::env::Env;
use super::relax;
use super::speeds;
use crate::nccl::graph::{Graph, PathType, Pattern};
use crate::nccl::release::Release;
use crate::nccl::system::routes::Routes;
use crate::nccl::tuner::CollNet;

/// What a node with `ring` channels finds; `None` on one node.
pub(super) fn search(routes: &Routes, ring: usize, release: Release, env: &Env) -> Option<CollNet> {
    if routes.machine.ports.is_empty() {
        return None;
    }
    // The chain is a simple tree with as many channels as the ring.
    let chain = relax::search(routes, Pattern::Tree, (ring, ring), env);
    let heads = heads(routes);
    Some(CollNet {
        direct: direct(routes, &heads, release),
        chain: chain.as_ref().map(super::agree::graph_of),
        heads: heads.len().max(1) as u32,
        gathers: true,
    })
}

/// GPUs with a port that no GPU before them has, and their ports.
fn heads(routes: &Routes) -> Vec<(usize, usize)> {
    let mut heads: Vec<(usize, usize)> = Vec::new();
    for gpu in 0..routes.machine.gpus.len() {
        if let Some(port) = routes.port_for(gpu, 0)
            && !heads.iter().any(|(_, taken)| *taken == port)
        {
            heads.push((gpu, port));
        }
    }
    heads
}

/// Every GPU sends its part to each head through the NVSwitch: a head's links carry its own part to and from all
/// others, and its parts of the other heads.
fn direct(routes: &Routes, heads: &[(usize, usize)], release: Release) -> Option<Graph> {
    let machine = &routes.machine;
    let gpus = machine.gpus.len();
    if machine.nvs.is_none() || gpus < 2 || heads.is_empty() {
        return None;
    }
    let on_link = (gpus - 1 + heads.len() - 1) as f32;
    let ports = routes.port_bandwidths();
    let slowest =
        heads.iter().filter_map(|&(_, port)| ports.get(port)).copied().fold(f32::INFINITY, f32::min);
    let fits = |speed: &f32| *speed <= slowest && speed * on_link <= routes.bandwidth_total();
    let speed = speeds::candidates(machine.sm_min(), true, release).into_iter().find(fits)?;
    let kind = |&(gpu, port): &(usize, usize)| routes.paths.get(machine.gpus[gpu], machine.ports[port]).kind;
    let worse = |a: PathType, b: PathType| if a.within(b, release) { b } else { a };
    Some(Graph {
        pattern: Pattern::CollNetDirect,
        channels: heads.len() as u32,
        bw_intra: speed,
        bw_inter: speed,
        type_intra: PathType::Nvl,
        type_inter: heads.iter().map(kind).fold(PathType::Pix, worse),
        same_channels: false,
        cross_nic: 0,
    })
}
