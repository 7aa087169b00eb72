//! Rendezvous of the ranks of a job.
