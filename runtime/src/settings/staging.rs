//! How much shared memory the rings of a rank take, and how their slots shrink below a bound.
//!
//! A rank can commit one ring to all others and one ring to each other rank on each channel, and a mail ring to each:
//!
//! ```text
//! per channel            fan ring:  counters | LL, LL128 lines | 4 slots of a chunk
//! per channel and peer   pair ring: counters | LL, LL128 lines | 8 slots of at most 128 KiB
//! per channel            relay:     lines | 4 pieces of at most 256 KiB, of which each rank pays its own
//! per peer               mail ring: as a pair ring, with slots that shrink with the number of ranks
//! ```
//!
//! With a bound, pair and mail rings get a quarter of it each at most: what uses them all is rare.
//!
//! A smaller slot only means more messages: an operation of any size passes. Every rank computes the same sizes from
//! the same settings, and the segment's header is compared with them.

use crate::config::{Config, Numerics};
use crate::error::Error;
use crate::plan::Algorithm;
use shmring::layout::{Geometry, RingGeometry};

/// Slots of a connection between two ranks, as NCCL_STEPS.
const PAIR_SLOTS: u32 = 8;
/// Slots of a rank's ring to all others. Two chunks and two results are in flight at most, and eight slots
/// of this size were no faster, but twice the memory.
const FAN_SLOTS: u32 = 4;
/// Largest Simple slot of a connection between two ranks.
const PAIR_SLOT_BYTES: u32 = 128 << 10;
/// Slots are whole lines.
const GRAIN: u32 = 64;
/// LL and LL128 lines of a slot, from the most to the least. Two lines at least, so that a ring's pieces have a grain.
const LINES: [(u32, u32); 3] = [(8, 16), (2, 8), (2, 2)];
/// With a bound, lines are given up before slots become smaller than this: below it each message costs more than
/// its bytes.
const WORTHWHILE_SLOT: u32 = 4 << 10;

/// The largest slot of a fan ring whose Simple slots take at most `buffer` bytes.
pub(super) fn fan_slot(buffer: u64) -> u64 {
    slot_of(buffer, FAN_SLOTS)
}

fn slot_of(buffer: u64, slots: u32) -> u64 {
    (buffer / u64::from(slots) / u64::from(GRAIN) * u64::from(GRAIN)).max(GRAIN.into())
}

/// The segment of `nranks` with fan slots of `slot` bytes and these numbers of lines.
fn shape(config: &Config, nranks: u32, slot: u32, (ll_lines, ll128_lines): (u32, u32)) -> Geometry {
    let below = |slot: u32, slots| match config.buffer_bytes {
        Some(buffer) => u64::from(slot).min(slot_of(buffer, slots)) as u32,
        None => slot,
    };
    let slot_bytes = below(slot, FAN_SLOTS);
    let fan = RingGeometry { receivers: nranks, slots: FAN_SLOTS, ll_lines, ll128_lines, slot_bytes };
    let quarter = config.staging_max_bytes.map(|bound| {
        let rings = peers(nranks) * u64::from(config.channels.max(1));
        u32::try_from(slot_of(bound / 4 / rings, PAIR_SLOTS)).unwrap_or(u32::MAX)
    });
    let slot_bytes = below(slot.min(PAIR_SLOT_BYTES).min(quarter.unwrap_or(u32::MAX)), PAIR_SLOTS);
    let pair = RingGeometry { receivers: 1, slots: PAIR_SLOTS, slot_bytes, ..fan };
    Geometry { members: nranks, channels: config.channels, fan, pair }
}

/// Ranks that a rank can have rings to; one at least, so that sizes of a communicator of one rank make sense.
fn peers(nranks: u32) -> u64 {
    u64::from(nranks.saturating_sub(1).max(1))
}

/// Most bytes that the rings of one rank take in such a segment.
pub(crate) fn bytes_per_rank(geometry: &Geometry) -> u64 {
    let peers = peers(geometry.members);
    let channel = geometry.fan.total_bytes() + peers * geometry.pair.total_bytes();
    u64::from(geometry.channels) * (channel + relay_share(geometry)) + peers * geometry.mail().total_bytes()
}

/// What a relay takes for each of its members.
fn relay_share(geometry: &Geometry) -> u64 {
    geometry.relay().total_bytes().div_ceil(u64::from(geometry.members.max(1)))
}

/// Bytes of shared memory of the whole job once every ring that its operations use exists.
pub(crate) fn segment_bytes(config: &Config, geometry: &Geometry) -> u64 {
    // One rank needs nobody; only the ring algorithm uses the rings between two ranks.
    let uses_pairs = matches!(config.algorithm, Some(Algorithm::Ring | Algorithm::Tree));
    let rings = uses_pairs || config.numerics == Numerics::Nccl;
    let pair = if rings { geometry.pair.total_bytes() } else { 0 };
    let rings = u64::from(geometry.channels) * (geometry.fan.total_bytes() + pair + relay_share(geometry));
    geometry.control_bytes() + if geometry.members == 1 { 0 } else { u64::from(geometry.members) * rings }
}

/// The least bound that a communicator of `nranks` can keep.
pub(super) fn least(config: &Config, nranks: u32) -> u64 {
    bytes_per_rank(&shape(config, nranks, GRAIN, LINES[LINES.len() - 1]))
}

/// The segment of a communicator of `nranks` with these settings.
///
/// # Errors
/// [`Error::Setting`] where the bound on staging memory is too low for any.
pub(crate) fn geometry(config: &Config, nranks: u32) -> Result<Geometry, Error> {
    if config.chunk_bytes == 0 {
        let (name, value) = ("RINGCCL_CHUNK_BYTES", "0".into());
        return Err(Error::Setting { name, value, expected: "at least 1 byte a message".into() });
    }
    // What is too large for a slot is refused with the geometry.
    let chunk = u32::try_from(config.chunk_bytes).unwrap_or(u32::MAX);
    // Fewer lines per slot where every rank has many peers.
    let lines = if nranks <= 16 { &LINES[..] } else { &LINES[1..] };
    let Some(bound) = config.staging_max_bytes else { return Ok(shape(config, nranks, chunk, lines[0])) };
    let fits = |slot, lines| bytes_per_rank(&shape(config, nranks, slot, lines)) <= bound;
    let worthwhile = chunk.min(WORTHWHILE_SLOT);
    let roomy = lines.iter().find(|lines| fits(worthwhile, **lines));
    let fewest = lines[lines.len() - 1];
    let (floor, lines) = roomy.map_or((GRAIN.min(chunk), fewest), |lines| (worthwhile, *lines));
    if !fits(floor, lines) {
        let channels = config.channels;
        return Err(Error::Setting {
            name: "RINGCCL_STAGING_MAX_BYTES",
            value: bound.to_string(),
            expected: format!(
                "at least {}, what {nranks} ranks need on {channels} channel(s)",
                least(config, nranks)
            ),
        });
    }
    if fits(chunk, lines) {
        return Ok(shape(config, nranks, chunk, lines));
    }
    // `floor` fits and `chunk` does not: the largest slot that fits lies between, in whole grains.
    let (mut fitting, mut beyond) = (floor / GRAIN, chunk / GRAIN);
    while fitting + 1 < beyond {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle * GRAIN, lines) { fitting = middle } else { beyond = middle }
    }
    Ok(shape(config, nranks, (fitting * GRAIN).max(GRAIN), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever bound a rank can keep, its rings keep it, with a slot that could not be larger; one byte below the
    /// least bound is refused with the least.
    #[test]
    fn bounds_are_kept() {
        for nranks in [1u32, 2, 3, 8, 16, 17, 64, 1024] {
            for channels in [1, 2, 16] {
                for chunk_bytes in [64, 4096, 4160, 1 << 20, 16 << 20] {
                    let config = Config { chunk_bytes, channels, ..Config::new(nranks) };
                    let least = least(&config, nranks);
                    for more in [0, 1, 4095, 4096, 100_000, 1 << 20, 1 << 26] {
                        let bound = least + more;
                        let config = Config { staging_max_bytes: Some(bound), ..config.clone() };
                        let geometry = geometry(&config, nranks).unwrap();
                        geometry.validate().unwrap();
                        assert!(bytes_per_rank(&geometry) <= bound, "{nranks} {channels} {bound}");
                        let slot = geometry.fan.slot_bytes;
                        assert!(slot >= 64 && slot as usize <= chunk_bytes);
                        let lines = (geometry.fan.ll_lines, geometry.fan.ll128_lines);
                        let larger = bytes_per_rank(&shape(&config, nranks, slot + 64, lines));
                        assert!(
                            slot as usize == chunk_bytes || larger > bound,
                            "{nranks} {channels} {bound}"
                        );
                    }
                    let config = Config { staging_max_bytes: Some(least - 1), ..config };
                    let error = geometry(&config, nranks).unwrap_err().to_string();
                    assert!(error.contains(&format!("at least {least}")), "{error}");
                }
            }
        }
    }

    /// A bound on buffers bounds the slots of every ring.
    #[test]
    fn buffers_are_bounded() {
        for buffer in [512, 1024, 100_352, 4 << 20] {
            let config = Config { buffer_bytes: Some(buffer), ..Config::new(4) };
            let Geometry { fan, pair, .. } = geometry(&config, 4).unwrap();
            for ring in [fan, pair] {
                assert!(u64::from(ring.slots) * u64::from(ring.slot_bytes) <= buffer);
                ring.validate().unwrap();
            }
        }
    }
}
