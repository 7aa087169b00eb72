//! When ranks are asked to end and when they are made to: a plan of times, without processes.
//!
//! ```text
//!   a rank failed            all ranks ended, others live on        second SIGINT
//!        |                              |                                |
//!        | grace / 2                    | 0.3 s                          |
//!     SIGTERM                        SIGTERM                             |
//!        | grace / 2                    | 0.7 s                          |
//!     SIGKILL ------- again every 20 ms, since orphans turn up one generation at a time
//!        | 10 s
//!     given up
//! ```
//!
//! The first half of the grace belongs to the ranks: they see the failure by themselves, say what
//! it means for them, and end.

use std::time::{Duration, Instant};

/// Time that processes outliving the last rank have to notice it.
const LINGER: Duration = Duration::from_millis(300);
/// Time from then to SIGKILL.
const LINGER_KILL: Duration = Duration::from_millis(700);
/// Time between two rounds of SIGKILL.
const KILL_AGAIN: Duration = Duration::from_millis(20);
/// Time after which a process that SIGKILL does not end is left to the kernel.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask those that are left to end.
    Terminate,
    /// End those that are left.
    Kill,
    /// Stop waiting for them.
    GiveUp,
}

/// The plan; empty while all is well.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    terminate: Option<Instant>,
    kill: Option<Instant>,
    give_up: Option<Instant>,
}

impl Ending {
    /// A rank has failed; further failures change nothing.
    pub(crate) fn rank_failed(&mut self, now: Instant, grace: Duration) {
        if self.kill.is_none() {
            self.plan(now + grace / 2, now + grace);
        }
    }

    /// Every rank has ended, but processes that they started have not.
    pub(crate) fn ranks_gone(&mut self, now: Instant) {
        let kill = now + LINGER + LINGER_KILL;
        if self.kill.is_none_or(|planned| planned > kill) {
            self.plan(now + LINGER, kill);
        }
    }

    /// Nobody wants to wait any longer.
    pub(crate) fn kill_now(&mut self, now: Instant) {
        self.terminate = None;
        self.kill = Some(now);
    }

    /// Whether SIGKILL has been sent.
    pub(crate) fn is_killing(&self) -> bool {
        self.give_up.is_some()
    }

    /// The next thing whose time has come.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Step> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.give_up) {
            return Some(Step::GiveUp);
        }
        if due(self.kill) {
            self.terminate = None;
            self.kill = Some(now + KILL_AGAIN);
            self.give_up.get_or_insert(now + GIVE_UP);
            return Some(Step::Kill);
        }
        if due(self.terminate) {
            self.terminate = None;
            return Some(Step::Terminate);
        }
        None
    }

    /// When [`Ending::tick`] has something to say next.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.terminate, self.kill, self.give_up].into_iter().flatten().min()
    }

    fn plan(&mut self, terminate: Instant, kill: Instant) {
        (self.terminate, self.kill) = (Some(terminate), Some(kill));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_is_followed_by_term_and_kill() {
        // Half of the grace for the ranks, half after SIGTERM, then SIGKILL until it works.
        let (now, mut ending) = (Instant::now(), Ending::default());
        assert_eq!((ending.next(), ending.tick(now)), (None, None));
        ending.rank_failed(now, GRACE);
        ending.rank_failed(now + SECOND, GRACE);
        assert_eq!(ending.next(), Some(now + SECOND));
        assert_eq!(ending.tick(now + SECOND / 2), None);
        assert_eq!(ending.tick(now + SECOND), Some(Step::Terminate));
        assert_eq!(ending.tick(now + SECOND), None);
        assert_eq!(ending.tick(now + GRACE), Some(Step::Kill));
        assert_eq!(ending.tick(now + GRACE), None);
        assert_eq!(ending.next(), Some(now + GRACE + KILL_AGAIN));
        assert_eq!(ending.tick(now + GRACE + KILL_AGAIN), Some(Step::Kill));
        assert_eq!(ending.tick(now + GRACE + GIVE_UP), Some(Step::GiveUp));
    }

    #[test]
    fn no_grace_means_kill_at_once() {
        // A late tick skips SIGTERM rather than asking and killing in one breath.
        let (now, mut ending) = (Instant::now(), Ending::default());
        ending.rank_failed(now, Duration::ZERO);
        assert_eq!(ending.tick(now), Some(Step::Kill));
        assert_eq!(ending.tick(now), None);
    }

    #[test]
    fn what_outlives_the_ranks_gets_a_second() {
        // A longer plan is shortened, a shorter one is kept.
        let (now, mut ending) = (Instant::now(), Ending::default());
        ending.rank_failed(now, Duration::from_secs(60));
        ending.ranks_gone(now);
        assert_eq!(ending.tick(now + LINGER), Some(Step::Terminate));
        assert_eq!(ending.tick(now + SECOND), Some(Step::Kill));
        let mut short = Ending::default();
        short.rank_failed(now, Duration::ZERO);
        short.ranks_gone(now);
        assert_eq!(short.tick(now), Some(Step::Kill));
    }

    #[test]
    fn impatience_comes_first() {
        // The second SIGINT does not wait for any plan.
        let (now, mut ending) = (Instant::now(), Ending::default());
        ending.rank_failed(now, GRACE);
        ending.kill_now(now);
        assert_eq!(ending.tick(now), Some(Step::Kill));
    }
}
