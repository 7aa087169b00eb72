//! What a communicator is, how it is, and its end.

use super::check;
use crate::comm::{COMMS, Comm, bad_comm, find};
use crate::export::export;
use crate::failure::{Failure, Outcome, record};
use crate::group::{self, Job};
use crate::log::{self, Subsys};
use crate::result::Code;
use crate::types::{CommHandle, ResultCode, SUSPEND_MEM};
use std::ffi::c_int;
use std::sync::Arc;

export! {
    /// Leaves the others, after this rank's own work.
    ncclCommFinalize = pncclCommFinalize(comm: CommHandle) {
        const CALL: &str = "ncclCommFinalize";
        if comm.is_null() {
            return Ok(());
        }
        let comm = find(comm, CALL)?;
        if comm.is_finalized() || comm.is_revoked() {
            return Err(Failure::argument(format!("{CALL} : the communicator was finalized or revoked before")));
        }
        if comm.about.settings.blocking {
            comm.check_ready()?;
        } else if matches!(comm.poll(), Err(failure) if failure.code() == Code::InProgress) {
            return Err(crate::comm::not_ready());
        }
        comm.finalize()
    }

    /// Ends a communicator and its handle.
    ncclCommDestroy = pncclCommDestroy(comm: CommHandle) {
        let Some(comm) = take(comm, "ncclCommDestroy")? else { return Ok(()) };
        let outcome = comm.destroy();
        tell_end(&comm, "Destroy");
        outcome
    }

    /// Ends a communicator on every rank, whatever is under way, and its handle.
    ncclCommAbort = pncclCommAbort(comm: CommHandle) {
        let Some(comm) = take(comm, "ncclCommAbort")? else { return Ok(()) };
        comm.abort();
        tell_end(&comm, "Abort");
        Ok(())
    }

    /// Ends every operation of a communicator; it can be split and shrunk no more but by survivors.
    ncclCommRevoke = pncclCommRevoke(comm: CommHandle, flags: c_int) {
        const CALL: &str = "ncclCommRevoke";
        if comm.is_null() {
            return Ok(());
        }
        let comm = find(comm, CALL)?;
        if flags != 0 {
            return Err(Failure::argument(format!("{CALL} : flags {flags:#x}; there are none but NCCL_REVOKE_DEFAULT")));
        }
        if comm.is_finalized() {
            return Err(Failure::argument(format!("{CALL} : the communicator was finalized")));
        }
        if !comm.revoke() {
            return Err(Failure::argument(format!("{CALL} : the communicator was revoked before")));
        }
        Ok(())
    }

    /// The state of a communicator: 0, `ncclInProgress`, or why it has failed.
    ncclCommGetAsyncError = pncclCommGetAsyncError(comm: CommHandle, error: *mut ResultCode) {
        const CALL: &str = "ncclCommGetAsyncError";
        let comm = find(comm, CALL)?;
        if error.is_null() {
            return Err(Failure::argument(format!("{CALL} : asyncError argument is NULL")));
        }
        let code = match comm.poll() {
            Ok(()) => Code::Success,
            Err(failure) => {
                record(&failure);
                failure.code()
            }
        };
        // SAFETY: not null; the caller's contract.
        unsafe { error.write(code as c_int) };
        Ok(())
    }

    /// The number of ranks.
    ncclCommCount = pncclCommCount(comm: CommHandle, count: *mut c_int) {
        tell(comm, count, "ncclCommCount", |comm| comm.about.nranks as c_int)
    }

    /// The number of the device that the caller has named.
    ncclCommCuDevice = pncclCommCuDevice(comm: CommHandle, device: *mut c_int) {
        tell(comm, device, "ncclCommCuDevice", |comm| comm.about.device)
    }

    /// This rank.
    ncclCommUserRank = pncclCommUserRank(comm: CommHandle, rank: *mut c_int) {
        tell(comm, rank, "ncclCommUserRank", |comm| comm.about.rank as c_int)
    }

    /// Suspends a communicator: it has no memory of a device to release, and no calls until it is resumed.
    ncclCommSuspend = pncclCommSuspend(comm: CommHandle, flags: c_int) {
        const CALL: &str = "ncclCommSuspend";
        let comm = check::comm(comm, CALL)?;
        managed(CALL)?;
        if flags & SUSPEND_MEM == 0 {
            return Ok(());
        }
        in_turn(comm, |comm| {
            comm.suspend();
        })
    }

    /// Ends a suspension.
    ncclCommResume = pncclCommResume(comm: CommHandle) {
        const CALL: &str = "ncclCommResume";
        let comm = find(comm, CALL)?;
        managed(CALL)?;
        if !comm.is_suspended() {
            return Err(Failure::usage(format!("{CALL} : the communicator is not suspended")));
        }
        in_turn(comm, Comm::resume)
    }

    /// What memory a communicator takes: shared memory of all its ranks, in bytes, of which none can be released.
    ncclCommMemStats = pncclCommMemStats(comm: CommHandle, stat: c_int, value: *mut u64) {
        const CALL: &str = "ncclCommMemStats";
        const SUSPENDABLE: c_int = 0;
        const SUSPENDED: c_int = 1;
        const PERSISTENT: c_int = 2;
        const TOTAL: c_int = 3;
        let comm = find(comm, CALL)?;
        if value.is_null() {
            return Err(Failure::argument(format!("{CALL} : value argument is NULL")));
        }
        managed(CALL)?;
        let number = match stat {
            SUSPENDABLE => 0,
            SUSPENDED => u64::from(comm.is_suspended()),
            PERSISTENT | TOTAL => comm.with(|comm| Ok(comm.shared_bytes()?))?,
            _ => return Err(Failure::argument(format!("{CALL} : invalid statistic {stat} (it is in the range 0..3)"))),
        };
        // SAFETY: not null; the caller's contract.
        unsafe { value.write(number) };
        Ok(())
    }
}

/// Does something to a communicator now, or when the group gets there.
fn in_turn(comm: Arc<Comm>, work: impl FnOnce(&Comm) + Send + 'static) -> Outcome {
    if !group::is_open() {
        work(&comm);
        return Ok(());
    }
    let member = Arc::clone(&comm);
    let work = move || {
        work(&member);
        Ok(())
    };
    group::submit_job(Job::Register(comm, Box::new(work)))
}

/// `NCCL_DISABLE_MEM_MANAGER` takes the calls about memory away.
fn managed(call: &str) -> Outcome {
    if crate::env::number(&crate::env::vars(), "NCCL_DISABLE_MEM_MANAGER") == Some(1) {
        return Err(Failure::usage(format!(
            "{call} : the memory manager is switched off by NCCL_DISABLE_MEM_MANAGER=1"
        )));
    }
    Ok(())
}

/// Takes a handle out of the table: the next call finds it dead.
fn take(handle: CommHandle, call: &str) -> Result<Option<Arc<Comm>>, Failure> {
    if handle.is_null() {
        return Ok(None);
    }
    if crate::fork::is_child() {
        // Nothing of it belongs to this process.
        let _ = COMMS.remove(handle).map(std::mem::forget);
        return Ok(None);
    }
    COMMS.remove(handle).map(Some).map_err(|bad| bad_comm(bad, call, handle))
}

fn tell_end(comm: &Comm, what: &str) {
    if log::says(Subsys::DESTROY) {
        let about = &comm.about;
        log::info(
            Subsys::DESTROY,
            about.device,
            format_args!(
                "comm {:#x} rank {} nranks {} cudaDev {} busId 0 - {what} COMPLETE",
                comm.number(),
                about.rank,
                about.nranks,
                about.device
            ),
        );
    }
}

fn tell(handle: CommHandle, out: *mut c_int, call: &str, value: impl FnOnce(&Comm) -> c_int) -> Outcome {
    let comm = find(handle, call)?;
    if out.is_null() {
        return Err(Failure::argument(format!("{call} : the place for the answer is NULL")));
    }
    if !comm.is_quiet()
        && let Err(failure) = comm.poll()
        && failure.code() == Code::InProgress
    {
        return Err(crate::comm::not_ready());
    }
    // SAFETY: not null; the caller of the exported function answers for it.
    unsafe { out.write(value(&comm)) };
    Ok(())
}
