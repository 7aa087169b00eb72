//! What a thread sleeps on that waits for tasks of several communicators: one bell of each.

use crate::comm::Shared;
use shmring::doorbell::{Awaits, Bell, Nap, Sleepers, sleep_any};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The bells to sleep on, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Naps {
    all: Vec<(Arc<Shared>, Awaits)>,
}

impl Naps {
    /// Adds what one task waits for. Tasks of one rank share its bell.
    pub(crate) fn add(&mut self, shared: &Arc<Shared>, awaits: Awaits) {
        match self.all.iter_mut().find(|(other, _)| Arc::ptr_eq(other, shared)) {
            Some((_, other)) if *other != awaits => *other = Awaits::Anyone,
            Some(_) => {}
            None => self.all.push((Arc::clone(shared), awaits)),
        }
    }

    /// Whether a sleeper on these bells would be woken by all that ends a wait for `now`.
    fn covers(&self, now: &Self) -> bool {
        now.all.iter().all(|(shared, awaits)| {
            let announced = self.all.iter().find(|(other, _)| Arc::ptr_eq(other, shared));
            announced.is_some_and(|(_, own)| *own == Awaits::Anyone || own == awaits)
        })
    }

    /// Sleeps for `time` at most, or until a bell rings. `look` collects, after the announcements, what is waited for
    /// now, and answers false if nothing needs to be.
    pub(crate) fn sleep(&self, time: Duration, look: impl FnMut(&mut Self) -> bool) {
        self.sleep_with(None, time, look);
    }

    /// As [`Naps::sleep`], with a bell of the process's own among the others.
    pub(crate) fn sleep_with(
        &self,
        own: Option<(&Bell, &Sleepers)>,
        time: Duration,
        mut look: impl FnMut(&mut Self) -> bool,
    ) {
        let naps = self.all.iter().map(|(shared, awaits)| {
            let (bell, sleepers) = (&shared.record().bell, &shared.segment.header().sleepers);
            Nap { bell, sleepers, awaits: *awaits }
        });
        let own = own.map(|(bell, sleepers)| Nap { bell, sleepers, awaits: Awaits::Anyone });
        let naps: Vec<_> = own.into_iter().chain(naps).collect();
        let slept: Result<bool, Infallible> = sleep_any(&naps, time, || {
            let mut now = Self::default();
            Ok(look(&mut now) && self.covers(&now))
        });
        match slept {
            Ok(_) => {}
            Err(never) => match never {},
        }
    }
}
