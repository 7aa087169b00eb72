//! Communicators whose ranks are threads.

use super::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::reduce::ReduceOp;

/// A rank that fails by itself tells its own error; the others are told who it was and to look there.
#[test]
fn an_error_of_one_rank_ends_all() {
    let comms = Communicator::init_all(3, &Config::new(3)).unwrap();
    let _role = comms[1].shared.segment.fan_sender(0).unwrap();
    std::thread::scope(|scope| {
        for mut comm in comms {
            scope.spawn(move || {
                let error = comm.all_reduce_in_place(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
                match comm.rank() {
                    1 => {
                        let cause = shmring::Error::RoleTaken { role: "sender" };
                        assert_eq!(error.to_string(), format!("rank 1: {cause}"));
                    }
                    _ => {
                        assert!(matches!(error, Error::Aborted { by: 1, .. }), "{error}");
                        assert!(
                            error.to_string().contains("an error of its own, see its message"),
                            "{error}"
                        );
                    }
                }
            });
        }
    });
}
