//! Apps and their config versions.
use domain::app::{App as AppState, AppEvent, Published};
use schemas::control::apps::{App, ConfigVersion, VersionComponent};

use crate::{control::read::History, problem::Problem};

/// An app in a list.
pub fn app(history: &History<AppState>, installs: u64) -> Result<App, Problem> {
    let state = &history.state;
    let published_at = history.last(|event| matches!(event, AppEvent::ConfigPublished(_)));
    Ok(App {
        id: history.id.parse().map_err(Problem::internal)?,
        name: state.name.clone().unwrap_or_default(),
        version: state.version(),
        published_at,
        components: state.latest().map_or(0, |latest| latest.components.len() as u64),
        installs,
    })
}

/// One config version, with who published it when.
pub fn version(
    history: &History<AppState>,
    published: &Published,
) -> Result<Option<ConfigVersion>, Problem> {
    let is = |event: &AppEvent| match event {
        AppEvent::ConfigPublished(one) => one.version == published.version,
        AppEvent::Created { .. } => false,
    };
    let Some((stored, _)) = history.events.iter().find(|(_, event)| is(event)) else {
        return Ok(None);
    };
    let components = published.components.iter().map(|part| VersionComponent {
        id: part.component,
        name: part.name.clone(),
        kind: part.kind.clone(),
        digest: part.digest.clone(),
    });
    Ok(Some(ConfigVersion {
        version: published.version,
        bundle: published.bundle.clone(),
        published_at: stored.recorded_at,
        published_by: stored.meta()?.actor.to_string(),
        position: stored.position,
        components: components.collect(),
    }))
}
