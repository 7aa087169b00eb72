//! Who may use a value that several threads want one after the other: tickets in the order of their issue.
//!
//! ```text
//!  one handle issues:   0   1   2   3          each ticket goes to whichever thread does the work
//!  serving: 1               ^ may use the value; the others look again later
//!  pass(1) -> serving: 2
//! ```
//!
//! That a thread may use the value is checked on every use, never assumed: [`Turns::enter`] compares the ticket with
//! the number being served. The issuer itself, while no ticket is out, needs none ([`Turns::idle`]): two loads.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::cell::UnsafeCell;
use std::collections::BTreeSet;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// A value and whose turn it is to use it.
#[derive(Debug)]
pub struct Turns<T> {
    serving: AtomicU64,
    /// Tickets that were given up before their turn.
    given_up: Mutex<BTreeSet<u64>>,
    /// 1 if there are such tickets.
    any_given_up: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `enter` and `idle` only. Tickets are unique and served one at a time, and a
// ticket's user passes it on with Release to the next, who sees it with Acquire; an idle value is only the issuer's,
// of which there is one. So one thread uses the value at a time.
unsafe impl<T: Send> Sync for Turns<T> {}

/// Gives out tickets for one [`Turns`]; there is only one.
#[derive(Debug)]
pub struct Issuer {
    issued: u64,
}

/// A turn to come, or the present one. Must be passed or given up, or nobody behind it gets a turn.
#[derive(Debug)]
#[must_use = "whoever comes later waits until a ticket is passed or given up"]
pub struct Ticket {
    number: u64,
}

impl Issuer {
    /// The next ticket.
    pub fn issue(&mut self) -> Ticket {
        let number = self.issued;
        self.issued += 1;
        Ticket { number }
    }
}

impl Ticket {
    /// Its number in the order of issue, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl<T> Turns<T> {
    /// A value that nobody uses, and who gives out turns to use it.
    pub fn new(value: T) -> (Self, Issuer) {
        let turns = Self {
            serving: AtomicU64::new(0),
            given_up: Mutex::new(BTreeSet::new()),
            any_given_up: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        };
        (turns, Issuer { issued: 0 })
    }

    /// The value, if it is this ticket's turn.
    ///
    /// # Safety
    /// - The ticket is from the issuer that was made with this value.
    #[inline]
    pub unsafe fn enter<'a>(&'a self, ticket: &'a mut Ticket) -> Option<&'a mut T> {
        // ORDERING: Acquire pairs with the Release in `advance`: what earlier users did is visible.
        if self.serving.load(Ordering::Acquire) != ticket.number {
            return None;
        }
        // SAFETY: the number served is this ticket's, tickets are unique (one issuer), and `&mut` on the ticket keeps
        // its holder from entering twice.
        Some(unsafe { &mut *self.value.get() })
    }

    /// The value, if no ticket is out.
    ///
    /// # Safety
    /// - The issuer is the one that was made with this value.
    #[inline]
    pub unsafe fn idle<'a>(&'a self, issuer: &'a mut Issuer) -> Option<&'a mut T> {
        // ORDERING: Acquire, as in `enter`.
        if self.serving.load(Ordering::Acquire) != issuer.issued {
            return None;
        }
        // SAFETY: every ticket has been passed, and `&mut` on the one issuer keeps others from being issued.
        Some(unsafe { &mut *self.value.get() })
    }

    /// The number of the ticket whose turn it is: for those that wait in vain, to see whether anything changes.
    pub fn serving(&self) -> u64 {
        // ORDERING: Relaxed; nothing is used on the strength of it.
        self.serving.load(Ordering::Relaxed)
    }

    /// Ends a turn: the next ticket is served. Whoever waits for it must be woken by other means.
    ///
    /// # Panics
    /// If it was not this ticket's turn.
    pub fn pass(&self, ticket: Ticket) {
        // ORDERING: Relaxed; the number can only be ours if we have entered.
        assert_eq!(self.serving.load(Ordering::Relaxed), ticket.number, "a turn is passed by who has it");
        self.advance(ticket.number + 1);
    }

    /// Takes a ticket back, whether or not it is its turn: it is skipped, or the turn ends.
    pub fn give_up(&self, ticket: Ticket) {
        let mut given_up = self.given_up();
        given_up.insert(ticket.number);
        // ORDERING: Relaxed with the fence, against that in `advance`: of both looks at least one sees the other's
        // store, and the lock makes sure that only one acts on it.
        self.any_given_up.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_up = self.serving.load(Ordering::Acquire) == ticket.number;
        if is_up {
            given_up.remove(&ticket.number);
        }
        drop(given_up);
        if is_up {
            self.advance(ticket.number + 1);
        }
    }

    /// Serves `next`, or the first after it that was not given up.
    fn advance(&self, mut next: u64) {
        loop {
            // ORDERING: Release pairs with the Acquire in `enter` and `idle`.
            self.serving.store(next, Ordering::Release);
            // ORDERING: against the fence in `give_up`, see there.
            fence(Ordering::SeqCst);
            if self.any_given_up.load(Ordering::Relaxed) == 0 {
                return;
            }
            let mut given_up = self.given_up();
            let is_given_up = given_up.remove(&next);
            // ORDERING: Relaxed; changed under the lock only.
            self.any_given_up.store(u32::from(!given_up.is_empty()), Ordering::Relaxed);
            if !is_given_up {
                return;
            }
            next += 1;
        }
    }

    fn given_up(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // The set is whole whatever panicked while it was held.
        #[cfg(loom)]
        return self.given_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(not(loom))]
        crate::sync::lock(&self.given_up)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn enter<'a, T>(turns: &'a Turns<T>, ticket: &'a mut Ticket) -> Option<&'a mut T> {
        // SAFETY: each test has one value and one issuer.
        unsafe { turns.enter(ticket) }
    }

    fn idle<'a, T>(turns: &'a Turns<T>, issuer: &'a mut Issuer) -> Option<&'a mut T> {
        // SAFETY: as in `enter`.
        unsafe { turns.idle(issuer) }
    }

    /// Turns come in the order of issue; tickets that were given up, before or in their turn, are skipped.
    #[test]
    fn tickets_are_served_in_order() {
        let (turns, mut issuer) = Turns::new(0);
        assert!(idle(&turns, &mut issuer).is_some());
        let [mut first, mut second, third, mut fourth] = [(); 4].map(|()| issuer.issue());
        assert!(idle(&turns, &mut issuer).is_none());
        assert!(enter(&turns, &mut second).is_none());
        *enter(&turns, &mut first).unwrap() += 1;
        turns.give_up(third);
        assert!(enter(&turns, &mut second).is_none());
        turns.pass(first);
        assert!(enter(&turns, &mut fourth).is_none());
        assert!(enter(&turns, &mut second).is_some());
        turns.give_up(second);
        assert_eq!(enter(&turns, &mut fourth).copied(), Some(1));
        turns.pass(fourth);
        assert!(idle(&turns, &mut issuer).is_some());
    }

    /// A turn that is not one's own cannot be passed.
    #[test]
    #[should_panic(expected = "a turn is passed by who has it")]
    fn only_the_present_turn_is_passed() {
        let (turns, mut issuer) = Turns::new(());
        let _first = issuer.issue();
        turns.pass(issuer.issue());
    }

    /// Threads that use the value in turn never lose an update.
    #[test]
    fn updates_are_not_lost() {
        let (turns, mut issuer) = Turns::new(0u64);
        let tickets: Vec<_> = (0..4000).map(|_| issuer.issue()).collect();
        let mut hands: Vec<Vec<Ticket>> = (0..4).map(|_| Vec::new()).collect();
        for (index, ticket) in tickets.into_iter().enumerate() {
            hands[index * 7 % 4].push(ticket);
        }
        std::thread::scope(|scope| {
            for hand in hands {
                scope.spawn(|| {
                    for (index, mut ticket) in hand.into_iter().enumerate() {
                        if index % 5 == 4 {
                            turns.give_up(ticket);
                            continue;
                        }
                        while enter(&turns, &mut ticket).map(|value| *value += 1).is_none() {
                            std::thread::yield_now();
                        }
                        turns.pass(ticket);
                    }
                });
            }
        });
        assert_eq!(idle(&turns, &mut issuer).copied(), Some(3200));
    }
}
