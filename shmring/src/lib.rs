//! Lock-free rings with step and credit, alone on the heap or in a named shared-memory segment.
//!
//! ```text
//!  rank 0                     segment                      rank 1
//!  Sender ── write slot ──>  [ slots, tail | heads ]  ──> Receiver
//!         <── credit ──────                           <── release
//!  Waiter ── sleeps on ───>  [ bell ] <── ring ─────────  whoever moved a counter
//! ```
//!
//! This crate knows ranks only as members of a segment and nothing of collectives. Start with [`ring`], then
//! [`layout`] for the bytes, [`segment`] for how processes meet, [`wait`] and [`doorbell`] for waiting.
//!
//! ```
//! use shmring::{Protocol, Stamp, heap_ring, layout::RingGeometry};
//!
//! # fn main() -> Result<(), shmring::Error> {
//! let shape = RingGeometry { receivers: 1, slots: 8, ll_lines: 1, ll128_lines: 0, slot_bytes: 4096 };
//! let (mut sender, mut receivers) = heap_ring(shape)?;
//! assert!(sender.has_credit()?);
//! // Sound: the payload is a live slice of 5 bytes.
//! unsafe { sender.send_lines(Protocol::Ll, Stamp(7), b"hello".as_ptr(), 5) };
//!
//! let mut text = [0; 5];
//! // Sound: the buffer is a live slice of 5 bytes.
//! assert!(unsafe { receivers[0].read_lines(Protocol::Ll, Stamp(7), text.as_mut_ptr(), 5)? });
//! receivers[0].release(Protocol::Ll);
//! assert_eq!(&text, b"hello");
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod doorbell;
mod error;
mod futex;
pub mod layout;
pub mod protocol;
#[cfg(not(loom))]
pub mod region;
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(ringccl_sim)]
pub mod sim;
pub mod sync;
pub mod turns;
pub mod wait;

pub use error::Error;
pub use protocol::{Protocol, Stamp};
pub use ring::{Receiver, Relay, Sender, heap_relay, heap_ring};
