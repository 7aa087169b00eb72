//! Memory that can be registered.

use crate::error::Error;
use crate::reduce::Element;
use shmring::region::Region;
use std::sync::Arc;

/// Memory of this process that other ranks can be given access to by
/// [`register`](crate::Communicator::register). Zeroed, and committed from the start; begins on a page.
///
/// Until it is registered it is like any other memory. Registered, other ranks read it in collectives for which this
/// rank passes a part of it, and write it by [`put`](crate::Communicator::put) alone, whose caller answers for it.
#[derive(Debug)]
pub struct SharedMemory {
    region: Arc<Region>,
    /// Bytes asked for.
    len: usize,
}

impl SharedMemory {
    /// `bytes` of memory. They may be more than `/dev/shm` has room for.
    ///
    /// # Errors
    /// [`Error::Memory`] when the machine, or the container, has not as much.
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let region = Region::new(bytes).map_err(|cause| Error::Memory { bytes, cause })?;
        Ok(Self { region: Arc::new(region), len: bytes })
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.region.as_ptr()
    }

    /// The first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// As many elements as it has room for.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        // SAFETY: the memory is mapped for as long as the region lives, starts on a page, and any bytes are an element;
        // who lets other ranks write to it answers for it, see the type.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len / size_of::<T>()) }
    }

    /// As many elements as it has room for.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; this is the one handle of this memory.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len / size_of::<T>()) }
    }
}
