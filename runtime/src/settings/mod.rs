//! Settings: every variable that is read, read in one place.
//!
//! ```text
//! env       the process environment            the only file that reads it
//! form      text -> value, with the range      nccl, coordinator, job: syntaxes of others
//! setting   names, precedence, what to say     table: one entry per setting
//! collect   values -> Config                   contradictions, all problems at once
//! page      table -> docs/settings.md
//! ```
//!
//! A setting has one entry in [`table`], which is also its typed accessor:
//!
//! ```
//! use ringccl::settings::{Vars, table};
//!
//! let vars = Vars::from_pairs([("RINGCCL_CHANNELS", "4"), ("NCCL_MAX_NCHANNELS", "8")]);
//! assert_eq!(table::CHANNELS.get(&vars)?, Some(4)); // ours counts more than NCCL's
//! # Ok::<(), ringccl::Error>(())
//! ```

mod collect;
mod coordinator;
mod env;
mod form;
mod job;
mod nccl;
mod near;
mod page;
mod setting;
pub(crate) mod staging;
pub mod table;
mod tuning;
mod unknown;

pub use collect::{Resolved, resolve};
pub use coordinator::{CoordinatorAddr, coordinator};
pub use env::Vars;
pub use form::{Form, Reading, shown};
pub use job::job_name;
pub use page::page;
pub use setting::{About, Describe, Found, Group, Level, Ranks, Setting, Unset, level};
pub use tuning::{NO_TABLE, tuning_file};
pub(crate) use unknown::{announce, detail, warn};
pub use unknown::{beaten, unknown};

#[cfg(test)]
mod tests;
