//! Where the ranks of one process find the segment of a communicator that they make together.
//!
//! Memory that only this process has cannot be found by a name, so the first rank to come puts the seats of all members
//! here, and each takes its own. A seat table goes when the last seat is taken; a rank that waits in vain for the
//! others takes the table away.

use crate::error::Error;
use shmring::layout::Geometry;
use shmring::segment::{Seat, Segment};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The seats of one communicator to be.
#[derive(Debug)]
struct Seats {
    geometry: Geometry,
    settings: u64,
    seats: Vec<Option<Seat>>,
}

static TABLES: LazyLock<Mutex<HashMap<u64, Seats>>> = LazyLock::new(Mutex::default);

fn tables() -> MutexGuard<'static, HashMap<u64, Seats>> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the seat of `rank` in the communicator of number `job`. Geometry and settings must be the others'.
pub(super) fn take(job: u64, geometry: &Geometry, settings: u64, rank: u32) -> Result<Segment, Error> {
    let failed = |cause| Error::Segment { rank, cause };
    let mut tables = tables();
    let table = match tables.entry(job) {
        std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::hash_map::Entry::Vacant(entry) => {
            let seats = Segment::seats(geometry).map_err(failed)?;
            entry.insert(Seats {
                geometry: *geometry,
                settings,
                seats: seats.into_iter().map(Some).collect(),
            })
        }
    };
    if table.geometry != *geometry || table.settings != settings {
        let what =
            "its settings (channels, chunk, buffers, algorithm or protocol) are not those of the other ranks";
        return Err(Error::Call { rank, call: "a new communicator", what: what.into() });
    }
    let seat = table.seats.get_mut(rank as usize).and_then(Option::take);
    if table.seats.iter().all(Option::is_none) {
        tables.remove(&job);
    }
    // A job's number is derived from a call that each rank makes once.
    seat.map(Seat::take).ok_or(Error::Segment { rank, cause: shmring::Error::RoleTaken { role: "member" } })
}

/// Takes a table away whose other members do not come.
pub(super) fn close(job: u64) {
    tables().remove(&job);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The members of a job share memory that others do not, a seat is given once, and nothing stays behind.
    #[test]
    fn each_member_has_one_seat() {
        let geometry = Config::new(2).geometry(2).unwrap();
        let first = take(77, &geometry, 0, 0).unwrap();
        assert!(!first.is_complete());
        assert!(take(77, &geometry, 0, 0).is_err());
        assert!(matches!(take(77, &geometry, 1, 1), Err(Error::Call { .. })));
        let second = take(77, &geometry, 0, 1).unwrap();
        assert!(first.is_complete() && second.is_complete());
        assert!(!tables().contains_key(&77));
        let alone = take(77, &geometry, 0, 1).unwrap();
        assert!(!alone.is_complete() && tables().contains_key(&77));
        close(77);
        assert!(!tables().contains_key(&77));
    }
}
