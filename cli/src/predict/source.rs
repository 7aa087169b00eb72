//! Where the graphs of a communicator come from.

use std::path::{Path, PathBuf};

use ::topo::nccl::release::Release;
use ::topo::nccl::system::{CpuKind, Node, load_nodes};
use ::topo::nccl::tuner::{Cpu, Environment, Setup};
use ::topo::nccl::{graph_file, profiles, search};
use anyhow::{Context, Result, bail, ensure};

use super::Args;

/// A machine or a file, and the variables of the command line.
pub(super) struct Source {
    place: Place,
    variables: Vec<(String, String)>,
}

enum Place {
    Machine { name: String, node: Node, nodes: u32 },
    File(PathBuf),
}

impl Source {
    pub(super) fn new(args: &Args) -> Result<Self> {
        let place = match (&args.profile, &args.graph) {
            (Some(name), _) => {
                let node = match &args.machines {
                    Some(path) => described(path, name)?,
                    None => profiles::find(name)?,
                };
                Place::Machine { name: name.clone(), node, nodes: args.nodes }
            }
            (None, Some(path)) => Place::File(path.clone()),
            (None, None) => bail!("give --profile or --graph"),
        };
        let variables = args.env.iter().map(|text| variable(text)).collect::<Result<_>>()?;
        Ok(Self { place, variables })
    }

    /// The communicator under `release`, with `more` variables behind those of the command line.
    pub(super) fn setup(&self, release: Release, more: &[(String, String)]) -> Result<Setup> {
        let all = self.variables.iter().chain(more);
        let environment =
            Environment::parse(all.map(|(name, value)| (name.as_str(), value.as_str())), release)?;
        match &self.place {
            Place::Machine { node, nodes, .. } => searched(node, *nodes, release, environment),
            Place::File(path) => {
                let given = environment.search().first().map(|(name, _)| name.clone());
                ensure!(
                    given.is_none(),
                    "{}: it changes what the search finds, and --graph gives that; leave it out, or give a --profile",
                    given.unwrap_or_default()
                );
                Ok(graph_file::load(path, release, environment)?)
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

/// The communicator of all GPUs of `nodes` nodes like `node`, by the search.
fn searched(node: &Node, nodes: u32, release: Release, environment: Environment) -> Result<Setup> {
    ensure!(nodes > 0, "--nodes 0: give at least one node");
    let given = environment.search().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let found = search::graphs_of(node, nodes, release, &search::Env::from_pairs(given)?)?;
    let gpus = node.gpus();
    let capabilities = || gpus.iter().map(|gpu| gpu.sm);
    let cpu = node.cpus.first().context("the machine has no CPU")?;
    Ok(Setup {
        release,
        ranks: (gpus.len() as u32).saturating_mul(nodes),
        nodes,
        compute_capability: capabilities().min().unwrap_or(0),
        compute_capability_max: capabilities().max().unwrap_or(0),
        cpu: match cpu.kind {
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

/// `NAME=VALUE` in its two parts.
pub(super) fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').with_context(|| {
        let shown: String = text.chars().take(60).collect();
        format!("`{shown}`: write a variable as NAME=VALUE, such as NCCL_ALGO=Tree")
    })?;
    Ok((name.to_owned(), value.to_owned()))
}
