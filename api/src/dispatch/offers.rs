//! Who is offered what: in the order of the queue, to a runner that is there and has room.
use std::collections::HashMap;

use domain::{
    ids::{JobId, RunnerId},
    job::JobKind,
};
use tokio::time::Instant;

/// An offer that stands until it is claimed, or until its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// To whom.
    pub runner: RunnerId,
    /// What kind of work.
    pub kind: JobKind,
    /// Until when.
    pub until: Instant,
}

/// The offers that stand.
#[derive(Debug, Default)]
pub struct Offers {
    standing: HashMap<JobId, Offer>,
    /// How many of each runner are operations, and how many are everything else.
    loads: HashMap<RunnerId, (u32, u32)>,
}

impl Offers {
    /// Offer a job.
    pub fn make(&mut self, job: JobId, offer: Offer) {
        self.take(job);
        *slot(self.loads.entry(offer.runner).or_default(), offer.kind) += 1;
        self.standing.insert(job, offer);
    }

    /// The job was taken, or is no longer to be had. Answers to whom it was offered.
    pub fn take(&mut self, job: JobId) -> Option<Offer> {
        let offer = self.standing.remove(&job)?;
        if let Some(load) = self.loads.get_mut(&offer.runner) {
            let count = slot(load, offer.kind);
            *count = count.saturating_sub(1);
            if *load == (0, 0) {
                self.loads.remove(&offer.runner);
            }
        }
        Some(offer)
    }

    /// Take away the offers whose time is over.
    pub fn expired(&mut self, now: Instant) -> Vec<(JobId, Offer)> {
        let over = self.standing.iter().filter(|(_, offer)| offer.until <= now);
        let over: Vec<_> = over.map(|(job, _)| *job).collect();
        over.into_iter().filter_map(|job| Some((job, self.take(job)?))).collect()
    }

    /// Take away what was offered to a runner that is no longer to get anything.
    pub fn withdraw(&mut self, runner: RunnerId) -> Vec<JobId> {
        if !self.loads.contains_key(&runner) {
            return Vec::new();
        }
        let jobs = self.standing.iter().filter(|(_, offer)| offer.runner == runner);
        let jobs: Vec<_> = jobs.map(|(job, _)| *job).collect();
        jobs.into_iter().filter(|job| self.take(*job).is_some()).collect()
    }

    /// What a runner was offered and has not claimed: operations, and everything else.
    pub fn load(&self, runner: RunnerId) -> (u32, u32) {
        self.loads.get(&runner).copied().unwrap_or_default()
    }
}

fn slot((operations, others): &mut (u32, u32), kind: JobKind) -> &mut u32 {
    if kind.uses_reserved_slot() { operations } else { others }
}

/// How much more a runner can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Slots that are free, as the runner says, less what it was offered since.
    pub free: u32,
    /// How many more long jobs it may have before only the reserved slot is left.
    pub long: u32,
}

impl Room {
    /// The room of a runner with so many slots, of which so many are free, and that holds and was
    /// offered so many (operations, others).
    ///
    /// A runner with several slots keeps one for operations, so that a long deploy never stands in
    /// the way of a short look at what is wrong.
    pub fn of(
        slots: u32,
        free: u32,
        operates: bool,
        held: (u32, u32),
        offered: (u32, u32),
    ) -> Room {
        let reserved = u32::from(operates && slots > 1);
        let free = free.saturating_sub(offered.0 + offered.1);
        Room { free, long: slots.saturating_sub(reserved + held.1 + offered.1) }
    }

    /// Take a slot for a job of this kind, if there is one.
    pub fn take(&mut self, kind: JobKind) -> bool {
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
    fn the_last_slot_is_for_operations() {
        let mut room = Room::of(2, 1, true, (0, 1), (0, 0));
        assert!(!room.take(JobKind::Apply), "one apply runs, the other slot is kept");
        assert!(room.take(JobKind::Action));
        assert!(!room.take(JobKind::Action), "nothing is free any more");
    }

    #[test]
    fn a_running_operation_does_not_count_against_the_long_jobs() {
        let mut room = Room::of(3, 2, true, (1, 0), (0, 0));
        assert!(room.take(JobKind::Plan));
        assert!(room.take(JobKind::Apply));
        assert!(!room.take(JobKind::Apply));
    }

    #[test]
    fn a_runner_with_one_slot_or_without_operations_reserves_nothing() {
        assert!(Room::of(1, 1, true, (0, 0), (0, 0)).take(JobKind::Apply));
        let mut builder = Room::of(2, 2, false, (0, 0), (0, 0));
        assert!(builder.take(JobKind::Build) && builder.take(JobKind::Build));
    }

    #[test]
    fn what_is_on_offer_takes_room_before_it_is_claimed() {
        assert!(!Room::of(4, 1, true, (0, 0), (0, 1)).take(JobKind::Apply));
    }
}
