//! The deterministic simulator.
#![cfg(ringccl_sim)]

pub mod campaign;
pub mod judge;
pub mod machine;
pub mod model;
pub mod ranks;
pub mod rng;
pub mod run;
pub mod scenario;
