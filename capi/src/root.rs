//! The rendezvous that one rank hosts for the others.

use crate::status::{Failure, Status, guard};
use ringccl::comm;

/// Bytes of an id.
pub const ID_BYTES: usize = 128;

/// A rendezvous, until it is freed.
#[derive(Debug)]
pub struct Root {
    _root: comm::Root,
}

/// Starts a rendezvous on this host and writes its id to `id`. Free it when every rank has joined.
///
/// # Safety
/// - `id` has room for [`ID_BYTES`] bytes; `out` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_root_new(id: *mut u8, out: *mut *mut Root) -> Status {
    guard(|| {
        if id.is_null() || out.is_null() {
            return Err(Failure::argument("ringccl_root_new: a pointer is null"));
        }
        let root = comm::Root::new()?;
        let bytes = root.unique_id().to_bytes();
        // SAFETY: the caller's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), id, ID_BYTES);
            out.write(Box::into_raw(Box::new(Root { _root: root })));
        }
        Ok(Status::Ok)
    })
}

/// Ends a rendezvous.
///
/// # Safety
/// - `root` is null, or comes from [`ringccl_root_new`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_root_free(root: *mut Root) {
    if !root.is_null() {
        // SAFETY: the caller's contract.
        let root = unsafe { Box::from_raw(root) };
        let _ = guard(|| {
            drop(root);
            Ok(Status::Ok)
        });
    }
}
