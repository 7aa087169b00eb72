//! What the kernel answers when it is asked for something.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes what a system call answered: a descriptor of its own, closed at once, or why there is none.
fn closed(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(answer as i32) });
    Ok(())
}

/// Sets up an io_uring with one entry and closes it.
pub(super) fn io_uring() -> io::Result<()> {
    // `struct io_uring_params` has 120 bytes: all zero asks for nothing special, and the kernel fills it.
    let mut params = [0u64; 15];
    // SAFETY: the call reads and writes the 120 bytes of `params`, which lives until it returns.
    closed(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) })
}

/// Opens a descriptor of this process and closes it.
pub(super) fn pidfd() -> io::Result<()> {
    // SAFETY: the call has numbers only.
    closed(unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) })
}
