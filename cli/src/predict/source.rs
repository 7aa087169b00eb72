//! Where the graphs of a communicator come from.

use std::fs;
use std::path::{Path, PathBuf};

use ::topo::links::{Calibration, Fabric, Model, Site};
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
    Machine { name: String, node: Node, nodes: u32 },
    File(PathBuf),
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
            (None, None) => bail!("give --profile, --graph, or --env NCCL_TOPO_FILE=FILE"),
        };
        let fabric = Fabric { nodes_per_leaf: args.nodes_per_leaf, oversubscription: args.oversubscription, rails: args.rails };
        fabric.check()?;
        Ok(Self { place, variables, fabric, graphs, dump })
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
                let env = search::Env::from_pairs(given)?;
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
        }
    }
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
