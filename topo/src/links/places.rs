//! Where the ranks of a job are: on which node, and on which GPU of it.

use super::error::LinkError;
use super::site::{Fabric, Site};
use crate::nccl::profiles;
use crate::nccl::release::Release;
use crate::nccl::search::{Env, SearchError};
use crate::nccl::system::Node;
use crate::nccl::tuner::{CollNet, Cpu, Environment, Setup};
use crate::{Cluster, Given};

/// Most nodes of a group; more would make its set-up slow.
const NODES_MAX: u32 = 1 << 16;

/// The nodes of a job and the places of its ranks.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Machines that are not alike.
    machines: Vec<Node>,
    ranks: Ranks,
    fabric: Fabric,
    given: Option<Given>,
    collnet: bool,
}

/// The rule by which ranks have places.
#[derive(Clone, Debug)]
enum Ranks {
    /// Rank `r` is GPU `r mod each` of node `r / each`, of so many nodes.
    InOrder { each: u32, nodes: u32 },
    /// As a file says: node, machine, GPU of each.
    Listed(Vec<Place>),
}

/// A rank's node, the number of its machine, and its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    node: u32,
    machine: usize,
    gpu: u32,
}

/// Nodes of a group that use the same GPUs of the same machine.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The machine with these GPUs alone.
    pub(super) node: Node,
    /// Their numbers in the machine.
    pub(super) gpus: Vec<u32>,
    /// How many nodes there are.
    pub(super) count: u32,
}

impl Places {
    pub(super) fn of_site(site: Site) -> Self {
        let each = site.node.gpus().len() as u32;
        let ranks = Ranks::InOrder { each, nodes: site.nodes.min(NODES_MAX) };
        Self { machines: vec![site.node], ranks, fabric: site.fabric, given: None, collnet: false }
    }

    /// The places of a file whose machines are known: because it names them, or because the profile of its GPUs does
    /// (`a100`, `h100`, ...), as in FakeGPU's files; or because it has the graphs of a log.
    pub(super) fn of_cluster(cluster: &Cluster) -> Option<Self> {
        let mut machines: Vec<Node> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut places = vec![Place { node: 0, machine: 0, gpu: 0 }; cluster.world_size() as usize];
        for (number, node) in (0u32..).zip(cluster.nodes()) {
            let name =
                node.machine().map_or_else(|| node.profiles()[0].clone(), |machine| machine.name.clone());
            let known = names.iter().position(|known| *known == name);
            let machine = match (known, node.machine()) {
                (Some(known), _) => known,
                (None, Some(machine)) => {
                    machines.push(machine.node.clone());
                    names.push(name);
                    machines.len() - 1
                }
                (None, None) => {
                    machines.push(of_profile(&name)?);
                    names.push(name);
                    machines.len() - 1
                }
            };
            let is_mixed =
                node.machine().is_none() && node.profiles().iter().any(|one| *one != node.profiles()[0]);
            let count = machines[machine].gpus().len();
            if is_mixed || node.gpus().iter().any(|gpu| *gpu as usize >= count) {
                return None;
            }
            for (&rank, &gpu) in node.ranks().iter().zip(node.gpus()) {
                places[rank as usize] = Place { node: number, machine, gpu };
            }
        }
        let nccl = cluster.nccl();
        let (given, collnet) = (nccl.given.clone(), nccl.collnet);
        Some(Self {
            machines,
            ranks: Ranks::Listed(places),
            fabric: cluster.fabric().network(),
            given,
            collnet,
        })
    }

    pub(super) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The search's variables, with what the file says of the network.
    pub(super) fn env(&self, env: Env) -> Env {
        Env { collnet: env.collnet || self.collnet, ..env }
    }

    fn world(&self) -> u64 {
        match &self.ranks {
            Ranks::InOrder { each, nodes } => u64::from(*each) * u64::from(*nodes),
            Ranks::Listed(places) => places.len() as u64,
        }
    }

    fn place(&self, rank: u32) -> Place {
        match &self.ranks {
            Ranks::InOrder { each, .. } => Place { node: rank / each, machine: 0, gpu: rank % each },
            Ranks::Listed(places) => places[rank as usize],
        }
    }

    /// The nodes that have ranks of a group, each with the GPUs that these use.
    ///
    /// # Errors
    ///
    /// [`LinkError::Group`] for ranks that are no group; [`LinkError::Search`] for a machine that cannot be.
    pub(super) fn members(&self, ranks: &[u32]) -> Result<Vec<(u32, Vec<u32>)>, LinkError> {
        for machine in &self.machines {
            machine.check().map_err(SearchError::from)?;
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        let all = self.world();
        if let Some(rank) = sorted.last().filter(|&&rank| u64::from(rank) >= all) {
            return Err(LinkError::Group(format!("rank {rank} of {all}")));
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LinkError::Group(format!("rank {} twice", pair[0])));
        }
        if sorted.len() < 2 {
            return Err(LinkError::Group(format!("{} ranks", sorted.len())));
        }
        let mut places: Vec<Place> = sorted.iter().map(|&rank| self.place(rank)).collect();
        places.sort_unstable();
        let of_node = |places: &[Place]| (places[0].node, places.iter().map(|place| place.gpu).collect());
        Ok(places.chunk_by(|a, b| a.node == b.node).map(of_node).collect())
    }

    /// The kinds of nodes among the members, the fullest first.
    pub(super) fn kinds(&self, members: &[(u32, Vec<u32>)]) -> Vec<Kind> {
        let machine_of = |node: u32| match &self.ranks {
            Ranks::InOrder { .. } => 0,
            Ranks::Listed(places) => {
                places.iter().find(|place| place.node == node).map_or(0, |place| place.machine)
            }
        };
        let mut kinds: Vec<(usize, &[u32], u32)> = Vec::new();
        for (node, gpus) in members {
            let machine = machine_of(*node);
            match kinds.iter_mut().find(|(known, set, _)| *known == machine && *set == gpus.as_slice()) {
                Some((_, _, count)) => *count += 1,
                None => kinds.push((machine, gpus, 1)),
            }
        }
        kinds.sort_by_key(|(_, gpus, _)| std::cmp::Reverse(gpus.len()));
        let kind = |(machine, gpus, count): (usize, &[u32], u32)| Kind {
            node: self.machines[machine].with_gpus(gpus),
            gpus: gpus.to_vec(),
            count,
        };
        kinds.into_iter().map(kind).collect()
    }

    /// The communicator whose graphs the file has: that of all ranks.
    pub(super) fn given(
        &self,
        ranks: &[u32],
        members: &[(u32, Vec<u32>)],
        release: Release,
        environment: &Environment,
    ) -> Option<Setup> {
        let given = self.given.as_ref().filter(|_| ranks.len() as u64 == self.world())?;
        let sm = || self.machines.iter().flat_map(Node::gpus).map(|gpu| gpu.sm);
        let low = given.compute_capability.or_else(|| sm().min())?;
        let cpu = self.machines.first().map_or(Cpu::Intel, Setup::cpu_of);
        let has_collnet = self.collnet && (given.direct.is_some() || given.chain.is_some());
        let heads = members.iter().map(|(_, gpus)| gpus.len() as u32).max().unwrap_or(1);
        let collnet = has_collnet.then(|| CollNet {
            direct: given.direct.clone(),
            chain: given.chain.clone(),
            heads,
            gathers: true,
        });
        Some(Setup {
            release,
            ranks: ranks.len() as u32,
            nodes: members.len() as u32,
            compute_capability: low,
            compute_capability_max: given.compute_capability.or_else(|| sm().max())?,
            cpu: given.cpu.unwrap_or(cpu),
            plugin_latency_us: given.plugin_latency_us,
            graphs: given.graphs.clone(),
            collnet,
            cuda_11_8: false,
            environment: environment.clone(),
        })
    }
}

/// The machine that FakeGPU's profile of a GPU stands for: the one that makers sell with it.
fn of_profile(name: &str) -> Option<Node> {
    const MORE: [(&str, &str); 6] = [
        ("v100", "dgx-1v"),
        ("t4", "8xt4"),
        ("a10", "8xa10"),
        ("l40s", "8xl40s"),
        ("rtx4090", "8xrtx4090"),
        ("rtx3090", "2xrtx3090-nvlink"),
    ];
    let listed = MORE.iter().find(|(known, _)| *known == name).map(|(_, machine)| (*machine).to_owned());
    profiles::find(&listed.unwrap_or_else(|| format!("dgx-{name}"))).ok()
}
