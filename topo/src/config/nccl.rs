//! The part of a file that says which NCCL is modelled and what it is told.
//!
//! ```yaml
//! nccl:
//!   version: 2.22.3            # the newest if it is left out
//!   algo: Ring                 # as NCCL_ALGO, NCCL_PROTO; so many channels
//!   proto: Simple
//!   channels: 12
//!   env: {NCCL_CROSS_NIC: 0}   # any other variable of the model
//!   collnet: true              # a network that reduces
//!   graphs: |                  # the Pattern lines of a log, instead of a search
//!     Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type NVL/PIX, sameChannels 1
//!   compute_capability: 80     # with graphs, where the machines are not known
//!   cpu: amd
//!   plugin_latency_us: 0
//! ```

use super::reader::{AT_LEAST_ZERO, Range, Reader, Table, show};
use super::tree::Tree;
use super::units::Unit;
use crate::cluster::{Given, Nccl};
use crate::lines::join;
use crate::nccl::graph_file::{self, CAPABILITY};
use crate::nccl::release::Release;
use crate::nccl::search::Env;
use crate::nccl::tuner::{Cpu, Environment};

const KEYS: &[&str] = &[
    "version",
    "algo",
    "proto",
    "channels",
    "env",
    "collnet",
    "graphs",
    "compute_capability",
    "cpu",
    "plugin_latency_us",
];
/// Keys that say something of graphs alone.
const WITH_GRAPHS: [&str; 3] = ["compute_capability", "cpu", "plugin_latency_us"];
const CHANNELS: Range =
    Range::new(|x| (1.0..=64.0).contains(&x) && x.fract() == 0.0, "a number of channels, 1 to 64");

/// What the file says, or the defaults; `None` if there is a problem.
pub(super) fn read(reader: &mut Reader<'_>, file: &Table<'_>) -> Option<Nccl> {
    if !file.has("nccl") {
        return Some(Nccl::default());
    }
    let table = reader.part(file, "nccl", KEYS)?;
    let release = read_release(reader, &table);
    // Variables differ from release to release; with a wrong one they are read as the newest has them.
    let variables = read_variables(reader, &table, release.unwrap_or(Release::NEWEST));
    let collnet = reader.truth(&table, "collnet", false);
    let given = read_graphs(reader, &table, collnet.unwrap_or(false));
    Some(Nccl { release: release?, variables: variables?, collnet: collnet?, given: given? })
}

fn read_release(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<Release> {
    if !table.has("version") {
        return Some(Release::NEWEST);
    }
    let text = reader.text(table, "version")?;
    let release = text.parse::<Release>().and_then(Release::check);
    release.map_err(|error| reader.problem(&join(&table.field, "version"), error.to_string())).ok()
}

/// The variables that the keys stand for, then those of `env`, each checked by itself.
fn read_variables(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    release: Release,
) -> Option<Vec<(String, String)>> {
    let mut given: Vec<(String, String, String)> = Vec::new();
    let mut is_sound = true;
    for (key, name) in [("algo", "NCCL_ALGO"), ("proto", "NCCL_PROTO")] {
        if table.has(key) {
            match reader.text(table, key) {
                Some(text) => given.push((join(&table.field, key), name.to_owned(), text)),
                None => is_sound = false,
            }
        }
    }
    if table.has("channels") {
        match reader.number(table, "channels", None, CHANNELS) {
            Some(channels) => {
                for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                    let field = join(&table.field, "channels");
                    given.push((field, name.to_owned(), (channels as u32).to_string()));
                }
            }
            None => is_sound = false,
        }
    }
    if let Some(value) = table.get("env") {
        match read_env(reader, value, &join(&table.field, "env")) {
            Some(pairs) => given.extend(pairs),
            None => is_sound = false,
        }
    }
    for (field, name, value) in &given {
        let pair = (name.as_str(), value.as_str());
        let wrong = match Environment::parse([pair], release) {
            Err(error) => Some(error.to_string()),
            Ok(environment) if environment.search().is_empty() => None,
            Ok(_) => Env::from_pairs([pair]).err().map(|error| error.to_string()),
        };
        if let Some(message) = wrong {
            reader.problem(field, message);
            is_sound = false;
        }
    }
    is_sound.then(|| given.into_iter().map(|(_, name, value)| (name, value)).collect())
}

/// Field, name and value of each variable.
fn read_env(reader: &mut Reader<'_>, value: &Tree, field: &str) -> Option<Vec<(String, String, String)>> {
    let Tree::Table(entries) = value else {
        let message = format!("found {}; write variables such as `NCCL_CROSS_NIC: 0`", show(value));
        reader.problem(field, message);
        return None;
    };
    let names: Vec<&str> = entries.iter().filter_map(|(key, _)| key.as_text()).collect();
    // The names are checked where they are used; this finds what is no text or comes twice.
    let table = reader.table(value, field, &names)?;
    let pairs = names.iter().map(|name| {
        let value = reader.text(&table, name)?;
        Some((join(field, name), (*name).to_owned(), value))
    });
    pairs.collect()
}

/// The graphs of a log, if the file has them; `None` if there is a problem.
fn read_graphs(reader: &mut Reader<'_>, table: &Table<'_>, has_collnet: bool) -> Option<Option<Given>> {
    if !table.has("graphs") {
        let alone = WITH_GRAPHS.into_iter().find(|key| table.has(key));
        return match alone {
            Some(key) => {
                let message = "it says something of `graphs`, which are not there; remove it".to_owned();
                reader.problem(&join(&table.field, key), message);
                None
            }
            None => Some(None),
        };
    }
    let found = graph_file::read_graphs(reader, table, has_collnet);
    let sm = match table.has("compute_capability") {
        true => reader.number(table, "compute_capability", None, CAPABILITY).map(|sm| Some(sm as u32)),
        false => Some(None),
    };
    let cpu = match table.has("cpu") {
        true => reader.text(table, "cpu").and_then(|text| {
            let cpu = text.parse::<Cpu>();
            cpu.map(Some).map_err(|error| reader.problem(&join(&table.field, "cpu"), error.to_string())).ok()
        }),
        false => Some(None),
    };
    let latency = (AT_LEAST_ZERO, Unit::Microseconds);
    let latency_us = reader.measure(table, "plugin_latency_us", Some(0.0), latency);
    let found = found?;
    Some(Some(Given {
        graphs: found.graphs,
        direct: found.direct,
        chain: found.chain,
        compute_capability: sm?,
        cpu: cpu?,
        plugin_latency_us: latency_us? as f32,
    }))
}
