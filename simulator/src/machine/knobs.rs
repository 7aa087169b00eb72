//! How one simulated machine behaves: all of it follows from the seed.

use crate::rng::{Chance, Rng};

/// Whether stores become visible late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// At once: the machine is sequentially consistent.
    AtOnce,
    /// Later, in any order that the memory model allows.
    Late {
        /// How likely one of them becomes visible at each access.
        commit: Chance,
        /// Most stores that one rank's buffer holds.
        room: usize,
    },
}

/// Who runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// At each access another rank, with this chance; any of them.
    Walk(Chance),
    /// The same, but one rank gets its turn `1/weight` as often as the others.
    Lame {
        /// Chance of a switch.
        switch: Chance,
        /// The slow one.
        fiber: usize,
        /// How slow.
        weight: u32,
    },
    /// The rank of the highest priority that can run; now and then the running one falls to the lowest.
    Priorities(Chance),
}

/// What an access, a pause and a system call cost in simulated time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An access to shared memory.
    pub access: u64,
    /// Giving the core away.
    pub yielding: u64,
    /// A call into the kernel.
    pub call: u64,
}

/// Everything that makes one machine differ from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// When stores become visible.
    pub stores: Stores,
    /// Who runs next.
    pub policy: Policy,
    /// How fast time passes.
    pub costs: Costs,
    /// Cores that ranks believe to have: decides whether they spin.
    pub cores: usize,
    /// How likely a futex wait returns for no reason.
    pub spurious: Chance,
}

/// What a campaign wants of the stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Always late.
    On,
    /// Never late.
    Off,
    /// Late in most seeds.
    #[default]
    Mixed,
}

impl Knobs {
    /// The machine of a seed, for `fibers` ranks.
    pub fn random(rng: &mut Rng, mode: Mode, fibers: usize) -> Self {
        let late = match mode {
            Mode::On => true,
            Mode::Off => false,
            Mode::Mixed => rng.below(4) != 0,
        };
        // Drawn in any case, so that a seed means the same scenario in every mode.
        let commit = Chance::one_in(rng.pick(&[2, 8, 32, 128]));
        let room = rng.pick(&[4, 16, 64]);
        let switch = Chance::one_in(rng.pick(&[2, 5, 20, 100]));
        let (fiber, weight) = (rng.below(fibers as u64) as usize, rng.pick(&[10, 100]));
        let policy = match rng.below(4) {
            0 => Policy::Priorities(Chance::one_in(rng.pick(&[50, 300, 2000]))),
            1 => Policy::Lame { switch, fiber, weight },
            _ => Policy::Walk(switch),
        };
        let costs = Costs {
            access: rng.pick(&[20, 50, 500]),
            yielding: rng.pick(&[600, 10_000, 100_000]),
            call: rng.pick(&[300, 3000]),
        };
        let cores = rng.pick(&[1, 1, 2, 8]);
        let spurious = if rng.below(4) == 0 { Chance::one_in(8) } else { Chance::NEVER };
        let stores = if late { Stores::Late { commit, room } } else { Stores::AtOnce };
        Self { stores, policy, costs, cores, spurious }
    }
}
