//! Tables of handles: what a caller holds is a number, never an address, so that a wrong one is answered and not
//! followed.
//!
//! ```text
//!  63      48 47           20 19        0
//! +----------+---------------+-----------+
//! |  kind    |  generation   |  place    |      a place is used again with another generation
//! +----------+---------------+-----------+
//! ```
//!
//! The kind makes addresses that no program can have, so that one that follows a handle stops there.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

const PLACE_BITS: u32 = 20;
const GENERATION_BITS: u32 = 28;
const SHELF: usize = 1024;
const SHELVES: usize = (1 << PLACE_BITS) / SHELF;

/// Why a handle leads to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// It is null.
    Null,
    /// This library has not made it.
    Foreign,
    /// What it stood for has gone.
    Gone,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    value: Option<Arc<T>>,
}

type Shelf<T> = Box<[RwLock<Slot<T>>]>;

/// Handles of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: u64,
    shelves: [OnceLock<Shelf<T>>; SHELVES],
    free: RwLock<Free>,
}

#[derive(Debug)]
struct Free {
    places: Vec<u32>,
    used: u32,
}

impl<T> Table<T> {
    /// An empty table whose handles begin with `kind`.
    pub(crate) const fn new(kind: u16) -> Self {
        let free = RwLock::new(Free { places: Vec::new(), used: 0 });
        Self { kind: kind as u64, shelves: [const { OnceLock::new() }; SHELVES], free }
    }

    fn slot(&self, place: usize) -> Option<&RwLock<Slot<T>>> {
        self.shelves.get(place / SHELF)?.get()?.get(place % SHELF)
    }

    /// A handle for `value`; `None` when there are too many.
    pub(crate) fn insert(&self, value: Arc<T>) -> Option<*mut c_void> {
        let place = {
            let mut free = self.free.write().unwrap_or_else(PoisonError::into_inner);
            match free.places.pop() {
                Some(place) => place,
                None if (free.used as usize) < SHELF * SHELVES => {
                    free.used += 1;
                    free.used - 1
                }
                None => return None,
            }
        };
        let new = || (0..SHELF).map(|_| RwLock::new(Slot { generation: 0, value: None })).collect();
        self.shelves[place as usize / SHELF].get_or_init(new);
        let slot = self.slot(place as usize)?;
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
        slot.value = Some(value);
        let number =
            self.kind << (PLACE_BITS + GENERATION_BITS) | slot.generation << PLACE_BITS | u64::from(place);
        Some(std::ptr::without_provenance_mut(number as usize))
    }

    fn read(&self, handle: *const c_void) -> Result<(usize, u64), Bad> {
        let number = handle.addr() as u64;
        if number == 0 {
            return Err(Bad::Null);
        }
        if number >> (PLACE_BITS + GENERATION_BITS) != self.kind {
            return Err(Bad::Foreign);
        }
        let generation = number >> PLACE_BITS & ((1 << GENERATION_BITS) - 1);
        Ok(((number & ((1 << PLACE_BITS) - 1)) as usize, generation))
    }

    /// What a handle stands for.
    ///
    /// # Errors
    /// Why it stands for nothing.
    #[inline]
    pub(crate) fn get(&self, handle: *const c_void) -> Result<Arc<T>, Bad> {
        let (place, generation) = self.read(handle)?;
        let slot = self.slot(place).ok_or(Bad::Foreign)?;
        let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
        match &slot.value {
            Some(value) if slot.generation == generation => Ok(Arc::clone(value)),
            _ if generation == 0 || generation > slot.generation => Err(Bad::Foreign),
            _ => Err(Bad::Gone),
        }
    }

    /// Takes a handle back.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(crate) fn remove(&self, handle: *const c_void) -> Result<Arc<T>, Bad> {
        let (place, generation) = self.read(handle)?;
        let slot = self.slot(place).ok_or(Bad::Foreign)?;
        let value = {
            let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
            if slot.generation != generation {
                return Err(Bad::Gone);
            }
            slot.value.take().ok_or(Bad::Gone)?
        };
        self.free.write().unwrap_or_else(PoisonError::into_inner).places.push(place as u32);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handle leads to its value until it is taken back; then, and any other number, to an answer that says why.
    #[test]
    fn wrong_handles_are_answered() {
        static TABLE: Table<u32> = Table::new(0x6e63);
        let first = TABLE.insert(Arc::new(1)).unwrap();
        let second = TABLE.insert(Arc::new(2)).unwrap();
        assert_eq!((*TABLE.get(first).unwrap(), *TABLE.get(second).unwrap()), (1, 2));
        assert_eq!(TABLE.get(std::ptr::null()), Err(Bad::Null));
        for strange in [1usize, 0x1234_5678, usize::MAX, first.addr() ^ 1 << 63, first.addr() + 77] {
            assert_eq!(TABLE.get(std::ptr::without_provenance(strange)), Err(Bad::Foreign), "{strange:x}");
        }
        assert_eq!(*TABLE.remove(first).unwrap(), 1);
        assert_eq!(TABLE.get(first), Err(Bad::Gone));
        assert_eq!(TABLE.remove(first), Err(Bad::Gone));
        let third = TABLE.insert(Arc::new(3)).unwrap();
        assert_ne!(first, third);
        assert_eq!(TABLE.get(first), Err(Bad::Gone));
        assert_eq!(*TABLE.get(third).unwrap(), 3);
    }
}
