//! From the bytes of a cluster file to a [`Cluster`], or to everything that is wrong with it.

mod nccl;
mod nodes;
pub(crate) mod reader;
pub(crate) mod syntax;
pub(crate) mod tree;
pub(crate) mod units;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use self::reader::{Reader, Table};
use self::tree::Tree;
use self::units::Unit;
use crate::{Cluster, ConfigError, Fabric, LinkClass};

/// Largest file that is read; ten thousand nodes of eight GPUs take two thirds of it.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// The bytes of the file at `path`, if it is a file and no larger than a description can be.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let unreadable = |cause| ConfigError::Read { path: path.to_owned(), cause };
    if let Some(what) = syntax::not_a_file(path) {
        return Err(ConfigError::NotAFile { path: path.to_owned(), what });
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

impl Cluster {
    /// Reads the cluster file at `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], [`ConfigError::NotAFile`], [`ConfigError::TooLarge`], or [`ConfigError::Invalid`] with
    /// every problem of the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        Self::from_bytes(path, &bytes_of(path)?)
    }

    /// Reads a cluster from the bytes of a file; `path` is only its name in messages.
    ///
    /// # Errors
    ///
    /// [`ConfigError::TooLarge`], or [`ConfigError::Invalid`] with every problem of the file.
    pub fn from_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
        }
        let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
        let text = syntax::text_of(bytes).map_err(|problem| invalid(vec![problem]))?;
        let tree = syntax::parse(text).map_err(|problem| invalid(vec![problem]))?;
        let mut reader = Reader::new(text);
        match read_file(&mut reader, &tree, path) {
            Some(mut cluster) if reader.is_clean() => {
                keep_texts_as_written(&mut cluster, text);
                Ok(cluster)
            }
            _ => Err(invalid(reader.into_problems())),
        }
    }

    /// Reads a cluster from `text`; `path` is only its name in messages.
    ///
    /// # Errors
    ///
    /// As [`Cluster::from_bytes`].
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self, ConfigError> {
        Self::from_bytes(path, text.as_bytes())
    }
}

const FILE_KEYS: &[&str] = &["version", "cluster", "nccl", "machines", "nodes", "fabric", "policies"];
const CLUSTER_KEYS: &[&str] = &["name", "default_backend"];
const FABRIC_KEYS: &[&str] = &["intra_node", "inter_node", "nodes_per_leaf", "rails"];
const NODES_PER_LEAF: reader::Range = reader::Range::new(
    |x| (1.0..=65536.0).contains(&x) && x.fract() == 0.0,
    "how many nodes share a leaf switch, 1 to 65536",
);
const LINK_KEYS: &[&str] = &["type", "bandwidth_gbps", "latency_us", "oversubscription"];

/// Reads on after every problem; `None` only if there is at least one.
fn read_file(reader: &mut Reader<'_>, value: &Tree, path: &Path) -> Option<Cluster> {
    let file = reader.table(value, "", FILE_KEYS)?;
    let version = reader.version(&file);
    let cluster = reader.part(&file, "cluster", CLUSTER_KEYS);
    let name = cluster.as_ref().and_then(|table| reader.text(table, "name"));
    let default_backend = cluster.as_ref().and_then(|table| reader.text(table, "default_backend"));
    let nccl = nccl::read(reader, &file);
    let machines = nodes::machines(reader, &file);
    let nodes = nodes::read(reader, &file, machines.as_ref());
    let fabric = reader.part(&file, "fabric", FABRIC_KEYS);
    let fabric = fabric.and_then(|table| read_fabric(reader, &table));
    let (nodes, places) = nodes?;
    let cluster = Cluster {
        path: path.to_owned(),
        version: version?,
        name: name?,
        default_backend: default_backend?,
        nccl: nccl?,
        nodes,
        fabric: fabric?,
        places,
    };
    machines?;
    Some(cluster)
}

fn read_fabric(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<Fabric> {
    let intra_node = read_link(reader, table, "intra_node");
    let inter_node = read_link(reader, table, "inter_node");
    let nodes_per_leaf = reader.number(table, "nodes_per_leaf", Some(1.0), NODES_PER_LEAF);
    let rails = reader.truth(table, "rails", false);
    Some(Fabric {
        intra_node: intra_node?,
        inter_node: inter_node?,
        nodes_per_leaf: nodes_per_leaf? as u32,
        rails: rails?,
    })
}

fn read_link(reader: &mut Reader<'_>, fabric: &Table<'_>, key: &'static str) -> Option<LinkClass> {
    let table = reader.part(fabric, key, LINK_KEYS)?;
    let kind = reader.text(&table, "type");
    let speed = (reader::ABOVE_ZERO, Unit::GigabitsPerSecond);
    let bandwidth_gbps = reader.measure(&table, "bandwidth_gbps", None, speed);
    let time = (reader::AT_LEAST_ZERO, Unit::Microseconds);
    let latency_us = reader.measure(&table, "latency_us", Some(0.0), time);
    let oversubscription = reader.number(&table, "oversubscription", Some(1.0), reader::ABOVE_ZERO);
    Some(LinkClass {
        kind: kind?,
        bandwidth_gbps: bandwidth_gbps?,
        latency_us: latency_us?,
        oversubscription: oversubscription?,
    })
}

/// The texts of a file; strings, so that the reader hands over what is written.
#[derive(Deserialize)]
struct Texts {
    cluster: ClusterTexts,
    nodes: Vec<NodeTexts>,
}

#[derive(Deserialize)]
struct ClusterTexts {
    name: String,
    default_backend: String,
}

#[derive(Deserialize)]
struct NodeTexts {
    id: String,
    host: String,
}

/// Puts back names that YAML takes for numbers: a node called `007` or `1e3` keeps its name.
fn keep_texts_as_written(cluster: &mut Cluster, text: &str) {
    // The only failures left are shapes of YAML that the reader resolves for values alone, such
    // as merged tables; the names read from the values are right for those.
    let Ok(texts) = serde_yaml::from_str::<Texts>(text) else { return };
    // A number may be written with more digits than a text may have; then its value names the thing.
    let keep = |name: &mut String, written: String| {
        if reader::is_fit(&written) {
            *name = written;
        }
    };
    keep(&mut cluster.name, texts.cluster.name);
    keep(&mut cluster.default_backend, texts.cluster.default_backend);
    for (node, texts) in cluster.nodes.iter_mut().zip(texts.nodes) {
        keep(&mut node.id, texts.id);
        keep(&mut node.host, texts.host);
    }
}

#[cfg(test)]
mod tests;
