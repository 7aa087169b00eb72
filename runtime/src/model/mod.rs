//! What a job would take on the cluster that its file describes.
//!
//! ```text
//!   cluster file --- world.rs ---> World: the file, the release of NCCL and its variables, the machines' links
//!                                    |
//!   communicator --- meter.rs ---> Meter: prices each collective as it ends
//!                      | clock.rs     where the rank's virtual time is, and when the others began
//!                      | ledger.rs    what the links have carried, for the report
//!                      | ask.rs       the plan that NCCL would run, for `RINGCCL_PLAN=model`
//!   estimate.rs      a time and a line of one operation, for the NCCL library
//!   log.rs           what NCCL would print under NCCL_DEBUG
//! ```
//!
//! The model reads what the executor did; the executor waits for it only with `RINGCCL_PACE=model`.

mod ask;
mod clock;
mod estimate;
mod ledger;
mod log;
mod meter;
mod world;

pub(crate) use ask::Asked;
pub(crate) use clock::published as virtual_time_ns;
pub use estimate::{Estimator, Head, What};
pub(crate) use ledger::Summary;
pub(crate) use meter::Meter;
pub use world::World;

/// Leaves the lines that NCCL would print to the caller, which has a log of its own.
pub fn leave_lines() {
    log::leave();
}

/// Which plan the host executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanSource {
    /// The one that is the fastest here.
    #[default]
    Host,
    /// The algorithm, protocol and number of channels that NCCL would choose on the modelled cluster.
    Model,
}

/// How long operations really take: their modelled time times a factor, in thousandths so that settings compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Thousandths of the modelled time.
    pub thousandths: u32,
}

impl Pace {
    /// The factor.
    pub fn factor(self) -> f64 {
        f64::from(self.thousandths) / 1e3
    }
}
