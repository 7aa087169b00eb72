//! Does whoever finds a segment ready, or a member here, find all that was written before that?
#![cfg(loom)]

use loom_tests::{SHAPE, both, check};
use shmring::layout::{Geometry, HeaderWord, MAGIC, MemberRecord, MemberState, SegmentHeader};
use shmring::sync::{Ordering, yield_core};
use std::sync::Arc;

/// An attacher sees no description, or the whole of it.
#[test]
fn header() {
    check(|| {
        let header = Arc::new(SegmentHeader::new());
        let creators = Arc::clone(&header);
        let geometry = Geometry { members: 1, channels: 3, fan: SHAPE, pair: SHAPE };
        both(
            move || creators.publish(11, 12, 13, &geometry),
            || {
                let words = loop {
                    match header.description() {
                        Some(words) => break words,
                        None => yield_core(),
                    }
                };
                assert_eq!(words[HeaderWord::Magic as usize], MAGIC);
                assert_eq!(words[HeaderWord::LayoutHash as usize], 11);
                assert_eq!(words[HeaderWord::Generation as usize], 12);
                assert_eq!(words[HeaderWord::Settings as usize], 13);
                assert_eq!(words[HeaderWord::TotalBytes as usize], geometry.total_bytes());
                for (word, value) in geometry.to_words() {
                    assert_eq!(words[word as usize], value, "{}", HeaderWord::NAMES[word as usize]);
                }
            },
        );
    });
}

/// A member that is seen as here has told its process id and start time.
#[test]
fn member() {
    check(|| {
        let record = Arc::new(MemberRecord::new());
        let members = Arc::clone(&record);
        both(
            move || {
                // Relaxed as in `Segment::join`: only the state publishes them.
                members.identity.pid.store(21, Ordering::Relaxed);
                members.identity.start_time.store(22, Ordering::Relaxed);
                members.identity.set_state(MemberState::Here);
            },
            || {
                while record.identity.state() != MemberState::Here {
                    yield_core();
                }
                assert_eq!(record.identity.pid.load(Ordering::Relaxed), 21);
                assert_eq!(record.identity.start_time.load(Ordering::Relaxed), 22);
            },
        );
    });
}
