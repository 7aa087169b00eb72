//! Which cells of the table are off, and why.

use super::environment::Permission;
use super::names::{Algorithm, Collective, Protocol};
use super::setup::Setup;
use crate::nccl::graph::PathType;
use crate::nccl::release::Release;

/// Why a cell is not considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Off {
    /// The variable that switches it off, if one does.
    pub variable: Option<&'static str>,
    /// The reason in a few words.
    pub reason: String,
}

fn because(reason: impl Into<String>) -> Option<Off> {
    Some(Off { variable: None, reason: reason.into() })
}

fn by(variable: &'static str) -> Option<Off> {
    Some(Off { variable: Some(variable), reason: format!("{variable} switches it off") })
}

/// Whether the release has the algorithm for the collective at all.
pub(crate) fn exists(setup: &Setup, collective: Collective, algorithm: Algorithm) -> bool {
    let release = setup.release;
    let gathers = collective.counts_all_ranks();
    let all_reduce = collective == Collective::AllReduce;
    match algorithm {
        Algorithm::Ring => true,
        Algorithm::Tree | Algorithm::CollNetChain | Algorithm::NvlsTree => all_reduce,
        Algorithm::Nvls | Algorithm::CollNetDirect => all_reduce || (gathers && release.since(19, 0)),
        Algorithm::Pat => gathers && release.since(23, 0),
    }
}

/// Why a cell is off; `None` if it is on.
pub(crate) fn off(
    setup: &Setup,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
) -> Option<Off> {
    algorithm_off(setup, collective, algorithm)
        .or_else(|| protocol_off(setup, collective, algorithm, protocol))
}

fn algorithm_off(setup: &Setup, collective: Collective, algorithm: Algorithm) -> Option<Off> {
    let impossible = match algorithm {
        Algorithm::Ring | Algorithm::Tree => None,
        Algorithm::CollNetDirect | Algorithm::CollNetChain => collnet_off(setup, collective, algorithm),
        Algorithm::Nvls | Algorithm::NvlsTree => nvls_off(setup, collective, algorithm),
        Algorithm::Pat => pat_off(setup),
    };
    impossible.or_else(|| if is_allowed(setup, collective, algorithm) { None } else { by("NCCL_ALGO") })
}

/// Whether `NCCL_ALGO` leaves the algorithm on, with what older releases do to lists that leave nothing.
fn is_allowed(setup: &Setup, collective: Collective, algorithm: Algorithm) -> bool {
    let allows = |algorithm| setup.environment.allows(collective, algorithm);
    if allows(algorithm) {
        return true;
    }
    let release = setup.release;
    if algorithm == Algorithm::Ring && !release.since(19, 0) && collective != Collective::AllReduce {
        return true;
    }
    let nothing = [Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls, Algorithm::NvlsTree]
        .iter()
        .all(|one| !allows(*one));
    let returns = !release.since(24, 0) && nothing && setup.collnet.is_none();
    returns && matches!(algorithm, Algorithm::Ring | Algorithm::Tree)
}

fn collnet_off(setup: &Setup, collective: Collective, algorithm: Algorithm) -> Option<Off> {
    let Some(collnet) = &setup.collnet else { return because("no network that reduces") };
    if !setup.environment.collnet_enabled() {
        return by("NCCL_COLLNET_ENABLE");
    }
    if setup.graph(algorithm).is_none() {
        return because("no graph");
    }
    if algorithm == Algorithm::CollNetDirect && collective.counts_all_ranks() {
        if !collnet.gathers {
            return because("the network plugin cannot gather");
        }
        if !setup.collnet_reaches_all() {
            return because("more GPUs in a node than heads to the network");
        }
    }
    None
}

fn nvls_off(setup: &Setup, collective: Collective, algorithm: Algorithm) -> Option<Off> {
    if !setup.environment.nvls_enabled() {
        return by("NCCL_NVLS_ENABLE");
    }
    if setup.compute_capability < 90 {
        return because("GPUs below 9.0");
    }
    if setup.graphs.nvls.is_none() {
        return because("no NVLS graph: the node has no NVSwitch that reduces");
    }
    let least = if setup.release.since(28, 0) { 2.0 } else { 3.0 };
    if setup.ranks_per_node() < least {
        return because(format!("fewer than {least} GPUs in a node"));
    }
    let one_node = setup.nodes == 1;
    if algorithm == Algorithm::NvlsTree {
        return if one_node { because("one node") } else { None };
    }
    if one_node {
        return None;
    }
    if setup.collnet.is_none() {
        return because("several nodes without a network that reduces");
    }
    if collective.counts_all_ranks() && !setup.release.since(23, 0) {
        return because("several nodes");
    }
    if collective.counts_all_ranks() && setup.release.since(27, 0) && !setup.collnet_reaches_all() {
        return because("more GPUs in a node than heads to the network");
    }
    None
}

fn pat_off(setup: &Setup) -> Option<Off> {
    if !setup.environment.pat_enabled() {
        return by("NCCL_PAT_ENABLE");
    }
    if setup.nodes != setup.ranks {
        return because("several GPUs in a node");
    }
    if setup.compute_capability < 60 {
        return because("GPUs below 6.0");
    }
    None
}

pub(crate) fn protocol_off(
    setup: &Setup,
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
) -> Option<Off> {
    let plain_only = !matches!(algorithm, Algorithm::Ring | Algorithm::Tree);
    if plain_only && protocol != Protocol::Simple {
        return because("Simple only");
    }
    match setup.environment.permission(collective, protocol) {
        Permission::On => None,
        Permission::Off => by("NCCL_PROTO"),
        Permission::Decide => ll128_off(setup, collective, algorithm),
    }
}

/// The rule of LL128: it needs links that keep the order of the bytes of a line.
fn ll128_off(setup: &Setup, collective: Collective, algorithm: Algorithm) -> Option<Off> {
    let Some(graph) = setup.graph(algorithm) else { return because("no graph") };
    let release = setup.release;
    let (low, high) = (setup.compute_capability, setup.compute_capability_max);
    let farthest = if release == Release::new(2, 18, 1) { PathType::Nvl } else { PathType::Nvb };
    if !graph.type_intra.within(farthest, release) {
        return because(format!("LL128 not over {} inside a node", graph.type_intra));
    }
    let farthest = match low {
        ..90 => PathType::Pxb,
        _ if release.since(27, 7) && !setup.environment.ll128_c2c() => PathType::Pxb,
        _ if release.since(27, 0) && !release.since(27, 7) => PathType::P2c,
        _ => PathType::Pxn,
    };
    if !graph.type_inter.within(farthest, release) {
        return because(format!("LL128 not over {} to the network", graph.type_inter));
    }
    let alike = low == high || (release.since(30, 0) && low >= 90);
    if !alike {
        return because("LL128 not with GPUs of different compute capability");
    }
    let known = match low {
        70 | 80 | 90 => true,
        100 | 120 if release.since(25, 0) => true,
        _ => low >= 70 && release.since(27, 0),
    };
    if !known {
        return because(format!("LL128 not on compute capability {}.{} in {release}", low / 10, low % 10));
    }
    let avoided = setup.cuda_11_8 && low == 90 && setup.ranks == 2;
    if avoided && algorithm == Algorithm::Ring && collective == Collective::AllReduce {
        return because("LL128 not with CUDA 11.8 on two ranks");
    }
    None
}
