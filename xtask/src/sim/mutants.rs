//! The planted errors: what is changed where, and with which stores it must be found.

use crate::plant::{Edit, edit};

/// One planted error.
#[derive(Debug)]
pub(super) struct Mutant {
    /// What is wrong with the code once it is planted.
    pub(super) name: &'static str,
    /// The mode in which it must be found: `off` shows that late stores are not needed for it.
    pub(super) store_buffer: &'static str,
    /// Replacements, applied in order.
    pub(super) edits: &'static [Edit],
}

const fn mutant(name: &'static str, store_buffer: &'static str, edits: &'static [Edit]) -> Mutant {
    Mutant { name, store_buffer, edits }
}

const SENDER: &str = "shmring/src/ring/sender.rs";
const RECEIVER: &str = "shmring/src/ring/receiver.rs";
const LINE: &str = "shmring/src/protocol/line.rs";
const DOORBELL: &str = "shmring/src/doorbell.rs";
const FUTEX: &str = "shmring/src/futex.rs";
const SEGMENT: &str = "shmring/src/segment/mod.rs";
const EXECUTOR: &str = "runtime/src/executor/mod.rs";
const REGISTRY: &str = "runtime/src/comm/registry.rs";
const HEALTH: &str = "runtime/src/comm/health.rs";
const DESCRIPTOR: &str = "runtime/src/comm/descriptor.rs";
const ENGINE: &str = "runtime/src/comm/engine.rs";

/// Where a poll tells sleeping peers what it has done.
const NOTIFY_AT_END: &str =
    "                if ran {\n                    segment.notify();\n                }\n";

/// Every planted error.
pub(super) const ALL: &[Mutant] = &[
    mutant("the wake-up is dropped", "off", &[edit(SEGMENT, "            self.ring_sleepers();\n", "")]),
    mutant(
        "a slot is reused one step early",
        "off",
        &[
            edit(
                SENDER,
                "        let slots = u64::from(self.ring.geometry.slots);\n",
                "        let slots = u64::from(self.ring.geometry.slots) + 1;\n",
            ),
            edit(
                SENDER,
                "assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), \"send without credit\");",
                "",
            ),
            edit(
                SENDER,
                "assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), \"write without credit\");",
                "",
            ),
            edit(
                SENDER,
                "            self.tail - self.head_cache < u64::from(self.ring.geometry.slots),\n",
                "            true,\n",
            ),
        ],
    ),
    mutant(
        "the abort word is not looked at while waiting",
        "off",
        &[edit(ENGINE, "ended = header.aborted();", "ended = 0;")],
    ),
    mutant(
        "a Simple message is published without release",
        "mixed",
        &[edit(
            SENDER,
            "tail.store(self.tail, Ordering::Release)",
            "tail.store(self.tail, Ordering::Relaxed)",
        )],
    ),
    mutant(
        "a line is published without release",
        "mixed",
        &[edit(
            LINE,
            "line.flag().store(flag, Ordering::Release);",
            "line.flag().store(flag, Ordering::Relaxed);",
        )],
    ),
    mutant(
        "a slot is released before it is read",
        "off",
        &[edit(
            RECEIVER,
            "        self.tail_cache = tail;\n",
            "        self.tail_cache = tail;\n        if tail > self.head {\n            \
             self.line().head.store(self.head + 1, Ordering::Release);\n        }\n",
        )],
    ),
    mutant(
        "the bell is rung before the store",
        "off",
        &[
            edit(EXECUTOR, NOTIFY_AT_END, ""),
            edit(
                EXECUTOR,
                "        let mut ran = false;\n",
                "        segment.notify();\n        let mut ran = false;\n",
            ),
        ],
    ),
    mutant(
        "a dead rank counts as finished",
        "off",
        &[edit(HEALTH, "ended.into_iter().chain(left).find(", "ended.into_iter().take(0).chain(left).find(")],
    ),
    mutant(
        "who ends the job does not wake the others",
        "off",
        &[edit(
            HEALTH,
            "    let word = segment.header().abort(verdict.to_word());\n    segment.ring_all();\n",
            "    let word = segment.header().abort(verdict.to_word());\n",
        )],
    ),
    mutant(
        "descriptors are compared one operation late",
        "off",
        &[edit(HEALTH, ".max(1)..=seqno {", ".max(1)..seqno {")],
    ),
    mutant(
        "messages of different calls carry the same stamp",
        "off",
        &[edit(DESCRIPTOR, "Stamp(((mixed ^ seqno)", "Stamp(((seqno)")],
    ),
    mutant(
        "the publisher looks at sleepers without a fence",
        "mixed",
        &[edit(
            DOORBELL,
            "        fence(Ordering::SeqCst);\n        self.count.load(",
            "        self.count.load(",
        )],
    ),
    // Not the same fence at the sleeper: it follows read-modify-writes, which the simulated machine makes visible at
    // once, so that nothing would differ. loom finds it, see `xtask/src/loom/mutants/waiting.rs`.
    mutant(
        "the sleeper announces itself after its last look",
        "off",
        &[edit(
            DOORBELL,
            "        let seen = self.announce(sleepers, awaits);\n        fence(Ordering::SeqCst);\n        \
             let answer = look();\n",
            "        let answer = look();\n        let seen = self.announce(sleepers, awaits);\n",
        )],
    ),
    mutant(
        "the bell is rung without changing its word",
        "off",
        &[edit(FUTEX, "self.word.fetch_add(1, Ordering::Release);", "")],
    ),
    mutant(
        "an event does not wake the streams that wait for it",
        "mixed",
        &[edit(
            "runtime/src/stream/event.rs",
            "        waiters.iter().for_each(|driver| driver.ring());",
            "        drop(waiters);",
        )],
    ),
    mutant(
        "what is queued in a stream does not wake its thread",
        "mixed",
        &[edit(
            "runtime/src/stream/driver.rs",
            "            return Ok(());\n        }\n        self.ring();\n        Ok(())",
            "            return Ok(());\n        }\n        Ok(())",
        )],
    ),
    mutant(
        "a stream with something to do counts as nobody",
        "mixed",
        &[
            edit(REGISTRY, "return !stream::any_work();", "return true;"),
            edit(
                REGISTRY,
                "    let [sends, receives, collectives] = entry.under_way();\n",
                "    let [sends, receives, collectives] = entry.under_way().map(|_| 0usize);\n",
            ),
        ],
    ),
    mutant(
        "a receive behind another one's message counts as a wait for its source",
        "mixed",
        &[edit(
            "runtime/src/mail/recv.rs",
            "watch.keep_company(if is_behind { Company::Others } else { company });",
            "watch.keep_company(if is_behind { company } else { company });",
        )],
    ),
    mutant(
        "an abort does not wake anybody",
        "off",
        &[edit(
            "runtime/src/comm/abort.rs",
            "Verdict::Aborted(self.segment.member()).to_word());\n        self.segment.ring_all();\n",
            "Verdict::Aborted(self.segment.member()).to_word());\n",
        )],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    /// Every planted error still applies to the code and changes it.
    #[test]
    fn list_fits_the_code() {
        for mutant in ALL {
            for edit in mutant.edits {
                let text = std::fs::read_to_string(root().join(edit.file));
                let text = text.unwrap_or_else(|e| panic!("{}: {e}", edit.file));
                // An earlier edit of the same error never removes what a later one looks for.
                assert_eq!(text.matches(edit.find).count(), 1, "{}: {}", mutant.name, edit.find);
                assert_ne!(edit.find, edit.replace, "{}", mutant.name);
            }
        }
    }
}
