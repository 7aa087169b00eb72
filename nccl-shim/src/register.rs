//! `ncclCommRegister`: a promise of the caller to use memory often. Memory that is shared is used without copies
//! through windows, which all ranks register together; what one rank registers alone is only remembered.

use crate::failure::Failure;
use std::ffi::c_void;

const PAGE: usize = 4096;

#[derive(Debug)]
struct Range {
    handle: usize,
    first: usize,
    end: usize,
    count: u32,
}

/// What was registered with one communicator.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    ranges: Vec<Range>,
    made: usize,
}

impl Registered {
    /// Registers memory; the handle of pages that cover it is given again.
    pub(crate) fn add(&mut self, buffer: usize, bytes: usize) -> *mut c_void {
        let first = buffer & !(PAGE - 1);
        let end = buffer.saturating_add(bytes).saturating_add(PAGE - 1) & !(PAGE - 1);
        let covering = self.ranges.iter_mut().find(|range| range.first <= first && end <= range.end);
        let handle = match covering {
            Some(range) => {
                range.count += 1;
                range.handle
            }
            None => {
                self.made += 1;
                let handle = 0x6e72usize << 48 | self.made;
                self.ranges.push(Range { handle, first, end, count: 1 });
                handle
            }
        };
        std::ptr::without_provenance_mut(handle)
    }

    /// Takes a registration back.
    pub(crate) fn remove(&mut self, handle: *mut c_void) -> Result<(), Failure> {
        let place = self.ranges.iter().position(|range| range.handle == handle.addr());
        let place = place.ok_or_else(|| {
            Failure::usage(format!("ncclCommDeregister : {handle:p} is no registration of this communicator"))
        })?;
        self.ranges[place].count -= 1;
        if self.ranges[place].count == 0 {
            self.ranges.swap_remove(place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registrations of the same pages are counted; what was not registered is refused.
    #[test]
    fn registrations_are_counted() {
        let mut registered = Registered::default();
        let first = registered.add(0x10_0000, 8192);
        assert_eq!(registered.add(0x10_0010, 100), first);
        let other = registered.add(0x20_0000, 1);
        assert_ne!(first, other);
        assert!(registered.remove(first).is_ok() && registered.remove(first).is_ok());
        assert!(registered.remove(first).is_err() && registered.remove(other).is_ok());
        assert!(registered.remove(std::ptr::without_provenance_mut(7)).is_err());
    }
}
