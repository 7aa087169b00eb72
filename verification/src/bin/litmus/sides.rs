//! The two sides of the exchange, whatever memory the ring lies in.

use crate::message::{Message, NAMES, Pauses, WAYS, WORDS_MAX, Way};
use anyhow::{Result, bail};
use shmring::{Error, Protocol, Receiver, Sender, Stamp};
use std::time::{Duration, Instant};

/// Longest time without progress: far beyond what any schedule of a working ring needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Wrong messages that are printed; the others are counted.
const PRINTED: u64 = 5;

/// What a receiver has found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    messages: [u64; 4],
    bytes: u64,
    wrong: u64,
}

impl Checked {
    /// Prints the counts.
    ///
    /// # Errors
    /// When a message was wrong, or a way was never used.
    pub(crate) fn report(&self, what: &str) -> Result<()> {
        let counts: Vec<_> = NAMES.iter().zip(self.messages).map(|(name, n)| format!("{n} {name}")).collect();
        let messages: u64 = self.messages.iter().sum();
        println!(
            "{what}: {messages} messages checked ({}), {} MB, {} wrong",
            counts.join(", "),
            self.bytes / 1_000_000,
            self.wrong
        );
        if self.wrong > 0 {
            bail!("{what}: {} of {messages} messages were wrong", self.wrong);
        }
        if self.messages.contains(&0) {
            bail!("{what}: too short to use every way; run it for more seconds");
        }
        Ok(())
    }
}

/// Another stamp for each message, so that one of an earlier step can never pass.
fn stamp(seed: u64, step: u64) -> Stamp {
    Stamp((seed ^ step).wrapping_mul(0x9e37_79b9) as u32)
}

/// Sends messages for `time`; the last one says so.
pub(crate) fn send(mut sender: Sender, time: Duration, seed: u64) -> Result<()> {
    let end = Instant::now() + time;
    let mut pauses = Pauses::new(seed, 0);
    let mut payload = Vec::with_capacity(WORDS_MAX);
    loop {
        let message = Message::of(seed, sender.step());
        let stamp = stamp(seed, sender.step());
        // Reading the clock for each message would space them evenly.
        let last = sender.step().is_multiple_of(64) && Instant::now() >= end;
        payload.clear();
        payload.extend(message.words(last));
        wait("credit", || sender.has_credit())?;
        pauses.pause();
        match WAYS[message.way] {
            // SAFETY: `payload` is live and holds `len` bytes.
            Way::Lines(protocol) => unsafe {
                sender.send_lines(protocol, stamp, payload.as_ptr().cast(), message.len);
            },
            // SAFETY: slots have room for the longest message.
            Way::Plain => unsafe {
                sender.write_slot(|to, _| to.copy_from(payload.as_ptr().cast(), message.len));
                sender.post(stamp);
            },
            // SAFETY: slots have room for the longest message, and begin on a multiple of 16 bytes.
            Way::Streamed => unsafe {
                sender.write_slot(|to, _| stream(&payload, to));
                sender.post(stamp);
            },
        }
        if last {
            return Ok(());
        }
    }
}

/// Receives and checks messages until the last.
pub(crate) fn receive(mut receiver: Receiver, seed: u64) -> Result<Checked> {
    let mut checked = Checked::default();
    let mut pauses = Pauses::new(seed, 1);
    let mut payload = vec![0u64; WORDS_MAX];
    loop {
        let step = receiver.step();
        let message = Message::of(seed, step);
        let stamp = stamp(seed, step);
        let to: *mut u8 = payload.as_mut_ptr().cast();
        let protocol = match WAYS[message.way] {
            Way::Lines(protocol) => {
                // SAFETY: `payload` has room for the longest message.
                wait("a message", || unsafe { receiver.read_lines(protocol, stamp, to, message.len) })?;
                protocol
            }
            Way::Plain | Way::Streamed => {
                wait("a message", || receiver.is_posted(stamp))?;
                // SAFETY: the message is posted, and `payload` has room for it.
                unsafe { receiver.read_slot(|from, _| from.copy_to(to, message.len)) };
                Protocol::Simple
            }
        };
        checked.messages[message.way] += 1;
        checked.bytes += message.len as u64;
        let last = match message.check(&payload[..message.len / 8]) {
            Ok(last) => last,
            Err(wrong) => {
                checked.wrong += 1;
                if checked.wrong <= PRINTED {
                    let name = NAMES[message.way];
                    println!("wrong: step {step}, {name}, {} bytes: {wrong:x?}", message.len);
                }
                false
            }
        };
        pauses.pause();
        receiver.release(protocol);
        if last {
            return Ok(checked);
        }
    }
}

/// Polls until it is true.
fn wait(what: &str, mut poll: impl FnMut() -> Result<bool, Error>) -> Result<()> {
    for _ in 0..2000 {
        if poll()? {
            return Ok(());
        }
        shmring::sync::spin_hint();
    }
    let start = Instant::now();
    while !poll()? {
        if start.elapsed() > PATIENCE {
            bail!("no {what} for {PATIENCE:?}: the other side has stopped, or a post or a release was lost");
        }
        shmring::sync::yield_core();
    }
    Ok(())
}

/// Copies `words` by non-temporal stores of 8 and of 16 bytes, and fences them.
///
/// # Safety
/// - `to` is writable for all of `words`, and a multiple of 16.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(words: &[u64], to: *mut u8) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si64, _mm_stream_si128};
    let pairs = words.chunks_exact(2);
    let rest = pairs.remainder();
    for (index, pair) in pairs.enumerate() {
        // SAFETY: both words lie inside `words`, and their places inside what the caller vouches for.
        unsafe {
            let place = to.add(16 * index);
            // Every fifth pair by two narrow stores: partly filled write-combining buffers leave in another
            // order than full ones.
            if index % 5 == 4 {
                _mm_stream_si64(place.cast(), pair[0].cast_signed());
                _mm_stream_si64(place.add(8).cast(), pair[1].cast_signed());
            } else {
                _mm_stream_si128(place.cast(), _mm_loadu_si128(pair.as_ptr().cast()));
            }
        }
    }
    if let [word] = rest {
        // SAFETY: as above, for the last word.
        unsafe { _mm_stream_si64(to.add(8 * (words.len() - 1)).cast(), word.cast_signed()) };
    }
    // SAFETY: every x86-64 processor has SSE.
    unsafe { _mm_sfence() };
}

/// Elsewhere there are no non-temporal stores to check: an ordinary copy.
///
/// # Safety
/// - `to` is writable for all of `words`.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(words: &[u64], to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe { to.copy_from(words.as_ptr().cast(), size_of_val(words)) };
}
