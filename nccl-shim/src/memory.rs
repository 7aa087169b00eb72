//! `ncclMemAlloc`: memory that other ranks can be given access to by a window.

use crate::comm::lock;
use crate::failure::{Failure, Outcome};
use ringccl::SharedMemory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Allocations by their address.
static ALLOCATIONS: Mutex<BTreeMap<usize, Arc<SharedMemory>>> = Mutex::new(BTreeMap::new());

/// Allocates; the address.
pub(crate) fn alloc(bytes: usize) -> Result<*mut u8, Failure> {
    let memory = SharedMemory::new(bytes)?;
    let address = memory.as_ptr().cast_mut();
    lock(&ALLOCATIONS).insert(address.addr(), Arc::new(memory));
    Ok(address)
}

/// Frees what `alloc` has given. Memory of a window stays until its communicator has gone.
pub(crate) fn free(address: *const u8) -> Outcome {
    let memory = lock(&ALLOCATIONS).remove(&address.addr());
    memory.map(drop).ok_or_else(|| {
        Failure::argument(format!(
            "ncclMemFree : {address:p} was not allocated by ncclMemAlloc, or was freed before"
        ))
    })
}

/// The allocation that `bytes` at `address` lie in, and how far in.
pub(crate) fn find(address: *const u8, bytes: usize) -> Option<(Arc<SharedMemory>, usize)> {
    let allocations = lock(&ALLOCATIONS);
    let (first, memory) = allocations.range(..=address.addr()).next_back()?;
    let offset = address.addr() - first;
    (offset <= memory.len() && bytes <= memory.len() - offset).then(|| (Arc::clone(memory), offset))
}
