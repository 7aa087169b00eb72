//! Cluster description.
