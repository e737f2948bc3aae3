//! Apps, with their newest config version.
use domain::{
    app::{App, AppEvent},
    decider::{Decider, Timestamp},
    ids::AppId,
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get, select},
};

#[derive(Debug)]
pub struct Apps;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub app: AppId,
    pub name: String,
    /// Newest config version; 0 before the first.
    pub version: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Position of the last event that changed the row.
    pub position: u64,
}

impl Projection for Apps {
    const NAME: &'static str = "apps";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[App::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[("name", Type::Text)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::App(app, _) = &event.domain_event else { return vec![] };
        vec![app.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::App(app, domain_event) = &event.domain_event else { return row };
        match domain_event {
            AppEvent::Created { name } => Some(Row {
                app: *app,
                name: name.clone(),
                version: 0,
                created_at: event.at,
                updated_at: event.at,
                position: event.position,
            }),
            AppEvent::ConfigPublished(published) => row.map(|row| Row {
                version: published.config_version,
                updated_at: event.at,
                position: event.position,
                ..row
            }),
            AppEvent::SourceResolveQueued { .. }
            | AppEvent::SourceResolved { .. }
            | AppEvent::SourceResolveFailed { .. } => row,
        }
    }

    fn cells(row: &Row) -> Vec<Cell> {
        vec![Cell::text(&row.name)]
    }
}

/// Returns the row of an app, if the app exists.
///
/// # Errors
/// If a database operation fails.
pub async fn app(executor: impl PgExecutor<'_>, app: AppId) -> Result<Option<Row>, sqlx::Error> {
    get::<Apps>(executor, app).await
}

/// Returns the app with this name.
///
/// # Errors
/// If a database operation fails.
pub async fn by_name(
    executor: impl PgExecutor<'_>,
    name: &str,
) -> Result<Option<Row>, sqlx::Error> {
    Ok(select::<Apps>(executor, "where name = $1", vec![Cell::text(name)]).await?.pop())
}

/// Returns the apps after `after`, oldest first.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<AppId>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("key > ?", after).first::<Apps>(executor, "key", limit).await
}
