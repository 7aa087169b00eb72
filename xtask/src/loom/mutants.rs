//! The weakenings: what is changed where, and the model check that must fail for it.
//!
//! `docs/memory-model.md` names these mutants beside the orderings they guard.

mod waiting;

use crate::plant::{Edit, edit};
use waiting::{NAPS, TURN_TAKING, WAITING};

/// One weakening.
#[derive(Debug)]
pub(super) struct Mutant {
    /// What is wrong with the code once it is planted.
    pub(super) name: &'static str,
    /// File in `loom-tests/tests` and function that must fail.
    pub(super) test: (&'static str, &'static str),
    /// Replacements, applied in order. Each `find` must occur exactly once in its file.
    pub(super) edits: &'static [Edit],
}

const SENDER: &str = "shmring/src/ring/sender.rs";
const RECEIVER: &str = "shmring/src/ring/receiver.rs";
const RING: &str = "shmring/src/ring/mod.rs";
const LINE: &str = "shmring/src/protocol/line.rs";
const RELAY: &str = "shmring/src/ring/relay.rs";
const PROTOCOL: &str = "shmring/src/protocol/mod.rs";
const JOURNAL: &str = "shmring/src/layout/journal.rs";
const HEADER: &str = "shmring/src/layout/header.rs";
const DOORBELL: &str = "shmring/src/doorbell.rs";
const FUTEX: &str = "shmring/src/futex.rs";
const BARRIER: &str = "loom-tests/tests/barrier.rs";

/// Panics of the sender that would hide the race behind them.
const NO_WRITE_ASSERT: Edit = edit(
    SENDER,
    "assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), \"write without credit\");",
    "",
);
const NO_SEND_ASSERT: Edit = edit(
    SENDER,
    "assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), \"send without credit\");",
    "",
);
const FLAG_STORE: &str = "line.flag().store(flag, Ordering::Release);";

/// Every weakening.
pub(super) const ALL: &[&[Mutant]] = &[NAPS, TURN_TAKING, WAITING, ORDERINGS, RINGS, RELAYS, STAMPS, CONTROL];

/// Of the turns on the pieces of a relay.
const RELAYS: &[Mutant] = &[
    Mutant {
        name: "turn on a piece passed relaxed",
        test: ("relay", "blocks"),
        edits: &[edit(RELAY, "turn.store(flag, Ordering::Release)", "turn.store(flag, Ordering::Relaxed)")],
    },
    Mutant {
        name: "turn on a piece seen relaxed",
        test: ("relay", "blocks"),
        edits: &[edit(RELAY, "turn.load(Ordering::Acquire)", "turn.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "block finished relaxed",
        test: ("relay", "blocks"),
        edits: &[edit(
            RELAY,
            "done.store(self.done, Ordering::Release)",
            "done.store(self.done, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "finished blocks seen relaxed",
        test: ("relay", "blocks"),
        edits: &[edit(RELAY, "line.done.load(Ordering::Acquire)", "line.done.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "one block too many",
        test: ("relay", "blocks"),
        edits: &[edit(
            RELAY,
            "if block < self.done_cache + blocks {",
            "if block < self.done_cache + blocks + 1 {",
        )],
    },
    Mutant {
        name: "blocks granted by the fastest member",
        test: ("relay", "operations"),
        edits: &[edit(RELAY, "least = least.min(done);", "least = least.max(done);")],
    },
    Mutant {
        name: "second operation begins at the first one's blocks",
        test: ("relay", "operations"),
        edits: &[edit(RELAY, "self.base = self.done;", "")],
    },
];

/// Of the stamps of messages and the journals of members.
const STAMPS: &[Mutant] = &[
    Mutant {
        name: "stamp stored after the tail",
        test: ("publish", "stamps"),
        edits: &[
            edit(
                SENDER,
                "line.stamps[self.ring.slot_index(self.tail)].store(stamp.0, Ordering::Relaxed);",
                "",
            ),
            edit(
                SENDER,
                "line.tail.store(self.tail, Ordering::Release);",
                "line.tail.store(self.tail, Ordering::Release);\n        let slot = self.ring.slot_index(self.tail - 1);\n        line.stamps[slot].store(stamp.0, Ordering::Relaxed);",
            ),
        ],
    },
    Mutant {
        name: "stamp not compared",
        test: ("publish", "stamps"),
        edits: &[edit(
            RECEIVER,
            "load(Ordering::Relaxed) == stamp.0",
            "load(Ordering::Relaxed) >= stamp.0.min(1)",
        )],
    },
    Mutant {
        name: "journal's number stored relaxed",
        test: ("journal", "words_come_with_their_number"),
        edits: &[edit(
            JOURNAL,
            "entry.number.store(number, Ordering::Release)",
            "entry.number.store(number, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "journal's number loaded relaxed",
        test: ("journal", "words_come_with_their_number"),
        edits: &[edit(
            JOURNAL,
            "entry.number.load(Ordering::Acquire)",
            "entry.number.load(Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "journal's number not cleared before its words change",
        test: ("journal", "entries_are_whole"),
        edits: &[edit(JOURNAL, "entry.number.store(0, Ordering::Relaxed);", "")],
    },
    Mutant {
        name: "journal written without a fence",
        test: ("journal", "entries_are_whole"),
        edits: &[edit(JOURNAL, "fence(Ordering::Release);", "")],
    },
    Mutant {
        name: "journal read without a fence",
        test: ("journal", "entries_are_whole"),
        edits: &[edit(JOURNAL, "fence(Ordering::Acquire);", "")],
    },
    Mutant {
        name: "journal's number looked at once",
        test: ("journal", "entries_are_whole"),
        edits: &[edit(JOURNAL, "n if n == number && n == after =>", "n if n == number =>")],
    },
];

const ORDERINGS: &[Mutant] = &[
    Mutant {
        name: "tail stored relaxed",
        test: ("publish", "simple"),
        edits: &[edit(
            SENDER,
            "tail.store(self.tail, Ordering::Release)",
            "tail.store(self.tail, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "tail loaded relaxed",
        test: ("publish", "simple"),
        edits: &[edit(RECEIVER, "tail.load(Ordering::Acquire)", "tail.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "flag stored relaxed",
        test: ("publish", "ll"),
        edits: &[edit(LINE, FLAG_STORE, "line.flag().store(flag, Ordering::Relaxed);")],
    },
    Mutant {
        name: "flag loaded relaxed",
        test: ("publish", "ll128"),
        edits: &[edit(LINE, "flag().load(Ordering::Acquire)", "flag().load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "flag stored relaxed, in a barrier",
        test: ("barrier", "three_members"),
        edits: &[edit(LINE, FLAG_STORE, "line.flag().store(flag, Ordering::Relaxed);")],
    },
    Mutant {
        name: "head stored relaxed",
        test: ("credit", "simple"),
        edits: &[edit(
            RECEIVER,
            "head.store(self.head, Ordering::Release)",
            "head.store(self.head, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "head loaded relaxed",
        test: ("credit", "ll"),
        edits: &[edit(SENDER, "head.load(Ordering::Acquire)", "head.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "answers give one credit too many",
        test: ("credit", "by_answers"),
        edits: &[edit(SENDER, "self.head_cache.max(step)", "self.head_cache.max(step + 1)")],
    },
    Mutant {
        name: "flag of a single line stored relaxed",
        test: ("credit", "by_answers"),
        edits: &[edit(LINE, FLAG_STORE, "line.flag().store(flag, Ordering::Relaxed);")],
    },
    Mutant {
        name: "flag of a single line loaded relaxed",
        test: ("credit", "by_answers"),
        edits: &[edit(LINE, "line.flag().load(Ordering::Acquire)", "line.flag().load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "head stored relaxed, two receivers",
        test: ("receivers", "simple"),
        edits: &[edit(
            RECEIVER,
            "head.store(self.head, Ordering::Release)",
            "head.store(self.head, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "ready stored relaxed",
        test: ("ready", "header"),
        edits: &[edit(HEADER, "ready.store(1, Ordering::Release)", "ready.store(1, Ordering::Relaxed)")],
    },
    Mutant {
        name: "ready loaded relaxed",
        test: ("ready", "header"),
        edits: &[edit(HEADER, "ready.load(Ordering::Acquire)", "ready.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "member state stored relaxed",
        test: ("ready", "member"),
        edits: &[edit(
            HEADER,
            "state.store(state as u32, Ordering::Release)",
            "state.store(state as u32, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "member state loaded relaxed",
        test: ("ready", "member"),
        edits: &[edit(HEADER, "state.load(Ordering::Acquire)", "state.load(Ordering::Relaxed)")],
    },
    Mutant {
        name: "abort stored relaxed",
        test: ("abort", "wakes_a_parked_rank"),
        edits: &[edit(
            HEADER,
            "Ordering::Release, Ordering::Acquire)",
            "Ordering::Relaxed, Ordering::Acquire)",
        )],
    },
    Mutant {
        name: "earlier abort loaded relaxed",
        test: ("abort", "first_reason_holds"),
        edits: &[edit(
            HEADER,
            "Ordering::Release, Ordering::Acquire)",
            "Ordering::Release, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "abort loaded relaxed",
        test: ("abort", "wakes_a_parked_rank"),
        edits: &[edit(
            HEADER,
            "self.abort.0.load(Ordering::Acquire)",
            "self.abort.0.load(Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "bell word changed relaxed",
        test: ("abort", "wakes_a_parked_rank"),
        edits: &[edit(FUTEX, "fetch_add(1, Ordering::Release)", "fetch_add(1, Ordering::Relaxed)")],
    },
];

const RINGS: &[Mutant] = &[
    Mutant {
        name: "credit never checked, Simple",
        test: ("credit", "simple"),
        edits: &[
            edit(
                SENDER,
                "if self.tail - self.head_cache < slots {\n            return Ok(true);",
                "if slots > 0 {\n            return Ok(true);",
            ),
            NO_WRITE_ASSERT,
        ],
    },
    Mutant {
        name: "one credit too many, LL",
        test: ("credit", "ll"),
        edits: &[
            edit(SENDER, "let slots = u64::from(self.ring.geometry.slots);", "let slots = 3;"),
            NO_SEND_ASSERT,
        ],
    },
    Mutant {
        name: "one credit too many, nothing released",
        test: ("credit", "none_without_release"),
        edits: &[
            edit(
                SENDER,
                "Ok(self.tail - self.head_cache < slots)",
                "Ok(self.tail - self.head_cache <= slots)",
            ),
            NO_SEND_ASSERT,
            NO_WRITE_ASSERT,
        ],
    },
    Mutant {
        name: "credit granted by the fastest receiver",
        test: ("receivers", "ll"),
        edits: &[
            edit(SENDER, "let mut least = self.tail;", "let mut least = 0;"),
            edit(SENDER, "least = least.min(head);", "least = least.max(head);"),
            edit(SENDER, " || head < self.head_cache", ""),
            NO_SEND_ASSERT,
        ],
    },
    Mutant {
        name: "flag is the step, not one more",
        test: ("publish", "ll"),
        edits: &[edit(PROTOCOL, "u64::from((step as u32).wrapping_add(1))", "u64::from(step as u32)")],
    },
    Mutant {
        name: "flag stored before its payload",
        test: ("publish", "ll128"),
        edits: &[edit(
            LINE,
            "let part = L::PAYLOAD.min(len - at);\n        // SAFETY: the line is ours by",
            "let part = L::PAYLOAD.min(len - at);\n        line.flag().store(flag, Ordering::Release);\n        \
             // SAFETY: the line is ours by",
        )],
    },
    Mutant {
        name: "only the first line's flag looked at",
        test: ("publish", "ll"),
        edits: &[edit(
            LINE,
            "if !is_here(line, flag)? {",
            "if reading.lines == 0 && !is_here(line, flag)? {",
        )],
    },
    Mutant {
        name: "stale flag taken for the present one",
        test: ("wrap", "ll"),
        edits: &[edit(LINE, "if found == flag {", "if found != 0 {")],
    },
    Mutant {
        name: "stale flag taken for the present one, two turns later",
        test: ("wrap", "mixed"),
        edits: &[edit(LINE, "if found == flag {", "if found != 0 {")],
    },
    Mutant {
        name: "tail stored before the slot is written",
        test: ("publish", "simple"),
        edits: &[edit(
            SENDER,
            "let slot: &[PayloadWord] = self.ring.simple_slot(self.tail);",
            "self.ring.sender_line().tail.store(self.tail + 1, Ordering::Release);\n        \
             let slot: &[PayloadWord] = self.ring.simple_slot(self.tail);",
        )],
    },
    Mutant {
        name: "tail counts Simple messages only",
        test: ("publish", "mixed"),
        edits: &[edit(
            SENDER,
            "tail.store(self.tail, Ordering::Release)",
            "tail.store(self.carried[2] + 1, Ordering::Release)",
        )],
    },
    Mutant {
        name: "message taken for posted one step early",
        test: ("publish", "simple"),
        edits: &[edit(RECEIVER, "Ok(tail > self.head && ", "Ok(tail >= self.head && ")],
    },
    Mutant {
        name: "slot released before its lines are read",
        test: ("credit", "ll128"),
        edits: &[edit(
            RECEIVER,
            "let flag = stamp.flag(self.head);\n        // SAFETY",
            "let flag = stamp.flag(self.head);\n        self.line().head.store(self.head + 1, Ordering::Release);\n        // SAFETY",
        )],
    },
    Mutant {
        name: "release gives no credit",
        test: ("wake", "credit"),
        edits: &[edit(RECEIVER, "self.line().head.store(self.head, Ordering::Release);", "")],
    },
    Mutant {
        name: "every step in one slot",
        test: ("wrap", "simple"),
        edits: &[edit(RING, "(step & u64::from(self.geometry.slots - 1)) as usize", "(step & 0) as usize")],
    },
];

const CONTROL: &[Mutant] = &[
    Mutant {
        name: "header ready before its words",
        test: ("ready", "header"),
        edits: &[edit(
            HEADER,
            "let mut values = [0; HeaderWord::COUNT];\n        values[HeaderWord::Magic",
            "self.ready.store(1, Ordering::Release);\n        \
             let mut values = [0; HeaderWord::COUNT];\n        values[HeaderWord::Magic",
        )],
    },
    Mutant {
        name: "header read without looking at ready",
        test: ("ready", "header"),
        edits: &[edit(
            HEADER,
            "self.ready.load(Ordering::Acquire) != 1",
            "self.ready.load(Ordering::Acquire) > 1",
        )],
    },
    Mutant {
        name: "abort rings no bell",
        test: ("abort", "wakes_a_parked_rank"),
        edits: &[edit(
            DOORBELL,
            "pub fn ring_always(&self) {\n        self.word.wake_all();",
            "pub fn ring_always(&self) {",
        )],
    },
    Mutant {
        name: "later abort replaces the earlier",
        test: ("abort", "first_reason_holds"),
        edits: &[edit(
            HEADER,
            "match self.abort.0.compare_exchange(0, reason, Ordering::Release, Ordering::Acquire) {",
            "self.abort.0.store(reason, Ordering::Release);\n        match Ok::<u64, u64>(0) {",
        )],
    },
    Mutant {
        name: "barrier waits for all but one",
        test: ("barrier", "two_members"),
        edits: &[edit(
            BARRIER,
            "for receiver in &mut self.receivers {",
            "for receiver in &mut self.receivers[1..] {",
        )],
    },
    Mutant {
        name: "barrier wakes nobody",
        test: ("barrier", "two_members"),
        edits: &[edit(BARRIER, "bells.notify(self.me, peer);", "let _ = peer;")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    fn read(file: &str) -> String {
        std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// Every mutant still applies to the code, changes it, and names a test that exists.
    #[test]
    fn list_fits_the_code() {
        for mutant in ALL.iter().copied().flatten() {
            for edit in mutant.edits {
                // An earlier edit of the same mutant never removes what a later one looks for.
                assert_eq!(read(edit.file).matches(edit.find).count(), 1, "{}: {}", mutant.name, edit.find);
                assert_ne!(edit.find, edit.replace, "{}", mutant.name);
            }
            let (file, function) = mutant.test;
            let text = read(&format!("loom-tests/tests/{file}.rs"));
            assert!(
                text.contains(&format!("#[test]\nfn {function}()")),
                "{}: {file}::{function}",
                mutant.name
            );
        }
    }

    /// Names are unique: the table and the documentation refer to mutants by name.
    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().copied().flatten().map(|m| m.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    /// `docs/memory-model.md` names every mutant, no other, and only tests that exist.
    #[test]
    fn documentation_names_them_all() {
        let page = read("docs/memory-model.md");
        let mut named = Vec::new();
        let mut column = None;
        for line in page.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if cells.len() < 3 {
                column = None;
            } else if let Some(found) = cells.iter().position(|cell| *cell == "Mutants") {
                column = Some(found);
            } else if let Some(cell) =
                column.and_then(|at| cells.get(at)).filter(|cell| !cell.starts_with("--"))
            {
                named.extend(cell.split("; ").filter(|name| !name.is_empty()).map(str::to_owned));
            }
        }
        named.sort_unstable();
        let mut known: Vec<_> = ALL.iter().copied().flatten().map(|m| m.name.to_owned()).collect();
        known.sort_unstable();
        assert_eq!(named, known);
        for quoted in page.split('`').skip(1).step_by(2) {
            if let Some((file, function)) = quoted.split_once("::").filter(|(file, _)| *file != "file") {
                let text = read(&format!("loom-tests/tests/{file}.rs"));
                assert!(text.contains(&format!("#[test]\nfn {function}()")), "{quoted}");
            }
        }
    }
}
