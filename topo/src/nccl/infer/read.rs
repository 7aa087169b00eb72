//! What a log of NCCL says that the tuner can be held against.

use std::collections::HashSet;

use crate::nccl::graph::Graph;
use crate::nccl::log::pattern_line;
use crate::nccl::release::Release;
use crate::nccl::tuner::{Algorithm, Collective, Protocol};

/// Most claims that are kept; a log repeats itself, and each is compared with every candidate.
const KEPT_MAX: usize = 2000;
/// Most variables and graphs that are kept.
const VARIABLES_MAX: usize = 64;
const GRAPHS_MAX: usize = 16;
/// Longest line in bytes; NCCL's are shorter.
const LINE_MAX: usize = 2000;

/// A line that a model can explain or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Channels of the communicator.
    Channels(u32),
    /// A row of the table: latency and bandwidth by algorithm and protocol, as printed.
    Row {
        /// The collective.
        collective: Collective,
        /// The algorithms of this part of the table; NCCL prints three at a time.
        algorithms: Vec<Algorithm>,
        /// `latency/bandwidth` with one decimal, three protocols for each algorithm.
        cells: Vec<(String, String)>,
    },
    /// The choice for an operation.
    Operation {
        /// The collective, from 2.23.
        collective: Option<Collective>,
        /// Bytes as printed.
        bytes: u64,
        /// The algorithm.
        algorithm: Algorithm,
        /// The protocol.
        protocol: Protocol,
        /// Microseconds as printed, up to 2.23.
        time: Option<String>,
        /// Last channel, from 2.24.
        last_channel: Option<u32>,
    },
}

/// A claim with the first line that makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: usize,
    /// What it says.
    pub claim: Claim,
}

/// What reading a line needs of the lines before.
struct State {
    seen: HashSet<Claim>,
    /// Algorithms of the part of the table that is being printed.
    algorithms: Vec<Algorithm>,
}

/// What is read from a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The release, if the log names it.
    pub release: Option<Release>,
    /// Ranks of the communicator.
    pub ranks: Option<u32>,
    /// Nodes of the communicator.
    pub nodes: Option<u32>,
    /// Graphs by pattern, each once.
    pub graphs: Vec<Graph>,
    /// Variables that the log says are set.
    pub variables: Vec<(String, String)>,
    /// Claims, each once.
    pub lines: Vec<Line>,
    /// `Pattern` lines that cannot be read.
    pub unreadable: Vec<usize>,
}

impl Log {
    /// Reads a log; lines that say nothing of the tuner are passed over.
    pub fn read(text: &str) -> Self {
        let mut log = Self::default();
        let mut state = State { seen: HashSet::new(), algorithms: Algorithm::ALL.to_vec() };
        for (i, line) in text.lines().enumerate() {
            if line.len() <= LINE_MAX {
                log.take(i + 1, line, &mut state);
            }
        }
        log
    }

    fn take(&mut self, number: usize, line: &str, state: &mut State) {
        if let Some(algorithms) = head(line) {
            state.algorithms = algorithms;
        }
        match pattern_line(line) {
            Some(Ok(graph)) if !self.graphs.contains(&graph) && self.graphs.len() < GRAPHS_MAX => {
                self.graphs.push(graph)
            }
            Some(Ok(_)) => {}
            Some(Err(_)) if self.unreadable.len() < KEPT_MAX => self.unreadable.push(number),
            Some(Err(_)) => {}
            None => {}
        }
        if let Some(release) = after(line, "NCCL version ").and_then(|word| word.parse().ok()) {
            self.release.get_or_insert(release);
        }
        for key in ["nRanks ", "nranks "] {
            if let Some(ranks) = after(line, key).and_then(|word| word.parse().ok()) {
                self.ranks.get_or_insert(ranks);
            }
        }
        if let Some(nodes) = after(line, "nNodes ").and_then(|word| word.parse().ok()) {
            self.nodes.get_or_insert(nodes);
        }
        if let Some((name, value)) = variable(line)
            && self.variables.len() < VARIABLES_MAX
            && !self.variables.iter().any(|(known, _)| *known == name)
        {
            self.variables.push((name, value));
        }
        if self.lines.len() < KEPT_MAX
            && let Some(claim) =
                channels(line).or_else(|| operation(line)).or_else(|| row(line, &state.algorithms))
            && state.seen.insert(claim.clone())
        {
            self.lines.push(Line { number, claim });
        }
    }
}

/// The word behind `key`.
fn after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(key)?.1.split_ascii_whitespace().next()
}

/// `NCCL_ALGO set by environment to Ring`.
fn variable(line: &str) -> Option<(String, String)> {
    let (before, value) = line.split_once(" set by environment to ")?;
    let name = before.split_ascii_whitespace().last()?;
    let value = value.trim().trim_end_matches('.');
    name.starts_with("NCCL_").then(|| (name.to_owned(), value.to_owned()))
}

/// `24 coll channels, 0 collnet channels, ...`.
fn channels(line: &str) -> Option<Claim> {
    let before = line.split_once(" coll channels")?.0;
    Some(Claim::Channels(before.split_ascii_whitespace().last()?.parse().ok()?))
}

/// `[Func: ]N Bytes -> Algo A proto P time T` or `Func: N Bytes -> Algo NAME proto NAME channel{Lo..Hi}={0..11}`.
fn operation(line: &str) -> Option<Claim> {
    let (before, rest) = line.split_once(" Bytes -> Algo ")?;
    let mut words = before.split_ascii_whitespace().rev();
    let bytes = words.next()?.parse().ok()?;
    let collective = words.next().and_then(|word| word.strip_suffix(':')?.parse().ok());
    let mut words = rest.split_ascii_whitespace();
    let (algorithm, proto, protocol) = (words.next()?, words.next()?, words.next()?);
    if proto != "proto" {
        return None;
    }
    let algorithm = Algorithm::ALL
        .into_iter()
        .find(|one| one.id().to_string() == algorithm || one.line_name().eq_ignore_ascii_case(algorithm))?;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|one| one.id().to_string() == protocol || one.line_name().eq_ignore_ascii_case(protocol))?;
    let word = words.next()?;
    let time = (word == "time").then(|| words.next().map(str::to_owned)).flatten();
    let last_channel =
        word.strip_prefix("channel{Lo..Hi}={").and_then(|range| range.trim_end_matches('}').split_once(".."));
    let last_channel = last_channel.and_then(|(_, last)| last.parse().ok());
    if time.is_none() && last_channel.is_none() {
        return None;
    }
    Some(Claim::Operation { collective, bytes, algorithm, protocol, time, last_channel })
}

/// `Algorithm | Tree | Ring | CollNetDirect |`: the head of a part of the table.
fn head(line: &str) -> Option<Vec<Algorithm>> {
    let (name, rest) = line.split_once('|')?;
    if name.split_ascii_whitespace().last() != Some("Algorithm") {
        return None;
    }
    let known =
        |name: &str| Algorithm::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name.trim()));
    Some(rest.split('|').map_while(known).collect())
}

/// `AllReduce | 6.8/ 14.5 | ...`: a row of the table.
fn row(line: &str, algorithms: &[Algorithm]) -> Option<Claim> {
    let (name, rest) = line.split_once('|')?;
    let collective = name.split_ascii_whitespace().last()?.parse().ok()?;
    let cells: Vec<(String, String)> = rest
        .split('|')
        .map_while(|cell| cell.split_once('/'))
        .map(|(latency, bandwidth)| (latency.trim().to_owned(), bandwidth.trim().to_owned()))
        .collect();
    let algorithms = algorithms.get(..cells.len() / 3)?.to_vec();
    let whole = cells.len().is_multiple_of(3) && !cells.is_empty();
    let numbers = cells.iter().all(|(a, b)| a.parse::<f32>().is_ok() && b.parse::<f32>().is_ok());
    (whole && numbers).then_some(Claim::Row { collective, algorithms, cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_releases_are_read() {
        // The forms of operations, the table, channels, ranks, variables; repetitions count once.
        let text = "
h:1:2 [0] NCCL INFO NCCL version 2.22.3+cuda12.5
h:1:2 [0] NCCL INFO comm 0x55 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0
h:1:2 [0] NCCL INFO NCCL_PROTO set by environment to ^LL
h:1:2 [0] NCCL INFO 12 coll channels, 0 collnet channels, 0 nvls channels, 16 p2p channels
h:1:2 [0] NCCL INFO   Algorithm |    Tree     |       Ring |
h:1:2 [0] NCCL INFO    AllReduce | 10.4/ 14.5 | 21.5/ 42.9 | 168.0/ 55.2 | 10.2/ 26.0 | 25.4/ 73.6 | 28.8/ 80.0 |
h:1:2 [0] NCCL INFO   Algorithm   |                            NVLS                  |
h:1:2 [0] NCCL INFO    AllReduce |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |
h:1:2 [0] NCCL INFO 67108864 Bytes -> Algo 1 proto 2 time 867.660767
h:1:2 [1] NCCL INFO 67108864 Bytes -> Algo 1 proto 2 time 867.660767
h:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo 0 proto 0 time 1.5
h:1:2 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
h:1:2 [0] NCCL INFO Pattern 4, nonsense";
        let log = Log::read(text);
        assert_eq!((log.release, log.ranks, log.nodes), (Some(Release::new(2, 22, 3)), Some(4), Some(1)));
        assert_eq!(log.variables, [("NCCL_PROTO".to_owned(), "^LL".to_owned())]);
        assert_eq!(log.unreadable, [14]);
        let claims: Vec<&Claim> = log.lines.iter().map(|line| &line.claim).collect();
        assert_eq!(claims.len(), 6, "{claims:?}");
        assert_eq!(claims[0], &Claim::Channels(12));
        let Claim::Row { algorithms, cells, .. } = claims[1] else { panic!("{claims:?}") };
        assert_eq!((&algorithms[..], cells.len()), (&[Algorithm::Tree, Algorithm::Ring][..], 6));
        assert!(matches!(claims[2], Claim::Row { algorithms, .. } if *algorithms == [Algorithm::Nvls]));
        assert!(matches!(
            claims[3],
            Claim::Operation { collective: None, bytes: 67_108_864, time: Some(_), .. }
        ));
        assert!(matches!(claims[4], Claim::Operation { collective: Some(Collective::AllReduce), .. }));
        assert!(matches!(
            claims[5],
            Claim::Operation { last_channel: Some(3), algorithm: Algorithm::Ring, .. }
        ));
    }

    #[test]
    fn other_lines_are_passed_over() {
        // Halves of lines, foreign tables and long lines claim nothing and do no harm.
        for text in [
            " Bytes -> Algo ",
            "x Bytes -> Algo 1 proto 2 time 3",
            "1 Bytes -> Algo 9 proto 2 time 3",
            "1 Bytes -> Algo 1 proto 2",
            "1 Bytes -> Algo RING proto LL channel{Lo..Hi}={",
            "AllReduce | 1/2 |",
            "AllReduce | a/b | a/b | a/b | a/b | a/b | a/b | a/b | a/b | a/b",
            "coll channels",
            " set by environment to ",
            "nRanks 99999999999999",
            &"x".repeat(1 << 20),
        ] {
            let log = Log::read(text);
            assert_eq!(log, Log::default(), "{}", &text[..text.len().min(60)]);
        }
    }
}
