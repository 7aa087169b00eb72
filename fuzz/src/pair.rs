//! Two ranks that all-reduce while a third party scribbles on words of their segment.
//!
//! It runs tens of inputs a second at best, and a campaign of a minute finds none of the checks below when they are
//! removed. Two kept inputs are aimed at them: `aimed-abort` writes an impossible rank to the abort word (found without
//! the bound in `Verdict::from_word`), `aimed-awaits` keeps both ranks waiting and writes an impossible member to what
//! one says that it awaits (found without the bound in `order.rs`, and without the time limit of an operation).

use crate::input::Input;
use crate::scribble::{Scribbler, directory};
use ringccl::comm::Root;
use ringccl::{Algorithm, Communicator, Config, Protocol, ReduceOp};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that an operation may take by the ranks' own settings.
const TIMEOUT: Duration = Duration::from_millis(300);
/// When a call that has not ended never will: far above the time-out, since the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longest time of one input's scribbling, for inputs whose ranks go on regardless.
const SCRIBBLING: Duration = Duration::from_millis(400);
const RANKS: u32 = 2;

/// What the ranks do.
#[derive(Clone, Copy, Debug)]
struct Work {
    algorithm: Option<Algorithm>,
    protocol: Option<Protocol>,
    count: usize,
    operations: u32,
}

/// One word to be overwritten.
#[derive(Clone, Copy, Debug)]
struct Stroke {
    offset: u64,
    word: u64,
}

pub(crate) fn run(data: &[u8]) {
    let dir = directory();
    let mut input = Input::new(data);
    let algorithms = [
        None,
        Some(Algorithm::Flat),
        Some(Algorithm::TwoShot),
        Some(Algorithm::Ring),
        Some(Algorithm::Tree),
        Some(Algorithm::Relay),
    ];
    let protocols = [None, Some(Protocol::Ll), Some(Protocol::Ll128), Some(Protocol::Simple)];
    let work = Work {
        algorithm: algorithms[input.below(6)],
        protocol: protocols[input.below(4)],
        count: [1, 14, 100, 1000, 20_000][input.below(5)],
        operations: 1 + input.below(64) as u32,
    };
    let mut config = Config::new(RANKS);
    config.join_timeout = DEADLINE / 2;
    config.timeout = TIMEOUT;
    config.algorithm = work.algorithm;
    config.protocol = work.protocol;
    config.chunk_bytes = 4096;
    config.shm_dir = dir.path().to_owned();
    let comms = join(&config);
    let handles = comms.iter().map(Communicator::abort_handle).collect();
    let scribbler = Scribbler::find(dir.path(), handles).expect("the ranks map the segment's file");
    let strokes = strokes(input, scribbler.words());
    let running = Arc::new(Mutex::new(RANKS));
    let done: Vec<Receiver<()>> = comms.into_iter().map(|comm| start(comm, work, &running)).collect();
    scribble(&scribbler, &strokes, &running);
    for (rank, done) in done.into_iter().enumerate() {
        // A rank that panicked has ended the process by the panic hook, or else hangs up here.
        done.recv_timeout(DEADLINE).unwrap_or_else(|error| panic!("rank {rank} does not return: {error}"));
    }
    assert!(is_empty(dir.path()), "a segment's name is left behind");
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

/// Both ranks, each joined on a thread of its own.
fn join(config: &Config) -> Vec<Communicator> {
    let root = Root::new().expect("a loopback port is free");
    let id = root.unique_id();
    let threads: Vec<_> = (0..RANKS)
        .map(|rank| {
            let (id, config) = (id.clone(), config.clone());
            thread::spawn(move || Communicator::init(&id, rank, RANKS, config))
        })
        .collect();
    let joined = threads.into_iter().map(|thread| thread.join().expect("joining does not panic"));
    joined.map(|comm| comm.expect("two ranks of one process meet")).collect()
}

/// Runs one rank's operations; each must return in time, with a result or an error.
fn start(mut comm: Communicator, work: Work, running: &Arc<Mutex<u32>>) -> Receiver<()> {
    let (end, done) = channel();
    let running = Arc::clone(running);
    thread::spawn(move || {
        let send = vec![1.0f32; work.count];
        let mut recv = vec![0.0f32; work.count];
        for _ in 0..work.operations {
            let begun = Instant::now();
            let outcome = comm.all_reduce(&send, &mut recv, ReduceOp::Sum);
            assert!(begun.elapsed() < DEADLINE, "an all-reduce took {:?}", begun.elapsed());
            if outcome.is_err() {
                break;
            }
        }
        // Whatever it answers: a rank may leave a communicator that has ended.
        let _ = comm.finalize();
        *running.lock().expect("nobody panics with this lock") -= 1;
        let _ = end.send(());
    });
    done
}

/// Where the input wants to write: header, members' records, or anywhere.
fn strokes(mut input: Input<'_>, words: u64) -> Vec<Stroke> {
    let mut strokes = Vec::new();
    while !input.is_empty() && strokes.len() < 64 {
        let word = match input.below(4) {
            0 => input.below(80) as u64,
            1 => 512 + input.below(192) as u64,
            // Counters and lines of the rings stand where pages begin.
            2 => 512 * input.below(65_536) as u64 + input.below(128) as u64,
            _ => u64::from(u32::from_le_bytes(input.array())),
        };
        strokes.push(Stroke { offset: 8 * (word % words), word: input.word(1) });
    }
    strokes
}

/// Overwrites the words in turn, again and again, while any rank runs.
fn scribble(scribbler: &Scribbler, strokes: &[Stroke], running: &Mutex<u32>) {
    let begun = Instant::now();
    while *running.lock().expect("nobody panics with this lock") > 0 && begun.elapsed() < SCRIBBLING {
        for stroke in strokes {
            scribbler.write(stroke.offset, stroke.word);
        }
        thread::yield_now();
    }
}
