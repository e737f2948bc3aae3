//! Plugins, with their published versions.
use domain::{
    decider::{Decider, Timestamp},
    plugin::{Plugin, PluginEvent, PluginVersion},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get},
};

#[derive(Debug)]
pub struct Plugins;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// Versions in the order of their publication.
    pub versions: Vec<PublishedVersion>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedVersion {
    #[serde(flatten)]
    pub version: PluginVersion,
    pub published_at: Timestamp,
}

impl Projection for Plugins {
    const NAME: &'static str = "plugins";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Plugin::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Plugin(name, _) = &event.domain_event else { return vec![] };
        vec![name.clone()]
    }

    fn apply(key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Plugin(_, PluginEvent::Published(version)) = &event.domain_event else {
            return row;
        };
        let mut row = row.unwrap_or_else(|| Row { name: key.to_owned(), versions: vec![] });
        let (version, published_at) = (version.clone(), event.at);
        row.versions.push(PublishedVersion { version, published_at });
        Some(row)
    }

    fn cells(_row: &Row) -> Vec<Cell> {
        vec![]
    }
}

/// Returns the row of a plugin, if it exists.
///
/// # Errors
/// If a database operation fails.
pub async fn plugin(executor: impl PgExecutor<'_>, name: &str) -> Result<Option<Row>, sqlx::Error> {
    get::<Plugins>(executor, name).await
}

/// Returns the plugins after `after`, by name.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("key > ?", after).first::<Plugins>(executor, "key", limit).await
}
