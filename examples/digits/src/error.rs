//! The one error type of this crate.

use std::path::PathBuf;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong in a training run or in reading its traces.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read `{}`; give the path of a readable regular file", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A data file as a whole is unusable.
    #[error("data file `{file}`: {found}; expected {expected}")]
    DataFile {
        /// The file, or the name of the built-in data.
        file: String,
        /// What is wrong with it.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A field of a data file is unusable.
    #[error("data file `{file}`, line {line}, field {field}: found {found}; expected {expected}")]
    DataField {
        /// The file, or the name of the built-in data.
        file: String,
        /// Line in the file, from 1.
        line: usize,
        /// Field in the line, from 1.
        field: usize,
        /// The field's text, shortened and escaped.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// An option has a value that cannot work.
    #[error("{option} is {value}; {remedy}")]
    Option {
        /// The option as the user writes it.
        option: &'static str,
        /// Its value.
        value: String,
        /// Which values are good.
        remedy: String,
    },
    /// An exchange between the ranks failed.
    #[error("rank {rank}: {operation} failed: {reason}")]
    Sync {
        /// The rank that reports it.
        rank: usize,
        /// The operation in words.
        operation: String,
        /// What the backend said.
        reason: String,
    },
    /// The ranks hold different values of something that must be the same everywhere.
    #[error(
        "rank {rank}: {what} differ between ranks: this rank has {own:016x}, \
         {lowest:016x} and {highest:016x} also occur; {remedy}"
    )]
    Differ {
        /// The rank that reports it.
        rank: usize,
        /// What is compared.
        what: &'static str,
        /// Hash on this rank.
        own: u64,
        /// Lowest hash of all ranks (compared as signed numbers).
        lowest: u64,
        /// Highest hash of all ranks (compared as signed numbers).
        highest: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The loss is no longer a number.
    #[error("epoch {epoch}: the loss is {loss}, training has diverged; lower --lr (now {lr})")]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
        /// The loss.
        loss: f64,
        /// The learning rate.
        lr: f32,
    },
    /// The trained model is not good enough.
    #[error(
        "test accuracy is {accuracy:.2} %, at least {minimum} % was asked for; \
         raise --epochs or adapt --lr and --batch"
    )]
    Accuracy {
        /// What was reached, in percent.
        accuracy: f64,
        /// What was asked for, in percent.
        minimum: f64,
    },
    /// A trace file does not contain what a training run leaves behind.
    #[error(
        "trace `{}`: {problem}; expected the complete trace of one rank of a digits-ddp run",
        file.display()
    )]
    Trace {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A line of progress could not be written.
    #[error("cannot write progress")]
    Output(#[from] std::io::Error),
}
