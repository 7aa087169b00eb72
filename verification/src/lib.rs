//! What the end-to-end checks share: ranks as processes, watched with a deadline on every wait.
//!
//! The rank program is `worker`; what it prints is [`report::Report`], one JSON object a line.
#![forbid(unsafe_code)]

pub mod held;
pub mod report;
pub mod testkit;
