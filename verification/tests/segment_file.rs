//! Segment files that lie: corrupted words, other versions, other owners, cut short. Attaching names the field.

use shmring::Error;
use shmring::layout::{Geometry, HeaderWord, RingGeometry};
use shmring::segment::{Segment, SegmentName, SegmentSpec};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use verification::testkit::ShmDir;

fn spec(shm: &ShmDir) -> SegmentSpec {
    let ring = RingGeometry { receivers: 3, slots: 8, ll_lines: 2, ll128_lines: 4, slot_bytes: 4096 };
    let pair = RingGeometry { receivers: 1, ..ring };
    let geometry = Geometry { members: 3, channels: 1, fan: ring, pair };
    SegmentSpec {
        dir: shm.path().into(),
        name: SegmentName::of_this_process(7),
        generation: 7,
        settings: 0,
        geometry,
    }
}

fn path(spec: &SegmentSpec) -> PathBuf {
    spec.dir.join(spec.name.file_name())
}

fn attach(spec: &SegmentSpec) -> Error {
    Segment::attach(spec, 1, Duration::from_millis(100)).expect_err("this file is not to be trusted")
}

/// Each word of the header, changed by hand: the error names it, both values and the remedy, in one line.
#[test]
fn every_changed_word_is_named() {
    let shm = ShmDir::new();
    let spec = spec(&shm);
    let _segment = Segment::create(&spec).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path(&spec)).unwrap();
    for (i, name) in HeaderWord::NAMES.iter().enumerate() {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 8 * i as u64).unwrap();
        for flip in [1u64, 1 << 63] {
            let changed = u64::from_le_bytes(word) ^ flip;
            file.write_all_at(&changed.to_le_bytes(), 8 * i as u64).unwrap();
            let error = attach(&spec);
            let text = error.to_string();
            assert!(
                matches!(error, Error::Mismatch { field, found, .. } if field == *name && found == changed)
            );
            assert!(text.contains(name) && text.contains(&format!("{changed:#x}")), "{text}");
            assert!(text.contains("matching builds") && !text.contains('\n'), "{text}");
        }
        file.write_all_at(&word, 8 * i as u64).unwrap();
    }
    // As it was: the member may attach, and nothing of the attempts is left.
    let second = Segment::attach(&spec, 1, Duration::from_millis(100)).unwrap();
    Segment::attach(&spec, 2, Duration::from_millis(100)).unwrap();
    assert!(second.is_complete());
    shm.assert_empty();
}

/// A file that is cut short, empty, not ready or absent: retried until the deadline, then an error that says which.
#[test]
fn unfinished_files_are_waited_for() {
    let shm = ShmDir::new();
    let spec = spec(&shm);
    let states = |expected: &str| {
        let start = Instant::now();
        let error = attach(&spec);
        assert!(matches!(error, Error::NotReady { state, .. } if state == expected), "{expected}: {error}");
        assert!(start.elapsed() >= Duration::from_millis(100), "{expected}: not waited for");
        assert!(!error.to_string().contains('\n'));
    };
    states("absent");
    std::fs::write(path(&spec), []).unwrap();
    std::fs::set_permissions(path(&spec), std::fs::Permissions::from_mode(0o600)).unwrap();
    states("too short");
    // Long enough, without memory behind it: touching it could be a SIGBUS on a full file system.
    let file = std::fs::OpenOptions::new().write(true).open(path(&spec)).unwrap();
    file.set_len(spec.geometry.total_bytes()).unwrap();
    states("too short");
    file.write_all_at(&[0; 4096], 0).unwrap();
    states("not ready");
}

/// A segment whose file is shorter than its header says is refused before anything behind it is touched.
#[test]
fn a_truncated_segment_is_refused() {
    let shm = ShmDir::new();
    let spec = spec(&shm);
    let _segment = Segment::create(&spec).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path(&spec)).unwrap();
    file.set_len(4096).unwrap();
    let error = attach(&spec);
    assert!(matches!(error, Error::Mismatch { field: "length of the file", found: 4096, .. }), "{error}");
}

/// A file that others may read or write is not trusted.
#[test]
fn a_file_open_to_others_is_refused() {
    let shm = ShmDir::new();
    let spec = spec(&shm);
    let _segment = Segment::create(&spec).unwrap();
    std::fs::set_permissions(path(&spec), std::fs::Permissions::from_mode(0o666)).unwrap();
    let error = attach(&spec);
    assert!(matches!(error, Error::NotPrivate { mode: 0o666, .. }), "{error}");
    assert!(!error.to_string().contains('\n'));
}
