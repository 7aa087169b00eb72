//! What a run leaves behind: `cluster_report.json`.
//!
//! Every rank keeps its counters in its record in the segment, so one rank can write the report for all, and
//! the counters of a rank that died are there as well. Field names and meanings are FakeGPU's `cluster_report.v1`;
//! fields that need a model of the cluster do not exist yet and are left out, not filled with zeros. Counts are those
//! of the communicator that writes the report, but for the number of communicators, which is the job's.

mod messages;
mod model;

pub(crate) use messages::{Traffic, any_unread, has_sent};

use crate::error::Error;
use crate::model::Summary;
use crate::plan::Kind;
use crate::settings::{Vars, table};
use coordinator_lite::Member;
use serde::Serialize;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use shmring::wait::WaitStats;
use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The words of a member's record, by position, besides the collectives'.
#[derive(Clone, Copy)]
enum Word {
    Inits = 0,
    Waits,
    WaitNs,
    LongestWaitNs,
    Sleeps,
    Yields,
    MessagesLl,
    MessagesLl128,
    MessagesSimple,
}

/// Where the collectives' words begin: calls and bytes of each counter in turn.
const FIRST_COUNTER: usize = 9;

/// Where those of messages begin, see [`Traffic`], and behind them where the communicators are counted.
const FIRST_MESSAGES: usize = FIRST_COUNTER + 2 * COUNTERS.len();
const COMMUNICATORS: usize = FIRST_MESSAGES + Traffic::WORDS;
// The words behind are those of a clash.
const _: () = assert!(COMMUNICATORS < 48);

/// What is counted apart; the uneven forms count as the even ones.
const COUNTERS: [&str; 9] = [
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    // FakeGPU's reports have the seven above and no others: these are there only if they were used.
    "gather",
    "scatter",
];
/// Those whose buffer has a block of each rank, which FakeGPU counts once for each rank.
const HAS_BLOCKS: [&str; 5] = ["all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"];
/// How many of them every report has.
const ALWAYS: usize = 7;

/// The position in [`COUNTERS`].
fn counter(kind: Kind) -> usize {
    match kind {
        Kind::AllReduce => 0,
        Kind::Reduce { .. } => 1,
        Kind::Broadcast { .. } => 2,
        Kind::AllGather | Kind::AllGatherV => 3,
        Kind::ReduceScatter | Kind::ReduceScatterV => 4,
        Kind::AllToAll => 5,
        Kind::Barrier => BARRIER,
        Kind::Gather { .. } => 7,
        Kind::Scatter { .. } => 8,
    }
}

const BARRIER: usize = 6;

/// The word with a counter's calls; its bytes are in the next one.
fn calls_word(counter: usize) -> usize {
    FIRST_COUNTER + 2 * counter
}

fn put(record: &MemberRecord, word: usize, value: u64) {
    // ORDERING: Relaxed; each counter stands for itself.
    record.words[word].store(value, Ordering::Relaxed);
}

fn get(record: &MemberRecord, word: usize) -> u64 {
    // ORDERING: Relaxed; the report is written after a barrier, or takes what is there.
    record.words[word].load(Ordering::Relaxed)
}

fn get_word(record: &MemberRecord, word: Word) -> u64 {
    get(record, word as usize)
}

/// One rank's counts of what it has called: calls and bytes, by [`counter`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally([[u64; 2]; COUNTERS.len()]);

impl Tally {
    /// Counts a completed call on a buffer of `bytes`.
    #[inline]
    pub(crate) fn count(&mut self, kind: Kind, bytes: usize) {
        let [calls, sum] = &mut self.0[counter(kind)];
        *calls += 1;
        *sum += bytes as u64;
    }

    /// Writes everything to the rank's record.
    pub(crate) fn publish(&self, record: &MemberRecord, waits: &WaitStats, messages: [u64; 3]) {
        for (counter, [calls, bytes]) in self.0.iter().enumerate() {
            put(record, calls_word(counter), *calls);
            put(record, calls_word(counter) + 1, *bytes);
        }
        let words = [
            (Word::Inits, 1),
            (Word::Waits, waits.waits),
            (Word::WaitNs, waits.total_ns),
            (Word::LongestWaitNs, waits.longest_ns),
            (Word::Sleeps, waits.sleeps),
            (Word::Yields, waits.yields),
            (Word::MessagesLl, messages[0]),
            (Word::MessagesLl128, messages[1]),
            (Word::MessagesSimple, messages[2]),
        ];
        for (word, value) in words {
            put(record, word as usize, value);
        }
    }
}

/// Writes to a rank's record how many communicators its process has made as their rank 0: each communicator of a job
/// counts in one process.
pub(crate) fn publish_communicators(record: &MemberRecord, made: u64) {
    put(record, COMMUNICATORS, made);
}

/// What a communicator knows of itself and its members' records do not tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The random number that its ranks were given.
    pub(crate) job: u64,
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
    point_to_point: PointToPoint,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<model::Model>,
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
    /// As FakeGPU counts: the operation's buffer times the ranks.
    bytes: u64,
    /// What the ranks pass in: for operations whose buffer has a block of each rank, that buffer once.
    payload_bytes: u64,
}

/// Messages between two ranks; those of an uneven exchange are among them.
#[derive(Serialize)]
struct PointToPoint {
    /// Those that were received: a send and its receive together.
    operations: u64,
    sends: u64,
    receives: u64,
    /// Sent.
    bytes: u64,
    bytes_received: u64,
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
    /// Where the rank's time is on the modelled cluster, computing left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_time_us: Option<f64>,
    communicator_inits: u64,
    collective_calls: u64,
    barrier_calls: u64,
    /// Sends and receives.
    point_to_point_calls: u64,
    sends: u64,
    receives: u64,
    bytes_sent: u64,
    bytes_received: u64,
    messages_sent: BTreeMap<&'static str, u64>,
}

/// Nanoseconds as milliseconds with three decimals.
fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

fn rank_entry(rank: usize, member: &Member, record: &MemberRecord, is_modelled: bool) -> Rank {
    let [sends, bytes_sent, receives, bytes_received] = messages::read(record);
    Rank {
        rank,
        node: member.node.clone(),
        wait_time_ms: ms(get_word(record, Word::WaitNs)),
        longest_wait_ms: ms(get_word(record, Word::LongestWaitNs)),
        waits: get_word(record, Word::Waits),
        sleeps: get_word(record, Word::Sleeps),
        yields: get_word(record, Word::Yields),
        virtual_time_us: is_modelled.then(|| crate::model::virtual_time_ns(record) as f64 / 1e3),
        communicator_inits: get_word(record, Word::Inits),
        collective_calls: (0..COUNTERS.len())
            .filter(|counter| *counter != BARRIER)
            .map(|counter| get(record, calls_word(counter)))
            .sum(),
        barrier_calls: get(record, calls_word(BARRIER)),
        point_to_point_calls: sends + receives,
        sends,
        receives,
        bytes_sent,
        bytes_received,
        messages_sent: BTreeMap::from([
            ("LL", get_word(record, Word::MessagesLl)),
            ("LL128", get_word(record, Word::MessagesLl128)),
            ("Simple", get_word(record, Word::MessagesSimple)),
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

fn build(segment: &Segment, members: &[Member], about: About, modelled: Option<&Summary>) -> Report {
    let About { job, transport } = about;
    let records: Vec<&MemberRecord> = (0..members.len() as u32).map(|r| segment.member_record(r)).collect();
    let ranks: Vec<Rank> = members
        .iter()
        .zip(&records)
        .enumerate()
        .map(|(r, (m, record))| rank_entry(r, m, record, modelled.is_some()))
        .collect();
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
            communicators: communicators(members, &records),
            coordinator_transport: transport,
            name: file.as_ref().map(|f| f.name().to_string()),
            default_backend: file.as_ref().map(|f| f.default_backend().to_string()),
            config_path,
            job: format!("{job:016x}"),
            shared_memory_bytes: segment.committed_bytes().unwrap_or(0),
        },
        collectives: collectives(&records),
        model: modelled.map(model::Model::of),
        point_to_point: point_to_point(&ranks),
        nodes,
        ranks,
    }
}

/// Communicators of the whole job: those of each process once, however many of the ranks it is.
fn communicators(members: &[Member], records: &[&MemberRecord]) -> u64 {
    let mut seen = HashSet::new();
    let first_of_process =
        members.iter().zip(records).filter(|(member, _)| seen.insert((member.pid, member.start_time)));
    first_of_process.map(|(_, record)| get(record, COMMUNICATORS)).sum()
}

fn point_to_point(ranks: &[Rank]) -> PointToPoint {
    let sum = |of: fn(&Rank) -> u64| ranks.iter().map(of).sum();
    PointToPoint {
        operations: sum(|rank| rank.receives),
        sends: sum(|rank| rank.sends),
        receives: sum(|rank| rank.receives),
        bytes: sum(|rank| rank.bytes_sent),
        bytes_received: sum(|rank| rank.bytes_received),
    }
}

fn collectives(records: &[&MemberRecord]) -> BTreeMap<&'static str, Collective> {
    let entry = |(counter, name): (usize, &&'static str)| {
        let word = calls_word(counter);
        // A collective is complete when its slowest rank has completed it; bytes are those of all ranks.
        let calls = records.iter().map(|record| get(record, word)).min().unwrap_or(0);
        let bytes: u64 = records.iter().map(|record| get(record, word + 1)).sum();
        let has_blocks = HAS_BLOCKS.contains(name);
        let payload_bytes = if has_blocks { bytes / records.len().max(1) as u64 } else { bytes };
        (counter < ALWAYS || calls > 0).then_some((*name, Collective { calls, bytes, payload_bytes }))
    };
    COUNTERS.iter().enumerate().filter_map(entry).collect()
}

/// Writes the report of all ranks to `path`, whole or not at all.
pub(crate) fn write(
    path: &Path,
    segment: &Segment,
    members: &[Member],
    about: About,
    modelled: Option<&Summary>,
) -> Result<(), Error> {
    let output = |cause| Error::Output { what: "report", path: path.display().to_string(), cause };
    let text = serde_json::to_string_pretty(&build(segment, members, about, modelled))
        .map_err(|e| output(e.into()))?;
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
