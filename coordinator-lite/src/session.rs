//! A rank's part in a communicator, as long as it lasts.
//!
//! The connection to the coordinator stays open. Its end, however the process ended, is how peers in other pid
//! namespaces and on other hosts learn of a death. The coordinator's own end is harmless: what runs goes on.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use crate::cancel::Cancel;
use crate::client::{Key, Wire, reach};
use crate::messages::{Child, Reply, Request, cut_reason};
use crate::state::WAIT_MAX;
use crate::stream::Stream;
use crate::wire::{self, REQUEST_BYTES_MAX, Reader, WireError};
use crate::{CommId, Endpoint, Error, Hello, Welcome};

/// How long a rank that is done waits until the coordinator has noted it.
const DESTROY_WITHIN: Duration = Duration::from_secs(1);
/// How long sending a short message may take.
const SEND_WITHIN: Duration = Duration::from_millis(100);
/// Most notices kept for a communicator that nobody polls.
const NOTICES_MAX: usize = 16_384;
/// How long a wait sleeps at most, since another handle may take the answer off the shared connection.
const SLICE: Duration = Duration::from_millis(10);

/// The two times that joining may take; each is 24 h at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the call until the coordinator has answered for the first time.
    pub connect: Duration,
    /// From the call until all other ranks have come.
    pub join: Duration,
}

/// News about a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The connection of a member ended without a destroy: its process is dead, or dropped its session.
    PeerGone {
        /// Its rank.
        rank: u32,
        /// Its process id, in its own namespace.
        pid: u32,
    },
    /// A member ended the communicator.
    Aborted {
        /// Its rank.
        by: u32,
        /// What it said.
        reason: String,
    },
    /// The coordinator has ended. Nothing that runs needs it; there will be no more notices.
    CoordinatorGone,
}

/// A rank's membership in one communicator.
///
/// Children made by [`Session::split`] share the connection of their parent. Dropping a session without
/// [`Session::destroy`] tells the other members that this rank is gone.
pub struct Session {
    link: Arc<Link>,
    comm: CommId,
    rank: u32,
    is_done: bool,
}

impl Session {
    /// Joins the group named in `hello` at `endpoint` and waits for the other ranks.
    ///
    /// Connecting is tried again until its deadline has passed, since the coordinator may start later than its
    /// ranks. The coordinator keeps the deadline for the others and then names those that are missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the coordinator's reason; [`Error::WrongSecret`], [`Error::OtherUser`];
    /// [`Error::Unreachable`], [`Error::Silent`], [`Error::Lost`], [`Error::Protocol`], [`Error::WireVersion`] if
    /// no answer could be had; [`Error::TooLarge`] if the names in `hello` are too long.
    pub fn join(
        endpoint: &Endpoint,
        key: impl Into<Key>,
        hello: Hello,
        deadlines: Deadlines,
    ) -> Result<(Self, Welcome), Error> {
        Self::join_unless(endpoint, key, hello, deadlines, None)
    }

    /// As [`Session::join`], unless it is cancelled meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Session::join`]; [`Error::Cancelled`]. The other ranks are told that this one is gone then.
    pub fn join_unless(
        endpoint: &Endpoint,
        key: impl Into<Key>,
        hello: Hello,
        deadlines: Deadlines,
        cancel: Option<&Cancel>,
    ) -> Result<(Self, Welcome), Error> {
        let started = Instant::now();
        let (rank, nranks, join) = (hello.rank, hello.nranks, deadlines.join.min(WAIT_MAX));
        let connect = deadlines.connect.min(WAIT_MAX);
        let (mut wire, proof) = reach(endpoint, &key.into(), started + connect, cancel)?;
        let left = join.saturating_sub(started.elapsed());
        let request = Request::Init { wait_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX), hello };
        let until = started + join.max(connect) + answer_margin(join);
        wire.send_proved(proof, &request, until)?;
        match wire.receive(until)? {
            Reply::Welcome(welcome) if fits(&welcome, rank, nranks) => {
                let Wire { endpoint, stream, reader, .. } = wire;
                let link = Arc::new(Link::new(endpoint.clone(), stream, reader, welcome.comm));
                Ok((Self { link, comm: welcome.comm, rank, is_done: false }, welcome))
            }
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(Error::Protocol { endpoint: endpoint.clone(), cause: WireError::OutOfTurn }),
        }
    }

    /// Number of the communicator at its coordinator.
    pub fn comm(&self) -> CommId {
        self.comm
    }

    /// Rank of this member.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Where the coordinator is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.link.endpoint
    }

    /// Readable when there may be a notice. Sessions that share a connection share this descriptor, and
    /// whichever polls takes the others' notices off it, so sleep on it with a time limit.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.stream.as_fd()
    }

    /// The notices that have come since the last call; never blocks.
    pub fn poll(&self) -> Vec<Notice> {
        let mut inbox = self.link.pump();
        inbox.boxes.get_mut(&self.comm).map_or_else(Vec::new, |mail| mail.notices.drain(..).collect())
    }

    /// Takes part in splitting this communicator, which every member must; waits for all of them.
    ///
    /// Members of one `colour` form a child, in which they are ordered by `key` and then by their rank here.
    /// Without a colour this rank is in no child, and the answer is none.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with what stands against it: a member is gone, has left or has aborted, or did not take
    /// part within `deadline`; [`Error::CoordinatorGone`]; [`Error::NoAnswer`]. The parent stays usable.
    pub fn split(
        &self,
        colour: Option<u32>,
        key: i32,
        deadline: Duration,
    ) -> Result<Option<(Self, Child)>, Error> {
        let (started, deadline) = (Instant::now(), deadline.min(WAIT_MAX));
        let wait_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.link.send(&Request::Split { comm: self.comm, colour, key, wait_ms })?;
        match self.answer(started, deadline + answer_margin(deadline))? {
            Reply::Split { child: None, .. } if colour.is_none() => Ok(None),
            Reply::Split { child: Some(child), .. } if colour.is_some() => {
                let rank = child.parent_ranks.iter().position(|&parent| parent == self.rank);
                let Some(rank) = rank.filter(|_| child.parent_ranks.len() == child.welcome.members.len())
                else {
                    return Err(self.out_of_turn());
                };
                let (link, comm) = (Arc::clone(&self.link), child.welcome.comm);
                Ok(Some((Self { link, comm, rank: rank as u32, is_done: false }, child)))
            }
            Reply::Refused { refusal, .. } => Err(refusal.into()),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Ends this rank's part in order: its peers are not told that it is gone.
    ///
    /// Waits, 1 s at most, until the coordinator has noted it; one that is gone needs not be told.
    pub fn destroy(mut self) {
        self.is_done = true;
        if self.link.send(&Request::Destroy { comm: self.comm }).is_ok() {
            let _ = self.answer(Instant::now(), DESTROY_WITHIN);
        }
        self.link.lock().boxes.remove(&self.comm);
    }

    /// Ends the communicator for all: the other members get [`Notice::Aborted`] with this rank and `reason`, of
    /// which 512 bytes are kept. Takes 0.1 s at most.
    ///
    /// # Errors
    ///
    /// [`Error::CoordinatorGone`] if nobody could be told.
    pub fn abort(&self, reason: &str) -> Result<(), Error> {
        self.link.send(&Request::Abort { comm: self.comm, reason: cut_reason(reason).to_owned() })
    }

    /// The answer to a request about this communicator.
    fn answer(&self, started: Instant, within: Duration) -> Result<Reply, Error> {
        let until = started + within;
        loop {
            let now = Instant::now();
            let mut inbox = self.link.pump();
            let is_gone = inbox.is_gone;
            if let Some(mail) = inbox.boxes.get_mut(&self.comm) {
                if let Some(reply) = mail.reply.take() {
                    return Ok(reply);
                }
                if now >= until && !is_gone {
                    // It may still come, and is then no answer to the next question.
                    mail.unanswered += 1;
                }
            }
            drop(inbox);
            if is_gone {
                return Err(Error::CoordinatorGone);
            }
            if now >= until {
                return Err(Error::NoAnswer { waited: started.elapsed() });
            }
            let wait = self.link.stream.wait(PollFlags::POLLIN, until.min(now + SLICE));
            wait.map_err(|cause| Error::Lost { endpoint: self.link.endpoint.clone(), cause })?;
        }
    }

    fn out_of_turn(&self) -> Error {
        Error::Protocol { endpoint: self.link.endpoint.clone(), cause: WireError::OutOfTurn }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The last handle closes the connection, which says the same; others must say it for themselves.
        if !self.is_done && Arc::strong_count(&self.link) > 1 {
            let _ = self.link.send(&Request::Leave { comm: self.comm });
            self.link.lock().boxes.remove(&self.comm);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("endpoint", &self.link.endpoint)
            .field("comm", &self.comm)
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// How much longer than its deadline a rank waits for the coordinator's word about it: a quarter, 2 s at most.
fn answer_margin(deadline: Duration) -> Duration {
    (deadline / 4).min(Duration::from_secs(2))
}

/// Whether a welcome is one for `rank` of `nranks`.
fn fits(welcome: &Welcome, rank: u32, nranks: u32) -> bool {
    welcome.members.len() == nranks as usize && rank < nranks
}

/// The connection that the sessions of one rank share.
struct Link {
    endpoint: Endpoint,
    stream: Stream,
    inbox: Mutex<Inbox>,
    /// Held while a request is written, so that requests do not mix.
    writing: Mutex<()>,
}

struct Inbox {
    reader: Reader,
    boxes: HashMap<CommId, Mail>,
    /// Children whose parent no longer waited for them: nobody has a handle on them.
    orphans: Vec<CommId>,
    is_gone: bool,
}

/// What has come for one communicator.
#[derive(Default)]
struct Mail {
    notices: VecDeque<Notice>,
    /// The answer to the one request that is under way.
    reply: Option<Reply>,
    /// Splits that were given up before their answer came.
    unanswered: u32,
}

impl Link {
    fn new(endpoint: Endpoint, stream: Stream, reader: Reader, comm: CommId) -> Self {
        let boxes = HashMap::from([(comm, Mail::default())]);
        let inbox = Mutex::new(Inbox { reader, boxes, orphans: Vec::new(), is_gone: false });
        Self { endpoint, stream, inbox, writing: Mutex::new(()) }
    }

    /// No code that holds the lock panics; if it did, what it left would still be whole messages.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all that has come off the connection; never blocks.
    fn pump(&self) -> MutexGuard<'_, Inbox> {
        let mut inbox = self.lock();
        inbox.pump(&self.stream);
        if !inbox.orphans.is_empty() {
            for comm in std::mem::take(&mut inbox.orphans) {
                let _ = self.send(&Request::Leave { comm });
            }
        }
        inbox
    }

    fn send(&self, request: &Request) -> Result<(), Error> {
        let frame = wire::encode(request, REQUEST_BYTES_MAX).map_err(|cause| Error::TooLarge { cause })?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.write_all_until(&frame, Instant::now() + SEND_WITHIN).map_err(|_| {
            // Half a message would garble the next one. The reading side learns of the end by itself.
            let _ = self.stream.end_writing();
            Error::CoordinatorGone
        })
    }
}

impl Inbox {
    /// Takes all that has come off the connection.
    fn pump(&mut self, stream: &Stream) {
        while !self.is_gone {
            match self.reader.poll(&mut &*stream) {
                Ok(Some(reply)) => self.sort(reply),
                Ok(None) => return,
                // A coordinator that talks nonsense is as good as gone.
                Err(_) => {
                    self.is_gone = true;
                    self.boxes.values_mut().for_each(|mail| mail.notices.push_back(Notice::CoordinatorGone));
                }
            }
        }
    }

    fn sort(&mut self, reply: Reply) {
        match reply {
            Reply::PeersGone { comm, gone } => {
                gone.iter().for_each(|g| self.note(comm, Notice::PeerGone { rank: g.rank, pid: g.pid }));
            }
            Reply::Aborted { comm, by, reason } => self.note(comm, Notice::Aborted { by, reason }),
            Reply::Split { parent, ref child } => {
                // News of the child may follow before anybody has a handle on it.
                let child = child.as_ref().map(|child| child.welcome.comm);
                if self.reply(parent, reply) {
                    self.boxes.extend(child.map(|comm| (comm, Mail::default())));
                } else {
                    self.orphans.extend(child);
                }
            }
            Reply::Destroyed { comm } | Reply::Refused { comm: Some(comm), .. } => {
                self.reply(comm, reply);
            }
            // Not about a communicator of ours.
            Reply::Challenge { .. }
            | Reply::Welcome(_)
            | Reply::Refused { comm: None, .. }
            | Reply::Status(_)
            | Reply::Stopping => {}
        }
    }

    fn note(&mut self, comm: CommId, notice: Notice) {
        let mail = self.boxes.get_mut(&comm).filter(|mail| mail.notices.len() < NOTICES_MAX);
        if let Some(mail) = mail {
            mail.notices.push_back(notice);
        }
    }

    /// Keeps an answer for whoever waits for it; `false` if nobody does.
    fn reply(&mut self, comm: CommId, reply: Reply) -> bool {
        let Some(mail) = self.boxes.get_mut(&comm) else { return false };
        if mail.unanswered > 0 && !matches!(reply, Reply::Destroyed { .. }) {
            mail.unanswered -= 1;
            return false;
        }
        mail.reply = Some(reply);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, Refusal};

    fn inbox() -> Inbox {
        let boxes = HashMap::from([(CommId(1), Mail::default())]);
        Inbox { reader: Reader::new(REQUEST_BYTES_MAX), boxes, orphans: Vec::new(), is_gone: false }
    }

    fn child(comm: u64) -> Reply {
        let member = Member::current("n0", 0).unwrap();
        let welcome =
            Welcome { comm: CommId(comm), group: "w#2".into(), job: "0".into(), members: vec![member] };
        Reply::Split { parent: CommId(1), child: Some(Child { welcome, parent_ranks: vec![0] }) }
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
        // A child that nobody waits for any more is to be left; the next answer counts again.
        let mut inbox = inbox();
        inbox.boxes.get_mut(&CommId(1)).unwrap().unanswered = 1;
        inbox.sort(child(2));
        assert_eq!((inbox.orphans.as_slice(), inbox.boxes.len()), ([CommId(2)].as_slice(), 1));
        assert!(inbox.boxes[&CommId(1)].reply.is_none());
        inbox.sort(child(3));
        assert!(inbox.boxes[&CommId(1)].reply.is_some() && inbox.boxes.contains_key(&CommId(3)));
    }

    #[test]
    fn what_is_about_no_communicator_of_ours_is_dropped() {
        // A coordinator cannot make a rank keep what nobody will fetch.
        let mut inbox = inbox();
        let (comm, refusal) = (Some(CommId(9)), Refusal::NotProved);
        inbox.sort(Reply::Refused { comm, refusal });
        inbox.sort(Reply::Aborted { comm: CommId(9), by: 0, reason: String::new() });
        let gone = vec![crate::messages::Gone { rank: 0, pid: 1 }; 2 * NOTICES_MAX];
        inbox.sort(Reply::PeersGone { comm: CommId(1), gone });
        assert_eq!((inbox.boxes.len(), inbox.boxes[&CommId(1)].notices.len()), (1, NOTICES_MAX));
    }
}
