//! How communicators are made: by an id, all of a process at once, or from another one.

use crate::algorithms::Usable;
use crate::comm::{About, Comm, lock};
use crate::config::{self, Settings};
use crate::env;
use crate::failure::{Failure, Outcome};
use crate::fork;
use crate::group::{self, Job, Join, Out};
use crate::log::{self, Subsys};
use crate::roots;
use crate::types::{CommHandle, ConfigFields, SPLIT_NOCOLOR, UNIQUE_ID_BYTES};
use ringccl::Communicator;
use ringccl::comm::Shrink;
use ringccl::settings::Vars;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

/// Most ranks that the library has.
const RANKS_MAX: u32 = 1024;

/// How many ranks of each communicator this process has had.
static RANKS: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

/// Whether all ranks meet at the end for a report or a trace, which needs that this process is one rank of them.
pub(crate) fn is_reported(comm: &Comm) -> bool {
    let is_wanted = comm.about.config.report.is_some() || env::vars().get("RINGCCL_TRACE").is_some();
    is_wanted && lock(&RANKS).get(&comm.about.hash).is_none_or(|ranks| *ranks <= 1)
}

/// What becomes of a caller's arguments for a communicator that is made from no other one.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
unsafe fn about(
    nranks: c_int,
    rank: c_int,
    device: c_int,
    hash: u64,
    fields: &ConfigFields,
) -> Result<About, Failure> {
    let vars = env::vars();
    let (rank, nranks) = check_ranks(nranks, rank)?;
    // SAFETY: the caller's contract.
    let settings = unsafe { Settings::of(fields, &Settings::default(), &vars) };
    let config = settings.config(nranks, &vars)?;
    config::announce(fields);
    fork::watch();
    log::banner(rank as c_int);
    crate::model::claim_lines();
    *lock(&RANKS).entry(hash).or_default() += 1;
    Ok(About { rank, nranks, device, hash, settings, config, usable: Usable::of(&vars)? })
}

fn check_ranks(nranks: c_int, rank: c_int) -> Result<(u32, u32), Failure> {
    let count = u32::try_from(nranks).unwrap_or(0);
    if count == 0 || count > RANKS_MAX {
        return Err(Failure::argument(format!(
            "{nranks} is no number of ranks: it is from 1 to {RANKS_MAX}"
        )));
    }
    let number = u32::try_from(rank).ok().filter(|rank| *rank < count);
    let number = number.ok_or_else(|| {
        Failure::argument(format!("rank {rank} is none of {nranks}: it is from 0 to {}", count - 1))
    })?;
    Ok((number, count))
}

/// The end of a caller's call that makes a communicator: where the handle goes.
pub(crate) fn out(newcomm: *mut CommHandle, call: &str) -> Result<Out, Failure> {
    if newcomm.is_null() {
        return Err(Failure::argument(format!("{call} : newcomm argument is NULL")));
    }
    let out = Out(newcomm);
    out.write(std::ptr::null_mut());
    Ok(out)
}

/// How a rank joins by an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ById<'a> {
    /// What was called.
    pub call: &'static str,
    /// Ranks.
    pub nranks: c_int,
    /// This rank.
    pub rank: c_int,
    /// The id.
    pub id: &'a [u8; UNIQUE_ID_BYTES],
    /// Whether the call waits whatever the configuration says, outside of a group.
    pub always_waits: bool,
}

/// Joins by an id.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
pub(crate) unsafe fn by_id(by: ById<'_>, fields: &ConfigFields, out: Out) -> Outcome {
    let ById { call, nranks, rank, id, always_waits } = by;
    // SAFETY: the caller's contract.
    let mut about = unsafe { about(nranks, rank, 0, roots::hash(id), fields)? };
    if always_waits && !group::is_open() {
        about.settings.blocking = true;
    }
    let is_blocking = about.settings.blocking;
    let (unique, hosted) = roots::prepare(id, about.rank)?;
    let comm = Comm::expected(about);
    tell_start(&comm, call);
    if !is_blocking {
        out.write(comm.publish()?);
    }
    group::submit_job(Job::Join(Box::new(Join { comm, id: unique, bytes: *id, hosted, out, call })))
}

/// All ranks of a communicator, which live in this process.
pub(crate) fn all(devices: &[c_int]) -> Result<Vec<CommHandle>, Failure> {
    const CALL: &str = "ncclCommInitAll";
    let count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
    let hash = roots::hash(&roots::new_number().to_ne_bytes());
    let mut abouts = Vec::with_capacity(devices.len());
    for (rank, device) in (0..).zip(devices) {
        let fields = no_config()?;
        // SAFETY: the structure has no strings.
        let mut about = unsafe { about(count, rank, *device, hash, &fields)? };
        about.settings.blocking = true;
        about.config.report = None;
        abouts.push(about);
    }
    let Some(first) = abouts.first() else { return Ok(Vec::new()) };
    let made = Communicator::init_all(first.nranks, &first.config)?;
    let mut handles = Vec::with_capacity(devices.len());
    for (about, communicator) in abouts.into_iter().zip(made) {
        let comm = Comm::expected(about);
        tell_start(&comm, CALL);
        comm.install(communicator);
        handles.push(comm.publish()?);
        tell_complete(&comm, CALL);
    }
    Ok(handles)
}

/// A caller's structure that is not there.
fn no_config() -> Result<ConfigFields, Failure> {
    // SAFETY: null is allowed.
    unsafe { config::read(std::ptr::null()) }
}

/// What a communicator made from `parent` is, but for its rank and number of ranks, which are known when it is there.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
unsafe fn child_of(parent: &Comm, fields: &ConfigFields, vars: &Vars, hash: u64) -> About {
    // SAFETY: the caller's contract.
    let settings = unsafe { Settings::of(fields, &parent.about.settings, vars) };
    let config = ringccl::Config { report: None, ..parent.about.config.clone() };
    About { hash, settings, config, ..parent.about.clone() }
}

/// The library's settings of a child, if they are not the parent's.
fn own_config(parent: &Comm, child: &About) -> Result<Option<ringccl::Config>, Failure> {
    if parent.about.settings.channels == child.settings.channels {
        return Ok(None);
    }
    child.settings.config(parent.about.nranks, &env::vars()).map(Some)
}

/// Splits a communicator.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
pub(crate) unsafe fn split(
    parent: Arc<Comm>,
    colour: c_int,
    key: c_int,
    out: Out,
    fields: &ConfigFields,
) -> Outcome {
    let number = parent.next_child();
    let hash = child_hash(parent.about.hash, number, colour);
    // SAFETY: the caller's contract.
    let about = unsafe { child_of(&parent, fields, &env::vars(), hash) };
    let config = own_config(&parent, &about)?;
    tell_child("ncclCommSplit", &parent, (number, colour, key), "- Init START");
    let from = Arc::clone(&parent);
    // Negative colours other than NOCOLOR are colours like others.
    let wanted = (colour != SPLIT_NOCOLOR).then_some(colour as u32);
    let work = move || {
        let made = from.with(|comm| Ok(comm.split_with(wanted, key, config.as_ref())?))?;
        let Some(made) = made else { return Ok(()) };
        adopt(made, about, out)?;
        tell_child("ncclCommSplit", &from, (number, colour, key), " - Init COMPLETE");
        Ok(())
    };
    group::submit_job(Job::Make(parent, Box::new(work)))
}

/// Makes a communicator of the survivors.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
pub(crate) unsafe fn shrink(
    parent: Arc<Comm>,
    exclude: Vec<usize>,
    mode: Shrink,
    out: Out,
    fields: &ConfigFields,
) -> Outcome {
    let number = parent.next_child();
    let hash = child_hash(parent.about.hash, number, exclude.len() as c_int);
    // SAFETY: the caller's contract.
    let about = unsafe { child_of(&parent, fields, &env::vars(), hash) };
    let config = own_config(&parent, &about)?;
    tell_child("ncclCommShrink", &parent, (number, 0, 0), "- Init START");
    let from = Arc::clone(&parent);
    let work = move || {
        let made = from.with(|comm| Ok(comm.shrink_with(&exclude, mode, config.as_ref())?))?;
        adopt(made, about, out)?;
        tell_child("ncclCommShrink", &from, (number, 0, 0), " - Init COMPLETE");
        Ok(())
    };
    group::submit_job(Job::Make(parent, Box::new(work)))
}

/// Grows a communicator, as one of its ranks.
///
/// # Safety
/// - The strings of `fields` are null or strings of C.
pub(crate) unsafe fn grow(parent: Arc<Comm>, nranks: u32, out: Out, fields: &ConfigFields) -> Outcome {
    let number = parent.next_child();
    let hash = child_hash(parent.about.hash, number, nranks as c_int);
    // SAFETY: the caller's contract.
    let about = unsafe { child_of(&parent, fields, &env::vars(), hash) };
    // As the newcomers have it, who know nothing of the parent.
    let config = ringccl::Config { report: None, ..about.settings.config(nranks, &env::vars())? };
    tell_child("ncclCommGrow", &parent, (number, 0, 0), "- Init START");
    let from = Arc::clone(&parent);
    let work = move || {
        let made = from.with(|comm| Ok(comm.grow_with(nranks as usize, Some(&config))?))?;
        adopt(made, about, out)?;
        tell_child("ncclCommGrow", &from, (number, 0, 0), " - Init COMPLETE");
        Ok(())
    };
    group::submit_job(Job::Make(parent, Box::new(work)))
}

fn child_hash(parent: u64, number: u64, colour: c_int) -> u64 {
    let mut bytes = parent.to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(colour.to_ne_bytes());
    roots::hash(&bytes)
}

/// Gives a new communicator its handle.
fn adopt(made: Communicator, about: About, out: Out) -> Outcome {
    let (rank, nranks) = (made.rank() as u32, made.nranks() as u32);
    *lock(&RANKS).entry(about.hash).or_default() += 1;
    let comm = Comm::expected(About { rank, nranks, ..about });
    comm.install(made);
    out.write(comm.publish()?);
    Ok(())
}

fn tell_start(comm: &Comm, call: &str) {
    if log::says(Subsys::INIT) {
        let About { rank, nranks, device, hash, .. } = &comm.about;
        log::info(
            Subsys::INIT,
            *device,
            format_args!(
                "[Rank {rank}] {call} comm {:#x} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId 0 \
                 commId {hash:#x} - Init START",
                comm.number()
            ),
        );
    }
}

/// Tells the log how a communicator is connected, and that it is there.
pub(crate) fn tell_complete(comm: &Comm, call: &str) {
    if !log::level_is(log::Level::Info) {
        return;
    }
    let About { rank, nranks, device, hash, config, .. } = &comm.about;
    let (device, number) = (*device, comm.number());
    let channels = config.channels.max(1);
    log::info(
        Subsys::INIT,
        device,
        format_args!(
            "comm {number:#x} rank {rank} nRanks {nranks} nNodes 1 localRanks {nranks} localRank {rank} MNNVL 0"
        ),
    );
    let next = (rank + 1) % nranks;
    let previous = (rank + nranks - 1) % nranks;
    for channel in 0..channels {
        if *rank == 0 {
            let ring: Vec<String> = (0..*nranks).map(|rank| rank.to_string()).collect();
            let ring = ring.join(" ");
            log::info(Subsys::INIT, device, format_args!("Channel {channel:02}/{channels:02} : {ring}"));
        }
        log::info(Subsys::GRAPH, device, format_args!("Ring {channel:02} : {previous} -> {rank} -> {next}"));
        if *nranks > 1 {
            let shm =
                format_args!("Channel {channel:02} : {rank}[{device}] -> {next}[{device}] via SHM/direct")
                    .to_string();
            log::info(Subsys::INIT, device, format_args!("{shm}"));
        }
    }
    log::info(Subsys::INIT, device, format_args!("Connected all rings, use ring PXN 0 GDR 0"));
    crate::model::tell_head(comm);
    log::info(
        Subsys::INIT,
        device,
        format_args!(
            "{channels} coll channels, 0 collnet channels, 0 nvls channels, {channels} p2p channels, 1 p2p channels per peer"
        ),
    );
    log::info(
        Subsys::INIT,
        device,
        format_args!(
            "{call} comm {number:#x} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId 0 commId {hash:#x} - \
         Init COMPLETE"
        ),
    );
}

fn tell_child(call: &str, parent: &Comm, (count, colour, key): (u64, c_int, c_int), end: &str) {
    if log::says(Subsys::INIT) {
        let About { rank, nranks, device, .. } = &parent.about;
        log::info(
            Subsys::INIT,
            *device,
            format_args!(
                "{call} comm {:#x} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId 0 parent {:#x} \
             childCount {count} color {colour} key {key}{end}",
                parent.number(),
                parent.number()
            ),
        );
    }
}
