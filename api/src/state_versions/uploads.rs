//! Limits on concurrent transfers of states, because each one holds a complete state in memory.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use domain::ids::RunnerId;

/// Maximum number of bytes of all states that are transferred at the same time.
const MOST_BYTES: u64 = 1 << 30;
/// Maximum number of concurrent transfers of one runner.
const MOST_OF_RUNNER: usize = 4;

/// Transfers in progress. Cheap to clone.
#[derive(Clone, Default)]
pub struct Uploads(Arc<Mutex<Counters>>);

#[derive(Default)]
struct Counters {
    bytes: u64,
    of_runner: HashMap<RunnerId, usize>,
}

/// Transfer that counts until it is dropped.
pub(crate) struct Transfer {
    all: Uploads,
    runner: RunnerId,
    bytes: u64,
}

impl Uploads {
    /// Counts a transfer of a runner. Returns `None` if a limit is reached.
    pub(crate) fn begin(&self, runner: RunnerId, bytes: u64) -> Option<Transfer> {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counters.of_runner.get(&runner).copied().unwrap_or_default();
        if own >= MOST_OF_RUNNER || counters.bytes + bytes > MOST_BYTES {
            return None;
        }
        counters.bytes += bytes;
        counters.of_runner.insert(runner, own + 1);
        Some(Transfer { all: self.clone(), runner, bytes })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut counters = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.bytes -= self.bytes;
        match counters.of_runner.get_mut(&self.runner) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(counters.of_runner.remove(&self.runner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn transfers_of_one_runner_and_of_all_are_limited() {
        let (uploads, runner, other) =
            (Uploads::default(), RunnerId(Ulid::new()), RunnerId(Ulid::new()));
        let mut own: Vec<_> = (0..4).map(|_| uploads.begin(runner, 1).unwrap()).collect();
        assert!(uploads.begin(runner, 1).is_none());
        assert!(uploads.begin(other, MOST_BYTES - 3).is_none());
        let large = uploads.begin(other, MOST_BYTES - 4).unwrap();
        own.pop();
        assert!(uploads.begin(runner, 2).is_none() && uploads.begin(runner, 1).is_some());
        drop((own, large));
        assert!(uploads.begin(other, MOST_BYTES).is_some());
        let counters = uploads.0.lock().unwrap();
        assert!(counters.of_runner.is_empty() && counters.bytes == 0);
    }
}
