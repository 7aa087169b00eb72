//! Lock-free single-producer rings with step/credit in a named shared-memory segment.
