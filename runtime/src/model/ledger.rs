//! What a rank's operations have cost on the modelled cluster, over all its communicators.

use super::clock::Clock;
use super::world::{Link, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use topo::links::Booked;

/// Numbers of a link and of the totals, as they travel to the rank that writes the report.
const PER_LINK: usize = 3;
const TOTALS: usize = 4;

/// Sums of the operations that this rank is the first of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub(super) operations: u64,
    pub(super) unpriced: u64,
    pub(super) predicted_us: f64,
    pub(super) tuner_us: f64,
    pub(super) links: Vec<Booked>,
}

/// A rank of the file: its time, and what it has booked.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) clock: Clock,
    pub(super) sums: Mutex<Sums>,
}

impl Ledger {
    /// The ledger of rank `rank` of a job: one for all its communicators, for as long as one of them lives. A process
    /// may have all ranks, of several jobs one after the other.
    pub(super) fn of(world: &World, rank: u32) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<(u64, u32), Weak<Ledger>>> = Mutex::new(BTreeMap::new());
        let mut all = shmring::sync::lock(&ALL);
        all.retain(|_, ledger| ledger.strong_count() > 0);
        let place = all.entry((world.mark(), rank)).or_default();
        if let Some(ledger) = place.upgrade() {
            return ledger;
        }
        let sums = Sums { links: vec![Booked::default(); world.links().len()], ..Sums::default() };
        let ledger = Arc::new(Self { clock: Clock::default(), sums: Mutex::new(sums) });
        *place = Arc::downgrade(&ledger);
        ledger
    }

    /// The sums as numbers that can be added to those of other ranks.
    pub(super) fn numbers(&self) -> Vec<f64> {
        let sums = shmring::sync::lock(&self.sums);
        let totals = [sums.operations as f64, sums.unpriced as f64, sums.predicted_us, sums.tuner_us];
        let links = sums.links.iter().flat_map(|link| [link.bytes, link.busiest_bytes, link.busy_us]);
        totals.into_iter().chain(links).collect()
    }
}

/// What the report says of the model.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) world: Arc<World>,
    pub(crate) is_planned: bool,
    pub(crate) pace: Option<f64>,
    pub(crate) sums: Sums,
}

impl Summary {
    /// From the numbers of all ranks, added up.
    pub(super) fn of(world: &Arc<World>, is_planned: bool, pace: Option<f64>, numbers: &[f64]) -> Self {
        let mut sums = Sums::default();
        if let Some((&[operations, unpriced, predicted_us, tuner_us], links)) =
            numbers.split_first_chunk::<TOTALS>()
        {
            (sums.operations, sums.unpriced) = (operations as u64, unpriced as u64);
            (sums.predicted_us, sums.tuner_us) = (predicted_us, tuner_us);
            let link = |of: &[f64]| Booked { bytes: of[0], busiest_bytes: of[1], busy_us: of[2] };
            sums.links = links.chunks_exact(PER_LINK).map(link).collect();
        }
        Self { world: Arc::clone(world), is_planned, pace, sums }
    }

    /// Operations that were priced, those that were not, and the prices of the former: predicted, tuner, in us.
    pub(crate) fn totals(&self) -> (u64, u64, f64, f64) {
        let Sums { operations, unpriced, predicted_us, tuner_us, .. } = self.sums;
        (operations, unpriced, predicted_us, tuner_us)
    }

    /// The links that carried something.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&Link, &Booked)> {
        self.world.links().iter().zip(&self.sums.links).filter(|(_, booked)| booked.bytes > 0.0)
    }
}
