//! Ranks that are threads of this process and meet in memory: the reference that other backends are compared
//! with.
//!
//! Every exchange is a numbered slot of one table. A rank puts its values in and goes on; whoever puts in the
//! last part computes the result, adding in rank order, so that the result does not depend on who came when.
//! A rank takes the result when it needs it. Nobody waits for a rank that has left or died: that is an error.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Extreme, GradientSync};
use crate::error::{Error, Result};

/// No exchange of this small a model takes this long, even with many ranks on one core.
const DEADLINE: Duration = Duration::from_secs(60);

/// One rank of a group of threads.
#[derive(Debug)]
pub struct MemorySync {
    shared: Arc<Shared>,
    rank: usize,
    /// Number of the next exchange; the same on every rank that makes the same calls.
    next: u64,
}

/// An exchange that was started.
#[derive(Debug)]
pub struct MemoryHandle(u64);

#[derive(Debug)]
struct Shared {
    nranks: usize,
    deadline: Duration,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    slots: BTreeMap<u64, Slot>,
    /// Ranks whose handle was dropped.
    left: Vec<usize>,
    /// Why nothing can be exchanged any more.
    broken: Option<String>,
}

#[derive(Debug)]
struct Slot {
    operation: Operation,
    parts: Vec<Option<Values>>,
    result: Option<Values>,
    taken: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Average,
    Broadcast,
    Sum,
    Extreme(Extreme),
    Barrier,
}

#[derive(Debug, Clone, PartialEq)]
enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
}

impl MemorySync {
    /// A group of `nranks` ranks, one handle for each.
    pub fn group(nranks: usize) -> Vec<Self> {
        Self::group_with_deadline(nranks, DEADLINE)
    }

    fn group_with_deadline(nranks: usize, deadline: Duration) -> Vec<Self> {
        let table = Mutex::new(Table::default());
        let shared = Arc::new(Shared { nranks, deadline, table, changed: Condvar::new() });
        (0..nranks).map(|rank| Self { shared: Arc::clone(&shared), rank, next: 0 }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // A rank that panicked while it held the lock has left; `left` tells the others.
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, number: u64, operation: Operation, reason: String) -> Error {
        Error::Sync { rank: self.rank, operation: format!("{operation:?} (exchange {number})"), reason }
    }

    /// Puts this rank's part in, and computes the result if it was the last part.
    fn put(&mut self, operation: Operation, values: Values) -> Result<MemoryHandle> {
        let (number, nranks) = (self.next, self.shared.nranks);
        self.next += 1;
        let mut table = self.lock();
        let slot = table.slots.entry(number).or_insert_with(|| Slot {
            operation,
            parts: (0..nranks).map(|_| None).collect(),
            result: None,
            taken: 0,
        });
        if slot.operation != operation {
            let reason =
                format!("another rank called {:?} here; all ranks must make the same calls", slot.operation);
            table.broken.get_or_insert_with(|| reason.clone());
            self.shared.changed.notify_all();
            return Err(self.error(number, operation, reason));
        }
        slot.parts[self.rank] = Some(values);
        if slot.parts.iter().all(Option::is_some) {
            match combine(operation, slot.parts.iter_mut().filter_map(Option::take).collect()) {
                Ok(result) => slot.result = Some(result),
                Err(reason) => table.broken = Some(reason),
            }
            self.shared.changed.notify_all();
        }
        Ok(MemoryHandle(number))
    }

    /// Waits for the result of an exchange.
    fn take(&self, number: u64, operation: Operation) -> Result<Values> {
        let deadline = Instant::now() + self.shared.deadline;
        let mut table = self.lock();
        loop {
            if let Some(reason) = &table.broken {
                return Err(self.error(number, operation, reason.clone()));
            }
            let Table { slots, left, .. } = &mut *table;
            let Some(slot) = slots.get_mut(&number) else {
                return Err(self.error(number, operation, "its result was already taken".into()));
            };
            if let Some(result) = &slot.result {
                let result = result.clone();
                slot.taken += 1;
                if slot.taken == self.shared.nranks {
                    slots.remove(&number);
                }
                return Ok(result);
            }
            if let Some(rank) = left.iter().find(|rank| slot.parts[**rank].is_none()) {
                return Err(self.error(
                    number,
                    operation,
                    format!("rank {rank} has left; see its own error"),
                ));
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let missing: Vec<usize> =
                    (0..slot.parts.len()).filter(|r| slot.parts[*r].is_none()).collect();
                let reason = format!("ranks {missing:?} did not come within {:?}", self.shared.deadline);
                return Err(self.error(number, operation, reason));
            }
            let waited = self.shared.changed.wait_timeout(table, remaining);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn exchange(&mut self, operation: Operation, values: Values) -> Result<Values> {
        let handle = self.put(operation, values)?;
        self.take(handle.0, operation)
    }
}

/// The result of an exchange of `parts` in rank order, or why there is none.
fn combine(operation: Operation, parts: Vec<Values>) -> std::result::Result<Values, String> {
    let nranks = parts.len();
    let mut parts = parts.into_iter();
    let mut result = parts.next().ok_or("no rank")?;
    for (index, part) in parts.enumerate() {
        let same = match (&mut result, &part) {
            (Values::F32(all), Values::F32(part)) => {
                fold(all, part, |a, b| if operation == Operation::Average { a + b } else { a })
            }
            (Values::F64(all), Values::F64(part)) => fold(all, part, |a, b| a + b),
            (Values::I64(all), Values::I64(part)) => {
                let keep = if operation == Operation::Extreme(Extreme::Min) { i64::min } else { i64::max };
                fold(all, part, keep)
            }
            _ => false,
        };
        if !same {
            return Err(format!("rank {} gave a different type or length than rank 0", index + 1));
        }
    }
    if let (Operation::Average, Values::F32(all)) = (operation, &mut result) {
        all.iter_mut().for_each(|value| *value /= nranks as f32);
    }
    Ok(result)
}

/// Combines `part` into `all`, element by element; false if the lengths differ.
fn fold<T: Copy>(all: &mut [T], part: &[T], f: impl Fn(T, T) -> T) -> bool {
    all.iter_mut().zip(part).for_each(|(all, part)| *all = f(*all, *part));
    all.len() == part.len()
}

impl GradientSync for MemorySync {
    type Handle = MemoryHandle;
    /// Nothing is recorded.
    type Span = ();

    fn rank(&self) -> usize {
        self.rank
    }

    fn nranks(&self) -> usize {
        self.shared.nranks
    }

    fn start(&mut self, bucket: Vec<f32>) -> Result<MemoryHandle> {
        self.put(Operation::Average, Values::F32(bucket))
    }

    fn wait(&mut self, handle: MemoryHandle) -> Result<Vec<f32>> {
        match self.take(handle.0, Operation::Average)? {
            Values::F32(bucket) => Ok(bucket),
            other => Err(self.error(handle.0, Operation::Average, format!("it carried {other:?}"))),
        }
    }

    fn broadcast(&mut self, values: &mut [f32]) -> Result<()> {
        if let Values::F32(result) = self.exchange(Operation::Broadcast, Values::F32(values.to_vec()))? {
            values.copy_from_slice(&result);
        }
        Ok(())
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        if let Values::F64(result) = self.exchange(Operation::Sum, Values::F64(values.to_vec()))? {
            values.copy_from_slice(&result);
        }
        Ok(())
    }

    fn extreme(&mut self, values: &mut [i64], which: Extreme) -> Result<()> {
        if let Values::I64(result) = self.exchange(Operation::Extreme(which), Values::I64(values.to_vec()))? {
            values.copy_from_slice(&result);
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.exchange(Operation::Barrier, Values::I64(Vec::new())).map(drop)
    }

    fn span(&self, _name: &str) {}

    fn finish(self) -> Result<()> {
        Ok(())
    }
}

impl Drop for MemorySync {
    fn drop(&mut self) {
        self.lock().left.push(self.rank);
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
