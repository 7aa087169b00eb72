//! What the search of one release does differently from that of another.

use crate::nccl::release::Release;

/// Ways of the search that changed between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Habits {
    /// Steps of all attempts of one search together.
    pub(super) steps_all: i64,
    /// With an NVSwitch only the neighbours of a GPU come after it.
    pub(super) neighbours_only: bool,
    /// Ports at which a channel begins, and their GPUs, are tried from another one on for each channel.
    pub(super) rotates: bool,
    /// A GPU whose PCIe link has nothing left begins a channel only after the others.
    pub(super) spares_busy: bool,
    /// The way of the channel before is tried first even where channels may differ.
    pub(super) replays: bool,
    /// The GPU that uses a port begins a channel there before its neighbours.
    pub(super) user_first: bool,
    /// The order of the GPUs' numbers is tried with an NVSwitch, too.
    pub(super) lists_switched: bool,
    /// A graph that leaves a node by the port that it came in by may be this much slower.
    pub(super) same_port_bonus: bool,
    /// Between the sockets of AMD's CPUs all channels are alike.
    pub(super) alike_on_amd: bool,
    /// Channels are cut in two only after the second pass, which speeds up trees alone.
    pub(super) splits_last: bool,
}

impl Habits {
    pub(super) fn of(release: Release) -> Self {
        let from = |minor| release.since(minor, 0);
        Self {
            steps_all: if from(19) { 1 << 19 } else { 5 << 16 },
            neighbours_only: from(19),
            rotates: from(21),
            spares_busy: !from(21),
            replays: !from(28),
            user_first: from(28),
            lists_switched: !from(21),
            same_port_bonus: !from(20),
            alike_on_amd: from(19),
            splits_last: !from(19),
        }
    }
}
