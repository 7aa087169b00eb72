//! One core for each side.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores of the two sides. Made once, before any thread is bound: a bound thread sees its own core only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    sides: [usize; 2],
}

impl Cores {
    /// The first two cores that this process may use; the same one twice if there is only one.
    pub(crate) fn usable() -> Result<Self> {
        let set = sched_getaffinity(Pid::from_raw(0)).context("cannot read the affinity")?;
        let mut usable = (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false));
        let first = usable.next().context("the affinity is empty")?;
        Ok(Self { sides: [first, usable.next().unwrap_or(first)] })
    }

    /// Whether the two sides can run at once.
    pub(crate) fn differ(self) -> bool {
        self.sides[0] != self.sides[1]
    }

    /// Binds the calling thread to the core of `side` (0 or 1).
    pub(crate) fn bind(self, side: usize) -> Result<()> {
        let core = self.sides[side];
        let mut one = CpuSet::new();
        one.set(core).with_context(|| format!("core {core} has no place in a set"))?;
        sched_setaffinity(Pid::from_raw(0), &one).with_context(|| format!("cannot bind to core {core}"))
    }
}
