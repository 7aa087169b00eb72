//! How long an operation would take on the machine of a cluster file, if there is one, or on this host.
//!
//! ```text
//!  cluster file of as many ranks, whose GPUs are those of a known machine    NCCL's tuner, as `topo` models it
//!  cluster file of as many ranks                                             a ring over the file's links
//!  none                                                                      a ring on this host
//! ```

use crate::env;
use crate::op::Op;
use ringccl::settings::table;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use topo::Cluster;
use topo::nccl::release::Release;
use topo::nccl::system::{CpuKind, Node};
use topo::nccl::tuner::{Collective, Cpu, Environment, Operation, Setup, Tuner};
use topo::nccl::{profiles, search};

/// What a hand-over between two ranks takes, in microseconds, and bytes per microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Link {
    hop_us: f64,
    bytes_per_us: f64,
}

/// This host.
///
/// *Source*: measured on the project's kind of machine: a hand-over takes about 1 us where each rank has a core, memory
/// is copied at 6.5 GB/s out of the cache.
const HOST: Link = Link { hop_us: 1.0, bytes_per_us: 6500.0 };

/// What times come from.
#[derive(Debug)]
enum Model {
    Tuned(Box<Tuner>),
    Ring(Link),
}

/// The model for a communicator of `nranks`, made once.
fn model(nranks: u32) -> Arc<Model> {
    static MODELS: Mutex<BTreeMap<u32, Arc<Model>>> = Mutex::new(BTreeMap::new());
    let mut models = crate::comm::lock(&MODELS);
    let make = || Arc::new(of_cluster(nranks).unwrap_or(Model::Ring(HOST)));
    Arc::clone(models.entry(nranks).or_insert_with(make))
}

/// The model of the cluster file, if there is one for as many ranks.
fn of_cluster(nranks: u32) -> Option<Model> {
    let vars = env::vars();
    let path = table::CLUSTER_CONFIG.get(&vars).ok()??;
    let cluster = Cluster::load(&path).map_err(|error| crate::log::warn(&error.to_string())).ok()?;
    cluster.check_world_size(nranks).ok()?;
    if let Some(tuner) = tuner(&cluster) {
        return Some(Model::Tuned(Box::new(tuner)));
    }
    // The slowest link of a ring through all ranks.
    let fabric = cluster.fabric();
    let link = if cluster.nodes().len() > 1 { fabric.inter_node() } else { fabric.intra_node() };
    let gigabits = link.bandwidth_gbps() / link.oversubscription();
    Some(Model::Ring(Link { hop_us: link.latency_us(), bytes_per_us: gigabits * 125.0 }))
}

/// NCCL's tuner, where every node is a known machine with a rank for each GPU.
fn tuner(cluster: &Cluster) -> Option<Tuner> {
    let name = cluster.profile_of(0);
    let nodes = cluster.nodes().len() as u32;
    let node = [name.to_owned(), format!("dgx-{name}")].iter().find_map(|name| profiles::find(name).ok())?;
    let gpus = node.gpus().len() as u32;
    let is_alike = (0..cluster.world_size()).all(|rank| cluster.profile_of(rank) == name);
    if !is_alike || cluster.world_size() != gpus.checked_mul(nodes)? {
        return None;
    }
    Tuner::new(setup(&node, nodes)?).ok()
}

fn setup(node: &Node, nodes: u32) -> Option<Setup> {
    let release = Release::NEWEST;
    let vars = env::vars();
    let set = ["NCCL_ALGO", "NCCL_PROTO"].map(|name| (name, env::text(&vars, name)));
    let pairs = set.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let environment = Environment::parse(pairs, release).ok()?;
    let found = search::graphs_of(node, nodes, release, &search::Env::default()).ok()?;
    let gpus = node.gpus();
    let capabilities = || gpus.iter().map(|gpu| gpu.sm);
    Some(Setup {
        release,
        ranks: (gpus.len() as u32).checked_mul(nodes)?,
        nodes,
        compute_capability: capabilities().min().unwrap_or(0),
        compute_capability_max: capabilities().max().unwrap_or(0),
        cpu: match node.cpus.first()?.kind {
            CpuKind::Intel(_) => Cpu::Intel,
            CpuKind::Amd => Cpu::Amd,
            CpuKind::Arm => Cpu::Arm,
            CpuKind::Power => Cpu::Power,
            CpuKind::Zhaoxin(_) => Cpu::Zhaoxin,
        },
        plugin_latency_us: found.net_latency_us,
        graphs: found.graphs,
        collnet: None,
        cuda_11_8: false,
        environment,
    })
}

/// What the tuner is asked about an operation.
fn asked(op: &Op, collective: Collective) -> Operation {
    let all = if collective.counts_all_ranks() { u64::from(op.comm.about.nranks) } else { 1 };
    Operation::new(collective, (op.bytes() as u64).saturating_mul(all))
}

/// The time of a collective in microseconds; `None` for messages.
pub(crate) fn time_us(op: &Op) -> Option<f32> {
    let collective = op.collective()?;
    match &*model(op.comm.about.nranks) {
        Model::Tuned(tuner) => tuner.choose(asked(op, collective)).ok().map(|choice| choice.best.time),
        Model::Ring(link) => Some(ring_us(*link, op.comm.about.nranks, op.bytes() as f64, collective) as f32),
    }
}

/// What NCCL would print of its choice, if the cluster file's machine is known.
pub(crate) fn line(op: &Op) -> Option<String> {
    let collective = op.collective()?;
    let model = model(op.comm.about.nranks);
    let Model::Tuned(tuner) = &*model else { return None };
    let operation = asked(op, collective);
    let best = tuner.choose(operation).ok()?.best;
    let spread = tuner.spread(operation, best.algorithm, best.protocol);
    tuner.line(operation, &best, spread)
}

/// What a ring takes: hops one after the other, and every byte that a rank moves.
fn ring_us(link: Link, nranks: u32, bytes: f64, collective: Collective) -> f64 {
    let ranks = f64::from(nranks);
    let (steps, moved) = match collective {
        Collective::AllReduce => (2.0 * (ranks - 1.0), 2.0 * bytes * (ranks - 1.0) / ranks),
        Collective::AllGather | Collective::ReduceScatter => (ranks - 1.0, bytes * (ranks - 1.0)),
        Collective::Broadcast | Collective::Reduce => (ranks - 1.0, bytes),
    };
    steps * link.hop_us + moved / link.bytes_per_us
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of rings by hand: two hops of a microsecond each and a megabyte over a link of 1000 bytes a microsecond.
    #[test]
    fn rings_take_hops_and_bytes() {
        let link = Link { hop_us: 1.0, bytes_per_us: 1000.0 };
        assert_eq!(ring_us(link, 2, 1e6, Collective::AllReduce), 1002.0);
        assert_eq!(ring_us(link, 4, 1e6, Collective::AllGather), 3003.0);
        assert_eq!(ring_us(link, 3, 1e6, Collective::Broadcast), 1002.0);
        assert_eq!(ring_us(link, 1, 1e6, Collective::AllReduce), 0.0);
    }

    /// A known machine has NCCL's tuner, whose answer is a time and a line.
    #[test]
    fn known_machines_have_a_tuner() {
        let tuner = Tuner::new(setup(&profiles::find("dgx-h100").unwrap(), 1).unwrap()).unwrap();
        let operation = Operation::new(Collective::AllReduce, 1 << 20);
        let best = tuner.choose(operation).unwrap().best;
        let spread = tuner.spread(operation, best.algorithm, best.protocol);
        let line = tuner.line(operation, &best, spread).unwrap();
        assert!(best.time > 0.0 && line.contains("1048576 Bytes -> Algo "), "{line}");
    }
}
