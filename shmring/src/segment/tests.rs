//! Segments on a real file system: life of the name, every state of attaching, hostile headers.

use super::*;
use crate::protocol::{Protocol, Stamp};
use std::time::Duration;

fn spec(dir: &std::path::Path, members: u32) -> SegmentSpec {
    let ring =
        |receivers| RingGeometry { receivers, slots: 8, ll_lines: 2, ll128_lines: 2, slot_bytes: 8192 };
    let geometry = Geometry { members, channels: 1, fan: ring(members), pair: ring(1) };
    SegmentSpec {
        dir: dir.into(),
        name: SegmentName::of_this_process(7),
        generation: 7,
        settings: 3,
        geometry,
    }
}

const SOON: Duration = Duration::from_millis(50);

/// The name lives until the last member attaches, and the file is private and sparse.
#[test]
fn last_attach_removes_the_name() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = spec(dir.path(), 2);
    let path = spec.dir.join(spec.name.file_name());
    let first = Segment::create(&spec).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777, 0o600);
    assert!(path.exists() && !first.is_complete());
    assert!(matches!(Segment::create(&spec), Err(Error::Exists { .. })));
    let second = Segment::attach(&spec, 1, SOON).unwrap();
    assert!(!path.exists() && first.is_complete() && second.is_complete());
    assert!(first.committed_bytes().unwrap() < spec.geometry.total_bytes() / 2);
}

/// Two mappings of one file carry messages of every protocol.
#[test]
fn messages_cross_mappings() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = spec(dir.path(), 2);
    let first = Segment::create(&spec).unwrap();
    let second = Segment::attach(&spec, 1, SOON).unwrap();
    let mut sender = first.pair_sender(0, 1).unwrap();
    let mut receiver = second.pair_receiver(0, 0).unwrap();
    assert!(matches!(second.pair_receiver(0, 0), Err(Error::RoleTaken { .. })));
    first.commit_pair_slots(0, 0, 1).unwrap();
    let text = *b"sixteen bytes ok";
    for _ in 0..20 {
        for protocol in Protocol::ALL {
            assert!(sender.has_credit().unwrap());
            let mut got = [0u8; 16];
            // SAFETY: both buffers are live and 16 bytes long, slots are larger.
            unsafe {
                if protocol == Protocol::Simple {
                    sender.write_slot(|to, _| to.copy_from(text.as_ptr(), 16));
                    sender.post(Stamp(3));
                    assert!(receiver.is_posted(Stamp(3)).unwrap());
                    receiver.read_slot(|from, _| from.copy_to(got.as_mut_ptr(), 16));
                } else {
                    sender.send_lines(protocol, Stamp(3), text.as_ptr(), 16);
                    assert!(receiver.read_lines(protocol, Stamp(3), got.as_mut_ptr(), 16).unwrap());
                }
            }
            receiver.release(protocol);
            assert_eq!(got, text);
        }
    }
    assert_eq!(sender.carried(), [20; 3]);
    assert_eq!(receiver.carried(), [20; 3]);
}

/// An absent, short or unfinished segment is waited for and then named in the error.
#[test]
fn attach_names_the_state_at_its_deadline() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = spec(dir.path(), 2);
    let path = spec.dir.join(spec.name.file_name());
    let state = || match Segment::attach(&spec, 1, Duration::ZERO) {
        Err(Error::NotReady { state, .. }) => state,
        other => panic!("{other:?}"),
    };
    assert_eq!(state(), "absent");
    let private = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    private(b"");
    assert_eq!(state(), "too short");
    private(&[0; 8192]);
    assert_eq!(state(), "not ready");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(matches!(Segment::attach(&spec, 1, SOON), Err(Error::NotPrivate { .. })));
}

/// Every word of the header is compared: changing any of them is an error that names it.
#[test]
fn each_corrupted_word_is_named() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = spec(dir.path(), 2);
    let path = spec.dir.join(spec.name.file_name());
    for (index, name) in crate::layout::HeaderWord::NAMES.iter().enumerate() {
        let segment = Segment::create(&spec).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut word = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut word, index as u64 * 8).unwrap();
        word[3] ^= 0x10;
        std::os::unix::fs::FileExt::write_all_at(&file, &word, index as u64 * 8).unwrap();
        match Segment::attach(&spec, 1, SOON) {
            Err(Error::Mismatch { field, .. }) => assert_eq!(field, *name),
            other => panic!("{name}: {other:?}"),
        }
        drop(segment);
        assert!(!path.exists(), "the creator's guard removes the name");
    }
}

/// A directory that is missing, forbidden or full gives an error with the remedy and leaves nothing.
#[test]
fn directory_problems_are_errors() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut missing = spec(dir.path(), 2);
    missing.dir = dir.path().join("absent");
    let text = Segment::create(&missing).unwrap_err().to_string();
    assert!(text.contains("mount a tmpfs"), "{text}");
    let mut bad = spec(dir.path(), 2);
    bad.geometry.channels = 65;
    assert!(matches!(Segment::create(&bad), Err(Error::Geometry { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A segment of a dead process is removed, one of a living process is not, nor a foreign file.
#[test]
fn stale_segments_are_removed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let live = SegmentName::of_this_process(1);
    let mut dead = live.clone();
    dead.start_time += 1;
    let mut elsewhere = dead.clone();
    elsewhere.pid_namespace += 1;
    for name in
        [live.file_name(), dead.file_name(), elsewhere.file_name(), "ringccl-x".into(), "other".into()]
    {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    assert_eq!(SegmentName::parse(&dead.file_name()), Some(dead.clone()));
    assert_eq!(remove_stale(dir.path()), 1);
    assert!(!dir.path().join(dead.file_name()).exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}
