//! Fuzz targets: each takes any bytes, feeds them to a part that trusts nobody, and panics when a promise breaks.
//!
//! | target | hostile is | promised |
//! | --- | --- | --- |
//! | `wire` | what a peer sends to the rendezvous or back, in pieces | error or message, the same for any cut, nothing read beyond its end |
//! | `cluster` | a cluster file | a valid cluster, or problems with lines that exist |
//! | `nodes` | descriptions of machines, or a file of graphs | nodes that can be searched, a tuner with a table, or problems |
//! | `unique_id` | the bytes or the text of an id | error, or an id that has exactly these bytes |
//! | `header` | the file of a segment before a rank attaches | attaching succeeds exactly if every checked word is right |
//! | `ring` | a peer that scribbles on shared words | `Ok`, `false` or `Corrupt` as the words say; no access beyond the ring |
//! | `pair` | the same, under two ranks that all-reduce | every call returns in time |
//!
//! A target is a plain function of bytes. Two things run it:
//!
//! - `cargo test -p ringccl-fuzz` runs it on the inputs in `corpus/`, with nothing but Rust;
//! - `cargo xtask fuzz` runs it under libFuzzer, which changes inputs towards code that none has reached, for seconds
//!   (`cargo xtask test`) or hours. A failing input is kept in `target/fuzz/failures/`, with the command that
//!   replays it.
//!
//! # Why libFuzzer
//!
//! It is the engine that the Rust fuzzing project keeps (crate `libfuzzer-sys`), its C++ source comes with the crate
//! and builds with gcc, and what it needs from the compiler works on stable Rust: the pass `sancov-module` by
//! `-C passes` counts edges and compared values. Sanitizers need a nightly compiler and are not used; targets put
//! guards around what they hand out instead. `cargo-fuzz` would be one more program to install for the same flags,
//! `bolero` wraps the same engine in a runner of its own, AFL and honggfuzz need clang or their own build of LLVM.

mod cluster;
mod header;
mod input;
mod nodes;
mod pair;
mod ring;
mod scribble;
mod unique_id;
mod wire;

use std::path::PathBuf;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name on the command line and of the folder in `corpus/`.
    pub name: &'static str,
    /// Runs the target on an input; panics when a promise breaks.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: wire::run },
    Target { name: "cluster", run: cluster::run },
    Target { name: "nodes", run: nodes::run },
    Target { name: "unique_id", run: unique_id::run },
    Target { name: "header", run: header::run },
    Target { name: "ring", run: ring::run },
    Target { name: "pair", run: pair::run },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The folder with the kept inputs of a target.
pub fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}
