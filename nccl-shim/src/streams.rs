//! Where streams of a CUDA runtime of this project will come in.
//!
//! A stream handle that nobody here has made cannot be waited for by the caller, so the result is in the buffer when
//! the call returns. A CUDA runtime that is made of this project's own streams says which handle is which stream;
//! operations on it are then queued there, behind what is queued already.

use crate::types::StreamHandle;
use ringccl::Stream;
use std::sync::{Arc, OnceLock};

/// Who knows streams by their handles.
pub trait Streams: Send + Sync {
    /// The stream behind a handle; `None` for one that it has not made.
    fn find(&self, handle: StreamHandle) -> Option<Arc<Stream>>;
}

static STREAMS: OnceLock<Box<dyn Streams>> = OnceLock::new();

/// Has operations on the streams that `streams` knows queued there. The first counts; whether this was it.
pub fn register(streams: Box<dyn Streams>) -> bool {
    STREAMS.set(streams).is_ok()
}

/// The stream behind a handle, if it is one that can be waited for.
#[inline]
pub fn find(handle: StreamHandle) -> Option<Arc<Stream>> {
    STREAMS.get()?.find(handle)
}
