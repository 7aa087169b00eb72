//! NCCL's result codes: their texts, and which of them an error of the library becomes. Nowhere else is an error
//! mapped.

use ringccl::{Error, ErrorClass};
use std::ffi::{CStr, c_int};

/// `ncclResult_t`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "NCCL's names")]
pub(crate) enum Code {
    Success = 0,
    UnhandledCudaError = 1,
    SystemError = 2,
    InternalError = 3,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
    InProgress = 7,
    Timeout = 8,
}

impl Code {
    /// Every code.
    pub(crate) const ALL: [Self; 9] = [
        Self::Success,
        Self::UnhandledCudaError,
        Self::SystemError,
        Self::InternalError,
        Self::InvalidArgument,
        Self::InvalidUsage,
        Self::RemoteError,
        Self::InProgress,
        Self::Timeout,
    ];

    /// The code with this number.
    pub(crate) fn from_number(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as c_int == number)
    }

    /// What `ncclGetErrorString` says of it.
    pub(crate) fn text(self) -> &'static CStr {
        match self {
            Self::Success => c"no error",
            Self::UnhandledCudaError => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            Self::SystemError => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
            Self::InternalError => {
                c"internal error - please report this issue (with what NCCL_DEBUG=INFO prints)"
            }
            Self::InvalidArgument => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
            Self::InvalidUsage => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
            Self::RemoteError => c"remote process exited or there was a network error",
            Self::InProgress => c"NCCL operation in progress",
            Self::Timeout => c"timeout",
        }
    }
}

/// What `ncclGetErrorString` says of a number that is no code.
pub(crate) const UNKNOWN: &CStr = c"unknown result code";

/// The code of an error of the library.
///
/// A passed time limit is a remote error: NCCL's host calls never return `ncclTimeout`, and what was waited for in vain
/// is another rank.
pub(crate) fn code_of(error: &Error) -> Code {
    match error.class() {
        ErrorClass::InvalidArgument => Code::InvalidArgument,
        ErrorClass::InvalidUsage => Code::InvalidUsage,
        ErrorClass::System => Code::SystemError,
        ErrorClass::Remote | ErrorClass::Timeout => Code::RemoteError,
        ErrorClass::Internal => Code::InternalError,
    }
}
