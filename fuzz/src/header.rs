//! Attaching to a segment whose file somebody has changed.

use crate::input::Input;
use crate::scribble::{directory, fresh_name, path};
use shmring::Error;
use shmring::layout::{Geometry, HeaderWord, PAGE, RingGeometry};
use shmring::segment::{Segment, SegmentSpec};
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn spec(dir: &Path) -> SegmentSpec {
    let ring = |receivers| RingGeometry { receivers, slots: 4, ll_lines: 1, ll128_lines: 1, slot_bytes: 64 };
    let geometry = Geometry { members: 3, channels: 1, fan: ring(3), pair: ring(1) };
    let name = fresh_name();
    SegmentSpec { dir: dir.to_owned(), generation: name.job, name, settings: 5, geometry }
}

/// Words from the start of the file: the description, then the word that says that it is there.
const WORDS: usize = HeaderWord::COUNT + 1;

/// Changes words of the header, the file's length or its permissions, a few bytes each; then a rank attaches.
pub(crate) fn run(data: &[u8]) {
    let dir = directory();
    let spec = spec(dir.path());
    let path = path(&spec);
    let creator = Segment::create(&spec).expect("a small segment can be made");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the segment's file opens");
    let right = words(&file);
    let mut input = Input::new(data);
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        damage(&mut input, &file);
    }
    let meta = file.metadata().expect("an open file has a state");
    let (found, length, mode) = (words(&file), meta.len(), meta.mode() & 0o777);
    let intact = found == right && length == spec.geometry.total_bytes() && mode & 0o077 == 0;
    // Who is root opens files without any permission.
    let readable = mode & 0o600 == 0o600;
    match Segment::attach(&spec, 1, Duration::ZERO) {
        Ok(segment) => {
            assert!(intact, "a damaged segment was taken: {found:x?}, {length} bytes, mode {mode:o}");
            assert_eq!((segment.member(), *segment.geometry()), (1, spec.geometry));
            assert!(!segment.is_complete());
        }
        Err(error) if intact && readable => panic!("an intact segment was refused: {error}"),
        Err(Error::Io { .. }) if !readable => {}
        Err(Error::NotReady { .. } | Error::Mismatch { .. } | Error::NotPrivate { .. }) => {}
        Err(other) => panic!("an error of another kind: {other}"),
    }
    drop(creator);
    assert!(!path.exists(), "the creator leaves its segment behind");
}

/// The first words of the file; zeros behind its end.
fn words(file: &File) -> [u64; WORDS] {
    let mut bytes = [0; 8 * WORDS];
    let length = file.metadata().expect("an open file has a state").len().min(bytes.len() as u64);
    file.read_exact_at(&mut bytes[..length as usize], 0).expect("as long as it says");
    std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j])))
}

fn damage(input: &mut Input<'_>, file: &File) {
    match input.byte() {
        0 => {
            let length = file.metadata().expect("an open file has a state").len();
            let lengths = [0, 1, 64, PAGE - 1, PAGE, PAGE + 1, length.saturating_sub(1), length + 1, 1 << 20];
            file.set_len(lengths[input.below(lengths.len())]).expect("a file of ours can be cut");
        }
        1 => {
            let mode = u32::from(input.byte()) << 1 & 0o777;
            file.set_permissions(Permissions::from_mode(mode)).expect("a file of ours takes modes");
        }
        at => {
            let word = usize::from(at) % WORDS;
            let value = input.word(words(file)[word]);
            file.write_all_at(&value.to_le_bytes(), 8 * word as u64).expect("a small file can grow");
        }
    }
}
