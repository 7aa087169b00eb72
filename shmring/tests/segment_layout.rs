//! `docs/segment-layout.md` says what the code does: every number and every formula of its tables.
//!
//! Private fields are found by their effect: the test acts through the crate's interface and reads the bytes
//! of the segment's file where the page says they are.
#![cfg(not(loom))]

use shmring::doorbell::Awaits;
use shmring::layout::{
    Geometry, HeaderWord, JOURNAL_ENTRIES, LAYOUT_VERSION, Ll128Line, LlLine, MAGIC, MAX_CHANNELS,
    MAX_MEMBERS, MEMBER_WORDS, MemberRecord, MemberTurn, PAGE, PieceTurn, ReceiverLine, RelayGeometry,
    RingGeometry, SLOTS_MAX, SegmentHeader, SenderLine,
};
use shmring::segment::{Segment, SegmentName, SegmentSpec};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The rows of the `n`-th table of a section, without its head; cells trimmed.
fn table(section: &str, n: usize) -> Vec<Vec<String>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/segment-layout.md");
    let page = std::fs::read_to_string(page).unwrap();
    let body = page.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
    let mut inside = false;
    for line in body.split("```").step_by(2).flat_map(str::lines) {
        let row = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        if row.is_some() && !inside {
            tables.push(Vec::new());
        }
        inside = row.is_some();
        if let Some(row) = row {
            tables.last_mut().unwrap().push(row.split('|').map(|cell| cell.trim().to_owned()).collect());
        }
    }
    tables.swap_remove(n).split_off(2)
}

/// The number in a cell, decimal or hexadecimal.
fn number(cell: &str) -> u64 {
    match cell.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).unwrap(),
        None => cell.parse().unwrap_or_else(|_| panic!("not a number: {cell}")),
    }
}

/// Evaluates a formula of the page: numbers, names, `+`, `*`, parentheses and `round(x, n)`.
struct Formula<'a> {
    rest: &'a str,
    names: &'a BTreeMap<&'a str, u64>,
}

impl Formula<'_> {
    fn value(text: &str, names: &BTreeMap<&str, u64>) -> u64 {
        let mut formula = Formula { rest: text, names };
        let value = formula.sum();
        assert_eq!(formula.rest, "", "in `{text}`");
        value
    }

    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn sum(&mut self) -> u64 {
        let mut sum = self.product();
        while self.take('+') {
            sum += self.product();
        }
        sum
    }

    fn product(&mut self) -> u64 {
        let mut product = self.atom();
        while self.take('*') {
            product *= self.atom();
        }
        product
    }

    fn atom(&mut self) -> u64 {
        if self.take('(') {
            let sum = self.sum();
            assert!(self.take(')'), "`)` before `{}`", self.rest);
            return sum;
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word == "round" {
            assert!(self.take('('), "round(x, n)");
            let x = self.sum();
            assert!(self.take(','), "round(x, n)");
            let n = self.sum();
            assert!(self.take(')'), "round(x, n)");
            return x.next_multiple_of(n);
        }
        word.parse().unwrap_or_else(|_| self.names.get(word).copied().unwrap_or_else(|| panic!("`{word}`?")))
    }
}

fn rings(receivers: u32) -> impl Iterator<Item = RingGeometry> {
    let shapes = [(8, 4, 8, 65536), (2, 0, 3, 64), (1, 1, 0, 0), (16, 30, 50, 4096 + 64)];
    shapes.into_iter().map(move |(slots, ll_lines, ll128_lines, slot_bytes)| RingGeometry {
        receivers,
        slots,
        ll_lines,
        ll128_lines,
        slot_bytes,
    })
}

/// The constants of the page are those of the code.
#[test]
fn constants() {
    let expected = [
        ("magic", MAGIC),
        ("version", LAYOUT_VERSION),
        ("page", PAGE),
        ("most members", MAX_MEMBERS.into()),
        ("most channels", MAX_CHANNELS.into()),
        ("most slots", SLOTS_MAX.into()),
        ("entries of a journal", JOURNAL_ENTRIES as u64),
    ];
    let rows = table("Constants", 0);
    let found: Vec<_> = rows.iter().map(|row| (row[0].as_str(), number(&row[1]))).collect();
    assert_eq!(found, expected);
}

/// The description's words have the names and the offsets that the page gives.
#[test]
fn header_words() {
    let rows = table("The header", 1);
    let found: Vec<_> = rows.iter().map(|row| (row[0].as_str(), number(&row[1]))).collect();
    let expected: Vec<_> = HeaderWord::NAMES.into_iter().zip((0..).step_by(8)).collect();
    assert_eq!(found, expected);
}

/// The structures of a ring have the sizes and offsets that the page gives.
#[test]
fn structures() {
    let expected = [
        ("SenderLine", "tail", offset_of!(SenderLine, tail), size_of::<SenderLine>()),
        ("SenderLine", "taken", offset_of!(SenderLine, taken), size_of::<SenderLine>()),
        ("SenderLine", "stamps", offset_of!(SenderLine, stamps), size_of::<SenderLine>()),
        ("ReceiverLine", "head", offset_of!(ReceiverLine, head), size_of::<ReceiverLine>()),
        ("ReceiverLine", "taken", offset_of!(ReceiverLine, taken), size_of::<ReceiverLine>()),
        ("LlLine", "data", offset_of!(LlLine, data), size_of::<LlLine>()),
        ("LlLine", "flag", offset_of!(LlLine, flag), size_of::<LlLine>()),
        ("Ll128Line", "data", offset_of!(Ll128Line, data), size_of::<Ll128Line>()),
        ("Ll128Line", "flag", offset_of!(Ll128Line, flag), size_of::<Ll128Line>()),
    ];
    let rows = table("A ring", 1);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (&*row[0], &*row[1], number(&row[2]) as usize, number(&row[3]) as usize))
        .collect();
    assert_eq!(found, expected);
}

/// The areas of a ring lie where the page's formulas say, for rings of several shapes.
#[test]
fn ring_areas() {
    let rows = table("A ring", 0);
    for shape in rings(1).chain(rings(5)) {
        let expected = [
            ("sender line", 0, 128),
            ("receiver lines", shape.receivers_offset(), shape.ll_offset() - shape.receivers_offset()),
            ("LL", shape.ll_offset(), 64 * u64::from(shape.ll_lines * shape.slots)),
            ("LL128", shape.ll128_offset(), 128 * u64::from(shape.ll128_lines * shape.slots)),
            ("Simple", shape.simple_offset(), shape.simple_bytes()),
        ];
        let mut names = BTreeMap::from([
            ("receivers", u64::from(shape.receivers)),
            ("slots", shape.slots.into()),
            ("ll_lines", shape.ll_lines.into()),
            ("ll128_lines", shape.ll128_lines.into()),
            ("slot_bytes", shape.slot_bytes.into()),
        ]);
        let mut end = 0;
        for (row, (name, offset, bytes)) in rows.iter().zip(expected) {
            assert_eq!(row[0], name);
            let found = (Formula::value(&row[1], &names), Formula::value(&row[2], &names));
            assert_eq!(found, (offset, bytes), "{name} of {shape:?}");
            names.insert(name, offset);
            end = offset + bytes;
        }
        assert_eq!((rows.len(), end), (5, shape.total_bytes()), "{shape:?}");
    }
}

/// The structures of a relay have the sizes and offsets that the page gives, and its areas lie where the formulas say.
#[test]
fn relay_areas() {
    let expected = [
        ("MemberTurn", "done", offset_of!(MemberTurn, done), size_of::<MemberTurn>()),
        ("MemberTurn", "taken", offset_of!(MemberTurn, taken), size_of::<MemberTurn>()),
        ("PieceTurn", "turn", offset_of!(PieceTurn, turn), size_of::<PieceTurn>()),
    ];
    let rows = table("A relay", 1);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (&*row[0], &*row[1], number(&row[2]) as usize, number(&row[3]) as usize))
        .collect();
    assert_eq!(found, expected);

    let rows = table("A relay", 0);
    for (members, piece_bytes) in [(1, 64), (2, 262_144), (7, 4160), (64, 65_536)] {
        let shape = RelayGeometry { members, blocks: 4, piece_bytes };
        let names = BTreeMap::from([("members", u64::from(members)), ("piece", piece_bytes.into())]);
        let value = |row: usize, column: usize| Formula::value(&rows[row][column], &names);
        assert_eq!((value(0, 1), value(0, 2)), (0, shape.turns_offset()));
        assert_eq!((value(1, 1), value(1, 2)), (shape.turns_offset(), 128 * shape.pieces()));
        assert_eq!(value(2, 1), shape.pieces_offset());
        assert_eq!(value(2, 1) + value(2, 2), shape.total_bytes());
    }
    // The size of a piece: by the slot, by the most of one piece, by the most of all, and the least.
    for (members, channels, slot_bytes, piece) in [
        (2, 1, 65_536, 65_536),
        (2, 1, 1 << 20, 262_144),
        (100, 1, 1 << 20, 83_840),
        (16, 4, 1 << 20, 131_072),
        (1024, 1, 1 << 20, 8192),
        (1024, 64, 1 << 20, 4096),
    ] {
        let ring = |receivers| RingGeometry { receivers, slots: 4, ll_lines: 1, ll128_lines: 1, slot_bytes };
        let geometry = Geometry { members, channels, fan: ring(members), pair: ring(1) };
        let expected = RelayGeometry { members, blocks: 4, piece_bytes: piece };
        assert_eq!(geometry.relay(), expected);
    }
}

/// The parts of the file lie where the page's formulas say, for segments of several shapes.
#[test]
fn file_parts() {
    let rows = table("The file", 0);
    let names: Vec<_> = rows.iter().map(|row| &*row[0]).collect();
    let expected = [
        "header",
        "member m",
        "fan rings",
        "fan ring of channel c, source s",
        "pair rings",
        "pair ring of channel c, source s, destination d",
        "mail rings",
        "mail ring of source s, destination d",
        "relays",
        "relay of channel c",
        "signals",
        "signals of source s to destination d",
    ];
    assert_eq!(names, expected);
    for (members, channels) in [(1, 1), (2, 3), (7, 2), (64, 16)] {
        for (fan, pair) in rings(members).zip(rings(1).skip(1)) {
            check_parts(&rows, Geometry { members, channels, fan, pair });
        }
    }
}

fn check_parts(rows: &[Vec<String>], geometry: Geometry) {
    geometry.validate().unwrap();
    let Geometry { members, channels, fan, pair } = geometry;
    let (m, c, s, d) = (members - 1, channels - 1, members / 2, members - 1);
    let mut names = BTreeMap::from([
        ("members", u64::from(members)),
        ("channels", channels.into()),
        ("fan", fan.total_bytes()),
        ("pair", pair.total_bytes()),
        ("mail", geometry.mail().total_bytes()),
        ("relay", geometry.relay().total_bytes()),
        ("m", m.into()),
        ("c", c.into()),
        ("s", s.into()),
        ("d", d.into()),
    ]);
    let value = |row: usize, column: usize, names: &_| Formula::value(&rows[row][column], names);
    let fans = value(2, 1, &names);
    names.insert("fan_rings", fans);
    let pairs = value(4, 1, &names);
    names.insert("pair_rings", pairs);
    assert_eq!((value(0, 1, &names), value(0, 2, &names)), (0, size_of::<SegmentHeader>() as u64));
    assert_eq!(value(1, 1, &names), geometry.member_offset(m));
    assert_eq!(value(1, 2, &names), size_of::<MemberRecord>() as u64);
    assert_eq!(fans, geometry.control_bytes());
    assert_eq!(fans + value(2, 2, &names), pairs);
    assert_eq!(value(3, 1, &names), geometry.fan_offset(c, s));
    assert_eq!(value(5, 1, &names), geometry.pair_offset(c, s, d));
    let mails = value(6, 1, &names);
    names.insert("mail_rings", mails);
    assert_eq!(pairs + value(4, 2, &names), mails);
    assert_eq!(value(7, 1, &names), geometry.mail_offset(s, d));
    let relays = value(8, 1, &names);
    names.insert("relays", relays);
    assert_eq!(mails + value(6, 2, &names), relays);
    assert_eq!(value(9, 1, &names), geometry.relay_offset(c));
    let signals = value(10, 1, &names);
    names.insert("signals", signals);
    assert_eq!(relays + value(8, 2, &names), signals);
    assert_eq!(value(11, 1, &names), geometry.signals_offset(d) + 8 * u64::from(s));
    assert_eq!(signals + value(10, 2, &names), geometry.total_bytes());
}

/// Offsets and sizes of the fields in a table, by name.
fn fields(rows: &[Vec<String>]) -> BTreeMap<&str, (u64, u64)> {
    rows.iter().map(|row| (&*row[0], (number(&row[1]), number(&row[2])))).collect()
}

/// A segment of three members, two of them here, and its file.
struct Live {
    segment: Segment,
    _second: Segment,
    file: std::fs::File,
    _dir: tempfile::TempDir,
}

impl Live {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let ring =
            |receivers| RingGeometry { receivers, slots: 2, ll_lines: 1, ll128_lines: 1, slot_bytes: 64 };
        let geometry = Geometry { members: 3, channels: 1, fan: ring(3), pair: ring(1) };
        let name = SegmentName::of_this_process(5);
        let spec = SegmentSpec { dir: dir.path().into(), name, generation: 5, settings: 6, geometry };
        let segment = Segment::create(&spec).unwrap();
        let file = std::fs::File::open(spec.dir.join(spec.name.file_name())).unwrap();
        let _second = Segment::attach(&spec, 1, Duration::ZERO).unwrap();
        Self { segment, _second, file, _dir: dir }
    }

    /// The number in the file at an offset; of fields with room for more, the first eight bytes.
    fn read(&self, (offset, bytes): (u64, u64)) -> u64 {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word[..bytes.min(8) as usize], offset).unwrap();
        u64::from_le_bytes(word)
    }
}

/// The fields of the header show in the file where the page says.
#[test]
fn header_fields() {
    let live = Live::new();
    let rows = table("The header", 0);
    let header = fields(&rows);
    let read = |name: &str| live.read(header[name]);
    let bytes: u64 = header.values().map(|(_, bytes)| bytes).sum();
    assert_eq!((header.len(), bytes), (5, size_of::<SegmentHeader>() as u64));
    assert_eq!(header["words"].1, 8 * HeaderWord::COUNT as u64);
    assert_eq!(header["sleepers"].0, offset_of!(SegmentHeader, sleepers) as u64);
    assert_eq!((read("words"), read("ready"), read("attached")), (MAGIC, 1, 2));
    assert_eq!((read("sleepers"), read("abort")), (0, 0));
    live.segment.header().abort(77);
    assert_eq!(read("abort"), 77);
    let asleep = live.segment.member_record(0).bell.sleep(
        &live.segment.header().sleepers,
        Duration::ZERO,
        Awaits::Anyone,
        || Ok::<_, ()>((read("sleepers") != 1).then_some(Awaits::Anyone)),
    );
    assert_eq!((asleep, read("sleepers")), (Ok(None), 0));
}

/// The fields of a member's record show in the file where the page says.
#[test]
fn record_fields() {
    let live = Live::new();
    let rows = table("A member's record", 0);
    let record = fields(&rows);
    let own = live.segment.geometry().member_offset(0);
    let read = |name: &str| live.read((own + record[name].0, record[name].1));
    let offsets = [
        ("pid", offset_of!(MemberRecord, identity.pid)),
        ("start_time", offset_of!(MemberRecord, identity.start_time)),
        ("started", offset_of!(MemberRecord, identity.started)),
        ("finished", offset_of!(MemberRecord, identity.finished)),
    ];
    for (name, offset) in offsets {
        assert_eq!(record[name], (offset as u64, 8), "{name}");
    }
    assert_eq!(["bell.word", "bell.sleeping", "state"].map(|name| record[name].1), [4; 3]);
    let words = (offset_of!(MemberRecord, words) as u64, 8 * MEMBER_WORDS as u64);
    let journal = (offset_of!(MemberRecord, journal) as u64, 32 * JOURNAL_ENTRIES as u64);
    assert_eq!((record.len(), record["words"], record["journal"]), (9, words, journal));
    assert_eq!((words.0 + words.1, journal.0 + journal.1), (journal.0, size_of::<MemberRecord>() as u64));
    live.segment.member_record(0).journal.write(35, [36, 37]);
    let entry = own + journal.0 + 35 % 16 * 32;
    assert_eq!([0, 8, 16, 24].map(|at| live.read((entry + at, 8))), [35, 36, 37, 0]);
    assert_eq!((read("pid"), read("state")), (std::process::id().into(), 1));
    let bell = &live.segment.member_record(0).bell;
    bell.ring_always();
    assert_eq!((read("bell.word"), read("bell.sleeping")), (1, 0));
    let sleepers = &live.segment.header().sleepers;
    let asleep = bell.sleep(sleepers, Duration::ZERO, Awaits::Member(7), || {
        let one = read("bell.sleeping");
        let two = bell.sleep(sleepers, Duration::ZERO, Awaits::Member(5), || {
            Ok::<_, ()>((read("bell.sleeping") != 2 << 16 | 1).then_some(Awaits::Anyone))
        });
        Ok::<_, ()>((one != 1 << 16 | 9 || two != Ok(None)).then_some(Awaits::Anyone))
    });
    assert_eq!((asleep, read("bell.sleeping")), (Ok(None), 0));
}
