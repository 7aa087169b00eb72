//! How messages get from rank to rank: one file per transport.
//!
//! A transport owns a [`Lane`](shm::Lane) per channel and gives the executor the ends of its connections;
//! plans and primitives know only ranks and "everybody".

pub(crate) mod shm;
