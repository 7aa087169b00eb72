//! Atomics of the real ones' size and layout that ask the world of their thread first.

use super::{Word, with};
use crate::sync::Ordering;
use crate::sync::real;
use std::ptr::NonNull;

macro_rules! atomic {
    ($name:ident, $value:ty, $word:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$name);

        impl $name {
            /// A word that holds `value`.
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            pub(crate) fn word(&self) -> Word {
                // An address of a live atomic is not null.
                Word::$word(NonNull::new(self.0.as_ptr()).expect("a reference has an address"))
            }

            /// As the real one's: where the kernel finds the word.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// As the real one's.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                match with(|world| world.load(self.word(), Some(order))) {
                    Some(value) => value as $value,
                    None => self.0.load(order),
                }
            }

            /// As the real one's.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                if with(|world| world.store(self.word(), value.into(), Some(order))).is_none() {
                    self.0.store(value, order);
                }
            }

            /// As the real one's.
            ///
            /// # Errors
            /// What the word held, if not `current`.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let mut change = |found: u64| (found == u64::from(current)).then_some(u64::from(new));
                match with(|world| world.update(self.word(), success, &mut change) as $value) {
                    Some(found) if found == current => Ok(found),
                    Some(found) => Err(found),
                    None => self.0.compare_exchange(current, new, success, failure),
                }
            }

            /// As the real one's.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |_| value).unwrap_or_else(|| self.0.swap(value, order))
            }

            /// As the real one's.
            #[inline]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let sum = |old: $value| old.wrapping_add(value);
                self.change(order, sum).unwrap_or_else(|| self.0.fetch_add(value, order))
            }

            /// As the real one's.
            #[inline]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                let difference = |old: $value| old.wrapping_sub(value);
                self.change(order, difference).unwrap_or_else(|| self.0.fetch_sub(value, order))
            }

            /// As the real one's.
            #[inline]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |old| old.max(value)).unwrap_or_else(|| self.0.fetch_max(value, order))
            }

            fn change(&self, order: Ordering, to: impl Fn($value) -> $value) -> Option<$value> {
                let mut change = |old: u64| Some(u64::from(to(old as $value)));
                with(|world| world.update(self.word(), order, &mut change) as $value)
            }
        }
    };
}

atomic!(AtomicU32, u32, Small, "Four bytes, as the real atomic.");
atomic!(AtomicU64, u64, Large, "Eight bytes, as the real atomic.");

/// As the real one.
#[inline]
pub fn fence(order: Ordering) {
    if with(|world| world.fence(order)).is_none() {
        real::fence(order);
    }
}
