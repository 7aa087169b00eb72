//! Giving up a join from another thread.

use std::sync::{Arc, Mutex, PoisonError};

/// Ends the join that it was given to, within some hundredths of a second. Copies mean the same join.
///
/// Not an atomic: this is looked at some hundred times a second, and atomics have their place elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Mutex<bool>>);

impl Cancel {
    /// For a join that has not been cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the join; for good.
    pub fn cancel(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Whether the join was cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
