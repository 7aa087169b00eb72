//! What a job would run with.

use super::machine::Machine;
use ringccl::{Choice, Config};
use serde::Serialize;
use shmring::wait::WaitPolicy;

/// What a job of a number of ranks would use.
#[derive(Debug, Serialize)]
pub(crate) struct Used {
    pub(crate) transport: &'static str,
    /// All-reduce by size, from the smallest.
    pub(crate) all_reduce: Vec<Range>,
    /// Most bytes of shared memory that one rank's rings may take.
    pub(crate) staging_bytes_per_rank: u64,
    /// Bytes of shared memory of the whole job once it has used every ring it needs.
    pub(crate) segment_bytes: u64,
    /// How a rank waits.
    pub(crate) waiting: &'static str,
    /// Whether ranks share cores.
    pub(crate) shared_cores: bool,
}

/// Sizes that run alike.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Range {
    /// Largest size in bytes; `None` for no end.
    pub(crate) up_to: Option<usize>,
    pub(crate) algorithm: &'static str,
    pub(crate) protocol: &'static str,
    /// Most channels.
    pub(crate) channels: u32,
    /// Bytes of the largest message.
    pub(crate) chunk_bytes: usize,
}

/// Largest size that is looked at: beyond it nothing changes.
const LARGEST: usize = 1 << 30;

impl Used {
    /// What these settings give, or nothing where they are impossible.
    pub(super) fn of(config: &Config, ranks: u32, machine: &Machine) -> Option<Self> {
        let policy = WaitPolicy::for_cores(ranks as usize, machine.cores.usable);
        Some(Self {
            transport: "shm",
            all_reduce: ranges(config, ranks)?,
            staging_bytes_per_rank: config.staging_bytes(ranks).ok()?,
            segment_bytes: config.segment_bytes(ranks).ok()?,
            waiting: if policy.spins > 0 { "spin, then yield, then sleep" } else { "yield, then sleep" },
            shared_cores: policy.spins == 0,
        })
    }
}

fn ranges(config: &Config, ranks: u32) -> Option<Vec<Range>> {
    if ranks < 2 {
        return Some(Vec::new());
    }
    let at = |bytes: usize| config.choice(ranks, bytes).ok();
    let same = |a: &Choice, b: &Choice| (a.algorithm, a.protocol) == (b.algorithm, b.protocol);
    let mut ranges = Vec::new();
    let mut from = 2;
    loop {
        let first = at(from)?;
        // Doubling finds a size that runs otherwise, halving the last one that does not.
        let (mut alike, mut other) = (from, from);
        while other < LARGEST && same(&first, &at(other)?) {
            alike = other;
            other *= 2;
        }
        let open = same(&first, &at(other)?);
        while !open && other - alike > 2 {
            let middle = (alike + (other - alike) / 2) & !1;
            if same(&first, &at(middle)?) { alike = middle } else { other = middle }
        }
        let last = at(if open { LARGEST } else { alike })?;
        ranges.push(Range {
            up_to: (!open).then_some(alike),
            algorithm: last.algorithm.name(),
            protocol: last.protocol.name(),
            channels: last.channels,
            chunk_bytes: last.chunk_bytes,
        });
        if open {
            return Some(ranges);
        }
        from = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits between ranges are those of the selection: one size up, the choice differs.
    #[test]
    fn ranges_are_those_of_the_selection() {
        for ranks in [2, 8] {
            let config = Config::new(ranks);
            let ranges = ranges(&config, ranks).unwrap();
            assert_eq!(ranges.last().unwrap().up_to, None);
            for (range, next) in ranges.iter().zip(&ranges[1..]) {
                let up_to = range.up_to.unwrap();
                let name = |bytes| {
                    config.choice(ranks, bytes).map(|c| (c.algorithm.name(), c.protocol.name())).unwrap()
                };
                assert_eq!(name(up_to), (range.algorithm, range.protocol));
                assert_eq!(name(up_to + 2), (next.algorithm, next.protocol));
            }
        }
        // Those of the table: lines, then algorithms.
        let shipped = ringccl::Tuning::shipped();
        let row = shipped.row(8);
        let steps = row.all_reduce.iter().filter_map(|step| step.up_to);
        let mut expected: Vec<u64> = [row.lines.ll, row.lines.ll128].into_iter().chain(steps).collect();
        expected.retain(|up_to| *up_to > 0);
        expected.dedup();
        let found = ranges(&Config::new(8), 8).unwrap();
        let limits: Vec<u64> =
            found.iter().filter_map(|range| range.up_to.map(|up_to| up_to as u64)).collect();
        assert_eq!(limits, expected);
        assert!(ranges(&Config::new(1), 1).unwrap().is_empty());
    }
}
