//! What the measuring programs of this package share: starting ranks, figures, records.
//!
//! The programs are `protocols`, `straggler` and the suite `rings`; `benches/README.md` says what each measures.
//! Everything here serves programs, so errors are `anyhow`'s.

pub mod figures;
pub mod launch;
pub mod machine;
pub mod record;
