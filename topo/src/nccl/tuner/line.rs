//! The lines that NCCL prints.

use super::channels::Spread;
use super::choice::{Estimate, Operation};
use super::names::{Algorithm, Collective, Protocol};
use super::table::Tuner;
use crate::nccl::log::show_pattern;

/// Algorithms that NCCL prints beside each other.
const BESIDE: usize = 3;

impl Tuner {
    /// The lines behind `NCCL INFO` with which a communicator of this release begins, of the subsystem GRAPH.
    pub fn graph_lines(&self) -> Vec<String> {
        let graphs = &self.setup.graphs;
        [&graphs.ring, &graphs.tree].into_iter().chain(&graphs.nvls).map(show_pattern).collect()
    }

    /// The same of the subsystem TUNING: `latency/bandwidth` of every collective, algorithm and protocol, in us and
    /// 10^9 bytes per second, three algorithms at a time.
    pub fn table_lines(&self) -> Vec<String> {
        // PAT came with 2.23.
        let known = if self.setup.release.since(23, 0) { Algorithm::ALL.len() } else { Algorithm::Pat.id() };
        let mut lines = Vec::new();
        for part in Algorithm::ALL[..known].chunks(BESIDE) {
            let row = |head: &str, cells: Vec<String>| {
                let cells: String = cells.into_iter().map(|cell| format!("{cell} |")).collect();
                format!("{head:>13} |{cells}")
            };
            lines.push(row("Algorithm  ", part.iter().map(|one| format!("{:^50}", one.name())).collect()));
            let protocols = part.iter().flat_map(|_| Protocol::ALL);
            lines.push(row("Protocol  ", protocols.map(|one| format!("{:>15}", one.name())).collect()));
            for collective in Collective::ALL {
                let keys = part.iter().flat_map(|one| Protocol::ALL.map(|protocol| (*one, protocol)));
                let cell = |(algorithm, protocol)| {
                    let cell = self.cell(collective, algorithm, protocol);
                    let numbers =
                        cell.map_or((0.0, 0.0), |cell| (cell.latency.total, cell.effective_bandwidth()));
                    format!("{:>8.1}/{:>6.1}", numbers.0, numbers.1)
                };
                lines.push(row(collective.name(), keys.map(cell).collect()));
            }
        }
        lines
    }

    /// What NCCL of this release prints behind `NCCL INFO` for the operation; `None` up to 2.19, which print nothing.
    pub fn line(&self, operation: Operation, chosen: &Estimate, spread: Spread) -> Option<String> {
        let Operation { collective, bytes, .. } = operation;
        let Estimate { algorithm, protocol, time, .. } = chosen;
        let release = self.setup.release;
        if !release.since(20, 0) {
            return None;
        }
        if release.since(24, 0) {
            let bytes =
                if collective.counts_all_ranks() { bytes / u64::from(self.setup.ranks) } else { bytes };
            let (algorithm, protocol) = (algorithm.line_name(), protocol.line_name());
            let hi = spread.last_channel;
            return Some(format!(
                "{collective}: {bytes} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{hi}}}"
            ));
        }
        let line = format!("{bytes} Bytes -> Algo {} proto {} time {time:.6}", algorithm.id(), protocol.id());
        Some(if release.since(23, 0) { format!("{collective}: {line}") } else { line })
    }
}
