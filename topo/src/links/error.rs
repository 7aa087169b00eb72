//! What can be wrong with what the link model is asked.

use crate::nccl::search::{EnvError, SearchError};
use crate::nccl::tuner::{Algorithm, Collective, TunerError};

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The tuner refuses the communicator or the operation.
    #[error(transparent)]
    Tuner(#[from] TunerError),
    /// The search refuses the machine.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A variable of the search has a value that it cannot have.
    #[error(transparent)]
    Variable(#[from] EnvError),
    /// The network cannot be.
    #[error("{what} {value}; give {expected}")]
    Fabric {
        /// The number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A number of the calibration cannot be.
    #[error("calibration: {what} is {value}; give a number above 0")]
    Calibration {
        /// The number.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// An algorithm that this communicator has no links for.
    #[error("{algorithm} cannot run {collective} here: the machine has no {missing}")]
    NoLinks {
        /// The algorithm.
        algorithm: Algorithm,
        /// The collective.
        collective: Collective,
        /// What it lacks.
        missing: &'static str,
    },
    /// Ranks that are no group of the site.
    #[error(
        "group of ranks: {0}; give each rank once, below the number of GPUs of the site, and at least two"
    )]
    Group(String),
}
