//! Windows: memory of every rank that all ranks of a communicator have registered.
//!
//! Registering is collective, taking back is not: a window that one rank takes back is dead for that rank, and goes
//! when all have taken it back, at the next registration on the communicator, or with that.

use crate::comm::{Comm, lock};
use crate::failure::{Failure, Outcome};
use crate::handle::Table;
use crate::memory;
use crate::types::WindowHandle;
use ringccl::{Communicator, ReduceOp, SharedMemory};
use std::sync::{Arc, Weak};

/// The handles of windows.
pub(crate) static WINDOWS: Table<Window> = Table::new(0x6e77);

/// A window of one rank.
#[derive(Debug)]
pub(crate) struct Window {
    /// Its communicator.
    pub comm: Weak<Comm>,
    window: ringccl::Window,
    /// The caller's buffer.
    pub buffer: usize,
    /// How far into each rank's memory its buffer begins, and its bytes.
    places: Vec<(usize, usize)>,
}

impl Window {
    /// Where `bytes` bytes at `offset` of the buffer of `rank` are in this process, if they can be reached.
    pub(crate) fn address_of(&self, rank: usize, offset: usize, bytes: usize) -> Option<*mut u8> {
        let (at, len) = *self.places.get(rank)?;
        let fits = offset <= len && bytes <= len - offset;
        fits.then(|| self.window.address_of(rank, at + offset, bytes)).flatten()
    }

    /// Whether `bytes` bytes at `address` are in this rank's buffer.
    fn holds(&self, address: usize, bytes: usize, rank: usize) -> bool {
        let len = self.places.get(rank).map_or(0, |place| place.1);
        address.checked_sub(self.buffer).is_some_and(|offset| offset <= len && bytes <= len - offset)
    }

    /// The window of the library, and where an offset of the buffer of `rank` is in it.
    pub(crate) fn target(
        &self,
        rank: usize,
        offset: usize,
        bytes: usize,
    ) -> Result<(&ringccl::Window, usize), Failure> {
        let (at, len) = self.places.get(rank).copied().unwrap_or_default();
        if offset > len || bytes > len - offset {
            return Err(Failure::argument(format!(
                "ncclPutSignal : {bytes} bytes at offset {offset} are more than the {len} bytes that rank {rank} has in \
                 this window"
            )));
        }
        Ok((&self.window, at + offset))
    }
}

/// One of a communicator's windows, in the order in which all ranks have registered them.
#[derive(Debug)]
struct Entry {
    handle: usize,
    window: Arc<Window>,
    is_dead: bool,
}

/// The windows of one communicator.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    entries: Vec<Entry>,
}

impl Drop for Windows {
    fn drop(&mut self) {
        for entry in &self.entries {
            let _ = WINDOWS.remove(std::ptr::without_provenance(entry.handle));
        }
    }
}

impl Windows {
    /// Whether `bytes` bytes at `address` are in a window that lives.
    pub(crate) fn hold(&self, address: usize, bytes: usize, rank: usize) -> bool {
        self.entries.iter().any(|entry| !entry.is_dead && entry.window.holds(address, bytes, rank))
    }
}

/// Takes the windows back that every rank has taken back.
fn sweep(communicator: &mut Communicator, windows: &mut Windows) -> Outcome {
    if windows.entries.is_empty() {
        return Ok(());
    }
    let mut dead: Vec<u8> = windows.entries.iter().map(|entry| u8::from(entry.is_dead)).collect();
    communicator.all_reduce_in_place(&mut dead, ReduceOp::Min)?;
    let mut dead = dead.into_iter();
    let (gone, kept): (Vec<Entry>, Vec<Entry>) =
        std::mem::take(&mut windows.entries).into_iter().partition(|_| dead.next() == Some(1));
    windows.entries = kept;
    for entry in gone {
        // Whoever still holds it is a call that a rank makes while it takes the window back: that one keeps it.
        if let Some(window) = Arc::into_inner(entry.window) {
            communicator.deregister(window.window)?;
        }
    }
    Ok(())
}

/// Registers `bytes` bytes at `buffer`, as every rank does now: the handle, or null where the memory of a rank cannot
/// be shared.
pub(crate) fn register(comm: &Arc<Comm>, buffer: *const u8, bytes: usize) -> Result<WindowHandle, Failure> {
    let own = memory::find(buffer, bytes);
    // Ranks without such memory take part as well: the others wait for them.
    let (memory, at) = match own.clone() {
        Some(own) => own,
        None => (Arc::new(SharedMemory::new(1)?), 0),
    };
    let len = if own.is_some() { bytes } else { 0 };
    let mut windows = lock(&comm.windows);
    let (window, words) = comm.with(|communicator| {
        sweep(communicator, &mut windows)?;
        let window = communicator.register(&memory)?;
        let mut words = vec![0u64; 2 * communicator.nranks()];
        communicator.all_gather(&[at as u64, len as u64], &mut words)?;
        Ok((window, words))
    })?;
    let all_have = words.chunks_exact(2).all(|place| place[1] > 0);
    let is_usable = all_have && window.is_mapped();
    let places = words.chunks_exact(2).map(|place| (place[0] as usize, place[1] as usize)).collect();
    let window = Arc::new(Window { comm: Arc::downgrade(comm), window, buffer: buffer.addr(), places });
    let handle = WINDOWS.insert(Arc::clone(&window));
    let handle =
        handle.ok_or_else(|| Failure::usage("there are more windows than handles; deregister some"))?;
    windows.entries.push(Entry { handle: handle.addr(), window, is_dead: !is_usable });
    if is_usable {
        return Ok(handle);
    }
    let _ = WINDOWS.remove(handle);
    Ok(std::ptr::null_mut())
}

/// Takes a window back for this rank.
pub(crate) fn deregister(comm: &Arc<Comm>, handle: WindowHandle) -> Outcome {
    find(comm, handle, "ncclCommWindowDeregister")?;
    let _ = WINDOWS.remove(handle);
    let mut windows = lock(&comm.windows);
    if let Some(entry) = windows.entries.iter_mut().find(|entry| entry.handle == handle.addr()) {
        entry.is_dead = true;
    }
    Ok(())
}

/// A window of this communicator.
pub(crate) fn find(comm: &Arc<Comm>, handle: WindowHandle, call: &str) -> Result<Arc<Window>, Failure> {
    let window = WINDOWS
        .get(handle)
        .map_err(|_| Failure::argument(format!("{call} : {handle:p} is no window, or was deregistered")))?;
    if !std::ptr::eq(window.comm.as_ptr(), Arc::as_ptr(comm)) {
        return Err(Failure::argument(format!("{call} : the window belongs to another communicator")));
    }
    Ok(window)
}
