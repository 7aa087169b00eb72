//! Where the graphs of a communicator come from.

use std::fs;
use std::path::{Path, PathBuf};

use ::topo::Cluster;
use ::topo::links::{Calibration, Fabric, Model, Pricer, Site};
use ::topo::nccl::release::Release;
use ::topo::nccl::system::{Node, import_file, load_nodes};
use ::topo::nccl::tuner::{Environment, Setup};
use ::topo::nccl::{graph_file, graph_xml, profiles, search};
use anyhow::{Context, Result, bail, ensure};

use super::Args;

/// A machine or a file, and the variables of the command line.
pub(super) struct Source {
    place: Place,
    variables: Vec<(String, String)>,
    fabric: Fabric,
    /// Graphs instead of a search, and where to write those in use.
    graphs: Option<PathBuf>,
    dump: Option<PathBuf>,
    release: Release,
    collnet: bool,
}

/// What a sweep changes of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    /// Nodes instead of those of the command line.
    pub(super) nodes: Option<u32>,
    /// Speed of all network ports in 10^6 bits per second.
    pub(super) mbps: Option<u32>,
}

enum Place {
    Machine {
        name: String,
        node: Node,
        nodes: u32,
    },
    File(PathBuf),
    /// The ranks of a cluster file that make the communicator.
    Cluster(Box<Cluster>, Vec<u32>),
}

impl Source {
    pub(super) fn new(args: &Args) -> Result<Self> {
        let mut variables: Vec<(String, String)> =
            args.env.iter().map(|text| variable(text)).collect::<Result<_>>()?;
        let mut file = |name: &str| {
            let last =
                variables.iter().rfind(|(known, _)| known == name).map(|(_, value)| PathBuf::from(value));
            variables.retain(|(known, _)| known != name);
            last
        };
        let (topology, graphs) = (file("NCCL_TOPO_FILE"), file("NCCL_GRAPH_FILE"));
        let dump = file("NCCL_GRAPH_DUMP_FILE");
        let place = match (&args.profile, &args.graph) {
            _ if args.cluster.is_some() => {
                let given = [&topology, &graphs, &dump].into_iter().any(Option::is_some);
                ensure!(
                    !given,
                    "NCCL_TOPO_FILE, NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE are for a machine, and --cluster names its \
                     own; give a --profile instead"
                );
                let cluster = Cluster::load(args.cluster.clone().unwrap_or_default())?;
                let ranks = ranks(args.ranks.as_deref(), cluster.world_size())?;
                Place::Cluster(Box::new(cluster), ranks)
            }
            (Some(_), _) | (_, Some(_)) if topology.is_some() => bail!(
                "NCCL_TOPO_FILE describes the machine, and --profile or --graph does too; keep one of them"
            ),
            (None, None) if topology.is_some() => {
                let path = topology.unwrap_or_default();
                let imported = import_file(&path)?;
                let name =
                    path.file_stem().map_or("machine".into(), |stem| stem.to_string_lossy().into_owned());
                Place::Machine { name, node: imported.node, nodes: args.nodes }
            }
            (None, Some(_)) if graphs.is_some() || dump.is_some() => bail!(
                "NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE are for the graphs of a machine, and --graph gives those of \
                 a log; give a --profile instead"
            ),
            (Some(name), _) => {
                let node = match &args.machines {
                    Some(path) => described(path, name)?,
                    None => profiles::find(name)?,
                };
                Place::Machine { name: name.clone(), node, nodes: args.nodes }
            }
            (None, Some(path)) => Place::File(path.clone()),
            (None, None) => bail!("give --profile, --cluster, --graph, or --env NCCL_TOPO_FILE=FILE"),
        };
        let fabric = Fabric {
            nodes_per_leaf: args.nodes_per_leaf,
            oversubscription: args.oversubscription,
            rails: args.rails,
        };
        fabric.check()?;
        let of_file = match &place {
            Place::Cluster(cluster, _) => cluster.nccl().release,
            _ => Release::NEWEST,
        };
        let release = args.nccl.unwrap_or(of_file);
        Ok(Self { place, variables, fabric, graphs, dump, release, collnet: args.collnet })
    }

    /// The release that is asked about.
    pub(super) fn release(&self) -> Release {
        self.release
    }

    /// The communicator under `release` on its links, with `more` variables behind those of the command line.
    pub(super) fn model(&self, release: Release, more: &[(String, String)]) -> Result<Model> {
        self.model_of(release, more, Size::default())
    }

    /// The same with another number of nodes, or with other network cards.
    pub(super) fn model_of(&self, release: Release, more: &[(String, String)], size: Size) -> Result<Model> {
        let all = self.variables.iter().chain(more);
        let environment =
            Environment::parse(all.map(|(name, value)| (name.as_str(), value.as_str())), release)?;
        let numbers = Calibration::default();
        match &self.place {
            Place::Machine { node, nodes, .. } => {
                let nodes = size.nodes.unwrap_or(*nodes);
                ensure!(nodes > 0, "--nodes 0: give at least one node");
                let node = match size.mbps {
                    Some(mbps) => node.with_port_speed(mbps),
                    None => node.clone(),
                };
                let site = Site { node, nodes, fabric: self.fabric };
                let given = environment.search().iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let env = search::Env { collnet: self.collnet, ..search::Env::from_pairs(given)? };
                let found = match &self.graphs {
                    Some(path) => graph_xml::load(path, &site.node, nodes)?,
                    None => search::graphs_of(&site.node, nodes, release, &env)?,
                };
                if let Some(path) = &self.dump {
                    fs::write(path, graph_xml::write(&found))
                        .with_context(|| format!("cannot write `{}`", path.display()))?;
                }
                let setup = Setup::of_search(&site.node, nodes, release, &found, environment);
                Ok(Model::of_search(setup, &site, &found, &env, numbers)?)
            }
            Place::Cluster(cluster, ranks) => {
                ensure!(
                    size == Size::default(),
                    "--sweep-nodes and --sweep-nic change one machine; give a --profile instead of --cluster"
                );
                let all: Vec<(String, String)> = self.variables.iter().chain(more).cloned().collect();
                let pricer = Pricer::of_cluster_as(cluster, release, &all, numbers)?;
                let pricer = pricer.with_context(|| {
                    format!(
                        "`{}` says too little of its machines for NCCL's tuner: give each node a `machine`, such as dgx-h100",
                        cluster.path().display()
                    )
                })?;
                Ok(pricer.model(ranks)?)
            }
            Place::File(path) => {
                let given = environment.search().first().map(|(name, _)| name.clone());
                ensure!(
                    given.is_none(),
                    "{}: it changes what the search finds, and --graph gives that; leave it out, or give a --profile",
                    given.unwrap_or_default()
                );
                ensure!(
                    size == Size::default(),
                    "--sweep-nodes and --sweep-nic need a machine to search; give a --profile instead of --graph"
                );
                let setup = graph_file::load(path, release, environment)?;
                Ok(Model::of_graphs(setup, &self.fabric, numbers)?)
            }
        }
    }

    /// A name for titles.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::Machine { name, nodes: 1, .. } => name.clone(),
            Place::Machine { name, nodes, .. } => format!("{nodes} x {name}"),
            Place::File(path) => path.display().to_string(),
            Place::Cluster(cluster, _) => cluster.name().to_owned(),
        }
    }
}

/// Ranks by a list such as `0-7,16`; all of them without one.
fn ranks(list: Option<&str>, world: u32) -> Result<Vec<u32>> {
    let Some(list) = list else { return Ok((0..world).collect()) };
    let number = |text: &str| {
        let number = text.trim().parse::<u32>().ok().filter(|rank| *rank < world);
        number
            .with_context(|| format!("--ranks {list}: write numbers from 0 to {}, such as 0-3,8", world - 1))
    };
    let mut ranks = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        ranks.extend(number(first)?..=number(last)?);
    }
    Ok(ranks)
}

/// The machine of this name in a file of descriptions.
fn described(path: &Path, name: &str) -> Result<Node> {
    let mut all = load_nodes(path)?;
    let Some(found) = all.iter().position(|(known, _)| known == name) else {
        let known: Vec<&str> = all.iter().take(40).map(|(known, _)| known.as_str()).collect();
        bail!("`{}` describes no machine `{name}`; it has {}", path.display(), known.join(", "));
    };
    Ok(all.swap_remove(found).1)
}

/// `NAME=VALUE` in its two parts.
pub(super) fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').with_context(|| {
        let shown: String = text.chars().take(60).collect();
        format!("`{shown}`: write a variable as NAME=VALUE, such as NCCL_ALGO=Tree")
    })?;
    Ok((name.to_owned(), value.to_owned()))
}
