//! The bandwidths per channel that the search tries, the largest first, in 10^9 bytes per second.

use crate::nccl::release::Release;

const INTRA: &[f32] = &[40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0];
const INTER: &[f32] = &[
    48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2, 0.24, 0.12,
];
const HOPPER_INTRA: &[f32] = &[60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0];
const HOPPER_INTER: &[f32] =
    &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];
const BLACKWELL_INTRA: &[f32] = &[90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0];
const BLACKWELL_INTER: &[f32] = &[
    96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2,
    0.24, 0.12,
];

/// The speeds for GPUs of at least compute capability `sm`; `inter` if there is a network.
pub(super) fn candidates(sm: u32, inter: bool, release: Release) -> Vec<f32> {
    let without = |speeds: &[f32], missing: &[(f32, bool)]| {
        let kept = speeds.iter().copied();
        kept.filter(|&speed| !missing.iter().any(|&(value, gone)| gone && value == speed)).collect()
    };
    let until = |minor, patch| !release.since(minor, patch);
    let blackwell = sm >= 100 && release.since(25, 0);
    match (inter, sm) {
        (false, 100..) if blackwell => {
            without(BLACKWELL_INTRA, &[(18.0, until(27, 0)), (45.0, until(29, 0))])
        }
        (false, 90..) => without(HOPPER_INTRA, &[(50.0, until(19, 0)), (11.0, until(21, 0))]),
        (false, _) => INTRA.to_vec(),
        (true, 100..) if blackwell && release.since(27, 7) => {
            without(BLACKWELL_INTER, &[(80.0, until(29, 7)), (86.0, until(30, 0))])
        }
        (true, 100..) if blackwell && release.since(27, 0) => {
            // The first releases of 2.27 keep a little of a 400 Gb/s card unused.
            std::iter::once(47.9).chain(HOPPER_INTER[1..].iter().copied()).collect()
        }
        (true, 90..) => without(HOPPER_INTER, &[(22.0, until(19, 0))]),
        (true, _) => INTER.to_vec(),
    }
}
