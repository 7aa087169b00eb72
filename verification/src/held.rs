//! Whether processes hold ever more: memory, descriptors, threads and mappings of their samples compared with bounds.

use std::fmt::{Display, Formatter};

/// What a process holds at one moment, in a state that comes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Resident memory that it does not share, in KiB.
    pub own_kb: u64,
    /// Resident memory that it shares, in KiB.
    pub shared_kb: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Mappings.
    pub mappings: u64,
}

impl Display for Held {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { own_kb, shared_kb, descriptors, threads, mappings } = self;
        write!(
            f,
            "{own_kb} KiB own, {shared_kb} KiB shared, {descriptors} descriptors, {threads} threads, {mappings} mappings"
        )
    }
}

/// Names of what is compared, in the order of [`Held`].
const NAMES: [&str; 5] = ["KiB of own memory", "KiB of shared memory", "descriptors", "threads", "mappings"];

impl Held {
    fn numbers(&self) -> [u64; 5] {
        [self.own_kb, self.shared_kb, self.descriptors, self.threads, self.mappings]
    }
}

/// By how much a process may hold more at the end than after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds(Held);

impl Bounds {
    /// Of thousands of operations: the heap is still finding its size, and rings are made on first use, so only what
    /// grows with each operation shows.
    pub const OF_A_TEST: Self =
        Self(Held { own_kb: 6 << 10, shared_kb: 64 << 10, descriptors: 2, threads: 0, mappings: 16 });
    /// Of a million operations: two bytes an operation would show.
    pub const OF_A_CAMPAIGN: Self =
        Self(Held { own_kb: 1 << 10, shared_kb: 2 << 10, descriptors: 2, threads: 0, mappings: 16 });
}

/// Compares what processes hold at the end of their samples, which are given by time and then by process, with what
/// they held after the warm-up: the first half. Of each half counts the least, since a leak shows in that too, and what
/// the allocator keeps now and then does not. What grew most, in words.
///
/// # Errors
/// What has grown beyond its bound, in which process, or that there are too few samples.
pub fn growth(samples: &[Vec<Held>], bounds: &Bounds) -> Result<String, String> {
    // A quarter to warm up, a quarter that counts as before, half a quarter at the end.
    let parts = samples.len() / 8;
    if parts == 0 {
        return Err(format!("{} samples; 8 at least can be compared", samples.len()));
    }
    let (before, after) = (&samples[2 * parts..4 * parts], &samples[samples.len() - parts..]);
    let least = |part: &[Vec<Held>], process: usize, which: usize| {
        part.iter().map(|held| held[process].numbers()[which]).min().unwrap_or(0)
    };
    let mut most = Vec::new();
    for (which, (name, bound)) in NAMES.iter().zip(bounds.0.numbers()).enumerate() {
        let of = |process: usize| (least(before, process, which), least(after, process, which));
        let grown = |process: &usize| of(*process).1.saturating_sub(of(*process).0);
        let process = (0..samples[0].len()).max_by_key(grown).unwrap_or(0);
        let (from, to) = of(process);
        let told = format!("{name}: from {from} to {to} in rank {process}, bound +{bound}");
        if grown(&process) > bound {
            return Err(format!("something is lost: {told}"));
        }
        most.push(told);
    }
    Ok(format!("what grew most since the warm-up: {}", most.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process holds at each sample, and what is told of it.
    type Leak = (fn(u64) -> Held, &'static str);

    fn samples(of: impl Fn(u64) -> Held) -> Vec<Vec<Held>> {
        (0..40).map(|at| vec![Held { threads: 3, ..Held::default() }, of(at)]).collect()
    }

    /// Slow growth of each kind is told with the process and both values, also where it is hidden by ups and downs.
    #[test]
    fn growth_is_told() {
        let noise = |at: u64| at * 7919 % 3000;
        let leaks: [Leak; 3] = [
            (|at| Held { own_kb: 300 * at, ..Held::default() }, "own memory"),
            (
                |at| Held { descriptors: 9 + at / 8, ..Held::default() },
                "descriptors: from 10 to 13 in rank 1",
            ),
            (
                |at| Held { threads: 1 + u64::from(at > 30), ..Held::default() },
                "threads: from 1 to 2 in rank 1",
            ),
        ];
        for (leak, told) in leaks {
            let all = samples(|at| Held { shared_kb: noise(at), ..leak(at) });
            let text = growth(&all, &Bounds::OF_A_CAMPAIGN).unwrap_err();
            assert!(text.contains(told), "{text}");
        }
        let steady = samples(|at| Held {
            own_kb: 9000 + noise(at) + if at < 8 { 0 } else { 9000 },
            ..Held::default()
        });
        growth(&steady, &Bounds::OF_A_CAMPAIGN).unwrap();
        assert!(growth(&steady[..7], &Bounds::OF_A_CAMPAIGN).is_err());
    }
}
