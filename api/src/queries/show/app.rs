//! Converts rows of apps and of their config versions to the API types.
use projections::views::{apps, config_versions};
use schemas::control::apps::{App, ConfigVersion, VersionComponent};

use crate::queries::lookup::Lookup;

/// Converts an app with its newest version.
pub(crate) fn app(row: &apps::Row, newest: Option<&config_versions::Row>, installs: u64) -> App {
    App {
        id: row.app,
        name: row.name.clone(),
        version: row.version,
        published_at: newest.map(|newest| newest.published_at),
        components: newest.map_or(0, |newest| newest.published.components.len() as u64),
        installs,
    }
}

/// Converts a config version with its publisher.
pub(crate) fn version(lookup: &Lookup<'_>, row: &config_versions::Row) -> ConfigVersion {
    let components = row.published.components.iter().map(|part| VersionComponent {
        id: part.component,
        name: part.name.clone(),
        kind: part.kind.clone(),
        definition: part.definition.clone(),
    });
    ConfigVersion {
        version: row.published.config_version,
        bundle: row.published.bundle.clone(),
        published_at: row.published_at,
        published_by: row.by.to_string(),
        published_by_name: lookup.name(&row.by),
        position: row.position,
        components: components.collect(),
    }
}
