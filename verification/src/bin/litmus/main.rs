//! Hardware litmus run: do messages arrive whole on this processor, with this compiler's stores?
//!
//! Model checking sees neither vector registers nor non-temporal stores nor two mappings of one page. So two
//! pinned sides exchange messages whose every byte follows from the step, with random pauses on both sides,
//! first as threads with a ring on the heap, then as processes with a segment. A control that stores a line's
//! flag before its payload must be caught, which shows that this run can fail.
//!
//! `litmus --seconds N` prints what was checked and ends with code 1 if a byte was wrong, a side made no
//! progress, or the control was not caught.

mod control;
mod message;
mod pin;
mod sides;

use anyhow::{Context, Result, bail};
use clap::Parser;
use pin::Cores;
use shmring::heap_ring;
use shmring::layout::{Geometry, RingGeometry};
use shmring::segment::{Segment, SegmentName, SegmentSpec};
use sides::PATIENCE;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Four slots: few enough that the sender often waits for credit, enough that both sides work at once.
const SHAPE: RingGeometry =
    RingGeometry { receivers: 1, slots: 4, ll_lines: 18, ll128_lines: 18, slot_bytes: 16384 };
const GEOMETRY: Geometry = Geometry { members: 2, channels: 1, fan: FAN, pair: SHAPE };
/// The fan rings of a segment cannot be left out, only be made small.
const FAN: RingGeometry =
    RingGeometry { receivers: 2, slots: 1, ll_lines: 1, ll128_lines: 0, slot_bytes: 64 };

/// Hardware checks of the rings.
#[derive(Debug, Parser)]
struct Options {
    /// How long all checks together take, about
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// What chooses protocols, lengths and pauses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The segment to receive from: set for the second process
    #[arg(long, hide = true)]
    receive_from: Option<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0.1 up".into()),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.receive_from {
        Some(segment) => receive_in_second_process(segment, options.seed),
        None => run_all(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("litmus: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(options: &Options) -> Result<()> {
    let cores = Cores::usable()?;
    println!("seed {}, {cores:?}", options.seed);
    let part = |share: f64| Duration::from_secs_f64(options.seconds * share);
    two_threads(part(0.45), options.seed, cores)?;
    two_processes(part(0.45), options.seed, cores)?;
    if !cores.differ() {
        println!("control: SKIPPED, on one core the two sides never run at once");
        return Ok(());
    }
    control::run(part(0.1).max(Duration::from_secs(2)), cores)
}

fn two_threads(time: Duration, seed: u64, cores: Cores) -> Result<()> {
    let (sender, mut receivers) = heap_ring(SHAPE)?;
    let receiver = receivers.remove(0);
    let sending = std::thread::spawn(move || cores.bind(0).and_then(|()| sides::send(sender, time, seed)));
    // In a thread of its own, because this one's binding would be inherited by the second process.
    let receiving = std::thread::spawn(move || cores.bind(1).and_then(|()| sides::receive(receiver, seed)));
    let sent = sending.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))?;
    let checked = receiving.join().map_err(|_| anyhow::anyhow!("the receiving thread panicked"))?;
    checked?.report("two threads, heap ring")?;
    sent
}

fn two_processes(time: Duration, seed: u64, cores: Cores) -> Result<()> {
    let spec = spec(SegmentName::of_this_process(u64::from(std::process::id())));
    let segment = Segment::create(&spec)?;
    segment.commit_pair_slots(0, 0, 1)?;
    let sender = segment.pair_sender(0, 1)?;
    let mut receiver = Command::new(std::env::current_exe().context("cannot find this program")?)
        .args(["--receive-from", &spec.name.file_name(), "--seed", &seed.to_string()])
        .spawn()
        .context("cannot start the second process")?;
    let sent =
        wait_complete(&segment).and_then(|()| cores.bind(0)).and_then(|()| sides::send(sender, time, seed));
    if sent.is_err() {
        // Its own patience would end it as well, only later.
        receiver.kill().context("cannot end the second process")?;
    }
    let status = wait_for(&mut receiver)?;
    sent?;
    if !status.success() {
        bail!("the receiving process failed: {status}");
    }
    Ok(())
}

fn receive_in_second_process(segment: &str, seed: u64) -> Result<()> {
    let name = SegmentName::parse(segment).context("not the name of a segment")?;
    let segment = Segment::attach(&spec(name), 1, PATIENCE)?;
    segment.commit_pair_slots(0, 0, 1)?;
    let receiver = segment.pair_receiver(0, 0)?;
    Cores::usable()?.bind(1)?;
    sides::receive(receiver, seed)?.report("two processes, segment")
}

fn spec(name: SegmentName) -> SegmentSpec {
    let generation = name.job;
    SegmentSpec { dir: Path::new("/dev/shm").into(), name, generation, settings: 0, geometry: GEOMETRY }
}

fn wait_complete(segment: &Segment) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !segment.is_complete() {
        if Instant::now() > end {
            bail!("the second process did not attach within {PATIENCE:?}");
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn wait_for(child: &mut Child) -> Result<ExitStatus> {
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            child.kill()?;
            bail!("the receiving process did not end within {:?}", 2 * PATIENCE);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
