//! Starts the ranks of a job, shows their output, and sees to it that none outlives the job.
//!
//! ```text
//!   launcher (the command you started) -- hosts the rendezvous, takes your signals
//!      |  pipe: the job, then one byte per signal; its end means that the launcher is gone
//!   keeper (the same binary again) -- child subreaper, one thread
//!      |-- rank 0 -- whatever it starts      every orphan below becomes the keeper's child
//!      |-- rank 1
//! ```
//!
//! # Invariants
//!
//! - Whoever of launcher and keeper survives the other kills all that is below: the keeper sees the
//!   pipe end, the launcher sees its child end and inherits the orphans, being a subreaper too.
//! - Only direct children are ever signalled by pid: nobody else can reap them, so the number
//!   cannot have passed to a stranger.
//! - Nothing of ours listens on MASTER_PORT.

mod children;
mod ending;
mod job;
mod keeper;
mod launcher;
mod lines;
mod output;
mod port;
mod signals;
mod spawn;

pub(crate) use job::{Job, RANKS_MAX, Rank, parse_ranks};
pub(crate) use keeper::{KeeperArgs, main as keeper_main};
pub(crate) use launcher::launch;

/// Name of the hidden subcommand that runs a keeper.
pub(crate) const KEEPER: &str = "__keeper";
