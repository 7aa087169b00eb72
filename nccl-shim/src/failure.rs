//! Why a call failed: its code and the text that `ncclGetLastError` gives.

use crate::log;
use crate::result::{Code, code_of};
use crate::types::ResultCode;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// A code and what to say about it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Box<(Code, String)>);

/// The result of a body.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with a text of ours.
    #[cold]
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self(Box::new((code, text.into())))
    }

    /// `ncclInvalidArgument`.
    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, text)
    }

    /// `ncclInvalidUsage`.
    #[cold]
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Code::InvalidUsage, text)
    }

    /// `ncclInProgress`, which is no failure but travels like one.
    #[cold]
    pub(crate) fn in_progress() -> Self {
        Self::new(Code::InProgress, "")
    }

    /// The code.
    pub(crate) fn code(&self) -> Code {
        self.0.0
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.0.1
    }
}

impl From<ringccl::Error> for Failure {
    #[cold]
    fn from(error: ringccl::Error) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

/// The last text of this process, for threads that have had no error of their own.
static LAST: Mutex<Option<CString>> = Mutex::new(None);

thread_local! {
    /// The last text of this thread. NCCL has one for the whole process, which threads overwrite for each other.
    static MINE: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a failure and logs it.
#[cold]
pub(crate) fn record(failure: &Failure) {
    if failure.code() == Code::InProgress {
        return;
    }
    let text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
    // While the thread ends there is nothing left to keep it in, and nobody to ask.
    let _ = MINE.try_with(|mine| mine.replace(text));
    log::warn(failure.text());
}

/// The text of this thread's last error, or of the process's if this thread had none; empty if there was none.
pub(crate) fn last() -> *const c_char {
    let read = MINE.try_with(|mine| {
        let mut mine = mine.borrow_mut();
        if mine.is_empty()
            && let Some(last) = &*LAST.lock().unwrap_or_else(PoisonError::into_inner)
        {
            *mine = last.clone();
        }
        mine.as_ptr()
    });
    read.unwrap_or(c"".as_ptr())
}

/// Runs the body of an exported function: nothing unwinds into C, and a failure's text is kept.
#[inline]
pub(crate) fn guard(name: &'static str, body: impl FnOnce() -> Outcome) -> ResultCode {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Success as c_int,
        Ok(Err(failure)) => told(&failure),
        Err(panic) => told(&panicked(name, panic.as_ref())),
    }
}

#[cold]
fn told(failure: &Failure) -> ResultCode {
    record(failure);
    failure.code() as c_int
}

/// The failure that a panic becomes.
#[cold]
pub(crate) fn panicked(name: &str, panic: &(dyn std::any::Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::new(Code::InternalError, format!("{name}: a promise of this library does not hold: {said}"))
}
