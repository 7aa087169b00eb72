//! How calls end: a code, and for each thread the text of its last error.

use ringccl::{Error, ErrorClass};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call has ended.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// A wrong argument or setting: nothing was done, and the communicator can go on.
    InvalidArgument = 1,
    /// A wrong use, for instance different calls on different ranks.
    InvalidUsage = 2,
    /// The operating system refused something.
    System = 3,
    /// Another rank failed, left, or ended the communicator.
    Remote = 4,
    /// A time limit passed.
    Timeout = 5,
    /// A promise of this library does not hold.
    Internal = 6,
    /// Not done yet; no error.
    Pending = 7,
}

/// Why a call has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { status: Status::InvalidArgument, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { status: Status::InvalidUsage, text: text.into() }
    }

    /// The text with its end; zero bytes become spaces.
    pub(crate) fn c_text(&self) -> CString {
        CString::new(self.text.replace('\0', " ")).unwrap_or_default()
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let status = match error.class() {
            ErrorClass::InvalidArgument => Status::InvalidArgument,
            ErrorClass::InvalidUsage => Status::InvalidUsage,
            ErrorClass::System => Status::System,
            ErrorClass::Remote => Status::Remote,
            ErrorClass::Timeout => Status::Timeout,
            ErrorClass::Internal => Status::Internal,
        };
        Self { status, text: error.to_string() }
    }
}

thread_local! {
    /// The text of this thread's last error.
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the calling thread's last error; empty if there was none. Valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn ringccl_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Keeps the failure's text for the calling thread.
#[cold]
pub(crate) fn told(failure: &Failure) -> Status {
    // While the thread ends nobody can ask any more.
    let _ = LAST.try_with(|last| last.replace(failure.c_text()));
    failure.status
}

/// Runs the body of an exported function: nothing unwinds into C, and a failure's text is kept.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<Status, Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => told(&failure),
        Err(panic) => told(&panicked(panic.as_ref())),
    }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure { status: Status::Internal, text: format!("a promise of this library does not hold: {said}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// A panic in a function becomes a code and a text that its caller reads; other threads do not see it.
    #[test]
    fn panics_do_not_unwind_into_c() {
        let status = guard(|| panic!("this is expected"));
        // SAFETY: the text is this thread's and stays until its next error.
        let text = unsafe { CStr::from_ptr(ringccl_last_error()) }.to_str().unwrap().to_owned();
        assert_eq!((status, text.ends_with("this is expected")), (Status::Internal, true));
        let other = std::thread::spawn(|| {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(ringccl_last_error()) }.to_bytes().len()
        });
        assert_eq!(other.join().unwrap(), 0);
    }
}
