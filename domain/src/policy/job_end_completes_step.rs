//! Completes a step or a preflight after the end of its job.
use super::{PolicyEvent, Reaction};

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    match event {
        PolicyEvent::Job(job, event) if event.is_end() => Some(Reaction::CompleteStep(*job)),
        PolicyEvent::App(..)
        | PolicyEvent::Build(..)
        | PolicyEvent::Install(..)
        | PolicyEvent::Job(..)
        | PolicyEvent::Run(..) => None,
    }
}
