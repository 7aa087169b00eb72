//! The lines that NCCL prints.

use super::channels::Spread;
use super::choice::{Estimate, Operation};
use super::table::Tuner;

impl Tuner {
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
