//! Threads that do the same job together, of which the caller's is one: the one that a suite times.
//!
//! ```text
//!  caller, member 0                 members 1 to n - 1, each bound to a core
//!  run(job, lead)    -- job ->      job(&mut state)
//!  lead(&mut state)
//!    ... all answers, or an error   <- answer --
//! ```
//!
//! Nothing here waits without a limit: a member that fails, panics or is stuck is an error that names it, and a crew
//! that is dropped does not wait for a member that is stuck. `lead` must have a limit of its own.

use crate::cores;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What the members other than the caller's do at a time.
type Job<S> = Arc<dyn Fn(&mut S) -> Result<()> + Send + Sync>;
/// A member's number and how its job, or its start, ended.
type Answer = (usize, Result<()>);

/// Threads with a state of type `S` each.
#[derive(Debug)]
pub struct Crew<S> {
    own: Option<S>,
    jobs: Vec<Sender<Job<S>>>,
    answers: Receiver<Answer>,
    limit: Duration,
}

impl<S: 'static> Crew<S> {
    /// A crew with a member for each of `places`, which are indices of cores for [`cores::bind_to`]; the first is the
    /// calling thread, which stays bound until the crew is dropped. Each makes its state by `make` of its number, all
    /// at the same time. A job may take `limit`.
    ///
    /// # Errors
    /// When there are no places, a thread cannot be had, or a state cannot be made within the limit.
    pub fn new(
        places: &[usize],
        limit: Duration,
        make: impl Fn(usize) -> Result<S> + Send + Sync + 'static,
    ) -> Result<Self> {
        let (&own, others) = places.split_first().context("a crew without members")?;
        cores::unbind(); // threads inherit the set of cores
        let make = Arc::new(make);
        let (answer, answers) = channel();
        let mut jobs = Vec::new();
        for (number, place) in (1..).zip(others.iter().copied()) {
            let (sender, receiver) = channel();
            let (make, answer) = (Arc::clone(&make), answer.clone());
            let member = move || serve(number, place, &*make, &receiver, &answer);
            let thread = std::thread::Builder::new().name(format!("member {number}"));
            thread.spawn(member).with_context(|| format!("cannot start member {number}"))?;
            jobs.push(sender);
        }
        drop(answer);
        cores::bind_to(own);
        let mut crew = Self { own: None, jobs, answers, limit };
        let made = make(0).context("member 0");
        crew.own = Some(crew.gather(made)?);
        Ok(crew)
    }

    /// Gives `job` to all members but the caller's, which does `lead`; its result once all are done.
    ///
    /// # Errors
    /// Of `lead` or of a job, with the member's number; members that are not done within the limit.
    pub fn run<T>(
        &mut self,
        job: impl Fn(&mut S) -> Result<()> + Send + Sync + 'static,
        lead: impl FnOnce(&mut S) -> Result<T>,
    ) -> Result<T> {
        let job: Job<S> = Arc::new(job);
        for (number, member) in (1..).zip(&self.jobs) {
            ensure!(member.send(Arc::clone(&job)).is_ok(), "member {number} has ended");
        }
        let own = self.own.as_mut().context("a crew that was never complete")?;
        let led = lead(own).context("member 0");
        self.gather(led)
    }

    /// The same job for all members.
    ///
    /// # Errors
    /// As [`Crew::run`].
    pub fn run_all(&mut self, job: impl Fn(&mut S) -> Result<()> + Send + Sync + 'static) -> Result<()> {
        let job = Arc::new(job);
        let own = Arc::clone(&job);
        self.run(move |state| job(state), move |state| own(state))
    }

    /// Waits for the others' answers and adds their errors to the caller's own. If that one failed, only what the
    /// others have told by then counts: they may be waiting for it.
    fn gather<T>(&self, own: Result<T>) -> Result<T> {
        let mut told = Vec::new();
        let mut waiting: Vec<usize> = (1..=self.jobs.len()).collect();
        let patience = if own.is_ok() { self.limit } else { Duration::from_millis(100) };
        let end = Instant::now() + patience;
        while !waiting.is_empty() {
            match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((number, answer)) => {
                    waiting.retain(|other| *other != number);
                    told.extend(answer.err().map(|error| format!("member {number}: {error:#}")));
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => bail!("members {waiting:?} have ended"),
            }
        }
        match own {
            Ok(value) if told.is_empty() && waiting.is_empty() => Ok(value),
            Ok(_) if told.is_empty() => bail!("members {waiting:?} are not done after {patience:?}"),
            Ok(_) => Err(anyhow!("{}", told.join("; "))),
            Err(error) if told.is_empty() => Err(error),
            Err(error) => Err(error.context(told.join("; "))),
        }
    }
}

impl<S> Drop for Crew<S> {
    /// Waits for the members to free what they have, so that nobody measures that; not for one that is stuck.
    fn drop(&mut self) {
        self.own = None;
        self.jobs.clear();
        let end = Instant::now() + Duration::from_secs(2);
        // Members answer no more; their ends of the channel go with them.
        while self.answers.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
        cores::unbind();
    }
}

/// The life of a member.
fn serve<S>(
    number: usize,
    place: usize,
    make: &dyn Fn(usize) -> Result<S>,
    jobs: &Receiver<Job<S>>,
    answers: &Sender<Answer>,
) {
    cores::bind_to(place);
    // Whoever does not hear an answer has given the crew up.
    let mut state = match caught(|| make(number)) {
        Ok(state) => state,
        Err(error) => return drop(answers.send((number, Err(error)))),
    };
    let mut answer = Ok(());
    while answers.send((number, answer)).is_ok() {
        let Ok(job) = jobs.recv() else { return };
        answer = caught(|| job(&mut state));
    }
}

/// Makes an error of a panic. The state stays what it was, and the crew is given up.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        bail!("panicked: {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(limit: Duration) -> Crew<usize> {
        Crew::new(&[0, 1, 0], limit, Ok).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Every member does every job with its own state, which lasts.
    #[test]
    fn members_have_states() {
        let mut crew = crew(LONG);
        let (sender, numbers) = channel();
        for _ in 0..2 {
            let sender = sender.clone();
            crew.run_all(move |own| {
                *own += 10;
                Ok(sender.send(*own)?)
            })
            .unwrap();
        }
        drop((crew, sender));
        let mut numbers: Vec<usize> = numbers.into_iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [10, 11, 12, 20, 21, 22]);
    }

    /// An error and a panic of a member, and an error of the caller's part, are told with their numbers.
    #[test]
    fn failures_are_named() {
        let text = |result: Result<()>| format!("{:#}", result.unwrap_err());
        let failed = crew(LONG).run(|own| if *own == 2 { bail!("no luck") } else { Ok(()) }, |_| Ok(()));
        assert_eq!(text(failed), "member 2: no luck");
        let panicked = crew(LONG).run(|own| if *own == 1 { panic!("oh {own}") } else { Ok(()) }, |_| Ok(()));
        assert_eq!(text(panicked), "member 1: panicked: oh 1");
        assert_eq!(text(crew(LONG).run(|_| Ok(()), |_| bail!("mine"))), "member 0: mine");
        let made: Result<Crew<usize>> =
            Crew::new(&[0, 0], LONG, |own| if own == 1 { bail!("no room") } else { Ok(own) });
        assert_eq!(text(made.map(drop)), "member 1: no room");
        assert!(Crew::new(&[], LONG, Ok).is_err());
    }

    /// A member that is stuck is named after the limit, and does not keep the crew from being dropped.
    #[test]
    fn stuck_members_are_left() {
        let (keep, stuck) = channel::<()>();
        let stuck = std::sync::Mutex::new(stuck);
        let start = Instant::now();
        let mut crew = crew(Duration::from_millis(50));
        let job = move |own: &mut usize| {
            if *own == 1 {
                let _ = stuck.lock().map(|stuck| stuck.recv_timeout(LONG));
            }
            Ok(())
        };
        let error = crew.run(job, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "members [1] are not done after 50ms");
        drop(crew);
        assert!(start.elapsed() < Duration::from_secs(30));
        drop(keep);
    }
}
