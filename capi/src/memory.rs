//! Memory that other ranks may read.

use crate::comm::Comm;
use crate::fork::Process;
use crate::status::{Failure, Status, guard};
use ringccl::SharedMemory;
use std::ffi::c_void;

/// Memory of this process; any process that a communicator gives access to can read it.
#[derive(Debug)]
pub struct Memory {
    memory: SharedMemory,
    process: Process,
}

/// Takes `bytes` of zeroed memory that begins on a page, and writes its address to `address`.
///
/// # Safety
/// - `address` and `out` each point to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_memory_new(
    bytes: u64,
    address: *mut *mut c_void,
    out: *mut *mut Memory,
) -> Status {
    guard(|| {
        if address.is_null() || out.is_null() {
            return Err(Failure::argument("ringccl_memory_new: a pointer is null"));
        }
        let mut memory = SharedMemory::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let at = memory.as_mut_ptr().cast();
        let memory = Box::new(Memory { memory, process: Process::watched() });
        // SAFETY: the caller's contract.
        unsafe {
            address.write(at);
            out.write(Box::into_raw(memory));
        }
        Ok(Status::Ok)
    })
}

/// Registers memory with a communicator for as long as that lives: collectives whose buffers are all registered, on
/// every rank, read them where they are. Every rank must call this, with memory of its own of any length.
///
/// # Safety
/// - Both pointers come from this library and were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_memory_register(memory: *const Memory, comm: *const Comm) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (memory, comm) = unsafe { (memory.as_ref(), comm.as_ref()) };
        let (Some(memory), Some(comm)) = (memory, comm) else {
            return Err(Failure::argument("ringccl_memory_register: a pointer is null"));
        };
        // The window lasts as long as the communicator, whatever becomes of its handle.
        let _window = comm.with(|comm| Ok(comm.register(&memory.memory)?))?;
        Ok(Status::Ok)
    })
}

/// Frees memory. A communicator that it is registered with keeps it until that is freed.
///
/// # Safety
/// - `memory` is null, or comes from [`ringccl_memory_new`], was not freed, and no operation uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_memory_free(memory: *mut Memory) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let memory = unsafe { Box::from_raw(memory) };
    let _ = guard(|| {
        if memory.process != Process::current() {
            // A child's copies of what its parent has are of no use to it and go with it.
            std::mem::forget(memory);
        }
        Ok(Status::Ok)
    });
}
