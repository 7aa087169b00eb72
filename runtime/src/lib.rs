//! Collective communication for ranks of one host: communicators, plans, primitives, reports.
