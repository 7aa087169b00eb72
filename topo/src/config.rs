//! From the text of a cluster file to a [`Cluster`], or to everything that is wrong with it.

mod reader;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_yaml::Value;

use self::reader::{Reader, Table};
use crate::cluster::Place;
use crate::lines::{Lines, join};
use crate::near::near;
use crate::{Cluster, ConfigError, Fabric, LinkClass, Node, PROFILES, Problem};

/// Largest file that is read; ten thousand nodes take a tenth of it.
const FILE_BYTES_MAX: u64 = 16 << 20;

impl Cluster {
    /// Reads the cluster file at `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], [`ConfigError::TooLarge`], or [`ConfigError::Invalid`] with every
    /// problem of the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let unreadable = |cause| ConfigError::Read { path: path.to_owned(), cause };
        let file = File::open(path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
        }
        Self::parse(path, &text)
    }

    /// Reads a cluster from `text`; `path` is only its name in messages.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] with every problem of the text.
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
        let value = parse_yaml(text).map_err(|problem| invalid(vec![problem]))?;
        let mut reader = Reader::new(Lines::of(text));
        match read_file(&mut reader, &value, path) {
            Some(mut cluster) if reader.problems().is_empty() => {
                keep_texts_as_written(&mut cluster, text);
                Ok(cluster)
            }
            _ => Err(invalid(reader.into_problems())),
        }
    }
}

fn parse_yaml(text: &str) -> Result<Value, Problem> {
    let refuse = |error: serde_yaml::Error| Problem {
        line: error.location().map(|location| location.line()),
        field: String::new(),
        message: format!("not valid YAML: {error}; indent with spaces and write `key: value`"),
    };
    let mut value: Value = serde_yaml::from_str(text).map_err(refuse)?;
    value.apply_merge().map_err(refuse)?;
    Ok(value)
}

const FILE_KEYS: &[&str] = &["version", "cluster", "nodes", "fabric", "policies"];
const CLUSTER_KEYS: &[&str] = &["name", "default_backend"];
const NODE_KEYS: &[&str] = &["id", "host", "ranks", "gpus"];
const GPU_KEYS: &[&str] = &["profile"];
const FABRIC_KEYS: &[&str] = &["intra_node", "inter_node"];
const LINK_KEYS: &[&str] = &["type", "bandwidth_gbps", "latency_us", "oversubscription"];

/// Reads on after every problem; `None` only if there is at least one.
fn read_file(reader: &mut Reader, value: &Value, path: &Path) -> Option<Cluster> {
    let file = reader.table(value, "", FILE_KEYS)?;
    let version = reader.version(&file);
    let cluster = reader.part(&file, "cluster", CLUSTER_KEYS);
    let name = cluster.as_ref().and_then(|table| reader.text(table, "name"));
    let default_backend = cluster.as_ref().and_then(|table| reader.text(table, "default_backend"));
    let nodes = read_nodes(reader, &file);
    let fabric = reader.part(&file, "fabric", FABRIC_KEYS);
    let intra_node = fabric.as_ref().and_then(|table| read_link(reader, table, "intra_node"));
    let inter_node = fabric.as_ref().and_then(|table| read_link(reader, table, "inter_node"));
    let nodes = nodes?;
    let places = places(reader, &nodes)?;
    Some(Cluster {
        path: path.to_owned(),
        version: version?,
        name: name?,
        default_backend: default_backend?,
        nodes,
        fabric: Fabric { intra_node: intra_node?, inter_node: inter_node? },
        places,
    })
}

/// The nodes, if each of them could be read.
fn read_nodes(reader: &mut Reader, file: &Table<'_>) -> Option<Vec<Node>> {
    let list = reader.list(file, "nodes", "one entry per machine")?;
    let nodes: Vec<Option<Node>> =
        list.iter().map(|(field, value)| read_node(reader, value, field)).collect();
    let nodes: Option<Vec<Node>> = nodes.into_iter().collect();
    let nodes = nodes?;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        if let Some(first) = seen.insert(&node.id, i) {
            let field = format!("nodes[{i}].id");
            reader.problem(
                &field,
                format!("`{}` is also the id of nodes[{first}]; give each node its own", node.id),
            );
        }
    }
    Some(nodes)
}

fn read_node(reader: &mut Reader, value: &Value, field: &str) -> Option<Node> {
    let table = reader.table(value, field, NODE_KEYS)?;
    let id = reader.text(&table, "id");
    let host = reader.text(&table, "host");
    let ranks =
        reader.list(&table, "ranks", "the global ranks on this node, such as `[0, 1]`").and_then(|list| {
            let ranks: Vec<Option<u32>> =
                list.iter().map(|(field, value)| reader.rank(value, field)).collect();
            ranks.into_iter().collect::<Option<Vec<u32>>>()
        });
    let profiles = reader.list(&table, "gpus", "one `profile: ID` per rank of this node").and_then(|list| {
        let profiles: Vec<Option<String>> =
            list.iter().map(|(field, value)| read_profile(reader, value, field)).collect();
        profiles.into_iter().collect::<Option<Vec<String>>>()
    });
    let (ranks, profiles) = (ranks?, profiles?);
    if ranks.len() != profiles.len() {
        let message = format!(
            "{} GPUs for {} ranks; give one `profile: ID` per rank, in the order of `ranks`",
            profiles.len(),
            ranks.len()
        );
        reader.problem(&join(field, "gpus"), message);
    }
    Some(Node { id: id?, host: host?, ranks, profiles })
}

fn read_profile(reader: &mut Reader, value: &Value, field: &str) -> Option<String> {
    let table = reader.table(value, field, GPU_KEYS)?;
    let profile = reader.text(&table, "profile")?;
    if PROFILES.contains(&profile.as_str()) {
        return Some(profile);
    }
    let names = match near(&profile, PROFILES).as_slice() {
        [] => "known are for example a100, h100, v100, l4, t4".to_owned(),
        names => format!("near names are {}", names.join(", ")),
    };
    reader.problem(&join(field, "profile"), format!("no GPU profile is called `{profile}`; {names}"));
    None
}

fn read_link(reader: &mut Reader, fabric: &Table<'_>, key: &'static str) -> Option<LinkClass> {
    let table = reader.part(fabric, key, LINK_KEYS)?;
    let kind = reader.text(&table, "type");
    let bandwidth_gbps = reader.number(&table, "bandwidth_gbps", None, reader::ABOVE_ZERO);
    let latency_us = reader.number(&table, "latency_us", Some(0.0), reader::AT_LEAST_ZERO);
    let oversubscription = reader.number(&table, "oversubscription", Some(1.0), reader::ABOVE_ZERO);
    Some(LinkClass {
        kind: kind?,
        bandwidth_gbps: bandwidth_gbps?,
        latency_us: latency_us?,
        oversubscription: oversubscription?,
    })
}

/// Where each rank lives, if the ranks are exactly `0 .. their number`, each once.
fn places(reader: &mut Reader, nodes: &[Node]) -> Option<Vec<Place>> {
    let mut places: BTreeMap<u32, Place> = BTreeMap::new();
    let mut valid = true;
    for (node, (id, ranks)) in nodes.iter().map(|node| (&node.id, &node.ranks)).enumerate() {
        for (local_rank, &rank) in (0..).zip(ranks) {
            let Some(first) = places.insert(rank, Place { node, local_rank }) else { continue };
            let other = &nodes[first.node].id;
            let whose = if first.node == node { "twice".into() } else { format!("also on node `{other}`") };
            let message = format!("rank {rank} of node `{id}` is listed {whose}; give each rank one place");
            reader.problem(&format!("nodes[{node}].ranks[{local_rank}]"), message);
            valid = false;
        }
    }
    let largest = places.last_key_value().map_or(0, |(&rank, _)| rank);
    let missing: Vec<String> =
        (0..largest).filter(|rank| !places.contains_key(rank)).take(9).map(|rank| rank.to_string()).collect();
    if !missing.is_empty() {
        let etc = if missing.len() == 9 { ", ..." } else { "" };
        let message = format!(
            "ranks go up to {largest} but {}{etc} is on no node; number them from 0 without gaps",
            missing.join(", ")
        );
        reader.problem("nodes", message);
        valid = false;
    }
    valid.then(|| places.into_values().collect())
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
    cluster.name = texts.cluster.name;
    cluster.default_backend = texts.cluster.default_backend;
    for (node, texts) in cluster.nodes.iter_mut().zip(texts.nodes) {
        node.id = texts.id;
        node.host = texts.host;
    }
}

#[cfg(test)]
mod tests;
