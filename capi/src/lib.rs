//! `libringccl_c.so`: RingCCL's communicators for C and C++.
//!
//! ```text
//!  root      a rendezvous, and the id by which others join it
//!  comm      a communicator: made, asked, aborted, finalized, freed
//!    op        one operation as C describes it, at once or as part of a batch
//!    work      a batch that runs behind the caller's back: waited for, or calls back
//!  memory    memory that other ranks may read: collectives on it copy nothing
//!  status    codes and texts; the one place that maps errors
//! ```
//!
//! NCCL's interface (`nccl-shim`) has no tags, no receive from any rank, no time limits and no bitwise reductions, and
//! its results are one of eight numbers. PyTorch's process groups need all of these, so the backend in `python/` uses
//! this interface. `include/ringccl.h` is its text for C; a test compares the two.
//!
//! Objects are pointers that the caller frees once. Every function may be called from any thread, but one work object
//! only by one thread at a time.

mod comm;
mod fork;
mod memory;
mod op;
mod root;
mod status;
mod work;

pub use comm::{
    Comm, Options, ringccl_comm_abort, ringccl_comm_error, ringccl_comm_finalize, ringccl_comm_free,
    ringccl_comm_join, ringccl_comm_run, ringccl_comm_seqno, ringccl_comm_start,
};
pub use memory::{Memory, ringccl_memory_free, ringccl_memory_new, ringccl_memory_register};
pub use op::{Dtype, Kind, Op, Reduction};
pub use root::{ID_BYTES, Root, ringccl_root_free, ringccl_root_new};
pub use status::{Status, ringccl_last_error};
pub use work::{
    DoneFn, ReleaseFn, Work, ringccl_work_free, ringccl_work_on_done, ringccl_work_source, ringccl_work_wait,
};

use std::ffi::c_char;

/// The version of this interface: it changes whenever a caller built for another one could not go on.
pub const ABI: u32 = 1;

/// The version of this interface, [`ABI`].
#[unsafe(no_mangle)]
pub extern "C" fn ringccl_abi() -> u32 {
    ABI
}

/// The version of the library, as text.
#[unsafe(no_mangle)]
pub extern "C" fn ringccl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
