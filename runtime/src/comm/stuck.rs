//! A thread that waits, as it says so in its records of the communicators in its hands, for the other ranks to see.
//!
//! ```text
//!  word 57   epoch: tells this wait from every other one of the process; 0 while the words change, or nothing waits
//!  word 58   job of the communicator in which it waits
//!  word 59   number of the operation; in a send or receive bits 0..32 its tag, 32.. another one that has come in
//!  word 60   bits 0..32 the rank that is awaited, 32..36 and 38 marks, 36..38 what tags have come in,
//!            40..56 the rank as which it waits, 56.. the call
//!  word 61   how often the thread has looked since the wait began
//! ```

use super::tags::Tags;
use shmring::layout::MemberRecord;
use shmring::sync::{Ordering, fence};
use std::fmt;

/// Where the words lie among those of a member's record.
const FIRST_WORD: usize = 57;

/// The job of a communicator that is being made: it has none yet, and `seqno` is its number among those of the process.
pub(super) const MAKING: u64 = 0;
/// Stands for the awaited rank where several are, any of which may end the wait.
pub(super) const SEVERAL: u32 = u32::MAX;

/// What a thread waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Collective,
    Finalize,
    Send,
    Recv,
    /// Waiting for signals.
    Signal,
    /// A call that another version of this library would have to name.
    Unknown,
}

/// What a process says of its other doings while a thread of it waits. What operations there are is said of the rank in
/// whose record this stands, which need not be the one as which the thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// No other thread of the process could call anything or run an operation.
    pub(super) is_alone: bool,
    /// The call has the rank's handle, so nobody else can call anything as this rank of this communicator.
    pub(super) is_held: bool,
    /// The rank has other sends under way.
    pub(super) has_send: bool,
    /// The rank has other receives under way.
    pub(super) has_recv: bool,
    /// The rank has another collective under way or queued.
    pub(super) has_collective: bool,
}

/// A thread that waits: in which operation of which communicator, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// Tells this wait from every other one of the process.
    pub(super) epoch: u64,
    pub(super) job: u64,
    /// The rank as which it waits.
    pub(super) rank: u32,
    pub(super) call: Call,
    /// Number of the operation; 0 in a send or receive, which has tags instead.
    pub(super) seqno: u64,
    pub(super) tags: Tags,
    /// The member of that communicator whose doing would end the wait, or [`SEVERAL`].
    pub(super) awaits: u32,
    pub(super) marks: Marks,
    /// How often the thread has looked in vain.
    pub(super) looks: u64,
}

impl Stuck {
    /// Whether this is the same wait of the same thread, however often it has looked since, in whichever record.
    pub(super) fn is_same_wait(&self, other: &Self) -> bool {
        let Self { looks, marks, .. } = *other;
        Self { looks, marks, ..*self } == *other
    }

    /// Whether this waits in a collective.
    pub(super) fn is_collective(&self) -> bool {
        matches!(self.call, Call::Collective | Call::Finalize)
    }

    /// Whether this waits, as `rank`, in the very collective in which `other` waits.
    pub(super) fn is_in(&self, other: &Self, rank: u32) -> bool {
        self.is_collective()
            && other.is_collective()
            && (self.job, self.seqno, self.rank) == (other.job, other.seqno, rank)
    }
}

/// The call, with its peer or number.
impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, seqno, tags, awaits, .. } = *self;
        match call {
            Call::Collective => write!(f, "operation {seqno}"),
            Call::Finalize => write!(f, "finalize (operation {seqno})"),
            Call::Send => write!(f, "send to rank {awaits}{tags}"),
            Call::Recv if awaits == SEVERAL => write!(f, "recv from any rank{tags}"),
            Call::Recv => write!(f, "recv from rank {awaits}{tags}"),
            Call::Signal => write!(f, "wait_signal for rank {awaits}"),
            Call::Unknown => f.write_str("a call that this version does not know"),
        }
    }
}

const NOT_ALONE: u64 = 1 << 32;
const NOT_HELD: u64 = 1 << 33;
const HAS_SEND: u64 = 1 << 34;
const HAS_COLLECTIVE: u64 = 1 << 35;
const HAS_RECV: u64 = 1 << 38;
const TAGS_BIT: u32 = 36;
const RANK_BIT: u32 = 40;
const CALL_BIT: u32 = 56;
const CALLS: [Call; 5] = [Call::Collective, Call::Finalize, Call::Send, Call::Recv, Call::Signal];

impl Call {
    /// The number in shared memory.
    pub(super) fn code(self) -> u64 {
        CALLS.iter().position(|call| *call == self).unwrap_or(CALLS.len()) as u64
    }

    pub(super) fn from_code(code: u64) -> Self {
        usize::try_from(code).ok().and_then(|code| CALLS.get(code).copied()).unwrap_or(Self::Unknown)
    }

    /// Whether this has tags, which are none of a signal's, and no number.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::Send | Self::Recv | Self::Signal)
    }

    /// The word with the number or the tags of a call, and two more bits.
    pub(super) fn detail(self, seqno: u64, tags: Tags) -> (u64, u64) {
        if self.is_message() { tags.to_words() } else { (seqno, 0) }
    }

    /// Number and tags as [`Call::detail`] has put them.
    pub(super) fn read_detail(self, word: u64, bits: u64) -> (u64, Tags) {
        if self.is_message() { (0, Tags::from_words(word, bits)) } else { (word, Tags::default()) }
    }
}

/// Awaited rank, marks, own rank, call and the two bits of its tags in one word.
fn pack(stuck: &Stuck, bits: u64) -> u64 {
    let Stuck { rank, call, awaits, marks, .. } = *stuck;
    let mark = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    u64::from(awaits)
        | mark(!marks.is_alone, NOT_ALONE)
        | mark(!marks.is_held, NOT_HELD)
        | mark(marks.has_send, HAS_SEND)
        | mark(marks.has_recv, HAS_RECV)
        | mark(marks.has_collective, HAS_COLLECTIVE)
        | bits << TAGS_BIT
        | u64::from(rank as u16) << RANK_BIT
        | call.code() << CALL_BIT
}

/// Says where the owner of a record waits, or that it does not.
pub(super) fn write(record: &MemberRecord, stuck: Option<Stuck>) {
    let words = &record.words[FIRST_WORD..];
    // ORDERING: Relaxed for all; a torn reading has an epoch that is 0 or seen once only, and counts for nothing.
    words[0].store(0, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if let Some(stuck) = stuck {
        let (detail, bits) = stuck.call.detail(stuck.seqno, stuck.tags);
        let values = [stuck.job, detail, pack(&stuck, bits), stuck.looks];
        // ORDERING: Relaxed, as above. Whoever still reads the old count of looks, with the fences here and in `read`,
        // knows that the look after the next count finds whatever was sent before that reading.
        for (word, value) in words[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        words[0].store(stuck.epoch, Ordering::Relaxed);
    }
    // ORDERING: SeqCst; the looks that follow come after the words, for the reason above.
    fence(Ordering::SeqCst);
}

/// Where the process of this record is stuck, as it says itself.
pub(super) fn read(record: &MemberRecord) -> Option<Stuck> {
    let words = &record.words[FIRST_WORD..];
    // ORDERING: Relaxed with fences, as in `write`: epochs that are equal before and after enclose whole words.
    let epoch = words[0].load(Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let [job, detail, packed, looks] = [1, 2, 3, 4].map(|i: usize| words[i].load(Ordering::Relaxed));
    fence(Ordering::SeqCst);
    let again = words[0].load(Ordering::Relaxed);
    let marks = Marks {
        is_alone: packed & NOT_ALONE == 0,
        is_held: packed & NOT_HELD == 0,
        has_send: packed & HAS_SEND != 0,
        has_recv: packed & HAS_RECV != 0,
        has_collective: packed & HAS_COLLECTIVE != 0,
    };
    let rank = u32::from((packed >> RANK_BIT) as u16);
    let call = Call::from_code(packed >> CALL_BIT);
    let (seqno, tags) = call.read_detail(detail, packed >> TAGS_BIT & 3);
    let awaits = packed as u32;
    (epoch != 0 && epoch == again).then_some(Stuck {
        epoch,
        job,
        rank,
        call,
        seqno,
        tags,
        awaits,
        marks,
        looks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmring::layout::Geometry;
    use shmring::segment::Segment;

    fn segment() -> Segment {
        let geometry: Geometry = crate::Config::new(2).geometry(2).unwrap();
        Segment::in_memory(&geometry).unwrap().swap_remove(0)
    }

    /// What a thread says of its wait is read back whole, and no longer once it has withdrawn it.
    #[test]
    fn waits_are_read_back() {
        let segment = segment();
        let record = segment.member_record(0);
        assert_eq!(read(record), None);
        for (at, call) in CALLS.into_iter().enumerate() {
            for bits in 0..32u64 {
                let mark = |bit: u64| bits >> bit & 1 == 1;
                let marks = Marks {
                    is_alone: mark(0),
                    is_held: mark(1),
                    has_send: mark(2),
                    has_recv: mark(3),
                    has_collective: mark(4),
                };
                let (epoch, looks) = (1 + bits, bits << 40);
                let tags = Tags { asked: u32::MAX, came: mark(0).then_some(7), more: bits & 3 == 3 };
                let (seqno, tags) =
                    if call.is_message() { (0, tags) } else { (u64::MAX - bits, Tags::default()) };
                let awaits = [0, 1023, SEVERAL][at % 3];
                let stuck = Stuck { epoch, job: !bits, rank: 1023, call, seqno, tags, awaits, marks, looks };
                write(record, Some(stuck));
                assert_eq!(read(record), Some(stuck));
            }
        }
        write(record, None);
        assert_eq!(read(record), None);
    }

    /// Words of any content are read as some wait, without a panic, and have a text.
    #[test]
    fn any_words_are_read() {
        let segment = segment();
        let record = segment.member_record(0);
        for word in [1, 1 << 63, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            for at in FIRST_WORD..FIRST_WORD + 5 {
                record.words[at].store(word, Ordering::Relaxed);
            }
            assert!(!read(record).unwrap().to_string().is_empty());
        }
    }
}
