//! Weakenings of waiting: the bells, several threads and several bells, turns.

use super::{DOORBELL, FUTEX, Mutant};
use crate::plant::edit;

const TURNS: &str = "shmring/src/turns.rs";
const WAIT: &str = "shmring/src/wait.rs";
const DRIVER: &str = "loom-tests/tests/driver.rs";

/// Of sleeping and waking.
pub(super) const WAITING: &[Mutant] = &[
    Mutant {
        name: "publisher's fence removed",
        test: ("wake", "post"),
        edits: &[edit(DOORBELL, "fence(Ordering::SeqCst);\n        self.count", "self.count")],
    },
    Mutant {
        name: "publisher's fence removed, LL",
        test: ("wake", "flag"),
        edits: &[edit(DOORBELL, "fence(Ordering::SeqCst);\n        self.count", "self.count")],
    },
    Mutant {
        name: "sleeper's fence removed",
        test: ("wake", "credit"),
        edits: &[edit(DOORBELL, "fence(Ordering::SeqCst);\n        let answer", "let answer")],
    },
    Mutant {
        name: "sleeper's fence weakened to release",
        test: ("abort", "wakes_a_parked_rank"),
        edits: &[edit(
            DOORBELL,
            "fence(Ordering::SeqCst);\n        let answer",
            "fence(Ordering::Release);\n        let answer",
        )],
    },
    Mutant {
        name: "publisher's fence weakened to AcqRel",
        test: ("wake", "post"),
        edits: &[edit(
            DOORBELL,
            "fence(Ordering::SeqCst);\n        self.count",
            "fence(Ordering::AcqRel);\n        self.count",
        )],
    },
    Mutant {
        name: "wake-up skipped",
        test: ("wake", "post"),
        edits: &[edit(DOORBELL, ".code() {\n            self.word.wake_all();", ".code() {")],
    },
    Mutant {
        name: "call into the kernel skipped",
        test: ("wake", "credit"),
        edits: &[edit(FUTEX, "kernel::wake_all(self);", "")],
    },
    Mutant {
        name: "bell word not changed",
        test: ("wake", "post"),
        edits: &[edit(FUTEX, "self.word.fetch_add(1, Ordering::Release);", "")],
    },
    Mutant {
        name: "bell word changed after the wake-up",
        test: ("wake", "post"),
        edits: &[
            edit(FUTEX, "self.word.fetch_add(1, Ordering::Release);", ""),
            edit(
                FUTEX,
                "kernel::wake_all(self);",
                "kernel::wake_all(self);\n        self.word.fetch_add(1, Ordering::Release);",
            ),
        ],
    },
    Mutant {
        name: "no look after the announcement",
        test: ("wake", "post"),
        edits: &[edit(
            DOORBELL,
            "let answer = look();\n        if matches",
            "let answer: Result<Option<Awaits>, E> = Ok(Some(awaits));\n        drop(look);\n        if matches",
        )],
    },
    Mutant {
        name: "bell word read after the last look",
        test: ("wake", "post"),
        edits: &[edit(
            DOORBELL,
            "self.word.wait(seen, timeout)",
            "self.word.wait(self.word.value().max(seen), timeout)",
        )],
    },
    Mutant {
        name: "sleeper not announced on its bell",
        test: ("wake", "flag"),
        edits: &[edit(DOORBELL, "(old & !WHOM).wrapping_add(THREAD) | whom.code()", "whom.code() & 0")],
    },
    Mutant {
        name: "sleeper not counted",
        test: ("wake", "post"),
        edits: &[
            edit(DOORBELL, "sleepers.count.fetch_add(1, Ordering::Relaxed);", ""),
            edit(DOORBELL, "sleepers.count.fetch_sub(1, Ordering::Relaxed);", ""),
        ],
    },
    Mutant {
        name: "who gets up clears the count of all",
        test: ("wake", "two_sleepers"),
        edits: &[edit(
            DOORBELL,
            "sleepers.count.fetch_sub(1, Ordering::Relaxed);",
            "sleepers.count.store(0, Ordering::Relaxed);",
        )],
    },
    Mutant {
        name: "waiter gives up after one sleep",
        test: ("wake", "post"),
        edits: &[edit(
            WAIT,
            "if found.is_none() { Ok(true) } else { self.look() }",
            "Ok(found.is_none() || true)",
        )],
    },
    Mutant {
        name: "sleeper keeps the first name it announced",
        test: ("wake", "named_member"),
        edits: &[edit(DOORBELL, "Ok(Some(now)) if awaits.covers(now)", "Ok(Some(_))")],
    },
    Mutant {
        name: "sleepers for one member not rung",
        test: ("wake", "named_member"),
        edits: &[edit(DOORBELL, " || announced == Awaits::Member(by).code()", "")],
    },
];

/// Of several threads on one bell, and one thread on several.
pub(super) const NAPS: &[Mutant] = &[
    Mutant {
        name: "second thread keeps the first one's name",
        test: ("naps", "two_threads_for_two_members"),
        edits: &[edit(
            DOORBELL,
            "THREAD) | whom.code()",
            "THREAD) | if old < THREAD { whom.code() } else { old & WHOM }",
        )],
    },
    Mutant {
        name: "second thread replaces the first one's name",
        test: ("naps", "two_threads_for_two_members"),
        edits: &[edit(DOORBELL, "{ awaits } else { Awaits::Anyone };", "{ awaits } else { awaits };")],
    },
    Mutant {
        name: "who leaves takes the other thread's announcement along",
        test: ("naps", "two_threads_for_one_member"),
        edits: &[edit(DOORBELL, "if old < 2 * THREAD { 0 } else { old - THREAD }", "old & 0")],
    },
    Mutant {
        name: "announcement changed in two steps",
        test: ("naps", "two_threads_for_one_member"),
        edits: &[edit(
            DOORBELL,
            "self.sleeping.compare_exchange(old, next(old), Ordering::Relaxed, Ordering::Relaxed)",
            "{\n            self.sleeping.store(next(old), Ordering::Relaxed);\n            Ok::<u32, u32>(old)\n        }",
        )],
    },
    Mutant {
        name: "sleeper's fence removed, several bells",
        test: ("naps", "two_bells"),
        edits: &[edit(DOORBELL, "fence(Ordering::SeqCst);\n    let answer", "let answer")],
    },
    Mutant {
        name: "no look after the announcements",
        test: ("naps", "two_bells"),
        edits: &[edit(
            DOORBELL,
            "let answer = look();\n    if matches",
            "let answer: Result<bool, E> = Ok(true);\n    drop(look);\n    if matches",
        )],
    },
    Mutant {
        name: "look before the announcements only",
        test: ("driver", "arrivals"),
        edits: &[
            edit(DOORBELL, "    let seen: Vec<_> =", "    let answer = look();\n    let seen: Vec<_> ="),
            edit(DOORBELL, "let answer = look();\n    if matches", "if matches"),
        ],
    },
    Mutant {
        name: "sleep although the look found a change",
        test: ("naps", "two_bells"),
        edits: &[edit(DOORBELL, "matches!(answer, Ok(true))", "answer.is_ok()")],
    },
    Mutant {
        name: "only the first of several bells announced",
        test: ("naps", "two_bells"),
        edits: &[
            edit(DOORBELL, "naps.iter().map(", "naps.iter().take(1).map("),
            edit(DOORBELL, "naps.iter().for_each(", "naps.iter().take(1).for_each("),
        ],
    },
    Mutant {
        name: "several bells' words read after the last look",
        test: ("naps", "two_bells"),
        edits: &[edit(
            DOORBELL,
            "FutexWord::wait_any(&seen, timeout)",
            "FutexWord::wait_any(&seen.iter().map(|(word, _)| (*word, word.value())).collect::<Vec<_>>(), timeout)",
        )],
    },
    Mutant {
        name: "sleep on the first of several words",
        test: ("naps", "two_bells_one_publisher"),
        edits: &[edit(
            FUTEX,
            "_ => kernel::wait_any(words, timeout)",
            "_ => kernel::wait_any(&words[..1], timeout)",
        )],
    },
    Mutant {
        name: "driver looks at arrivals only",
        test: ("driver", "left_behind"),
        edits: &[edit(DRIVER, "self.set.try_with(|set| *set == 0)", "self.set.try_with(|_| true)")],
    },
    Mutant {
        name: "submitter rings before it queues",
        test: ("driver", "arrivals"),
        edits: &[edit(
            DRIVER,
            "fn submit(&self) {\n        *self.arrivals.lock().unwrap() += 1;\n        self.ring();",
            "fn submit(&self) {\n        self.ring();\n        *self.arrivals.lock().unwrap() += 1;",
        )],
    },
    Mutant {
        name: "who leaves work behind does not ring",
        test: ("driver", "left_behind"),
        edits: &[edit(
            DRIVER,
            "self.set.try_with(|set| self.take_in(set));\n        self.ring();",
            "self.set.try_with(|set| self.take_in(set));",
        )],
    },
    Mutant {
        name: "whoever has the items is taken to drive what arrives",
        test: ("driver", "a_look_hides_nothing"),
        edits: &[edit(
            DRIVER,
            "let nothing_left = self.set.try_with(|set| *set == 0).unwrap_or(true);",
            "let Some(nothing_left) = self.set.try_with(|set| *set == 0) else { return true };",
        )],
    },
    Mutant {
        name: "a look that finds work does not ring",
        test: ("driver", "a_look_hides_nothing_that_was_left"),
        edits: &[edit(DRIVER, "        if has {\n            self.ring();\n        }\n", "")],
    },
];

/// Of turns to use a value.
pub(super) const TURN_TAKING: &[Mutant] = &[
    Mutant {
        name: "turn passed relaxed",
        test: ("turns", "in_order"),
        edits: &[edit(
            TURNS,
            "self.serving.store(next, Ordering::Release)",
            "self.serving.store(next, Ordering::Relaxed)",
        )],
    },
    Mutant {
        name: "turn entered relaxed",
        test: ("turns", "in_order"),
        edits: &[edit(
            TURNS,
            "load(Ordering::Acquire) != ticket.number",
            "load(Ordering::Relaxed) != ticket.number",
        )],
    },
    Mutant {
        name: "idle value entered relaxed",
        test: ("turns", "in_order"),
        edits: &[edit(
            TURNS,
            "load(Ordering::Acquire) != issuer.issued",
            "load(Ordering::Relaxed) != issuer.issued",
        )],
    },
    Mutant {
        name: "turn of a ticket given up seen relaxed",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(
            TURNS,
            "load(Ordering::Acquire) == ticket.number",
            "load(Ordering::Relaxed) == ticket.number",
        )],
    },
    Mutant {
        name: "fence of who gives up removed",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(TURNS, "fence(Ordering::SeqCst);\n        let is_up", "let is_up")],
    },
    Mutant {
        name: "fence of who passes removed",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(TURNS, "fence(Ordering::SeqCst);\n            if self.any", "if self.any")],
    },
    Mutant {
        name: "ticket number not compared",
        test: ("turns", "in_order"),
        edits: &[edit(
            TURNS,
            "load(Ordering::Acquire) != ticket.number",
            "load(Ordering::Acquire) > ticket.number",
        )],
    },
    Mutant {
        name: "value taken for idle while a ticket is out",
        test: ("turns", "in_order"),
        edits: &[edit(
            TURNS,
            "load(Ordering::Acquire) != issuer.issued",
            "load(Ordering::Acquire) > issuer.issued",
        )],
    },
    Mutant {
        name: "turn given up is not passed",
        test: ("turns", "give_up_in_turn"),
        edits: &[edit(TURNS, "if is_up {\n            self.advance", "if false {\n            self.advance")],
    },
    Mutant {
        name: "ticket skipped by both sides",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(TURNS, "given_up.remove(&ticket.number);", "")],
    },
    Mutant {
        name: "turn looked at without the lock",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(
            TURNS,
            "let is_up = self.serving.load(Ordering::Acquire) == ticket.number;",
            "drop(given_up);\n        let is_up = self.serving.load(Ordering::Acquire) == ticket.number;\n        \
             let mut given_up = self.given_up();",
        )],
    },
    Mutant {
        name: "tickets given up not announced",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(TURNS, "self.any_given_up.store(1, Ordering::Relaxed);", "")],
    },
    Mutant {
        name: "tickets given up not looked at",
        test: ("turns", "give_up_beside_pass"),
        edits: &[edit(
            TURNS,
            "self.any_given_up.load(Ordering::Relaxed) == 0",
            "self.any_given_up.load(Ordering::Relaxed) < 2",
        )],
    },
    Mutant {
        name: "only one ticket skipped",
        test: ("turns", "give_up_beside_give_up"),
        edits: &[edit(
            TURNS,
            "            next += 1;\n",
            "            self.serving.store(next + 1, Ordering::Release);\n            return;\n",
        )],
    },
    Mutant {
        name: "tickets left to skip forgotten",
        test: ("turns", "give_up_beside_give_up"),
        edits: &[edit(TURNS, "u32::from(!given_up.is_empty())", "0")],
    },
];
