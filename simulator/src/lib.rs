//! The deterministic simulator: all ranks of a communicator in one thread, under a seeded scheduler.
//!
//! ```text
//!   seed ──> Scenario         ranks, settings, calls, machine, what goes wrong       scenario
//!              │
//!              v
//!   rank 0   rank 1  ...      the unmodified `ringccl::Communicator`, a fiber each   ranks
//!     │        │     └ aborter: a thread that ends the communicator; drivers: threads of streams
//!     │        │    every load, store, fence, futex call, sleep, look at the clock
//!     v        v
//!   Machine                   who runs next, what becomes visible, what time it is   machine
//!     │
//!     v
//!   judge                     results against a naive model, errors against the fault  model, judge
//! ```
//!
//! A `scenario::Scenario` follows from its seed alone, and so does everything that happens: a failing seed is run
//! again with `cargo xtask sim --seed S`, and shows its last events with the names of the words that they touched.
//! Nothing here exists in a normal build; `--cfg ringccl_sim` makes `shmring` ask a `shmring::sim::World` at each
//! access.
//!
//! # What a machine does
//!
//! - *Schedule.* Each access to shared memory is a point where another rank may go on: by chance, by chance with one
//!   slow rank, or by priorities that fall now and then.
//! - *Stores.* In most seeds, stores wait in a buffer per rank and become visible in any order that the memory
//!   model allows: a release store after everything before it, two stores to one word in their order, the rest
//!   as the seed likes. Payload counts as plain memory and is stored word by word.
//! - *Time.* Accesses, yields and system calls take simulated time; when everybody sleeps, time jumps. A second of
//!   waiting takes microseconds.
//! - *Besides.* Where nothing is wrong but the speed, two thirds of the seeds have a second communicator, messages
//!   between two ranks and around all of them, groups of collectives and messages, the same queued or launched in
//!   streams behind events of other streams, and operations that some ranks queue and others wait in: nothing of it can
//!   get stuck, and none may be called a deadlock. The thread of a stream is a fiber of its rank, which is slow or
//!   stops like any other.
//! - *Faults.* A rank dies, stops for a while, begins late, makes other calls than the others; another thread aborts.
//!
//! # What counts as wrong
//!
//! - A call that returns success and a result that is not, bit by bit, what `model` computes.
//! - An error where nothing went wrong, of another kind than the fault explains, that names another rank, or that
//!   comes too late.
//! - A sleeper whom nobody is left to wake, or who sleeps although the communicator has ended: a *lost wake-up*.
//! - A slot that is written while somebody reads it; a panic; a run without end.
//!
//! # What is not modelled
//!
//! Loads are never delayed, and a store becomes visible to all others at once, so a missing Acquire is not
//! found; `loom-tests` covers that side. Vector and non-temporal stores, real futexes, mappings, processes and their
//! start are not here either: litmus runs on hardware and tests with real processes cover them.
//!
//! Nor is joining: ranks begin with a communicator that is joined already, over a segment in memory that this process
//! alone has. The rendezvous, the segment's file, attaching and the limits of all that are tested with real processes
//! (`verification/tests/fail_points.rs`, `host_rank.rs`, `segment_file.rs`) and in `coordinator-lite/`.
#![cfg(ringccl_sim)]

pub mod campaign;
pub mod judge;
pub mod machine;
pub mod model;
pub mod ranks;
pub mod rng;
pub mod run;
pub mod scenario;
