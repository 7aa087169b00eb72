//! Memory: allocated, registered, in windows.

use crate::comm::{find, lock};
use crate::env;
use crate::export::export;
use crate::failure::Failure;
use crate::group::{self, Job, Out};
use crate::memory;
use crate::types::{CommHandle, WindowHandle};
use crate::window;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

export! {
    /// Allocates memory that windows can be made of. Nothing for no bytes.
    ncclMemAlloc = pncclMemAlloc(ptr: *mut *mut c_void, size: usize) {
        if ptr.is_null() {
            return Err(Failure::argument("ncclMemAlloc : ptr argument is NULL"));
        }
        let address = if size == 0 { std::ptr::null_mut() } else { memory::alloc(size)? };
        // SAFETY: not null; the caller's contract.
        unsafe { ptr.write(address.cast()) };
        Ok(())
    }

    /// Frees it.
    ncclMemFree = pncclMemFree(ptr: *mut c_void) {
        if ptr.is_null() { Ok(()) } else { memory::free(ptr.cast()) }
    }

    /// Promises that memory will be used often.
    ncclCommRegister = pncclCommRegister(comm: CommHandle, buffer: *mut c_void, size: usize, handle: *mut *mut c_void) {
        const CALL: &str = "ncclCommRegister";
        if env::number(&env::vars(), "NCCL_LOCAL_REGISTER") == Some(0) {
            if !handle.is_null() {
                // SAFETY: not null; the caller's contract.
                unsafe { handle.write(std::ptr::null_mut()) };
            }
            return Ok(());
        }
        let comm = find(comm, CALL)?;
        comm.check_ready()?;
        if buffer.is_null() || handle.is_null() || size == 0 {
            return Err(Failure::argument(format!("{CALL} : {size} bytes at {buffer:p}, handle at {handle:p}")));
        }
        let registered = lock(&comm.registered).add(buffer.addr(), size);
        // SAFETY: not null; the caller's contract.
        unsafe { handle.write(registered) };
        Ok(())
    }

    /// Takes that back.
    ncclCommDeregister = pncclCommDeregister(comm: CommHandle, handle: *mut c_void) {
        const CALL: &str = "ncclCommDeregister";
        let comm = find(comm, CALL)?;
        if handle.is_null() {
            return Ok(());
        }
        lock(&comm.registered).remove(handle)
    }

    /// Makes a window of every rank's memory. Memory that others cannot be given access to makes none, which is no
    /// error.
    ncclCommWindowRegister = pncclCommWindowRegister(
        comm: CommHandle, buffer: *mut c_void, size: usize, win: *mut WindowHandle, _flags: c_int,
    ) {
        const CALL: &str = "ncclCommWindowRegister";
        group::call(|| {
            let comm = super::check::comm(comm, CALL)?;
            if win.is_null() {
                return Err(Failure::argument(format!("{CALL} : win argument is NULL")));
            }
            let out = Out(win);
            out.write(std::ptr::null_mut());
            if buffer.is_null() || size == 0 {
                return Err(Failure::argument(format!("{CALL} : {size} bytes at {buffer:p} make no window")));
            }
            if env::number(&env::vars(), "NCCL_WIN_ENABLE") == Some(0) {
                return Ok(());
            }
            let (member, buffer) = (Arc::clone(&comm), buffer.addr());
            let work = move || {
                let buffer = std::ptr::with_exposed_provenance(buffer);
                out.write(window::register(&member, buffer, size)?);
                Ok(())
            };
            group::submit_job(Job::Register(comm, Box::new(work)))
        })
    }

    /// Takes a window back, for this rank.
    ncclCommWindowDeregister = pncclCommWindowDeregister(comm: CommHandle, win: WindowHandle) {
        const CALL: &str = "ncclCommWindowDeregister";
        let comm = find(comm, CALL)?;
        if win.is_null() {
            return Ok(());
        }
        window::deregister(&comm, win)
    }

    /// The buffer that a window was made of.
    ncclWinGetUserPtr = pncclWinGetUserPtr(comm: CommHandle, win: WindowHandle, out: *mut *mut c_void) {
        const CALL: &str = "ncclWinGetUserPtr";
        let comm = find(comm, CALL)?;
        if out.is_null() {
            return Err(Failure::argument(format!("{CALL} : outUserPtr argument is NULL")));
        }
        if win.is_null() {
            return Err(Failure::argument(format!("{CALL} : win argument is NULL")));
        }
        let window = window::find(&comm, win, CALL)?;
        // SAFETY: not null; the caller's contract.
        unsafe { out.write(std::ptr::with_exposed_provenance_mut(window.buffer)) };
        Ok(())
    }
}
