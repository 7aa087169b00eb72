//! From NCCL's choice to what the host can run.

use crate::plan::{Algorithm, Kind};
use crate::settings;
use shmring::Protocol;
use std::sync::Mutex;
use topo::links::Price;
use topo::nccl::tuner;

/// What the host is asked to run an operation with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) algorithm: Algorithm,
    pub(crate) protocol: Protocol,
    pub(crate) channels: u32,
}

impl Asked {
    /// NCCL's choice; what the host does not have becomes what is nearest, which the log says once.
    pub(super) fn of(price: &Price, kind: Kind) -> Self {
        let protocol = match price.protocol {
            tuner::Protocol::Ll => Protocol::Ll,
            tuner::Protocol::Ll128 => Protocol::Ll128,
            tuner::Protocol::Simple => Protocol::Simple,
        };
        let algorithm = nearest(price.algorithm, kind);
        let has_it = matches!(
            (price.algorithm, algorithm),
            (tuner::Algorithm::Ring, Algorithm::Ring) | (tuner::Algorithm::Tree, Algorithm::Tree)
        );
        if !has_it {
            tell_once(price.algorithm, algorithm);
        }
        Self { algorithm, protocol, channels: price.channels }
    }
}

/// The host's algorithm whose data goes the most similar way.
fn nearest(algorithm: tuner::Algorithm, kind: Kind) -> Algorithm {
    let wanted = match algorithm {
        tuner::Algorithm::Ring => Algorithm::Ring,
        // Up and down a tree, the switch's arithmetic at its leaves or not; chains are trees without branches.
        tuner::Algorithm::Tree | tuner::Algorithm::NvlsTree | tuner::Algorithm::CollNetChain => {
            Algorithm::Tree
        }
        // Everybody's part is reduced in one place and read from there by all.
        tuner::Algorithm::Nvls | tuner::Algorithm::CollNetDirect => Algorithm::TwoShot,
        // Straight from each rank to each.
        tuner::Algorithm::Pat => Algorithm::Flat,
    };
    // Gathers have no arithmetic: what the switch spreads goes straight.
    if wanted.serves(kind) { wanted } else { Algorithm::Flat }
}

fn tell_once(algorithm: tuner::Algorithm, instead: Algorithm) {
    static TOLD: Mutex<Vec<(tuner::Algorithm, Algorithm)>> = Mutex::new(Vec::new());
    let mut told = shmring::sync::lock(&TOLD);
    if !told.contains(&(algorithm, instead)) {
        told.push((algorithm, instead));
        settings::detail(|| {
            format!("the model chooses {algorithm}, which the host does not have: {instead} runs instead")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the host has is itself, for the operations that have it; everything else is something that serves.
    #[test]
    fn every_choice_has_a_plan() {
        let kinds = [
            Kind::AllReduce,
            Kind::Broadcast { root: 0 },
            Kind::Reduce { root: 0 },
            Kind::AllGather,
            Kind::ReduceScatter,
        ];
        for kind in kinds {
            for algorithm in tuner::Algorithm::ALL {
                assert!(nearest(algorithm, kind).serves(kind), "{algorithm} {kind:?}");
            }
            assert_eq!(nearest(tuner::Algorithm::Ring, kind), Algorithm::Ring);
        }
        assert_eq!(nearest(tuner::Algorithm::Tree, Kind::AllReduce), Algorithm::Tree);
        assert_eq!(nearest(tuner::Algorithm::Nvls, Kind::AllReduce), Algorithm::TwoShot);
        assert_eq!(nearest(tuner::Algorithm::Pat, Kind::AllGather), Algorithm::Flat);
    }
}
