//! Config versions of apps, with the commits of their git references.
use std::collections::HashMap;

use domain::{
    actor::Actor,
    app::{App, AppEvent, Published, Resolution, VersionSource},
    decider::{Decider, Timestamp},
    ids::AppId,
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{many, select},
};

#[derive(Debug)]
pub struct ConfigVersions;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub app: AppId,
    /// Content of the version, with the commits that are resolved.
    pub published: Published,
    /// Git references of the version, each with its resolution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<VersionSource>,
    pub published_at: Timestamp,
    /// Actor that published the version.
    pub by: Actor,
    /// Position of the `app.config_published` event.
    pub position: u64,
}

impl Row {
    fn with(mut self, repo: &str, reference: &str, resolution: Resolution) -> Row {
        let is_same = |source: &&mut VersionSource| source.target() == (repo, reference);
        if let Some(source) = self.sources.iter_mut().find(is_same) {
            source.resolution = resolution;
        }
        self
    }
}

impl Projection for ConfigVersions {
    const NAME: &'static str = "config_versions";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[App::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("app", Type::Text), ("config_version", Type::Bigint)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::App(app, domain_event) = &event.domain_event else { return vec![] };
        match domain_event {
            AppEvent::ConfigPublished(published) => vec![key(*app, published.config_version)],
            AppEvent::SourceResolveQueued { config_version, .. }
            | AppEvent::SourceResolved { config_version, .. }
            | AppEvent::SourceResolveFailed { config_version, .. } => {
                vec![key(*app, *config_version)]
            }
            AppEvent::Created { .. } => vec![],
        }
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::App(app, domain_event) = &event.domain_event else { return row };
        match domain_event {
            AppEvent::ConfigPublished(published) => Some(Row {
                app: *app,
                published: published.clone(),
                sources: published.sources(),
                published_at: event.at,
                by: event.actor.clone(),
                position: event.position,
            }),
            AppEvent::SourceResolveQueued { repo, reference, job, .. } => {
                let resolution = Resolution::Queued { job: *job };
                row.map(|row| row.with(repo, reference, resolution))
            }
            AppEvent::SourceResolved { repo, reference, commit, .. } => row.map(|mut row| {
                row.published.resolve(repo, reference, commit);
                row.with(repo, reference, Resolution::Resolved { commit: commit.clone() })
            }),
            AppEvent::SourceResolveFailed { repo, reference, detail, .. } => {
                let resolution = Resolution::Failed { detail: detail.clone() };
                row.map(|row| row.with(repo, reference, resolution))
            }
            AppEvent::Created { .. } => row,
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![Cell::text(row.app), Cell::number(row.published.config_version.into())]
    }
}

fn key(app: AppId, version: u32) -> String {
    format!("{app}/{version}")
}

/// Returns the rows of config versions, in one statement. Omits versions that do not exist.
///
/// # Errors
/// If a database operation fails.
pub async fn versions(
    executor: impl PgExecutor<'_>,
    which: impl IntoIterator<Item = (AppId, u32)>,
) -> Result<HashMap<(AppId, u32), Row>, sqlx::Error> {
    let keys = which.into_iter().map(|(app, version)| key(app, version)).collect();
    let rows = many::<ConfigVersions>(executor, keys).await?;
    Ok(rows.into_values().map(|row| ((row.app, row.published.config_version), row)).collect())
}

/// Returns the versions of an app before `before`, newest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    app: AppId,
    before: Option<u32>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where app = $1 and ($2::bigint is null or config_version < $2) \
                order by config_version desc limit $3";
    let before = Cell::Bigint(before.map(i64::from));
    let binds = vec![Cell::text(app), before, Cell::number(limit.into())];
    select::<ConfigVersions>(executor, rest, binds).await
}
