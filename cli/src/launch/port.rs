//! A free TCP port for the user's own store.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};

/// Attempts in the quiet range before any free port is taken.
const ATTEMPTS: u32 = 64;
/// The ports below the ephemeral range that are tried.
const QUIET_FROM: u16 = 20_000;

/// A loopback port that is free now and is not given to others by accident.
///
/// It comes from below the range out of which the system hands out ports by itself, so that no
/// connection made between now and the user's bind can get it. Nothing stays bound: a reservation
/// would get in the way of programs that bind without SO_REUSEADDR.
///
/// # Errors
///
/// If no port is free, with the remedy.
pub(crate) fn free_port(seed: u32) -> Result<u16> {
    let quiet =
        quiet_range(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default());
    // A multiplicative walk spreads jobs that start together over the range.
    let mut state = seed | 1;
    for _ in 0..ATTEMPTS {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let span = u32::from(quiet.end() - quiet.start()) + 1;
        let port = quiet.start() + u16::try_from((state >> 8) % span).unwrap_or(0);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(
        "no TCP port is free on 127.0.0.1; close programs that hold ports (`ss -tan`) or widen \
         net.ipv4.ip_local_port_range",
    )?;
    Ok(listener.local_addr().context("a port was bound but has no number")?.port())
}

/// The ports between 20000 and the ephemeral ones, or the whole upper half if there are too few.
fn quiet_range(ephemeral: &str) -> RangeInclusive<u16> {
    let first = ephemeral.split_ascii_whitespace().next().and_then(|first| first.parse::<u16>().ok());
    match first.unwrap_or(32_768) {
        first if first > QUIET_FROM + 1000 => QUIET_FROM..=first - 1,
        _ => QUIET_FROM..=u16::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_from_below_the_ephemeral_range() {
        // Usual, narrow, unreadable and hostile settings of the system.
        assert_eq!(quiet_range("32768\t60999\n"), 20_000..=32_767);
        assert_eq!(quiet_range("1024 65535"), 20_000..=65_535);
        assert_eq!(quiet_range(""), 20_000..=32_767);
        assert_eq!(quiet_range("99999 x"), 20_000..=32_767);
    }

    #[test]
    fn a_found_port_is_free_and_unused() {
        // It can be bound at once, and a taken one is passed over.
        let port = free_port(7).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_ne!(free_port(7).unwrap(), port);
        drop(taken);
    }
}
