//! How long one operation would take on the machine of a cluster file, if there is one, or on this host.
//!
//! ```text
//!  cluster file whose machines are known       NCCL's tuner, as `topo` models it
//!  cluster file                                a ring over the file's links
//!  none                                        a ring on this host
//! ```

use super::world::World;
use crate::settings::{self, Vars, table};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use topo::links::Group;
use topo::nccl::tuner::{Collective, Operation};

/// An operation as the tuner knows it, with the bytes of one rank's block or buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// The collective.
    pub collective: Collective,
    /// Bytes of the buffer; of one rank's block for all-gather and reduce-scatter.
    pub bytes: u64,
}

/// What a hand-over between two ranks takes, in microseconds, and bytes per microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hop {
    hop_us: f64,
    bytes_per_us: f64,
}

/// This host.
///
/// *Source*: measured on the project's kind of machine: a hand-over takes about 1 us where each rank has a core, memory
/// is copied at 6.5 GB/s out of the cache.
const HOST: Hop = Hop { hop_us: 1.0, bytes_per_us: 6500.0 };

impl Hop {
    /// The slowest link of a ring through all ranks of a file.
    pub(super) fn of(world: &World) -> Self {
        let cluster = world.cluster();
        let fabric = cluster.fabric();
        let link = if cluster.nodes().len() > 1 { fabric.inter_node() } else { fabric.intra_node() };
        let gigabits = link.bandwidth_gbps() / link.oversubscription();
        Self { hop_us: link.latency_us(), bytes_per_us: gigabits * 125.0 }
    }

    /// What a ring takes: hops one after the other, and every byte that a rank moves; `bytes` of all ranks' blocks.
    pub(super) fn ring_us(self, nranks: u32, bytes: f64, collective: Collective) -> f64 {
        let ranks = f64::from(nranks);
        let (steps, moved) = match collective {
            Collective::AllReduce => (2.0 * (ranks - 1.0), 2.0 * bytes * (ranks - 1.0) / ranks),
            Collective::AllGather | Collective::ReduceScatter => (ranks - 1.0, bytes * (ranks - 1.0) / ranks),
            Collective::Broadcast | Collective::Reduce => (ranks - 1.0, bytes),
        };
        steps * self.hop_us + moved / self.bytes_per_us
    }
}

/// Answers for communicators of some number of ranks.
#[derive(Clone, Debug)]
pub struct Estimator {
    nranks: u32,
    group: Option<Arc<Group>>,
    ring: Hop,
}

impl Estimator {
    /// The one for the first `nranks` ranks of the cluster file that the variables name, made once; a file that cannot
    /// be read is told to `warn` and counts as none.
    pub fn of_vars(nranks: u32, vars: &Vars, warn: impl Fn(&str)) -> Arc<Self> {
        static KNOWN: Mutex<BTreeMap<u32, Arc<Estimator>>> = Mutex::new(BTreeMap::new());
        let mut known = shmring::sync::lock(&KNOWN);
        let estimator = known.entry(nranks).or_insert_with(|| {
            let path = table::CLUSTER_CONFIG.get(vars).ok().flatten();
            let world =
                path.and_then(|path| World::load(&path, vars).map_err(|error| warn(&error.to_string())).ok());
            Arc::new(Self::of(nranks, world.as_deref()))
        });
        Arc::clone(estimator)
    }

    fn of(nranks: u32, world: Option<&World>) -> Self {
        let fitting = world.filter(|world| nranks <= world.cluster().world_size());
        let ranks: Vec<u32> = (0..nranks).collect();
        let group = fitting.and_then(|world| world.group(&ranks));
        Self { nranks, group, ring: fitting.map_or(HOST, Hop::of) }
    }

    fn operation(&self, what: What) -> Operation {
        let all = if what.collective.counts_all_ranks() { u64::from(self.nranks) } else { 1 };
        Operation::new(what.collective, what.bytes.saturating_mul(all))
    }

    /// The time by which NCCL would choose, or of a ring, in microseconds; `None` where NCCL has nothing to choose.
    pub fn time_us(&self, what: What) -> Option<f32> {
        let operation = self.operation(what);
        match &self.group {
            Some(group) => group.computed(operation).ok().map(|price| price.tuner_us),
            None => Some(self.ring.ring_us(self.nranks, operation.bytes as f64, what.collective) as f32),
        }
    }

    /// What NCCL would print of its choice, if the machines are known.
    pub fn line(&self, what: What) -> Option<String> {
        line(self.group.as_ref()?, self.operation(what))
    }

    /// What NCCL would print of the communicator; nothing if the machines are not known.
    pub fn head(&self) -> Head {
        self.group.as_ref().map(|group| Head::of(group)).unwrap_or_default()
    }
}

/// What NCCL prints of a communicator when it is made, behind `NCCL INFO`, by subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// INIT: release, size, channels.
    pub init: Vec<String>,
    /// GRAPH: the graphs.
    pub graphs: Vec<String>,
    /// TUNING: the table.
    pub table: Vec<String>,
}

impl Head {
    pub(super) fn of(group: &Group) -> Self {
        let tuner = group.model().tuner();
        let setup = tuner.setup();
        let local = setup.ranks.div_ceil(setup.nodes);
        let nvls = if setup.graphs.nvls.is_some() { setup.nvls_channels() } else { 0 };
        let init = vec![
            format!("NCCL version {}+model", setup.release),
            format!(
                "comm 0x0 rank 0 nRanks {} nNodes {} localRanks {local} localRank 0 MNNVL 0",
                setup.ranks, setup.nodes
            ),
            format!("{} coll channels, 0 collnet channels, {nvls} nvls channels", setup.channels()),
        ];
        Self { init, graphs: tuner.graph_lines(), table: tuner.table_lines() }
    }
}

/// The line of an operation.
pub(super) fn line(group: &Group, operation: Operation) -> Option<String> {
    let tuner = group.model().tuner();
    let best = tuner.choose(operation).map_err(|error| settings::detail(|| error.to_string())).ok()?.best;
    let spread = tuner.spread(operation, best.algorithm, best.protocol);
    tuner.line(operation, &best, spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topo::Cluster;

    /// Times of rings by hand: two hops of a microsecond each and a megabyte over a link of 1000 bytes a microsecond.
    #[test]
    fn rings_take_hops_and_bytes() {
        let link = Hop { hop_us: 1.0, bytes_per_us: 1000.0 };
        assert_eq!(link.ring_us(2, 1e6, Collective::AllReduce), 1002.0);
        assert_eq!(link.ring_us(4, 4e6, Collective::AllGather), 3003.0);
        assert_eq!(link.ring_us(3, 1e6, Collective::Broadcast), 1002.0);
        assert_eq!(link.ring_us(1, 1e6, Collective::AllReduce), 0.0);
    }

    /// A known machine has NCCL's tuner, whose answer is a time, a line and a table; without a file there is a ring.
    #[test]
    fn known_machines_have_a_tuner() {
        let text = "version: 1
cluster: {name: lab, default_backend: nccl}
nccl: {version: 2.22.3}
nodes: [{id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1, 2, 3]}]
fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300}
  inter_node: {type: infiniband, bandwidth_gbps: 200}
";
        let world = World::of(Cluster::parse("lab", text).unwrap(), &[("NCCL_ALGO".into(), "Ring".into())]);
        let estimator = Estimator::of(4, Some(&world));
        let what = What { collective: Collective::AllReduce, bytes: 64 << 20 };
        assert_eq!(estimator.time_us(what), Some(867.660_77));
        assert_eq!(estimator.line(what).unwrap(), "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
        let Head { init, graphs, table } = estimator.head();
        assert_eq!(init[2], "12 coll channels, 0 collnet channels, 0 nvls channels");
        assert!(
            graphs[0].starts_with("Pattern 4, ") && table.iter().any(|row| row.contains("28.8/  80.0")),
            "{table:?}"
        );
        // Trees are off by the variable.
        assert!(!table.iter().any(|row| row.contains("168.0/  55.2")), "{table:?}");
        let none = Estimator::of(4, None);
        assert!(none.line(what).is_none() && none.time_us(what).unwrap() > 10_000.0);
        assert!(Estimator::of(5, Some(&world)).line(what).is_none());
    }
}
