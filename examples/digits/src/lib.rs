//! Data-parallel training of a multilayer perceptron on the UCI handwritten digits.
//!
//! Every rank holds a whole replica of the model and sees its own part of each batch. The gradients are
//! averaged over the ranks in *buckets* that start to travel while the backward pass still computes, as
//! PyTorch's `DistributedDataParallel` does it:
//!
//! ```text
//! compute   forward | backward layer 3 | backward layer 2 | backward layer 1 | wait 3, 2, 1 | SGD
//! exchange                             | all_reduce bucket 3 | bucket 2      | bucket 1 |
//! ```
//!
//! Layers are numbered from 1 at the input. A bucket bears the number of the lowest layer in it, so bucket
//! `k` is complete when the backward of layer `k` ends and overlaps with the backward of layer `k - 1`.
//!
//! | module | what |
//! | --- | --- |
//! | [`data`], [`sampler`] | the data set, its split, and which rows a rank sees in an epoch |
//! | [`model`], [`linalg`] | the perceptron, forward and backward, and its loops |
//! | [`bucket`] | which gradient lies where in which bucket |
//! | [`sync`] | what training needs of a communication library, and the backends that offer it |
//! | [`mod@train`] | the training loop |
//! | [`mod@overlap`] | reads the ranks' traces and counts how often an exchange overlapped the backward pass |

pub mod bucket;
pub mod data;
pub mod error;
pub mod hash;
pub mod linalg;
pub mod model;
pub mod overlap;
pub mod rng;
pub mod sampler;
pub mod sync;
pub mod train;

pub use error::{Error, Result};
pub use overlap::{OverlapSummary, overlap};
pub use train::{EpochReport, Outcome, TrainOptions, train};
