//! `libnccl.so.2`: NCCL's host interface on RingCCL's rings, for host memory.
//!
//! ```text
//!  api/        the exported functions: arguments checked in NCCL's order
//!    group/      what a thread has begun by ncclGroupStart; runs it, or has it run in the background
//!    create      communicators: by an id, all of a process at once, from another one
//!    comm        a handle's communicator: joining, ready, busy, failed; its end
//!    op          one operation on the library's communicator
//!  handle      numbers instead of addresses: a wrong one is answered, not followed
//!  failure, result    codes and texts; the one place that maps errors
//!  config, env, log   ncclConfig_t of every version; variables and files of them; lines in NCCL's shape
//!  streams     where streams of a CUDA runtime of this project will come in
//! ```
//!
//! `cargo build -p nccl-shim` makes `libnccl.so` with the soname `libnccl.so.2`; `cargo xtask nccl` puts it where it
//! has that name. `docs/nccl.md` says of each function what it does here.

#![allow(clippy::result_large_err, reason = "a failure is a pointer")]

mod algorithms;
pub mod api;
mod comm;
mod config;
mod create;
mod env;
mod export;
mod failure;
mod fork;
mod group;
mod handle;
mod log;
mod memory;
mod model;
mod op;
mod params;
mod redop;
mod register;
mod result;
mod roots;
mod simulate;
pub mod streams;
mod trace;

pub mod types;
mod window;
