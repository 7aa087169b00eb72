//! Collective communication for ranks of one host: communicators, plans, primitives, reports.

pub mod reduce;
