//! The last events of a run, told with the names of the words.

use shmring::layout::{Geometry, MemberRecord, RingGeometry, SegmentHeader};
use shmring::sim::Word;
use shmring::sync::Ordering;
use std::collections::VecDeque;
use std::mem::offset_of;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A load and what it found.
    Load(Word, Option<Ordering>, u64),
    /// A store that is visible at once.
    Store(Word, Option<Ordering>, u64),
    /// A store that is not visible yet.
    Buffered(Word, Option<Ordering>, u64),
    /// A buffered store becomes visible.
    Visible(Word, u64),
    /// A change in one step, from and to.
    Update(Word, Ordering, u64, Option<u64>),
    /// A fence.
    Fence(Ordering),
    /// It goes to sleep on a futex word.
    Sleep(Word),
    /// It wakes those that sleep on a futex word.
    Wake(Word),
    /// Something in words.
    Note(&'static str),
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    time: u64,
    fiber: usize,
    what: What,
}

/// Keeps the last events.
#[derive(Debug)]
pub(super) struct Trace {
    kept: VecDeque<Event>,
    most: usize,
}

impl Trace {
    /// Keeps the last `most` events.
    pub(super) fn new(most: usize) -> Self {
        Self { kept: VecDeque::with_capacity(most), most }
    }

    /// Adds an event. Equal looks in a row, as a waiting rank makes them, are kept once.
    pub(super) fn add(&mut self, time: u64, fiber: usize, what: What) {
        let again = |event: &Event| {
            matches!((event.what, what), (What::Load(a, _, x), What::Load(b, _, y)) if (a, x) == (b, y))
                && event.fiber == fiber
        };
        if self.kept.iter().rev().take(4).any(again) {
            return;
        }
        if self.kept.len() == self.most {
            self.kept.pop_front();
        }
        self.kept.push_back(Event { time, fiber, what });
    }

    /// The events, one a line.
    pub(super) fn render(
        &self,
        segment: Option<(usize, Geometry)>,
        label: impl Fn(usize) -> String,
    ) -> String {
        let name = |word: Word| name_of(word, segment);
        let of = |order: Option<Ordering>| order.map_or("plain".into(), |order| format!("{order:?}"));
        let mut text = String::new();
        for Event { time, fiber, what } in &self.kept {
            let what = match *what {
                What::Load(word, order, value) => {
                    format!("load     {} = {value:#x} {}", name(word), of(order))
                }
                What::Store(word, order, value) => {
                    format!("store    {} := {value:#x} {}", name(word), of(order))
                }
                What::Buffered(word, order, value) => {
                    format!("buffer   {} := {value:#x} {}", name(word), of(order))
                }
                What::Visible(word, value) => format!("visible  {} := {value:#x}", name(word)),
                What::Update(word, order, from, Some(to)) => {
                    format!("update   {} {from:#x} -> {to:#x} {order:?}", name(word))
                }
                What::Update(word, order, from, None) => {
                    format!("update   {} = {from:#x}, left as it is {order:?}", name(word))
                }
                What::Fence(order) => format!("fence    {order:?}"),
                What::Sleep(word) => format!("sleep    on {}", name(word)),
                What::Wake(word) => format!("wake     {}", name(word)),
                What::Note(note) => note.into(),
            };
            text += &format!("  {:>14.3} us  {:<8} {what}\n", *time as f64 / 1e3, label(*fiber));
        }
        text
    }
}

/// What a word is, in the segment that begins at the given address.
pub(super) fn name_of(word: Word, segment: Option<(usize, Geometry)>) -> String {
    match segment {
        Some((base, geometry)) => name(word.address().wrapping_sub(base) as u64, &geometry),
        None => format!("{:#x}", word.address()),
    }
}

/// What lies at an offset of a segment.
fn name(offset: u64, geometry: &Geometry) -> String {
    let members_at = geometry.member_offset(0);
    if offset < members_at {
        return in_header(offset as usize);
    }
    let record = size_of::<MemberRecord>() as u64;
    let member = (offset - members_at) / record;
    if member < geometry.members.into() {
        return format!("member {member}.{}", in_record(((offset - members_at) % record) as usize));
    }
    for channel in 0..geometry.channels {
        for source in 0..geometry.members {
            let at = geometry.fan_offset(channel, source);
            if (at..at + geometry.fan.total_bytes()).contains(&offset) {
                return format!(
                    "fan[channel {channel}, from {source}].{}",
                    in_ring(offset - at, &geometry.fan)
                );
            }
            for to in 0..geometry.members {
                let at = geometry.pair_offset(channel, source, to);
                if (at..at + geometry.pair.total_bytes()).contains(&offset) {
                    let part = in_ring(offset - at, &geometry.pair);
                    return format!("pair[channel {channel}, {source} to {to}].{part}");
                }
            }
        }
    }
    for source in 0..geometry.members {
        for to in 0..geometry.members {
            let at = geometry.mail_offset(source, to);
            if source != to && (at..at + geometry.mail().total_bytes()).contains(&offset) {
                return format!("mail[{source} to {to}].{}", in_ring(offset - at, &geometry.mail()));
            }
        }
    }
    // Addresses in another segment, or in the memory of the process, are not the same when a seed is run again.
    if offset < geometry.total_bytes() { format!("segment+{offset}") } else { "elsewhere".into() }
}

fn in_header(offset: usize) -> String {
    if offset == SegmentHeader::ABORT_OFFSET {
        "header.abort".into()
    } else if offset == offset_of!(SegmentHeader, sleepers) {
        "header.sleepers".into()
    } else {
        format!("header+{offset}")
    }
}

/// What lies at an offset of a member's record.
fn in_record(offset: usize) -> String {
    let identity = [
        (offset_of!(MemberRecord, identity.pid), "pid"),
        (offset_of!(MemberRecord, identity.start_time), "start_time"),
        (offset_of!(MemberRecord, identity.started), "started"),
        (offset_of!(MemberRecord, identity.finished), "finished"),
    ];
    if let Some((_, name)) = identity.iter().find(|(at, _)| *at == offset) {
        return name.to_string();
    }
    let areas = [
        (offset_of!(MemberRecord, journal), "journal"),
        (offset_of!(MemberRecord, words), "words"),
        (offset_of!(MemberRecord, identity), "identity"),
    ];
    let area = areas.iter().find(|(at, _)| *at <= offset);
    match area {
        Some((at, name)) => format!("{name}[{}]", (offset - at) / 8),
        None if offset == 0 => "bell.word".into(),
        None => "bell.sleeping".into(),
    }
}

/// What lies at an offset of a ring.
fn in_ring(offset: u64, ring: &RingGeometry) -> String {
    let line = |area: u64, bytes: u64, lines: u32, what: &str| {
        let (line, at) = ((offset - area) / bytes, (offset - area) % bytes);
        let (slot, line) = (line / u64::from(lines.max(1)), line % u64::from(lines.max(1)));
        let part = if at == bytes - 8 { "flag".into() } else { format!("word {}", at / 8) };
        format!("{what} slot {slot} line {line} {part}")
    };
    let counter = |at: u64, name: &str| if at == 0 { name.to_string() } else { format!("{name} line+{at}") };
    if offset < ring.receivers_offset() {
        counter(offset, "tail")
    } else if offset < ring.ll_offset() {
        let at = offset - ring.receivers_offset();
        counter(at % 128, &format!("head {}", at / 128))
    } else if offset < ring.ll128_offset() {
        line(ring.ll_offset(), 64, ring.ll_lines, "LL")
    } else if offset < ring.simple_offset() {
        line(ring.ll128_offset(), 128, ring.ll128_lines, "LL128")
    } else {
        let (slot, at) = {
            let at = offset - ring.simple_offset();
            (at / u64::from(ring.slot_bytes), at % u64::from(ring.slot_bytes))
        };
        format!("slot {slot} word {}", at / 8)
    }
}
