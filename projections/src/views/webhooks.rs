//! Webhooks with their settings.
use domain::{
    decider::{Decider, Timestamp},
    webhook::{Webhook, WebhookEvent, WebhookSettings},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{Where, get},
};

#[derive(Debug)]
pub struct Webhooks;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Time of the last change of the settings.
    pub configured_at: Timestamp,
}

impl Projection for Webhooks {
    const NAME: &'static str = "webhooks";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Webhook::NAME];
    const COLUMNS: &'static [(&'static str, Type)] = &[];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Webhook(name, _) = &event.domain_event else { return vec![] };
        vec![name.clone()]
    }

    fn apply(key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Webhook(_, change) = &event.domain_event else { return row };
        match change {
            WebhookEvent::Configured(settings) => Some(Row {
                name: key.to_owned(),
                settings: settings.clone(),
                configured_at: event.at,
            }),
            WebhookEvent::Deleted {} => None,
        }
    }

    fn cells(_row: &Row) -> Vec<Cell> {
        vec![]
    }
}

/// Returns the row of a webhook, if it exists.
///
/// # Errors
/// If a database operation fails.
pub async fn webhook(
    executor: impl PgExecutor<'_>,
    name: &str,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Webhooks>(executor, name).await
}

/// Returns the webhooks after `after`, by name.
///
/// # Errors
/// If a database operation fails.
pub async fn page(
    executor: impl PgExecutor<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<Row>, sqlx::Error> {
    Where::default().and("key > ?", after).first::<Webhooks>(executor, "key", limit).await
}
