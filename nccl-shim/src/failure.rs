//! Why a call failed: its code and the text that `ncclGetLastError` gives.

use crate::log;
use crate::result::{Code, code_of};
use crate::types::ResultCode;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
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

/// Bytes of a kept text with its end; what is longer is cut.
const LONGEST: usize = 4096;

/// A text in C's form, in memory that is never given back: programs keep the pointer beyond the next error, and beyond
/// the end of the thread.
type Text = [u8; LONGEST];

/// The last text of this process, for threads that have had no error of their own.
static LAST: Mutex<Text> = Mutex::new([0; LONGEST]);

/// Texts of threads that have ended, for new ones; there are as many as there ever were threads at a time.
static ENDED: Mutex<Vec<&'static mut Text>> = Mutex::new(Vec::new());

/// The memory of one thread, once it is needed.
struct Mine(RefCell<Option<&'static mut Text>>);

impl Mine {
    /// Does something with this thread's text.
    fn with<R>(&self, act: impl FnOnce(&mut Text) -> R) -> R {
        act(self.0.borrow_mut().get_or_insert_with(|| {
            let old = ENDED.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let text = old.unwrap_or_else(|| Box::leak(Box::new([0; LONGEST])));
            // What another thread has left is no error of this one.
            text[0] = 0;
            text
        }))
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some(text) = self.0.take() {
            ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }
}

thread_local! {
    /// The last text of this thread. NCCL has one for the whole process, which threads overwrite for each other.
    static MINE: Mine = const { Mine(RefCell::new(None)) };
}

/// Stores a text without zero bytes, cut between two characters where it is too long.
fn store(to: &mut Text, text: &str) {
    let mut end = text.len().min(LONGEST - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in to.iter_mut().zip(text.as_bytes()[..end].iter()) {
        *to = if *from == 0 { b' ' } else { *from };
    }
    to[end] = 0;
}

/// Keeps the text of a failure and logs it.
#[cold]
pub(crate) fn record(failure: &Failure) {
    if failure.code() == Code::InProgress {
        return;
    }
    store(&mut LAST.lock().unwrap_or_else(PoisonError::into_inner), failure.text());
    // While the thread ends there is nothing left to keep it in, and nobody to ask.
    let _ = MINE.try_with(|mine| mine.with(|mine| store(mine, failure.text())));
    log::warn(failure.text());
}

/// The text of this thread's last error, or of the process's if this thread had none; empty if there was none.
pub(crate) fn last() -> *const c_char {
    let read = MINE.try_with(|mine| {
        mine.with(|mine| {
            if mine[0] == 0 {
                mine.copy_from_slice(&*LAST.lock().unwrap_or_else(PoisonError::into_inner));
            }
            mine.as_ptr().cast()
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn read(text: *const c_char) -> String {
        // SAFETY: `last` gives a text with an end, in memory that stays.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    /// A pointer that a program has kept can be read after the next error, and after its thread has ended; a thread
    /// that begins later sees the process's last text and not that of the ended one.
    #[test]
    fn texts_stay_readable() {
        let of_thread = |text: &'static str| {
            let told = move || {
                record(&Failure::usage(text));
                last() as usize
            };
            std::thread::spawn(told).join().unwrap() as *const c_char
        };
        let first = of_thread("the first");
        assert_eq!(read(first), "the first");
        record(&Failure::usage("here"));
        let kept = last();
        record(&Failure::usage("here again, longer"));
        assert_eq!((read(kept), read(last())), ("here again, longer".into(), "here again, longer".into()));
        assert_eq!(kept, first, "memory of a thread that has ended is used again");
        assert_eq!(read(of_thread("the second")), "the second");
        let seen = std::thread::spawn(|| read(last())).join().unwrap();
        assert_eq!(seen, "the second");
    }

    /// What is too long is cut between two characters, and a zero byte ends nothing.
    #[test]
    fn texts_are_bounded() {
        let mut text = [1; LONGEST];
        store(&mut text, &"\u{e4}".repeat(LONGEST));
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(end, LONGEST - 2);
        assert!(std::str::from_utf8(&text[..end]).is_ok());
        store(&mut text, "a\0b");
        assert_eq!(&text[..4], b"a b\0");
    }
}
