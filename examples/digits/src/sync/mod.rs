//! What training needs of a communication library, as one small trait, and the backends that offer it.

pub mod memory;
pub mod ring;

use crate::error::{Error, Result};

/// The exchanges of one rank. All ranks must make the same calls in the same order.
///
/// Results are the same bits on every rank and on every run, because a backend adds in a fixed order.
pub trait GradientSync {
    /// A bucket on its way.
    type Handle;
    /// A guard whose lifetime is a span of the rank's trace.
    type Span;

    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn nranks(&self) -> usize;

    /// Starts averaging `bucket` over the ranks and returns at once; buckets are exchanged in order.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange cannot be started.
    fn start(&mut self, bucket: Vec<f32>) -> Result<Self::Handle>;

    /// Waits for a started bucket and returns it, averaged.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange failed or did not end in time.
    fn wait(&mut self, handle: Self::Handle) -> Result<Vec<f32>>;

    /// Replaces `values` by those of rank 0.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange failed or did not end in time.
    fn broadcast(&mut self, values: &mut [f32]) -> Result<()>;

    /// Replaces each of `values` by its sum over the ranks.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange failed or did not end in time.
    fn sum(&mut self, values: &mut [f64]) -> Result<()>;

    /// Replaces each of `values` by its least or greatest over the ranks.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange failed or did not end in time.
    fn extreme(&mut self, values: &mut [i64], which: Extreme) -> Result<()>;

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// [`Error::Sync`] if the exchange failed or did not end in time.
    fn barrier(&mut self) -> Result<()>;

    /// Opens a span of the rank's trace; it ends when the guard is dropped.
    fn span(&self, name: &str) -> Self::Span;

    /// Leaves the ranks in good order.
    ///
    /// # Errors
    /// [`Error::Sync`] if the backend could not be closed.
    fn finish(self) -> Result<()>;
}

/// Which value of all ranks [`GradientSync::extreme`] keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// Checks that `own` is the same number on every rank; `what` and `remedy` are for the error.
///
/// # Errors
/// [`Error::Differ`] on every rank if it is not, [`Error::Sync`] if the exchange failed.
pub fn ensure_same<S: GradientSync>(
    sync: &mut S,
    what: &'static str,
    own: u64,
    remedy: &'static str,
) -> Result<()> {
    let (mut lowest, mut highest) = ([own.cast_signed()], [own.cast_signed()]);
    sync.extreme(&mut lowest, Extreme::Min)?;
    sync.extreme(&mut highest, Extreme::Max)?;
    if lowest == highest {
        return Ok(());
    }
    Err(Error::Differ {
        rank: sync.rank(),
        what,
        own,
        lowest: lowest[0].cast_unsigned(),
        highest: highest[0].cast_unsigned(),
        remedy,
    })
}
