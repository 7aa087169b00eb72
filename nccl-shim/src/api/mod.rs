//! The exported functions: each checks its arguments in NCCL's order and hands on.

#![allow(non_snake_case, reason = "NCCL's names")]
#![allow(clippy::missing_safety_doc, reason = "the macro writes the section")]

mod check;
mod collectives;
mod create;
mod device;
mod groups;
mod library;
mod memory;
mod messages;
mod params;
mod state;

pub use collectives::*;
pub use create::*;
pub use device::*;
pub use groups::*;
pub use library::*;
pub use memory::*;
pub use messages::*;
pub use params::*;
pub use state::*;
