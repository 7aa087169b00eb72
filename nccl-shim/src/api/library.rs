//! What needs no communicator.

use crate::export::{export, export_plain};
use crate::failure::{self, Failure};
use crate::log;
use crate::result::{Code, UNKNOWN};
use crate::roots;
use crate::types::{CommHandle, ResultCode, UniqueIdBytes, VERSION};
use std::ffi::{c_char, c_int};

export! {
    /// The version of NCCL whose interface this is.
    ncclGetVersion = pncclGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(Failure::argument("ncclGetVersion : version argument is NULL"));
        }
        // SAFETY: not null; the caller's contract.
        unsafe { version.write(VERSION) };
        Ok(())
    }

    /// A new id by which ranks meet.
    ncclGetUniqueId = pncclGetUniqueId(id: *mut UniqueIdBytes) {
        if id.is_null() {
            return Err(Failure::argument("ncclGetUniqueId : uniqueId argument is NULL"));
        }
        let internal = roots::new_id()?;
        // SAFETY: not null; the caller's contract.
        unsafe { id.write(UniqueIdBytes { internal }) };
        Ok(())
    }
}

export_plain! {
    /// What a result code means.
    ncclGetErrorString = pncclGetErrorString(result: ResultCode) -> *const c_char, UNKNOWN.as_ptr(); {
        Code::from_number(result).map_or(UNKNOWN, Code::text).as_ptr()
    }

    /// The text of the last error of this thread, or of the process if it had none. The communicator does not matter.
    ncclGetLastError = pncclGetLastError(_comm: CommHandle) -> *const c_char, c"".as_ptr(); {
        failure::last()
    }

    /// Has the next log line read the settings of the log again.
    ncclResetDebugInit = pncclResetDebugInit() -> (), (); {
        log::reset()
    }
}

/// The same under the name that has no twin.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInitInternal() {
    pncclResetDebugInit();
}
