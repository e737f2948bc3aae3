//! Open offers: queued jobs in order, each offered to a connected runner with a free slot.
use std::collections::HashMap;

use domain::{
    ids::{JobId, RunnerId},
    job::JobKind,
};
use tokio::time::Instant;

/// Offer that is open until it is claimed or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Runner that the job is offered to.
    pub runner: RunnerId,
    /// Kind of the job, which determines the type of slot that the offer occupies.
    pub kind: JobKind,
    /// Time at which the offer expires, by the monotonic clock.
    pub until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Offers {
    open: HashMap<JobId, Offer>,
    /// Numbers of open offers per runner: for actions, and for all other kinds.
    loads: HashMap<RunnerId, (u32, u32)>,
}

impl Offers {
    /// Adds an offer of a job, which replaces an earlier offer.
    pub(crate) fn add(&mut self, job: JobId, offer: Offer) {
        self.remove(job);
        *slot(self.loads.entry(offer.runner).or_default(), offer.kind) += 1;
        self.open.insert(job, offer);
    }

    /// Removes the offer of a job that was claimed or is no longer available. Returns the offer.
    pub(crate) fn remove(&mut self, job: JobId) -> Option<Offer> {
        let offer = self.open.remove(&job)?;
        if let Some(load) = self.loads.get_mut(&offer.runner) {
            let count = slot(load, offer.kind);
            *count = count.saturating_sub(1);
            if *load == (0, 0) {
                self.loads.remove(&offer.runner);
            }
        }
        Some(offer)
    }

    /// Removes and returns expired offers.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<(JobId, Offer)> {
        let expired = self.open.iter().filter(|(_, offer)| offer.until <= now);
        let expired: Vec<_> = expired.map(|(job, _)| *job).collect();
        expired.into_iter().filter_map(|job| Some((job, self.remove(job)?))).collect()
    }

    /// Removes the offers to a runner that must get no more work. Returns their jobs.
    pub(crate) fn withdraw(&mut self, runner: RunnerId) -> Vec<JobId> {
        if !self.loads.contains_key(&runner) {
            return Vec::new();
        }
        let jobs = self.open.iter().filter(|(_, offer)| offer.runner == runner);
        let jobs: Vec<_> = jobs.map(|(job, _)| *job).collect();
        jobs.into_iter().filter(|job| self.remove(*job).is_some()).collect()
    }

    /// Numbers of open offers to a runner: for actions, and for all other kinds.
    pub(crate) fn load(&self, runner: RunnerId) -> (u32, u32) {
        self.loads.get(&runner).copied().unwrap_or_default()
    }
}

fn slot((operations, others): &mut (u32, u32), kind: JobKind) -> &mut u32 {
    if kind.uses_reserved_slot() { operations } else { others }
}

/// Number of further jobs that a runner can accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Free slots that the runner reported, minus open offers.
    pub free: u32,
    /// Number of further long jobs until only the reserved slot is free.
    pub long: u32,
}

impl Capacity {
    /// Computes the capacity from the number of slots, the free slots, and the held and offered
    /// jobs (actions, others).
    ///
    /// A runner with several slots reserves one for actions, so that a long deploy does not delay a
    /// short diagnostic script.
    pub(super) fn of(
        slots: u32,
        free: u32,
        operates: bool,
        held: (u32, u32),
        offered: (u32, u32),
    ) -> Capacity {
        let reserved = u32::from(operates && slots > 1);
        let free = free.saturating_sub(offered.0 + offered.1);
        Capacity { free, long: slots.saturating_sub(reserved + held.1 + offered.1) }
    }

    /// Takes a slot for a job of this kind. Returns false if none is free.
    pub(super) fn use_slot(&mut self, kind: JobKind) -> bool {
        let is_long = !kind.uses_reserved_slot();
        let fits = self.free > 0 && (!is_long || self.long > 0);
        if fits {
            self.free -= 1;
            self.long -= u32::from(is_long);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_slot_is_reserved_for_operations() {
        let mut capacity = Capacity::of(2, 1, true, (0, 1), (0, 0));
        assert!(!capacity.use_slot(JobKind::Apply), "one apply runs, the other slot is kept");
        assert!(capacity.use_slot(JobKind::Action));
        assert!(!capacity.use_slot(JobKind::Action), "nothing is free any more");
    }

    #[test]
    fn running_operation_uses_only_the_reserved_slot() {
        let mut capacity = Capacity::of(3, 2, true, (1, 0), (0, 0));
        assert!(capacity.use_slot(JobKind::Plan));
        assert!(capacity.use_slot(JobKind::Apply));
        assert!(!capacity.use_slot(JobKind::Apply));
    }

    #[test]
    fn runner_with_one_slot_or_without_operations_reserves_no_slot() {
        assert!(Capacity::of(1, 1, true, (0, 0), (0, 0)).use_slot(JobKind::Apply));
        let mut builder = Capacity::of(2, 2, false, (0, 0), (0, 0));
        assert!(builder.use_slot(JobKind::Build) && builder.use_slot(JobKind::Build));
    }

    #[test]
    fn open_offer_counts_as_an_occupied_slot() {
        assert!(!Capacity::of(4, 1, true, (0, 0), (0, 1)).use_slot(JobKind::Apply));
    }
}
