//! Resolves the git references of a published config version.
use super::{PolicyEvent, Reaction};
use crate::app::AppEvent;

pub(super) fn react(event: &PolicyEvent) -> Option<Reaction> {
    let PolicyEvent::App(app, event) = event else { return None };
    match event {
        AppEvent::ConfigPublished(published) => {
            let mut components = published.components.iter();
            let is_open = components.any(|one| one.git.is_some() && one.commit.is_none());
            is_open.then_some(Reaction::ResolveSources(*app, published.config_version))
        }
        AppEvent::Created { .. }
        | AppEvent::SourceResolveQueued { .. }
        | AppEvent::SourceResolved { .. }
        | AppEvent::SourceResolveFailed { .. } => None,
    }
}
