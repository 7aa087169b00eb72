//! `ringccl topo`: cluster files and descriptions of nodes checked, shown and imported, logs explained, and how the
//! other commands come to their cluster file.

mod infer;
mod nodes;
mod picture;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::topo::nccl::system::{import_file, to_yaml};
use ::topo::{Cluster, ConfigError, LinkClass, Node};
use anyhow::{Context, Result};
use clap::Subcommand;
use ringccl::settings::Vars;

use self::nodes::Kind;
use crate::print::print;

/// Variables that name a cluster file where no option does; the second is FakeGPU's.
const CLUSTER_VARIABLES: [&str; 2] = ["RINGCCL_CLUSTER_CONFIG", "FAKEGPU_CLUSTER_CONFIG"];

/// Options of `ringccl topo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List every problem of a cluster file, of descriptions of nodes or of a dump of NCCL; exit code 1 if there is one
    Check(FileArgs),
    /// Show nodes, ranks, GPUs and links of a file, or of a machine that is known by name
    Show(ShowArgs),
    /// Turn NCCL's dump of a node (the file of NCCL_TOPO_DUMP_FILE) into a description in YAML
    Import(ImportArgs),
    /// Find what NCCL was told from the lines of its log
    Infer(infer::Args),
}

#[derive(clap::Args)]
struct FileArgs {
    /// File (YAML, or XML of NCCL) [env: RINGCCL_CLUSTER_CONFIG, FAKEGPU_CLUSTER_CONFIG]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Which node, where a file describes several
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Write a picture of the node to this file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ImportArgs {
    /// Dump of NCCL (XML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the node [default: that of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Checks, shows or imports a file.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Check(args) => check(&args),
        Command::Show(args) => show_file(&args),
        Command::Import(args) => import(&args),
        Command::Infer(args) => infer::main(&args),
    }
}

fn source(args: &FileArgs) -> Result<Source> {
    Source::find(args.file.as_deref())
        .context("which cluster file? name one, or set RINGCCL_CLUSTER_CONFIG or FAKEGPU_CLUSTER_CONFIG")
}

/// Prints an error as it is: one problem a line, in the form that editors follow.
fn refuse(error: &dyn std::fmt::Display) -> Result<ExitCode> {
    eprintln!("{error}");
    Ok(ExitCode::FAILURE)
}

fn check(args: &FileArgs) -> Result<ExitCode> {
    let source = source(args)?;
    let kind = nodes::kind_of(&source.path);
    let what = if kind == Kind::Cluster {
        match source.load() {
            Ok(cluster) => counts(&cluster),
            Err(error) => return refuse(&error),
        }
    } else {
        match nodes::load(&source.path, kind) {
            Ok(nodes) => nodes::counts(&nodes),
            Err(error) => return refuse(&error),
        }
    };
    print(&format!("{}: ok, {what}\n", source.path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn show_file(args: &ShowArgs) -> Result<ExitCode> {
    let source = source(&args.file)?;
    let kind = nodes::kind_of(&source.path);
    let described = match nodes::machine(&source.path) {
        Some(machine) => vec![machine],
        None if kind == Kind::Cluster => {
            let cluster = match source.load() {
                Ok(cluster) => cluster,
                Err(error) => return refuse(&error),
            };
            if args.svg.is_some() || args.node.is_some() {
                anyhow::bail!("--svg and --node are for descriptions of nodes; this is a cluster file");
            }
            print(&show(&cluster))?;
            return Ok(ExitCode::SUCCESS);
        }
        None => match nodes::load(&source.path, kind) {
            Ok(nodes) => nodes,
            Err(error) => return refuse(&error),
        },
    };
    if let Some(path) = &args.svg {
        let (name, node) = nodes::one(described, args.node.as_deref())?;
        std::fs::write(path, picture::svg(&name, &node))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = match &args.node {
        Some(_) => vec![nodes::one(described, args.node.as_deref())?],
        None => described,
    };
    print(&nodes::show(&shown))?;
    Ok(ExitCode::SUCCESS)
}

fn import(args: &ImportArgs) -> Result<ExitCode> {
    let imported = match import_file(&args.file) {
        Ok(imported) => imported,
        Err(error) => return refuse(&error),
    };
    let stem = args.file.file_stem().map_or("node".into(), |stem| stem.to_string_lossy());
    let name = args.name.clone().unwrap_or_else(|| stem.into_owned());
    for note in &imported.notes {
        eprintln!("note: {note}");
    }
    print(&to_yaml(&name, &imported.node))?;
    Ok(ExitCode::SUCCESS)
}

/// A cluster file and who named it.
pub(crate) struct Source {
    path: PathBuf,
    variable: Option<&'static str>,
}

impl Source {
    /// The file of the option, or else of the first variable that is set.
    pub(crate) fn find(option: Option<&Path>) -> Option<Self> {
        if let Some(path) = option {
            return Some(Self { path: path.to_owned(), variable: None });
        }
        let vars = Vars::of_process();
        CLUSTER_VARIABLES
            .iter()
            .find_map(|variable| Some(Self { path: vars.get(variable)?.into(), variable: Some(variable) }))
    }

    /// Reads the file.
    pub(crate) fn load(&self) -> Result<Cluster> {
        Cluster::load(&self.path).map_err(|error| match (&error, self.variable) {
            // Lines about the text of a file stay in the form that editors follow.
            (ConfigError::Invalid { .. }, _) | (_, None) => error.into(),
            (_, Some(variable)) => anyhow::anyhow!("{error} ({variable} names it)"),
        })
    }

    /// The file for messages: its name, and the variable that named it if nobody typed it.
    pub(crate) fn describe(&self) -> String {
        let path = self.path.display();
        self.variable.map_or_else(|| format!("`{path}`"), |variable| format!("`{path}` ({variable})"))
    }
}

fn counts(cluster: &Cluster) -> String {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", plural(cluster.nodes().len(), "node"), plural(cluster.world_size() as usize, "rank"))
}

/// A table of the nodes, then one of the links.
fn show(cluster: &Cluster) -> String {
    let (name, backend, version) = (cluster.name(), cluster.default_backend(), cluster.version());
    let mut text = format!("cluster {name}: {}, backend {backend}, version {version}\n\n", counts(cluster));
    let head = ["node", "host", "ranks", "GPUs"].map(str::to_owned);
    let rows = cluster
        .nodes()
        .iter()
        .map(|node| [node.id().to_owned(), node.host().to_owned(), ranges(node.ranks()), gpus(node)]);
    table(&mut text, std::iter::once(head).chain(rows).collect());
    text.push('\n');
    let head = ["links", "type", "bandwidth", "latency", "oversubscription"].map(str::to_owned);
    let fabric = cluster.fabric();
    let rows = [link("within a node", fabric.intra_node()), link("between nodes", fabric.inter_node())];
    table(&mut text, std::iter::once(head).chain(rows).collect());
    text
}

fn link(name: &str, link: &LinkClass) -> [String; 5] {
    [
        name.to_owned(),
        link.kind().to_owned(),
        format!("{} Gbit/s", link.bandwidth_gbps()),
        format!("{} us", link.latency_us()),
        link.oversubscription().to_string(),
    ]
}

/// `[0, 1, 2, 5]` as `0-2, 5`, in the order of local ranks.
fn ranges(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let texts: Vec<String> = runs
        .map(|run| match *run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(u32::to_string).collect(),
        })
        .collect();
    texts.join(", ")
}

/// The GPUs of a node in the order of local ranks, `2 x a100` where they are alike.
fn gpus(node: &Node) -> String {
    let texts: Vec<String> =
        node.profiles().chunk_by(|a, b| a == b).map(|run| format!("{} x {}", run.len(), run[0])).collect();
    texts.join(", ")
}

/// Rows with aligned columns.
fn table<const N: usize>(text: &mut String, rows: Vec<[String; N]>) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_as_ranges() {
        // Runs are joined, order is kept, and the largest number does not overflow.
        for (ranks, text) in [
            (&[0][..], "0"),
            (&[0, 1], "0-1"),
            (&[0, 1, 2, 5, 7, 8], "0-2, 5, 7-8"),
            (&[3, 1, 0], "3, 1, 0"),
            (&[u32::MAX, 0], "4294967295, 0"),
        ] {
            assert_eq!(ranges(ranks), text);
        }
    }
}
