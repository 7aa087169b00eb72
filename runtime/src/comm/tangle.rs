//! A circle of waits: how the rank that finds it tells all, and what it is called.
//!
//! ```text
//!  word 48   how many waits the circle has
//!  then for each of the first four:
//!  word +0   bits 0..15 rank, 15..30 the awaited rank, 30..32 what tags have come in, 32..36 the call, 36.. the
//!            communicator's number
//!  word +1   number of the operation; in a send or receive its tag and another one that has come in
//! ```

use super::registry;
use super::stuck::{Call, SEVERAL, Stuck};
use super::tags::Tags;
use crate::error::Error;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;

/// Where the words lie among those of a member's record: as those of a `Clash`, of which there is none then.
const FIRST_WORD: usize = 48;
/// Waits that are told.
const TOLD: usize = 4;
/// Bits that a rank takes; all of them stand for several ranks.
const RANK_BITS: u32 = 15;
const RANK_MASK: u64 = (1 << RANK_BITS) - 1;
/// Where the bits about tags are.
const TAGS_BIT: u32 = 2 * RANK_BITS;

/// What to do where messages have come in under other tags than are asked for.
pub(super) const OTHER_TAGS: &str =
    "receive with the tags that were sent, or send with those that are asked for";

/// One wait of a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    rank: u32,
    awaits: u32,
    call: Call,
    /// The communicator's number; 0 if the rank that found the circle does not belong to it.
    communicator: u64,
    seqno: u64,
    tags: Tags,
}

/// A circle of waits, or a knot of them where one is for any rank; or their first four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tangle {
    places: Vec<Place>,
    /// Waits that the circle has in all.
    all: u64,
}

/// The number of a communicator that this process belongs to: its name in messages.
pub(super) fn number_of(job: u64) -> u64 {
    registry::of_job(job).first().map_or(0, |entry| entry.number())
}

impl Place {
    fn of(stuck: &Stuck) -> Self {
        let Stuck { rank, call, awaits, seqno, tags, job, .. } = *stuck;
        Self { rank, awaits, call, communicator: number_of(job), seqno, tags }
    }

    fn is_collective(&self) -> bool {
        matches!(self.call, Call::Collective | Call::Finalize)
    }

    /// Whether it is a receive from any rank.
    fn is_for_any(&self) -> bool {
        self.call == Call::Recv && self.awaits == SEVERAL
    }

    /// Where the rank waits, and for whom if the call does not say so.
    fn text(&self) -> String {
        let Self { rank, awaits, call, communicator, seqno, tags } = *self;
        let (looks, marks) = (0, Default::default());
        let call = Stuck { epoch: 0, job: 0, rank, call, seqno, tags, awaits, marks, looks };
        let waits = if self.is_collective() && awaits != SEVERAL {
            format!(" and waits for rank {awaits}")
        } else {
            String::new()
        };
        format!("rank {rank} is in {call} of communicator {communicator}{waits}")
    }
}

impl Tangle {
    pub(super) fn new(circle: &[Stuck]) -> Self {
        let mut places: Vec<Place> = circle.iter().map(Place::of).collect();
        // Every rank that tells of it begins at the same place, whoever has found it.
        if places.iter().any(Place::is_for_any) {
            places.sort_by_key(|place| (!place.is_for_any(), place.communicator, place.rank));
        } else {
            let first = (0..places.len()).min_by_key(|at| (places[*at].communicator, places[*at].rank));
            places.rotate_left(first.unwrap_or(0));
        }
        let all = places.len() as u64;
        places.truncate(TOLD);
        Self { places, all }
    }

    /// Whether one of the waits is for any rank.
    pub(super) fn is_for_any(&self) -> bool {
        self.places.first().is_some_and(Place::is_for_any)
    }

    /// Writes this to a record of the rank that found it, before that rank ends the communicator.
    pub(super) fn publish(&self, record: &MemberRecord) {
        let words = self.places.iter().flat_map(|place| {
            let Place { rank, awaits, call, communicator, seqno, tags } = *place;
            let (detail, bits) = call.detail(seqno, tags);
            let ranks = u64::from(rank) & RANK_MASK | (u64::from(awaits) & RANK_MASK) << RANK_BITS;
            [ranks | bits << TAGS_BIT | (call.code() & 0xf) << 32 | communicator << 36, detail]
        });
        for (word, value) in record.words[FIRST_WORD..].iter().zip(std::iter::once(self.all).chain(words)) {
            // ORDERING: Relaxed; the abort word's Release publishes them.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads what the rank that found it has written, whatever that is.
    pub(super) fn read(record: &MemberRecord) -> Self {
        // ORDERING: Relaxed; the caller has acquired the abort word.
        let word = |i: usize| record.words[FIRST_WORD + i].load(Ordering::Relaxed);
        let place = |i: usize| {
            let (what, detail) = (word(1 + 2 * i), word(2 + 2 * i));
            let (rank, awaits) = ((what & RANK_MASK) as u32, (what >> RANK_BITS & RANK_MASK) as u32);
            let awaits = if u64::from(awaits) == RANK_MASK { SEVERAL } else { awaits };
            let call = Call::from_code(what >> 32 & 0xf);
            let (seqno, tags) = call.read_detail(detail, what >> TAGS_BIT & 3);
            Place { rank, awaits, call, communicator: what >> 36, seqno, tags }
        };
        let all = word(0).max(1);
        let told = usize::try_from(all).unwrap_or(TOLD).min(TOLD);
        Self { places: (0..told).map(place).collect(), all }
    }

    /// Two places in different communicators, if the circle is of collectives only and goes through several.
    fn orders(&self) -> Option<[String; 2]> {
        let (one, rest) = self.places.split_first()?;
        let other = rest.iter().find(|place| place.communicator != one.communicator)?;
        let text = |place: &Place| {
            let Place { rank, communicator, seqno, .. } = *place;
            format!("rank {rank} is in operation {seqno} of communicator {communicator}")
        };
        self.places.iter().all(Place::is_collective).then(|| [text(one), text(other)])
    }

    /// All places in words, and how they hang together.
    fn waits(&self) -> String {
        let mut texts: Vec<String> = self.places.iter().map(Place::text).collect();
        let rest = self.all - texts.len() as u64;
        if rest > 0 {
            texts.push(format!("and {rest} more ranks wait likewise"));
        }
        let together = match (self.all, self.places.first()) {
            (_, Some(place)) if place.is_for_any() => "and nobody is left to send".into(),
            (1, Some(place)) if place.awaits == place.rank => "and waits for itself".into(),
            (1, Some(place)) => {
                format!(
                    "whose calls are made by the thread that waits (rank {} is in the same process)",
                    place.awaits
                )
            }
            (2, _) => "and each waits for the other".into(),
            _ => "and each waits for the next, the last for the first".into(),
        };
        format!("{}, {together}", texts.join(", "))
    }

    /// What to do about it.
    fn remedy(&self) -> &'static str {
        let all = |call| self.places.iter().all(|place| place.call == call);
        match self.places.first() {
            _ if self.places.iter().any(|place| place.tags.came.is_some()) => OTHER_TAGS,
            Some(place) if self.all == 1 && place.awaits != place.rank && !place.is_for_any() => {
                "give each rank of a process a thread of its own, or put the calls of all of them into one Group, or on a Stream for each rank"
            }
            Some(place) if self.all == 1 && place.call == Call::Recv => {
                "send before it is received, or put both into one Group"
            }
            _ if all(Call::Send) => {
                "send and receive together, by send_recv or a Group, or let every other rank receive first"
            }
            _ if all(Call::Recv) => "one of them must send first",
            _ if all(Call::Signal) => "one of them must signal first",
            _ => {
                "make the calls that belong together in the same order on every rank, or put them into one Group"
            }
        }
    }

    /// The same as a suspicion, in words.
    pub(super) fn suspicion(&self) -> String {
        match self.orders() {
            Some([first, second]) => format!(
                "suspected: communicators used in different orders: {first}, {second}, and each waits for the other"
            ),
            None => format!("suspected: deadlock: {}; if so, {}", self.waits(), self.remedy()),
        }
    }

    pub(super) fn into_error(self, rank: u32) -> Error {
        match self.orders() {
            Some([first, second]) => Error::Order { rank, first, second },
            None => Error::Deadlock { rank, waits: self.waits(), remedy: self.remedy() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmring::segment::Segment;

    fn segment() -> Segment {
        Segment::in_memory(&crate::Config::new(2).geometry(2).unwrap()).unwrap().swap_remove(0)
    }

    fn circle(n: u32) -> Vec<Stuck> {
        let wait = |rank| Stuck {
            epoch: 1,
            job: 7,
            rank,
            call: Call::Send,
            seqno: 0,
            tags: Tags::of(rank),
            awaits: (rank + 1) % n,
            marks: Default::default(),
            looks: 1,
        };
        (0..n).map(wait).collect()
    }

    /// What the finder has written is what every rank tells, whoever is first on its way.
    #[test]
    fn circles_are_read_back() {
        let segment = segment();
        let record = segment.member_record(0);
        for n in 1..8 {
            let mut circle = circle(n);
            let tangle = Tangle::new(&circle);
            circle.rotate_left(n as usize / 2);
            assert_eq!(Tangle::new(&circle), tangle);
            tangle.publish(record);
            assert_eq!(Tangle::read(record), tangle);
        }
        let text = Tangle::new(&circle(7)).into_error(5).to_string();
        assert!(
            text.contains("rank 3 is in send to rank 4 with tag 3 of") && text.contains("and 3 more ranks"),
            "{text}"
        );
    }

    /// Of a knot the receives from any rank come first, on whichever rank it was found.
    #[test]
    fn knots_are_read_back() {
        let segment = segment();
        let record = segment.member_record(0);
        let mut knot = circle(5);
        let tags = Tags { asked: 1, came: Some(u32::MAX), more: true };
        knot[3] = Stuck { call: Call::Recv, awaits: SEVERAL, tags, ..knot[3] };
        let tangle = Tangle::new(&knot);
        knot.rotate_left(2);
        assert_eq!(Tangle::new(&knot), tangle);
        tangle.publish(record);
        assert_eq!(Tangle::read(record), tangle);
        let text = tangle.into_error(5).to_string();
        assert!(text.starts_with("deadlock: rank 3 is in recv from any rank with tag 1 (what"), "{text}");
        assert!(text.contains("and nobody is left to send"), "{text}");
    }

    /// Words of any content are told as something, without a panic.
    #[test]
    fn any_words_are_told() {
        let segment = segment();
        let record = segment.member_record(0);
        for word in [0, 1, 5, 1 << 63, u64::MAX] {
            for at in FIRST_WORD..FIRST_WORD + 9 {
                record.words[at].store(word, Ordering::Relaxed);
            }
            assert!(!Tangle::read(record).into_error(0).to_string().is_empty());
        }
    }
}
