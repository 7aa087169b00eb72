//! What the measuring programs of this package share: starting ranks, figures, records.
//!
//! The programs are `protocols`, `straggler` and the suites `rings` and `staging`; `benches/README.md` says what each
//! measures.
//! Everything here serves programs, so errors are `anyhow`'s.

pub mod cores;
pub mod crew;
pub mod figures;
pub mod launch;
pub mod link;
pub mod machine;
pub mod ranks;
pub mod record;
