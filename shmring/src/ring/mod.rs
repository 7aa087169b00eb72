//! Rings: one sender, one or more receivers that each get every message, 8 slots, step and credit.
//!
//! ```text
//!   sender                                              receiver r
//!   credit: min(heads) + slots - tail > 0
//!   write slot[tail % slots]
//!   tail += 1 (Release)   ---------------------------->  tail > head (Acquire)
//!                                                        read slot[head % slots]
//!   heads seen (Acquire)  <----------------------------  head += 1 (Release)
//! ```
//!
//! With one receiver this is a single-producer single-consumer ring; with several, a slot is free again when
//! the last of them has released it. Rules:
//!
//! 1. The sender's line is written by the sender only, each receiver's line by that receiver only; whoever
//!    takes a role does so by one compare-exchange on the line's `taken` word, for the life of the ring.
//! 2. A slot belongs to the sender from the moment it sees `head + slots > step` of every receiver until it
//!    posts the step, and to the receivers from then until each has released it.
//! 3. Each end keeps a private copy of the other's counter and loads the shared one only when the copy says
//!    "full" or "empty".
//! 4. One step is one message in one protocol. The LL protocols publish by the flags in their lines and do
//!    not move `tail`, so the shared tail may lag behind a receiver's head; it never runs ahead of the steps.

mod receiver;
mod relay;
mod sender;

pub use receiver::Receiver;
#[cfg(not(loom))]
pub(crate) use relay::RelayMemory;
pub use relay::{Relay, heap_relay};
pub use sender::Sender;

use crate::error::Error;
use crate::layout::{Ll128Line, LlLine, ReceiverLine, RingGeometry, SenderLine};
use crate::sync::{AtomicU32, Ordering, PayloadWord};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where a ring's parts lie, and what keeps that memory alive.
pub(crate) struct RingMemory {
    geometry: RingGeometry,
    sender: NonNull<SenderLine>,
    receivers: NonNull<ReceiverLine>,
    ll: NonNull<LlLine>,
    ll128: NonNull<Ll128Line>,
    simple: NonNull<PayloadWord>,
    /// Held for its `Drop` only: the pointers above point into it.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingMemory").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Clone for RingMemory {
    fn clone(&self) -> Self {
        Self { _keep: Arc::clone(&self._keep), ..*self }
    }
}

// SAFETY: the pointers lead to atomics and `PayloadWord`s, which are shared by design and accessed under the
// rules above; `_keep` is Send and Sync.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// # Safety
    /// - The pointers are aligned and lead to zero-initialised (or live ring) memory of the sizes that
    ///   `geometry` gives; that memory stays valid while `keep` lives.
    /// - `geometry` has been validated.
    pub(crate) unsafe fn new(
        geometry: RingGeometry,
        sender: NonNull<SenderLine>,
        receivers: NonNull<ReceiverLine>,
        ll: NonNull<LlLine>,
        ll128: NonNull<Ll128Line>,
        simple: NonNull<PayloadWord>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { geometry, sender, receivers, ll, ll128, simple, _keep: keep }
    }

    #[inline]
    fn sender_line(&self) -> &SenderLine {
        // SAFETY: valid and aligned while `_keep` lives (contract of `new`); only atomics inside.
        unsafe { self.sender.as_ref() }
    }

    #[inline]
    fn receiver_lines(&self) -> &[ReceiverLine] {
        // SAFETY: `receivers` lines lie there (contract of `new`); only atomics inside.
        unsafe { std::slice::from_raw_parts(self.receivers.as_ptr(), self.geometry.receivers as usize) }
    }

    #[inline]
    fn slot_index(&self, step: u64) -> usize {
        // The number of slots is a power of two (validated), so the mask is the remainder.
        (step & u64::from(self.geometry.slots - 1)) as usize
    }

    #[inline]
    fn ll_slot(&self, step: u64) -> &[LlLine] {
        let lines = self.geometry.ll_lines as usize;
        // SAFETY: the index is below `slots`, so the lines lie inside the area (contract of `new`).
        unsafe { std::slice::from_raw_parts(self.ll.as_ptr().add(self.slot_index(step) * lines), lines) }
    }

    #[inline]
    fn ll128_slot(&self, step: u64) -> &[Ll128Line] {
        let lines = self.geometry.ll128_lines as usize;
        // SAFETY: as in `ll_slot`.
        unsafe { std::slice::from_raw_parts(self.ll128.as_ptr().add(self.slot_index(step) * lines), lines) }
    }

    #[inline]
    fn simple_slot(&self, step: u64) -> &[PayloadWord] {
        let words = self.geometry.slot_bytes as usize / 8;
        // SAFETY: as in `ll_slot`.
        unsafe { std::slice::from_raw_parts(self.simple.as_ptr().add(self.slot_index(step) * words), words) }
    }
}

/// Takes a role for the life of the ring.
fn take_role(taken: &AtomicU32, role: &'static str) -> Result<(), Error> {
    // ORDERING: Relaxed; the word only elects, it publishes nothing.
    match taken.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::RoleTaken { role }),
    }
}

struct HeapRing {
    sender: Box<SenderLine>,
    receivers: Box<[ReceiverLine]>,
    ll: Box<[LlLine]>,
    ll128: Box<[Ll128Line]>,
    simple: Box<[PayloadWord]>,
}

/// A ring in this process's own memory: for ranks that are threads, and for model checking.
///
/// # Errors
/// [`Error::Geometry`] when a size is out of bounds.
pub fn heap_ring(geometry: RingGeometry) -> Result<(Sender, Vec<Receiver>), Error> {
    geometry.validate()?;
    let slots = geometry.slots as usize;
    let filled = |n: usize| n * slots;
    let heap = Arc::new(HeapRing {
        sender: Box::default(),
        receivers: (0..geometry.receivers).map(|_| ReceiverLine::new()).collect(),
        ll: (0..filled(geometry.ll_lines as usize)).map(|_| LlLine::new()).collect(),
        ll128: (0..filled(geometry.ll128_lines as usize)).map(|_| Ll128Line::new()).collect(),
        simple: (0..filled(geometry.slot_bytes as usize / 8)).map(|_| PayloadWord::zeroed()).collect(),
    });
    // SAFETY: the boxes have the sizes that the geometry gives, are initialised, and live in `heap`.
    let memory = unsafe {
        RingMemory::new(
            geometry,
            NonNull::from(&*heap.sender),
            NonNull::from(&*heap.receivers).cast(),
            NonNull::from(&*heap.ll).cast(),
            NonNull::from(&*heap.ll128).cast(),
            NonNull::from(&*heap.simple).cast(),
            Arc::<HeapRing>::clone(&heap),
        )
    };
    let receivers =
        (0..geometry.receivers).map(|r| Receiver::attach(memory.clone(), r)).collect::<Result<_, _>>()?;
    Ok((Sender::attach(memory, None)?, receivers))
}

#[cfg(all(test, not(loom)))]
mod tests;
