//! What a run leaves behind: `cluster_report.json`.
//!
//! Every rank keeps its counters in its record in the segment, so one rank can write the report for all, and
//! the counters of a rank that died are there as well. Field names and meanings are FakeGPU's `cluster_report.v1`;
//! fields that need a model of the cluster do not exist yet and are left out, not filled with zeros.

use crate::error::Error;
use crate::plan::{Call, Kind};
use crate::settings::{Vars, table};
use coordinator_lite::Member;
use serde::Serialize;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use shmring::wait::WaitStats;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The words of a member's record, by position.
#[derive(Clone, Copy)]
enum Word {
    Inits = 0,
    AllReduceCalls,
    AllReduceBytes,
    BroadcastCalls,
    BroadcastBytes,
    BarrierCalls,
    Waits,
    WaitNs,
    LongestWaitNs,
    Sleeps,
    Yields,
    MessagesLl,
    MessagesLl128,
    MessagesSimple,
}

fn put(record: &MemberRecord, word: Word, value: u64) {
    // ORDERING: Relaxed; each counter stands for itself.
    record.words[word as usize].store(value, Ordering::Relaxed);
}

fn get(record: &MemberRecord, word: Word) -> u64 {
    // ORDERING: Relaxed; the report is written after a barrier, or takes what is there.
    record.words[word as usize].load(Ordering::Relaxed)
}

/// One rank's counts of what it has called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    all_reduce: [u64; 2],
    broadcast: [u64; 2],
    barrier: u64,
}

impl Tally {
    /// Counts a completed call.
    #[inline]
    pub(crate) fn count(&mut self, call: &Call) {
        let counter = match call.kind {
            Kind::AllReduce => &mut self.all_reduce,
            Kind::Broadcast { .. } => &mut self.broadcast,
            Kind::Barrier => {
                self.barrier += 1;
                return;
            }
        };
        counter[0] += 1;
        counter[1] += call.bytes() as u64;
    }

    /// Writes everything to the rank's record.
    pub(crate) fn publish(&self, record: &MemberRecord, waits: &WaitStats, messages: [u64; 3]) {
        put(record, Word::Inits, 1);
        put(record, Word::AllReduceCalls, self.all_reduce[0]);
        put(record, Word::AllReduceBytes, self.all_reduce[1]);
        put(record, Word::BroadcastCalls, self.broadcast[0]);
        put(record, Word::BroadcastBytes, self.broadcast[1]);
        put(record, Word::BarrierCalls, self.barrier);
        put(record, Word::Waits, waits.waits);
        put(record, Word::WaitNs, waits.total_ns);
        put(record, Word::LongestWaitNs, waits.longest_ns);
        put(record, Word::Sleeps, waits.sleeps);
        put(record, Word::Yields, waits.yields);
        put(record, Word::MessagesLl, messages[0]);
        put(record, Word::MessagesLl128, messages[1]);
        put(record, Word::MessagesSimple, messages[2]);
    }
}

/// What a communicator knows of itself and its members' records do not tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The random number that its ranks were given.
    pub(crate) job: u64,
    /// How many communicators this process has made so far.
    pub(crate) communicators: u64,
    /// How its coordinator was reached: `tcp`, `unix` or `none`.
    pub(crate) transport: &'static str,
}

#[derive(Serialize)]
struct Report {
    report_version: &'static str,
    schema_version: &'static str,
    schema: &'static str,
    cluster: Cluster,
    collectives: BTreeMap<&'static str, Collective>,
    nodes: Vec<Node>,
    ranks: Vec<Rank>,
}

#[derive(Serialize)]
struct Cluster {
    mode: &'static str,
    world_size: usize,
    node_count: usize,
    communicators: u64,
    coordinator_transport: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_path: Option<String>,
    job: String,
    shared_memory_bytes: u64,
}

#[derive(Serialize)]
struct Collective {
    calls: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Node {
    id: String,
    ranks: Vec<usize>,
    wait_time_ms: f64,
    longest_wait_ms: f64,
}

#[derive(Serialize)]
struct Rank {
    rank: usize,
    node: String,
    wait_time_ms: f64,
    longest_wait_ms: f64,
    waits: u64,
    sleeps: u64,
    yields: u64,
    communicator_inits: u64,
    collective_calls: u64,
    barrier_calls: u64,
    messages_sent: BTreeMap<&'static str, u64>,
}

/// Nanoseconds as milliseconds with three decimals.
fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

fn rank_entry(rank: usize, member: &Member, record: &MemberRecord) -> Rank {
    Rank {
        rank,
        node: member.node.clone(),
        wait_time_ms: ms(get(record, Word::WaitNs)),
        longest_wait_ms: ms(get(record, Word::LongestWaitNs)),
        waits: get(record, Word::Waits),
        sleeps: get(record, Word::Sleeps),
        yields: get(record, Word::Yields),
        communicator_inits: get(record, Word::Inits),
        collective_calls: get(record, Word::AllReduceCalls) + get(record, Word::BroadcastCalls),
        barrier_calls: get(record, Word::BarrierCalls),
        messages_sent: BTreeMap::from([
            ("LL", get(record, Word::MessagesLl)),
            ("LL128", get(record, Word::MessagesLl128)),
            ("Simple", get(record, Word::MessagesSimple)),
        ]),
    }
}

/// Nodes in the order of their lowest rank.
fn node_entries(ranks: &[Rank]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for rank in ranks {
        let at = nodes.iter().position(|node| node.id == rank.node).unwrap_or_else(|| {
            nodes.push(Node {
                id: rank.node.clone(),
                ranks: vec![],
                wait_time_ms: 0.0,
                longest_wait_ms: 0.0,
            });
            nodes.len() - 1
        });
        let node = &mut nodes[at];
        node.ranks.push(rank.rank);
        node.wait_time_ms = ((node.wait_time_ms + rank.wait_time_ms) * 1e3).round() / 1e3;
        node.longest_wait_ms = node.longest_wait_ms.max(rank.longest_wait_ms);
    }
    nodes
}

fn build(segment: &Segment, members: &[Member], about: About) -> Report {
    let About { job, communicators, transport } = about;
    let records: Vec<&MemberRecord> = (0..members.len() as u32).map(|r| segment.member_record(r)).collect();
    let ranks: Vec<Rank> =
        members.iter().zip(&records).enumerate().map(|(r, (m, record))| rank_entry(r, m, record)).collect();
    // A collective is complete when its slowest rank has completed it; bytes are those of all ranks.
    let least = |word| records.iter().map(|r| get(r, word)).min().unwrap_or(0);
    let total = |word| records.iter().map(|r| get(r, word)).sum::<u64>();
    let collectives = BTreeMap::from([
        ("all_reduce", Collective { calls: least(Word::AllReduceCalls), bytes: total(Word::AllReduceBytes) }),
        ("broadcast", Collective { calls: least(Word::BroadcastCalls), bytes: total(Word::BroadcastBytes) }),
        ("barrier", Collective { calls: least(Word::BarrierCalls), bytes: 0 }),
    ]);
    let config_path = table::CLUSTER_CONFIG.get(&Vars::of_process()).ok().flatten();
    let file = config_path.as_ref().and_then(|path| topo::Cluster::load(path).ok());
    let config_path = config_path.map(|path| path.display().to_string());
    let nodes = node_entries(&ranks);
    Report {
        report_version: env!("CARGO_PKG_VERSION"),
        schema_version: "cluster_report.v1",
        schema: "experimental",
        cluster: Cluster {
            mode: "simulate",
            world_size: members.len(),
            node_count: nodes.len(),
            communicators,
            coordinator_transport: transport,
            name: file.as_ref().map(|f| f.name().to_string()),
            default_backend: file.as_ref().map(|f| f.default_backend().to_string()),
            config_path,
            job: format!("{job:016x}"),
            shared_memory_bytes: segment.committed_bytes().unwrap_or(0),
        },
        collectives,
        nodes,
        ranks,
    }
}

/// Writes the report of all ranks to `path`, whole or not at all.
pub(crate) fn write(path: &Path, segment: &Segment, members: &[Member], about: About) -> Result<(), Error> {
    let output = |cause| Error::Output { what: "report", path: path.display().to_string(), cause };
    let text = serde_json::to_string_pretty(&build(segment, members, about)).map_err(|e| output(e.into()))?;
    put_file(path, (text + "\n").as_bytes()).map_err(output)
}

/// Replaces a regular file, or makes it, in one step; writes into anything else that is there (a pipe, a device).
fn put_file(path: &Path, text: &[u8]) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => return OpenOptions::new().write(true).open(path)?.write_all(text),
        _ => {}
    }
    let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidFilename.into()) };
    // A name of its own per process: two jobs may be told the same path.
    let partial = path.with_file_name(format!(".{}.{}.partial", name.display(), std::process::id()));
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    // What could not be put in place is not left beside it; the first error is the one to tell.
    written.inspect_err(|_| drop(std::fs::remove_file(&partial)))
}

/// An early answer for a path whose directory does not exist: before the run instead of after it.
pub(crate) fn check_path(path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(parent) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
        Err(cause) => Err(cause),
    }
    .map_err(|cause| Error::Output { what: "report", path: path.display().to_string(), cause })
}

#[cfg(test)]
mod tests;
