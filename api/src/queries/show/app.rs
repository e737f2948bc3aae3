//! Converts rows of apps and of their config versions to the API types.
use app_config::model::ACTION_SCRIPTS;
use domain::app::{Published, Resolution, VersionSource as Source};
use projections::views::{apps, config_versions};
use schemas::control::apps::{App, ConfigVersion, VersionComponent, VersionSource};

use crate::queries::lookup::Lookup;

/// Converts an app with its newest version.
pub(crate) fn app(row: &apps::Row, newest: Option<&config_versions::Row>, installs: u64) -> App {
    App {
        id: row.app,
        name: row.name.clone(),
        version: row.version,
        published_at: newest.map(|newest| newest.published_at),
        components: newest.map_or(0, |newest| components(&newest.published)),
        installs,
    }
}

/// Number of the components of a version, including the sandbox, without scripts of actions.
fn components(published: &Published) -> u64 {
    published.components.iter().filter(|part| part.kind != ACTION_SCRIPTS).count() as u64
}

/// Converts a config version with its publisher.
pub(crate) fn version(lookup: &Lookup<'_>, row: &config_versions::Row) -> ConfigVersion {
    let components = row.published.components.iter().map(|part| VersionComponent {
        id: part.component,
        name: part.name.clone(),
        kind: part.kind.clone(),
        definition: part.definition.clone(),
        git: part.git.clone(),
        commit: part.commit.clone(),
    });
    ConfigVersion {
        version: row.published.config_version,
        bundle: row.published.bundle.clone(),
        published_at: row.published_at,
        published_by: row.by.to_string(),
        published_by_name: lookup.name(&row.by),
        position: row.position,
        state: state(&row.sources).into(),
        sources: row.sources.iter().map(source).collect(),
        components: components.collect(),
    }
}

/// Returns the name of the state of a version's git references.
fn state(sources: &[Source]) -> &'static str {
    let is_failed = |source: &Source| match source.resolution {
        Resolution::Failed { .. } => true,
        Resolution::Pending | Resolution::Queued { .. } | Resolution::Resolved { .. } => false,
    };
    if sources.iter().any(|source| source.resolution.is_open()) {
        "resolving"
    } else if sources.iter().any(is_failed) {
        "unresolved"
    } else {
        "resolved"
    }
}

fn source(source: &Source) -> VersionSource {
    let (repo, reference) = (source.repo.clone(), source.reference.clone());
    let (commit, detail, job) = (None, None, None);
    let shown =
        |state: &str| VersionSource { repo, reference, state: state.into(), commit, detail, job };
    match source.resolution.clone() {
        Resolution::Pending => shown("resolving"),
        Resolution::Queued { job } => VersionSource { job: Some(job), ..shown("resolving") },
        Resolution::Resolved { commit } => {
            VersionSource { commit: Some(commit), ..shown("resolved") }
        }
        Resolution::Failed { detail } => VersionSource { detail: Some(detail), ..shown("failed") },
    }
}
