//! The host's side of NCCL's device interface: what needs a GPU is refused, arithmetic is done.

use super::check;
use crate::comm::{Comm, find};
use crate::export::{export, export_plain};
use crate::failure::{Failure, Outcome};
use crate::types::{
    API_MAGIC, CommHandle, CommProperties, DevCommRequirementsHead, DevResourceRequirements, MultimemHandle,
    Team, VERSION, WindowHandle,
};
use crate::window::{WINDOWS, Window};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Why there is no device communicator.
const NO_DEVICE: &str = "the device interface runs in kernels of a GPU; this library has none and moves host memory: \
                         use the host calls";

/// Up to this version the properties end before the GIN fields.
const SHORT_PROPERTIES: u32 = 22903;

export! {
    /// What a communicator can do.
    ncclCommQueryProperties = pncclCommQueryProperties(comm: CommHandle, props: *mut CommProperties) {
        const CALL: &str = "ncclCommQueryProperties";
        let comm = find(comm, CALL)?;
        if props.is_null() {
            return Err(Failure::argument(format!("{CALL} : props argument is NULL")));
        }
        comm.check_ready()?;
        // SAFETY: not null; the caller's contract: at least the head, and what its version has.
        unsafe { properties(&comm, props) }
    }

    /// Refused: it needs a GPU.
    ncclDevCommCreate = pncclDevCommCreate(
        comm: CommHandle, reqs: *const DevCommRequirementsHead, dev_comm: *mut c_void,
    ) {
        const CALL: &str = "ncclDevCommCreate";
        find(comm, CALL)?;
        if reqs.is_null() || dev_comm.is_null() {
            return Err(Failure::argument(format!("{CALL} : requirements or outDevComm is NULL")));
        }
        // SAFETY: not null; the caller's contract.
        let magic = unsafe { (&raw const (*reqs).magic).read() };
        if magic != API_MAGIC {
            return Err(Failure::usage(format!(
                "{CALL} : requirements do not begin as NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER does"
            )));
        }
        Err(Failure::usage(format!("{CALL} : {NO_DEVICE}")))
    }

    /// Refused: there are none to destroy.
    ncclDevCommDestroy = pncclDevCommDestroy(comm: CommHandle, dev_comm: *const c_void) {
        const CALL: &str = "ncclDevCommDestroy";
        find(comm, CALL)?;
        if dev_comm.is_null() {
            return Err(Failure::argument(format!("{CALL} : devComm argument is NULL")));
        }
        Err(Failure::usage(format!("{CALL} : {NO_DEVICE}")))
    }

    /// There is no multicast memory: null, which is no error.
    ncclGetLsaMultimemDevicePointer = pncclGetLsaMultimemDevicePointer(
        win: WindowHandle, _offset: usize, out: *mut *mut c_void,
    ) {
        window_and_place(win, out, "ncclGetLsaMultimemDevicePointer")?;
        // SAFETY: not null; the caller's contract.
        unsafe { out.write(std::ptr::null_mut()) };
        Ok(())
    }

    /// There is no multicast memory: null, which is no error.
    ncclGetMultimemDevicePointer = pncclGetMultimemDevicePointer(
        win: WindowHandle, _offset: usize, multimem: MultimemHandle, out: *mut *mut c_void,
    ) {
        const CALL: &str = "ncclGetMultimemDevicePointer";
        window_and_place(win, out, CALL)?;
        if multimem.base.is_null() {
            return Err(Failure::argument(format!("{CALL} : the multimem handle is NULL")));
        }
        // SAFETY: not null; the caller's contract.
        unsafe { out.write(std::ptr::null_mut()) };
        Ok(())
    }

    /// Where memory of a rank is mapped in this process.
    ncclGetLsaDevicePointer = pncclGetLsaDevicePointer(
        win: WindowHandle, offset: usize, lsa_rank: c_int, out: *mut *mut c_void,
    ) {
        peer_pointer(win, offset, lsa_rank, out, "ncclGetLsaDevicePointer")
    }

    /// Where memory of a rank is mapped in this process.
    ncclGetPeerDevicePointer = pncclGetPeerDevicePointer(
        win: WindowHandle, offset: usize, peer: c_int, out: *mut *mut c_void,
    ) {
        peer_pointer(win, offset, peer, out, "ncclGetPeerDevicePointer")
    }

    /// What an exchange of small elements needs.
    ncclLLA2ACreateRequirement = pncclLLA2ACreateRequirement(
        n_blocks: c_int, n_slots: c_int, handle: *mut [u32; 2], req: *mut DevResourceRequirements,
    ) {
        const CALL: &str = "ncclLLA2ACreateRequirement";
        let (blocks, slots) = (count(n_blocks, CALL)?, count(n_slots, CALL)?);
        let size = blocks.saturating_mul(1 + 2 * slots).saturating_mul(16);
        // SAFETY: the caller's contract; `require` checks for null.
        unsafe {
            let wanted = DevResourceRequirements { buffer_size: size, buffer_align: 16, ..NOTHING };
            require(req, handle.cast(), wanted, CALL)?;
            (*handle)[1] = n_slots as u32;
        }
        Ok(())
    }

    /// What barriers of ranks that share memory need.
    ncclLsaBarrierCreateRequirement = pncclLsaBarrierCreateRequirement(
        team: Team, n: c_int, handle: *mut [u32; 2], req: *mut DevResourceRequirements,
    ) {
        const CALL: &str = "ncclLsaBarrierCreateRequirement";
        let (barriers, ranks) = (count(n, CALL)?, count(team.n_ranks, CALL)?);
        let size = (3 * barriers).saturating_add(barriers.saturating_mul(ranks)).saturating_mul(4);
        // SAFETY: as above.
        unsafe {
            let wanted = DevResourceRequirements { buffer_size: size, buffer_align: 4, ..NOTHING };
            require(req, handle.cast(), wanted, CALL)?;
            (*handle)[1] = n as u32;
        }
        Ok(())
    }

    /// What barriers over networks need.
    ncclGinBarrierCreateRequirement = pncclGinBarrierCreateRequirement(
        _comm: CommHandle, team: Team, n: c_int, handle: *mut u32, req: *mut DevResourceRequirements,
    ) {
        const CALL: &str = "ncclGinBarrierCreateRequirement";
        let signals = count(n, CALL)?.saturating_mul(count(team.n_ranks, CALL)?);
        let signals = c_int::try_from(signals).unwrap_or(c_int::MAX);
        let wanted = DevResourceRequirements { gin_signal_count: signals, out_gin_signal_start: handle, ..NOTHING };
        // SAFETY: as above.
        unsafe { require(req, handle, wanted, CALL) }
    }

    /// Refused: it needs a network card that a GPU drives.
    ncclGinOutboxCreateRequirement = pncclGinOutboxCreateRequirement(
        _n_blocks: c_int, _log2: c_int, _handle: *mut c_void, _req: *mut DevResourceRequirements,
    ) {
        Err(Failure::usage(format!("ncclGinOutboxCreateRequirement : {NO_DEVICE}")))
    }

    /// Refused: it needs a network card that a GPU drives.
    ncclGinInboxA2ACreateRequirement = pncclGinInboxA2ACreateRequirement(
        _peers: Team, _n_blocks: c_int, _log2: c_int, _handle: *mut c_void, _req: *mut DevResourceRequirements,
    ) {
        Err(Failure::usage(format!("ncclGinInboxA2ACreateRequirement : {NO_DEVICE}")))
    }
}

/// A team of nobody, for a communicator that is none: these calls have no other way to say so.
const NOBODY: Team = Team { n_ranks: 0, rank: 0, stride: 0 };

export_plain! {
    /// All ranks.
    ncclTeamWorld = pncclTeamWorld(comm: CommHandle) -> Team, NOBODY; {
        world(comm)
    }

    /// The ranks that share memory: all, as they are of one host.
    ncclTeamLsa = pncclTeamLsa(comm: CommHandle) -> Team, NOBODY; {
        world(comm)
    }

    /// The ranks with the same place on their hosts: this one alone.
    ncclTeamRail = pncclTeamRail(comm: CommHandle) -> Team, NOBODY; {
        let world = world(comm);
        Team { n_ranks: world.n_ranks.min(1), rank: 0, stride: world.n_ranks }
    }

    /// The number of a team's rank among all ranks.
    ncclTeamRankToWorld = pncclTeamRankToWorld(comm: CommHandle, team: Team, rank: c_int) -> c_int, -1; {
        in_team(world(comm).rank, team, rank)
    }

    /// The number of a team's rank among those that share memory.
    ncclTeamRankToLsa = pncclTeamRankToLsa(comm: CommHandle, team: Team, rank: c_int) -> c_int, -1; {
        in_team(world(comm).rank, team, rank)
    }

    /// Slots of 8 bytes for so many elements of at most so many bytes.
    ncclLLA2ACalcSlots = pncclLLA2ACalcSlots(max_elts: c_int, max_elt_size: c_int) -> c_int, -1; {
        let words = max_elt_size.saturating_add(7) / 8;
        max_elts.saturating_mul(words)
    }
}

/// A requirement of nothing.
const NOTHING: DevResourceRequirements = DevResourceRequirements {
    next: std::ptr::null_mut(),
    buffer_size: 0,
    buffer_align: 0,
    out_buffer_handle: std::ptr::null_mut(),
    gin_signal_count: 0,
    gin_counter_count: 0,
    out_gin_signal_start: std::ptr::null_mut(),
    out_gin_counter_start: std::ptr::null_mut(),
};

/// Writes a requirement whose buffer's number will go to `handle`.
///
/// # Safety
/// - `req` is null or writable.
unsafe fn require(
    req: *mut DevResourceRequirements,
    handle: *mut u32,
    wanted: DevResourceRequirements,
    call: &str,
) -> Outcome {
    if req.is_null() || handle.is_null() {
        return Err(Failure::argument(format!("{call} : outHandle or outReq is NULL")));
    }
    let out_buffer_handle = if wanted.buffer_size > 0 { handle } else { std::ptr::null_mut() };
    // SAFETY: not null; the caller's contract.
    unsafe { req.write(DevResourceRequirements { out_buffer_handle, ..wanted }) };
    Ok(())
}

fn count(number: c_int, call: &str) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::argument(format!("{call} : {number} is no count")))
}

fn world(handle: CommHandle) -> Team {
    match find(handle, "ncclTeam") {
        Ok(comm) => Team { n_ranks: comm.about.nranks as c_int, rank: comm.about.rank as c_int, stride: 1 },
        Err(failure) => {
            crate::failure::record(&failure);
            NOBODY
        }
    }
}

fn in_team(own: c_int, team: Team, rank: c_int) -> c_int {
    own.wrapping_add(rank.wrapping_sub(team.rank).wrapping_mul(team.stride))
}

/// # Safety
/// - `props` is readable for its head and writable for what its version has.
unsafe fn properties(comm: &Comm, props: *mut CommProperties) -> Outcome {
    const CALL: &str = "ncclCommQueryProperties";
    // SAFETY: the caller's contract.
    let (magic, version) =
        unsafe { ((&raw const (*props).magic).read(), (&raw const (*props).version).read()) };
    if magic != API_MAGIC {
        return Err(Failure::usage(format!(
            "{CALL} : props do not begin as NCCL_COMM_PROPERTIES_INITIALIZER does"
        )));
    }
    let checks = crate::env::number(&crate::env::vars(), "NCCL_ENABLE_VERSION_CHECK") != Some(0);
    if version > VERSION as u32 && checks {
        return Err(Failure::usage(format!(
            "{CALL} : the caller's header has version {version}, this library {VERSION}; build with matching ones"
        )));
    }
    let about = &comm.about;
    // SAFETY: the caller's contract; the fields behind `gin_type` are written for headers that have them.
    unsafe {
        (&raw mut (*props).rank).write(about.rank as c_int);
        (&raw mut (*props).n_ranks).write(about.nranks as c_int);
        (&raw mut (*props).cuda_dev).write(about.device);
        (&raw mut (*props).nvml_dev).write(about.device);
        (&raw mut (*props).device_api_support).write(false);
        (&raw mut (*props).multimem_support).write(false);
        if version > SHORT_PROPERTIES {
            (&raw mut (*props).gin_type).write(0);
            (&raw mut (*props).n_lsa_teams).write(1);
            (&raw mut (*props).host_rma_support).write(about.settings.rma_contexts > 0);
            (&raw mut (*props).railed_gin_type).write(0);
        }
    }
    Ok(())
}

fn window_and_place(win: WindowHandle, out: *mut *mut c_void, call: &str) -> Result<Arc<Window>, Failure> {
    if win.is_null() || out.is_null() {
        return Err(Failure::argument(format!("{call} : window or outPtr is NULL")));
    }
    WINDOWS
        .get(win)
        .map_err(|_| Failure::argument(format!("{call} : {win:p} is no window, or was deregistered")))
}

fn peer_pointer(win: WindowHandle, offset: usize, peer: c_int, out: *mut *mut c_void, call: &str) -> Outcome {
    let window = window_and_place(win, out, call)?;
    let comm = window.comm.upgrade();
    let comm =
        comm.ok_or_else(|| Failure::argument(format!("{call} : the window's communicator has gone")))?;
    let peer = check::rank(&comm, peer, "peer", call)?;
    let address = window.address_of(peer, offset, 0).unwrap_or(std::ptr::null_mut());
    // SAFETY: not null; the caller of the exported function answers for it.
    unsafe { out.write(address.cast()) };
    Ok(())
}
