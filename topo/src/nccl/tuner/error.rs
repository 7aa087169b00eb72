//! Why the tuner gives no answer.

use crate::nccl::release::ReleaseError;
use crate::nccl::tuner::names::Collective;

/// Why the tuner gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunerError {
    /// The release is not modelled.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A number of the communicator is impossible.
    #[error("{0}")]
    Setup(String),
    /// A variable that is not NCCL's, or that does not reach the tuner.
    #[error("{name}: {problem}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A variable has a value that NCCL would not take.
    #[error("{name}={value}: {problem}")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value, shortened.
        value: String,
        /// What is accepted.
        problem: String,
    },
    /// Every algorithm and protocol is off.
    #[error(
        "no algorithm and protocol is left for {collective}: NCCL fails here with `no algorithm/protocol available`; \
         allow one by {remedy}"
    )]
    NothingLeft {
        /// The collective.
        collective: Collective,
        /// The variables to change.
        remedy: String,
    },
}
