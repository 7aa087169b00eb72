//! Sizes at which the choice changes.

use super::choice::Operation;
use super::names::{Algorithm, Protocol};
use super::table::Tuner;

/// Largest size that is looked at, in bytes.
const BYTES_MAX: u64 = 1 << 44;

/// A size at which the tuner chooses something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// Bytes as the tuner counts them.
    pub bytes: u64,
    /// What it chooses there.
    pub algorithm: Algorithm,
    /// With this protocol.
    pub protocol: Protocol,
}

impl Tuner {
    /// The next larger size with another choice, the first one in its direction up to 16 TiB.
    ///
    /// Sizes are multiples of the number of ranks where the tuner counts the bytes of all ranks.
    pub fn flip_up(&self, operation: Operation) -> Option<Flip> {
        let here = self.pick(operation)?;
        let unit = self.unit(operation);
        let mut low = operation.bytes / unit;
        while low < BYTES_MAX / unit {
            // Up to a break, times are straight lines: the sizes for which one is the fastest have no gap.
            let end = self.next_break(low * unit).div_ceil(unit).min(BYTES_MAX / unit);
            let last = (end - 1).max(low + 1);
            for high in [last, end] {
                if self.pick(operation.with_bytes(high * unit)) != Some(here) {
                    let found = self.bisect(operation, low, high);
                    return self.flip(operation, found * unit);
                }
            }
            low = end.max(low + 1);
        }
        None
    }

    /// The next smaller size with another choice.
    pub fn flip_down(&self, operation: Operation) -> Option<Flip> {
        let here = self.pick(operation)?;
        let unit = self.unit(operation);
        let mut high = operation.bytes / unit;
        while high > 0 {
            let start = self.last_break(high * unit).div_ceil(unit);
            for low in [start.min(high - 1), start.saturating_sub(1).min(high - 1)] {
                if self.pick(operation.with_bytes(low * unit)) != Some(here) {
                    let found = self.bisect(operation, high, low);
                    return self.flip(operation, found * unit);
                }
            }
            high = start.saturating_sub(1).min(high - 1);
        }
        None
    }

    fn unit(&self, operation: Operation) -> u64 {
        if operation.collective.counts_all_ranks() { self.setup.ranks.into() } else { 1 }
    }

    fn flip(&self, operation: Operation, bytes: u64) -> Option<Flip> {
        let (algorithm, protocol) = self.pick(operation.with_bytes(bytes))?;
        Some(Flip { bytes, algorithm, protocol })
    }

    /// From `same`, which has the operation's choice, towards `other`, which has not: the first that has not.
    fn bisect(&self, operation: Operation, mut same: u64, mut other: u64) -> u64 {
        let unit = self.unit(operation);
        let here = self.pick(operation);
        while same.abs_diff(other) > 1 {
            let middle = same.midpoint(other);
            if self.pick(operation.with_bytes(middle * unit)) == here {
                same = middle
            } else {
                other = middle
            }
        }
        other
    }

    /// First size above `bytes` at which a correction changes.
    fn next_break(&self, bytes: u64) -> u64 {
        let power = 64 << (bytes / 64).checked_ilog2().map_or(0, |size| size + 1);
        let plateau = self.plateau_from();
        if plateau > bytes { plateau.min(power) } else { power }
    }

    /// Last size up to `bytes` at which a correction changed.
    fn last_break(&self, bytes: u64) -> u64 {
        let power = (bytes / 64).checked_ilog2().map_or(0, |size| 64 << size);
        let plateau = self.plateau_from();
        if plateau <= bytes { plateau.max(power) } else { power }
    }
}
