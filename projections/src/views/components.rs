//! Components of apps, as in their newest config version.
use domain::{
    component::{Component, ComponentEvent, Definition},
    decider::{Decider, Timestamp},
    ids::{AppId, ComponentId},
};
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;

use crate::{
    Cell, Class, DomainEvent, Projection, RecordedEvent, Type,
    table::{get, select},
};

#[derive(Debug)]
pub struct Components;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub component: ComponentId,
    /// Definition in the last config version that changed it.
    pub definition: Definition,
    /// True if the app no longer has the component.
    pub retired: bool,
    pub updated_at: Timestamp,
    /// Position of the last event that changed the row.
    pub position: u64,
}

impl Projection for Components {
    const NAME: &'static str = "components";
    const VERSION: i32 = 1;
    const CLASS: Class = Class::Asynchronous;
    const AGGREGATES: &'static [&'static str] = &[Component::NAME];
    const COLUMNS: &'static [(&'static str, Type)] =
        &[("app", Type::Text), ("name", Type::Text), ("retired", Type::Boolean)];
    type Row = Row;

    fn keys(event: &RecordedEvent) -> Vec<String> {
        let DomainEvent::Component(component, _) = &event.domain_event else { return vec![] };
        vec![component.to_string()]
    }

    fn apply(_key: &str, row: Option<Row>, event: &RecordedEvent) -> Option<Row> {
        let DomainEvent::Component(component, domain_event) = &event.domain_event else {
            return row;
        };
        let (updated_at, position) = (event.at, event.position);
        let (definition, retired) = match (domain_event, row.map(|row| row.definition)) {
            (ComponentEvent::Defined(definition), _) => (definition.clone(), false),
            (
                ComponentEvent::Changed { definition, kind, config_version }
                | ComponentEvent::Restored { definition, kind, config_version },
                Some(before),
            ) => {
                let (definition, kind) = (definition.clone(), kind.clone());
                let config_version = *config_version;
                (Definition { definition, kind, config_version, ..before }, false)
            }
            (ComponentEvent::Retired { config_version }, Some(before)) => {
                (Definition { config_version: *config_version, ..before }, true)
            }
            (
                ComponentEvent::Changed { .. }
                | ComponentEvent::Restored { .. }
                | ComponentEvent::Retired { .. },
                None,
            ) => return None,
        };
        Some(Row { component: *component, definition, retired, updated_at, position })
    }

    fn cells(row: &Row) -> Vec<Cell> {
        let Definition { app, name, .. } = &row.definition;
        vec![Cell::text(app), Cell::text(name), Cell::Boolean(row.retired)]
    }
}

/// Returns the row of a component, if the component exists.
///
/// # Errors
/// If a database operation fails.
pub async fn component(
    executor: impl PgExecutor<'_>,
    component: ComponentId,
) -> Result<Option<Row>, sqlx::Error> {
    get::<Components>(executor, component).await
}

/// Returns the current components of an app, ordered by name.
///
/// # Errors
/// If a database operation fails.
pub async fn of_app(executor: impl PgExecutor<'_>, app: AppId) -> Result<Vec<Row>, sqlx::Error> {
    let rest = "where app = $1 and not retired order by name";
    select::<Components>(executor, rest, vec![Cell::text(app)]).await
}
