//! Which message goes to which receive: bookkeeping alone, without a ring or a byte of a message.
//!
//! ```text
//!  receives without a message, in the order of their posting    messages without a receive, in the order of arrival
//!   from 2,   tag 0:  #7 #9                                       tag 4:  all   @3 from 1, @5 from 2
//!   from any, tag 5:  #8                                                  of 1  @3
//! ```
//!
//! A message goes to the first receive that it fits, and a receive gets the first message that fits: as both have one
//! order, there is one way to do both, and it does not depend on which of the two comes first. So no receive in these
//! tables fits a message in them, and each new one is compared with the heads of two queues at most, whatever is
//! waiting.

use super::unread::Unread;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A receive that has not got all of its message yet.
#[derive(Debug)]
struct Receive {
    source: Option<u32>,
    tag: u32,
    /// The message that it gets, once that has begun to arrive.
    message: Option<u64>,
    desk: Option<u64>,
}

/// A message of which some has arrived, and which was not received yet.
#[derive(Debug)]
struct Message {
    source: u32,
    tag: u32,
    receive: Option<u64>,
}

/// Messages of one tag that nobody has asked for.
#[derive(Debug, Default)]
struct Unasked {
    all: BTreeSet<u64>,
    by_source: BTreeMap<u32, BTreeSet<u64>>,
}

/// Receives that one thread waits for together.
#[derive(Debug, Default)]
struct Desk {
    /// Those without a message, by their sources, in the order of their posting.
    waiting: BTreeMap<Option<u32>, BTreeSet<u64>>,
    /// Those that have got one since this was last asked.
    served: Vec<u64>,
}

/// Receives and messages, and which belong together.
#[derive(Debug, Default)]
pub(super) struct Matching {
    receives: HashMap<u64, Receive>,
    messages: HashMap<u64, Message>,
    /// Receives without a message, by source and tag.
    wanted: HashMap<(Option<u32>, u32), BTreeSet<u64>>,
    /// Messages without a receive, by tag.
    unasked: HashMap<u32, Unasked>,
    desks: HashMap<u64, Desk>,
    last: u64,
    /// Entries of these tables that were looked at.
    #[cfg(test)]
    pub(super) looked_at: u64,
}

impl Matching {
    /// Whether there is neither a receive nor a message.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.receives.is_empty() && self.messages.is_empty()
    }

    /// Receives and messages.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.receives.len() + self.messages.len()
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn count(&mut self, _entries: usize) {
        #[cfg(test)]
        {
            self.looked_at += _entries as u64;
        }
    }

    /// A place where a thread waits for several receives together; to be closed.
    pub(super) fn open_desk(&mut self) -> u64 {
        let desk = self.next();
        self.desks.insert(desk, Desk::default());
        desk
    }

    pub(super) fn close_desk(&mut self, desk: u64) {
        self.desks.remove(&desk);
    }

    /// The receives of a desk that have got a message since this was last asked.
    pub(super) fn served_at(&mut self, desk: u64) -> Vec<u64> {
        self.desks.get_mut(&desk).map(|desk| std::mem::take(&mut desk.served)).unwrap_or_default()
    }

    /// The first receive without a message of each source, or of any, for which receives of a desk wait.
    pub(super) fn waiting_at(&self, desk: u64) -> impl Iterator<Item = (Option<u32>, u64)> {
        let waiting = self.desks.get(&desk).into_iter().flat_map(|desk| &desk.waiting);
        waiting.filter_map(|(source, ids)| Some((*source, *ids.first()?)))
    }

    /// Whether a receive of a desk waits for messages of this source, or of any.
    pub(super) fn is_waiting_at(&self, desk: u64, source: Option<u32>) -> bool {
        self.desks.get(&desk).is_some_and(|desk| desk.waiting.contains_key(&source))
    }

    /// Adds a receive; its number.
    pub(super) fn post(&mut self, source: Option<u32>, tag: u32, desk: Option<u64>) -> u64 {
        let id = self.next();
        self.receives.insert(id, Receive { source, tag, message: None, desk });
        let first = self.unasked.get(&tag).and_then(|unasked| match source {
            None => unasked.all.first(),
            Some(source) => unasked.by_source.get(&source).and_then(BTreeSet::first),
        });
        let first = first.copied();
        self.count(1);
        match first {
            Some(message) => {
                self.take_unasked(message);
                self.marry(id, message);
            }
            None => {
                self.wanted.entry((source, tag)).or_default().insert(id);
                if let Some(desk) = desk.and_then(|desk| self.desks.get_mut(&desk)) {
                    desk.waiting.entry(source).or_default().insert(id);
                }
            }
        }
        id
    }

    /// Adds a message; its number.
    pub(super) fn arrive(&mut self, source: u32, tag: u32) -> u64 {
        let number = self.next();
        self.messages.insert(number, Message { source, tag, receive: None });
        let first = |source| self.wanted.get(&(source, tag)).and_then(BTreeSet::first);
        let receive = first(Some(source)).into_iter().chain(first(None)).min().copied();
        self.count(2);
        match receive {
            Some(id) => {
                self.take_wanted(id);
                self.marry(id, number);
            }
            None => {
                let unasked = self.unasked.entry(tag).or_default();
                unasked.all.insert(number);
                unasked.by_source.entry(source).or_default().insert(number);
            }
        }
        number
    }

    /// The lowest tag of the messages of a source, or any, that nobody has asked for, and whether there are other tags.
    pub(super) fn unasked_tags(&self, source: Option<u32>) -> (Option<u32>, bool) {
        let is_of = |unasked: &Unasked| source.is_none_or(|source| unasked.by_source.contains_key(&source));
        let all = || self.unasked.iter().filter(|(_, unasked)| is_of(unasked)).map(|(tag, _)| *tag);
        (all().min(), all().nth(1).is_some())
    }

    /// All messages that nobody has asked for.
    pub(super) fn unread(&self) -> Unread {
        let all = || self.unasked.values();
        Unread {
            count: all().map(|unasked| unasked.all.len() as u64).sum(),
            sources: all().flat_map(|unasked| unasked.by_source.keys().copied()).collect(),
            tags: self.unasked.keys().copied().collect(),
        }
    }

    /// The message that a receive gets, if that has begun to arrive.
    pub(super) fn message_of(&self, id: u64) -> Option<u64> {
        self.receives.get(&id).and_then(|receive| receive.message)
    }

    /// The receive that a message goes to, if there is one.
    pub(super) fn receive_of(&self, message: u64) -> Option<u64> {
        self.messages.get(&message).and_then(|message| message.receive)
    }

    /// Where a message came from.
    pub(super) fn source_of(&self, message: u64) -> Option<u32> {
        self.messages.get(&message).map(|message| message.source)
    }

    /// A receive and its message are done with.
    pub(super) fn complete(&mut self, id: u64) {
        self.count(1);
        if let Some(message) = self.receives.remove(&id).and_then(|receive| receive.message) {
            self.messages.remove(&message);
        }
    }

    /// Removes a receive that nobody waits for any more. Its message goes to the next that it fits, and what that one
    /// had to the next after it. True if it had one.
    pub(super) fn withdraw(&mut self, id: u64) -> bool {
        let Some(receive) = self.receives.get(&id) else { return false };
        let message = receive.message;
        if message.is_none() {
            self.take_wanted(id);
        }
        self.receives.remove(&id);
        let mut free = message;
        while let Some(message) = free {
            free = self.give_away(message);
        }
        message.is_some()
    }

    /// Gives a message that has lost its receive to the first that it fits and that has none or a later one; the later
    /// one, which has lost its receive now.
    fn give_away(&mut self, number: u64) -> Option<u64> {
        let Message { source, tag, .. } = *self.messages.get(&number)?;
        self.count(self.receives.len());
        let fits = |receive: &Receive| {
            receive.tag == tag
                && receive.source.is_none_or(|from| from == source)
                && receive.message.is_none_or(|other| other > number)
        };
        let fitting = self.receives.iter().filter(|(_, receive)| fits(receive)).map(|(id, _)| *id).min();
        let Some(id) = fitting else {
            if let Some(message) = self.messages.get_mut(&number) {
                message.receive = None;
            }
            let unasked = self.unasked.entry(tag).or_default();
            unasked.all.insert(number);
            unasked.by_source.entry(source).or_default().insert(number);
            return None;
        };
        let later = self.message_of(id);
        if later.is_none() {
            self.take_wanted(id);
        }
        self.marry(id, number);
        later
    }

    fn marry(&mut self, id: u64, number: u64) {
        if let (Some(receive), Some(message)) = (self.receives.get_mut(&id), self.messages.get_mut(&number)) {
            let had_none = receive.message.replace(number).is_none();
            message.receive = Some(id);
            if had_none && let Some(desk) = receive.desk.and_then(|desk| self.desks.get_mut(&desk)) {
                desk.served.push(id);
            }
        }
    }

    /// Takes a message out of those that nobody has asked for.
    fn take_unasked(&mut self, number: u64) {
        let Some(Message { source, tag, .. }) = self.messages.get(&number) else { return };
        let Some(unasked) = self.unasked.get_mut(tag) else { return };
        unasked.all.remove(&number);
        if unasked
            .by_source
            .get_mut(source)
            .is_some_and(|numbers| numbers.remove(&number) && numbers.is_empty())
        {
            unasked.by_source.remove(source);
        }
        if unasked.all.is_empty() {
            self.unasked.remove(tag);
        }
    }

    /// Takes a receive out of those without a message.
    fn take_wanted(&mut self, id: u64) {
        let Some(Receive { source, tag, desk, .. }) = self.receives.get(&id) else { return };
        let key = (*source, *tag);
        if self.wanted.get_mut(&key).is_some_and(|ids| ids.remove(&id) && ids.is_empty()) {
            self.wanted.remove(&key);
        }
        let Some(desk) = desk.and_then(|desk| self.desks.get_mut(&desk)) else { return };
        if desk.waiting.get_mut(source).is_some_and(|ids| ids.remove(&id) && ids.is_empty()) {
            desk.waiting.remove(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule in its simplest form: lists that are searched from their fronts.
    #[derive(Default)]
    struct Naive {
        /// Number, source, tag.
        receives: Vec<(u64, Option<u32>, u32)>,
        messages: Vec<(u64, u32, u32)>,
    }

    impl Naive {
        /// Each message in the order of arrival takes the first receive that it fits and that no other has taken.
        fn pairs(&self) -> BTreeMap<u64, u64> {
            let mut pairs = BTreeMap::new();
            for (message, source, tag) in &self.messages {
                let mut receives = self.receives.iter();
                let taker = receives.find(|(id, from, wanted)| {
                    wanted == tag && from.is_none_or(|from| from == *source) && !pairs.contains_key(id)
                });
                if let Some((id, ..)) = taker {
                    pairs.insert(*id, *message);
                }
            }
            pairs
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post(Option<u32>, u32),
        Arrive(u32, u32),
        /// The receive at this place of those that are left, if it has a message.
        Complete(usize),
        Withdraw(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (prop::option::of(0..3u32), 0..2u32).prop_map(|(source, tag)| Step::Post(source, tag)),
            4 => (0..3u32, 0..2u32).prop_map(|(source, tag)| Step::Arrive(source, tag)),
            2 => (0..8usize).prop_map(Step::Complete),
            1 => (0..8usize).prop_map(Step::Withdraw),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        /// Whatever the order of posts, arrivals, ends and withdrawals, the same belongs together as in plain
        /// lists, and a desk hears of each receive that has got a message and waits for all others.
        #[test]
        fn tables_match_as_lists_do(steps in steps()) {
            let (mut tables, mut lists) = (Matching::default(), Naive::default());
            let desk = tables.open_desk();
            let mut served = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Post(source, tag) => {
                        lists.receives.push((tables.post(source, tag, Some(desk)), source, tag));
                    }
                    Step::Arrive(source, tag) => lists.messages.push((tables.arrive(source, tag), source, tag)),
                    Step::Complete(at) => {
                        let pairs = lists.pairs();
                        if let Some((id, message)) = pairs.iter().nth(at) {
                            tables.complete(*id);
                            lists.receives.retain(|(other, ..)| other != id);
                            lists.messages.retain(|(other, ..)| other != message);
                            served.remove(id);
                        }
                    }
                    Step::Withdraw(at) if at < lists.receives.len() => {
                        let (id, ..) = lists.receives.remove(at);
                        tables.withdraw(id);
                        served.remove(&id);
                    }
                    Step::Withdraw(_) => {}
                }
                let pairs = lists.pairs();
                let known = |id: &u64| lists.receives.iter().any(|(other, ..)| other == id);
                served.extend(tables.served_at(desk).into_iter().filter(known));
                for (id, source, _) in &lists.receives {
                    let message = tables.message_of(*id);
                    prop_assert_eq!(message, pairs.get(id).copied());
                    prop_assert_eq!(served.contains(id), message.is_some());
                    prop_assert!(message.is_some() || tables.is_waiting_at(desk, *source));
                }
                for (message, source, _) in &lists.messages {
                    let taker = pairs.iter().find(|(_, other)| *other == message).map(|(id, _)| *id);
                    prop_assert_eq!(tables.receive_of(*message), taker);
                    prop_assert_eq!(tables.source_of(*message), Some(*source));
                }
                let waiting = lists.receives.iter().filter(|(id, ..)| !pairs.contains_key(id));
                let mut first = BTreeMap::new();
                waiting.for_each(|(id, source, _)| { first.entry(*source).or_insert(*id); });
                prop_assert_eq!(tables.waiting_at(desk).collect::<BTreeMap<_, _>>(), first);
            }
        }
    }

    /// What is done with does not stay in any table.
    #[test]
    fn nothing_is_left_behind() {
        let mut tables = Matching::default();
        let desk = tables.open_desk();
        for round in 0..100u32 {
            let early = tables.arrive(1, round);
            let ids = [tables.post(None, round, Some(desk)), tables.post(Some(2), round, None)];
            assert_eq!(tables.message_of(ids[0]), Some(early));
            tables.withdraw(ids[0]);
            let id = tables.post(Some(1), round, None);
            tables.withdraw(ids[1]);
            tables.complete(id);
        }
        tables.close_desk(desk);
        let Matching { receives, messages, wanted, unasked, desks, .. } = tables;
        assert!(receives.is_empty() && messages.is_empty() && wanted.is_empty());
        assert!(unasked.is_empty() && desks.is_empty());
    }
}
