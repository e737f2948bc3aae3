//! Queues the jobs of the builds that wait for the resolution of a git reference. If the reference
//! cannot be resolved, fails these builds.
use super::{PolicyEvent, Reaction};
use crate::app::AppEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    let PolicyEvent::App(app, event) = event else { return None };
    match event {
        AppEvent::SourceResolved { config_version, .. }
        | AppEvent::SourceResolveFailed { config_version, .. } => {
            Some(Reaction::QueueBuildsOfVersion(*app, *config_version))
        }
        AppEvent::Created { .. }
        | AppEvent::ConfigPublished(_)
        | AppEvent::SourceResolveQueued { .. } => None,
    }
}
