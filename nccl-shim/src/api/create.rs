//! Communicators are made.

use super::check;
use crate::comm::find;
use crate::config;
use crate::create::{self, ById};
use crate::env;
use crate::export::export;
use crate::failure::{Failure, Outcome};
use crate::group;
use crate::roots;
use crate::types::{CommHandle, ConfigFields, SHRINK_ABORT, UniqueIdBytes};
use ringccl::UniqueId;
use ringccl::comm::Shrink;
use std::ffi::c_int;

export! {
    /// Joins as a rank, and waits for the others.
    ncclCommInitRank = pncclCommInitRank(comm: *mut CommHandle, nranks: c_int, id: UniqueIdBytes, rank: c_int) {
        const CALL: &str = "ncclCommInitRank";
        // SAFETY: null is allowed.
        group::call(|| unsafe { join(CALL, comm, (nranks, rank), &id, std::ptr::null()) })
    }

    /// Joins as a rank, with a configuration.
    ncclCommInitRankConfig = pncclCommInitRankConfig(
        comm: *mut CommHandle, nranks: c_int, id: UniqueIdBytes, rank: c_int, config: *mut ConfigFields,
    ) {
        // SAFETY: the caller's contract.
        group::call(|| unsafe { join("ncclCommInitRankConfig", comm, (nranks, rank), &id, config) })
    }

    /// Joins as a rank, where several ids were made to share the work; here the first serves all.
    ncclCommInitRankScalable = pncclCommInitRankScalable(
        newcomm: *mut CommHandle, nranks: c_int, rank: c_int, n_id: c_int, ids: *mut UniqueIdBytes,
        config: *mut ConfigFields,
    ) {
        const CALL: &str = "ncclCommInitRankScalable";
        group::call(|| {
            create::out(newcomm, CALL)?;
            if n_id <= 0 || n_id > nranks {
                return Err(Failure::argument(format!("{CALL} : {n_id} ids for {nranks} ranks; 1 to {nranks}")));
            }
            if ids.is_null() {
                return Err(Failure::argument(format!("{CALL} : commIds argument is NULL")));
            }
            // SAFETY: not null; the caller's contract.
            unsafe { join(CALL, newcomm, (nranks, rank), &ids.read(), config) }
        })
    }

    /// Makes all ranks of a communicator in this process.
    ncclCommInitAll = pncclCommInitAll(comms: *mut CommHandle, ndev: c_int, devlist: *const c_int) {
        const CALL: &str = "ncclCommInitAll";
        group::call(|| {
            let count = usize::try_from(ndev).ok().filter(|_| !comms.is_null());
            let count = count.ok_or_else(|| {
                Failure::argument(format!("{CALL} : {ndev} communicators at {comms:p}; it takes a place for each"))
            })?;
            let devices: Vec<c_int> = if devlist.is_null() {
                (0..ndev).collect()
            } else {
                // SAFETY: not null; the caller's contract.
                unsafe { std::slice::from_raw_parts(devlist, count) }.to_vec()
            };
            if let Some(device) = devices.iter().find(|device| **device < 0) {
                return Err(Failure::argument(format!("{CALL} : invalid device {device} (it is 0 or more)")));
            }
            let made = create::all(&devices)?;
            // SAFETY: not null; the caller's contract.
            let places = unsafe { std::slice::from_raw_parts_mut(comms, count) };
            places.copy_from_slice(&made);
            Ok(())
        })
    }

    /// Makes a communicator of the ranks of each colour.
    ncclCommSplit = pncclCommSplit(
        comm: CommHandle, color: c_int, key: c_int, newcomm: *mut CommHandle, config: *mut ConfigFields,
    ) {
        const CALL: &str = "ncclCommSplit";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let out = create::out(newcomm, CALL)?;
            // SAFETY: the caller's contract.
            unsafe {
                let fields = config::read(config)?;
                create::split(comm, color, key, out, &fields)
            }
        })
    }

    /// Makes a communicator without some ranks, which need not be alive.
    ncclCommShrink = pncclCommShrink(
        comm: CommHandle, exclude: *mut c_int, count: c_int, newcomm: *mut CommHandle, config: *mut ConfigFields,
        flags: c_int,
    ) {
        group::call(|| {
            // SAFETY: the caller's contract.
            unsafe { shrink(comm, (exclude, count), newcomm, config, flags) }
        })
    }

    /// An id by which newcomers join when this communicator grows.
    ncclCommGetUniqueId = pncclCommGetUniqueId(comm: CommHandle, id: *mut UniqueIdBytes) {
        const CALL: &str = "ncclCommGetUniqueId";
        let comm = check::comm(comm, CALL)?;
        if id.is_null() {
            return Err(Failure::argument(format!("{CALL} : uniqueId argument is NULL")));
        }
        if roots::is_fixed(&env::vars()) {
            return Err(Failure::usage(format!("{CALL} : communicators that meet by NCCL_COMM_ID cannot grow")));
        }
        let made: UniqueId = comm.with(|comm| Ok(comm.growth_id()?))?;
        // SAFETY: not null; the caller's contract.
        unsafe { id.write(UniqueIdBytes { internal: made.to_bytes() }) };
        Ok(())
    }

    /// Makes a communicator of the same ranks and newcomers.
    ncclCommGrow = pncclCommGrow(
        comm: CommHandle, n_ranks: c_int, id: *const UniqueIdBytes, rank: c_int, newcomm: *mut CommHandle,
        config: *mut ConfigFields,
    ) {
        group::call(|| {
            // SAFETY: the caller's contract.
            unsafe { grow(comm, n_ranks, id, rank, newcomm, config) }
        })
    }
}

/// # Safety
/// - `config` is null or a structure as NCCL's guide has it.
unsafe fn join(
    call: &'static str,
    comm: *mut CommHandle,
    (nranks, rank): (c_int, c_int),
    id: &UniqueIdBytes,
    config: *const ConfigFields,
) -> Outcome {
    let out = create::out(comm, call)?;
    let by = ById { call, nranks, rank, id: &id.internal, always_waits: call == "ncclCommInitRank" };
    // SAFETY: the caller's contract.
    unsafe {
        let fields = config::read(config)?;
        create::by_id(by, &fields, out)
    }
}

/// # Safety
/// - Pointers are null or as NCCL's guide has them.
unsafe fn shrink(
    comm: CommHandle,
    (exclude, count): (*mut c_int, c_int),
    newcomm: *mut CommHandle,
    config: *const ConfigFields,
    flags: c_int,
) -> Outcome {
    const CALL: &str = "ncclCommShrink";
    // Neither a revoked communicator nor one that has failed keeps its survivors from going on.
    let comm = find(comm, CALL)?;
    let out = create::out(newcomm, CALL)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && !exclude.is_null());
    let Some(count) = count else {
        return Err(Failure::argument(format!("{CALL} : the list of excluded ranks is empty or NULL")));
    };
    // SAFETY: not null; the caller's contract.
    let list = unsafe { std::slice::from_raw_parts_mut(exclude, count) };
    // NCCL leaves the list sorted, and programs may have come to rely on it.
    list.sort_unstable();
    if list.contains(&(comm.about.rank as c_int)) {
        let rank = comm.about.rank;
        return Err(Failure::argument(format!(
            "{CALL} : the calling rank {rank} is itself in the list of excluded ranks"
        )));
    }
    let mut ranks = Vec::with_capacity(count);
    for rank in list.iter() {
        ranks.push(check::rank(&comm, *rank, "excluded rank", CALL)?);
    }
    if ranks.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Failure::argument(format!("{CALL} : a rank is twice in the list of excluded ranks")));
    }
    if flags & !SHRINK_ABORT != 0 {
        return Err(Failure::argument(format!(
            "{CALL} : flags {flags:#x}; they are NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT"
        )));
    }
    let mode = if flags & SHRINK_ABORT != 0 { Shrink::Abort } else { Shrink::Keep };
    if mode == Shrink::Keep && !comm.is_revoked() {
        comm.check_ready().or_else(|failure| comm.has_ended().then_some(()).ok_or(failure))?;
    }
    // SAFETY: the caller's contract.
    unsafe {
        let fields = config::read(config)?;
        create::shrink(comm, ranks, mode, out, &fields)
    }
}

/// # Safety
/// - Pointers are null or as NCCL's guide has them.
unsafe fn grow(
    comm: CommHandle,
    n_ranks: c_int,
    id: *const UniqueIdBytes,
    rank: c_int,
    newcomm: *mut CommHandle,
    config: *const ConfigFields,
) -> Outcome {
    const CALL: &str = "ncclCommGrow";
    let out = create::out(newcomm, CALL)?;
    let nranks = u32::try_from(n_ranks).ok().filter(|ranks| *ranks > 0);
    let nranks =
        nranks.ok_or_else(|| Failure::argument(format!("{CALL} : {n_ranks} is no number of ranks")))?;
    if comm.is_null() {
        if id.is_null() {
            return Err(Failure::argument(format!(
                "{CALL} : a new rank needs the id of ncclCommGetUniqueId"
            )));
        }
        if rank < 0 || rank >= n_ranks {
            let last = n_ranks - 1;
            return Err(Failure::argument(format!(
                "{CALL} : invalid rank {rank} (it is in the range 0..{last})"
            )));
        }
        // SAFETY: not null; the caller's contract.
        return unsafe { join(CALL, newcomm, (n_ranks, rank), &id.read(), config) };
    }
    let comm = check::comm(comm, CALL)?;
    if rank != -1 {
        return Err(Failure::argument(format!(
            "{CALL} : an existing rank passes -1 and keeps its rank, not {rank}"
        )));
    }
    if nranks <= comm.about.nranks {
        let old = comm.about.nranks;
        return Err(Failure::argument(format!(
            "{CALL} : {nranks} ranks are not more than the {old} that there are"
        )));
    }
    // SAFETY: the caller's contract.
    unsafe {
        let fields = config::read(config)?;
        create::grow(comm, nranks, out, &fields)
    }
}
