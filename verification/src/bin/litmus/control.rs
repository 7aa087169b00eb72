//! The control: a writer of lines that stores the flag before the payload must be caught.

use crate::message::{Pauses, mix};
use crate::pin::Cores;
use anyhow::{Result, bail};
use shmring::layout::{LL_PAYLOAD, LlLine};
use shmring::sync::{AtomicU64, Ordering, fence, read_words, spin_hint, write_words};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WORDS: usize = LL_PAYLOAD / 8;
/// Torn messages after which the control has shown what it should.
const ENOUGH: u64 = 100;

/// One line, and the reader's answer.
struct Shared {
    line: LlLine,
    released: AtomicU64,
    stop: AtomicU64,
}

/// Exchanges lines with a broken writer until enough torn ones were seen or `time` is over.
///
/// # Errors
/// When not one was seen: then this machine's run of the real rings proves nothing either.
pub(crate) fn run(time: Duration, cores: Cores) -> Result<()> {
    let shared =
        Arc::new(Shared { line: LlLine::new(), released: AtomicU64::new(0), stop: AtomicU64::new(0) });
    let theirs = Arc::clone(&shared);
    let writer = std::thread::spawn(move || cores.bind(0).map(|()| write_broken(&theirs)));
    let counts = cores.bind(1).map(|()| read(&shared, time));
    // Relaxed: the writer only has to see it some time.
    shared.stop.store(1, Ordering::Relaxed);
    writer.join().map_err(|_| anyhow::anyhow!("the control's writer panicked"))??;
    let (lines, torn) = counts?;
    println!("control, flag before payload: {lines} lines, {torn} torn, as it must be");
    if torn == 0 {
        bail!("the control was not caught in {lines} lines: such a run shows nothing on this machine");
    }
    Ok(())
}

fn word_of(step: u64, index: usize) -> u64 {
    mix(step * WORDS as u64 + index as u64)
}

#[expect(clippy::cast_ptr_alignment, reason = "payload words begin on a multiple of 8")]
fn write_broken(shared: &Shared) {
    for step in 0.. {
        while shared.released.load(Ordering::Acquire) != step {
            if shared.stop.load(Ordering::Relaxed) != 0 {
                return;
            }
            spin_hint();
        }
        let payload: [u64; WORDS] = std::array::from_fn(|index| word_of(step, index));
        shared.line.flag.store(step + 1, Ordering::Release);
        // Keeps compiler and processor from putting the stores back into the right order.
        fence(Ordering::SeqCst);
        // SAFETY: the line has room for the payload. It is not this side's turn, which is the point: both
        // sides only move plain words, by volatile accesses that the compiler leaves as they are.
        unsafe { write_words(&shared.line.data, |to| to.cast::<[u64; WORDS]>().write_volatile(payload)) };
    }
}

/// Counts lines, and those whose payload was not there with the flag.
#[expect(clippy::cast_ptr_alignment, reason = "payload words begin on a multiple of 8")]
fn read(shared: &Shared, time: Duration) -> (u64, u64) {
    let end = Instant::now() + time;
    let mut pauses = Pauses::new(1, 1);
    let (mut step, mut torn) = (0, 0);
    while torn < ENOUGH && (step % 64 != 0 || Instant::now() < end) {
        while shared.line.flag.load(Ordering::Acquire) != step + 1 {
            if Instant::now() >= end {
                return (step, torn);
            }
            spin_hint();
        }
        // SAFETY: as in `write_broken`.
        let found =
            unsafe { read_words(&shared.line.data, |from| from.cast::<[u64; WORDS]>().read_volatile()) };
        torn += u64::from(found.iter().enumerate().any(|(index, &word)| word != word_of(step, index)));
        // The payload has to arrive before the next turn, or its remains would be counted once more.
        pauses.pause();
        step += 1;
        shared.released.store(step, Ordering::Release);
    }
    (step, torn)
}
