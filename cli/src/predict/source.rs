//! Where the graphs of a communicator come from.

use std::path::PathBuf;

use ::topo::nccl::graph_file;
use ::topo::nccl::regular::Machine;
use ::topo::nccl::release::Release;
use ::topo::nccl::tuner::{Environment, Setup};
use anyhow::{Context, Result, ensure};

use super::Args;

/// A machine or a file, and the variables of the command line.
pub(super) struct Source {
    place: Place,
    variables: Vec<(String, String)>,
}

enum Place {
    Profile { name: String, nodes: u32 },
    File(PathBuf),
}

impl Source {
    pub(super) fn new(args: &Args) -> Result<Self> {
        let place = match (&args.profile, &args.graph) {
            (Some(name), _) => Place::Profile { name: name.clone(), nodes: args.nodes },
            (None, Some(path)) => Place::File(path.clone()),
            (None, None) => anyhow::bail!("give --profile or --graph"),
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
            Place::Profile { name, nodes } => graphs_of(name, *nodes, release, environment),
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
            Place::Profile { name, nodes: 1 } => name.clone(),
            Place::Profile { name, nodes } => format!("{nodes} x {name}"),
            Place::File(path) => path.display().to_string(),
        }
    }
}

/// The communicator of all GPUs of `nodes` nodes of a profile.
fn graphs_of(profile: &str, nodes: u32, release: Release, environment: Environment) -> Result<Setup> {
    let given = environment.search().first().map(|(name, _)| name.clone());
    ensure!(
        given.is_none(),
        "{}: the closed form of a profile's graphs does not know it; give the graphs from a log with --graph",
        given.unwrap_or_default()
    );
    Ok(Machine::find(profile)?.setup(nodes, environment, release)?)
}

/// `NAME=VALUE` in its two parts.
pub(super) fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').with_context(|| {
        let shown: String = text.chars().take(60).collect();
        format!("`{shown}`: write a variable as NAME=VALUE, such as NCCL_ALGO=Tree")
    })?;
    Ok((name.to_owned(), value.to_owned()))
}
